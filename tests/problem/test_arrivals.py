"""Arrivals of a scenario become the process that they state, and a trace the burst that is measured in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.problem import arrival_processes, bind
from qmodel.queueing.arrivals.peakedness import burst_peakedness
from qmodel.queueing.servers.service_time import Moments
from qmodel.types import RequestClass
from qmodel.types.arrivals import Burst
from qmodel.workload.arrival_processes import Batches, GammaRenewal, Poisson, Regular, TwoRates

DATA = Path(__file__).parents[2] / "scenarios" / "data"


def stated(**arrivals: Any) -> dict[str, Any]:
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "llama-3.1-8b",
                "arrivals": {"rate_rps": 3.0, **arrivals},
                "prompt_tokens": {"mean": 500, "cv": 1},
                "output_tokens": {"mean": 200, "cv": 1},
                "slo": {"ttft_p95_s": 0.5},
            }
        },
        "fleet": {"gpus": {"h100-sxm": {}}},
    }


def recorded(**trace: Any) -> dict[str, Any]:
    found = stated()
    chat = found["classes"]["chat"]
    for key in ("arrivals", "prompt_tokens", "output_tokens"):
        del chat[key]
    chat["trace"] = {"file": str(DATA / "azure_2023_conv.csv.gz"), **trace}
    return found


def bound(scenario: dict[str, Any]) -> tuple[RequestClass, list[str]]:
    instance = bind(qm.load_scenario(scenario))
    return instance.classes["chat"], [text for text in instance.assumptions if "class chat: arrivals" in text]


@pytest.mark.parametrize(
    ("arrivals", "process", "words"),
    [
        ({}, Poisson(), "Poisson"),
        ({"scv": 1}, Poisson(), "Poisson"),
        ({"scv": 4}, GammaRenewal(scv=4.0), "independent gaps of SCV 4"),
        ({"scv": 0}, Regular(), "independent gaps of SCV 0"),
        (
            {"mmpp": {"peak_to_mean": 2.5, "mean_peak_s": 60, "mean_base_s": 240}},
            TwoRates(rates=(2.5, 0.625), mean_stay_s=(60.0, 240.0)),
            "bursty: 2.5 times the mean rate for 60 s at a time",
        ),
    ],
)
def test_what_is_stated_is_the_process(arrivals: dict[str, Any], process: object, words: str) -> None:
    scenario = stated(**arrivals)
    chat, notes = bound(scenario)
    assert repr(arrival_processes(qm.load_scenario(scenario))["chat"]) == repr(process)
    assert chat.arrivals_note == words
    assert notes == ([] if words == "Poisson" else [f"class chat: arrivals are {words}"])
    assert (chat.burst is None) == (words == "Poisson")


def test_batches_come_at_one_instant() -> None:
    chat, _ = bound(stated(batch_size=3))
    assert chat.burst == Batches.geometric(3.0).burst(3.0)
    assert chat.arrivals_note == "batches of 3 on average"


def test_a_stated_peakedness_is_that_of_the_burst() -> None:
    chat, _ = bound(stated(peakedness={"z": 3.2, "at_s": 40}))
    assert float(burst_peakedness(chat.burst, Moments(mean_s=40.0, scv=1.0))) == pytest.approx(3.2, rel=1e-6)
    assert chat.arrivals_note == "bursty: peakedness 3.2 at 40 s"


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        (
            {"scv": 4, "batch_size": 2},
            "classes.chat.arrivals: states scv and batch_size, which exclude each other; keep one of them",
        ),
        (
            {"mmpp": {"peak_to_mean": 6, "mean_peak_s": 60, "mean_base_s": 240}},
            "classes.chat.arrivals.mmpp.peak_to_mean: must be at most 5, where nothing arrives outside the peaks "
            "(got 6); lower it, or make mean_base_s longer",
        ),
        ({"scv": -1}, "classes.chat.arrivals.scv: must be at least 0 (got -1)"),
        ({"peakedness": {"z": 0.5, "at_s": 3}}, "classes.chat.arrivals.peakedness.z: must be at least 1 (got 0.5)"),
    ],
)
def test_bad_arrivals_are_told_with_their_way_out(arrivals: dict[str, Any], expected: str) -> None:
    with pytest.raises(qm.ScenarioError) as caught:
        qm.load_scenario(stated(**arrivals))
    assert expected in str(caught.value)


def test_a_trace_is_measured_unless_poisson_is_asked_for() -> None:
    measured, notes = bound(recorded())
    assert measured.burst is not None
    assert measured.arrivals_note.startswith("bursty: peakedness ") and measured.arrivals_note.endswith("measured")
    assert "which show nothing of slower changes" in notes[0]
    poisson, notes = bound(recorded(arrivals="poisson"))
    assert poisson.burst is None and poisson.arrivals_note == "Poisson, optimistic"
    assert "the burstiness of the trace is not modelled" in notes[0]


def test_busy_minutes_of_short_outputs_swing_prompts_more_than_outputs() -> None:
    """Azure conversation: the request rate of a minute and its mean output go opposite ways."""
    burst = bound(recorded())[0].burst
    assert burst is not None and min(burst.prompt_swing) > 2.0


def test_dividing_times_makes_a_burst_faster_and_keeps_its_size() -> None:
    once, twice = (bound(recorded(rate_scale=scale))[0].burst for scale in (1.0, 2.0))
    assert once is not None and twice is not None
    assert twice.dispersion([20.0]) == pytest.approx(once.dispersion([40.0]), rel=0.1)


def test_a_class_keeps_its_burst_as_plain_data() -> None:
    chat, _ = bound(recorded())
    again = RequestClass.from_dict("chat", chat.to_dict())
    assert again.burst == chat.burst and again.arrivals_note == chat.arrivals_note


def test_a_burst_is_kept_whole_by_its_plain_data() -> None:
    burst = Burst(excess=(2.0, 1.0), decay_per_s=(0.1, np.inf), skew=(1.5, None), prompt_swing=(2.0, 1.0))
    assert Burst.from_dict(burst.to_dict()) == burst
    assert Burst.from_dict({"excess": [2.0], "decay_per_s": [None]}) == Burst(excess=(2.0,), decay_per_s=(np.inf,))


@pytest.mark.parametrize("columns", [{"skew": (1.0, 2.0)}, {"prompt_swing": (-1.0,)}, {"skew": (np.inf,)}])
def test_bad_columns_of_a_burst_are_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(columns))):
        Burst(excess=(1.0,), decay_per_s=(1.0,), **columns)


def test_superposed_streams_keep_skewness_and_prompts() -> None:
    known = Burst(excess=(2.0,), decay_per_s=(0.1,), skew=(1.5,), prompt_swing=(2.0,))
    plain = Burst(excess=(4.0,), decay_per_s=(1.0,))
    found = Burst.superposed([(1.0, known), (3.0, plain)])
    assert found == Burst(excess=(0.5, 3.0), decay_per_s=(0.1, 1.0), skew=(1.5, None), prompt_swing=(2.0, 1.0))
    assert known.thinned(0.5).skew == (1.5,)


def test_two_classes_take_a_trace_apart_by_output_length() -> None:
    whole = bound(recorded())[0]
    short = bound(recorded(up_to_output_tokens=200))[0]
    long = bound(recorded(above_output_tokens=200))[0]
    assert short.rate_rps + long.rate_rps == pytest.approx(whole.rate_rps)
    assert short.lengths.output.maximum == 200 and long.lengths.output.values[0] > 200
    mean = (short.rate_rps * short.lengths.output.mean + long.rate_rps * long.lengths.output.mean) / whole.rate_rps
    assert mean == pytest.approx(whole.lengths.output.mean, rel=2e-3)


@pytest.mark.parametrize(
    ("trace", "text"),
    [
        ({"above_output_tokens": 5000}, r"classes\.chat\.trace: .* has no request above 5,000 \(its outputs are from"),
        ({"above_output_tokens": 50, "up_to_output_tokens": 50}, "no request above 50 and up to 50"),
        ({"by": "Tenant"}, r"classes\.chat\.trace\.file: has no column 'Tenant' to tell classes by"),
        ({"class": "chat"}, r"classes\.chat\.trace\.class: 'chat' is not in"),
    ],
)
def test_a_part_that_a_trace_lacks_is_refused(trace: dict[str, Any], text: str) -> None:
    with pytest.raises(qm.ScenarioError, match=text):
        bound(recorded(**trace))
