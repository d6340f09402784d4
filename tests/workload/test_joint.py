"""Thinking plus answer, and joint laws of recorded requests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.types import Law
from qmodel.workload import combine_reasoning, length_law, lengths_from_arrays, lognormal_law

THINKING = length_law(
    {"mixture": [{"weight": 0.58, "mu": 7.57, "sigma": 0.83}, {"weight": 0.42, "mu": 9.20, "sigma": 0.48}],
     "budget": 32768}
)  # fmt: skip
ANSWER = lognormal_law(500, 0.6)


def test_without_a_cap_moments_add_as_for_independent_variables() -> None:
    output, thinking = combine_reasoning(THINKING, ANSWER)
    assert output.mean == pytest.approx(THINKING.mean + ANSWER.mean)
    variance = [law.mean**2 * law.scv for law in (output, THINKING, ANSWER)]
    assert variance[0] == pytest.approx(variance[1] + variance[2])
    assert thinking.moments == THINKING.moments


@pytest.mark.parametrize("cap", [4000, 16000, 40000])
def test_a_capped_sum_is_what_a_sampler_draws(cap: int) -> None:
    output, thinking = combine_reasoning(THINKING, ANSWER, cap)
    rng = np.random.default_rng(3)
    first = rng.choice(THINKING.values, p=THINKING.weights, size=400_000)
    second = rng.choice(ANSWER.values, p=ANSWER.weights, size=400_000)
    drawn = np.minimum(first + second, cap)
    for power, moment in enumerate(output.moments, start=1):
        assert moment == pytest.approx(np.mean(drawn**power), rel=0.01)
    assert thinking.mean == pytest.approx(np.mean(np.minimum(first, cap - 1)), rel=0.005)
    for p in (0.5, 0.9, 0.99):
        assert output.quantile(p) == pytest.approx(np.quantile(drawn, p), rel=0.01)
    over = np.mean((first + second > cap) | (first >= 32768))  # nearly all of that atom is the budget's
    assert output.capped_share == pytest.approx(over, abs=0.003)


def test_constants_add_to_a_constant() -> None:
    output, thinking = combine_reasoning(Law.constant(30), Law.constant(12), 40)
    assert output.values.tolist() == [40.0]
    assert thinking.values.tolist() == [30.0]
    assert (output.capped_share, thinking.capped_share) == (1.0, 0.0)


@settings(max_examples=20, deadline=None)
@given(mean=st.floats(20, 9000), answer=st.floats(1, 900), cap=st.integers(2, 20_000))
def test_thinking_always_leaves_room_for_one_answer_token(mean: float, answer: float, cap: int) -> None:
    output, thinking = combine_reasoning(lognormal_law(mean, 0.9), lognormal_law(answer, 0.5), cap)
    assert output.maximum <= cap
    assert thinking.maximum <= cap - 1
    for p in np.linspace(0.05, 0.999, 30):
        assert thinking.quantile(p) < output.quantile(p) * 1.01
    assert float(output.weights @ output.values) == pytest.approx(output.mean, rel=1e-9)


def test_a_cap_below_two_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tokens: must be at least 2"):
        combine_reasoning(THINKING, ANSWER, 1)


def test_joint_moments_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(5)
    prompt = rng.integers(1, 9000, 5000)
    output = np.maximum(9000 - prompt + rng.integers(0, 500, 5000), 1)
    lengths = lengths_from_arrays(prompt, output, output // 2)
    p, n = prompt.astype(float), output.astype(float)
    assert lengths.e_pn == pytest.approx(np.mean(p * n))
    assert lengths.e_p2n == pytest.approx(np.mean(p**2 * n))
    assert lengths.e_pn2 == pytest.approx(np.mean(p * n**2))
    assert lengths.e_pn < 0.9 * lengths.prompt.mean * lengths.output.mean  # long prompts have short outputs here
    assert lengths.prompt.moments[2] == pytest.approx(np.mean(p**3))
    assert lengths.prompt.values.size <= 512
    assert lengths.reasoning is not None
    assert lengths.reasoning.mean == pytest.approx(np.mean(np.minimum(output // 2, output - 1)))


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        (([], []), "at least one"),
        (([1, 2], [1]), "output: has 1 requests, prompt has 2"),
        (([0, 2], [1, 1]), "prompt: token counts must be at least 1"),
        (([1, 2], [1, 1], [1, 2]), "none above its output"),
    ],
)
def test_bad_rows_are_refused(arrays: tuple[list[int], ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        lengths_from_arrays(*arrays)
