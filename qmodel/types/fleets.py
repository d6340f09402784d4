"""Pools, fleets and the rows of result tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from qmodel.types.layouts import Layout
from qmodel.types.limits import Holding

__all__ = [
    "ROLES_IN_A_ROW",
    "Fleet",
    "LinkRow",
    "Overload",
    "Path",
    "Pool",
    "PoolLink",
    "PoolRow",
    "Role",
    "RouteRow",
    "SloRow",
]

Role = Literal["unified", "prefill", "decode", "answer", "api"]
ROLES_IN_A_ROW: tuple[tuple[Role, ...], ...] = (
    ("unified",),
    ("api",),
    ("prefill", "decode"),
    ("prefill", "decode", "answer"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """Why a pool cannot carry its load; takes the place of numbers.

    Attributes:
        kind: ``steps`` (step time), ``kv`` (memory), ``slots`` (``max_num_seqs``), ``length`` (a request
            longer than the pool), ``rate`` (a measured capacity), ``link`` (bandwidth between pools).
        value: what was offered, in the unit of ``limit``.
        limit: what can be carried.
        reason: one sentence with the numbers.
    """

    kind: Literal["steps", "kv", "slots", "length", "rate", "link"]
    value: float
    limit: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLink:
    """What is stated of the link that brings KV into a pool; None: derived from nodes, fabric and model.

    Attributes:
        bandwidth_gbps: of one lane, 1e9 bytes/s.
        latency_s: from the last byte sent to the arrival, s.
        lanes: sequences that travel at a time.
        kv_bytes_per_token: KV bytes of one token of context, of the whole model.
    """

    bandwidth_gbps: float | None = None
    latency_s: float | None = None
    lanes: int | None = None
    kv_bytes_per_token: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """``replicas`` equal engine instances with one role behind one router.

    Attributes:
        gpu: GPU type; for the role ``api`` the name of the API, whose pool has no replicas.
        engine: settings that differ from the scenario's engine for this GPU type, by key.
        precision: weight type the layout runs, None: the checkpoint's own.
        usd_per_gpu_hour: None: the scenario's price for this GPU type.
        link: what is stated of the link into a decode or answer pool.
    """

    name: str
    model: str
    gpu: str
    layout: Layout
    replicas: int
    engine: Mapping[str, object] = field(default_factory=dict)
    precision: str | None = None
    role: Role = "unified"
    price_tier: str = "on_demand"
    usd_per_gpu_hour: float | None = None
    link: PoolLink | None = None

    @property
    def gpus(self) -> int:
        """GPUs of the whole pool."""
        return self.layout.gpus * self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Pools a request visits in order, and the share of its class that goes this way."""

    pools: tuple[str, ...]
    share: float

    @property
    def label(self) -> str:
        """The pools joined with `` > ``, as tables name the path."""
        return " > ".join(self.pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Pools by name, and for each class its paths."""

    pools: Mapping[str, Pool]
    routing: Mapping[str, tuple[Path, ...]]

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs by type."""
        total: dict[str, int] = {}
        for pool in self.gpu_pools:
            total[pool.gpu] = total.get(pool.gpu, 0) + pool.gpus
        return dict(sorted(total.items()))

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """Pools as limits see them; an API takes nothing of them."""
        return tuple(
            Holding(gpu=pool.gpu, replica_gpus=pool.layout.gpus, replicas=pool.replicas) for pool in self.gpu_pools
        )

    @property
    def gpu_pools(self) -> tuple[Pool, ...]:
        """Pools that consist of GPUs: all but APIs."""
        return tuple(pool for pool in self.pools.values() if pool.role != "api")

    @property
    def joined_pools(self) -> list[tuple[str, ...]]:
        """Pools that paths join, directly or through others, in the order of the fleet; a unified pool stands alone."""
        return self._grouped([path.pools for paths in self.routing.values() for path in paths])

    @property
    def pools_by_class(self) -> list[tuple[str, ...]]:
        """Pools that serve the same class, directly or through others, in the order of the fleet."""
        return self._grouped([[name for path in paths for name in path.pools] for paths in self.routing.values()])

    def _grouped(self, together: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """Pools in groups such that those that belong together, directly or through others, are in one."""
        group = {name: number for number, name in enumerate(self.pools)}
        for names in together:
            joined = {group[name] for name in names}
            group = {name: min(joined) if number in joined else number for name, number in group.items()}
        return [tuple(name for name in group if group[name] == number) for number in sorted(set(group.values()))]

    def model_on(self, path: Path) -> str:
        """The model that serves a path: all pools of one path serve the same."""
        return self.pools[path.pools[0]].model

    def to_dict(self) -> dict[str, object]:
        """Plain data; the inverse of :meth:`from_dict`."""
        return {
            "pools": {name: _pool_data(pool) for name, pool in self.pools.items()},
            "routing": {
                name: [{"path": list(path.pools), "share": path.share} for path in paths]
                for name, paths in self.routing.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Fleet:
        """The inverse of :meth:`to_dict`."""
        pools, routing = data["pools"], data["routing"]
        assert isinstance(pools, Mapping) and isinstance(routing, Mapping)
        return cls(
            pools={name: _pool_from(item) for name, item in pools.items()},
            routing={
                name: tuple(Path(pools=tuple(item["path"]), share=float(item["share"])) for item in paths)
                for name, paths in routing.items()
            },
        )


def _pool_data(pool: Pool) -> dict[str, object]:
    """A pool as plain data; a link that is not stated is left out."""
    data = asdict(pool)
    link = data.pop("link")
    return data if link is None else {**data, "link": link}


def _pool_from(data: Mapping[str, Any]) -> Pool:
    link = data.get("link")
    return Pool(**{**data, "layout": Layout(**data["layout"]), "link": None if link is None else PoolLink(**link)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SloRow:
    """One target on one path: what was asked, what is predicted, and between which bounds.

    Attributes:
        cls: class name (``class`` in tables).
        path: pools joined with `` > ``, or ``fleet`` for the mixture over paths.
        metric, stat: of ``abandoned``, a ``share``, target and values are shares, not seconds.
        predicted_s: None where the pool is not stable, or runs at a measured capacity.
        low_s, high_s: prediction at the 90 % bands of step law and queueing model, down and up; high is None where
            the pool is not stable there.
        met: predicted within target; with targets over the whole fleet (``slo_scope: fleet``) that of all requests of
            the class together, also in the rows of its pools.
        met_at_p90: still within target at the upper end of both bands; as ``met``.
        basis: ``predicted``; ``measured``: met as long as the pool carries no more than it was measured to carry
            with its targets met; or ``stated``: what the scenario says of an API.
    """

    cls: str
    path: str
    metric: str
    stat: str
    target_s: float
    predicted_s: float | None
    low_s: float | None
    high_s: float | None
    met: bool
    met_at_p90: bool
    basis: Literal["predicted", "measured", "stated"] = "predicted"

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        data = asdict(self)
        return {"class": data.pop("cls"), **data}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """One pool with its predictions.

    Attributes:
        cost_usd_per_hour: of the time in which its GPUs are held.
        utilisation: offered load over the largest stable load at this mix; of a batch, the mean time that it takes over
            its deadline.
        kv_fill: mean KV tokens held over the pool's tokens (of a batch, until it is done); None where memory is not
            limited.
        mean_batch: mean sequences running per replica.
        binding: what is missed, or what stops one replica less: ``SLO <class> <metric> <stat>``, ``KV memory``,
            ``KV memory: SLO <class> <metric> <stat>`` (met if memory were no limit), ``step time``, ...
        stable: False where the load exceeds what the pool carries; ``overload`` then says why.
        max_num_seqs: most sequences of one attention rank; None where the engine is not known: an API, or a measured
            capacity.
        max_batched_tokens, kv_dtype: token budget of a step and type of the KV cache, None likewise.
        precision: weight type, ``auto``: the checkpoint's own.
        settings: engine settings that are the pool's own or were chosen for it, in words; empty where it has those of
            its GPU type.
    """

    pool: str
    model: str
    role: str
    gpu: str
    tp: int
    pp: int
    ep: int
    dp: int
    cp: int
    replicas: int
    gpus: int
    price_tier: str
    usd_per_gpu_hour: float
    cost_usd_per_hour: float
    utilisation: float | None
    kv_fill: float | None
    mean_batch: float | None
    binding: str
    stable: bool
    overload: str = ""
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    kv_dtype: str | None = None
    precision: str = "auto"
    settings: str = ""

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """The link that brings KV into one pool.

    Attributes:
        pool: the pool.
        sources: the pools that send, joined with ``, ``.
        bandwidth_gbps: of one lane, 1e9 bytes/s.
        utilisation: of the lanes; 1 and more where the link cannot carry its load.
        moved_gbps: KV moved, 1e9 bytes/s.
        wait_mean_s: for a lane; None where the link or a pool before it is not stable.
        delay_mean_s: from the end of the stage before to the arrival; None likewise.
        overload: why the link cannot carry its load, empty where it can.
    """

    pool: str
    sources: str
    bandwidth_gbps: float
    lanes: int
    latency_s: float
    kv_bytes_per_token: float
    utilisation: float
    moved_gbps: float
    wait_mean_s: float | None
    delay_mean_s: float | None
    overload: str = ""

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRow:
    """One path of one class."""

    cls: str
    path: str
    share: float
    rate_rps: float

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        data = asdict(self)
        return {"class": data.pop("cls"), **data}
