"""Laws of times as percentiles need them: on a grid, or as a mixture of three-moment kernels. No sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from qmodel.queueing.servers.conditional_wait import conditional_wait_on_grid, conditional_wait_quantile
from qmodel.types import FloatArray

__all__ = ["GridLaw", "KernelLaw", "delayed", "wait_nodes"]

_MOST_STEPS = 60  # of a search for a quantile; three or four do where the law is smooth
_CLOSE, _NEAR = 1e-4, 0.05  # last Newton step: its relative length and how far it goes in normal quantiles
_EDGE = 1e-12  # of the cube of the root below which a kernel has no density
_SAME = 1e-9  # relative width at which an interval is a point: there the law jumps over the level
_WAIT_TIMES = 512  # lattice on which a wait and a prefill delay are added
_WAIT_PARTS = np.linspace(0.0, 1.0, _WAIT_TIMES)
_WAIT_EDGES = np.array([0.0, 0.35, 0.65, 0.85, 0.95, 0.99, 1.0])
_PER_BAND = 8
_RARE = 1e-5  # probability of waiting below which no percentile notices it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridLaw:
    """C laws given by their CDF at increasing times, linear between.

    Attributes:
        mean_s: shape (C,).
        times_s: shape (C, T).
        cdf: shape (C, T).
    """

    mean_s: FloatArray
    times_s: FloatArray
    cdf: FloatArray

    def quantile(self, p: float) -> FloatArray:
        """The time that a share ``p`` does not exceed, s, shape (C,)."""
        return self.quantiles([p])[:, 0]

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """The quantiles of several levels, s, shape (C, P)."""
        asked = np.array(levels, dtype=float)
        rows = np.arange(self.cdf.shape[0])[:, None]
        below = np.count_nonzero(self.cdf[:, None, :] < asked[:, None], axis=2)
        above = np.minimum(np.maximum(below, 1), self.cdf.shape[1] - 1)
        low, high = self.cdf[rows, above - 1], self.cdf[rows, above]
        part = np.minimum(np.maximum((asked - low) / np.maximum(high - low, 1e-300), 0.0), 1.0)
        return np.asarray((1.0 - part) * self.times_s[rows, above - 1] + part * self.times_s[rows, above])

    def share_within(self, time_s: FloatArray) -> FloatArray:
        """P(X <= t) of the first law at the times ``time_s``, shape (T,)."""
        return np.asarray(np.interp(time_s, self.times_s[0], self.cdf[0]))

    def each_within(self, time_s: FloatArray) -> FloatArray:
        """P(X <= t) of every law at a time of its own, both shapes (C,)."""
        rows = zip(time_s.tolist(), self.times_s, self.cdf, strict=True)
        return np.array([np.interp(time, times, cdf) for time, times, cdf in rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelLaw:
    """C mixtures of M shifted-gamma kernels, each given by mean, spread and skewness.

    Attributes:
        weight: shape (C, M), rows sum to 1.
        centre_s: kernel means, shape (C, M).
        spread_s: standard deviations, shape (C, M), positive.
        skew: skewness, shape (C, M), positive.
        bounds_s: no value lies below the first or above the second, shapes (C,); None: no such limits.
        plain: leading kernels that carry all the weight in rows where the others have none; None: all of them.
    """

    weight: FloatArray
    centre_s: FloatArray
    spread_s: FloatArray
    skew: FloatArray
    bounds_s: tuple[FloatArray, FloatArray] | None = None
    plain: int | None = None

    @property
    def mean_s(self) -> FloatArray:
        """Means, shape (C,)."""
        return np.asarray((self.weight * self.centre_s).sum(axis=1))

    def cdf(self, times_s: FloatArray) -> FloatArray:
        """P(X <= t) at ``times_s``, shape (C, T); gamma kernels in the cube-root normal form.

        Reference: Wilson and Hilferty, PNAS 17 (1931).
        """
        z = (times_s[:, :, None] - self.centre_s[:, None, :]) / self.spread_s[:, None, :]
        skew = self.skew[:, None, :]
        root = np.cbrt(np.maximum(1.0 + z * skew / 2.0, 0.0))
        kernel = special.ndtr((6.0 / skew) * (root - 1.0) + skew / 6.0)
        return np.asarray((kernel * self.weight[:, None, :]).sum(axis=2))

    def share_within(self, time_s: FloatArray) -> FloatArray:
        """P(X <= t) of the first law at the times ``time_s``, shape (T,)."""
        used = self.weight[0] > 0.0
        fields = (self.weight, self.centre_s, self.spread_s, self.skew)
        weight, centre, spread, skew = (item[:1, used] for item in fields)
        law = KernelLaw(weight=weight, centre_s=centre, spread_s=spread, skew=skew)
        level: FloatArray = law.cdf(time_s[None, :])[0]
        if self.bounds_s is None:
            return level
        below, above = (float(bound[0]) for bound in self.bounds_s)
        return np.where(time_s < below, 0.0, np.where(time_s >= above, 1.0, level))

    def each_within(self, time_s: FloatArray) -> FloatArray:
        """P(X <= t) of every law at a time of its own, both shapes (C,)."""
        level: FloatArray = self.cdf(time_s[:, None])[:, 0]
        if self.bounds_s is None:
            return level
        below, above = self.bounds_s
        return np.where(time_s < below, 0.0, np.where(time_s >= above, 1.0, level))

    def quantile(self, p: float) -> FloatArray:
        """The time that a share ``p`` does not exceed, s, shape (C,)."""
        return self.quantiles([p])[:, 0]

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """The quantiles of several levels, s, shape (C, P): one search for all of them."""
        target = special.ndtri(np.array(levels, dtype=float))
        fields = (self.weight, self.centre_s, self.spread_s, self.skew)
        full = None if self.plain is None else self.weight[:, self.plain :].sum(axis=1) > 0.0
        if full is None or full.all():
            values = _mixture_quantiles(target, *fields)
        else:
            values = np.empty((full.size, target.size))
            values[~full] = _mixture_quantiles(target, *(item[~full, : self.plain] for item in fields))
            if full.any():
                values[full] = _mixture_quantiles(target, *(item[full] for item in fields))
        if self.bounds_s is not None:
            values = np.minimum(np.maximum(values, self.bounds_s[0][:, None]), self.bounds_s[1][:, None])
        return values


def _mixture_quantiles(
    target: FloatArray, weight: FloatArray, centre_s: FloatArray, spread_s: FloatArray, skew: FloatArray
) -> FloatArray:
    """Where C mixtures of M kernels reach P levels, given as normal quantiles, shape (C, P).

    Newton steps between the smallest and the largest quantile of the kernels.
    They go along the logarithm of time and the normal quantile of the level, in which smooth laws are nearly
    straight. What is known to hold the quantile is halved instead where a step leaves it, and after a step that
    did not halve how far the level is off.
    """
    reach = 6.0 / skew
    shift = reach - skew / 6.0
    gain = 0.5 * skew / spread_s
    root = np.maximum((target[:, None] + shift[:, None, :]) / reach[:, None, :], 0.0)
    alone = centre_s[:, None, :] + (root * root * root - 1.0) / gain[:, None, :]
    used = (weight > 0.0)[:, None, :]
    if used.all():
        high, low = alone.max(axis=2) * (1.0 + 1e-12), alone.min(axis=2)
    else:
        high = np.where(used, alone, 0.0).max(axis=2) * (1.0 + 1e-12)
        low = np.where(used, alone, np.inf).min(axis=2)
    low = np.maximum(low, 1e-6 * high)
    kernels = tuple(item[:, None, :] for item in (weight, weight / spread_s, gain, 1.0 - centre_s * gain, reach, shift))
    time = np.minimum(np.maximum(np.sqrt(np.einsum("cm,cpm,cpm->cp", weight, alone, alone)), low), high)
    found, rows = time.copy(), np.arange(time.shape[0])
    before, moving = np.full(time.shape, np.inf), np.ones(time.shape, dtype=bool)
    for _ in range(_MOST_STEPS):
        reached, slope = _level(time, *kernels)
        off = target - reached
        over = off < 0.0
        high, low = np.where(over, time, high), np.where(over, low, time)
        miss = np.abs(off)
        there = time * np.exp(np.minimum(np.maximum(off / slope, -30.0), 30.0))
        good = (there >= low) & (there <= high) & (miss <= 0.5 * before)
        if good.all():
            before = miss
        else:
            there = np.where(good, there, np.sqrt(low * high))
            before = np.where(good, miss, np.inf)
        found[rows] = np.where(moving, there, found[rows])
        moving &= ((np.abs(there - time) > _CLOSE * time) | (miss > _NEAR)) & (high - low > _SAME * high)
        time = there
        left = np.logical_or.reduce(moving, axis=1)
        some = int(np.count_nonzero(left))
        if some == 0:
            break
        if some < 0.7 * rows.size:
            rows, time, low, high, before, moving = (item[left] for item in (rows, time, low, high, before, moving))
            kernels = tuple(item[left] for item in kernels)
    return np.asarray(found)


def _level(
    time: FloatArray,
    weight: FloatArray,
    mass: FloatArray,
    gain: FloatArray,
    offset: FloatArray,
    reach: FloatArray,
    shift: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Normal quantile of the level that mixtures reach at ``time``, and its slope along log time, shapes (C, P)."""
    inner = gain * time[..., None]
    inner += offset
    root = np.cbrt(np.maximum(inner, _EDGE))
    z = reach * root
    z -= shift
    level = np.einsum("cim,cpm->cp", weight, special.ndtr(z))
    bell = np.exp(-0.5 * z * z)
    bell /= root * root
    bell *= inner > _EDGE
    density = np.einsum("cim,cpm->cp", mass, bell)
    reached = special.ndtri(np.minimum(np.maximum(level, 1e-15), 1.0 - 1e-15))
    return reached, np.maximum(density * time, 1e-300) * np.exp(0.5 * reached * reached)


