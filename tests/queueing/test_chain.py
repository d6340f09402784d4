"""Number-in-system chain: special cases with closed forms, the grid, and where capacity ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qmodel.queueing import erlang_c, pool
from qmodel.queueing.replica.chain import full_budget_batch, occupancy, prompt_rate_rps, top_rate_rps
from qmodel.queueing.replica.kv_limited import memory_limit
from qmodel.queueing.replica.work import Work, pooled_work
from qmodel.types import FloatArray, Law, Lengths, Replica, StepLaw, Stream
from tests.queueing.llm_cases import chat_8b, linear, small

FLAT = Replica(step=linear(10.0, 0.0, 0.0, 0.0), max_num_seqs=20, max_batched_tokens=8192)
SHORT = Stream(name="a", rate_rps=1.0, lengths=Lengths.independent(Law.constant(10), Law.constant(100)))


def solve(replica: Replica, work: Work, rate_rps: list[float], replicas: list[int], router: str = "random"):  # type: ignore[no-untyped-def]
    limit = memory_limit(replica, work)
    return occupancy(replica, work, limit, np.array(rate_rps), np.array(replicas, dtype=float), router)  # type: ignore[arg-type]


def test_steps_of_one_length_make_an_erlang_queue() -> None:
    work = pooled_work(FLAT, [SHORT])  # each request takes 100 steps of 10 ms whatever the batch
    found = solve(FLAT, work, [10.0, 16.0, 19.0], [1, 1, 1])
    np.testing.assert_allclose(found.utilisation, [0.5, 0.8, 0.95], rtol=1e-12)
    np.testing.assert_allclose(found.p_wait, erlang_c(np.array([10.0, 16.0, 19.0]), 20), rtol=1e-9)
    np.testing.assert_allclose(found.residence_s, 1.0, rtol=1e-9)
    np.testing.assert_allclose(found.mean_batch, [10.0, 16.0, 19.0], rtol=1e-9)
    assert np.all(found.tau_variance < 1e-12)


def test_a_lone_request_takes_its_steps_at_batch_one() -> None:
    replica, stream = chat_8b("A100")
    work = pooled_work(replica, [stream])
    found = solve(replica, work, [1e-6], [1])
    alone = work.steps * float(replica.step.tau_s(1.0, work.context)) + replica.step.delta_s * work.lengths.prompt.mean
    assert float(found.residence_s[0]) == pytest.approx(alone, rel=1e-5)


def test_mean_number_obeys_little() -> None:
    replica, stream = small()
    found = solve(replica, pooled_work(replica, [stream]), [8.0], [1])
    assert float(found.mean_batch[0]) == pytest.approx(8.0 * float(found.residence_s[0]), rel=1e-12)


@pytest.mark.parametrize(("replicas", "load"), [(16, 0.6), (16, 0.95), (60, 0.8), (100, 0.3)])
def test_the_grid_of_a_large_shared_chain_matches_the_sum_over_all_states(replicas: int, load: float) -> None:
    replica, stream = chat_8b("A100")
    work = pooled_work(replica, [stream])
    rate = load * replicas * top_rate_rps(replica, work, None)[0]
    found = solve(replica, work, [rate], [replicas], "jsq")
    batch, p_wait = every_state(replica, work, rate, replicas)
    assert float(found.mean_batch[0]) == pytest.approx(batch, rel=2e-4)
    assert float(found.p_wait[0]) == pytest.approx(p_wait, rel=0.03, abs=1e-12)


def every_state(replica: Replica, work: Work, rate: float, replicas: int) -> tuple[float, float]:
    n: FloatArray = np.arange(1.0, replicas * replica.max_num_seqs + 1)
    each = np.maximum(n / replicas, 1.0)
    speed = (
        np.minimum(n, replicas)
        * each
        / (work.steps * replica.step.tau_s(each, work.context) + each * replica.step.delta_s * work.lengths.prompt.mean)
    )
    log_mass = np.concatenate([[0.0], np.cumsum(np.log(rate / speed))])
    mass = np.exp(log_mass - log_mass.max())
    rho = rate / speed[-1]
    tail = mass[-1] * rho / (1.0 - rho)
    total = mass.sum() + tail
    in_service = (mass * np.arange(mass.size)).sum() + tail * (mass.size - 1)
    return float(in_service / total / replicas), float((mass[-1] + tail) / total)


def test_a_shared_queue_of_one_replica_is_the_replica() -> None:
    replica, stream = small()
    work = pooled_work(replica, [stream])
    one, other = (solve(replica, work, [9.0], [1], router) for router in ("random", "jsq"))
    assert float(one.p_wait[0]) == pytest.approx(float(other.p_wait[0]), rel=1e-12)
    assert float(one.residence_s[0]) == pytest.approx(float(other.residence_s[0]), rel=1e-12)


def test_a_shared_queue_waits_less_than_split_queues() -> None:
    replica, stream = small()
    work = pooled_work(replica, [stream])
    split, shared = (solve(replica, work, [50.0], [4], router) for router in ("random", "jsq"))
    assert float(shared.p_wait[0]) < 0.1 * float(split.p_wait[0])


def test_a_table_with_the_same_values_is_the_linear_law() -> None:
    replica, stream = small()
    knots = np.array([0.0, 3.0, 17.0, 64.0])
    table = StepLaw(
        batch=knots, base_s=replica.step.tau_s(knots, 0.0), gamma_s=replica.step.gamma_s, delta_s=replica.step.delta_s
    )
    linear_law, tabulated = (pool(item, [stream], 1)["chat"] for item in (replica, replace(replica, step=table)))
    assert tabulated.completion.quantile(0.95) == pytest.approx(linear_law.completion.quantile(0.95), rel=1e-9)


def test_a_concave_table_speeds_up_large_batches() -> None:
    replica, stream = small()
    law = StepLaw(
        batch=np.array([0.0, 8.0, 64.0]),
        base_s=np.array([0.008, 0.0084, 0.0085]),
        gamma_s=replica.step.gamma_s,
        delta_s=replica.step.delta_s,
    )
    assert (
        pool(replace(replica, step=law), [stream], 1)["chat"].tpot.mean < pool(replica, [stream], 1)["chat"].tpot.mean
    )


def test_the_token_budget_caps_the_rate_of_long_prompts() -> None:
    replica = Replica(step=linear(8.0, 0.05, 0.0, 0.03), max_num_seqs=256, max_batched_tokens=2048)
    stream = Stream(name="a", rate_rps=1.0, lengths=Lengths.independent(Law.constant(4000), Law.constant(11)))
    work = pooled_work(replica, [stream])
    batch = full_budget_batch(replica, work)
    assert batch == pytest.approx(2048 * 10 / 4010)
    step_s = 0.008 + 0.05e-3 * batch + 0.03e-3 * (2048 - batch)
    assert prompt_rate_rps(replica, work) == pytest.approx((2048 - batch) / 4000 / step_s)
    assert top_rate_rps(replica, work, None) == (prompt_rate_rps(replica, work), False)
