"""The burst of recorded arrivals, by requests or by work."""

from __future__ import annotations

import numpy as np
from scipy import optimize

from qmodel.queueing.arrivals.peakedness import residence_weight
from qmodel.types.arrivals import Burst
from qmodel.types.laws import FloatArray, Law

__all__ = ["measured_burst"]

_LEAST_ARRIVALS = 100
_SCALES = 16
_LONGEST = 40.0  # spans at least this many of the longest residence that is tried
_SLOWEST = 5.0  # spans at least this many memories of the slowest component
_DECAYS_PER_DECADE = 3
_WARM_UP = 5.0  # mean residences until an empty system is forgotten
_SAMPLES_PER_HOLD, _MOST_SAMPLES = 16.0, 1 << 18
_CLEAR = 2.0  # standard errors from Poisson below which nothing is claimed
_LEAST_PART = 0.01  # of the total excess; smaller components are left out
_MOST_ATOMS = 256


def measured_burst(
    arrival_s: FloatArray, *, sizes: FloatArray | None = None, clock_step_s: float = 0.0
) -> Burst | None:
    """Components whose peakedness fits that of recorded arrivals, for residences up to a fortieth of its span.

    With ``sizes`` residences are proportional to them, each request with its own: a surge of short requests then counts
    for less, a surge of long ones for more. Used with the law of the same sizes, :func:`burst_peakedness` gives the
    peakedness of the trace.

    Args:
        arrival_s: in ascending order, s, shape (n,); those of a coarse clock spread over its steps.
        sizes: of the requests, above 0, in any unit, shape (n,), such as output tokens; None: all equal.
        clock_step_s: step of the clock that stamped the arrivals, s; nothing is read from shorter residences.

    Returns:
        The burst; None where the arrivals are too few (below 100) or too close to Poisson to tell.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> from qmodel.workload.arrival_processes import TwoRates
        >>> process = TwoRates(rates=(1.0, 3.0), mean_stay_s=(10.0, 10.0))
        >>> times = process.draw(np.random.default_rng(1), 200_000, 20.0)
        >>> true, found = process.burst(20.0), measured_burst(times)
        >>> bool(np.allclose(found.dispersion([1.0, 10.0, 100.0]), true.dispersion([1.0, 10.0, 100.0]), rtol=0.15))
        True

    Reference: own construction; the bias of a variance about a sample mean as in Cox and Lewis (1966), sec. 4.5.
    """
    arrivals = np.asarray(arrival_s, dtype=float)
    if arrivals.ndim != 1 or not np.all(np.isfinite(arrivals)) or not np.all(np.diff(arrivals) >= 0.0):
        raise ValueError(f"arrival_s must be finite times in ascending order (got shape {arrivals.shape})")
    size = np.ones(arrivals.size) if sizes is None else np.asarray(sizes, dtype=float)
    if size.shape != arrivals.shape or not np.all(np.isfinite(size) & (size > 0.0)):
        raise ValueError(f"sizes must have one finite size above 0 per arrival (got shape {size.shape})")
    if not (np.isfinite(clock_step_s) and clock_step_s >= 0.0):
        raise ValueError(f"clock_step_s must be finite and at least 0 s (got {clock_step_s!r})")
    span_s = float(arrivals[-1] - arrivals[0]) if arrivals.size else 0.0
    shortest = max(2.0 * clock_step_s, 2.0 * span_s / max(arrivals.size, 1))
    if arrivals.size < _LEAST_ARRIVALS or span_s / _LONGEST <= 2.0 * shortest:
        return None
    size = size / size.mean()
    holds = np.geomspace(shortest, span_s / _LONGEST, _SCALES)
    seen = np.array([_peakedness(arrivals - arrivals[0], size * hold, span_s) for hold in holds])
    error = np.sqrt(2.0 * holds / span_s)
    beyond = seen - 1.0 + holds / span_s * float((size**2).mean())
    if np.all(np.abs(beyond) < _CLEAR * error):
        return None
    return _fitted(beyond, error * np.maximum(seen, 0.3), holds, span_s, _law(size))


def _fitted(beyond: FloatArray, error: FloatArray, holds: FloatArray, span_s: float, law: Law) -> Burst | None:
    """Non-negative least squares on a grid of decays; all excess of the sign that explains more."""
    slowest, fastest = _SLOWEST / span_s, 2.0 / holds[0]
    decay = np.geomspace(slowest, fastest, 1 + round(_DECAYS_PER_DECADE * np.log10(fastest / slowest)))
    decay = np.append(decay, np.inf)
    shown = residence_weight(decay, law, s_per_unit=holds[:, None])
    whole = np.where(
        np.isinf(decay), 1.0, 1.0 + np.expm1(-decay * span_s) / np.where(np.isinf(decay), 1.0, decay * span_s)
    )
    table = (shown - holds[:, None] / span_s * whole) / error[:, None]
    fits = [(sign, *optimize.nnls(table, sign * beyond / error)) for sign in (1.0, -1.0)]
    sign, excess, _ = min(fits, key=lambda fit: float(fit[2]))
    if sign < 0.0 and excess.sum() > 1.0:
        excess = excess / excess.sum()
    kept = excess > _LEAST_PART * excess.sum()
    if not np.any(kept):
        return None
    return Burst(excess=tuple((sign * excess[kept]).tolist()), decay_per_s=tuple(decay[kept].tolist()))


def _peakedness(elapsed: FloatArray, holds: FloatArray, span_s: float) -> float:
    """Variance over mean, over time, of the number in service with unlimited servers."""
    mean_s = float(holds.mean())
    times = np.linspace(_WARM_UP * mean_s, span_s, int(min(span_s / mean_s * _SAMPLES_PER_HOLD, _MOST_SAMPLES)))
    left = np.searchsorted(np.sort(elapsed + holds), times, side="right")
    number = np.searchsorted(elapsed, times, side="right") - left
    return float(number.var() / number.mean()) if number.any() else 1.0


def _law(size: FloatArray) -> Law:
    parts = np.array_split(np.sort(size), min(_MOST_ATOMS, size.size))
    return Law.from_atoms(np.array([part.mean() for part in parts]), np.array([float(part.size) for part in parts]))
