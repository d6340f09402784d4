"""The engine against queueing theory, conservation laws and its own promises."""

from __future__ import annotations

import heapq
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from qmodel.queueing import erlang_c
from qmodel.simulation import EnginePolicy, Speculation, draw_requests, simulate_pool, table_from_arrays
from qmodel.types import FloatArray, Law, Lengths, Replica, StepLaw, Stream

STEP = StepLaw.linear(alpha_s=0.01, beta_s=2e-4, gamma_s=3e-7, delta_s=5e-5)


def stream(rate_rps: float, prompt: Law, output: Law) -> Stream:
    return Stream(name="all", rate_rps=rate_rps, lengths=Lengths.independent(prompt, output))


def geometric(mean: float) -> Law:
    values = np.arange(1.0, 30 * mean)
    return Law.from_atoms(values, (1 / mean) * (1 - 1 / mean) ** (values - 1))


def multiserver_waits(arrival_s: FloatArray, service_s: FloatArray, servers: int) -> FloatArray:
    free_s = [0.0] * servers
    waits = []
    for arrival, service in zip(arrival_s.tolist(), service_s.tolist(), strict=True):
        start = max(arrival, heapq.heappop(free_s))
        heapq.heappush(free_s, start + service)
        waits.append(start - arrival)
    return np.array(waits)


def test_one_slot_and_constant_lengths_wait_as_in_m_d_1() -> None:
    replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0), max_num_seqs=1)
    service_s, rho = 0.2, 0.7
    table = draw_requests(
        [stream(rho / service_s, Law.constant(5), Law.constant(20))], rng=np.random.default_rng(3), count=100_000
    )
    wait_s = simulate_pool(table, replica).log.wait_s
    exact = multiserver_waits(table.arrival_s, np.full(len(table), service_s), 1)
    np.testing.assert_allclose(wait_s, exact, rtol=0, atol=1e-6)
    assert wait_s.mean() == pytest.approx(rho * service_s / (2 * (1 - rho)), rel=0.04)


def test_one_slot_and_geometric_lengths_wait_as_in_m_m_1() -> None:
    replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0), max_num_seqs=1)
    rho = 0.6
    table = draw_requests(
        [stream(rho / 0.5, Law.constant(5), geometric(50.0))], rng=np.random.default_rng(4), count=100_000
    )
    wait_s = simulate_pool(table, replica).log.wait_s
    np.testing.assert_allclose(wait_s, multiserver_waits(table.arrival_s, table.output * 0.01, 1), rtol=0, atol=1e-6)
    assert wait_s.mean() == pytest.approx(rho * 0.5 / (1 - rho), rel=0.05)


def test_many_slots_of_constant_speed_wait_as_in_m_m_c() -> None:
    replica = Replica(step=StepLaw.linear(alpha_s=0.001, beta_s=0.0), max_num_seqs=10)
    table = draw_requests(
        [stream(8.0 / 0.2, Law.constant(5), geometric(200.0))], rng=np.random.default_rng(5), count=100_000
    )
    wait_s = simulate_pool(table, replica).log.wait_s
    assert wait_s.mean() == pytest.approx(erlang_c(8.0, 10) * 0.2 / 2.0, rel=0.06)


def test_many_slots_and_constant_lengths_wait_as_in_m_d_c() -> None:
    replica = Replica(step=StepLaw.linear(alpha_s=0.001, beta_s=0.0), max_num_seqs=4)
    table = draw_requests(
        [stream(0.9 * 4 / 0.2, Law.constant(5), Law.constant(200))], rng=np.random.default_rng(6), count=40_000
    )
    wait_s = simulate_pool(table, replica).log.wait_s
    exact = multiserver_waits(table.arrival_s, np.full(len(table), 0.2), 4)
    assert (wait_s >= exact - 1e-9).all()  # steps begin together: up to one step more
    assert (wait_s <= exact + 0.001).all()


def test_time_in_service_adds_up_to_sequences_running() -> None:
    replica = Replica(step=STEP, max_num_seqs=64)
    table = draw_requests([stream(3.0, Law.constant(100), geometric(100.0))], rng=np.random.default_rng(6), count=3000)
    run = simulate_pool(table, replica, replicas=2, router="jsq")
    served_s = (run.log.completion_s - run.log.admitted_s).sum()
    assert run.track.mean_running * 2 * (run.track.to_s - run.track.from_s) == pytest.approx(served_s, rel=1e-9)
    assert run.track.decoded_tokens == table.output.sum() - len(table)
    assert run.track.prefill_tokens == table.prompt.sum()


