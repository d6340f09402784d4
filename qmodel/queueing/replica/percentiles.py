"""Laws of times as percentiles need them: on a grid, or as a mixture of three-moment kernels. No sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from qmodel.queueing.servers.conditional_wait import conditional_wait_quantile, conditional_wait_sf
from qmodel.types import FloatArray

__all__ = ["GridLaw", "KernelLaw", "delayed", "wait_nodes"]

_SCANS = (12, 7, 6)  # points of the scans for a quantile, the first spaced evenly in the logarithm
_WAIT_TIMES = 512  # lattice on which a wait and a prefill delay are added
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
        rows = np.arange(self.cdf.shape[0])
        above = np.clip((self.cdf < p).sum(axis=1), 1, self.cdf.shape[1] - 1)
        low, high = self.cdf[rows, above - 1], self.cdf[rows, above]
        part = np.clip((p - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
        return np.asarray((1.0 - part) * self.times_s[rows, above - 1] + part * self.times_s[rows, above])

    def share_within(self, time_s: FloatArray) -> FloatArray:
        """P(X <= t) of the first law at the times ``time_s``, shape (T,)."""
        return np.asarray(np.interp(time_s, self.times_s[0], self.cdf[0]))


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

    def quantile(self, p: float) -> FloatArray:
        """The time that a share ``p`` does not exceed, s, shape (C,)."""
        if self.plain is None:
            found = self._quantile(p)
            return found if self.bounds_s is None else np.clip(found, *self.bounds_s)
        values = np.empty(self.weight.shape[0])
        full = self.weight[:, self.plain :].sum(axis=1) > 0.0
        for rows, kernels in ((full, self.weight.shape[1]), (~full, self.plain)):
            if rows.any():
                fields = (self.weight, self.centre_s, self.spread_s, self.skew)
                weight, centre, spread, skew = (item[rows, :kernels] for item in fields)
                values[rows] = KernelLaw(weight=weight, centre_s=centre, spread_s=spread, skew=skew)._quantile(p)
        return values

    def _quantile(self, p: float) -> FloatArray:
        """Scans between the smallest and the largest quantile of the kernels.

        The last step is linear in the normal quantile of the level, in which smooth laws are nearly straight.
        """
        target = float(special.ndtri(p))
        root = np.maximum(1.0 + self.skew * (target - self.skew / 6.0) / 6.0, 0.0)
        alone = self.centre_s + self.spread_s * (root**3 - 1.0) * 2.0 / self.skew
        used = self.weight > 0.0
        high = np.where(used, alone, 0.0).max(axis=1) * (1.0 + 1e-12)
        low = np.maximum(np.where(used, alone, np.inf).min(axis=1), 1e-6 * high)
        rows = np.arange(low.size)
        for scan, points in enumerate(_SCANS):
            part = np.linspace(0.0, 1.0, points)
            if scan == 0:
                times = low[:, None] * (high / low)[:, None] ** part
            else:
                times = low[:, None] + (high - low)[:, None] * part
            level = self.cdf(times)
            above = np.clip((level < p).sum(axis=1), 1, points - 1)
            low, high = times[rows, above - 1], times[rows, above]
        below, over = (special.ndtri(np.clip(level[rows, at], 1e-12, 1.0 - 1e-12)) for at in (above - 1, above))
        part = np.where(over > below, (target - below) / np.maximum(over - below, 1e-300), 0.5)
        return np.asarray(low + (high - low) * np.clip(part, 0.0, 1.0))


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
    cases = p_wait.size
    times = np.concatenate([delay.times_s, np.zeros((cases, _WAIT_TIMES))], axis=1)
    cdf = np.concatenate([delay.cdf, np.ones((cases, _WAIT_TIMES))], axis=1)
    for case in range(cases):
        if p_wait[case] > _RARE:
            times[case], cdf[case] = _with_wait(
                delay.times_s[case], delay.cdf[case], p_wait[case], wait_mean_s[case], wait_scv[case]
            )
        else:
            times[case, -_WAIT_TIMES:] = delay.times_s[case, -1]
    return GridLaw(mean_s=mean, times_s=times, cdf=cdf)


def wait_nodes(wait_mean_s: FloatArray, wait_scv: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The wait of those that wait in bands, finer towards the tail, scaled to its mean.

    Returns:
        Probabilities (k,), means (C, k) and variances within the bands (C, k).
    """
    share = np.diff(_WAIT_EDGES)
    level = _WAIT_EDGES[:-1, None] + share[:, None] * (np.arange(_PER_BAND) + 0.5) / _PER_BAND
    point = conditional_wait_quantile(1.0 - level, wait_mean_s[:, None, None], wait_scv[:, None, None])
    middle = point.mean(axis=2)
    scale = wait_mean_s / np.maximum(middle @ share, 1e-300)
    return share, middle * scale[:, None], point.var(axis=2) * scale[:, None] ** 2


def _with_wait(
    times: FloatArray, cdf: FloatArray, p_wait: float, mean_s: float, scv: float
) -> tuple[FloatArray, FloatArray]:
    """CDF of wait + delay on the delay's own times and on a lattice that spans the sum."""
    far = float(conditional_wait_quantile(min(1e-5 / p_wait, 0.5), mean_s, scv))
    lattice = np.linspace(0.0, far + times[-1], _WAIT_TIMES)
    half = (lattice[1] - lattice[0]) / 2.0
    survival = conditional_wait_sf(np.maximum(lattice - half, 0.0), mean_s, scv)
    wait = survival - np.append(survival[1:], 0.0)
    both = np.fft.irfft(
        np.fft.rfft(wait, 2 * _WAIT_TIMES) * np.fft.rfft(np.interp(lattice, times, cdf), 2 * _WAIT_TIMES),
        2 * _WAIT_TIMES,
    )[:_WAIT_TIMES]
    union = np.sort(np.concatenate([times, lattice]))
    direct = np.interp(union, times, cdf, right=1.0)
    total = (1.0 - p_wait) * direct + p_wait * np.clip(np.interp(union, lattice, both), 0.0, 1.0)
    return union, np.maximum.accumulate(total)
