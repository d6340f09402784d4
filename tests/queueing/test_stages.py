"""Pools in a row: textbook values, limits, order, the simulator as oracle, and clear errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import AnswerStage, DecodeStage, PrefillStage, pool, stages
from qmodel.queueing.tandem.decode_stage import solve_decode
from qmodel.queueing.tandem.delays import DelayNodes, no_delay, slices
from qmodel.queueing.tandem.kv_transfer import Feed, solve_transfer
from qmodel.queueing.tandem.prefill_pool import solve_prefill
from qmodel.queueing.tandem.stage_parts import answer_leg, decode_leg
from qmodel.simulation import Stage, draw_requests, simulate_tandem
from qmodel.types import KvLink, Law, Lengths, Replica, StepLaw, Stream
from qmodel.workload import combine_reasoning, lognormal_law

STEP = StepLaw.linear(alpha_s=0.012, beta_s=1e-4, gamma_s=3e-8, delta_s=6e-5)
ENGINE = Replica(step=STEP, max_num_seqs=128, max_batched_tokens=8192)
LINK = KvLink(bytes_per_s=50e9, bytes_per_token=131072.0, latency_s=1e-5)
CHAT = Lengths.independent(lognormal_law(1200, 1.0), lognormal_law(300, 0.8))


def stream(rate_rps: float, lengths: Lengths = CHAT, name: str = "chat") -> Stream:
    return Stream(name=name, rate_rps=rate_rps, lengths=lengths)


def prompts(mean: float, output: float = 10.0) -> Lengths:
    return Lengths.independent(Law.constant(mean), Law.constant(output))


def thinking() -> Lengths:
    output, thought = combine_reasoning(lognormal_law(1000, 0.8), lognormal_law(300, 0.6))
    return Lengths.independent(lognormal_law(400, 1.0), output, thought)


def row(
    prefill: int = 2, decode: int = 2, link: KvLink | None = LINK
) -> list[PrefillStage | DecodeStage | AnswerStage]:
    return [PrefillStage(replica=ENGINE, replicas=prefill), DecodeStage(replica=ENGINE, replicas=decode, link=link)]


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_prompts_of_one_budget_make_a_single_replica_the_queue_m_d_1(load):
    engine = Replica(step=StepLaw.linear(alpha_s=0.2, beta_s=0.0, delta_s=8e-4), max_batched_tokens=1000)
    found = solve_prefill(engine, [stream(load, prompts(1000))], 1, "random")
    assert float(found.first_s["chat"].mean_s[0]) == pytest.approx(1.0 + load / (2.0 * (1.0 - load)), rel=0.01)
    assert found.utilisation == pytest.approx(load)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_long_prompts_of_random_length_wait_as_in_m_g_1(load):
    """A budget far below every prompt: steps are served first come, first served, whoever they belong to."""
    law = Law.from_atoms(np.array([10_000.0, 40_000.0]), np.array([0.75, 0.25]))
    engine = Replica(step=StepLaw.linear(alpha_s=0.0, beta_s=0.0, delta_s=1e-4), max_batched_tokens=500)
    lengths = Lengths.independent(law, Law.constant(10))
    service_s = 1e-4 * law.mean
    found = solve_prefill(engine, [stream(load / service_s, lengths)], 1, "random").first_s["chat"]
    wait_s = load * service_s * (1.0 + law.scv) / (2.0 * (1.0 - load))
    assert float(found.mean_s[0]) == pytest.approx(service_s + wait_s, rel=0.03)


def test_a_prompt_alone_takes_its_own_steps():
    engine = Replica(step=STEP, max_batched_tokens=1000)
    found = solve_prefill(engine, [stream(1e-9, prompts(2500))], 3, "jsq").first_s["chat"]
    assert float(found.mean_s[0]) == pytest.approx(3 * 0.012 + 2500 * 6e-5, rel=1e-6)
    assert float(found.quantile(0.5)[0]) == pytest.approx(0.186, rel=0.01)


def test_one_replica_is_the_same_behind_either_router():
    one, other = (solve_prefill(ENGINE, [stream(5.0)], 1, router).first_s["chat"] for router in ("random", "jsq"))
    assert float(one.mean_s[0]) == pytest.approx(float(other.mean_s[0]))


def test_shortest_queues_wait_less_than_random_ones():
    means = [
        float(solve_prefill(ENGINE, [stream(30.0)], 4, router).first_s["chat"].mean_s[0])
        for router in ("jsq", "random")
    ]
    assert means[0] < 0.8 * means[1]


@pytest.mark.parametrize("counts", [1, 4])
def test_first_tokens_come_later_the_nearer_a_pool_is_to_saturation(counts):
    alone = solve_prefill(ENGINE, [stream(1e-3)], counts, "jsq").utilisation / 1e-3
    loads = [0.3, 0.6, 0.9, 0.96, 0.98, 0.99, 0.999, 0.99999]
    means = [
        float(solve_prefill(ENGINE, [stream(load / alone)], counts, "jsq").first_s["chat"].mean_s[0]) for load in loads
    ]
    assert means == sorted(means)
    assert means[-1] > 100.0 * means[2]


def test_prompts_beyond_the_memory_are_an_overload_of_length():
    found = solve_prefill(replace(ENGINE, kv_tokens=2000.0), [stream(1.0)], 2)
    assert found.overload is not None and found.overload.kind == "length"


def test_a_link_alone_is_the_queue_m_d_1_and_its_latency_adds():
    leg = decode_leg(stream(0.6, prompts(1000)))
    assert leg is not None
    link = KvLink(bytes_per_s=1e6, bytes_per_token=1e3, latency_s=0.25)
    found = solve_transfer(link, [leg], [Feed(rate_rps=0.6)])
    assert found.delay["chat"].mean == pytest.approx(1.25 + 0.6 / (2.0 * 0.4), rel=0.01)
    assert found.bytes_per_s == pytest.approx(0.6e6)
    assert found.utilisation == pytest.approx(0.6)


def test_sequences_of_one_batch_wait_for_each_other():
    leg = decode_leg(stream(1e-6, prompts(1000)))
    assert leg is not None
    link = KvLink(bytes_per_s=1e6, bytes_per_token=1e3)
    found = solve_transfer(link, [leg], [Feed(rate_rps=1e-6, together=2.0)])
    assert found.delay["chat"].mean == pytest.approx(2.0, rel=0.01)  # E[X (X - 1)] / (2 E[X]) before it, then itself


def test_a_link_without_room_is_an_overload():
    found = stages(row(link=replace(LINK, bytes_per_s=1e9)), [stream(8.0)])
    assert not found.stable and found.overload is not None
    assert found.overload.kind == "link"
    assert "GB/s of KV must be moved, the link carries less than 1" in found.overload.reason
    with pytest.raises(KeyError, match="GB/s of KV"):
        found["chat"]


def test_an_instant_link_and_an_idle_prefill_pool_leave_the_decode_chain():
    engine = replace(ENGINE, step=replace(STEP, delta_s=0.0), max_batched_tokens=10**9)
    alone = pool(engine, [stream(8.0)], 2, "jsq")["chat"]
    found = stages(row(prefill=500, link=None), [stream(8.0)])["chat"]
    leg = decode_leg(stream(8.0))
    assert leg is not None
    chain = solve_decode(ENGINE, [leg], 2, "jsq")
    assert chain.token_s == pytest.approx(alone.tpot.mean, rel=0.01)
    assert found.completion.mean - found.ttft.mean == pytest.approx(alone.completion.mean - alone.ttft.mean, rel=0.02)


def test_decode_alone_is_as_fast_as_its_steps():
    found = stages(row(link=None), [stream(1e-6, prompts(1000, 101))])["chat"]
    step_s = 0.012 + 1e-4 + 3e-8 * 1050
    assert found.tpot.mean == pytest.approx(step_s, rel=0.002)
    assert found.completion.mean == pytest.approx(0.012 + 0.06 + 100 * step_s, rel=0.002)


@settings(max_examples=8, deadline=None)
@given(slower=st.floats(1.05, 3.0), rate_rps=st.floats(1.0, 12.0))
def test_a_slower_link_is_never_faster(slower, rate_rps):
    link = replace(LINK, bytes_per_s=6e9)
    fast = stages(row(link=link), [stream(rate_rps)])
    slow = stages(row(link=replace(link, bytes_per_s=link.bytes_per_s / slower)), [stream(rate_rps)])
    if not slow.stable:
        return
    assert slow["chat"].ttft.mean == fast["chat"].ttft.mean
    for metric in ("tpot", "completion"):
        one, other = slow["chat"].metric(metric), fast["chat"].metric(metric)
        assert one.mean >= other.mean
        for p in (0.5, 0.95, 0.99):
            assert one.quantile(p) >= other.quantile(p) * (1.0 - 2e-3)


@pytest.mark.parametrize("which", ["prefill", "decode"])
def test_more_replicas_never_wait_longer(which):
    means = []
    for count in (2, 3, 5):
        found = stages(row(**{which: count}), [stream(12.0)])["chat"]
        means.append(found.ttft.mean if which == "prefill" else found.completion.mean)
    assert means == sorted(means, reverse=True)


def test_without_thinking_the_answer_starts_with_the_first_token():
    found = stages(row(), [stream(6.0)])["chat"]
    assert found.answer_start.mean == found.ttft.mean


def test_answers_start_after_the_thinking():
    lengths = thinking()
    two = stages(row(2, 4), [stream(2.0, lengths)])["chat"]
    three = stages([*row(2, 4), AnswerStage(replica=ENGINE, replicas=2, link=LINK)], [stream(2.0, lengths)])["chat"]
    for found in (two, three):
        assert found.ttft.mean < found.answer_start.mean < found.completion.mean
        assert found.answer_start.mean > found.ttft.mean + 0.9 * lengths.reasoning.mean * 0.012


def test_parts_of_a_request_add_up():
    lengths = thinking()
    decode, answer = decode_leg(stream(2.0, lengths), "thinking"), answer_leg(stream(2.0, lengths))
    assert decode is not None and answer is not None
    steps = decode.reached * decode.lengths.output.mean + answer.reached * answer.lengths.output.mean
    assert steps == pytest.approx(lengths.output.mean - 1.0, rel=0.01)
    brought = lengths.prompt.mean + lengths.reasoning.mean - 1.0
    assert answer.lengths.prompt.mean == pytest.approx(brought, rel=0.01)


def test_outputs_of_one_token_end_in_the_prefill_pool():
    law = Law.from_atoms(np.array([1.0, 101.0]), np.array([0.5, 0.5]))
    lengths = Lengths.independent(Law.constant(500), law)
    leg = decode_leg(stream(4.0, lengths))
    assert leg is not None and (leg.rate_rps, leg.lengths.output.mean) == (2.0, 100.0)
    found = stages(row(), [stream(4.0, lengths)])["chat"]
    assert found.completion.quantile(0.4) < 0.2 < 1.2 < found.completion.quantile(0.6)


def test_who_does_not_think_gets_the_answer_with_the_first_token():
    thought = Law.from_atoms(np.array([0.0, 1.0, 2.0, 500.0]), np.ones(4))
    output = Law.from_atoms(np.array([1.0, 2.0, 3.0, 700.0]), np.ones(4))
    lengths = Lengths.independent(Law.constant(400), output, thought)
    line = [*row(1, 1, None), AnswerStage(replica=ENGINE)]
    found = stages(line, [stream(1e-6, lengths)])["chat"]
    first_s, step_s = 0.012 + 0.024, 0.012 + 1e-4 + 3e-8 * 400
    assert found.answer_start.quantile(0.2) == pytest.approx(first_s, rel=0.02)
    assert found.answer_start.quantile(0.4) == pytest.approx(first_s + step_s, rel=0.02)
    assert found.answer_start.quantile(0.65) == pytest.approx(first_s + 2.0 * step_s, rel=0.02)
    assert found.answer_start.quantile(0.9) == pytest.approx(first_s + 500.0 * step_s, rel=0.02)


def test_delays_add_mean_and_variance():
    one = DelayNodes(weight=np.array([0.3, 0.7]), mean_s=np.array([1.0, 2.0]), variance=np.array([0.1, 0.2]))
    total = one.plus(one).plus(no_delay(0.5))
    second = float(total.weight @ (total.variance + total.mean_s**2))
    alone = float(one.weight @ (one.variance + one.mean_s**2)) - one.mean**2
    assert total.mean == pytest.approx(2.0 * one.mean + 0.5)
    assert second - total.mean**2 == pytest.approx(2.0 * alone)


def test_gathering_nodes_keeps_mean_and_variance():
    rng = np.random.default_rng(1)
    mean, variance = rng.exponential(1.0, 5000), rng.random(5000)
    found = slices(np.full(5000, 1.0), mean, variance)
    assert found.weight.size < 60
    assert found.mean == pytest.approx(mean.mean())
    assert float(found.weight @ (found.variance + found.mean_s**2)) == pytest.approx((variance + mean**2).mean())


def test_the_same_input_gives_the_same_digits():
    first, second = (stages(row(), [stream(7.0)])["chat"] for _ in range(2))
    assert first.completion.quantile(0.95) == second.completion.quantile(0.95)
    assert first.ttft.mean == second.ttft.mean


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: stages([], [stream(1.0)]), "row must be a PrefillStage and a DecodeStage"),
        (lambda: stages(row()[::-1], [stream(1.0)]), "got DecodeStage, PrefillStage"),
        (lambda: stages(row(prefill=0), [stream(1.0)]), "PrefillStage.replicas must lie in 1 to 10,000"),
        (lambda: stages(row(decode=10**7), [stream(1.0)]), "DecodeStage.replicas must lie in 1 to 10,000"),
        (lambda: stages(row(), []), "classes must have at least one stream"),
        (lambda: stages(row(), [stream(1.0), stream(2.0)]), "class names must differ"),
        (lambda: stages(row(), [stream(float("nan"))]), "rate_rps of class 'chat' must be positive and finite"),
        (lambda: stages(row(), [stream(-1.0)]), "rate_rps of class 'chat' must be positive and finite"),
        (lambda: stages(row(), [stream(1.0, prompts(100, 1))]), "has outputs of one token only"),
        (lambda: stages([*row(), AnswerStage(replica=ENGINE)], [stream(1.0)]), "has no thinking tokens"),
        (lambda: KvLink(bytes_per_s=0.0, bytes_per_token=1.0), "bytes_per_s must be greater than 0"),
        (lambda: KvLink(bytes_per_s=1.0, bytes_per_token=1.0, lanes=0), "lanes must be at least 1"),
    ],
)
def test_bad_input_is_told(change, message):
    with pytest.raises(ValueError, match=message):
        change()


def test_lanes_share_the_sequences_first_come_first_served():
    link = KvLink(bytes_per_s=1e3, bytes_per_token=1.0, lanes=2)
    across = link.arrivals_s(np.array([0.0, 0.1, 0.2, 5.0]), np.array([1000, 3000, 1000, 1000]))
    assert across.tolist() == pytest.approx([1.0, 3.1, 2.0, 6.0])


ORACLE = [
    ("chat", CHAT, 12.0, (2, 2), LINK),
    ("slow link", CHAT, 12.0, (2, 2), replace(LINK, bytes_per_s=3e9)),
    ("documents", Lengths.independent(lognormal_law(6000, 0.6), lognormal_law(60, 0.8)), 5.0, (3, 1), LINK),
    ("thinking", thinking(), 3.0, (1, 3, 1), LINK),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lengths", "rate_rps", "counts", "link"), ORACLE)
def test_predictions_agree_with_simulated_rows(name, lengths, rate_rps, counts, link):
    line = [*row(counts[0], counts[1], link)]
    line += [AnswerStage(replica=ENGINE, replicas=count, link=link) for count in counts[2:]]
    found = stages(line, [stream(rate_rps, lengths)])["chat"]
    rng = np.random.default_rng(7)
    table = draw_requests([stream(rate_rps, lengths)], rng=rng, count=12_000 if len(counts) == 2 else 5_000)
    parts = ("prompt", "output") if len(counts) == 2 else ("prompt", "reasoning", "output")
    simulated = simulate_tandem(
        table,
        [
            Stage(serves=part, replica=ENGINE, replicas=item.replicas, router="jsq", link=getattr(item, "link", None))
            for part, item in zip(parts, line, strict=True)
        ],
        rng=rng,
    ).log
    kept = slice(len(table) // 8, -len(table) // 8)
    for metric, near in (("ttft", 0.15), ("tpot", 0.06), ("completion", 0.06)):
        values = simulated.metric(metric)[kept]
        assert found.metric(metric).mean == pytest.approx(np.nanmean(values), rel=near)
        assert found.metric(metric).quantile(0.95) == pytest.approx(np.nanquantile(values, 0.95), rel=1.5 * near)
