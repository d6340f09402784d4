"""Prefill that waits behind a request at its first token, and what it does to its tokens and to its completion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qmodel.queueing import Replica, pool
from qmodel.queueing.replica.chain import occupancy
from qmodel.queueing.replica.many_pools import pool_metrics
from qmodel.queueing.replica.prefill import Backlog, backlog
from qmodel.queueing.replica.work import pooled_work
from qmodel.types import FloatArray, Law, Lengths, Stream
from qmodel.workload import lognormal_law
from tests.queueing.llm_cases import linear
from tests.step_engine import simulate

CODE = Lengths.independent(lognormal_law(1500.0, 0.6, maximum=8000), lognormal_law(12.0, 0.6, maximum=200))
STEP_S, DELTA_S = 0.015, 4e-5


def engine(budget: int) -> Replica:
    """Steps whose length does not depend on the batch."""
    step = linear(STEP_S * 1e3, 0.0, 0.0, DELTA_S * 1e3)
    return Replica(step=step, max_num_seqs=100, max_batched_tokens=budget)


def waiting(budget: int, rate_rps: float) -> Backlog:
    replica = engine(budget)
    work = pooled_work(replica, [Stream(name="code", rate_rps=rate_rps, lengths=CODE)])
    rate = np.array([rate_rps])
    return backlog(replica, work, occupancy(replica, work, None, rate, np.ones(1), "random"), rate)


def test_a_step_whose_budget_never_fills_takes_all_that_waits() -> None:
    assert waiting(200_000, 4.0).taken[0] == pytest.approx(1.0, abs=1e-9)


def test_a_smaller_budget_takes_less_of_it() -> None:
    taken = [float(waiting(budget, 7.0).taken[0]) for budget in (16_384, 4096, 1024, 512)]
    assert taken == sorted(taken, reverse=True)
    assert 0.0 < taken[-1] < 0.3


@pytest.mark.parametrize(("budget", "rate_rps"), [(1024, 7.0), (2048, 9.0), (8192, 10.0)])
def test_what_waits_decays_as_in_the_step_recursion_simulated(budget: int, rate_rps: float) -> None:
    state = waiting(budget, rate_rps)
    tokens = recursion(float(state.budget[0]), rate_rps, np.random.default_rng(5))
    used = np.minimum(tokens, state.budget[0])
    beyond = used[:-1] - used[:-1].mean()
    taken = (beyond @ used[1:]) / (beyond @ tokens[1:])
    assert state.taken[0] == pytest.approx(taken, rel=0.12)
    assert state.mean_tokens[0] == pytest.approx(tokens.mean(), rel=0.08)


def recursion(budget: float, rate_rps: float, rng: np.random.Generator, steps: int = 400_000) -> FloatArray:
    """Prompt tokens that wait at the start of each step."""
    prompts = rng.choice(CODE.prompt.values, size=2 * steps, p=CODE.prompt.weights)
    tokens, waits, used = np.empty(steps), 0.0, 0
    chance = rng.random(steps)
    for step in range(steps):
        tokens[step] = waits
        now = min(waits, budget)
        arrived = _poisson(rate_rps * (STEP_S + DELTA_S * now), float(chance[step]))
        waits += float(prompts[used : used + arrived].sum()) - now
        used += arrived
    return tokens


def _poisson(mean: float, chance: float) -> int:
    count, term = 0, float(np.exp(-mean))
    while chance > term and count < 60:
        chance -= term
        count += 1
        term *= mean / count
    return count


@pytest.mark.parametrize(("budget", "load"), [(1024, 0.8), (2048, 0.8), (1024, 0.6)])
def test_short_outputs_behind_long_prompts_match_the_step_engine(budget: int, load: float) -> None:
    replica = Replica(step=linear(12.0, 0.4, 0.0, 0.04), max_num_seqs=100, max_batched_tokens=budget)
    one = Stream(name="code", rate_rps=1.0, lengths=CODE)
    stream = replace(one, rate_rps=load / pool(replica, [one], 1).utilisation)
    found = pool(replica, [stream], 1)["code"]
    measured = simulate(replica, [stream], replicas=1, router="random", requests=60_000, seed=11).classes["code"]
    assert found.tpot.mean == pytest.approx(measured.tpot_s.mean(), rel=0.09)
    assert found.completion.mean == pytest.approx(measured.completion_s.mean(), rel=0.06)
    assert found.completion.quantile(0.95) == pytest.approx(float(np.quantile(measured.completion_s, 0.95)), rel=0.12)


def test_the_mean_time_per_token_is_the_same_with_and_without_other_metrics() -> None:
    replica = Replica(step=linear(12.0, 0.4, 0.0, 0.04), max_num_seqs=100, max_batched_tokens=1024)
    streams = [Stream(name="code", rate_rps=4.0, lengths=CODE)]
    alone = pool_metrics(replica, streams, 1, 1.0, "random", [("code", "tpot", None)])
    beside = pool_metrics(replica, streams, 1, 1.0, "random", [("code", "ttft", 0.95), ("code", "tpot", None)])
    assert alone[0, 0] == pytest.approx(beside[0, 1], rel=1e-12)
    assert alone[0, 0] == pytest.approx(pool(replica, streams, 1)["code"].tpot.mean, rel=1e-9)


def test_completions_of_constant_lengths_never_pass_full_steps_by_much() -> None:
    lengths = Lengths.independent(Law.constant(1500), Law.constant(12))
    replica = engine(1024)
    stream = Stream(name="code", rate_rps=8.0, lengths=lengths)
    found = pool(replica, [stream], 1)["code"]
    longest_s = STEP_S + DELTA_S * 1024
    assert found.completion.quantile(0.99) < found.ttft.quantile(0.999) + 11 * longest_s