@pytest.mark.parametrize("router", ["random", "round_robin", "jsq", "least_kv"])
def test_the_same_seed_gives_the_same_digits(router: str) -> None:
    replica = Replica(step=STEP, max_num_seqs=8, kv_tokens=2000.0)
    load = [stream(5.0, Law.constant(20), geometric(40.0))]
    runs = [
        simulate_pool(
            draw_requests(load, rng=np.random.default_rng(9), count=800),
            replica,
            replicas=3,
            router=router,  # type: ignore[arg-type]
            rng=np.random.default_rng(2),
        )
        for _ in range(2)
    ]
    np.testing.assert_array_equal(runs[0].log.completion_s, runs[1].log.completion_s)
    np.testing.assert_array_equal(runs[0].log.replica, runs[1].log.replica)
    assert runs[0].track.mean_running == runs[1].track.mean_running


def test_routers_that_look_wait_less_than_those_that_do_not() -> None:
    replica = Replica(step=STEP, max_num_seqs=4)
    table = draw_requests([stream(16.0, Law.constant(20), geometric(60.0))], rng=np.random.default_rng(7), count=15_000)
    waits = {
        router: simulate_pool(table, replica, replicas=4, router=router).log.wait_s.mean()  # type: ignore[arg-type]
        for router in ("random", "round_robin", "jsq")
    }
    assert waits["jsq"] < 0.5 * waits["round_robin"] < 0.5 * waits["random"]


def test_memory_does_not_grow_with_tokens() -> None:
    replica = Replica(step=STEP, max_num_seqs=64)

    def peak_bytes(output: int) -> int:
        table = table_from_arrays(np.arange(400) * 0.05, prompt=50, output=output)
        tracemalloc.start()
        run = simulate_pool(table, replica)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert run.track.decoded_tokens == 400 * (output - 1)
        return peak

    peak_bytes(10)
    assert peak_bytes(100_000) < 1.2 * peak_bytes(1000)


def test_runs_are_jumped_over_whatever_their_length() -> None:
    replica = Replica(step=STEP, max_num_seqs=4)
    run = simulate_pool(table_from_arrays([0.0], prompt=1, output=10**12), replica)
    decodes = 10**12 - 1
    context = decodes * (decodes + 3) / 2
    exact_s = 0.01 + 5e-5 + decodes * (0.01 + 2e-4) + 3e-7 * context
    assert run.log.completion_s[0] == pytest.approx(exact_s, rel=1e-12)
    assert run.track.steps == 10**12


def test_a_long_prompt_is_jumped_over_chunk_by_chunk() -> None:
    replica = Replica(step=STEP, max_num_seqs=4, max_batched_tokens=10)
    run = simulate_pool(table_from_arrays([0.0, 0.001], prompt=[1, 10**9], output=[10**12, 1]), replica)
    chunks = math.ceil(10**9 / 9)
    first_s = 0.01 + 5e-5
    exact_s = first_s + chunks * (0.01 + 2e-4) + 3e-7 * (chunks * (chunks + 3) / 2) + 5e-5 * 10**9
    assert run.log.first_token_s[1] == pytest.approx(exact_s, rel=1e-12)


def test_important_requests_wait_less_than_they_would_in_order_of_arrival() -> None:
    replica = Replica(step=STEP, max_num_seqs=4)
    table = draw_requests([stream(5.5, Law.constant(20), geometric(60.0))], rng=np.random.default_rng(8), count=6000)
    table = replace(table, priority=(np.arange(len(table)) % 4 == 0).astype(np.int64))
    high = table.priority == 1
    fair = simulate_pool(table, replica).log.wait_s
    ranked = simulate_pool(table, replica, policy=EnginePolicy(order="priority")).log.wait_s
    assert ranked[high].mean() < 0.3 * fair[high].mean()
    assert ranked[~high].mean() > fair[~high].mean()


def test_a_cached_prefix_saves_its_prefill_and_nothing_else() -> None:
    run = simulate_pool(
        table_from_arrays([0.0, 100.0], prompt=1000, output=2, cached_prefix=[0, 600]), Replica(step=STEP)
    )
    assert run.log.ttft_s[0] - run.log.ttft_s[1] == pytest.approx(600 * 5e-5)
    assert run.log.tpot_s[0] == pytest.approx(run.log.tpot_s[1])


def test_speculation_divides_the_steps_by_the_tokens_of_each() -> None:
    table = table_from_arrays([0.0], prompt=10, output=10_001)
    flat = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0))
    speculation = Speculation(draft_tokens=3, acceptance=0.5, draft_cost=0.1)
    run = simulate_pool(table, flat, policy=EnginePolicy(speculation=speculation))
    assert speculation.tokens_per_step == 1.875
    assert run.log.tpot_s[0] == pytest.approx(0.01 * 1.3 / 1.875, rel=1e-3)


