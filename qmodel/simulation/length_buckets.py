"""Who waits for whom: latency and slowdown of short and long outputs of one class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.evaluation import PoolCase
from qmodel.queueing import PoolPrediction
from qmodel.queueing.replica.output_ranges import alone_s
from qmodel.simulation.pool_runs import MeasuredRun
from qmodel.simulation.predicted_buckets import PredictedBucket, predicted_bucket
from qmodel.simulation.results import BucketRow, FairnessRow
from qmodel.types import FloatArray, IntArray

__all__ = ["Served", "alone_s", "bucket_rows", "fairness_row"]

Served = Mapping[str, tuple[float, tuple[MeasuredRun, ...]]]  # share of a class and the runs, by pool
_EDGES = (0.5, 0.9)  # quantiles of the output
_NAMES = ("up to p50", "p50 to p90", "above p90")


def bucket_rows(
    cls: str, served: Served, cases: Mapping[str, PoolCase], predicted: Mapping[str, PoolPrediction]
) -> tuple[BucketRow, ...]:
    """One row per range of output lengths; empty where nothing was completed.

    Every pool must be stable: where a queue grows, latencies tell how long was simulated, and nothing else.

    Args:
        cls: class name.
        served: share and runs of every pool that serves the class.
        cases: pools at the confidence in force.
        predicted: what the closed forms say of them.
    """
    found = _completed(cls, served, cases)
    if not found.output.size:
        return ()
    low, high = (_quantile(found.output, found.weight, p) for p in _EDGES)
    shares = {name: share for name, (share, _) in served.items()}
    rows = []
    for name, above, up_to in zip(_NAMES, (0.0, low, high), (low, high, math.inf), strict=True):
        mask = (found.output > above) & (found.output <= up_to)
        if mask.any():
            rows.append(_bucket_row(cls, name, found, mask, predicted_bucket(cls, shares, predicted, above, up_to)))
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
            alone = _alone_s(cases, pool, table.prompt[found], table.output[found])
            columns["slowdown"].append(completion_s / alone)
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    return _Completed(**joined)  # type: ignore[arg-type]  # the output stays whole


def _alone_s(cases: Mapping[str, PoolCase], path: str, prompt: IntArray, output: IntArray) -> FloatArray:
    """Completion time of requests that have all pools of a path for themselves."""
    first, *later = (cases[name] for name in path.split(" > "))
    if not later:
        return alone_s(first.replica, prompt, output)
    one = np.ones_like(output)
    decode, link = later[0].replica, later[0].link
    decoding_s = alone_s(decode, prompt, output) - alone_s(decode, prompt, one)
    moving_s = np.zeros_like(decoding_s) if link is None else (link.sending_s(prompt) + link.latency_s) * (output > 1)
    return alone_s(first.replica, prompt, one) + moving_s + decoding_s


def _bucket_row(
    cls: str, name: str, found: _Completed, mask: npt.NDArray[np.bool_], predicted: PredictedBucket | None
) -> BucketRow:
    weight, tpot_s = found.weight[mask], found.tpot_s[mask]
    decoded = ~np.isnan(tpot_s)
    return BucketRow(
        cls=cls,
        bucket=name,
        from_tokens=int(found.output[mask].min()),
        to_tokens=int(found.output[mask].max()),
        requests=int(mask.sum()),
        predicted_ttft_mean_s=None if predicted is None else predicted.ttft_mean_s,
        ttft_mean_s=float(np.average(found.ttft_s[mask], weights=weight)),
        predicted_tpot_mean_s=None if predicted is None else predicted.tpot_mean_s,
        tpot_mean_s=float(np.average(tpot_s[decoded], weights=weight[decoded])) if decoded.any() else None,
        predicted_completion_mean_s=None if predicted is None else predicted.completion_mean_s,
        completion_mean_s=float(np.average(found.completion_s[mask], weights=weight)),
        predicted_completion_p95_s=None if predicted is None else predicted.completion_p95_s,
        completion_p95_s=_quantile(found.completion_s[mask], weight, 0.95),
        predicted_slowdown_mean=None if predicted is None else predicted.slowdown_mean,
        slowdown_mean=float(np.average(found.slowdown[mask], weights=weight)),
        slowdown_p95=_quantile(found.slowdown[mask], weight, 0.95),
    )


def _quantile(values: FloatArray | IntArray, weight: FloatArray, p: float) -> float:
    order = np.argsort(values, kind="stable")
    level = np.cumsum(weight[order])
    return float(values[order][min(int(np.searchsorted(level, p * level[-1])), values.size - 1)])
