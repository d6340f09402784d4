"""Requests dealt to the replicas in turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmodel.queueing import Replica, StepLaw, pool, pool_metrics
from qmodel.queueing.replica.dealing import dealt
from qmodel.simulation import draw_requests, simulate_pool
from qmodel.types import Burst, Lengths, Router, Stream
from qmodel.workload import lognormal_law

DENSE = StepLaw.linear(alpha_s=0.0131, beta_s=7.1e-5, gamma_s=3.06e-8, delta_s=7.1e-5)
CHAT = Stream(name="chat", rate_rps=2.2, lengths=Lengths.independent(lognormal_law(1000, 1.0), lognormal_law(300, 0.9)))
ENGINE = Replica(step=DENSE, max_num_seqs=64)


def test_every_second_arrival_scatters_as_a_gap_of_two_stages_does() -> None:
    turn = dealt(np.array([3.0]), np.array([2.0]))
    window = np.array([0.01, 0.3, 1.0, 50.0])
    # renewal counts with Erlang-2 gaps at rate 3: IDC = 1/2 + (1 - exp(-12 w)) / (24 w), Cox (1962), sec. 4.5
    exact = 0.5 + (1.0 - np.exp(-12.0 * window)) / (24.0 * window)
    np.testing.assert_allclose([turn.dispersion(one)[0] for one in window], exact, rtol=1e-9)


@given(rate=st.floats(0.01, 100.0), replicas=st.integers(2, 64), window=st.floats(1e-4, 1e3))
def test_dealing_makes_counts_steadier(rate: float, replicas: int, window: float) -> None:
    index = dealt(np.array([rate]), np.array([float(replicas)])).dispersion(np.array([window]))[0]
    assert 1.0 / replicas - 1e-9 <= index <= 1.0 + 1e-9


def test_one_replica_has_no_turns() -> None:
    alone, dealt_one = (pool(ENGINE, [CHAT], 1, router)["chat"] for router in ("random", "round_robin"))  # type: ignore[arg-type]
    for metric in ("ttft", "tpot", "completion"):
        assert alone.metric(metric).quantile(0.95) == dealt_one.metric(metric).quantile(0.95)  # type: ignore[arg-type]


def test_dealing_helps_more_the_more_replicas_share() -> None:
    counts = np.array([2, 4, 8, 32])
    table = pool_metrics(
        ENGINE, [CHAT], counts, counts * 1.0, "round_robin", [("chat", "ttft", None), ("chat", "tpot", 0.95)]
    )
    assert np.all(np.diff(table, axis=0) < 0.0)
    at_random = pool_metrics(ENGINE, [CHAT], counts, counts * 1.0, "random", [("chat", "ttft", None)])
    assert np.all(table[:, :1] < at_random)


def test_one_case_and_many_agree() -> None:
    table = pool_metrics(ENGINE, [CHAT], [2, 8], [1.5, 7.0], "round_robin", [("chat", "completion", 0.99)])
    for row, (count, load) in enumerate(((2, 1.5), (8, 7.0))):
        one = pool(ENGINE, [replace(CHAT, rate_rps=CHAT.rate_rps * load)], count, "round_robin")["chat"]
        assert one.completion.quantile(0.99) == pytest.approx(table[row, 0], rel=1e-6)


def test_bursts_last_through_dealing() -> None:
    burst = Burst(excess=(300.0,), decay_per_s=(0.02,))
    calm, bursty = (
        pool(ENGINE, [replace(CHAT, rate_rps=12.0, burst=item)], 4, "round_robin")["chat"] for item in (None, burst)
    )
    assert bursty.ttft.quantile(0.99) > 1.2 * calm.ttft.quantile(0.99)


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "slots", "rate"), [(2, 64, 2.4), (8, 64, 2.4), (8, 1, 0.14)])
def test_dealing_matches_simulation(replicas: int, slots: int, rate: float) -> None:
    engine, stream = replace(ENGINE, max_num_seqs=slots), replace(CHAT, rate_rps=rate * replicas)
    table = draw_requests([stream], rng=np.random.default_rng(4), count=30_000)
    routers: tuple[Router, Router] = ("round_robin", "random")
    log = simulate_pool(table, engine, replicas=replicas, router="round_robin").log
    steady = slice(3_000, -1_500)
    found, at_random = (pool(engine, [stream], replicas, router)["chat"] for router in routers)
    simulated = log.ttft_s[steady].mean()
    assert found.ttft.mean == pytest.approx(simulated, rel=0.15)
    assert abs(found.ttft.mean - simulated) < abs(at_random.ttft.mean - simulated)
    assert found.tpot.mean == pytest.approx(np.nanmean(log.tpot_s[steady]), rel=0.03)
    assert found.tpot.quantile(0.95) == pytest.approx(np.nanquantile(log.tpot_s[steady], 0.95), rel=0.08)
    assert found.completion.mean == pytest.approx(log.completion_after_s[steady].mean(), rel=0.05)