def test_impatient_requests_leave_and_are_counted() -> None:
    replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0), max_num_seqs=1)
    table = table_from_arrays([0.0, 0.1, 0.2], prompt=5, output=[101, 1, 1])
    run = simulate_pool(table, replica, policy=EnginePolicy(patience_s=0.5, retries=1, backoff_s=0.45))
    log = run.log
    assert [log.outcomes[outcome] for outcome in log.outcome] == ["done", "done", "done"]
    assert log.retries.tolist() == [0, 1, 1]
    assert log.completion_s.round(6).tolist() == [1.01, 1.06, 1.16]
    gone = simulate_pool(table, replica, policy=EnginePolicy(patience_s=0.5)).log
    assert [gone.outcomes[outcome] for outcome in gone.outcome] == ["done", "reneged", "reneged"]
    assert gone.completion_s[1:].round(6).tolist() == [0.6, 0.7]
    assert np.isnan(gone.completion_after_s[1:]).all()


def test_a_request_larger_than_the_pool_is_refused() -> None:
    log = simulate_pool(
        table_from_arrays([0.0, 1.0], prompt=[90, 10], output=20), Replica(step=STEP, kv_tokens=100.0)
    ).log
    assert [log.outcomes[outcome] for outcome in log.outcome] == ["refused", "done"]


def test_what_is_not_over_at_the_end_is_unfinished() -> None:
    run = simulate_pool(table_from_arrays([0.0, 5.0], prompt=10, output=1000), Replica(step=STEP), until_s=1.0)
    log = run.log
    assert [log.outcomes[outcome] for outcome in log.outcome] == ["unfinished", "unfinished"]
    assert log.first_token_s[0] < 1.0
    assert np.isnan(log.completion_s).all()
    assert run.track.to_s == 1.0
    assert run.track.busy_share > 0.98


def test_drawn_lengths_keep_the_means_and_the_thinking_ends_before_the_output() -> None:
    lengths = Lengths.independent(Law.constant(99.25), geometric(40.0), Law.constant(30.5))
    table = draw_requests(
        [Stream(name="a", rate_rps=1.0, lengths=lengths), stream(3.0, Law.constant(7), Law.constant(3))],
        rng=np.random.default_rng(1),
        horizon_s=20_000.0,
    )
    first = table.cls == 0
    assert first.mean() == pytest.approx(0.25, abs=0.01)
    assert len(table) == pytest.approx(80_000, rel=0.02)
    assert table.prompt[first].mean() == pytest.approx(99.25, abs=0.02)
    assert table.output[first].mean() == pytest.approx(40.0, rel=0.03)
    assert (table.reasoning < table.output).all()
    assert table.arrival_s[-1] < 20_000.0
    assert (np.diff(table.arrival_s) >= 0).all()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"prompt": [1, 0], "output": 1}, r"prompt must be at least 1 \(row 1: 0\)"),
        (
            {"prompt": 1, "output": [2, 3], "reasoning": [1, 3]},
            r"reasoning must be at least 0 and below 3 \(row 1: 3\)",
        ),
        ({"prompt": 1, "output": [1, 2, 3]}, r"output must be a number or have one value per arrival, 2"),
        ({"prompt": 1.5, "output": 1}, r"prompt must be whole numbers \(got 1.5\)"),
    ],
)
def test_wrong_columns_are_refused_with_their_row(columns: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table_from_arrays([0.0, 1.0], **columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replicas": 0}, "replicas must be at least 1"),
        ({"router": "fastest"}, "router must be one of random, round_robin, jsq, least_kv"),
        ({"until_s": 0.0}, "until_s must be greater than 0"),
        ({"window_s": (3.0, 2.0)}, "window_s must be two ascending times"),
    ],
)
def test_wrong_arguments_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate_pool(table_from_arrays([0.0], prompt=1, output=1), Replica(step=STEP), **settings)  # type: ignore[arg-type]


def test_a_batch_that_outgrows_the_token_budget_is_refused() -> None:
    small = Replica(step=STEP, max_num_seqs=64, max_batched_tokens=100)
    draft = EnginePolicy(speculation=Speculation(draft_tokens=1, acceptance=0.5))
    with pytest.raises(ValueError, match="max_num_seqs must not exceed max_batched_tokens / 2 = 50"):
        simulate_pool(table_from_arrays([0.0], prompt=1, output=1), small, policy=draft)
