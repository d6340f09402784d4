"""The step simulator itself: against closed forms, against a token-by-token rewrite, and on what a step must do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qmodel.types import Admission, Law, Lengths, Replica, StepLaw, Stream
from qmodel.workload import normal_law
from tests.step_engine import Request, replay, simulate

STEP = StepLaw.linear(alpha_s=0.01, beta_s=2e-4, gamma_s=3e-7, delta_s=5e-5)


def requests_of(rows: list[tuple[float, int, int, int]]) -> list[Request]:
    return [
        Request(cls="all", arrival_s=arrival, prompt=prompt, output=output, reasoning=reasoning)
        for arrival, prompt, output, reasoning in rows
    ]


def stream(rate_rps: float, prompt: Law, output: Law, reasoning: Law | None = None) -> Stream:
    return Stream(name="all", rate_rps=rate_rps, lengths=Lengths.independent(prompt, output, reasoning))


def geometric(mean: float) -> Law:
    values = np.arange(1.0, 40 * mean)
    return Law.from_atoms(values, (1 / mean) * (1 - 1 / mean) ** (values - 1))


def token_by_token(replica: Replica, rows: list[tuple[float, int, int, int]]) -> list[tuple[float, float, float]]:
    """First token, first answer token and end of every request, by touching every sequence in every step."""
    waiting: list[dict[str, float]] = []
    running: list[dict[str, float]] = []
    todo = [
        {"arrival": a, "prompt": p, "output": n, "reasoning": r, "generated": 0, "todo": p, "kv": 0, "pool": 0.0}
        for a, p, n, r in rows
    ]
    everyone = list(todo)
    now = 0.0

    def pool(item: dict[str, float]) -> float:
        context = item["prompt"] + item["output"] if replica.admission == "no_evict" else item["kv"]
        return replica.kv_slope * context + replica.kv_fixed_tokens

    while todo or waiting or running:
        if not waiting and not running:
            now = max(now, todo[0]["arrival"])
        while todo and todo[0]["arrival"] <= now:
            waiting.append(todo.pop(0))
        room = math.inf if replica.kv_tokens is None else replica.kv_tokens
        evicted = False
        while True:
            decodes = [item for item in running if item["todo"] == 0]
            grow = 0.0 if replica.admission == "no_evict" else replica.kv_slope * len(decodes)
            if sum(pool(item) for item in running) + grow <= room:
                break
            victim = running.pop()
            victim["todo"], victim["kv"] = victim["prompt"] + victim["generated"], 0
            waiting.insert(0, victim)
            evicted = True
        for item in decodes:
            item["kv"] += 1
        budget = replica.max_batched_tokens - len(decodes)
        chunks: list[tuple[dict[str, float], float]] = []
        for item in running:
            if item["todo"] > 0:
                chunk = min(budget, item["todo"])
                chunks.append((item, chunk))
                budget -= chunk
        while waiting and budget > 0 and len(running) < replica.max_num_seqs and not evicted:
            item = waiting[0]
            item["kv"] = item["prompt"] + item["generated"]
            if running and sum(pool(other) for other in running) + pool(item) > (1 - replica.watermark) * room:
                break
            running.append(waiting.pop(0))
            chunk = min(budget, item["todo"])
            chunks.append((item, chunk))
            budget -= chunk
        context = sum(item["kv"] for item in decodes)
        prefill = sum(chunk for _, chunk in chunks)
        now += float(replica.step.tau_s(float(len(decodes)), 0.0))
        now += replica.step.gamma_s * context + replica.step.delta_s * prefill
        for item, chunk in chunks:
            item["todo"] -= chunk
        for item in [*decodes, *(item for item, _ in chunks if item["todo"] == 0)]:
            item["generated"] += 1
            for name, token in (("first", 1), ("answer", item["reasoning"] + 1), ("done", item["output"])):
                if item["generated"] == token:
                    item[name] = now
            if item["generated"] == item["output"]:
                running.remove(item)
    return [(item["first"], item["answer"], item["done"]) for item in everyone]


@pytest.mark.parametrize("admission", ["full_prompt", "no_evict"])
@pytest.mark.parametrize("kv_tokens", [None, 420.0])
@pytest.mark.parametrize("seed", range(6))
def test_counters_and_a_token_by_token_walk_agree(admission: Admission, kv_tokens: float | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(0.05, 60))
    rows = [
        (float(arrival), int(prompt), int(output), int(rng.integers(0, output)))
        for arrival, prompt, output in zip(arrivals, rng.integers(1, 90, 60), rng.integers(1, 80, 60), strict=True)
    ]
    replica = Replica(
        step=STEP,
        max_num_seqs=7,
        kv_tokens=kv_tokens,
        max_batched_tokens=40,
        watermark=0.1,
        kv_slope=0.9,
        kv_fixed_tokens=2.0,
        admission=admission,
    )
    requests = requests_of(rows)
    result = replay(replica, iter(requests))
    walked = np.array(token_by_token(replica, rows))
    counted = np.array([(item.first_token_s, item.answer_s, item.done_s) for item in requests])
    np.testing.assert_allclose(counted, walked, rtol=1e-9)
    if kv_tokens is not None and admission == "full_prompt":
        assert result.preemptions > 0
    if admission == "no_evict":
        assert result.preemptions == 0


def test_a_lone_request_takes_one_prefill_step_per_chunk_and_one_step_per_later_token() -> None:
    replica = Replica(step=STEP, max_batched_tokens=300)
    (request,) = requests_of([(5.0, 700, 4, 2)])
    result = replay(replica, iter([request]))
    prefill_s = 3 * 0.01 + 700 * 5e-5
    decode_s = [0.01 + 2e-4 + 3e-7 * context for context in (701, 702, 703)]
    samples = result.classes["all"]
    assert samples.ttft_s[0] == pytest.approx(prefill_s)
    assert samples.answer_start_s[0] == pytest.approx(prefill_s + sum(decode_s[:2]))
    assert samples.completion_s[0] == pytest.approx(prefill_s + sum(decode_s))
    assert samples.tpot_s[0] == pytest.approx(sum(decode_s) / 3)
    assert result.steps == 6


def test_one_slot_and_constant_lengths_wait_as_in_m_d_1() -> None:
    step = StepLaw.linear(alpha_s=0.01, beta_s=0.0)
    replica = Replica(step=step, max_num_seqs=1)
    service_s, rho = 0.2, 0.7
    result = simulate(
        replica, [stream(rho / service_s, Law.constant(5), Law.constant(20))], requests=120_000, seed=3, warmup=0.1
    )
    wait_s = result.all("wait_s")
    assert wait_s.mean() == pytest.approx(rho * service_s / (2 * (1 - rho)), rel=0.05)
    assert result.mean_batch == pytest.approx(rho, rel=0.02)
    assert result.share_waiting == pytest.approx(rho, abs=0.05)  # less those that arrive during a last step


def test_one_slot_and_geometric_lengths_wait_as_in_m_m_1() -> None:
    step = StepLaw.linear(alpha_s=0.01, beta_s=0.0)
    law = geometric(50.0)
    service_s, rho = 0.5, 0.6
    result = simulate(
        Replica(step=step, max_num_seqs=1), [stream(rho / service_s, Law.constant(5), law)], requests=120_000, seed=4
    )
    wait_s = result.all("wait_s")
    assert wait_s.mean() == pytest.approx(rho * service_s / (1 - rho), rel=0.06)
    assert np.quantile(wait_s, 0.99) == pytest.approx(service_s / (1 - rho) * math.log(rho / 0.01), rel=0.08)


def test_many_slots_of_constant_speed_wait_as_in_m_m_c() -> None:
    servers, offered = 10, 8.0
    step = StepLaw.linear(alpha_s=0.001, beta_s=0.0)
    result = simulate(
        Replica(step=step, max_num_seqs=servers),
        [stream(offered / 0.2, Law.constant(5), geometric(200.0))],
        requests=150_000,
        seed=5,
    )
    assert result.mean_batch == pytest.approx(offered, rel=0.02)
    assert result.all("wait_s").mean() == pytest.approx(0.4092 * 0.2 / (servers - offered), rel=0.08)  # Erlang C


def test_mean_batch_obeys_littles_law() -> None:
    replica = Replica(step=STEP, max_num_seqs=64)
    result = simulate(replica, [stream(3.0, Law.constant(100), geometric(100.0))], requests=20_000, seed=6)
    residence_s = (result.all("completion_s") - result.all("wait_s")).mean()
    assert result.mean_batch == pytest.approx(3.0 * residence_s, rel=0.03)


def test_joining_the_shortest_queue_waits_less_than_random_choice() -> None:
    replica = Replica(step=STEP, max_num_seqs=4)
    load = [stream(16.0, Law.constant(20), geometric(60.0))]
    random = simulate(replica, load, replicas=4, router="random", requests=20_000, seed=7)
    shortest = simulate(replica, load, replicas=4, router="jsq", requests=20_000, seed=7)
    assert shortest.all("wait_s").mean() < 0.5 * random.all("wait_s").mean()


def test_chat_on_a100_repeats_the_published_run() -> None:
    """Five A100 at 20 requests/s: mean TPOT 28.1 ms, p99 TTFT 607 ms in an independent simulator of the same law."""
    replica = Replica(
        step=StepLaw.linear(alpha_s=9.8e-3, beta_s=1.03e-4, gamma_s=8e-8, delta_s=1.03e-4), max_batched_tokens=4096
    )
    chat = stream(20.0, normal_law(1024, 256, 64, 4096), normal_law(256, 128, 16, 2048))
    result = simulate(replica, [chat], replicas=5, requests=60_000, seed=1, warmup=0.1)
    assert result.all("tpot_s").mean() == pytest.approx(28.1e-3, rel=0.02)
    assert np.quantile(result.all("ttft_s"), 0.99) == pytest.approx(0.607, rel=0.05)


def test_the_same_seed_gives_the_same_run() -> None:
    replica = Replica(step=STEP, max_num_seqs=8, kv_tokens=2000.0)
    runs = [
        simulate(replica, [stream(3.0, Law.constant(20), geometric(40.0))], replicas=2, requests=500, seed=9)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(runs[0].all("completion_s"), runs[1].all("completion_s"))


def test_reasoning_puts_the_answer_between_first_token_and_end() -> None:
    replica = Replica(step=STEP, max_num_seqs=8)
    result = simulate(
        replica, [stream(1.0, Law.constant(20), Law.constant(40), Law.constant(30))], requests=400, seed=2
    )
    assert (result.all("ttft_s") < result.all("answer_start_s")).all()
    assert (result.all("answer_start_s") < result.all("completion_s")).all()


def test_a_request_larger_than_the_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="never fits"):
        replay(Replica(step=STEP, kv_tokens=100.0), iter(requests_of([(0.0, 90, 20, 0)])))


def test_more_slots_than_token_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="max_batched_tokens"):
        replay(Replica(step=STEP, max_num_seqs=64, max_batched_tokens=32), iter(requests_of([(0.0, 5, 5, 0)])))
