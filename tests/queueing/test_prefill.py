"""Time to the first token: exact special cases, and the step recursion simulated directly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qmodel.queueing import pool
from qmodel.queueing.replica.prefill import lumped
from qmodel.queueing.replica.step_chain import CELLS, stationary, stationary_within_budget
from qmodel.types import FloatArray, Law, Lengths, Replica, Stream
from tests.queueing.llm_cases import chat_8b, linear, small

STEP_S = 0.0136
DELTA_S = 1.03e-4


def test_an_idle_replica_prefills_at_once() -> None:
    replica, stream = small(1e-5, step=linear(8.0, 0.0, 0.0, 0.03))
    lengths = Lengths.independent(Law.constant(512), Law.constant(100))
    ttft = pool(replica, [replace(stream, lengths=lengths)], 1)["chat"].ttft
    assert ttft.mean == pytest.approx(0.008 + 512 * 3e-5, rel=1e-3)
    assert ttft.quantile(0.99) == pytest.approx(ttft.mean, rel=0.02)


def test_step_lengths_within_the_budget_are_those_of_the_laws_collected() -> None:
    rng = np.random.default_rng(5)
    law = rng.dirichlet(np.full(40, 0.3), 6)
    arrivals = 0.02 * np.arange(1.0, 12.0)[:, None] * rng.uniform(0.2, 3.0, (6, 1, 1))  # more in longer steps
    gone = np.exp(-arrivals * (1.0 - np.fft.rfft(law, 2 * CELLS, axis=1))[:, None, :])
    collected = lumped(gone)
    reach = np.full(6, CELLS - 1.0)
    nodes, left, taken = stationary(collected, collected[:, -1:], reach, reach)
    np.testing.assert_allclose(stationary_within_budget(gone), nodes, rtol=1e-10, atol=1e-14)
    assert left.shape == (6, 1) and not left.any() and (taken == 1.0).all()


def test_a_prompt_beyond_the_budget_takes_several_steps() -> None:
    replica, stream = small(1e-5, step=linear(8.0, 0.0, 0.0, 0.03))
    lengths = Lengths.independent(Law.constant(5000), Law.constant(100))
    ttft = pool(replica, [replace(stream, lengths=lengths)], 1)["chat"].ttft
    assert ttft.mean == pytest.approx(3 * 0.008 + 5000 * 3e-5, rel=2e-3)  # 2048 + 2048 + 904 tokens


def test_without_prefill_cost_the_first_token_takes_a_step_and_a_half() -> None:
    replica = Replica(step=linear(20.0, 0.0, 0.0, 0.0), max_num_seqs=200, max_batched_tokens=8192)
    stream = Stream(name="a", rate_rps=20.0, lengths=Lengths.independent(Law.constant(10), Law.constant(200)))
    ttft = pool(replica, [stream], 1)["a"].ttft
    assert ttft.mean == pytest.approx(1.5 * 0.02, rel=1e-3)
    assert ttft.quantile(0.5) == pytest.approx(0.03, rel=0.02)
    assert ttft.quantile(0.99) == pytest.approx(0.04, rel=0.03)


@pytest.mark.parametrize("rate_rps", [1.0, 3.3, 5.5])
def test_the_law_matches_the_step_recursion_simulated(rate_rps: float) -> None:
    replica, stream = chat_8b("A100")
    replica = replace(
        replica, step=linear(STEP_S * 1e3, 0.0, 0.0, DELTA_S * 1e3), max_batched_tokens=100_000, max_num_seqs=4000
    )
    ttft = pool(replica, [replace(stream, rate_rps=rate_rps)], 1)["chat"].ttft
    simulated = step_recursion(rate_rps, stream.lengths.prompt, np.random.default_rng(7))
    assert ttft.mean == pytest.approx(simulated.mean(), rel=0.015)
    for p in (0.5, 0.9, 0.95, 0.99):
        assert ttft.quantile(p) == pytest.approx(float(np.quantile(simulated, p)), rel=0.05)


def step_recursion(rate_rps: float, prompt: Law, rng: np.random.Generator, steps: int = 120_000) -> FloatArray:
    """Delays when every prompt that arrives in a step is prefilled in the next one."""
    tokens = rng.choice(prompt.values, size=steps, p=prompt.weights)
    delays: list[float] = []
    length_s = STEP_S
    used = 0
    for _ in range(steps):
        arrived = rng.poisson(rate_rps * length_s)
        if used + arrived > steps:
            break
        next_s = STEP_S + DELTA_S * float(tokens[used : used + arrived].sum())
        used += arrived
        delays.extend((length_s * rng.random(arrived) + next_s).tolist())
        length_s = next_s
    return np.array(delays)


def test_a_smaller_token_budget_does_not_speed_up_the_first_token() -> None:
    replica, stream = small(9.0)
    means = [pool(replace(replica, max_batched_tokens=c), [stream], 1)["chat"].ttft.mean for c in (8192, 2048, 1024)]
    assert means == sorted(means)


def test_a_class_with_longer_prompts_waits_longer_in_the_same_pool() -> None:
    replica, chat = small(5.0)
    document = Stream(name="document", rate_rps=0.5, lengths=Lengths.independent(Law.constant(4000), Law.constant(100)))
    prediction = pool(replica, [chat, document], 1)
    assert prediction["document"].ttft.mean > prediction["chat"].ttft.mean + 3000 * 3e-5
    assert prediction["chat"].ttft.mean > pool(replica, [chat], 1)["chat"].ttft.mean
