"""Replicas with one slot: plain queues whose service follows from a request's lengths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import Moments, Replica, StepLaw, mgc, pool
from qmodel.simulation import draw_requests, simulate_pool
from qmodel.types import Law, Lengths, Router, Stream
from qmodel.workload import lognormal_law

ONE = Replica(
    step=StepLaw.linear(alpha_s=0.0131, beta_s=7.1e-5, gamma_s=3.06e-8, delta_s=7.1e-5),
    max_num_seqs=1,
    max_batched_tokens=2048,
)
CHAT = Lengths.independent(lognormal_law(1000, 1.0), lognormal_law(300, 0.9))


def service(lengths: Lengths) -> tuple[float, float]:
    """E[S], s, and E[S^2], s^2, from all pairs of atoms."""
    prompt, output, step = lengths.prompt, lengths.output, ONE.step
    chunks = np.ceil(prompt.values / ONE.max_batched_tokens)
    first = chunks * float(step.tau_s(0.0, 0.0)) + step.delta_s * prompt.values
    decodes = output.values - 1.0
    read = decodes * prompt.values[:, None] + decodes * (decodes + 1.0) / 2.0
    time = first[:, None] + decodes * float(step.tau_s(1.0, 0.0)) + step.gamma_s * read
    return float(prompt.weights @ time @ output.weights), float(prompt.weights @ time**2 @ output.weights)


@settings(max_examples=15, deadline=None)
@given(load=st.floats(0.05, 0.95), replicas=st.integers(1, 6))
def test_a_random_router_makes_pollaczek_khinchine_queues(load: float, replicas: int) -> None:
    first, second = service(CHAT)
    rate = load / first
    found = pool(ONE, [Stream(name="chat", rate_rps=rate * replicas, lengths=CHAT)], replicas)
    wait = rate * second / (2.0 * (1.0 - load))
    assert found["chat"].completion.mean == pytest.approx(wait + first, rel=0.02)
    assert found.p_wait == pytest.approx(load, rel=0.01)


def test_equal_requests_are_md1() -> None:
    lengths = Lengths.independent(Law.constant(100), Law.constant(50))
    first, second = service(lengths)
    assert second == pytest.approx(first**2)
    found = pool(ONE, [Stream(name="a", rate_rps=0.8 / first, lengths=lengths)], 1)["a"]
    exact = mgc(0.8 / first, Moments(mean_s=first, scv=0.0), 1)
    assert found.completion.mean == pytest.approx(first + float(exact.mean_wait_s), rel=0.01)
    assert found.completion.quantile(0.9) == pytest.approx(first + float(exact.wait_quantile_s(0.9)), rel=0.03)
    assert found.tpot.mean == pytest.approx(float(ONE.step.tau_s(1.0, 125.0)), rel=1e-3)


def test_nobody_interferes_with_a_request_alone() -> None:
    first, _ = service(CHAT)
    idle, busy = (pool(ONE, [Stream(name="a", rate_rps=load / first, lengths=CHAT)], 1)["a"] for load in (1e-4, 0.9))
    assert busy.tpot.mean == pytest.approx(idle.tpot.mean, rel=1e-6)
    assert busy.tpot.quantile(0.99) == pytest.approx(idle.tpot.quantile(0.99), rel=1e-3)
    assert busy.completion.mean - busy.ttft.mean == pytest.approx(idle.completion.mean - idle.ttft.mean, rel=1e-6)


def test_a_better_router_waits_less() -> None:
    first, _ = service(CHAT)
    routers: tuple[Router, ...] = ("random", "round_robin", "jsq")
    waits = [pool(ONE, [Stream(name="a", rate_rps=2.8 / first, lengths=CHAT)], 4, router) for router in routers]
    assert waits[0]["a"].ttft.mean > waits[1]["a"].ttft.mean > waits[2]["a"].ttft.mean


def test_memory_never_evicts_a_request_alone() -> None:
    lengths = Lengths.independent(lognormal_law(1000, 0.5, maximum=4000), lognormal_law(300, 0.5, maximum=2000))
    stream = Stream(name="a", rate_rps=0.1, lengths=lengths)
    free, limited = (pool(replace(ONE, kv_tokens=kv), [stream], 1)["a"] for kv in (None, 1e5))
    assert limited.completion.mean == pytest.approx(free.completion.mean, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("router", "load"), [("random", 0.7), ("jsq", 0.7), ("jsq", 0.4), ("round_robin", 0.7)])
def test_exclusive_replicas_match_simulation(router: Router, load: float) -> None:
    first, _ = service(CHAT)
    stream = Stream(name="a", rate_rps=4 * load / first, lengths=CHAT)
    log = simulate_pool(
        draw_requests([stream], rng=np.random.default_rng(8), count=60_000), ONE, replicas=4, router=router
    ).log
    steady = slice(3_000, -1_000)
    found = pool(ONE, [stream], 4, router)["a"]
    assert found.ttft.mean == pytest.approx(log.ttft_s[steady].mean(), rel=0.12)
    assert found.completion.quantile(0.95) == pytest.approx(np.quantile(log.completion_after_s[steady], 0.95), rel=0.1)
