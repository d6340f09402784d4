"""Batches of a fleet: each has its pools to itself, and is done when the last of them is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.evaluation.path_predictions import PoolCase
from qmodel.evaluation.pool_rows import pool_row
from qmodel.evaluation.results import LatencyRow
from qmodel.queueing import ClosedBatch, closed_batch
from qmodel.queueing.populations.batch_capacity import batch_statistic
from qmodel.types import Fleet, FloatArray, Metric, Path, PoolRow, RequestClass, Slo

__all__ = [
    "BATCH_METRICS",
    "BatchPool",
    "batch_latency_rows",
    "batch_pools",
    "batch_values",
    "held_notes",
    "held_shares",
    "statistic_of_parts",
]

_BISECTIONS = 60
BATCH_METRICS: tuple[Metric, ...] = ("ttft", "completion", "makespan")
LEVELS = ("nominal", "p90", "low")  # in the order of a target's row
_PERCENTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchPool:
    """A pool with the part of a batch that it serves.

    Attributes:
        item: the class with the requests of this pool.
        case: the pool at nominal step times.
        found: the batch there.
    """

    item: RequestClass
    case: PoolCase
    found: ClosedBatch

    @classmethod
    def of(cls, item: RequestClass, case: PoolCase) -> BatchPool:
        """Solve a batch, which is dealt to the replicas in turn."""
        assert item.batch is not None
        found = closed_batch(case.replica, item.batch.requests, item.lengths, case.serving)
        return cls(item=item, case=case, found=found)

    def factor(self, level: str) -> float:
        """From nominal times to those of a level: all that a batch waits for is steps, so times go with them."""
        band = 1.0 + self.case.replica.step.band.p90
        return band if level == "p90" else 1.0 / band if level == "low" else 1.0

    def value_s(self, slo: Slo, level: str) -> float:
        """What a target asks for at a level; infinite where the batch fits nowhere."""
        return batch_statistic(self.found, slo) * self.factor(level)

    @property
    def utilisation(self) -> float:
        """Mean time that the batch takes over its deadline."""
        assert self.item.batch is not None
        return self.found.makespan_s / self.item.batch.deadline_s

    @property
    def mean_batch(self) -> float | None:
        """Mean sequences in a replica until the batch is done."""
        course = self.found.course
        return None if course is None else self._mean(course.running) / self.case.serving

    @property
    def kv_fill(self) -> float | None:
        """Mean share of the KV memory that is held until the batch is done."""
        course = self.found.course
        return None if course is None or course.kv_fill is None else self._mean(course.kv_fill)

    def _mean(self, values: FloatArray) -> float:
        """Mean until the batch is done, of values over the time in which it may be."""
        course = self.found.course
        assert course is not None
        return float(np.trapezoid(values, course.time_s)) / self.found.makespan_s

    def binding(self, level: str) -> str:
        """What is missed, or what would be with one replica less."""
        if self.found.overload is not None:
            return "overload"
        missed = self._missed(level)
        if missed is None:
            if self.case.serving == 1:
                return "one replica is the least"
            fewer = replace(self.case, pool=replace(self.case.pool, replicas=self.case.pool.replicas - 1))
            missed = BatchPool.of(self.item, fewer)._missed(level)
            if missed is None:
                return "spare: one replica less still meets every target"
        said = f"SLO {self.item.name} {missed.metric} {missed.stat}"
        if self.case.replica.kv_tokens is None or self.found.preemptions == 0.0:
            return said
        unlimited = replace(self.case, replica=replace(self.case.replica, kv_tokens=None))
        return said if BatchPool.of(self.item, unlimited)._missed(level) is not None else f"KV memory: {said}"

    def pool_row(self, level: str, held: float, *, detail: bool) -> PoolRow:
        """The row of the pool.

        Args:
            level: at which to say what binds.
            held: share of the time in which it is held and paid.
            detail: say what binds.
        """
        overload, bare = self.found.overload, pool_row(self.case, None, "")
        return replace(
            bare,
            cost_usd_per_hour=bare.cost_usd_per_hour * held,
            utilisation=self.utilisation if overload is None else None,
            kv_fill=self.kv_fill,
            mean_batch=self.mean_batch,
            binding=self.binding(level) if detail else "",
            stable=overload is None,
            overload="" if overload is None else overload.reason,
        )

    def _missed(self, level: str) -> Slo | None:
        """The target that is missed by most; None where all hold."""
        worst = max(self.item.slos, key=lambda slo: self.value_s(slo, level) / slo.target_s)
        return worst if self.value_s(worst, level) > worst.target_s else None


def batch_pools(
    classes: Mapping[str, RequestClass], cases: Mapping[str, PoolCase], fleet: Fleet
) -> dict[str, BatchPool]:
    """The pools that serve a batch, by name; it has them to itself.

    Args:
        classes: request classes by name.
        cases: pools at nominal step times.
        fleet: pools and routing.
    """
    found = {}
    for item in classes.values():
        if item.batch is not None:
            for path in fleet.routing.get(item.name, ()):
                (name,) = path.pools
                if name in cases:
                    found[name] = BatchPool.of(item.part(path.share), cases[name])
    return found


def held_shares(classes: Mapping[str, RequestClass], fleet: Fleet) -> dict[str, float]:
    """Share of the time in which each pool of a fleet is held: less than 1 where it serves a batch that comes by hours.

    Args:
        classes: request classes by name.
        fleet: pools and routing.
    """
    shares = dict.fromkeys(fleet.pools, 0.0)
    for name, paths in fleet.routing.items():
        item = classes.get(name)
        held = 1.0 if item is None or item.batch is None else item.batch.held_share
        for pool in (pool for path in paths for pool in path.pools):
            shares[pool] = max(shares[pool], held)
    return {name: share or 1.0 for name, share in shares.items()}


def statistic_of_parts(parts: Sequence[tuple[Path, BatchPool]], slo: Slo, level: str) -> float | None:
    """A target's statistic of a batch in several pools: all of them are done, or a request is wherever it went.

    Args:
        parts: each path with its pool.
        slo: the target.
        level: ``nominal``, ``p90`` or ``low``.

    Returns:
        Seconds; None where the batch fits nowhere in one of the pools.
    """
    if any(part.found.laws is None for _, part in parts):
        return None

    def reached(time_s: float) -> float:
        shares = []
        for path, part in parts:
            assert part.found.laws is not None
            law = {
                "makespan": part.found.laws.makespan,
                "completion": part.found.laws.completion,
                "ttft": part.found.laws.first_token,
            }[slo.metric]
            shares.append((path.share, law.p_by(time_s / part.factor(level))))
        if slo.metric == "makespan":
            return float(np.prod([share for _, share in shares]))
        return sum(weight * share for weight, share in shares)

    if slo.p is None and slo.metric != "makespan":
        return sum(path.share * part.value_s(slo, level) for path, part in parts)
    ends = [part.found.makespan_quantile_s(1.0 - 1e-6) * part.factor(level) for _, part in parts]
    if slo.p is None:  # the mean of the largest: what is not done, over time
        times = np.linspace(0.0, max(ends), 2001)
        return float(np.trapezoid([1.0 - reached(float(time_s)) for time_s in times], times))
    low, high = 0.0, max(ends)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if reached(middle) >= slo.p else (middle, high)
    return high


def batch_values(
    classes: Mapping[str, RequestClass], fleet: Fleet, pools: Mapping[str, BatchPool]
) -> Iterator[tuple[str, str, Slo, list[float | None]]]:
    """Class, path, target and its values at all levels, for each pool of a batch and for several pools together.

    Args:
        classes: request classes by name.
        fleet: pools and routing.
        pools: as :func:`batch_pools` has them.
    """
    for item in classes.values():
        if item.batch is None:
            continue
        parts = [(path, pools[path.pools[0]]) for path in fleet.routing.get(item.name, ())]
        for slo in item.slos:
            for path, part in parts:
                fits = part.found.overload is None
                yield item.name, path.label, slo, [part.value_s(slo, level) if fits else None for level in LEVELS]
            if len(parts) > 1:
                yield item.name, "fleet", slo, [statistic_of_parts(parts, slo, level) for level in LEVELS]


def held_notes(classes: Mapping[str, RequestClass], fleet: Fleet, held: Mapping[str, float]) -> list[str]:
    """Pools that are held, and paid, for a part of the time."""
    notes = []
    for name, item in classes.items():
        batch = item.batch
        if batch is not None and batch.every_s is not None:
            pools = [path.pools[0] for path in fleet.routing.get(name, ()) if held[path.pools[0]] < 1.0]
            notes += [
                f"pool {pool}: held, and paid, {batch.deadline_s:g} s of every {batch.every_s:g} s ({held[pool]:.1%})"
                for pool in pools
            ]
    return notes


def batch_latency_rows(
    classes: Mapping[str, RequestClass], fleet: Fleet, pools: Mapping[str, BatchPool]
) -> Iterator[LatencyRow]:
    """Mean and percentiles of every batch and of its requests in every pool.

    Args:
        classes: request classes by name.
        fleet: pools and routing.
        pools: as :func:`batch_pools` has them.
    """
    for item in classes.values():
        for path in fleet.routing.get(item.name, ()) if item.batch is not None else ():
            part = pools[path.pools[0]]
            for metric in BATCH_METRICS:
                fits = part.found.overload is None
                wanted = [Slo(metric=metric, p=p, target_s=1.0) for p in (None, *_PERCENTILES)]
                mean, p50, p90, p95, p99 = (part.value_s(slo, "nominal") if fits else None for slo in wanted)
                yield LatencyRow(
                    cls=item.name,
                    path=path.label,
                    metric=metric,
                    mean_s=mean,
                    p50_s=p50,
                    p90_s=p90,
                    p95_s=p95,
                    p99_s=p99,
                )
