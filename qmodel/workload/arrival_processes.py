"""Arrival processes: their burst to second order, and arrival times drawn from them.

Each record is a shape that a rate completes. ``burst(rate_rps)`` gives the :class:`qmodel.types.Burst` of the process
at that mean rate, None for Poisson; ``draw(rng, count, rate_rps)`` gives the first ``count`` arrival times, s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize

from qmodel.types import Burst, FloatArray, Law

__all__ = [
    "ArrivalProcess",
    "Batches",
    "GammaRenewal",
    "HyperexponentialRenewal",
    "Poisson",
    "Regular",
    "TwoRates",
]

_LARGEST_SCV = 1e4
_FIT_POINTS = 121
_SLOWEST_FIT, _FASTEST_RESIDENCE, _FASTEST_FIT = 1e-2, 10.0, 1e3  # per mean gap; faster decays pass for batches
_STEPS_PER_DECADE, _FINE_STEPS_PER_DECADE = 2, 6
_LEAST_PART = 1e-4  # of the total excess; smaller components of a fit are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Arrivals that know nothing of each other.

    Example:
        >>> Poisson().burst(2.0) is None, Poisson().draw(np.random.default_rng(1), 3, 2.0).shape
        (True, (3,))
    """

    def burst(self, rate_rps: float) -> Burst | None:
        """None: Poisson is the yardstick."""
        _check_rate(rate_rps)
        return None

    def draw(self, rng: np.random.Generator, count: int, rate_rps: float) -> FloatArray:
        """The first ``count`` arrival times, s, ascending, shape (count,)."""
        return np.cumsum(rng.exponential(1.0 / _check_rate(rate_rps), count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Regular:
    """Arrivals evenly spaced from a random first one.

    Example:
        >>> np.diff(Regular().draw(np.random.default_rng(1), 4, 4.0)).round(9).tolist()
        [0.25, 0.25, 0.25]
    """

    def burst(self, rate_rps: float) -> Burst:
        """Negative excess that sums to -1; fitted as :meth:`GammaRenewal.burst` is."""
        return _scaled(_renewal_fit(0.0), _check_rate(rate_rps))

    def draw(self, rng: np.random.Generator, count: int, rate_rps: float) -> FloatArray:
        """The first ``count`` arrival times, s, ascending, shape (count,)."""
        return np.asarray((np.arange(count) + rng.uniform()) / _check_rate(rate_rps), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class GammaRenewal:
    """Independent gaps of a gamma law; its shape 1 / scv is what vLLM's benchmark calls burstiness.

    Attributes:
        scv: squared coefficient of variation of the gaps, above 0, at most 10,000; 1 is Poisson.

    Example:
        >>> burst = GammaRenewal(scv=4.0).burst(1.0)
        >>> round(sum(burst.excess), 9)  # the asymptotic index of dispersion is the scv
        3.0
    """

    scv: float

    def __post_init__(self) -> None:
        _check_scv(self.scv, least=0.0)

    def burst(self, rate_rps: float) -> Burst | None:
        """Few components fitted to the exact peakedness for exponential residence of every mean, see docs/theory."""
        rate = _check_rate(rate_rps)
        return None if self.scv == 1.0 else _scaled(_renewal_fit(self.scv), rate)

    def draw(self, rng: np.random.Generator, count: int, rate_rps: float) -> FloatArray:
        """The first ``count`` arrival times, s, ascending, shape (count,)."""
        return np.cumsum(rng.gamma(1.0 / self.scv, self.scv / _check_rate(rate_rps), count))


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperexponentialRenewal:
    """Independent gaps, short or long at random, with as much time in the short ones as in the long ones.

    Attributes:
        scv: squared coefficient of variation of the gaps, at least 1, at most 10,000.

    Example:
        >>> burst = HyperexponentialRenewal(scv=3.0).burst(2.0)  # decay 2 rate / (1 + scv)
        >>> burst.excess, burst.decay_per_s
        ((2.0,), (1.0,))
    """

    scv: float

    def __post_init__(self) -> None:
        _check_scv(self.scv, least=1.0)

    def burst(self, rate_rps: float) -> Burst | None:
        """Exactly one component: that of Poisson arrivals which are on and off for exponential times."""
        rate = _check_rate(rate_rps)
        if self.scv == 1.0:
            return None
        variance = (self.scv - 1.0) / (self.scv + 1.0)  # of the rate, relative to its mean squared
        return Burst(
            excess=(self.scv - 1.0,),
            decay_per_s=(2.0 * rate / (1.0 + self.scv),),
            skew=((variance - 1.0) / math.sqrt(variance),),
        )

    def draw(self, rng: np.random.Generator, count: int, rate_rps: float) -> FloatArray:
        """The first ``count`` arrival times, s, ascending, shape (count,)."""
        short = 0.5 * (1.0 + math.sqrt((self.scv - 1.0) / (self.scv + 1.0)))
        per_rate = np.where(rng.uniform(size=count) < short, 2.0 * short, 2.0 * (1.0 - short))
        return np.cumsum(rng.exponential(1.0, count) / (per_rate * _check_rate(rate_rps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoRates:
    """A Poisson process whose rate jumps between two values, each held for an exponential time (MMPP2).

    Only the ratio of the rates matters: the mean rate is given at use. The times are the process's own and do not
    change with the rate.

    Attributes:
        rates: the two rates up to a factor, at least 0, not both 0.
        mean_stay_s: mean time that each is held, s, above 0.

    Example:
        >>> burst = TwoRates(rates=(1.0, 3.0), mean_stay_s=(20.0, 20.0)).burst(10.0)
        >>> burst.excess, burst.decay_per_s, burst.skew  # excess 2 Var[rate] / (rate d)
        ((50.0,), (0.1,), (0.0,))

    Reference: Fischer and Meier-Hellstern, The Markov-modulated Poisson process cookbook, Perf. Eval. 18 (1993).
    """

    rates: tuple[float, float]
    mean_stay_s: tuple[float, float]

    def __post_init__(self) -> None:
        if not (all(math.isfinite(rate) and rate >= 0.0 for rate in self.rates) and max(self.rates) > 0.0):
            raise ValueError(f"rates must be finite, at least 0 and not both 0 (got {self.rates})")
        if not all(math.isfinite(stay) and stay > 0.0 for stay in self.mean_stay_s):
            raise ValueError(f"mean_stay_s must be finite and above 0 s (got {self.mean_stay_s})")

    @classmethod
    def on_off(cls, *, mean_on_s: float, mean_off_s: float) -> TwoRates:
        """Poisson arrivals while on, none while off."""
        return cls(rates=(1.0, 0.0), mean_stay_s=(mean_on_s, mean_off_s))

    def burst(self, rate_rps: float) -> Burst | None:
        """Exactly one component."""
        first, second = self._rates_rps(_check_rate(rate_rps))
        if first == second:
            return None
        stay_1, stay_2 = self.mean_stay_s
        decay = 1.0 / stay_1 + 1.0 / stay_2
        spread = stay_1 * stay_2 / (stay_1 + stay_2) ** 2
        variance = spread * (first - second) ** 2
        skew = (stay_2 - stay_1) / (stay_1 + stay_2) / math.sqrt(spread) * (1.0 if first > second else -1.0) + 0.0
        return Burst(excess=(2.0 * variance / (rate_rps * decay),), decay_per_s=(decay,), skew=(skew,))

    def draw(self, rng: np.random.Generator, count: int, rate_rps: float) -> FloatArray:
        """The first ``count`` arrival times, s, ascending, shape (count,), from a stationary start."""
        rates, stays = np.asarray(self._rates_rps(_check_rate(rate_rps))), np.asarray(self.mean_stay_s)
        target = np.cumsum(rng.exponential(1.0, count))  # unit-rate arrivals in expected arrivals since the start
        start = int(rng.uniform() * stays.sum() >= stays[0])
        order = np.array([start, 1 - start])
        end_s, expected = [np.zeros(1)], [np.zeros(1)]
        while count and expected[-1][-1] < target[-1]:
            held = rng.exponential(1.0, (1 + count // 8, 2)) * stays[order]
            end_s.append(end_s[-1][-1] + np.cumsum(held.ravel()))
            expected.append(expected[-1][-1] + np.cumsum((held * rates[order]).ravel()))
        return np.interp(target, np.concatenate(expected), np.concatenate(end_s))

    def _rates_rps(self, rate_rps: float) -> tuple[float, float]:
        (first, second), (stay_1, stay_2) = self.rates, self.mean_stay_s
        factor = rate_rps * (stay_1 + stay_2) / (first * stay_1 + second * stay_2)
        return first * factor, second * factor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batches:
    """Poisson arrivals of batches whose requests come at one instant.

    Attributes:
        sizes: law of the requests of a batch; atoms are whole numbers of at least 1.

    Example:
        >>> Batches.geometric(2.0).burst(5.0).excess  # E[N^2] / E[N] - 1
        (2.0,)
        >>> Batches(sizes=Law.constant(1)).burst(5.0) is None
        True
    """

    sizes: Law

    def __post_init__(self) -> None:
        atoms = self.sizes.values
        if not (np.all(np.isfinite(atoms)) and np.all(atoms >= 1.0) and np.all(atoms == np.rint(atoms))):
            raise ValueError(
                f"sizes must be whole numbers of at least 1 (got values from {atoms[0]:g} to {atoms[-1]:g})"
            )

    @classmethod
    def geometric(cls, mean: float) -> Batches:
        """Batches of geometric size.

        Args:
            mean: requests per batch, at least 1 and at most 1,000.
        """
        if not 1.0 <= mean <= 1000.0:
            raise ValueError(f"mean must be from 1 to 1000 requests per batch (got {mean})")
        if mean == 1.0:
            return cls(sizes=Law.constant(1))
        size = np.arange(1.0, 2.0 + math.ceil(-36.0 / math.log1p(-1.0 / mean)))
        mass = (1.0 - 1.0 / mean) ** (size - 1.0)
        exact = (mean, mean * (2.0 * mean - 1.0), mean * (6.0 * mean * (mean - 1.0) + 1.0))
        return cls(sizes=Law(values=size, weights=mass / mass.sum(), moments=exact, label=f"geometric({mean:g})"))

    def burst(self, rate_rps: float) -> Burst | None:
        """One component of infinite decay."""
        _check_rate(rate_rps)
        first, second, _ = self.sizes.moments
        excess = second / first - 1.0
        return None if excess <= 0.0 else Burst(excess=(excess,), decay_per_s=(math.inf,))

    def draw(self, rng: np.random.Generator, count: int, rate_rps: float) -> FloatArray:
        """The first ``count`` arrival times, s, ascending, shape (count,)."""
        size = rng.choice(self.sizes.values.astype(np.int64), size=count, p=self.sizes.weights)
        batch_s = np.cumsum(rng.exponential(self.sizes.mean / _check_rate(rate_rps), count))
        return np.repeat(batch_s, size)[:count]


ArrivalProcess = Poisson | Regular | GammaRenewal | HyperexponentialRenewal | TwoRates | Batches


def _check_rate(rate_rps: float) -> float:
    if not (math.isfinite(rate_rps) and rate_rps > 0.0):
        raise ValueError(f"rate_rps must be finite and above 0 requests/s (got {rate_rps})")
    return rate_rps


def _check_scv(scv: float, least: float) -> None:
    if not (math.isfinite(scv) and scv >= least and 0.0 < scv <= _LARGEST_SCV):
        low = "above 0 (evenly spaced arrivals are Regular())" if least == 0.0 else f"at least {least:g}"
        raise ValueError(f"scv must be {low} and at most {_LARGEST_SCV:,.0f} (got {scv})")


def _scaled(unit: Burst, rate_rps: float) -> Burst:
    """The burst of a renewal process, given that at rate 1: gaps shrink with the rate, so decays grow with it."""
    return Burst(excess=unit.excess, decay_per_s=tuple(decay * rate_rps for decay in unit.decay_per_s))


@lru_cache(maxsize=256)
def _renewal_fit(scv: float) -> Burst:
    """Components of a gamma renewal process of rate 1, evenly spaced arrivals at scv 0.

    The peakedness for exponential residence of rate m is exactly 1 / (1 - f(m)) - 1/m, with f the transform of the
    gap; a component adds e d / (2 (d + m)). Excess has one sign on a grid of decays (least squares), which for
    scv > 1 is no restriction: the renewal density falls completely monotonically. The sum is scv - 1 exactly.
    """
    sign, total = (1.0, scv - 1.0) if scv > 1.0 else (-1.0, 1.0 - scv)
    slowest = _SLOWEST_FIT / max(scv, 1.0)
    residence_rate = np.geomspace(slowest, _FASTEST_RESIDENCE, _FIT_POINTS)
    steps = _STEPS_PER_DECADE if scv > 1.0 else _FINE_STEPS_PER_DECADE
    decay = np.geomspace(slowest, _FASTEST_FIT, 1 + round(steps * math.log10(_FASTEST_FIT / slowest)))
    target = sign * _excess_peakedness(residence_rate, scv)
    size = np.maximum(np.abs(target), 1e-2 * total)
    table = decay / (2.0 * (decay + residence_rate[:, None]))
    with_total = np.vstack([table / size[:, None], np.full((1, decay.size), 1e3 / total)])
    excess = optimize.nnls(with_total, np.concatenate([target / size, [1e3]]))[0]
    kept = excess > _LEAST_PART * total
    excess = excess[kept] * (total / excess[kept].sum())
    return Burst(excess=tuple((sign * excess).tolist()), decay_per_s=tuple(decay[kept].tolist()))


def _excess_peakedness(residence_rate: FloatArray, scv: float) -> FloatArray:
    """1 / (1 - f(m)) - 1/m - 1; by its limit where the difference has no digits left."""
    log_transform = -residence_rate if scv == 0.0 else -np.log1p(scv * residence_rate) / scv
    exact = -1.0 / np.expm1(log_transform) - 1.0 / residence_rate - 1.0
    return np.asarray(np.where(residence_rate * max(scv, 1.0) < 1e-6, (scv - 1.0) / 2.0, exact))
