"""Replicas that come, go and fail, and pools in a row."""

from __future__ import annotations

import numpy as np
import pytest

from qmodel.simulation import (
    Availability,
    EnginePolicy,
    KvLink,
    Outage,
    RequestTable,
    Stage,
    draw_outages,
    simulate_pool,
    simulate_tandem,
    table_from_arrays,
)
from qmodel.types import FloatArray, IntArray, Replica, StepLaw
from tests.plain_policies import plain_pool

STEP = StepLaw.linear(alpha_s=0.01, beta_s=2e-4, gamma_s=3e-7, delta_s=5e-5)
FLAT = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0), max_num_seqs=8)


def table_of(seed: int, requests: int = 80) -> RequestTable:
    rng = np.random.default_rng(seed)
    output = rng.integers(1, 60, requests)
    return table_from_arrays(
        np.cumsum(rng.exponential(0.03, requests)),
        prompt=rng.integers(1, 90, requests),
        output=output,
        reasoning=(rng.random(requests) * output * (rng.random(requests) < 0.7)).astype(int),
        cached_prefix=0,
    )


def test_a_lost_sequence_starts_anew_elsewhere() -> None:
    run = simulate_pool(
        table_from_arrays([0.0], prompt=5, output=101),
        FLAT,
        replicas=2,
        router="round_robin",
        availability=Availability(outages=(Outage(replica=0, down_s=0.505, up_s=9.0),)),
    )
    assert run.log.completion_s[0] == pytest.approx(0.505 + 1.01)
    assert run.log.first_token_s[0] == pytest.approx(0.01)
    assert run.log.recomputed_tokens[0] == 5 + 50 - 1
    assert run.log.replica[0] == 1


def test_a_checkpoint_keeps_the_tokens_before_it() -> None:
    run = simulate_pool(
        table_from_arrays([0.0], prompt=5, output=101),
        FLAT,
        replicas=2,
        router="round_robin",
        availability=Availability(outages=(Outage(replica=0, down_s=0.505, up_s=9.0),), checkpoint_s=0.2),
    )
    assert run.log.completion_s[0] == pytest.approx(0.505 + 0.61)  # 40 tokens were saved at 0.4 s


def test_notice_sends_the_queue_elsewhere_and_lets_running_sequences_finish() -> None:
    outage = Outage(replica=0, down_s=1.0, up_s=9.0)
    one_slot = Replica(step=FLAT.step, max_num_seqs=1)
    run = simulate_pool(
        table_from_arrays([0.0, 0.1, 0.2], prompt=5, output=[90, 10, 90]),
        one_slot,
        replicas=2,
        router="round_robin",
        availability=Availability(outages=(outage,), notice_s=0.7),
    )
    assert run.log.completion_s.round(6).tolist() == [0.9, 0.2, 1.2]
    assert run.log.preemptions.sum() == run.log.recomputed_tokens.sum() == 0


def test_requests_wait_for_the_first_replica_that_is_ready() -> None:
    run = simulate_pool(
        table_from_arrays([1.0, 2.0], prompt=5, output=1),
        FLAT,
        replicas=1,
        availability=Availability(counts=((0.5, 0), (3.0, 1)), startup_s=4.0),
    )
    assert run.log.admitted_s.tolist() == [7.0, 7.0]


def test_a_pool_that_shrinks_finishes_what_it_has() -> None:
    run = simulate_pool(
        table_from_arrays([0.0, 0.0, 1.0], prompt=5, output=[100, 200, 10]),
        FLAT,
        replicas=2,
        router="round_robin",
        availability=Availability(counts=((0.5, 1),)),
    )
    assert run.log.completion_s.round(6).tolist() == [1.0, 2.0, 1.1]
    assert run.log.replica.tolist() == [0, 1, 0]


def test_events_after_the_last_request_change_nothing() -> None:
    table = table_from_arrays([0.0], prompt=5, output=10)
    late = Availability(outages=(Outage(replica=0, down_s=1e6, up_s=2e6),), counts=((3e6, 2),))
    plain, late_run = (simulate_pool(table, FLAT, availability=item).track for item in (None, late))
    assert plain.to_s == late_run.to_s == pytest.approx(0.1)
    assert plain.busy_share == pytest.approx(2 * late_run.busy_share)  # of one replica, and of the two it ever had


def test_the_share_of_time_that_replicas_are_away_is_repair_over_cycle() -> None:
    outages = draw_outages(50, mean_up_s=80.0, repair_s=20.0, horizon_s=20_000.0, rng=np.random.default_rng(1))
    away_s = sum(outage.up_s - outage.down_s for outage in outages)
    assert away_s / (50 * 20_000.0) == pytest.approx(0.2, rel=0.03)


def test_overlapping_outages_are_refused() -> None:
    with pytest.raises(ValueError, match=r"outages of replica 0 overlap at 2\.0 s"):
        Availability(outages=(Outage(replica=0, down_s=1.0, up_s=3.0), Outage(replica=0, down_s=2.0, up_s=4.0)))


def test_outages_of_replicas_that_never_were_are_refused() -> None:
    nowhere = Availability(outages=(Outage(replica=1, down_s=1.0, up_s=3.0),))
    with pytest.raises(ValueError, match=r"outages must name replicas below 1 \(got 1\)"):
        simulate_pool(table_from_arrays([0.0], prompt=5, output=50), FLAT, availability=nowhere)


