"""Error bands of pools: of every class of one, or of many cases at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from qmodel.queueing.replica.chain import top_rate_rps
from qmodel.queueing.replica.error_bands import ErrorBand, bands_by_metric, queueing_band
from qmodel.queueing.replica.kv_limited import memory_limit
from qmodel.queueing.replica.pool_cases import Wanted, broadcast_cases, check_wanted, rows_by_replica
from qmodel.queueing.replica.work import ClassWork, pooled_work
from qmodel.types import METRICS, FloatArray, Metric, Replica, RequestClass, Stream

__all__ = ["ABANDONED", "class_bands", "clumps", "pool_bands"]


ABANDONED = ErrorBand(mean=2.0, p95=2.0, p99=2.0)  # measured, docs/theory/patience.md


def class_bands(
    classes: Sequence[ClassWork], utilisation: float, by_memory: bool, *, bursty: bool = False
) -> dict[str, dict[Metric, ErrorBand]]:
    """Bands by class and metric of one pool.

    Args:
        classes: of the pool.
        utilisation: offered load over the largest stable load.
        by_memory: whether KV memory sets that load.
        bursty: whether arrivals clump beyond Poisson.
    """
    ranked = len({item.priority for item in classes}) > 1
    by_metric = bands_by_metric(utilisation, by_memory, bursty=bursty, ranked=ranked)
    return {item.name: {metric: by_metric[_measured_as(metric, item)] for metric in METRICS} for item in classes}


def clumps(classes: Sequence[Stream | RequestClass]) -> bool:
    """Whether arrivals of some class clump beyond Poisson."""
    return any(item.burst is not None and max(item.burst.excess, default=0.0) > 0.0 for item in classes)


def pool_bands(
    replicas: Sequence[Replica] | Replica,
    streams: Sequence[Stream | RequestClass],
    counts: npt.ArrayLike,
    loads: npt.ArrayLike,
    wanted: Sequence[Wanted],
) -> FloatArray:
    """Relative errors that nine in ten simulated pools stay within, C cases and W metrics at once.

    The values themselves are :func:`pool_metrics` of the same arguments.

    Args:
        replicas: one replica for all cases, or C of them.
        streams: classes at load 1, requests/s.
        counts: replicas of each case, shape (C,) or a scalar.
        loads: factor on the rates of each case, shape (C,) or a scalar.
        wanted: W triples of class name, metric and level p in (0, 1), None for the mean.

    Returns:
        Bands, shape (C, W); where the load is too high they are those of a pool that is just stable.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.types import Law, Lengths, StepLaw
        >>> replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=3e-5), max_num_seqs=64)
        >>> chat = Stream(name="chat", rate_rps=4.0, lengths=Lengths.independent(Law.constant(500), Law.constant(200)))
        >>> low, high = pool_bands(replica, [chat], [1, 1], [1.0, 4.0], [("chat", "ttft", 0.95)])[:, 0]
        >>> bool(low < high)
        True

    Source: own measurements, see docs/theory/replica.md, "Bands".
    """
    engines, sizes, factors = broadcast_cases(replicas, counts, loads)
    check_wanted(streams, wanted)
    used, by_memory = np.ones(sizes.size), np.zeros(sizes.size, dtype=bool)
    for replica, rows in rows_by_replica(engines):
        work = pooled_work(replica, streams)
        capacity, memory = top_rate_rps(replica, work, memory_limit(replica, work))
        used[rows], by_memory[rows] = work.rate_rps * factors[rows] / (sizes[rows] * capacity), memory
    bursty, ranked = clumps(streams), len({item.priority for item in streams}) > 1
    by_name = {item.name: item for item in streams}
    bands = np.empty((sizes.size, len(wanted)))
    for column, (name, metric, p) in enumerate(wanted):
        if metric == "abandoned":
            bands[:, column] = ABANDONED.mean
            continue
        bands[:, column] = queueing_band(
            _measured_as(metric, by_name[name]), p, used, by_memory, bursty=bursty, ranked=ranked
        )
    return bands


def _measured_as(metric: Metric, item: ClassWork | Stream | RequestClass) -> Metric:
    """The metric whose band counts: an answer without thinking starts with the first token."""
    return "ttft" if metric == "answer_start" and item.lengths.reasoning is None else metric
