"""From the counts of a histogram's buckets and the mean of its values to a law."""

from __future__ import annotations

import numpy as np

from qmodel.types import FloatArray, Law

__all__ = ["law_of_buckets"]

_POINTS = 24  # atoms in a bucket
_BEYOND = 2.0  # how many times the last finite bound the values above it reach
_STEEPEST = 12.0  # power at which all of a bucket sits at one of its ends


def law_of_buckets(
    bounds: FloatArray, below: FloatArray, *, mean: float | None = None, label: str = "histogram"
) -> Law:
    """The law whose values are known by bucket only.

    Inside a bucket log tokens are taken to be linear in the normal score of the level, as between two quantiles of a
    scenario file; the first and the last bucket go on with the slope of their neighbour. Each bucket is then tilted by
    the same power of the length, its count kept, so that the mean is the one stated, as far as the bounds allow it.

    Args:
        bounds: upper bounds of the buckets, rising, the last may be infinite (it is taken as twice the one before).
        below: values at or below each bound, not falling, shape as ``bounds``.
        mean: of all values, None where it is not known.
        label: name for people.

    Raises:
        ValueError: if there are fewer than two buckets, counts fall, or no value is above 0.

    Example:
        >>> law = law_of_buckets(np.array([10.0, 100.0, np.inf]), np.array([20.0, 70.0, 100.0]), mean=80.0)
        >>> round(law.mean, 6), round(law.survival(10), 6), round(law.survival(100), 6)
        (80.0, 0.8, 0.3)

    Reference: own construction, see docs/workload.md.
    """
    if bounds.size < 2:
        raise ValueError(f"a histogram needs at least two buckets (got {bounds.size})")
    counts = np.diff(below, prepend=0.0)
    if np.any(counts < 0.0):
        raise ValueError("counts of the histogram fall as the bound rises")
    bounds = np.where(np.isinf(bounds), max(_BEYOND * bounds[-2], 2.0), bounds)
    points, shares = [], []
    for index in np.flatnonzero((counts > 0.0) & (bounds >= 1.0)):
        low = 0.0 if index == 0 else bounds[index - 1]
        atoms = _atoms(low, bounds[index])
        edges = np.concatenate([[max(low, 0.5)], (atoms[:-1] + atoms[1:]) / 2.0, [max(bounds[index], 1.0)]])
        weights = np.maximum(np.diff(_level(edges, bounds, below / below[-1], int(index))), 1e-12)
        points.append(atoms)
        shares.append(counts[index] * weights / weights.sum())
    if not points:
        raise ValueError("no value of the histogram is above 0")
    share = np.concatenate(shares) if mean is None else _tilted(points, shares, mean)
    return Law.from_atoms(np.concatenate(points), share, label=label)


def _atoms(low: float, high: float) -> FloatArray:
    """Whole lengths above ``low`` up to ``high``, all or evenly spaced in logarithm; at least one."""
    first, last = np.floor(low) + 1.0, max(np.floor(high), 1.0)
    if last - first < _POINTS:
        return np.arange(min(first, last), last + 1.0)
    return np.unique(np.round(np.geomspace(first, last, _POINTS)))


def _level(tokens: FloatArray, bounds: FloatArray, levels: FloatArray, index: int) -> FloatArray:
    """Distribution function inside bucket ``index``, up to a shift and a factor."""
    from scipy.special import ndtr, ndtri

    inner = (levels > 0.0) & (levels < 1.0) & (bounds > 0.0)
    at, score = np.log(bounds[inner]), np.asarray(ndtri(levels[inner]))
    rising = np.diff(score, prepend=-np.inf) > 0.0
    at, score = at[rising], score[rising]
    if score.size < 2:
        return np.log(tokens)
    left = min(max(int(np.searchsorted(at, np.log(bounds[index]), side="left")), 1), score.size - 1)
    slope = (score[left] - score[left - 1]) / (at[left] - at[left - 1])
    return np.asarray(ndtr(score[left] + slope * (np.log(tokens) - at[left])))


def _tilted(points: list[FloatArray], shares: list[FloatArray], mean: float) -> FloatArray:
    """Shares tilted by one power of the length in all buckets, their counts kept, to the mean by bisection."""

    def tilted(power: float) -> FloatArray:
        parts = []
        for atoms, share in zip(points, shares, strict=True):
            weight = share * (atoms / atoms[-1 if power > 0.0 else 0]) ** power
            parts.append(share.sum() * weight / weight.sum())
        return np.concatenate(parts)

    every, total = np.concatenate(points), sum(float(share.sum()) for share in shares)
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(60):
        middle = (low + high) / 2.0
        if float(every @ tilted(middle)) / total < mean:
            low = middle
        else:
            high = middle
    return tilted((low + high) / 2.0)
