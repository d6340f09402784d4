"""Coarse clocks are noticed; spreading brings the counts of a Poisson process back and changes nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qmodel.trace import clock_step, read_trace, split_by_class, split_by_output, spread_clock

DATA = Path(__file__).parents[2] / "scenarios" / "data"


@pytest.mark.parametrize("step_s", [60.0, 1.0, 0.1, 0.001])
def test_a_clock_with_the_step_of_the_arrivals_is_noticed(step_s: float) -> None:
    arrivals = np.cumsum(np.random.default_rng(1).exponential(2.0 * step_s, 3000))
    assert clock_step(np.floor(arrivals / step_s) * step_s) == pytest.approx(step_s)
    assert clock_step(arrivals) is None


def test_a_fine_step_that_does_not_matter_is_not_reported() -> None:
    arrivals = np.cumsum(np.random.default_rng(2).exponential(60.0, 500))
    assert clock_step(np.round(arrivals, 3)) is None


def test_stamps_since_1970_lose_no_step_to_rounding() -> None:
    seconds = np.sort(np.random.default_rng(3).integers(0, 5000, 2000)) + 1_700_000_000.0
    assert clock_step(seconds) == 1.0


def test_spreading_a_batch_clock_gives_poisson_gaps() -> None:
    stamped = read_trace(DATA / "mooncake_fast25_conversation.csv.gz")
    spread = read_trace(DATA / "mooncake_fast25_conversation.csv.gz", spread=True)
    assert stamped.arrival_s is not None
    assert spread.arrival_s is not None
    gaps = np.diff(stamped.arrival_s), np.diff(spread.arrival_s)
    assert [gap.var() / gap.mean() ** 2 for gap in gaps] == pytest.approx([9.2, 1.02], abs=0.04)
    assert spread.clock_step_s is None
    assert any("spread at random" in note for note in spread.notes)
    assert not any("so spread the rows" in note for note in spread.notes)


def test_spreading_keeps_every_request_whole_and_is_the_same_each_time() -> None:
    stamped = read_trace(DATA / "mooncake_fast25_conversation.csv.gz")
    first, second = spread_clock(stamped), spread_clock(stamped)
    np.testing.assert_array_equal(first.arrival_s, second.arrival_s)
    pairs = [np.stack([item.prompt_tokens, item.output_tokens]) for item in (stamped, first)]
    np.testing.assert_array_equal(*(pair[:, np.lexsort(pair)] for pair in pairs))
    assert first.arrival_s is not None
    assert np.all(np.diff(first.arrival_s) >= 0.0)


def test_a_fine_clock_is_left_as_it_is() -> None:
    trace = read_trace(DATA / "azure_2023_conv.csv.gz")
    assert spread_clock(trace) is trace


def test_the_parts_of_a_trace_make_up_the_whole() -> None:
    trace = read_trace(DATA / "azure_2023_conv.csv.gz")
    parts = split_by_output(trace, [100, 400])
    assert list(parts) == ["up-to-100", "101-to-400", "above-400"]
    assert sum(map(len, parts.values())) == len(trace)
    assert sum(part.rate_rps or 0.0 for part in parts.values()) == pytest.approx(trace.rate_rps)
    assert parts["101-to-400"].output_tokens.min() == 101
    with pytest.raises(ValueError, match="names no classes"):
        split_by_class(trace)


@pytest.mark.parametrize("edges", [[], [0], [5, 5], [9, 3]])
def test_edges_that_do_not_rise_are_refused(edges: list[int]) -> None:
    with pytest.raises(ValueError, match="edges: must be whole, at least 1 and rising"):
        split_by_output(read_trace(DATA / "azure_2023_code.csv.gz"), edges)
