"""How far pool predictions may be off the engine that is modelled: relative errors by load, limit and metric.

The tables are ninth deciles of |measured / predicted - 1| over simulated pools, printed by
``benchmarks/queueing_bands.py``. See docs/theory/replica.md, "Bands".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from qmodel.types import METRICS, FloatArray, IntArray, Metric

__all__ = ["KNOTS", "BandKind", "ErrorBand", "bands_by_metric", "interpolated", "least_band", "queueing_band"]

BandKind = Literal["slots", "kv", "slots ranked", "kv ranked", "bursty"]

KNOTS = (0.4, 0.7, 0.83, 0.93)  # utilisations; below the first nothing changes, beyond the last the last slope goes on
_LEVELS = (0.5, 0.95, 0.99)  # the mean's band holds up to the median, that of p99 beyond
_Rows = tuple[tuple[float, float, float, float], ...]  # mean, p95, p99 at the knots
_Metric = Literal["ttft", "tpot", "completion"]
_MEASURED: tuple[_Metric, ...] = ("ttft", "tpot", "completion")

_TABLES: Mapping[BandKind, Mapping[_Metric, _Rows]] = {
    "slots": {
        "ttft": ((0.085, 0.085, 0.12, 0.26), (0.095, 0.095, 0.12, 0.35), (0.11, 0.11, 0.18, 0.45)),
        "tpot": ((0.03, 0.035, 0.055, 0.07), (0.1, 0.1, 0.1, 0.17), (0.14, 0.15, 0.15, 0.18)),
        "completion": ((0.04, 0.04, 0.055, 0.095), (0.07, 0.075, 0.08, 0.13), (0.085, 0.11, 0.12, 0.14)),
    },
    "kv": {
        "ttft": ((0.23, 0.23, 0.28, 0.44), (0.025, 0.27, 0.48, 0.68), (0.26, 0.26, 0.3, 0.48)),
        "tpot": ((0.005, 0.01, 0.015, 0.095), (0.02, 0.085, 0.15, 0.52), (0.03, 0.12, 0.21, 0.53)),
        "completion": ((0.015, 0.015, 0.025, 0.24), (0.02, 0.04, 0.045, 0.37), (0.025, 0.055, 0.065, 0.39)),
    },
    "slots ranked": {
        "ttft": ((0.035, 0.035, 0.18, 0.37), (0.055, 0.055, 0.19, 0.44), (0.065, 0.065, 0.38, 0.47)),
        "completion": ((0.025, 0.025, 0.055, 0.13), (0.035, 0.035, 0.085, 0.17), (0.07, 0.07, 0.1, 0.17)),
    },
    "kv ranked": {
        "ttft": ((0.03, 0.03, 0.38, 1.64), (0.03, 0.03, 0.46, 2.25), (0.04, 0.04, 0.53, 2.41)),
        "tpot": ((0.015, 0.015, 0.02, 0.025), (0.025, 0.025, 0.04, 0.07), (0.045, 0.045, 0.075, 0.11)),
        "completion": ((0.03, 0.03, 0.04, 0.12), (0.045, 0.045, 0.055, 0.24), (0.045, 0.045, 0.06, 0.12)),
    },
    "bursty": {
        "ttft": ((0.1, 0.2, 0.38, 0.47), (0.11, 0.23, 0.38, 0.54), (0.13, 0.37, 0.45, 0.62)),
        "tpot": ((0.03, 0.065, 0.065, 0.065), (0.11, 0.18, 0.31, 0.31), (0.15, 0.27, 0.4, 0.4)),
        "completion": ((0.035, 0.065, 0.12, 0.16), (0.05, 0.07, 0.075, 0.1), (0.07, 0.07, 0.07, 0.12)),
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBand:
    """The band of one metric of one class: nine in ten simulated pools were no farther off, relative.

    A measured value lies between the prediction over ``1 + band`` and the prediction times ``1 + band``.

    Attributes:
        mean: of the mean, and of percentiles up to the median.
        p95, p99: of these percentiles; others lie between their neighbours, those beyond p99 have its band.

    Example:
        >>> ErrorBand(mean=0.1, p95=0.2, p99=0.3).at(None), round(ErrorBand(mean=0.1, p95=0.2, p99=0.3).at(0.97), 3)
        (0.1, 0.25)
    """

    mean: float
    p95: float
    p99: float

    def at(self, p: float | None) -> float:
        """The band of the percentile ``p``, of the mean where it is None."""
        return self.mean if p is None else float(np.interp(p, _LEVELS, (self.mean, self.p95, self.p99)))


def queueing_band(
    metric: Metric,
    p: float | None,
    utilisation: npt.ArrayLike,
    by_memory: npt.ArrayLike = False,
    *,
    bursty: bool = False,
    ranked: bool = False,
) -> FloatArray:
    """Relative error that nine in ten simulated pools stay within; broadcasts over the arrays.

    Args:
        metric: ``answer_start`` is that of a class that thinks; without thinking it is ``ttft``.
        p: level in (0, 1) of a percentile, None: the mean.
        utilisation: offered load over the largest stable load.
        by_memory: whether KV memory sets that load.
        bursty: whether arrivals clump beyond Poisson.
        ranked: whether classes differ in priority.

    Returns:
        Bands in the common shape; never less at a higher utilisation.

    Example:
        >>> queueing_band("ttft", 0.95, [0.3, 0.7, 0.93]).tolist()
        [0.095, 0.095, 0.35]
        >>> float(queueing_band("tpot", None, 0.7, True)) < float(queueing_band("tpot", None, 0.7))
        True

    Source: own measurements, see docs/theory/replica.md, "Bands".
    """
    used, memory = np.broadcast_arrays(np.asarray(utilisation, dtype=float), np.asarray(by_memory, dtype=bool))
    weights = [float(np.interp(_LEVELS[0] if p is None else p, _LEVELS, one)) for one in np.eye(len(_LEVELS))]
    return np.asarray(np.tensordot(weights, _at_levels(metric, used, memory, bursty, ranked), axes=1))


def bands_by_metric(
    utilisation: float, by_memory: bool, *, bursty: bool = False, ranked: bool = False
) -> dict[Metric, ErrorBand]:
    """The bands of all metrics at one utilisation; arguments as for :func:`queueing_band`.

    Example:
        >>> bands_by_metric(0.7, False)["ttft"].p95
        0.095
    """
    kinds = _kinds("kv" if by_memory else "slots", bursty, ranked)
    curves = [_between(_CURVES[kind], utilisation) for kind in kinds]
    widest = (curves[0] if len(curves) == 1 else np.max(curves, axis=0)).tolist()
    found = {
        metric: ErrorBand(mean=rows[0], p95=rows[1], p99=rows[2])
        for metric, rows in zip(_MEASURED, widest, strict=True)
    }
    return {metric: found[_measured(metric)] for metric in METRICS}


def least_band(metric: Metric) -> float:
    """The narrowest band that a mean of ``metric`` has anywhere.

    Example:
        >>> least_band("tpot") <= float(queueing_band("tpot", None, 0.5))
        True
    """
    return min(float(queueing_band(metric, None, 0.0, by_memory)) for by_memory in (False, True))


def _at_levels(
    metric: Metric, utilisation: FloatArray, by_memory: npt.NDArray[np.bool_], bursty: bool, ranked: bool
) -> FloatArray:
    """Bands of the mean, of p95 and of p99, shape (3, ...)."""
    place = _MEASURED.index(_measured(metric))
    found = np.zeros((len(_LEVELS), *utilisation.shape))
    for limit, mine in (("slots", ~by_memory), ("kv", by_memory)):
        if mine.any():
            kinds = _kinds(limit, bursty, ranked)
            widest = np.max([_between(_CURVES[kind][place], utilisation) for kind in kinds], axis=0)
            found = np.where(mine, widest, found)
    return found


def _measured(metric: Metric) -> _Metric:
    """The metric whose table speaks for one: answers that start after thinking are timed as whole ones are."""
    return metric if metric == "ttft" or metric == "tpot" else "completion"


def _kinds(limit: str, bursty: bool, ranked: bool) -> list[BandKind]:
    """Tables that speak for a pool; the widest counts."""
    slots = limit == "slots"
    kinds: list[BandKind] = ["slots" if slots else "kv"]
    if bursty:
        kinds.append("bursty")
    if ranked:
        kinds.append("slots ranked" if slots else "kv ranked")
    return kinds


def _with_end(at_knots: FloatArray) -> FloatArray:
    """Values at the knots and at a full pool, to which the last slope goes on; along the last axis."""
    slope = (at_knots[..., -1:] - at_knots[..., -2:-1]) / (KNOTS[-1] - KNOTS[-2])
    return np.concatenate([at_knots, at_knots[..., -1:] + slope * (1.0 - KNOTS[-1])], axis=-1)


def _between(with_end: FloatArray, utilisation: FloatArray | float) -> FloatArray:
    """Values between knots of curves whose values at the knots and the end are on the last axis, shape (..., *used)."""
    place: int | IntArray
    part: float | FloatArray
    if isinstance(utilisation, float):
        place = min(max(bisect_right(_PLACES, utilisation) - 1, 0), len(KNOTS) - 1)
        part = min(max((utilisation - _PLACES[place]) / (_PLACES[place + 1] - _PLACES[place]), 0.0), 1.0)
    else:
        places = np.array(_PLACES)
        place = np.minimum(np.maximum(np.searchsorted(places, utilisation, side="right") - 1, 0), len(KNOTS) - 1)
        low, high = places[place], places[place + 1]
        part = np.minimum(np.maximum((utilisation - low) / (high - low), 0.0), 1.0)
    return np.asarray(with_end[..., place] + part * (with_end[..., place + 1] - with_end[..., place]))


def interpolated(at_knots: FloatArray, utilisation: npt.ArrayLike) -> FloatArray:
    """Values between those at the knots; beyond the last the last slope goes on to a full pool.

    Args:
        at_knots: values at ``KNOTS``, shape (4,).
        utilisation: where, any shape.

    Example:
        >>> interpolated(np.array([1.0, 1.0, 2.0, 3.0]), [0.2, 0.88, 1.0]).round(3).tolist()
        [1.0, 2.5, 3.7]
    """
    return _between(_with_end(at_knots), np.asarray(utilisation, dtype=float))


_PLACES = (*KNOTS, 1.0)
_NONE = ((0.0,) * len(KNOTS),) * len(_LEVELS)
_CURVES: Mapping[BandKind, FloatArray] = {  # metric, level, knot or end; 0 where a table does not speak of a metric
    kind: _with_end(np.array([table.get(metric, _NONE) for metric in _MEASURED])) for kind, table in _TABLES.items()
}
