"""Recorded arrivals as demand by window: rates, mean holding times, and what varies about the load they make."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.queueing.arrivals.offered_load import modified_offered_load
from qmodel.types.laws import FloatArray, Law

__all__ = ["RecordedDemand", "recorded_demand"]

_HOLDS_PER_WINDOW = 4.0  # long against a service time, short against drift; from 2 to 16 little changes
_LEAST_WINDOWS = 4
_WARM_UP = 5.0  # mean holding times until an empty system is forgotten
_SAMPLES_PER_HOLD, _MOST_SAMPLES = 16.0, 1 << 20
_MOST_ATOMS = 1024
_LEAST_PEAKEDNESS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedDemand:
    """Demand of a trace in windows of equal length, ready for :func:`qmodel.queueing.time_varying`.

    Attributes:
        window_s: length of a window, s.
        rates_rps: arrivals per second by window, shape (n,).
        mean_service_s: mean holding time of each window's arrivals, s, shape (n,).
        service: law of all holding times, s.
        peakedness: variance over mean of the number in service about the offered load of the windows.
        whole_peakedness: the same about its overall mean: the windows' drift included.
    """

    window_s: float
    rates_rps: FloatArray
    mean_service_s: FloatArray
    service: Law
    peakedness: float
    whole_peakedness: float


def recorded_demand(arrival_s: FloatArray, hold_s: FloatArray, *, window_s: float | None = None) -> RecordedDemand:
    """Count a trace into windows, by requests and by work, and measure what the windows leave out.

    Args:
        arrival_s: in ascending order, spread over the steps of a coarse clock, s, shape (n,).
        hold_s: how long each request is in service, above 0, s, shape (n,).
        window_s: about how long a window is, s; None: four mean holding times, at least four windows.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> rng = np.random.default_rng(3)
        >>> found = recorded_demand(np.cumsum(rng.exponential(0.1, 40_000)), rng.exponential(2.0, 40_000))
        >>> found.rates_rps.size, round(found.window_s), 0.8 < found.whole_peakedness < 1.2
        (501, 8, True)

    Reference: own construction, see docs/theory/bursty.md.
    """
    arrivals, holds = np.asarray(arrival_s, dtype=float), np.asarray(hold_s, dtype=float)
    if arrivals.ndim != 1 or arrivals.size < 2 or not np.all(np.diff(arrivals) >= 0.0):
        raise ValueError(f"arrival_s must be at least two times in ascending order (got shape {arrivals.shape})")
    if holds.shape != arrivals.shape or not np.all(np.isfinite(holds) & (holds > 0.0)):
        raise ValueError(f"hold_s must have one finite time above 0 s per arrival (got shape {holds.shape})")
    elapsed, mean_s = arrivals - arrivals[0], float(holds.mean())
    span_s = float(elapsed[-1])
    if not span_s > _WARM_UP * mean_s:
        raise ValueError(
            f"arrival_s must span more than {_WARM_UP:g} mean holding times, {_WARM_UP * mean_s:g} s (got {span_s:g} s)"
        )
    wanted = span_s / (_HOLDS_PER_WINDOW * mean_s if window_s is None else _checked_window(window_s))
    count = max(round(wanted), _LEAST_WINDOWS if window_s is None else 1)
    length = span_s / count
    index = np.minimum((elapsed / length).astype(np.int64), count - 1)
    requests = np.bincount(index, minlength=count)
    work = np.bincount(index, weights=holds, minlength=count)
    rates = requests / length
    means = np.where(requests > 0, work / np.maximum(requests, 1), mean_s)
    service = _law(holds)
    varying, whole = _peakedness(elapsed, holds, rates, means, length, service)
    return RecordedDemand(
        window_s=length,
        rates_rps=rates,
        mean_service_s=means,
        service=service,
        peakedness=varying,
        whole_peakedness=whole,
    )


def _peakedness(
    elapsed: FloatArray, holds: FloatArray, rates: FloatArray, means: FloatArray, window_s: float, service: Law
) -> tuple[float, float]:
    """Variance over mean of the number in service with unlimited servers, about the load and about its mean."""
    span_s, mean_s = window_s * rates.size, service.mean
    samples = int(min(span_s / mean_s * _SAMPLES_PER_HOLD, _MOST_SAMPLES))
    times = np.linspace(_WARM_UP * mean_s, span_s, samples)
    leaves = np.sort(elapsed + holds)
    number = np.searchsorted(elapsed, times, side="right") - np.searchsorted(leaves, times, side="right")
    load = modified_offered_load(rates, window_s, service, times, mean_service_s=means)
    mean = float(number.mean())
    if mean <= 0.0:
        return 1.0, 1.0
    return max(float((number - load).var()) / mean, _LEAST_PEAKEDNESS), float(number.var()) / mean


def _law(holds: FloatArray) -> Law:
    """Holding times as atoms: equal shares of the sorted sample, each at its mean; the moments are the sample's."""
    ordered = np.sort(holds)
    parts = np.array_split(ordered, min(_MOST_ATOMS, ordered.size))
    atoms = Law.from_atoms(np.array([part.mean() for part in parts]), np.array([float(part.size) for part in parts]))
    moments = tuple(float((ordered**power).mean()) for power in (1, 2, 3))
    return Law(
        values=atoms.values, weights=atoms.weights, moments=(moments[0], moments[1], moments[2]), label="recorded"
    )


def _checked_window(window_s: float) -> float:
    if not (np.isfinite(window_s) and window_s > 0.0):
        raise ValueError(f"window_s must be finite and above 0 s (got {window_s!r})")
    return window_s
