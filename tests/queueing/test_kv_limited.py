"""Memory limits: what fits, what waits, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, sampled_from

from qmodel.queueing import pool, utilisation
from qmodel.queueing.replica.chain import top_rate_rps
from qmodel.queueing.replica.kv_limited import memory_limit, recomputed_share, sequences_running, share_blocked
from qmodel.queueing.replica.work import memory_use, pooled_work
from qmodel.simulation import draw_requests, simulate_pool, table_from_arrays
from qmodel.types import Law, Lengths, Stream
from qmodel.workload import lognormal_law
from tests.queueing.llm_cases import reasoning_70b, small
from tests.step_engine import simulate


def test_constant_requests_hold_prompt_and_half_the_output() -> None:
    replica, stream = small(kv_tokens=40_000.0, watermark=0.0)
    stream = replace(stream, lengths=Lengths.independent(Law.constant(100), Law.constant(200)))
    limit = memory_limit(replica, pooled_work(replica, [stream]))
    assert limit is not None
    # 0 to 100 tokens stay empty because the next prompt does not fit
    assert limit.fits == pytest.approx((40_000 - 50) / 200)
    assert limit.room == pytest.approx((40_000 - 100) / 200)
    # ages are uniform on 0..200: variance 200^2 / 12 per sequence, no skewness
    assert limit.one_variance == pytest.approx(1 / 12)
    assert limit.one_skew == pytest.approx(0.0, abs=1e-6)
    assert limit.spread == pytest.approx((199.75 / 12) ** 0.5, rel=1e-3)


def test_reserved_requests_of_one_size_leave_half_of_one_empty() -> None:
    replica, stream = small(kv_tokens=40_000.0, watermark=0.0, admission="no_evict")
    stream = replace(stream, lengths=Lengths.independent(Law.constant(100), Law.constant(200)))
    limit = memory_limit(replica, pooled_work(replica, [stream]))
    assert limit is not None
    assert limit.fits == pytest.approx(40_000 / 300 - 0.5)
    assert limit.one_variance == limit.own_variance == limit.recompute == 0.0
    blocked = share_blocked(limit, np.array([0.0, 132.0, 133.0]))  # 133 of them fit
    assert blocked[0] == 0.0 and blocked[1] < 1e-6 and blocked[2] > 0.99


def test_skewness_of_what_a_reserved_sequence_holds_is_that_of_its_two_sizes() -> None:
    replica, stream = small(kv_tokens=400_000.0, admission="no_evict")
    output = Law.from_atoms(np.array([100.0, 500.0]), np.array([5.0, 1.0]))
    lengths = Lengths.independent(Law.constant(100), output)
    # in service half of the sequences hold 200 and half 600: as many short ones, five times as often
    held = memory_use(replica, pooled_work(replica, [replace(stream, lengths=lengths)]))
    assert held.skew == pytest.approx(0.0, abs=1e-6)
    rare = Lengths.independent(Law.constant(100), Law.from_atoms(np.array([100.0, 500.0]), np.array([20.0, 1.0])))
    held = memory_use(replica, pooled_work(replica, [replace(stream, lengths=rare)]))
    assert held.skew == pytest.approx(1.5, rel=1e-6)


def test_fixed_tokens_and_slope_count_for_memory_alone() -> None:
    replica, stream = small(kv_tokens=40_000.0)
    plain, heavy = (
        pooled_work(item, [stream]) for item in (replica, replace(replica, kv_slope=0.5, kv_fixed_tokens=1000.0))
    )
    assert heavy.held == pytest.approx(0.5 * plain.held + 1000.0)
    assert heavy.context == plain.context


def test_reserving_the_output_holds_more_and_never_recomputes() -> None:
    replica, stream = small(kv_tokens=40_000.0)
    reserving = replace(replica, admission="no_evict")
    assert pooled_work(reserving, [stream]).held > pooled_work(replica, [stream]).held
    assert recomputed_share(reserving, pooled_work(reserving, [stream])) == 0.0


def test_a_larger_watermark_recomputes_less() -> None:
    replica, stream = small(kv_tokens=40_000.0)
    shares = [
        recomputed_share(replace(replica, watermark=w), pooled_work(replica, [stream])) for w in (0.0, 0.02, 0.05, 0.1)
    ]
    assert shares[0] == pytest.approx(0.92)
    assert shares == sorted(shares, reverse=True)
    assert shares[3] < 1e-4


def test_running_sequences_saturate_at_the_number_that_fits() -> None:
    replica, stream = reasoning_70b(519_500.0)
    limit = memory_limit(replica, pooled_work(replica, [stream]))
    assert limit is not None
    running = sequences_running(limit, np.array([1.0, 50.0, limit.fits, 1000.0]))
    assert running[0] == pytest.approx(1.0)
    assert running[1] == pytest.approx(50.0, rel=1e-3)
    assert limit.fits - limit.spread < running[2] < limit.fits
    assert running[3] == pytest.approx(limit.fits)
    blocked = share_blocked(limit, np.array([1.0, limit.room, 1000.0]))
    assert blocked[0] < 1e-9 and 0.4 < blocked[1] < 0.6 and blocked[2] == 1.0


POOLS = {admission: small(kv_tokens=1e6, admission=admission) for admission in ("full_prompt", "no_evict")}
WORKS = {admission: pooled_work(replica, [stream]) for admission, (replica, stream) in POOLS.items()}


@given(
    kv_tokens=floats(5e3, 1e6),
    watermark=floats(0.0, 0.2),
    admission=sampled_from(sorted(WORKS)),
    present=floats(0.0, 400.0),
    more=floats(0.0, 50.0),
)
def test_more_sequences_block_more_and_run_no_fewer(
    kv_tokens: float, watermark: float, admission: str, present: float, more: float
) -> None:
    replica = replace(POOLS[admission][0], kv_tokens=kv_tokens, watermark=watermark)
    limit = memory_limit(replica, WORKS[admission])
    assert limit is not None
    numbers = np.array([present, present + more])
    blocked, running = share_blocked(limit, numbers), sequences_running(limit, numbers)
    assert 0.0 <= blocked[0] <= blocked[1] + 1e-12 <= 1.0 + 1e-12
    assert running[0] <= running[1] + 1e-9
    assert np.all(running <= numbers + 1e-9) and np.all(running <= limit.fits + 1e-9)


@pytest.mark.parametrize("admission", ["full_prompt", "no_evict"])
def test_a_replica_that_is_always_asked_runs_and_serves_as_many_as_it_simulates(admission: str) -> None:
    replica, stream = small(kv_tokens=40_000.0, watermark=0.05, admission=admission, max_num_seqs=1024)
    lengths = Lengths.independent(lognormal_law(512, 0.5, maximum=5000), lognormal_law(256, 0.5, maximum=2500))
    stream = replace(stream, lengths=lengths)
    table = draw_requests([stream], rng=np.random.default_rng(1), count=6000)
    at_once = table_from_arrays(np.arange(6000) * 1e-6, prompt=table.prompt, output=table.output)
    log = simulate_pool(at_once, replica).log
    begin_s, end_s = np.quantile(log.admitted_s, [0.1, 0.99])
    served = np.sum((log.completion_s > begin_s) & (log.completion_s < end_s)) / (end_s - begin_s)
    stay = np.clip(np.minimum(log.completion_s, end_s) - np.maximum(log.admitted_s, begin_s), 0.0, None)
    work = pooled_work(replica, [stream])
    limit = memory_limit(replica, work)
    assert limit is not None
    assert limit.fits == pytest.approx(stay.sum() / (end_s - begin_s), rel=0.04)
    rate_rps, by_memory = top_rate_rps(replica, work, limit)
    assert by_memory
    assert rate_rps == pytest.approx(served, rel=0.04)


def test_ample_memory_changes_nothing() -> None:
    replica, stream = reasoning_70b()
    ample = replace(replica, kv_tokens=1e8)
    free, roomy = pool(replica, [stream], 7)["reason"], pool(ample, [stream], 7)["reason"]
    assert roomy.completion.quantile(0.95) == pytest.approx(free.completion.quantile(0.95), rel=1e-6)
    assert roomy.ttft.quantile(0.99) == pytest.approx(free.ttft.quantile(0.99), rel=1e-6)
    assert utilisation(ample, [stream], [7], [1.0])[0] == pytest.approx(utilisation(replica, [stream], [7], [1.0])[0])


def test_memory_makes_seven_replicas_miss_and_eight_meet() -> None:
    # simulated, three seeds: 16 % of requests wait over 2 s at 7 replicas, 0.4 % at 8; p99 TTFT 110 s and 0.14 s
    replica, stream = reasoning_70b(519_500.0)
    seven, eight, nine = (pool(replica, [stream], n) for n in (7, 8, 9))
    assert 100.0 < seven["reason"].ttft.quantile(0.99) < 180.0
    assert eight["reason"].ttft.quantile(0.99) == pytest.approx(0.1375, rel=0.15)
    assert nine["reason"].ttft.quantile(0.99) == pytest.approx(0.122, rel=0.05)
    assert eight["reason"].tpot.mean == pytest.approx(0.0270, rel=0.02)
    assert eight["reason"].completion.quantile(0.95) == pytest.approx(410.0, rel=0.02)
    assert nine["reason"].completion.quantile(0.95) == pytest.approx(368.0, rel=0.02)
    late_7, late_8 = (1.0 - float(item["reason"].ttft.share_within(np.array([2.0]))[0]) for item in (seven, eight))
    assert late_7 > 0.1
    assert 0.002 < late_8 < 0.008


def test_too_little_memory_is_an_overload_with_numbers() -> None:
    replica, stream = reasoning_70b(519_500.0)
    prediction = pool(replica, [stream], 5)
    assert not prediction.stable and not prediction
    overload = prediction.overload
    assert overload is not None and overload.kind == "kv"
    assert overload.value == 2.0 and overload.limit < 2.0
    assert "90.0 sequences" in overload.reason and "at least 7" in overload.reason
    with pytest.raises(KeyError, match="KV memory"):
        prediction["reason"]


def test_a_request_longer_than_the_pool_is_an_overload() -> None:
    replica, stream = reasoning_70b(15_000.0)
    overload = pool(replica, [stream], 100).overload
    assert overload is not None and overload.kind == "length"
    assert overload.limit == pytest.approx(0.95 * 15_000.0)
    assert overload.value > overload.limit
    assert np.isinf(utilisation(replica, [stream], [100], [1.0])[0])


def test_without_a_watermark_only_part_of_the_capacity_is_planned() -> None:
    replica, stream = reasoning_70b(519_500.0)
    kept, bare = (utilisation(item, [stream], [8], [1.0])[0] for item in (replica, replace(replica, watermark=0.0)))
    assert bare > 1.1 * kept


@pytest.mark.parametrize(("kv_tokens", "admission"), [(30_000.0, "full_prompt"), (60_000.0, "no_evict")])
def test_mean_times_match_the_step_engine_below_memory_saturation(kv_tokens: float, admission: str) -> None:
    replica, stream = small(kv_tokens=kv_tokens, watermark=0.05, admission=admission)
    load = 0.6 / float(utilisation(replica, [stream], [1], [1.0])[0])
    offered = Stream(name="chat", rate_rps=stream.rate_rps * load, lengths=stream.lengths)
    predicted = pool(replica, [offered], 1)
    simulated = simulate(replica, [offered], requests=30_000, seed=3)
    assert predicted["chat"].tpot.mean == pytest.approx(simulated.classes["chat"].tpot_s.mean(), rel=0.04)
    assert predicted["chat"].completion.mean == pytest.approx(simulated.classes["chat"].completion_s.mean(), rel=0.05)
    assert predicted.kv_fill == pytest.approx(simulated.kv_fill, rel=0.08)


def test_pauses_of_evicted_requests_are_in_their_completion() -> None:
    replica, stream = small(kv_tokens=6000.0, watermark=0.05)
    lengths = Lengths.independent(lognormal_law(50, 0.5, maximum=500), lognormal_law(256, 1.0, maximum=2048))
    stream = replace(stream, lengths=lengths)
    load = 0.85 / float(utilisation(replica, [stream], [1], [1.0])[0])
    offered = replace(stream, rate_rps=stream.rate_rps * load)
    table = draw_requests([offered], rng=np.random.default_rng(5), count=30_000)
    log = simulate_pool(table, replica).log
    assert log.preemptions.mean() > 0.05
    predicted = pool(replica, [offered], 1)["chat"]
    stay_s = predicted.completion.mean - predicted.ttft.mean
    assert stay_s == pytest.approx(float(np.mean(log.completion_after_s - log.ttft_s)), rel=0.08)
