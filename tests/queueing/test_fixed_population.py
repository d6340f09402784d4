"""Closed loops and closed batches: hand calculations, a plain step engine, properties and messages."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import Replica, StepLaw, closed_batch, closed_loop, resident_cap
from qmodel.queueing.populations.batch_engine import drain
from qmodel.queueing.populations.interleaving import interleaved_lengths
from qmodel.types import FloatArray, Law, Lengths
from tests.queueing.plain_batch_engine import run_closed

DENSE = StepLaw.linear(alpha_s=0.0131, beta_s=7.1e-5, gamma_s=3.06e-8, delta_s=7.1e-5)
MIXTURE_OF_EXPERTS = StepLaw(
    batch=np.array([0.0, 8.0, 32.0, 128.0, 512.0]),
    base_s=np.array([0.010, 0.016, 0.022, 0.030, 0.050]),
    gamma_s=2e-8,
    delta_s=5e-5,
)
FREE = StepLaw.linear(alpha_s=0.01, beta_s=0.0)


def lognormal(mean: float, cv: float, largest: float = math.inf) -> Law:
    """Atoms at evenly spaced quantiles."""
    sigma = math.sqrt(math.log1p(cv**2))
    normal = np.sort(np.random.default_rng(0).standard_normal(4000))[10::20]
    values = np.minimum(mean * np.exp(sigma * normal - sigma**2 / 2.0), largest)
    return Law.from_atoms(values, np.ones(values.size))


def test_cap_reserves_half_of_the_output_unless_the_engine_reserves_it_all() -> None:
    assert float(resident_cap(100_000, 1000, 500)) == 80.0
    assert float(resident_cap(100_000, 1000, 500, "no_evict")) == 66.0


def test_cap_lies_between_one_and_the_slots() -> None:
    caps = resident_cap(np.array([10.0, 1e5, 1e9]), 1000, 500, max_num_seqs=256)
    assert caps.tolist() == [1.0, 80.0, 256.0]
    assert float(resident_cap(None, 1000, 500, max_num_seqs=64)) == 64.0


def test_sliding_windows_hold_about_half() -> None:
    assert float(resident_cap(100_000, 1000, 500, kv_slope=0.5, kv_fixed_tokens=64.0)) == math.floor(
        1e5 / (625.0 + 64.0)
    )


def test_a_single_user_waits_for_nobody() -> None:
    loop = closed_loop(DENSE, users=1, prompt_mean=1000, output_mean=200)
    prefill_s = 0.0131 + 7.1e-5 * 1000
    batch = float(loop.batch)
    assert float(loop.ttft_s) == pytest.approx(prefill_s, rel=1e-12)
    assert float(loop.tpot_s) == pytest.approx(0.0131 + batch * (7.1e-5 + 3.06e-8 * 1100), rel=1e-12)


@pytest.mark.parametrize("law", [DENSE, MIXTURE_OF_EXPERTS], ids=["dense", "mixture of experts"])
@pytest.mark.parametrize("cap", [math.inf, 48.0])
def test_littles_law_holds(law: StepLaw, cap: float) -> None:
    users = np.array([1.0, 7.0, 64.0, 300.0])
    loop = closed_loop(law, users, 800, 250, cap)
    np.testing.assert_allclose(loop.requests_per_s * (loop.ttft_s + 249.0 * loop.tpot_s), users, rtol=1e-9)
    np.testing.assert_allclose(loop.output_tokens_per_s, 250.0 * loop.requests_per_s, rtol=1e-12)


@pytest.mark.parametrize(
    ("law", "users", "prompt", "output", "cap"),
    [
        (DENSE, 8, 1000, 200, 256),
        (DENSE, 64, 1000, 200, 256),
        (MIXTURE_OF_EXPERTS, 32, 200, 600, 256),
        (DENSE, 100, 1000, 200, 64),
        (MIXTURE_OF_EXPERTS, 120, 500, 300, 80),
    ],
)
def test_loop_matches_a_plain_step_engine(law: StepLaw, users: int, prompt: int, output: int, cap: int) -> None:
    rng, requests = np.random.default_rng(3), 14 * users
    prompts = np.round(rng.uniform(0.9, 1.1, requests) * prompt).astype(int)
    outputs = np.round(rng.uniform(0.9, 1.1, requests) * output).astype(int)
    times = run_closed(Replica(step=law, max_num_seqs=cap), prompts.tolist(), outputs.tolist(), users)
    steady = slice(3 * users, requests - 2 * users)
    tpot = np.mean(((times.completion_s - times.first_token_s) / (outputs - 1))[steady])
    cycle = np.mean((times.completion_s - times.arrival_s)[steady])
    loop = closed_loop(law, users, prompt, output, cap)
    assert float(loop.tpot_s) == pytest.approx(tpot, rel=0.02)
    assert users / float(loop.requests_per_s) == pytest.approx(cycle, rel=0.04)


@pytest.mark.parametrize(
    ("users", "prompt", "output"), [(2, 19_500, 53), (8, 19_500, 53), (32, 8000, 20), (64, 4000, 100)]
)
def test_throughput_of_a_prefill_bound_loop_matches_a_plain_step_engine(users: int, prompt: int, output: int) -> None:
    rng, requests = np.random.default_rng(2), max(14 * users, 100)
    prompts = np.round(rng.uniform(0.9, 1.1, requests) * prompt).astype(int)
    outputs = np.round(rng.uniform(0.9, 1.1, requests) * output).astype(int)
    times = run_closed(Replica(step=DENSE), prompts.tolist(), outputs.tolist(), users)
    cycle = np.mean((times.completion_s - times.arrival_s)[3 * users : requests - 2 * users])
    loop = closed_loop(DENSE, users, prompt, output)
    assert users / float(loop.requests_per_s) == pytest.approx(cycle, rel=0.04)


def test_users_beyond_the_cap_only_wait() -> None:
    full, crowded = (closed_loop(DENSE, users, 1000, 200, 64) for users in (64, 128))
    assert float(crowded.tpot_s) == pytest.approx(float(full.tpot_s), rel=1e-9)
    assert float(crowded.wait_s) == pytest.approx(64.0 / float(crowded.requests_per_s), rel=1e-9)
    assert float(full.wait_s) == 0.0


def test_a_common_start_delays_the_first_token_only_in_its_share() -> None:
    none, some, all_ = (float(closed_loop(DENSE, 64, 1000, 200, burst_share=share).ttft_s) for share in (0.0, 0.1, 1.0))
    assert none < some < all_


def test_a_front_end_adds_to_the_first_token() -> None:
    plain, behind = (closed_loop(DENSE, 1, 1000, 200, front_end_s=extra) for extra in (0.0, 0.25))
    assert float(behind.ttft_s) == pytest.approx(float(plain.ttft_s) + 0.25, rel=1e-12)


def test_a_step_function_gives_the_same_as_the_law_it_computes() -> None:
    def step(batch: FloatArray, context: FloatArray, prefill: FloatArray) -> FloatArray:
        return 0.0131 + 7.1e-5 * batch + 3.06e-8 * batch * context + 7.1e-5 * prefill

    users = np.array([1.0, 16.0, 90.0])
    np.testing.assert_allclose(
        closed_loop(step, users, 9000, 200, 64).ttft_s, closed_loop(DENSE, users, 9000, 200, 64).ttft_s, rtol=1e-9
    )


@given(
    users=st.floats(1.0, 400.0),
    prompt=st.floats(1.0, 20_000.0),
    output=st.floats(2.0, 8000.0),
    cap=st.floats(1.0, 256.0),
)
def test_more_users_never_lower_the_throughput(users: float, prompt: float, output: float, cap: float) -> None:
    loop = closed_loop(DENSE, np.array([users, 1.3 * users]), prompt, output, cap)
    assert loop.output_tokens_per_s[1] >= loop.output_tokens_per_s[0] * (1.0 - 1e-9)
    assert np.all(loop.batch <= np.minimum(np.array([users, 1.3 * users]), cap) * (1.0 + 1e-12))
    assert np.all(loop.ttft_s >= loop.wait_s)
    assert np.all(loop.requests_per_s * DENSE.delta_s * prompt <= 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"users": 0}, r"users must be finite and at least 1 users \(got 0\)"),
        ({"users": math.nan}, r"users must be finite"),
        ({"prompt_mean": -5}, r"prompt_mean must be finite and above 0 tokens \(got -5\)"),
        ({"output_mean": 1}, r"output_mean must be finite and at least 2 tokens \(got 1\)"),
        ({"cap": 0.5}, r"cap must be at least 1 sequences \(got 0.5\)"),
        ({"burst_share": 1.2}, r"burst_share must be between 0 and 1 \(got 1.2\)"),
        ({"front_end_s": -1.0}, r"front_end_s must be finite and at least 0 s \(got -1.0\)"),
        ({"max_batched_tokens": 0}, r"max_batched_tokens must be finite and at least 1 tokens \(got 0\)"),
    ],
)
def test_a_bad_loop_is_named_with_its_range(arguments: dict[str, float], message: str) -> None:
    given_ = {"users": 8, "prompt_mean": 100, "output_mean": 50} | arguments
    with pytest.raises(ValueError, match=message):
        closed_loop(DENSE, **given_)


BATCHES = {
    "slots bind": (DENSE, 300, 64, None, lognormal(1000, 1.0), lognormal(300, 0.9), 0.03),
    "memory binds": (DENSE, 300, 64, 40_000.0, lognormal(400, 1.0), lognormal(600, 0.9, 8000.0), 0.03),
    "no watermark": (DENSE, 300, 64, 40_000.0, lognormal(400, 1.0), lognormal(600, 0.9, 8000.0), 0.0),
    "long outputs": (MIXTURE_OF_EXPERTS, 120, 60, 150_000.0, lognormal(150, 0.5), lognormal(2000, 0.9, 12_000.0), 0.03),
    "prefill binds": (MIXTURE_OF_EXPERTS, 400, 100, None, lognormal(2000, 1.5), lognormal(20, 0.9), 0.03),
}


@pytest.mark.parametrize("name", BATCHES)
def test_draining_matches_a_plain_step_engine_on_the_same_requests(name: str) -> None:
    law, requests, slots, kv_tokens, prompt, output, watermark = BATCHES[name]
    replica = Replica(step=law, max_num_seqs=slots, kv_tokens=kv_tokens, watermark=watermark)
    lengths = Lengths.independent(prompt, output)
    prompts, outputs = interleaved_lengths(lengths, requests)
    plain = run_closed(replica, prompts.astype(int).tolist(), outputs.astype(int).tolist())
    run = drain(replica, prompts, outputs)
    expected, completion = np.sort(plain.completion_s), np.sort(run.completion_s)
    assert completion[-1] == pytest.approx(expected[-1], rel=0.02)
    assert completion.mean() == pytest.approx(expected.mean(), rel=0.02)
    assert np.quantile(completion, 0.95) == pytest.approx(np.quantile(expected, 0.95), rel=0.02)
    assert np.mean(run.first_token_s) == pytest.approx(np.mean(plain.first_token_s), rel=0.02)
    assert run.preemptions == pytest.approx(plain.evictions, rel=0.2, abs=4.0)


@pytest.mark.parametrize("name", ["slots bind", "memory binds", "prefill binds"])
def test_batch_matches_requests_drawn_at_random(name: str) -> None:
    law, requests, slots, kv_tokens, prompt, output, watermark = BATCHES[name]
    replica = Replica(step=law, max_num_seqs=slots, kv_tokens=kv_tokens, watermark=watermark)
    rng, draws = np.random.default_rng(5), []
    for _ in range(8):
        prompts = np.maximum(np.round(rng.choice(prompt.values, requests, p=prompt.weights)), 1).astype(int)
        outputs = np.maximum(np.round(rng.choice(output.values, requests, p=output.weights)), 1).astype(int)
        draws.append(np.sort(run_closed(replica, prompts.tolist(), outputs.tolist()).completion_s))
    drawn = np.mean(draws, axis=0)
    batch = closed_batch(replica, requests, Lengths.independent(prompt, output))
    assert batch.mean_completion_s == pytest.approx(drawn.mean(), rel=0.06)
    assert batch.makespan_s == pytest.approx(drawn[-1], rel=0.12)


def test_equal_requests_run_in_waves() -> None:
    lengths = Lengths.independent(Law.constant(100), Law.constant(51))
    one, two = (closed_batch(Replica(step=FREE, max_num_seqs=10), n, lengths).makespan_s for n in (10, 20))
    assert one == pytest.approx(0.51)
    assert two == pytest.approx(1.02)


def test_an_engine_that_reserves_never_evicts() -> None:
    lengths = Lengths.independent(lognormal(400, 1.0), lognormal(600, 0.9, 8000.0))
    greedy = Replica(step=DENSE, max_num_seqs=64, kv_tokens=40_000.0, watermark=0.0)
    careful = replace(greedy, admission="no_evict")
    assert closed_batch(greedy, 200, lengths).preemptions > 0
    assert closed_batch(careful, 200, lengths).preemptions == 0


def test_every_token_is_produced_once() -> None:
    lengths = Lengths.independent(lognormal(400, 1.0), lognormal(600, 0.9, 8000.0))
    _, outputs = interleaved_lengths(lengths, 200)
    batch = closed_batch(Replica(step=DENSE, max_num_seqs=64, kv_tokens=40_000.0), 200, lengths, replicas=3)
    assert batch.output_tokens_per_s * batch.makespan_s == pytest.approx(outputs.sum())
    assert batch.completion_s.shape == batch.first_token_s.shape == (200,)
    assert np.all(batch.first_token_s <= batch.completion_s)


def test_a_request_longer_than_memory_is_a_typed_overload() -> None:
    lengths = Lengths.independent(Law.constant(5000), Law.constant(6000))
    batch = closed_batch(Replica(step=DENSE, kv_tokens=10_000.0), 5, lengths)
    assert batch.makespan_s == batch.completion_quantile_s(0.5) == math.inf
    assert batch.overload is not None and batch.overload.kind == "length"
    assert "holds 11,000 KV tokens, a replica has 10,000; lower max_tokens" in batch.overload.reason


@settings(max_examples=15, deadline=None)
@given(requests=st.integers(1, 120), replicas=st.integers(1, 4), slots=st.integers(1, 40))
def test_twice_the_replicas_are_never_slower(requests: int, replicas: int, slots: int) -> None:
    lengths = Lengths.independent(Law.constant(300), Law.constant(40))
    replica = Replica(step=DENSE, max_num_seqs=slots)
    few, many = (closed_batch(replica, requests, lengths, count) for count in (replicas, 2 * replicas))
    assert many.mean_completion_s <= few.mean_completion_s * (1.0 + 1e-9)
    assert many.makespan_s <= few.makespan_s * (1.0 + 1e-9)


def test_same_input_same_digits() -> None:
    lengths = Lengths.independent(lognormal(400, 1.0), lognormal(600, 0.9))
    first, second = (closed_batch(Replica(step=DENSE), 300, lengths, 2) for _ in range(2))
    assert first.completion_s.tobytes() == second.completion_s.tobytes()


def test_interleaved_lengths_keep_both_laws_and_their_joint_moment() -> None:
    prompt, output = lognormal(1000, 1.0), lognormal(300, 0.9)
    for factor in (0.8, 1.0, 1.4):
        lengths = replace(Lengths.independent(prompt, output), e_pn=factor * prompt.mean * output.mean)
        prompts, outputs = interleaved_lengths(lengths, 2000)
        assert prompts.mean() == pytest.approx(prompt.mean, rel=0.005)
        assert outputs.mean() == pytest.approx(output.mean, rel=0.005)
        assert np.mean(prompts * outputs) == pytest.approx(lengths.e_pn, rel=0.03)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"requests": 0}, r"requests must be a whole number from 1 to 1,000,000 \(got 0\)"),
        ({"requests": 2.5}, r"requests must be a whole number"),
        ({"replicas": 0}, r"replicas must be a whole number from 1 to 1,000,000 \(got 0\)"),
    ],
)
def test_a_bad_batch_is_named_with_its_range(arguments: dict[str, float], message: str) -> None:
    given_ = {"requests": 5, "replicas": 1} | arguments
    with pytest.raises(ValueError, match=message):
        closed_batch(Replica(step=DENSE), lengths=Lengths.independent(Law.constant(5), Law.constant(5)), **given_)


def test_a_share_outside_zero_and_one_is_refused() -> None:
    batch = closed_batch(Replica(step=FREE), 3, Lengths.independent(Law.constant(5), Law.constant(5)))
    with pytest.raises(ValueError, match=r"p must lie strictly between 0 and 1, e.g. 0.95 \(got 95\)"):
        batch.completion_quantile_s(95)


def test_a_scheduler_that_looks_rarely_adds_half_an_interval() -> None:
    law = StepLaw.linear(alpha_s=0.01, beta_s=0.0)
    often, rarely = (closed_loop(law, 8, 100, 1000, poll_steps=steps) for steps in (1.0, 31.0))
    assert float(rarely.ttft_s - often.ttft_s) == pytest.approx(15 * 0.01, rel=1e-6)
    assert float(rarely.tpot_s) == pytest.approx(float(often.tpot_s), rel=1e-6)


def test_prompts_that_arrive_in_one_interval_are_prefilled_together() -> None:
    law = StepLaw.linear(alpha_s=0.01, beta_s=0.0, delta_s=1e-5)
    few, many = (closed_loop(law, users, 1000, 500, poll_steps=31.0) for users in (2, 64))
    assert float(many.ttft_s - few.ttft_s) > 0.5 * (30 * 62 / 500) * 0.01


def test_aligned_ranks_wait_for_each_other_up_to_the_limit() -> None:
    law = StepLaw.linear(alpha_s=0.01, beta_s=0.0)
    loops = [closed_loop(law, 8, 100, 8000, ranks=8, align_steps=limit) for limit in (0.0, 1.0, 60.0)]
    waits = [float(loop.ttft_s - loops[0].ttft_s) / 0.01 for loop in loops]
    # Arrivals are 1,000 steps apart: the limit is what ends the wait.
    assert waits[1:] == pytest.approx([1.0, 60.0], rel=0.01)
    frequent = closed_loop(law, 800, 100, 800, ranks=2, align_steps=60.0)
    assert float(frequent.ttft_s - closed_loop(law, 800, 100, 800).ttft_s) == pytest.approx(0.5 * 0.01, rel=0.03)


def test_a_single_rank_has_nobody_to_wait_for() -> None:
    law = StepLaw.linear(alpha_s=0.01, beta_s=1e-5, delta_s=1e-5)
    alone, plain = closed_loop(law, 8, 100, 100, ranks=1, align_steps=60.0), closed_loop(law, 8, 100, 100)
    assert float(alone.ttft_s) == pytest.approx(float(plain.ttft_s))


def test_aligned_ranks_share_the_fixed_cost_of_a_prompt() -> None:
    def step(batch: FloatArray, context: FloatArray, prefill: FloatArray) -> FloatArray:
        return 0.01 + np.where(prefill > 0, 0.02, 0.0) + 1e-6 * prefill

    apart, aligned = (closed_loop(step, 64, 1000, 100, ranks=4, align_steps=limit) for limit in (0.0, 60.0))
    assert float(aligned.tpot_s) < 0.6 * float(apart.tpot_s)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("poll_steps", 0.5, r"poll_steps must be finite and at least 1 steps \(got 0.5\)"),
        ("ranks", 0, r"ranks must be finite and at least 1 ranks \(got 0\)"),
        ("align_steps", -1.0, r"align_steps must be finite and at least 0 steps \(got -1.0\)"),
    ],
)
def test_settings_of_the_scheduler_are_checked(name: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        closed_loop(StepLaw.linear(alpha_s=0.01, beta_s=0.0), 8, 100, 100, **{name: value})


def test_prefill_is_charged_at_the_batch_of_the_loop() -> None:
    by_batch = replace(StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=1e-5), delta_by_batch_s=np.array([9e-5, 9e-5]))
    plain = StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=9e-5)
    assert float(closed_loop(by_batch, 4, 1000, 100).ttft_s) == pytest.approx(
        float(closed_loop(plain, 4, 1000, 100).ttft_s)
    )
