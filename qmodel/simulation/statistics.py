"""Estimates with confidence intervals from the correlated output of a simulation, by batch means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.types import FloatArray, IntArray

__all__ = ["BATCHES", "LEVEL", "Estimate", "Sample", "batched", "joined", "mean_estimate", "quantile_estimate"]

BATCHES = 10  # long ones: in a busy queue twice as many hold the truth less often
LEVEL = 0.95  # confidence of every interval
_LEAST_PER_BATCH = 10
_MOST_LIKENESS = 0.5  # of neighbouring batches; beyond, the run is too short for any interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number from a simulation and the interval that holds the true one with 95 % confidence.

    ``low`` and ``high`` are infinite where the sample is too small to say, all three are NaN without a sample.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Values in order of time, cut into batches that are nearly independent.

    Attributes:
        values: shape (n,).
        batch: number of the batch of each value, from 0, ascending, shape (n,).
    """

    values: FloatArray
    batch: IntArray

    @property
    def batches(self) -> int:
        """How many batches there are."""
        return int(self.batch[-1]) + 1 if self.batch.size else 0

    def means(self, values: FloatArray) -> FloatArray:
        """Mean of ``values``, shape (n,), over each batch."""
        return np.asarray(np.bincount(self.batch, weights=values) / np.bincount(self.batch))


def batched(values: FloatArray, batches: int = BATCHES) -> Sample:
    """A sample in ``batches`` batches of equal size, fewer where it is small; NaN are left out.

    Example:
        >>> batched(np.arange(40.0), 2).batch.tolist()[18:22]
        [0, 0, 1, 1]
    """
    known = values[~np.isnan(values)]
    count = max(min(batches, known.size // _LEAST_PER_BATCH), 1)
    return Sample(values=known, batch=(np.arange(known.size) * count) // max(known.size, 1))


def joined(samples: Sequence[Sample]) -> Sample:
    """One sample of several independent runs; every run keeps its batches."""
    starts = np.cumsum([0, *(sample.batches for sample in samples)])
    return Sample(
        values=np.concatenate([sample.values for sample in samples]),
        batch=np.concatenate([sample.batch + start for sample, start in zip(samples, starts, strict=False)]),
    )


def mean_estimate(parts: Sequence[tuple[float, Sample]]) -> Estimate:
    """The mean of a mixture.

    The mean of a batch is nearly normal: the spread of the batches gives the error, with Student's t at one degree of
    freedom less than batches. What is left of their correlation r with the next batch widens it by (1 + r) / (1 - r),
    as in an autoregressive series.

    Args:
        parts: weight and sample of each component, independent of each other; weights sum to 1.

    Example:
        >>> found = mean_estimate([(1.0, batched(np.random.default_rng(1).exponential(2.0, 4000)))])
        >>> found.low < 2.0 < found.high
        True

    Source: Law, Simulation Modeling and Analysis (5th ed.), section 9.5.3; docs/simulate.md.
    """
    if any(not sample.values.size for _, sample in parts):
        return Estimate(value=math.nan, low=math.nan, high=math.nan)
    value = sum(weight * float(sample.values.mean()) for weight, sample in parts)
    half = _half_width([(weight, sample, sample.values) for weight, sample in parts])
    return Estimate(value=value, low=value - half, high=value + half)


def quantile_estimate(parts: Sequence[tuple[float, Sample]], p: float) -> Estimate:
    """The quantile of a mixture.

    The share of values up to the quantile found is a mean, so batch means give its error e; the quantiles at p - e and
    p + e are the interval. The error is at least that of independent values.

    Args:
        parts: weight and sample of each component, independent of each other; weights sum to 1.
        p: in (0, 1).

    Example:
        >>> found = quantile_estimate([(1.0, batched(np.random.default_rng(1).random(4000)))], 0.9)
        >>> found.low < 0.9 < found.high
        True

    Source: Iglehart, Simulating stable stochastic systems VI: quantile estimation (1976); the interval is found on the
    scale of probabilities, so that no density is needed.
    """
    if any(not sample.values.size for _, sample in parts):
        return Estimate(value=math.nan, low=math.nan, high=math.nan)
    values = np.concatenate([sample.values for _, sample in parts])
    weights = np.concatenate([np.full(sample.values.size, weight / sample.values.size) for weight, sample in parts])
    order = np.argsort(values, kind="stable")
    values, level = values[order], np.cumsum(weights[order])
    value = _at(values, level, p)
    half = _half_width([(weight, sample, (sample.values <= value).astype(float)) for weight, sample in parts])
    alone = sum(weight**2 * p * (1.0 - p) / sample.values.size for weight, sample in parts)
    half = max(half, _student(math.inf) * math.sqrt(alone))
    return Estimate(
        value=value,
        low=_at(values, level, p - half) if p > half else -math.inf,
        high=_at(values, level, p + half) if p + half < level[-1] - weights.min() / 2 else math.inf,
    )


def _half_width(parts: Sequence[tuple[float, Sample, FloatArray]]) -> float:
    """Half the width of the interval of a weighted sum of means; infinite where a part has a single batch."""
    variance, freedom = 0.0, math.inf
    for weight, sample, values in parts:
        if sample.batches < 2:
            return math.inf
        variance += weight**2 * _variance_of_mean(sample.means(values))
        freedom = min(freedom, sample.batches - 1)
    return _student(freedom) * math.sqrt(variance)


def _variance_of_mean(batches: FloatArray) -> float:
    """Variance of the mean of batch means that may be like their neighbours, shape (b,), b >= 2."""
    away = batches - batches.mean()
    squares = float(away @ away)
    if squares == 0.0:
        return 0.0
    likeness = float(away[1:] @ away[:-1]) / squares + 1.0 / batches.size  # the second term undoes its bias
    likeness = min(max(likeness, 0.0), _MOST_LIKENESS)
    return squares / (batches.size - 1) / batches.size * (1.0 + likeness) / (1.0 - likeness)


def _student(freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1.0 + LEVEL) / 2.0))


def _at(values: FloatArray, level: FloatArray, p: float) -> float:
    """The first value at which the cumulated weight reaches p."""
    return float(values[min(int(np.searchsorted(level, p * (1.0 - 1e-12))), values.size - 1)])
