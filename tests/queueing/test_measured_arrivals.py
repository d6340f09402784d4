"""Bursts and windows measured from recorded arrivals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qmodel.queueing import burst_peakedness, measured_burst, recorded_demand
from qmodel.types import Law
from qmodel.workload.arrival_processes import (
    ArrivalProcess,
    Batches,
    GammaRenewal,
    HyperexponentialRenewal,
    Poisson,
    TwoRates,
)


@pytest.mark.parametrize(
    "process",
    [
        GammaRenewal(scv=4.0),
        GammaRenewal(scv=0.3),
        HyperexponentialRenewal(scv=3.0),
        TwoRates(rates=(1.0, 3.0), mean_stay_s=(10.0, 10.0)),
        Batches.geometric(3.0),
    ],
)
def test_the_burst_of_drawn_arrivals_comes_back(process: ArrivalProcess) -> None:
    true, found = process.burst(5.0), measured_burst(process.draw(np.random.default_rng(2), 100_000, 5.0))
    assert true is not None and found is not None
    windows = [1.0, 5.0, 40.0]
    np.testing.assert_allclose(found.dispersion(windows), true.dispersion(windows), rtol=0.25, atol=0.05)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_poisson_arrivals_have_no_measured_burst(seed: int) -> None:
    assert measured_burst(Poisson().draw(np.random.default_rng(seed), 20_000, 5.0)) is None


def test_too_few_arrivals_claim_nothing() -> None:
    assert measured_burst(np.arange(99.0)) is None
    assert measured_burst(np.zeros(0)) is None


def test_sizes_that_shrink_in_a_surge_make_the_work_less_bursty() -> None:
    rng = np.random.default_rng(6)
    surge = np.repeat(rng.uniform(size=400) < 0.5, 10)  # rate doubles for 10 s at a time, work does not
    counts = rng.poisson(np.where(surge, 20.0, 10.0))
    times = np.concatenate([second + np.sort(rng.uniform(size=count)) for second, count in enumerate(counts)])
    sizes = np.where(np.repeat(surge, counts), 1.0, 2.0) * rng.exponential(1.0, times.size)
    requests, work = measured_burst(times), measured_burst(times, sizes=sizes)
    law = Law.from_atoms(np.sort(sizes), np.ones(sizes.size))
    by_requests = float(burst_peakedness(requests, law, s_per_unit=5.0))
    by_work = float(burst_peakedness(work, law, s_per_unit=5.0))
    assert by_requests > 3.0
    assert by_work < 0.6 * by_requests


def test_nothing_is_read_from_below_the_step_of_the_clock() -> None:
    """Stamps of 3 s look like batches to a reader who believes them."""
    times = Poisson().draw(np.random.default_rng(3), 50_000, 5.0)
    stamped = np.floor(times / 3.0) * 3.0
    believed, warned = measured_burst(stamped), measured_burst(stamped, clock_step_s=3.0)
    assert believed is not None and float(believed.dispersion(3.0)) > 3.0
    assert warned is None or float(warned.dispersion(30.0)) < 2.0


def test_windows_hold_all_requests_and_all_work() -> None:
    rng = np.random.default_rng(9)
    times, holds = np.cumsum(rng.exponential(0.2, 5000)), rng.exponential(3.0, 5000)
    demand = recorded_demand(times, holds, window_s=20.0)
    assert demand.rates_rps.sum() * demand.window_s == pytest.approx(5000)
    assert demand.rates_rps @ demand.mean_service_s * demand.window_s == pytest.approx(holds.sum())
    assert demand.service.mean == pytest.approx(holds.mean())
    assert demand.service.scv == pytest.approx(holds.var() / holds.mean() ** 2)


def test_windows_take_drift_out_of_the_peakedness() -> None:
    rng = np.random.default_rng(10)
    swing = 20.0 + 10.0 * np.sin(np.arange(2000) / 60.0)
    counts = rng.poisson(swing)
    times = np.concatenate([second + np.sort(rng.uniform(size=count)) for second, count in enumerate(counts)])
    demand = recorded_demand(times, rng.exponential(2.0, times.size))
    assert demand.whole_peakedness > 3.0
    assert demand.peakedness < 1.5


def test_bad_arguments_are_refused() -> None:
    times, ones = np.arange(200.0), np.ones(200)
    with pytest.raises(ValueError, match="arrival_s must be finite times in ascending order"):
        measured_burst(times[::-1])
    with pytest.raises(ValueError, match="sizes must have one finite size above 0 per arrival"):
        measured_burst(times, sizes=0.0 * ones)
    with pytest.raises(ValueError, match="clock_step_s must be finite and at least 0 s"):
        measured_burst(times, clock_step_s=math.nan)
    with pytest.raises(ValueError, match="arrival_s must be at least two times in ascending order"):
        recorded_demand(times[:1], ones[:1])
    with pytest.raises(ValueError, match="hold_s must have one finite time above 0 s per arrival"):
        recorded_demand(times, -ones)
    with pytest.raises(ValueError, match="arrival_s must span more than 5 mean holding times"):
        recorded_demand(times, 100.0 * ones)
    with pytest.raises(ValueError, match="window_s must be finite and above 0 s"):
        recorded_demand(times, ones, window_s=0.0)
