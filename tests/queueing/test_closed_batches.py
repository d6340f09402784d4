"""Closed batches over random draws of the lengths, and beside online classes."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import Replica, StepLaw, batch_with_online, closed_batch
from qmodel.queueing.populations.finish_times import pooled_law
from qmodel.queueing.populations.interleaving import dealt_lengths
from qmodel.simulation import EnginePolicy, simulate_pool, table_from_arrays
from qmodel.types import FloatArray, Law, Lengths, Stream
from qmodel.workload import lognormal_law

DENSE = StepLaw.linear(alpha_s=0.0131, beta_s=7.1e-5, gamma_s=3.06e-8, delta_s=7.1e-5)
FREE = StepLaw.linear(alpha_s=0.01, beta_s=0.0)
CHAT = Lengths.independent(lognormal_law(1000, 1.0), lognormal_law(300, 0.9))
OFFLINE = Lengths.independent(lognormal_law(500, 0.5), lognormal_law(1000, 0.8))


def drawn(law: Law, count: int, rng: np.random.Generator) -> FloatArray:
    return np.maximum(np.floor(rng.choice(law.values, count, p=law.weights) + rng.random(count)), 1.0)


def test_a_wave_of_free_steps_ends_with_the_longest_of_n_draws() -> None:
    values, weights = np.array([100.0, 200.0, 400.0]), np.array([0.6, 0.3, 0.1])
    lengths = Lengths.independent(Law.constant(1), Law.from_atoms(values, weights))
    batch = closed_batch(Replica(step=FREE, max_num_seqs=64), 12, lengths, replicas=3)
    assert batch.p_done_by(2.2) == pytest.approx(0.9**12, rel=1e-3)
    assert batch.p_done_by(1.2) == pytest.approx(0.6**12, rel=1e-3)
    mean = 0.01 * (100 * 0.6**12 + 200 * (0.9**12 - 0.6**12) + 400 * (1 - 0.9**12))
    assert batch.makespan_s == pytest.approx(mean, rel=3e-3)
    assert batch.share_done_by(1.5) == pytest.approx(0.6, abs=0.03)
    assert batch.completion_quantile_s(0.8) == pytest.approx(2.0, rel=0.01)


def test_requests_without_spread_leave_no_doubt() -> None:
    lengths = Lengths.independent(Law.constant(100), Law.constant(51))
    batch = closed_batch(Replica(step=FREE, max_num_seqs=10), 20, lengths)
    assert batch.makespan_sd_s < 0.01 * batch.makespan_s
    assert batch.makespan_quantile_s(0.99) == pytest.approx(1.02, rel=0.02)
    assert (batch.p_done_by(0.9), batch.p_done_by(1.2)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("requests", "replicas", "slots", "kv_tokens"), [(60, 1, 128, None), (75, 5, 16, None), (60, 2, 64, 20_000.0)]
)
def test_the_spread_is_that_of_simulated_draws(
    requests: int, replicas: int, slots: int, kv_tokens: float | None
) -> None:
    replica = Replica(step=DENSE, max_num_seqs=slots, kv_tokens=kv_tokens, watermark=0.05)
    lengths = Lengths.independent(lognormal_law(300, 0.8), lognormal_law(200, 0.9, maximum=4000))
    rng, ends, completions = np.random.default_rng(11), [], []
    for _ in range(60):
        table = table_from_arrays(
            np.zeros(requests),
            prompt=drawn(lengths.prompt, requests, rng),
            output=drawn(lengths.output, requests, rng),
        )
        log = simulate_pool(table, replica, replicas=replicas, router="round_robin").log
        ends.append(log.completion_s.max())
        completions.append(log.completion_s)
    batch = closed_batch(replica, requests, lengths, replicas)
    error = np.std(ends) / math.sqrt(len(ends))
    assert batch.makespan_s == pytest.approx(np.mean(ends), abs=3.0 * error)
    assert batch.makespan_sd_s == pytest.approx(np.std(ends), rel=0.35)
    assert batch.p_done_by(float(np.quantile(ends, 0.8))) == pytest.approx(0.8, abs=0.15)
    assert batch.mean_completion_s == pytest.approx(np.mean(completions), rel=0.03)
    assert batch.completion_quantile_s(0.95) == pytest.approx(np.quantile(completions, 0.95), rel=0.06)


def test_hands_are_together_the_law_and_each_like_a_draw() -> None:
    prompts, outputs = dealt_lengths(CHAT, 50, 40)
    assert outputs.shape == prompts.shape == (40, 50)
    assert outputs.mean() == pytest.approx(CHAT.output.mean, rel=2e-3)
    assert prompts.mean() == pytest.approx(CHAT.prompt.mean, rel=2e-3)
    sums = outputs.sum(axis=1)
    assert sums.std() == pytest.approx(math.sqrt(50 * CHAT.output.scv) * CHAT.output.mean, rel=0.3)
    assert abs(np.corrcoef(prompts.ravel(), outputs.ravel())[0, 1]) < 0.1


@settings(max_examples=10, deadline=None)
@given(requests=st.integers(1, 60), replicas=st.integers(1, 5), slots=st.integers(2, 40))
def test_certainty_grows_with_time_and_replicas(requests: int, replicas: int, slots: int) -> None:
    lengths = Lengths.independent(Law.constant(200), lognormal_law(60, 0.8, maximum=500))
    few, many = (
        closed_batch(Replica(step=DENSE, max_num_seqs=slots), requests, lengths, count)
        for count in (replicas, 3 * replicas)
    )
    times = few.makespan_s * np.array([0.5, 0.8, 1.0, 1.3, 2.0])
    done = [few.p_done_by(time) for time in times.tolist()]
    share = [few.share_done_by(time) for time in times.tolist()]
    assert done == sorted(done) and share == sorted(share) and done[0] >= 0.0 and share[-1] <= 1.0
    assert many.makespan_s <= few.makespan_s * 1.05
    assert few.makespan_quantile_s(0.5) <= few.makespan_quantile_s(0.9) <= few.makespan_quantile_s(0.99)


def test_the_course_starts_full_and_ends_empty() -> None:
    replica = Replica(step=DENSE, max_num_seqs=16, kv_tokens=40_000.0)
    course = closed_batch(replica, 100, CHAT, replicas=2).course
    assert course is not None and course.kv_fill is not None
    assert course.time_s[0] == 0.0 and course.running[2] == pytest.approx(32.0, abs=8.0)
    assert course.running[-1] < 1.0 and course.running.max() <= 32.0
    assert course.kv_fill.min() >= 0.0 and 0.2 < course.kv_fill.max() <= 1.0


def test_a_batch_is_plain_data() -> None:
    found = closed_batch(Replica(step=DENSE), 20, CHAT).to_dict(levels=(0.5, 0.999))
    assert json.loads(json.dumps(found)) == found
    assert set(found["makespan"]) == {"mean_s", "sd_s", "p50_s", "p99.9_s"}  # type: ignore[call-overload]
    lengths = Lengths.independent(Law.constant(5000), Law.constant(6000))
    refused = closed_batch(Replica(step=DENSE, kv_tokens=10_000.0), 5, lengths)
    assert refused.p_done_by(1e9) == refused.share_done_by(1e9) == 0.0
    assert refused.to_dict()["overload"]["kind"] == "length"  # type: ignore[index]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_a_deadline_must_be_positive(bad: float) -> None:
    batch = closed_batch(Replica(step=FREE), 3, Lengths.independent(Law.constant(5), Law.constant(5)))
    with pytest.raises(ValueError, match=r"deadline_s must be greater than 0 s"):
        batch.p_done_by(bad)


def test_pooled_times_weigh_as_told() -> None:
    law = pooled_law([np.array([1.0]), np.array([2.0, 3.0])], [2.0, 1.0])
    assert law.p_by(1.0) == pytest.approx(0.25) and law.p_by(10.0) == 1.0 and law.p_by(0.5) == 0.0


def online(rate_rps: float) -> Stream:
    return Stream(name="chat", rate_rps=rate_rps, lengths=CHAT)


def test_more_online_requests_delay_the_batch_and_each_other() -> None:
    replica = Replica(step=DENSE, max_num_seqs=32)
    found = [batch_with_online(replica, 120, OFFLINE, [online(rate)]) for rate in (1e-6, 1.0, 2.0)]
    ends = [item.batch.makespan_s for item in found if item.batch is not None]
    assert len(ends) == 3 and ends[0] < ends[1] < ends[2]
    assert found[0].alone is not None and ends[0] == pytest.approx(found[0].alone.makespan_s, rel=0.02)
    for item in found:
        assert item.during["chat"].ttft.mean > item.without["chat"].ttft.mean
        assert item.during["chat"].tpot.mean > item.without["chat"].tpot.mean
        assert item.longest_wait_s == 0.0


def test_first_come_first_served_keeps_online_requests_waiting() -> None:
    replica = Replica(step=DENSE, max_num_seqs=32)
    found = batch_with_online(replica, 200, OFFLINE, [online(1.0)], order="fcfs")
    assert found.batch is not None and 0.0 < found.longest_wait_s < found.batch.makespan_s
    assert found.affected_s >= found.longest_wait_s / (1.0 - found.without.utilisation)
    first = batch_with_online(replica, 200, OFFLINE, [online(1.0)])
    assert first.batch is not None and found.batch.mean_completion_s < first.batch.mean_completion_s
    assert json.loads(json.dumps(found.to_dict()))["order"] == "fcfs"


def test_no_room_for_a_batch_is_a_typed_overload() -> None:
    replica = Replica(step=DENSE, max_num_seqs=32)
    crowded = batch_with_online(replica, 10, OFFLINE, [online(50.0)])
    assert crowded.batch is None and crowded.overload is not None and crowded.overload.kind == "steps"
    with pytest.raises(ValueError, match=r"order must be 'priority' or 'fcfs' \(got 'lifo'\)"):
        batch_with_online(replica, 10, OFFLINE, [online(0.1)], order="lifo")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_batch_beside_online_requests_matches_simulation() -> None:
    replica, rate, batch_size = Replica(step=DENSE, max_num_seqs=48), 1.8, 200
    found = batch_with_online(replica, batch_size, OFFLINE, [online(rate)])
    assert found.batch is not None
    ends, first = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        others = rng.poisson(rate * 400.0)
        table = table_from_arrays(
            np.concatenate([np.full(batch_size, 60.0), rng.random(others) * 400.0]),
            prompt=np.concatenate([drawn(OFFLINE.prompt, batch_size, rng), drawn(CHAT.prompt, others, rng)]),
            output=np.concatenate([drawn(OFFLINE.output, batch_size, rng), drawn(CHAT.output, others, rng)]),
            priority=np.concatenate([np.zeros(batch_size), np.ones(others)]),
        )
        log = simulate_pool(table, replica, policy=EnginePolicy(order="priority")).log
        batch = log.table.priority == 0
        ends.append(log.completion_s[batch].max() - 60.0)
        during = ~batch & (log.table.arrival_s > 70.0) & (log.table.arrival_s < log.admitted_s[batch].max())
        first.append(log.ttft_s[during])
    assert found.batch.makespan_s == pytest.approx(np.mean(ends), rel=0.1)
    assert found.during["chat"].ttft.mean == pytest.approx(np.mean(np.concatenate(first)), rel=0.3)


def test_memory_left_to_a_batch_shrinks_with_online_requests() -> None:
    replica = Replica(step=DENSE, max_num_seqs=128, kv_tokens=60_000.0, watermark=0.05)
    lengths = replace(OFFLINE, output=lognormal_law(1000, 0.8, maximum=8000))
    lengths = Lengths.independent(lengths.prompt, lengths.output)
    calm, busy = (batch_with_online(replica, 60, lengths, [online(rate)]) for rate in (0.1, 0.8))
    assert calm.batch is not None and busy.batch is not None
    assert calm.batch.makespan_s < busy.batch.makespan_s
