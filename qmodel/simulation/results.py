"""What a simulation of a fleet says: the tables of an evaluation, with each prediction beside what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from qmodel.types import Fleet, RouteRow

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SIMULATION_TABLES",
    "BucketRow",
    "CourseRow",
    "Decision",
    "FairnessRow",
    "SimulatedLatencyRow",
    "SimulatedPoolRow",
    "SimulatedSloRow",
    "Simulation",
    "Tier",
    "TransferRow",
]

Decision = Literal["met", "missed", "not decided"]
Tier = Literal["gpu to gpu", "gpu to host", "host to gpu", "recompute"]
SIMULATION_TABLES = ("slo", "pools", "latency", "buckets", "fairness", "routing", "course", "transfers")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSloRow:
    """One target on one path, predicted and simulated.

    Attributes:
        cls: class name (``class`` in tables).
        path: pools joined with `` > ``, or ``fleet`` for the mixture over paths.
        predicted_s: by the closed forms at the confidence in force; None where they say the pool is not stable.
        simulated_s: None where the queue grew to the end of the simulation.
        ci_low_s, ci_high_s: 95 % confidence interval; None where the sample is too small to say.
        decision: ``met`` where the whole interval is within the target, ``missed`` where it is beyond, or the queue
            grew; else ``not decided``. With targets over the whole fleet that of all requests of the class together,
            also in the rows of its pools.
    """

    cls: str
    path: str
    metric: str
    stat: str
    target_s: float
    predicted_s: float | None
    simulated_s: float | None
    ci_low_s: float | None
    ci_high_s: float | None
    decision: Decision

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        return _with_class(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLatencyRow:
    """Mean or percentile of one metric of one class on one path; None as in :class:`SimulatedSloRow`."""

    cls: str
    path: str
    metric: str
    stat: str
    predicted_s: float | None
    simulated_s: float | None
    ci_low_s: float | None
    ci_high_s: float | None

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        return _with_class(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPoolRow:
    """One pool, predicted and simulated.

    Attributes:
        requests: how many were measured, warm-up and end left out.
        stable: the number of requests in the pool did not grow to the end.
        utilisation: predicted: offered load over the largest stable load.
        busy_share: simulated: share of the time in which a replica computes.
        predicted_batch, mean_batch: mean sequences running in a replica.
        predicted_kv_fill, kv_fill: mean KV tokens taken over the pool's tokens; None where memory is not limited.
        kv_waste: share of the taken tokens that blocks leave unused; None where memory is not limited.
        preemptions_per_request: how often memory was taken from a request.
        recomputed_tokens_per_request: context tokens computed again.
        refused: requests of the whole run that fit into no replica.
    """

    pool: str
    model: str
    gpu: str
    replicas: int
    requests: int
    stable: bool
    utilisation: float | None
    busy_share: float
    predicted_batch: float | None
    mean_batch: float
    predicted_kv_fill: float | None
    kv_fill: float | None
    kv_waste: float | None
    preemptions_per_request: float
    recomputed_tokens_per_request: float
    refused: int

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRow:
    """Requests of one class whose output lies in one range: up to the median, from there to p90, above.

    Attributes:
        from_tokens, to_tokens: generated tokens of the shortest and the longest output in the range.
        predicted_ttft_mean_s, ...: by the closed forms for outputs in the range; None where they have no numbers.
        slowdown_mean, slowdown_p95: completion over the completion of the same request alone in an empty replica.
    """

    cls: str
    bucket: str
    from_tokens: int
    to_tokens: int
    requests: int
    predicted_ttft_mean_s: float | None
    ttft_mean_s: float
    predicted_tpot_mean_s: float | None
    tpot_mean_s: float | None
    predicted_completion_mean_s: float | None
    completion_mean_s: float
    predicted_completion_p95_s: float | None
    completion_p95_s: float
    predicted_slowdown_mean: float | None
    slowdown_mean: float
    slowdown_p95: float

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        return _with_class(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessRow:
    """How evenly one class is slowed down.

    Attributes:
        slowdown_mean: over all requests.
        jain: Jain's index of the requests' slowdowns, (sum x)^2 / (n sum x^2): 1 where all are slowed down alike.
        worst_over_best: mean slowdown of the slowest output range over that of the fastest.
        worst_bucket: the slowest range.
    """

    cls: str
    slowdown_mean: float
    jain: float
    worst_over_best: float
    worst_bucket: str

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        return _with_class(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseRow:
    """A pool at one time of the simulation, summed over its replicas."""

    pool: str
    time_s: float
    running: float
    kv_tokens: float
    kv_waste_tokens: float

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRow:
    """KV that left the memory of its GPUs, or had to be computed again, over the whole simulation.

    Attributes:
        tier: ``gpu to gpu``: over the link into ``pool``; ``gpu to host`` and ``host to gpu``: swapped; ``recompute``:
            lost to evictions and computed again.
        sources: pools that sent it, or the pool itself.
        sequences: how many were moved; None where tokens alone are counted.
        tokens: of context.
        gib: their KV; None where the bytes of a token are not known.
        gib_per_s: over the time of the simulation, or of its window for what is swapped.
        predicted_utilisation, utilisation: of the link's lanes; None for other tiers.
        predicted_wait_mean_s, wait_mean_s: of a sequence for a lane; None for other tiers.
    """

    tier: Tier
    pool: str
    sources: str
    sequences: int | None
    tokens: int
    gib: float | None
    gib_per_s: float | None
    predicted_utilisation: float | None
    utilisation: float | None
    predicted_wait_mean_s: float | None
    wait_mean_s: float | None

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A simulated fleet.

    Attributes:
        fleet: the fleet that was simulated.
        pools: one row per pool that serves something.
        routing: one row per class and path.
        slo: one row per target and path.
        latency: one row per class, path, metric and statistic.
        buckets: one row per class and range of output lengths.
        fairness: one row per class.
        course: pools over time.
        transfers: one row per link, and per pool and tier of memory that its KV moved to.
        stable: no queue grew to the end.
        missed: a target is missed with confidence.
        decided: every target is met or missed with confidence.
        confidence: ``nominal`` or ``p90``: how long a step takes, here and in the predictions.
        cost_usd_per_hour: of all pools.
        seed: same seed, same digits.
        requests: measured, over all pools.
        assumptions: sentences a reader must know.
    """

    fleet: Fleet
    pools: tuple[SimulatedPoolRow, ...]
    routing: tuple[RouteRow, ...]
    slo: tuple[SimulatedSloRow, ...]
    latency: tuple[SimulatedLatencyRow, ...]
    buckets: tuple[BucketRow, ...]
    fairness: tuple[FairnessRow, ...]
    course: tuple[CourseRow, ...]
    confidence: str
    cost_usd_per_hour: float
    seed: int
    assumptions: tuple[str, ...] = ()
    transfers: tuple[TransferRow, ...] = ()

    @property
    def stable(self) -> bool:
        """No queue grew to the end."""
        return all(row.stable for row in self.pools)

    @property
    def missed(self) -> bool:
        """Whether a target is missed with confidence."""
        return any(row.decision == "missed" for row in self.slo)

    @property
    def decided(self) -> bool:
        """Whether every target is met or missed with confidence."""
        return all(row.decision != "not decided" for row in self.slo)

    @property
    def requests(self) -> int:
        """Requests measured over all pools, each counted where it came first."""
        fed = {row.pool for row in self.transfers if row.tier == "gpu to gpu"}
        return sum(row.requests for row in self.pools if row.pool not in fed)

    def to_dict(self) -> dict[str, object]:
        """Plain data in the names and order of the output tables."""
        return {
            "stable": self.stable,
            "missed": self.missed,
            "decided": self.decided,
            "confidence": self.confidence,
            "cost_usd_per_hour": self.cost_usd_per_hour,
            "seed": self.seed,
            "requests": self.requests,
            **{name: [row.to_dict() for row in getattr(self, name)] for name in SIMULATION_TABLES},
            "assumptions": list(self.assumptions),
            "fleet": self.fleet.to_dict(),
        }

    def to_frame(self, table: str = "slo") -> pd.DataFrame:
        """One of the tables ``slo``, ``pools``, ``latency``, ``buckets``, ``fairness``, ``routing``, ``course``,
        ``transfers``.

        Raises:
            ValueError: if there is no such table.
        """
        if table not in SIMULATION_TABLES:
            raise ValueError(f"table must be one of {', '.join(SIMULATION_TABLES)} (got {table!r})")
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in getattr(self, table)])


def _with_class(row: SimulatedSloRow | SimulatedLatencyRow | BucketRow | FairnessRow) -> dict[str, object]:
    data: Mapping[str, object] = asdict(row)
    return {"class": data["cls"], **{name: value for name, value in data.items() if name != "cls"}}
