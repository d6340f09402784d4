"""How far recorded arrivals are from a Poisson process, at several time scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.types import FloatArray, Law

__all__ = [
    "Burstiness",
    "autocorrelation",
    "dispersion_index",
    "interarrival_scv",
    "measure_burstiness",
    "peak_to_mean",
    "peakedness",
    "peakedness_of_law",
]

_LEAST_WINDOWS = 10
_WARM_UP = 5.0  # mean holding times until an empty system is forgotten
_MINUTE_S = 60.0
_CELLS_PER_HOLD = 64
_MOST_CELLS = 1 << 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Burstiness:
    """Statistics of arrivals; each is 1 (correlations 0) for a Poisson process, None where the trace is too short.

    Attributes:
        interarrival_scv: squared coefficient of variation of the gaps.
        dispersion: index of dispersion of counts by window, s.
        peak_to_mean_minute: arrivals of the busiest minute over those of the mean minute.
        gap_correlation: of successive gaps.
        output_correlation: of the outputs of successive requests.
        rate_output_correlation: of the requests of a minute and their mean output; None below ten minutes.
        peakedness: variance over mean of the number in service with unlimited servers, for the holding times given.
        mean_hold_s: mean holding time that ``peakedness`` is for, s.
    """

    interarrival_scv: float | None
    dispersion: dict[float, float | None]
    peak_to_mean_minute: float | None
    gap_correlation: float | None
    output_correlation: float | None = None
    rate_output_correlation: float | None = None
    peakedness: float | None = None
    mean_hold_s: float | None = None


def measure_burstiness(
    arrival_s: FloatArray,
    *,
    output_tokens: npt.ArrayLike | None = None,
    hold_s: FloatArray | None = None,
    windows_s: Sequence[float] = (1.0, 10.0, 60.0, 600.0),
) -> Burstiness:
    """All statistics of arrivals at once.

    Args:
        arrival_s: in ascending order, s, shape (n,).
        output_tokens: of the same requests, for correlations, shape (n,).
        hold_s: how long each request stays in service, s, for the peakedness, shape (n,).
        windows_s: windows of the index of dispersion, s.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> found = measure_burstiness(np.cumsum(rng.exponential(0.1, 20_000)), hold_s=np.full(20_000, 5.0))
        >>> round(found.interarrival_scv, 1), round(found.dispersion[10.0], 1), 0.8 < found.peakedness < 1.2
        (1.0, 0.9, True)
    """
    gaps = np.diff(arrival_s)
    outputs = None if output_tokens is None else np.asarray(output_tokens, dtype=np.float64)
    return Burstiness(
        interarrival_scv=interarrival_scv(arrival_s),
        dispersion={float(window): dispersion_index(arrival_s, window) for window in windows_s},
        peak_to_mean_minute=peak_to_mean(arrival_s),
        gap_correlation=autocorrelation(gaps),
        output_correlation=None if outputs is None else autocorrelation(outputs),
        rate_output_correlation=None if outputs is None else _rate_output_correlation(arrival_s, outputs),
        peakedness=None if hold_s is None else peakedness(arrival_s, hold_s),
        mean_hold_s=None if hold_s is None or not hold_s.size else float(hold_s.mean()),
    )


def interarrival_scv(arrival_s: FloatArray) -> float | None:
    """Squared coefficient of variation of the gaps between arrivals; None below three arrivals or at one instant.

    Example:
        >>> interarrival_scv(np.array([0.0, 1.0, 2.0, 3.0]))
        0.0
    """
    gaps = np.diff(arrival_s)
    if gaps.size < 2 or gaps.mean() <= 0.0:
        return None
    return float(gaps.var() / gaps.mean() ** 2)


def dispersion_index(arrival_s: FloatArray, window_s: float) -> float | None:
    """Index of dispersion of counts: variance over mean of the arrivals in whole windows from the first arrival on.

    Args:
        arrival_s: in ascending order, s, shape (n,).
        window_s: s, above 0.

    Returns:
        The index; None where fewer than ten windows fit.

    Raises:
        ValueError: if the window is not above 0.

    Example:
        >>> dispersion_index(np.arange(100.0) + 0.5, 5.0)
        0.0

    Reference: Cox and Lewis, The Statistical Analysis of Series of Events, 1966, sec. 4.5.
    """
    counts, windows = _counts(arrival_s, window_s)
    mean = counts.sum() / windows if windows else 0.0
    if windows < _LEAST_WINDOWS or mean == 0.0:
        return None
    # empty windows count as well, without being held one by one
    squares = float(((counts - mean) ** 2).sum() + (windows - counts.size) * mean**2)
    return float(squares / (windows - 1) / mean)


def peak_to_mean(arrival_s: FloatArray, window_s: float = _MINUTE_S) -> float | None:
    """Arrivals of the busiest whole window over those of the mean one; None where fewer than two fit.

    Example:
        >>> peak_to_mean(np.concatenate([np.arange(0.0, 60.0, 1.0), np.arange(60.0, 121.0, 3.0)]))
        1.5
    """
    counts, windows = _counts(arrival_s, window_s)
    if windows < 2 or not counts.size:
        return None
    return float(counts.max() / counts.sum() * windows)


def autocorrelation(values: FloatArray, lag: int = 1) -> float | None:
    """Correlation of each value with the one ``lag`` later; None where there are too few or all are equal.

    Example:
        >>> round(autocorrelation(np.tile([1.0, 2.0], 50)), 2)
        -1.0
    """
    if values.size < lag + 3 or np.ptp(values) == 0.0:
        return None
    return _correlation(values[:-lag], values[lag:])


def peakedness(arrival_s: FloatArray, hold_s: FloatArray, *, warm_up_s: float | None = None) -> float | None:
    """Variance over mean, over time, of the number in service with unlimited servers: recorded arrivals and holds.

    Keeps the dependence between arrivals and holding times, which can halve or multiply it.

    Args:
        arrival_s: in ascending order, s, shape (n,).
        hold_s: how long each stays, s, shape (n,).
        warm_up_s: left out at the start, s; five mean holding times unless given. Departures after the last arrival
            are left out as well.

    Returns:
        The peakedness; None where nothing is left after the warm-up.

    Raises:
        ValueError: if the arrays differ in length or a holding time is negative.

    Example:
        >>> peakedness(np.arange(0.0, 100.0, 1.0), np.full(100, 4.0))  # always four in service
        0.0

    Reference: Fredericks, Congestion in blocking systems, Bell System Technical Journal 59, 1980.
    """
    if arrival_s.shape != hold_s.shape or (hold_s.size and hold_s.min() < 0.0):
        raise ValueError(f"hold_s: needs one time of at least 0 per arrival (got shape {hold_s.shape})")
    if arrival_s.size < 2:
        return None
    start = float(arrival_s[0]) + (_WARM_UP * float(hold_s.mean()) if warm_up_s is None else warm_up_s)
    end = float(arrival_s[-1])
    times = np.concatenate([arrival_s, arrival_s + hold_s])
    change = np.concatenate([np.ones(arrival_s.size), -np.ones(arrival_s.size)])
    order = np.argsort(times, kind="stable")
    times, number = times[order], np.cumsum(change[order])
    length = np.diff(np.clip(times, start, end))
    total = float(length.sum())
    if end <= start or total <= 0.0:
        return None
    mean = float(length @ number[:-1]) / total
    variance = float(length @ (number[:-1] - mean) ** 2) / total
    return variance / mean if mean > 0.0 else None


def peakedness_of_law(arrival_s: FloatArray, law: Law, *, s_per_token: float = 1.0) -> float | None:
    """Peakedness of recorded arrivals with holding times drawn independently from a law.

    Given the arrivals, the number in service at time t is a sum of independent indicators with probabilities
    p = P(S > t - a). Its variance over time is the variance of the sum of p, plus the mean of the sum of p (1 - p).
    Both are evaluated on a grid of 64 cells per mean holding time (coarser where that makes more than two million).

    Args:
        arrival_s: in ascending order, s, shape (n,).
        law: of holding times, in units of ``s_per_token``.
        s_per_token: seconds per unit of the law.

    Returns:
        The peakedness; None where the arrivals span less than the warm-up of five mean holding times.

    Raises:
        ValueError: if ``s_per_token`` is not above 0.

    Example:
        >>> arrivals = np.cumsum(np.random.default_rng(2).exponential(1.0, 20_000))
        >>> 0.9 < peakedness_of_law(arrivals, Law.constant(10)) < 1.1
        True

    Reference: own construction; Eckberg, Generalized peakedness of teletraffic processes, ITC 10, 1983, for the idea.
    """
    if not s_per_token > 0.0:
        raise ValueError(f"s_per_token: must be greater than 0 (got {s_per_token})")
    hold_s = law.mean * s_per_token
    if arrival_s.size < 2:
        return None
    span_s = float(arrival_s[-1] - arrival_s[0])
    if span_s <= _WARM_UP * hold_s:
        return None
    cell_s = max(hold_s / _CELLS_PER_HOLD, span_s / _MOST_CELLS)
    cells = int(span_s / cell_s)
    counts = np.bincount(np.minimum(((arrival_s - arrival_s[0]) / cell_s).astype(np.int64), cells - 1), minlength=cells)
    survival = _survival(law.values * s_per_token, law.weights, (np.arange(cells) + 0.5) * cell_s)
    mean = _convolved(counts.astype(np.float64), survival)
    own = _convolved(counts.astype(np.float64), survival * (1.0 - survival))
    kept = slice(int(_WARM_UP * hold_s / cell_s), None)
    mean, own = mean[kept], own[kept]
    if not mean.size or mean.mean() <= 0.0:
        return None
    return float((mean.var() + own.mean()) / mean.mean())


def _counts(arrival_s: FloatArray, window_s: float) -> tuple[npt.NDArray[np.int64], int]:
    """Arrivals in each whole window from the first arrival on that has any, and how many whole windows there are."""
    if not window_s > 0.0:
        raise ValueError(f"window_s: must be greater than 0 (got {window_s})")
    if arrival_s.size < 2:
        return np.zeros(0, dtype=np.int64), 0
    elapsed = arrival_s - arrival_s[0]
    windows = int(elapsed[-1] / window_s)
    index = (elapsed / window_s).astype(np.int64)
    return np.unique(index[index < windows], return_counts=True)[1].astype(np.int64), windows


def _rate_output_correlation(arrival_s: FloatArray, outputs: FloatArray) -> float | None:
    counts, windows = _counts(arrival_s, _MINUTE_S)
    if windows < _LEAST_WINDOWS:
        return None
    index = ((arrival_s - arrival_s[0]) / _MINUTE_S).astype(np.int64)
    inside = index < windows
    busy = np.unique(index[inside], return_inverse=True)[1]
    return _correlation(counts.astype(np.float64), np.bincount(busy, weights=outputs[inside]) / counts)


def _correlation(first: FloatArray, second: FloatArray) -> float | None:
    if first.size < 2 or np.ptp(first) == 0.0 or np.ptp(second) == 0.0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _survival(values: FloatArray, weights: FloatArray, at: npt.NDArray[np.floating]) -> FloatArray:
    """P(S > t)."""
    below = np.concatenate([[0.0], np.cumsum(weights)])
    return np.asarray(np.clip(1.0 - below[np.searchsorted(values, at, side="right")], 0.0, 1.0))


def _convolved(counts: FloatArray, kernel: FloatArray) -> FloatArray:
    """Sum over earlier cells of count times kernel at the distance, shape (cells,)."""
    size = 1 << int(2 * counts.size - 1).bit_length()
    product = np.fft.rfft(counts, size) * np.fft.rfft(kernel, size)
    return np.maximum(np.fft.irfft(product, size)[: counts.size], 0.0)
