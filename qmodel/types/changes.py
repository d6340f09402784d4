"""A fleet that runs already, and what it costs to turn it into another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from qmodel.types.layouts import Layout
from qmodel.types.settings import settings_text

if TYPE_CHECKING:
    from qmodel.types.fleets import Fleet, Role

__all__ = ["Change", "ChangeRow", "PoolKey", "Running", "replicas_by_kind"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PoolKey:
    """What a replica is: one that is started as something else is another replica.

    Attributes:
        layout: as a tuple of its degrees tp, pp, ep, dp, cp.
        precision: weight type; empty: the checkpoint's own.
        settings: engine settings that differ from those of its GPU type, in words.
    """

    model: str
    gpu: str
    layout: tuple[int, int, int, int, int]
    precision: str = ""
    role: Role = "unified"
    settings: str = ""

    @classmethod
    def of(
        cls,
        model: str,
        gpu: str,
        layout: Layout,
        precision: str | None,
        role: Role = "unified",
        settings: Mapping[str, object] | None = None,
    ) -> PoolKey:
        """The key of a pool's replicas."""
        degrees = (layout.tp, layout.pp, layout.ep, layout.dp, layout.cp)
        return cls(
            model=model,
            gpu=gpu,
            layout=degrees,
            precision=precision or "",
            role=role,
            settings=settings_text(settings or {}),
        )

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.as_layout.gpus

    @property
    def as_layout(self) -> Layout:
        """The layout as a record."""
        tp, pp, ep, dp, cp = self.layout
        return Layout(tp=tp, pp=pp, ep=ep, dp=dp, cp=cp)

    @property
    def label(self) -> str:
        """For people, e.g. ``llama-3.3-70b on h100-sxm tp4``."""
        role = "" if self.role == "unified" else f" {self.role}"
        told = f"{self.model} on {self.gpu} {self.as_layout}{role}" + (f" {self.precision}" if self.precision else "")
        return f"{told} ({self.settings})" if self.settings else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Replicas that run already."""

    key: PoolKey
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A running fleet and the cost of changing it.

    Attributes:
        running: one entry for each kind of replica.
        start_usd_per_gpu: once, for each GPU of a replica that is started.
        stop_usd_per_gpu: once, for each GPU of a replica that is stopped.
        spread_h: hours over which these are counted against what a fleet costs.

    Example:
        >>> key = PoolKey.of("m", "h100", Layout(tp=4), None)
        >>> change = Change(running=(Running(key=key, replicas=3),), start_usd_per_gpu=6.0, spread_h=24.0)
        >>> change.usd({key: 5}), change.usd_per_hour({key: 5})
        (48.0, 2.0)
    """

    running: tuple[Running, ...]
    start_usd_per_gpu: float = 0.0
    stop_usd_per_gpu: float = 0.0
    spread_h: float = 1.0

    @classmethod
    def from_fleet(
        cls, fleet: Fleet, *, start_usd_per_gpu: float = 0.0, stop_usd_per_gpu: float = 0.0, spread_h: float = 1.0
    ) -> Change:
        """From the pools of a fleet; those of one kind add up."""
        return cls(
            running=tuple(Running(key=key, replicas=count) for key, count in sorted(replicas_by_kind(fleet).items())),
            start_usd_per_gpu=start_usd_per_gpu,
            stop_usd_per_gpu=stop_usd_per_gpu,
            spread_h=spread_h,
        )

    def replicas(self, key: PoolKey) -> int:
        """How many of a kind run."""
        return sum(item.replicas for item in self.running if item.key == key)

    @property
    def start_usd_per_gpu_hour(self) -> float:
        """Of each GPU started, spread."""
        return self.start_usd_per_gpu / self.spread_h

    @property
    def stop_usd_per_gpu_hour(self) -> float:
        """Of each GPU stopped, spread."""
        return self.stop_usd_per_gpu / self.spread_h

    def rows(self, replicas: Mapping[PoolKey, int]) -> tuple[ChangeRow, ...]:
        """What starts and stops on the way to a fleet with so many replicas of each kind."""
        found = []
        for key in sorted({*replicas, *(item.key for item in self.running)}):
            before, after = self.replicas(key), replicas.get(key, 0)
            started, stopped = max(after - before, 0) * key.gpus, max(before - after, 0) * key.gpus
            found.append(
                ChangeRow(
                    replica=key.label,
                    before=before,
                    after=after,
                    started_gpus=started,
                    stopped_gpus=stopped,
                    usd=started * self.start_usd_per_gpu + stopped * self.stop_usd_per_gpu,
                )
            )
        return tuple(found)

    def usd(self, replicas: Mapping[PoolKey, int]) -> float:
        """Cost of the change, once."""
        return sum(row.usd for row in self.rows(replicas))

    def usd_per_hour(self, replicas: Mapping[PoolKey, int]) -> float:
        """Cost of the change, spread."""
        return self.usd(replicas) / self.spread_h

    def to_dict(self) -> dict[str, object]:
        """Plain data; the inverse of :meth:`from_dict`."""
        data = asdict(self)
        running = [{**item, "key": {**item["key"], "layout": list(item["key"]["layout"])}} for item in data["running"]]
        return {**data, "running": running}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Change:
        """The inverse of :meth:`to_dict`."""
        running = data["running"]
        assert isinstance(running, Sequence)
        parts = tuple(
            Running(
                key=PoolKey(**{**item["key"], "layout": tuple(item["key"]["layout"])}), replicas=int(item["replicas"])
            )
            for item in running
        )
        return cls(**{**data, "running": parts})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """One kind of replica before and after.

    Attributes:
        replica: model, GPU type, layout, for people.
        usd: once.
    """

    replica: str
    before: int
    after: int
    started_gpus: int
    stopped_gpus: int
    usd: float


def replicas_by_kind(fleet: Fleet) -> dict[PoolKey, int]:
    """Replicas of a fleet by what they are; an API has none."""
    counts: dict[PoolKey, int] = {}
    for pool in fleet.gpu_pools:
        key = PoolKey.of(pool.model, pool.gpu, pool.layout, pool.precision, pool.role, pool.engine)
        counts[key] = counts.get(key, 0) + pool.replicas
    return counts
