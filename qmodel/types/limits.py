"""Limits of a fleet beside its targets: stock, whole nodes, power, money, pools, and what may be lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from typing import Literal

from qmodel.types.layouts import Layout

__all__ = ["Cap", "Forbidden", "GpuLimits", "Holding", "Limits", "LimitKind"]

LimitKind = Literal["stock", "nodes", "power", "pools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A pool as limits see it: equal replicas of one GPU type."""

    gpu: str
    replica_gpus: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """One limit on all pools together.

    Attributes:
        name: GPU type of a limit by type, empty otherwise.
        key: the key of the scenario that states it.
        unit: of ``most``, for people.
        most: the limit.
    """

    kind: LimitKind
    name: str
    key: str
    unit: str
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLimits:
    """How GPUs of one type are counted and paid.

    Attributes:
        max_count: GPUs in stock; None: no limit.
        max_nodes: nodes in stock; None: no limit.
        node_gpus: GPUs of one node; None: not known.
        whole_nodes: nodes are paid whole.
        usd_per_gpu_hour: price of a GPU that stands idle in a node that is paid.
        kw_per_gpu: power that one GPU takes; None: not known.
    """

    max_count: int | None = None
    max_nodes: int | None = None
    node_gpus: int | None = None
    whole_nodes: bool = False
    usd_per_gpu_hour: float = 0.0
    kw_per_gpu: float | None = None

    @property
    def counts_nodes(self) -> bool:
        """Whether it matters how replicas are packed into nodes."""
        return self.whole_nodes or self.max_nodes is not None

    def held_gpus(self, replica_gpus: int) -> int:
        """GPUs set aside for one replica, so that whatever else is in its node finds room.

        Sizes 1, 2, 4 and 8 of an 8-GPU node fill it without a gap in any order, largest first. Another size takes the
        next of them, and a replica larger than a node takes whole nodes. For other nodes the sizes are 1 and its
        products with the prime factors of the node, least first (72: 1, 2, 4, 8, 24, 72). Own construction.

        Example:
            >>> node = GpuLimits(node_gpus=8, whole_nodes=True)
            >>> [node.held_gpus(gpus) for gpus in (1, 3, 8, 12)]
            [1, 4, 8, 16]
        """
        if not self.counts_nodes or self.node_gpus is None:
            return replica_gpus
        if replica_gpus > self.node_gpus:
            return ceil(replica_gpus / self.node_gpus) * self.node_gpus
        return min(size for size in _sizes(self.node_gpus) if size >= replica_gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbidden:
    """Pools that no fleet may have: those that agree with all that is stated; None: whatever it is."""

    model: str | None = None
    gpu: str | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None

    def bars(self, model: str, gpu: str, layout: Layout) -> bool:
        """Whether a pool is one of them.

        Example:
            >>> Forbidden(gpu="l40s", tp=1).bars("m", "l40s", Layout(tp=1, pp=2))
            True
        """
        found = {"model": model, "gpu": gpu, "tp": layout.tp, "pp": layout.pp, "ep": layout.ep, "dp": layout.dp}
        return all(value is None or value == found[name] for name, value in asdict(self).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Everything that bounds a fleet beside the targets of its classes.

    Attributes:
        gpus: by type.
        budget_usd_per_hour: most that the fleet may cost.
        power_kw: most that its GPUs and their nodes may draw.
        max_pools: most pools.
        spare_replicas: every pool meets its targets with so many replicas lost.
        survive_nodes: 1: every pool meets its targets with any one node lost.
        forbidden: pools that no fleet may have.
    """

    gpus: Mapping[str, GpuLimits] = field(default_factory=dict)
    budget_usd_per_hour: float | None = None
    power_kw: float | None = None
    max_pools: int | None = None
    spare_replicas: int = 0
    survive_nodes: int = 0
    forbidden: tuple[Forbidden, ...] = ()

    def of(self, gpu: str) -> GpuLimits:
        """Limits of one GPU type; none where it is not listed."""
        return self.gpus.get(gpu, _NO_LIMITS)

    def spare(self, gpu: str, replica_gpus: int) -> int:
        """Replicas of a pool that may be lost: the stated number, or what one node holds if that is more.

        Replicas of a pool are taken to fill nodes one after another, which is how most are lost with one.

        Example:
            >>> limits = Limits(gpus={"h100": GpuLimits(node_gpus=8)}, survive_nodes=1)
            >>> limits.spare("h100", 2), limits.spare("h100", 16)
            (4, 1)
        """
        node_gpus = self.of(gpu).node_gpus
        together = 0 if not self.survive_nodes else max((node_gpus or 1) // replica_gpus, 1)
        return max(self.spare_replicas, together)

    @property
    def caps(self) -> tuple[Cap, ...]:
        """Limits on all pools together, in a fixed order; the budget is not among them."""
        found: list[Cap] = []
        for name, item in sorted(self.gpus.items()):
            if item.max_count is not None:
                key = f"fleet.gpus.{name}.max_count"
                found.append(Cap(kind="stock", name=name, key=key, unit=f"{name} GPUs", most=item.max_count))
            if item.max_nodes is not None:
                key = f"fleet.gpus.{name}.max_nodes"
                found.append(Cap(kind="nodes", name=name, key=key, unit=f"{name} nodes", most=item.max_nodes))
        if self.power_kw is not None:
            found.append(Cap(kind="power", name="", key="fleet.power_kw", unit="kW", most=self.power_kw))
        if self.max_pools is not None:
            found.append(Cap(kind="pools", name="", key="policy.max_pools", unit="pools", most=self.max_pools))
        return tuple(found)

    def without_caps(self) -> Limits:
        """The same prices, packing and replicas to spare, with nothing scarce."""
        gpus = {name: replace(item, max_count=None, max_nodes=None) for name, item in self.gpus.items()}
        return replace(self, gpus=gpus, budget_usd_per_hour=None, power_kw=None, max_pools=None)

    @property
    def pays_nodes(self) -> bool:
        """Whether some nodes are paid whole, so that pools of one type share what they cost."""
        return any(item.whole_nodes for item in self.gpus.values())

    def used(self, cap: Cap, holdings: Sequence[Holding]) -> float:
        """What pools take of one limit."""
        if cap.kind == "pools":
            return float(len(holdings))
        if cap.kind == "nodes":
            return float(self.nodes(cap.name, holdings))
        if cap.kind == "stock":
            return float(self.taken_gpus(cap.name, holdings))
        kinds = dict.fromkeys(item.gpu for item in holdings)
        return sum(self.taken_gpus(name, holdings) * (self.of(name).kw_per_gpu or 0.0) for name in kinds)

    def exceeded(self, holdings: Sequence[Holding]) -> list[Cap]:
        """Those of :attr:`caps` that pools exceed."""
        return [cap for cap in self.caps if self.used(cap, holdings) > cap.most * (1.0 + _ROUNDING)]

    def broken(self, holdings: Sequence[Holding]) -> Cap | None:
        """The first limit of :attr:`caps` that pools exceed."""
        return next(iter(self.exceeded(holdings)), None)

    def nodes(self, gpu: str, holdings: Iterable[Holding]) -> int:
        """Nodes of one type that hold pools; 0 where nodes are not counted."""
        item = self.of(gpu)
        if not item.counts_nodes or item.node_gpus is None:
            return 0
        held = sum(item.held_gpus(one.replica_gpus) * one.replicas for one in holdings if one.gpu == gpu)
        return ceil(held / item.node_gpus)

    def taken_gpus(self, gpu: str, holdings: Sequence[Holding]) -> int:
        """GPUs of one type that pools keep from others: those of whole nodes where nodes are paid whole."""
        item = self.of(gpu)
        if item.whole_nodes and item.node_gpus is not None:
            return self.nodes(gpu, holdings) * item.node_gpus
        return sum(item.held_gpus(one.replica_gpus) * one.replicas for one in holdings if one.gpu == gpu)

    def idle_gpus(self, holdings: Sequence[Holding]) -> dict[str, int]:
        """GPUs that are paid and serve nothing, by type, where there are any."""
        found = {}
        for name, item in self.gpus.items():
            if item.whole_nodes:
                used = sum(one.replica_gpus * one.replicas for one in holdings if one.gpu == name)
                found[name] = self.taken_gpus(name, holdings) - used
        return {name: count for name, count in found.items() if count}

    def idle_usd_per_hour(self, holdings: Sequence[Holding]) -> float:
        """What those cost."""
        return sum(self.of(name).usd_per_gpu_hour * count for name, count in self.idle_gpus(holdings).items())

    def to_dict(self) -> dict[str, object]:
        """Plain data; the inverse of :meth:`from_dict`."""
        data = asdict(self)
        return {**data, "forbidden": list(data["forbidden"])}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Limits:
        """The inverse of :meth:`to_dict`."""
        gpus, forbidden = data["gpus"], data["forbidden"]
        assert isinstance(gpus, Mapping) and isinstance(forbidden, Sequence)
        parts = {
            "gpus": {name: GpuLimits(**item) for name, item in gpus.items()},
            "forbidden": tuple(Forbidden(**item) for item in forbidden),
        }
        return cls(**{**data, **parts})  # type: ignore[arg-type]


_ROUNDING = 1e-9  # of a limit
_NO_LIMITS = GpuLimits()


def _sizes(node_gpus: int) -> list[int]:
    """1 and its products with the prime factors of a node, least first: each divides the next."""
    sizes, left, factor = [1], node_gpus, 2
    while left > 1:
        if left % factor:
            factor += 1
        else:
            left //= factor
            sizes.append(sizes[-1] * factor)
    return sizes
