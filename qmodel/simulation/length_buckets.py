"""Who waits for whom: latency and slowdown of short and long outputs of one class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.evaluation import PoolCase
from qmodel.simulation.pool_runs import MeasuredRun
from qmodel.simulation.results import BucketRow, FairnessRow
from qmodel.types import FloatArray, IntArray, Replica

__all__ = ["Served", "alone_s", "bucket_rows", "fairness_row"]

Served = Mapping[str, tuple[float, tuple[MeasuredRun, ...]]]  # share of a class and the runs, by pool
_EDGES = (0.5, 0.9)  # quantiles of the output
_NAMES = ("up to p50", "p50 to p90", "above p90")


def alone_s(replica: Replica, prompt: IntArray, output: IntArray) -> FloatArray:
    """Completion time of requests that have a replica for themselves.

    Args:
        replica: the replica.
        prompt: tokens, shape (n,).
        output: tokens, shape (n,).

    Returns:
        Time from arrival to the last token, s, shape (n,).

    Example:
        >>> from qmodel.types import StepLaw
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0, delta_s=1e-4))
        >>> alone_s(engine, np.array([100]), np.array([21])).round(6).tolist()
        [0.22]
    """
    step = replica.step
    chunks = np.ceil(prompt / replica.max_batched_tokens)
    decodes = output - 1.0
    read = decodes * prompt + decodes * (decodes + 1.0) / 2.0
    first_s = chunks * float(step.tau_s(0.0, 0.0)) + step.delta_s * prompt
    return np.asarray(first_s + decodes * float(step.tau_s(1.0, 0.0)) + step.gamma_s * read)


def bucket_rows(cls: str, served: Served, cases: Mapping[str, PoolCase]) -> tuple[BucketRow, ...]:
    """One row per range of output lengths; empty where nothing was completed.

    Every pool must be stable: where a queue grows, latencies tell how long was simulated, and nothing else.

    Args:
        cls: class name.
        served: share and runs of every pool that serves the class.
        cases: pools at the confidence in force.
    """
    found = _completed(cls, served, cases)
    if not found.output.size:
        return ()
    low, high = (_quantile(found.output, found.weight, p) for p in _EDGES)
    rows = []
    for name, mask in zip(
        _NAMES, (found.output <= low, (found.output > low) & (found.output <= high), found.output > high), strict=True
    ):
        if mask.any():
            rows.append(_bucket_row(cls, name, found, mask))
    return tuple(rows)


def fairness_row(cls: str, served: Served, cases: Mapping[str, PoolCase], buckets: Sequence[BucketRow]) -> FairnessRow:
    """How evenly a class is slowed down.

    Args:
        cls, served, cases: as for :func:`bucket_rows`.
        buckets: the rows of the class, at least one.

    Source: Jain, Chiu, Hawe, A Quantitative Measure of Fairness (1984), DEC-TR-301.
    """
    found = _completed(cls, served, cases)
    first = float(np.average(found.slowdown, weights=found.weight))
    second = float(np.average(found.slowdown**2, weights=found.weight))
    worst = max(buckets, key=lambda row: row.slowdown_mean)
    return FairnessRow(
        cls=cls,
        slowdown_mean=first,
        jain=first**2 / second,
        worst_over_best=worst.slowdown_mean / min(row.slowdown_mean for row in buckets),
        worst_bucket=worst.bucket,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Completed:
    """Measured requests of a class that got all their tokens; every column has shape (n,), weights sum to 1."""

    output: IntArray
    weight: FloatArray
    ttft_s: FloatArray
    tpot_s: FloatArray
    completion_s: FloatArray
    slowdown: FloatArray


def _completed(cls: str, served: Served, cases: Mapping[str, PoolCase]) -> _Completed:
    columns: dict[str, list[FloatArray | IntArray]] = {
        name: [] for name in ("output", "weight", "ttft_s", "tpot_s", "completion_s", "slowdown")
    }
    for pool, (share, runs) in served.items():
        rows = [run.rows(cls) for run in runs]
        rows = [found[run.run.log.done[found]] for run, found in zip(runs, rows, strict=True)]
        total = sum(found.size for found in rows)
        for run, found in zip(runs, rows, strict=True):
            log = run.run.log
            table = log.table
            completion_s = log.completion_after_s[found]
            columns["output"].append(table.output[found])
            columns["weight"].append(np.full(found.size, share / max(total, 1)))
            columns["ttft_s"].append(log.ttft_s[found])
            columns["tpot_s"].append(log.tpot_s[found])
            columns["completion_s"].append(completion_s)
            alone = alone_s(cases[pool].replica, table.prompt[found], table.output[found])
            columns["slowdown"].append(completion_s / alone)
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    return _Completed(**joined)  # type: ignore[arg-type]  # the output stays whole


def _bucket_row(cls: str, name: str, found: _Completed, mask: npt.NDArray[np.bool_]) -> BucketRow:
    weight, tpot_s = found.weight[mask], found.tpot_s[mask]
    decoded = ~np.isnan(tpot_s)
    return BucketRow(
        cls=cls,
        bucket=name,
        from_tokens=int(found.output[mask].min()),
        to_tokens=int(found.output[mask].max()),
        requests=int(mask.sum()),
        ttft_mean_s=float(np.average(found.ttft_s[mask], weights=weight)),
        tpot_mean_s=float(np.average(tpot_s[decoded], weights=weight[decoded])) if decoded.any() else None,
        completion_mean_s=float(np.average(found.completion_s[mask], weights=weight)),
        completion_p95_s=_quantile(found.completion_s[mask], weight, 0.95),
        slowdown_mean=float(np.average(found.slowdown[mask], weights=weight)),
        slowdown_p95=_quantile(found.slowdown[mask], weight, 0.95),
    )


def _quantile(values: FloatArray | IntArray, weight: FloatArray, p: float) -> float:
    order = np.argsort(values, kind="stable")
    level = np.cumsum(weight[order])
    return float(values[order][min(int(np.searchsorted(level, p * level[-1])), values.size - 1)])