def walk_link(ready_s: FloatArray, tokens: IntArray, link: KvLink) -> FloatArray:
    free_s, across = 0.0, []
    for ready, count in zip(ready_s.tolist(), tokens.tolist(), strict=True):
        free_s = max(free_s, ready) + count * link.bytes_per_token / link.bytes_per_s
        across.append(free_s + link.latency_s)
    return np.array(across)


@pytest.mark.parametrize("seed", range(10))
def test_prefill_link_and_decode_pools_follow_a_step_by_step_walk(seed: int) -> None:
    table = table_of(seed)
    link = KvLink(bytes_per_s=(1e9, 2e8)[seed % 2], bytes_per_token=1e5, latency_s=0.002)
    prefill = Replica(step=STEP, max_num_seqs=8, max_batched_tokens=64)
    decode = Replica(step=STEP, max_num_seqs=5, max_batched_tokens=64, kv_tokens=410.37)
    swap = EnginePolicy(preemption="swap", swap_in_s_per_token=1e-5, block_tokens=4)
    run = simulate_tandem(
        table,
        [
            Stage(serves="prompt", replica=prefill, replicas=2, router="jsq"),
            Stage(serves="output", replica=decode, replicas=2, link=link, policy=swap, router="least_kv"),
        ],
        rng=np.random.default_rng(seed),
    )
    rng = np.random.default_rng(seed)
    first = plain_pool(
        table_from_arrays(table.arrival_s, prompt=table.prompt, output=1), prefill, replicas=2, router="jsq", rng=rng
    )
    ready_s = np.array([item.done_s for item in first.sequences])
    order = np.argsort(ready_s, kind="stable")
    order = order[table.output[order] > 1]
    across_s = walk_link(ready_s[order], table.prompt[order], link)
    second = plain_pool(
        table_from_arrays(
            across_s,
            prompt=table.prompt[order],
            output=table.output[order],
            reasoning=table.reasoning[order],
            generated=1,
        ),
        decode,
        replicas=2,
        policy=swap,
        router="least_kv",
        rng=rng,
    )
    done_s = ready_s.copy()
    done_s[order] = [item.done_s for item in second.sequences]
    np.testing.assert_allclose(run.log.first_token_s, ready_s, rtol=1e-9)
    np.testing.assert_allclose(run.log.completion_s, done_s, rtol=1e-9)
    answer_s = np.where(table.reasoning == 0, ready_s, np.nan)
    thinking = table.reasoning[order] > 0
    answer_s[order[thinking]] = np.array([item.answer_s for item in second.sequences])[thinking]
    np.testing.assert_allclose(run.log.answer_start_s, answer_s, rtol=1e-9)
    assert run.log.done.all()
    assert run.links[0] is None and run.links[1] is not None
    assert run.links[1].bytes_moved == 1e5 * table.prompt[order].sum()


def test_thinking_and_answer_in_two_pools_cost_one_more_transfer_and_nothing_else() -> None:
    table = table_from_arrays(np.arange(20) * 5.0, prompt=10, output=30, reasoning=np.arange(20))
    link = KvLink(bytes_per_s=1e9, bytes_per_token=0.0, latency_s=0.25)
    alone = simulate_pool(table, FLAT).log
    run = simulate_tandem(
        table,
        [
            Stage(serves="prompt", replica=FLAT),
            Stage(serves="reasoning", replica=FLAT, link=link),
            Stage(serves="output", replica=FLAT, link=link),
        ],
    )
    hops = np.where(table.reasoning > 1, 2, 1)  # who thinks one token at most has thought after the first stage
    np.testing.assert_allclose(run.log.completion_s, alone.completion_s + 0.25 * hops, rtol=1e-12)
    hops = np.where(table.reasoning == 0, 0, hops)
    np.testing.assert_allclose(run.log.answer_start_s, alone.answer_start_s + 0.25 * hops, rtol=1e-12)
    np.testing.assert_allclose(run.log.first_token_s, alone.first_token_s, rtol=1e-12)


def test_who_loses_patience_in_one_pool_never_reaches_the_next() -> None:
    one_slot = Replica(step=FLAT.step, max_num_seqs=1)
    run = simulate_tandem(
        table_from_arrays([0.0, 0.01], prompt=5, output=50),
        [
            Stage(serves="prompt", replica=one_slot, policy=EnginePolicy(patience_s=1e-4)),
            Stage(serves="output", replica=FLAT),
        ],
    )
    late = simulate_tandem(
        table_from_arrays([0.0, 0.001], prompt=5, output=50),
        [
            Stage(serves="prompt", replica=one_slot, policy=EnginePolicy(patience_s=1e-4)),
            Stage(serves="output", replica=FLAT),
        ],
    )
    assert run.log.done.all()
    assert [late.log.outcomes[outcome] for outcome in late.log.outcome] == ["done", "reneged"]
    assert len(late.stages[1].log) == 1


def test_stages_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"stages must serve some of prompt, reasoning, output in this order"):
        simulate_tandem(
            table_from_arrays([0.0], prompt=5, output=50),
            [Stage(serves="output", replica=FLAT), Stage(serves="prompt", replica=FLAT)],
        )
