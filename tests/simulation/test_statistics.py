"""Intervals hold the true value as often as they say, on output as correlated as that of queues."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qmodel.simulation.statistics import Estimate, Sample, batched, joined, mean_estimate, quantile_estimate
from qmodel.types import FloatArray

RUNS, REQUESTS = 300, 10_000


def sojourns_in_mm1(load: float, seed: int) -> FloatArray:
    """Sojourn times of RUNS stationary M/M/1 queues with mean service 1, shape (REQUESTS, RUNS)."""
    rng = np.random.default_rng(seed)
    wait = np.where(rng.random(RUNS) < load, rng.exponential(1.0 / (1.0 - load), RUNS), 0.0)
    found = np.empty((REQUESTS, RUNS))
    for row in range(REQUESTS):
        found[row] = wait + rng.exponential(1.0, RUNS)
        wait = np.maximum(found[row] - rng.exponential(1.0 / load, RUNS), 0.0)
    return found


def coverage(estimates: list[Estimate], true: float) -> float:
    return float(np.mean([found.low <= true <= found.high for found in estimates]))


@pytest.fixture(scope="module")
def sojourns() -> FloatArray:
    return sojourns_in_mm1(0.7, seed=5)


def test_intervals_of_means_hold_the_mean_of_a_queue(sojourns: FloatArray) -> None:
    found = [mean_estimate([(1.0, batched(column))]) for column in sojourns.T]
    assert coverage(found, 1.0 / 0.3) >= 0.92


@pytest.mark.parametrize("p", [0.5, 0.9, 0.95, 0.99])
def test_intervals_of_percentiles_hold_the_percentile_of_a_queue(sojourns: FloatArray, p: float) -> None:
    found = [quantile_estimate([(1.0, batched(column))], p) for column in sojourns.T]
    assert coverage(found, -math.log(1.0 - p) / 0.3) >= 0.92


def test_intervals_of_independent_values_are_neither_too_wide_nor_too_narrow() -> None:
    values = np.random.default_rng(3).exponential(1.0, (2000, 400))
    assert 0.92 <= coverage([mean_estimate([(1.0, batched(column))]) for column in values.T], 1.0) <= 0.98
    found = [quantile_estimate([(1.0, batched(column))], 0.9) for column in values.T]
    assert 0.92 <= coverage(found, math.log(10.0)) <= 0.99


def test_a_mixture_weighs_its_parts_and_adds_their_errors() -> None:
    rng = np.random.default_rng(1)
    small, large = batched(rng.random(1000)), batched(10.0 + rng.random(50_000))
    found = mean_estimate([(0.75, small), (0.25, large)])
    assert found.value == pytest.approx(0.75 * 0.5 + 0.25 * 10.5, abs=0.02)
    alone = mean_estimate([(1.0, small)])
    assert found.high - found.value == pytest.approx(0.75 * (alone.high - alone.value), rel=0.05)
    assert 0.0 < quantile_estimate([(0.75, small), (0.25, large)], 0.74).value < 1.0
    assert 10.0 < quantile_estimate([(0.75, small), (0.25, large)], 0.76).value < 11.0


def test_joined_runs_keep_their_batches() -> None:
    one = joined([batched(np.arange(40.0), 2), batched(np.arange(40.0), 2)])
    assert one.batches == 4
    assert one.means(one.values).tolist() == [9.5, 29.5, 9.5, 29.5]


def test_a_sample_that_is_too_small_says_so() -> None:
    few = quantile_estimate([(1.0, batched(np.arange(200.0)))], 0.999)
    assert few.high == math.inf and few.value == 199.0
    one = mean_estimate([(1.0, batched(np.array([3.0])))])
    assert (one.low, one.value, one.high) == (-math.inf, 3.0, math.inf)
    none = mean_estimate([(1.0, batched(np.array([math.nan])))])
    assert math.isnan(none.value)


def test_values_that_are_not_known_are_left_out() -> None:
    sample = batched(np.array([1.0, math.nan, 3.0]))
    assert sample.values.tolist() == [1.0, 3.0]
    assert isinstance(sample, Sample)
