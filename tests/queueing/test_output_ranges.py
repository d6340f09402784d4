"""Predictions for ranges of output lengths."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import ClassPrediction, Replica, StepLaw, pool
from qmodel.queueing.replica.output_ranges import alone_s
from qmodel.simulation import draw_requests, simulate_pool
from qmodel.types import Law, Lengths, Stream
from qmodel.workload import lognormal_law

DENSE = StepLaw.linear(alpha_s=0.0131, beta_s=7.1e-5, gamma_s=3.06e-8, delta_s=7.1e-5)
CHAT = Stream(name="chat", rate_rps=2.0, lengths=Lengths.independent(lognormal_law(1000, 1.0), lognormal_law(300, 0.9)))
ENGINE = Replica(step=DENSE, max_num_seqs=64)


def cut(found: ClassPrediction, edges: list[float]) -> list[ClassPrediction]:
    return [found.bucket(low, high) for low, high in pairwise(edges)]


@settings(max_examples=10, deadline=None)
@given(first=st.floats(30.0, 250.0), second=st.floats(260.0, 1500.0), rate=st.floats(0.05, 2.8))
def test_the_class_is_the_mixture_of_its_buckets(first: float, second: float, rate: float) -> None:
    whole = pool(ENGINE, [replace(CHAT, rate_rps=rate)], 1)["chat"]
    parts = cut(whole, [0.0, first, second, math.inf])
    share = np.array([part.share for part in parts])
    assert share.sum() == pytest.approx(1.0, abs=1e-9)
    for metric in ("ttft", "completion"):
        means = np.array([part.metric(metric).mean for part in parts])  # type: ignore[arg-type]
        assert share @ means == pytest.approx(whole.metric(metric).mean, rel=2e-3)  # type: ignore[arg-type]
    assert share @ [part.slowdown_mean for part in parts] == pytest.approx(whole.slowdown_mean, rel=0.01)
    time = np.array([whole.completion.quantile(0.9)])
    level = sum(part.share * float(part.completion.share_within(time)[0]) for part in parts)
    assert level == pytest.approx(0.9, abs=0.01)


def test_longer_outputs_complete_later_and_start_as_soon() -> None:
    short, middle, long = cut(pool(ENGINE, [CHAT], 1)["chat"], [0.0, 200.0, 600.0, math.inf])
    assert short.completion.quantile(0.5) < middle.completion.quantile(0.5) < long.completion.quantile(0.5)
    assert short.ttft.mean == pytest.approx(long.ttft.mean, rel=1e-12)
    assert short.tpot.quantile(0.95) > long.tpot.quantile(0.95)  # long outputs average more of what happens


def test_an_empty_pool_slows_nobody_down() -> None:
    alone = pool(ENGINE, [replace(CHAT, rate_rps=1e-6)], 1)["chat"]
    assert alone.slowdown_mean == pytest.approx(1.0, abs=0.02)


def test_thinking_tokens_of_long_outputs_are_many() -> None:
    output = Law.from_atoms(np.array([100.0, 1000.0]), np.array([0.5, 0.5]))
    thinking = Law.from_atoms(np.array([50.0, 900.0]), np.array([0.5, 0.5]))
    lengths = Lengths.independent(Law.constant(500), output, reasoning=thinking)
    found = pool(ENGINE, [replace(CHAT, lengths=lengths)], 1)["chat"]
    short, long = cut(found, [0.0, 100.0, math.inf])
    assert short.answer_start.mean == pytest.approx(short.ttft.mean + 50 * short.tpot.mean, rel=0.05)
    assert long.answer_start.mean == pytest.approx(long.ttft.mean + 900 * long.tpot.mean, rel=0.02)


def test_a_range_without_outputs_is_refused() -> None:
    found = pool(ENGINE, [CHAT], 1)["chat"]
    with pytest.raises(ValueError, match=r"no output of class 'chat' lies above 1e\+06 and up to inf tokens; they go"):
        found.bucket(1e6)
    with pytest.raises(ValueError, match=r"above_tokens must be at least 0 and below up_to_tokens \(got 5 and 5\)"):
        found.bucket(5, 5)
    with pytest.raises(ValueError, match="bucket needs the prediction of a whole class"):
        found.bucket(0, 200).bucket(0, 100)


def test_predictions_are_plain_data() -> None:
    found = pool(ENGINE, [CHAT], 1)
    data = found.to_dict(levels=(0.5, 0.999))
    assert json.loads(json.dumps(data)) == data
    assert data["classes"]["chat"]["ttft"]["p99.9_s"] == found["chat"].ttft.quantile(0.999)  # type: ignore[index]
    overloaded = pool(ENGINE, [replace(CHAT, rate_rps=100.0)], 1).to_dict()
    assert overloaded["overload"]["kind"] == "steps" and overloaded["classes"] == {}  # type: ignore[index]


@pytest.mark.slow
def test_buckets_match_simulated_ones() -> None:
    stream = replace(CHAT, rate_rps=4.0)
    found = pool(ENGINE, [stream], 2)["chat"]
    table = draw_requests([stream], rng=np.random.default_rng(2), count=20_000)
    log = simulate_pool(table, ENGINE, replicas=2).log
    steady = np.zeros(len(log), dtype=bool)
    steady[2_000:-1_000] = True
    slowdown = log.completion_after_s / alone_s(ENGINE, table.prompt, table.output)
    for low, high in ((0.0, 200.0), (200.0, 600.0), (600.0, math.inf)):
        rows = steady & (table.output > low) & (table.output <= high)
        part = found.bucket(low, high)
        assert part.share == pytest.approx(rows.sum() / steady.sum(), abs=0.01)
        assert part.tpot.mean == pytest.approx(np.nanmean(log.tpot_s[rows]), rel=0.02)
        assert part.completion.mean == pytest.approx(log.completion_after_s[rows].mean(), rel=0.03)
        assert part.completion.quantile(0.95) == pytest.approx(
            np.quantile(log.completion_after_s[rows], 0.95), rel=0.05
        )
        assert part.slowdown_mean == pytest.approx(slowdown[rows].mean(), rel=0.03)
