"""Poisson arrivals are the unit of every statistic; batches and recorded traces have the values known for them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.trace import read_trace, spread_clock
from qmodel.types import FloatArray, Law
from qmodel.workload import (
    dispersion_index,
    interarrival_scv,
    length_law,
    measure_burstiness,
    peak_to_mean,
    peakedness,
    peakedness_of_law,
    summarise_trace,
)

DATA = Path(__file__).parents[2] / "scenarios" / "data"


def poisson(rate_rps: float, count: int, seed: int) -> FloatArray:
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, count))


def known(value: float | None) -> float:
    assert value is not None
    return value


def test_poisson_arrivals_are_one_everywhere() -> None:
    arrivals = poisson(10.0, 200_000, 1)
    rng = np.random.default_rng(2)
    found = measure_burstiness(arrivals, output_tokens=rng.integers(1, 500, arrivals.size))
    assert found.interarrival_scv == pytest.approx(1.0, abs=0.02)
    assert [known(found.dispersion[window]) for window in (1.0, 10.0, 60.0)] == pytest.approx([1.0] * 3, abs=0.15)
    assert found.gap_correlation == pytest.approx(0.0, abs=0.01)
    assert found.output_correlation == pytest.approx(0.0, abs=0.01)
    assert found.rate_output_correlation == pytest.approx(0.0, abs=0.2)


@pytest.mark.parametrize("law", [Law.constant(5), length_law({"mean": 5, "cv": 1.0})])
def test_poisson_arrivals_have_peakedness_one_for_any_holding_time(law: Law) -> None:
    arrivals = poisson(4.0, 100_000, 3)
    hold_s = np.random.default_rng(4).choice(law.values, size=arrivals.size, p=law.weights)
    assert peakedness(arrivals, hold_s) == pytest.approx(1.0, abs=0.05)
    assert peakedness_of_law(arrivals, law) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("size", [2, 5])
def test_batches_have_the_peakedness_of_the_textbook(size: int) -> None:
    """Poisson batches of m: z is m for constant holds and 1 + (m - 1)/2 for exponential ones (Eckberg 1983)."""
    arrivals = np.repeat(poisson(1.0, 40_000, 5), size)
    assert dispersion_index(arrivals, 10.0) == pytest.approx(size, rel=0.05)
    constant = np.full(arrivals.size, 20.0)
    assert peakedness(arrivals, constant) == pytest.approx(size, rel=0.06)
    assert peakedness_of_law(arrivals, Law.constant(20)) == pytest.approx(size, rel=0.06)
    exponential = np.random.default_rng(6).exponential(20.0, arrivals.size)
    assert peakedness(arrivals, exponential) == pytest.approx(1 + (size - 1) / 2, rel=0.06)
    atoms = -20.0 * np.log1p(-(np.arange(400) + 0.5) / 400)
    law = Law.from_atoms(atoms, np.ones(400))
    assert peakedness_of_law(arrivals, law) == pytest.approx(1 + (size - 1) / 2, rel=0.06)


def test_gaps_of_a_batch_process_have_the_scv_of_their_mixture() -> None:
    """A gap is 0 with probability 1 - 1/m: SCV is 2 m - 1."""
    assert interarrival_scv(np.repeat(poisson(1.0, 100_000, 7), 4)) == pytest.approx(7.0, rel=0.03)


@pytest.mark.parametrize(
    ("name", "scv", "dispersion", "gap_correlation", "peak", "output_correlation"),
    [
        ("azure_2023_code", 172.96, [13.19, 71.85, 166.89], -0.00, 4.18, -0.01),
        ("azure_2023_conv", 1.20, [1.39, 3.87, 16.41], 0.06, 1.52, 0.11),
        ("mooncake_fast25_conversation", 9.20, [7.90, 2.10, 2.95], -0.11, 1.21, -0.02),
    ],
)
def test_shipped_traces_have_the_known_burstiness(
    name: str, scv: float, dispersion: list[float], gap_correlation: float, peak: float, output_correlation: float
) -> None:
    trace = read_trace(DATA / f"{name}.csv.gz")
    assert trace.arrival_s is not None
    found = measure_burstiness(trace.arrival_s, output_tokens=trace.output_tokens)
    assert found.interarrival_scv == pytest.approx(scv, abs=0.006)
    assert [known(found.dispersion[window]) for window in (1.0, 10.0, 60.0)] == pytest.approx(dispersion, abs=0.006)
    assert found.dispersion[600.0] is None
    assert found.gap_correlation == pytest.approx(gap_correlation, abs=0.006)
    assert found.peak_to_mean_minute == pytest.approx(peak, abs=0.006)
    assert found.output_correlation == pytest.approx(output_correlation, abs=0.006)


@pytest.mark.parametrize(("name", "z"), [("azure_2023_conv", 1.57), ("mooncake_fast25_conversation", 1.55)])
def test_shipped_conversation_traces_have_the_known_peakedness(name: str, z: float) -> None:
    trace = spread_clock(read_trace(DATA / f"{name}.csv.gz"))
    assert trace.arrival_s is not None
    hold_s = 0.02 * trace.output_tokens + 1e-4 * trace.prompt_tokens
    assert peakedness(trace.arrival_s, hold_s) == pytest.approx(z, abs=0.03)


def test_shuffled_lengths_make_azure_conversations_burstier() -> None:
    """Its busy minutes have short outputs; a law that is independent of the arrivals loses that."""
    trace = read_trace(DATA / "azure_2023_conv.csv.gz")
    assert trace.arrival_s is not None
    hold_s = 0.02 * trace.output_tokens + 1e-4 * trace.prompt_tokens
    law = Law.from_atoms(hold_s, np.ones(hold_s.size))
    assert known(peakedness_of_law(trace.arrival_s, law)) > 1.3 * known(peakedness(trace.arrival_s, hold_s))


@settings(max_examples=30, deadline=None)
@given(shift=st.floats(0.0, 1e6), scale=st.sampled_from([0.5, 2.0, 16.0]))
def test_statistics_do_not_depend_on_origin_or_unit_of_time(shift: float, scale: float) -> None:
    arrivals = poisson(1.0, 2000, 8)
    moved = (arrivals + shift) * scale
    assert interarrival_scv(moved) == pytest.approx(interarrival_scv(arrivals), rel=1e-6)
    hold_s = np.full(arrivals.size, 3.3)
    assert peakedness(moved, hold_s * scale) == pytest.approx(peakedness(arrivals, hold_s), rel=1e-4)


def test_equal_gaps_have_no_variance() -> None:
    arrivals = np.arange(0.0, 1000.0, 0.5)
    assert interarrival_scv(arrivals) == pytest.approx(0.0)
    assert dispersion_index(arrivals, 10.0) == pytest.approx(0.0)
    assert peak_to_mean(arrivals) == pytest.approx(1.0)
    assert peakedness(arrivals, np.full(arrivals.size, 4.0)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("arrivals", [np.zeros(0), np.zeros(1), np.zeros(50), np.array([0.0, 1.0])])
def test_too_little_gives_none_and_not_a_number(arrivals: FloatArray) -> None:
    found = measure_burstiness(arrivals, output_tokens=np.ones(arrivals.size), hold_s=np.ones(arrivals.size))
    assert found.interarrival_scv is None
    assert set(found.dispersion.values()) == {None}
    assert found.peakedness is None
    assert found.peak_to_mean_minute is None
    assert found.output_correlation is None
    assert peakedness_of_law(arrivals, Law.constant(1)) is None


def test_wrong_numbers_are_refused() -> None:
    arrivals = poisson(1.0, 100, 9)
    with pytest.raises(ValueError, match="window_s: must be greater than 0"):
        dispersion_index(arrivals, 0.0)
    with pytest.raises(ValueError, match="hold_s: needs one time"):
        peakedness(arrivals, np.ones(3))
    with pytest.raises(ValueError, match="s_per_token: must be greater than 0"):
        peakedness_of_law(arrivals, Law.constant(1), s_per_token=0.0)
    with pytest.raises(ValueError, match="decode_s, prefill_s"):
        summarise_trace(read_trace(DATA / "azure_2023_code.csv.gz"), decode_s=-1.0)


def test_a_summary_shows_a_coarse_clock_both_ways() -> None:
    found = summarise_trace(read_trace(DATA / "mooncake_fast25_conversation.csv.gz"))
    assert found.burstiness is not None
    assert found.as_stamped is not None
    assert (found.as_stamped.interarrival_scv, found.burstiness.interarrival_scv) == pytest.approx(
        (9.2, 1.02), abs=0.01
    )
    assert found.cached_share == pytest.approx(0.374, abs=1e-3)
    assert math.fsum(found.lengths[0].bars) == pytest.approx(1.0)
    assert np.mean(found.minute_rates) == pytest.approx(found.rate_rps, rel=0.02)
