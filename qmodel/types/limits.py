"""Limits of a fleet beside its targets: stock, whole nodes, power, money, pools, and what may be lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil

from qmodel.types.caps import Cap, Quota
from qmodel.types.changes import Change
from qmodel.types.layouts import Layout
from qmodel.types.offers import Offer, Purchase, bought
from qmodel.types.spot import SpotTerms

__all__ = ["Forbidden", "GpuLimits", "Holding", "Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A pool as limits see it: equal replicas of one GPU type."""

    gpu: str
    replica_gpus: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLimits:
    """How GPUs of one type are counted and paid.

    Attributes:
        max_count: GPUs in stock; None: no limit.
        max_nodes: nodes in stock; None: no limit.
        node_gpus: GPUs of one node; None: not known.
        whole_nodes: nodes are paid whole.
        offers: prices at which they can be had, in merit order; empty: not known here.
        spot: they are taken away now and then; None: they stay.
        provider, region: who sells them and where; empty where that is not stated.
        kw_per_gpu: power that one GPU takes; None: not known.
        by_hour: the fleet changes with the hour, so that every offer may be used: some are paid in every hour.
    """

    max_count: int | None = None
    max_nodes: int | None = None
    node_gpus: int | None = None
    whole_nodes: bool = False
    offers: tuple[Offer, ...] = ()
    spot: SpotTerms | None = None
    provider: str = ""
    region: str = ""
    kw_per_gpu: float | None = None
    by_hour: bool = False

    @property
    def usd_per_gpu_hour(self) -> float:
        """Price of the cheapest GPU; 0 where no price is known."""
        return self.offers[0].usd_per_gpu_hour if self.offers else 0.0

    @property
    def mixes_offers(self) -> bool:
        """Whether what GPUs cost depends on how many are bought, and when."""
        return self.by_hour or (len(self.offers) > 1 and self.offers[0].max_gpus is not None)

    @property
    def lot(self) -> int:
        """GPUs that are bought together."""
        return self.node_gpus if self.whole_nodes and self.node_gpus is not None else 1

    def room(self, offer: Offer) -> int | None:
        """GPUs that can be bought at an offer, in whole nodes where these are paid; None: any number."""
        return None if offer.max_gpus is None else offer.max_gpus // self.lot * self.lot

    def bought(self, gpus: int) -> tuple[Purchase, ...]:
        """What is bought at each offer when so many GPUs are paid for."""
        return bought(self.offers, gpus, lot=self.lot)

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
    cp: int | None = None

    def bars(self, model: str, gpu: str, layout: Layout) -> bool:
        """Whether a pool is one of them.

        Example:
            >>> Forbidden(gpu="l40s", tp=1).bars("m", "l40s", Layout(tp=1, pp=2))
            True
        """
        found = {"model": model, "gpu": gpu, **asdict(layout)}
        return all(value is None or value == found[name] for name, value in asdict(self).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Everything that bounds a fleet beside the targets of its classes.

    Attributes:
        gpus: by type.
        quotas: limits on several types together.
        budget_usd_per_hour: most that the fleet may cost.
        power_kw: most that its GPUs and their nodes may draw.
        max_pools: most pools.
        spare_replicas: every pool meets its targets with so many replicas lost.
        survive_nodes: 1: every pool meets its targets with any one node lost.
        forbidden: pools that no fleet may have.
        change: what runs already and what changing it costs; None: nothing runs.
    """

    gpus: Mapping[str, GpuLimits] = field(default_factory=dict)
    quotas: tuple[Quota, ...] = ()
    budget_usd_per_hour: float | None = None
    power_kw: float | None = None
    max_pools: int | None = None
    spare_replicas: int = 0
    survive_nodes: int = 0
    forbidden: tuple[Forbidden, ...] = ()
    change: Change | None = None

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

    def lost(self, gpu: str, replica_gpus: int, replicas: int) -> int:
        """Replicas of a pool that predictions take as lost: those to spare, and what spot GPUs are away.

        Args:
            gpu: GPU type.
            replica_gpus: GPUs of one replica.
            replicas: of the whole pool.
        """
        terms = self.of(gpu).spot
        away = 0 if terms is None else terms.lost(replicas, replica_gpus)
        return away + self.spare(gpu, replica_gpus)

    @property
    def caps(self) -> tuple[Cap, ...]:
        """Limits on all pools together, in a fixed order; the budget is not among them."""
        found: list[Cap] = []
        for name, item in sorted(self.gpus.items()):
            if item.max_count is not None:
                key = f"fleet.gpus.{name}.max_count"
                stock = Cap(kind="stock", name=name, key=key, unit=f"{name} GPUs", most=item.max_count, gpus=(name,))
                found.append(stock)
            if item.max_nodes is not None:
                key = f"fleet.gpus.{name}.max_nodes"
                nodes = Cap(kind="nodes", name=name, key=key, unit=f"{name} nodes", most=item.max_nodes, gpus=(name,))
                found.append(nodes)
            found += _offer_caps(name, item)
        found += [cap for quota in self.quotas for cap in quota.caps]
        if self.power_kw is not None:
            found.append(Cap(kind="power", name="", key="fleet.power_kw", unit="kW", most=self.power_kw))
        if self.max_pools is not None:
            found.append(Cap(kind="pools", name="", key="policy.max_pools", unit="pools", most=self.max_pools))
        return tuple(found)

    def without_caps(self) -> Limits:
        """The same prices, packing and replicas to spare, with nothing scarce; cheap GPUs may still run out."""
        gpus = {
            name: replace(
                item,
                max_count=None,
                max_nodes=None,
                offers=(*item.offers[:-1], *(replace(offer, max_gpus=None) for offer in item.offers[-1:])),
            )
            for name, item in self.gpus.items()
        }
        return replace(self, gpus=gpus, quotas=(), budget_usd_per_hour=None, power_kw=None, max_pools=None)

    @property
    def pays_nodes(self) -> bool:
        """Whether some nodes are paid whole, so that pools of one type share what they cost."""
        return any(item.whole_nodes for item in self.gpus.values())

    def used(self, cap: Cap, holdings: Sequence[Holding]) -> float:
        """What pools take of one limit."""
        if cap.kind == "pools":
            return float(sum(one.replicas > 0 for one in holdings))  # an API has none
        if cap.kind == "nodes":
            return float(self.nodes(cap.name, holdings))
        if cap.kind == "stock":
            return float(self.taken_gpus(cap.name, holdings))
        if cap.kind == "offer":
            return float(
                sum(item.gpus for item in self.purchases(cap.gpus[0], holdings) if item.offer.term == cap.term)
            )
        if cap.kind == "gpus":
            return float(sum(self.taken_gpus(name, holdings) for name in cap.gpus))
        if cap.kind == "usd":
            return sum((item.cost_usd_per_hour for name in cap.gpus for item in self.purchases(name, holdings)), 0.0)
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

    def paid_gpus(self, gpu: str, holdings: Sequence[Holding]) -> int:
        """GPUs of one type that pools pay for: those of whole nodes where nodes are paid whole."""
        if self.of(gpu).whole_nodes:
            return self.taken_gpus(gpu, holdings)
        return sum(one.replica_gpus * one.replicas for one in holdings if one.gpu == gpu)

    def purchases(self, gpu: str, holdings: Sequence[Holding]) -> tuple[Purchase, ...]:
        """What is bought of one type at each offer, the cheapest first; empty where no price is known."""
        return self.of(gpu).bought(self.paid_gpus(gpu, holdings))

    def surcharge_usd_per_hour(self, holdings: Sequence[Holding]) -> float:
        """What pools cost beyond their own GPUs at the cheapest price: idle GPUs, and GPUs at dearer offers."""
        return sum(
            (
                self._beyond_cheapest(name, holdings)
                for name, item in self.gpus.items()
                if item.whole_nodes or item.mixes_offers
            ),
            0.0,
        )

    def _beyond_cheapest(self, gpu: str, holdings: Sequence[Holding]) -> float:
        used = sum(one.replica_gpus * one.replicas for one in holdings if one.gpu == gpu)
        cheapest_usd = self.of(gpu).usd_per_gpu_hour
        found = self.purchases(gpu, holdings)
        dearer = sum(item.gpus * (item.offer.usd_per_gpu_hour - cheapest_usd) for item in found)
        return dearer + (sum(item.gpus for item in found) - used) * cheapest_usd

    def to_dict(self) -> dict[str, object]:
        """Plain data; the inverse of :meth:`from_dict`."""
        data = asdict(self)
        gpus = {name: {**item, "offers": list(item["offers"])} for name, item in data["gpus"].items()}
        change = None if self.change is None else self.change.to_dict()
        quotas = [{**item, "gpus": list(item["gpus"])} for item in data["quotas"]]
        forbidden = list(data["forbidden"])
        return {**data, "gpus": gpus, "quotas": quotas, "forbidden": forbidden, "change": change}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Limits:
        """The inverse of :meth:`to_dict`."""
        gpus, forbidden, change = data["gpus"], data["forbidden"], data.get("change")
        quotas = data["quotas"]
        assert isinstance(gpus, Mapping) and isinstance(forbidden, Sequence) and isinstance(quotas, Sequence)
        parts = {
            "gpus": {
                name: GpuLimits(
                    **{
                        **item,
                        "offers": tuple(Offer(**offer) for offer in item["offers"]),
                        "spot": None if item["spot"] is None else SpotTerms(**item["spot"]),
                    }
                )
                for name, item in gpus.items()
            },
            "quotas": tuple(Quota(**{**item, "gpus": tuple(item["gpus"])}) for item in quotas),
            "forbidden": tuple(Forbidden(**item) for item in forbidden),
            "change": Change.from_dict(change) if isinstance(change, Mapping) else None,
        }
        return cls(**{**data, **parts})  # type: ignore[arg-type]


_ROUNDING = 1e-9  # of a limit
_NO_LIMITS = GpuLimits()


def _offer_caps(gpu: str, item: GpuLimits) -> list[Cap]:
    """A limit for each offer of which there is not any number."""
    return [
        Cap(
            kind="offer",
            name=f"{gpu} {offer.term}",
            key=offer.key,
            unit=f"{gpu} GPUs at {offer.term}",
            most=room,
            gpus=(gpu,),
            term=offer.term,
        )
        for offer in item.offers
        if (room := item.room(offer)) is not None
    ]


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
