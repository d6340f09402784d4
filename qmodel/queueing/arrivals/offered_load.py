"""Modified offered load: the busy servers that a changing demand would need if servers never ran out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from qmodel.queueing.servers.service_time import ServiceLaw
from qmodel.types.laws import FloatArray

__all__ = ["mean_offered_load", "modified_offered_load"]


def modified_offered_load(
    rates_rps: npt.ArrayLike,
    window_s: float,
    service: ServiceLaw,
    times_s: npt.ArrayLike,
    *,
    mean_service_s: npt.ArrayLike | None = None,
) -> FloatArray:
    """Mean number in service with unlimited servers, at given times: the integral of rate(t - u) P(S > u) over u.

    It follows the rate with the lag and the smoothing of service times; the product of rate and mean service time at
    the moment does neither. Before time 0 demand is that of the first window.

    Args:
        rates_rps: arrivals per second in windows of equal length from time 0 on, at least 0, shape (n,).
        window_s: length of a window, s, above 0.
        service: law of the service time, s.
        times_s: where to evaluate, s, from 0 to n windows, shape (t,).
        mean_service_s: mean service time of each window's arrivals, s, shape (n,); the law is stretched to it.
            None: the law's own mean throughout.

    Returns:
        Busy servers, shape (t,).

    Example:
        >>> from qmodel.types import Law
        >>> modified_offered_load([2.0, 0.0], 10.0, Law.constant(5.0), [0.0, 10.0, 12.0, 20.0]).tolist()
        [10.0, 10.0, 6.0, 0.0]

    Reference: Eick, Massey and Whitt, The physics of the Mt/G/infinity queue, Operations Research 41 (1993).
    """
    times = np.asarray(times_s, dtype=float)
    survival = _Survival(service)

    def still_there(since: FloatArray, stretch: FloatArray) -> FloatArray:
        return stretch * survival.integral(since / stretch)

    return _over_windows(still_there, rates_rps, window_s, service, times, times, mean_service_s)


def mean_offered_load(
    rates_rps: npt.ArrayLike,
    window_s: float,
    service: ServiceLaw,
    edges_s: npt.ArrayLike,
    *,
    mean_service_s: npt.ArrayLike | None = None,
) -> FloatArray:
    """The same, averaged over the intervals between ascending ``edges_s``, shape (t + 1,); returns shape (t,).

    Example:
        >>> from qmodel.types import Law
        >>> mean_offered_load([2.0, 0.0], 10.0, Law.constant(5.0), [0.0, 10.0, 15.0, 20.0]).tolist()
        [10.0, 5.0, 0.0]
    """
    edges = np.asarray(edges_s, dtype=float)
    width = np.diff(edges)
    survival = _Survival(service)

    def averaged(since: FloatArray, stretch: FloatArray) -> FloatArray:
        later, earlier = (since + width) / stretch, since / stretch
        return stretch**2 * (survival.double_integral(later) - survival.double_integral(earlier)) / width

    return _over_windows(averaged, rates_rps, window_s, service, edges[:-1], edges[1:], mean_service_s)


class _Survival:
    """Integrals of P(S > u) for a law of atoms: a polygon, and the parabolas below it; 0 for negative arguments."""

    def __init__(self, service: ServiceLaw) -> None:
        self._atoms = np.concatenate([[0.0], service.values])
        self._slope = np.concatenate([np.clip(np.cumsum(service.weights[::-1])[::-1], 0.0, 1.0), [0.0]])
        width = np.diff(self._atoms)
        self._once = np.concatenate([[0.0], np.cumsum(width * self._slope[:-1])])
        self._twice = np.concatenate([[0.0], np.cumsum(width * (self._once[:-1] + 0.5 * width * self._slope[:-1]))])

    def integral(self, until: FloatArray) -> FloatArray:
        return np.asarray(np.interp(until, self._atoms, self._once))

    def double_integral(self, until: FloatArray) -> FloatArray:
        at = np.maximum(until, 0.0)
        piece = np.maximum(np.searchsorted(self._atoms, at, side="right") - 1, 0)
        beyond = at - self._atoms[piece]
        return np.asarray(self._twice[piece] + beyond * (self._once[piece] + 0.5 * beyond * self._slope[piece]))


def _over_windows(
    present: Callable[[FloatArray, FloatArray], FloatArray],
    rates_rps: npt.ArrayLike,
    window_s: float,
    service: ServiceLaw,
    first_s: FloatArray,
    last_s: FloatArray,
    mean_service_s: npt.ArrayLike | None,
) -> FloatArray:
    """Sum over the window that holds each time and those before it, as far back as the longest service time.

    ``present(since, stretch)`` is what arrivals at rate 1, from ``since`` s ago on, have present.
    """
    rates = np.asarray(rates_rps, dtype=float)
    mean = service.moments[0]
    own = np.full(rates.shape, mean) if mean_service_s is None else np.asarray(mean_service_s, dtype=float)
    stretch = own / mean
    longest_s = float(service.values[-1] * stretch.max())
    current = np.clip((0.5 * (first_s + last_s) / window_s).astype(np.int64), 0, rates.size - 1)
    load = np.zeros(first_s.shape)
    for back in range(min(int(longest_s / window_s) + 2, rates.size)):
        window = current - back
        inside = np.maximum(window, 0)
        since = first_s - inside * window_s
        part = present(since, stretch[inside]) - present(since - window_s, stretch[inside])
        load += np.where(window >= 0, rates[inside] * part, 0.0)
    always = present(np.full(first_s.shape, longest_s + window_s), stretch[0])
    return np.asarray(load + rates[0] * (always - present(first_s, stretch[0])))