def delayed(delay: GridLaw, p_wait: FloatArray, wait_mean_s: FloatArray, wait_scv: FloatArray) -> GridLaw:
    """Law of an independent wait (zero with probability 1 - ``p_wait``) plus ``delay``.

    Args:
        delay: C laws on equally spaced times from 0.
        p_wait: probability of waiting, shape (C,).
        wait_mean_s: mean wait of those that wait, shape (C,).
        wait_scv: its squared coefficient of variation, shape (C,).
    """
    mean = delay.mean_s + p_wait * wait_mean_s
    if not np.any(p_wait > _RARE):
        return GridLaw(mean_s=mean, times_s=delay.times_s, cdf=delay.cdf)
    late = p_wait > _RARE
    if late.all():
        times, cdf = _with_wait(delay.times_s, delay.cdf, p_wait, wait_mean_s, wait_scv)
        return GridLaw(mean_s=mean, times_s=times, cdf=cdf)
    times = np.concatenate([delay.times_s, np.repeat(delay.times_s[:, -1:], _WAIT_TIMES, axis=1)], axis=1)
    cdf = np.concatenate([delay.cdf, np.ones((p_wait.size, _WAIT_TIMES))], axis=1)
    times[late], cdf[late] = _with_wait(
        *(item[late] for item in (delay.times_s, delay.cdf, p_wait, wait_mean_s, wait_scv))
    )
    return GridLaw(mean_s=mean, times_s=times, cdf=cdf)


