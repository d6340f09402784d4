"""Arrival processes: their burst against exact values, and draws against their burst."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qmodel.types import Burst, Law
from qmodel.workload.arrival_processes import (
    ArrivalProcess,
    Batches,
    GammaRenewal,
    HyperexponentialRenewal,
    Poisson,
    Regular,
    TwoRates,
)

PROCESSES: list[ArrivalProcess] = [
    Poisson(),
    Regular(),
    GammaRenewal(scv=4.0),
    GammaRenewal(scv=0.4),
    HyperexponentialRenewal(scv=6.0),
    TwoRates(rates=(1.0, 4.0), mean_stay_s=(5.0, 2.0)),
    TwoRates.on_off(mean_on_s=1.0, mean_off_s=3.0),
    Batches.geometric(3.0),
    Batches(sizes=Law.from_atoms(np.array([1.0, 5.0]), np.array([0.8, 0.2]))),
]


def excess_at(burst: Burst, residence_rate: float) -> float:
    """Peakedness beyond 1 for exponential residence."""
    return sum(
        0.5 * excess / (1.0 + residence_rate / decay)
        for excess, decay in zip(burst.excess, burst.decay_per_s, strict=True)
    )


@pytest.mark.parametrize("process", PROCESSES, ids=lambda item: repr(item)[:40])
def test_draws_have_the_rate_and_the_dispersion_that_the_burst_says(process: ArrivalProcess) -> None:
    times = process.draw(np.random.default_rng(4), 400_000, 10.0)
    assert times.shape == (400_000,)
    assert np.all(np.diff(times) >= 0.0)
    assert times.size / times[-1] == pytest.approx(10.0, rel=0.03)
    burst = process.burst(10.0)
    for window in (2.0, 20.0):
        counts = np.bincount((times / window).astype(np.int64))[:-1]
        expected = 1.0 if burst is None else float(burst.dispersion(window))
        assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.12, abs=0.06)


@pytest.mark.parametrize("process", PROCESSES, ids=lambda item: repr(item)[:40])
def test_the_same_seed_draws_the_same_times(process: ArrivalProcess) -> None:
    first, second = (process.draw(np.random.default_rng(7), 100, 3.0) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("scv", [0.3, 0.7, 1.5, 4.0, 50.0])
def test_gamma_gaps_fit_their_exact_peakedness(scv: float) -> None:
    """1 / (1 - f(m)) - 1/m - 1 at rate 1, with f the transform of the gap."""
    burst = GammaRenewal(scv=scv).burst(1.0)
    assert burst is not None
    assert sum(burst.excess) == pytest.approx(scv - 1.0)
    for rate in (0.01 / max(scv, 1.0), 0.1, 1.0):
        transform = (1.0 + scv * rate) ** (-1.0 / scv)
        exact = 1.0 / (1.0 - transform) - 1.0 / rate - 1.0
        assert excess_at(burst, rate) == pytest.approx(exact, rel=0.04, abs=0.002)


def test_a_renewal_burst_scales_with_the_rate() -> None:
    slow, fast = GammaRenewal(scv=3.0).burst(2.0), GammaRenewal(scv=3.0).burst(20.0)
    assert slow is not None and fast is not None
    assert slow.excess == fast.excess
    np.testing.assert_allclose(fast.decay_per_s, 10.0 * np.array(slow.decay_per_s))


def test_two_rates_keep_their_time_when_the_rate_grows() -> None:
    process = TwoRates(rates=(1.0, 3.0), mean_stay_s=(20.0, 20.0))
    small, large = process.burst(1.0), process.burst(10.0)
    assert small is not None and large is not None
    assert small.decay_per_s == large.decay_per_s == (0.1,)
    assert large.excess[0] == pytest.approx(10.0 * small.excess[0])


def test_two_rates_know_their_skewness() -> None:
    rare_surge = TwoRates(rates=(1.0, 10.0), mean_stay_s=(90.0, 10.0)).burst(1.0)
    rare_pause = TwoRates(rates=(1.0, 0.0), mean_stay_s=(90.0, 10.0)).burst(1.0)
    assert rare_surge is not None and rare_pause is not None
    assert rare_surge.skew == pytest.approx((8.0 / 3.0,))
    assert rare_pause.skew == pytest.approx((-8.0 / 3.0,))


@pytest.mark.parametrize(
    "process",
    [
        GammaRenewal(scv=1.0),
        HyperexponentialRenewal(scv=1.0),
        TwoRates(rates=(2.0, 2.0), mean_stay_s=(1.0, 9.0)),
        Batches(sizes=Law.constant(1)),
        Batches.geometric(1.0),
    ],
)
def test_limits_that_are_poisson_have_no_burst(process: ArrivalProcess) -> None:
    assert process.burst(3.0) is None


def test_geometric_batches_have_their_exact_moments() -> None:
    sizes = Batches.geometric(4.0).sizes
    assert sizes.moments == pytest.approx([float(sizes.weights @ sizes.values**k) for k in (1, 2, 3)], rel=1e-9)


@pytest.mark.parametrize("process", PROCESSES, ids=lambda item: repr(item)[:40])
@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_not_above_zero_is_refused(process: ArrivalProcess, rate: float) -> None:
    with pytest.raises(ValueError, match="rate_rps must be finite and above 0"):
        process.burst(rate)
    with pytest.raises(ValueError, match="rate_rps must be finite and above 0"):
        process.draw(np.random.default_rng(1), 10, rate)


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"scv must be above 0 \(evenly spaced arrivals are Regular\(\)\)"):
        GammaRenewal(scv=0.0)
    with pytest.raises(ValueError, match="scv must be at least 1"):
        HyperexponentialRenewal(scv=0.5)
    with pytest.raises(ValueError, match="rates must be finite, at least 0 and not both 0"):
        TwoRates(rates=(0.0, 0.0), mean_stay_s=(1.0, 1.0))
    with pytest.raises(ValueError, match="mean_stay_s must be finite and above 0 s"):
        TwoRates.on_off(mean_on_s=1.0, mean_off_s=0.0)
    with pytest.raises(ValueError, match="sizes must be whole numbers of at least 1"):
        Batches(sizes=Law.constant(1.5))
    with pytest.raises(ValueError, match="mean must be from 1 to 1000"):
        Batches.geometric(0.5)