def wait_nodes(wait_mean_s: FloatArray, wait_scv: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The wait of those that wait in bands, finer towards the tail, scaled to its mean.

    Returns:
        Probabilities (k,), means (C, k) and variances within the bands (C, k).
    """
    share = np.diff(_WAIT_EDGES)
    level = _WAIT_EDGES[:-1, None] + share[:, None] * (np.arange(_PER_BAND) + 0.5) / _PER_BAND
    point = conditional_wait_quantile(1.0 - level, wait_mean_s[:, None, None], wait_scv[:, None, None])
    middle = point.sum(axis=2) / _PER_BAND
    beside = point - middle[:, :, None]
    variance = np.einsum("cbk,cbk->cb", beside, beside) / _PER_BAND
    scale = (wait_mean_s / np.maximum(middle @ share, 1e-300))[:, None]
    return share, middle * scale, variance * (scale * scale)


def _with_wait(
    times: FloatArray, cdf: FloatArray, p_wait: FloatArray, mean_s: FloatArray, scv: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """CDF of wait + delay on the delay's own times and on a lattice that spans the sum, (C, T + lattice)."""
    far = conditional_wait_quantile(np.minimum(1e-5 / p_wait, 0.5), mean_s, scv)
    lattice = (far + times[:, -1])[:, None] * _WAIT_PARTS
    wait = conditional_wait_on_grid(lattice[:, 1], _WAIT_TIMES, mean_s, scv)
    delay = _on_even_grid(lattice, times, cdf)
    both = np.fft.irfft(
        np.fft.rfft(wait, 2 * _WAIT_TIMES, axis=1) * np.fft.rfft(delay, 2 * _WAIT_TIMES, axis=1),
        2 * _WAIT_TIMES,
        axis=1,
    )[:, :_WAIT_TIMES]
    both = np.minimum(np.maximum(both, 0.0), 1.0)
    union = np.concatenate([times, lattice], axis=1)
    union.sort(axis=1)
    part = p_wait[:, None]
    total = (1.0 - part) * _on_even_grid(union, times, cdf) + part * _on_even_grid(union, lattice, both)
    return union, np.maximum.accumulate(total, axis=1)


def _on_even_grid(where: FloatArray, times: FloatArray, values: FloatArray) -> FloatArray:
    """Values between grid points that are evenly spaced from 0, each row on its own grid; the last one beyond it."""
    count = times.shape[1]
    place = np.minimum(where / times[:, 1:2], count - 1.0)
    below = np.minimum(place.astype(np.intp), count - 2)
    part = place - below
    below += np.arange(0, times.shape[0] * count, count)[:, None]
    flat = values.ravel()
    return np.asarray((1.0 - part) * flat[below] + part * flat[below + 1])
