"""What a join-shortest-queue router does to arrivals at one replica: limits, and pools simulated step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmodel.queueing import Replica, pool
from qmodel.queueing.replica.shortest_queue import evenness, share_coming, share_passed
from qmodel.types import Law, Lengths, Stream
from qmodel.workload import lognormal_law
from tests.queueing.llm_cases import linear
from tests.step_engine import simulate

DOCUMENTS = Lengths.independent(lognormal_law(6000.0, 0.4, maximum=20_000), lognormal_law(190.0, 0.8, maximum=2000))
CHAT = Lengths.independent(lognormal_law(1000.0, 0.8, maximum=8000), lognormal_law(150.0, 0.8, maximum=2000))


def test_one_replica_evens_out_nothing() -> None:
    assert evenness(np.array([1.0])).tolist() == [0.0]
    replica = Replica(step=linear(12.0, 0.1, 1e-5, 0.05), max_num_seqs=64, max_batched_tokens=1024)
    chat = Stream(name="chat", rate_rps=6.0, lengths=CHAT)
    alone, behind = (pool(replica, [chat], 1, router)["chat"] for router in ("random", "jsq"))
    for metric in ("ttft", "completion"):
        assert behind.metric(metric).mean == pytest.approx(alone.metric(metric).mean, rel=1e-3)
        assert behind.metric(metric).quantile(0.99) == pytest.approx(alone.metric(metric).quantile(0.99), rel=5e-3)


@given(few=st.integers(1, 60), more=st.integers(1, 60))
def test_more_replicas_even_out_more(few: int, more: int) -> None:
    low, high = evenness(np.array([float(few), float(few + more)]))
    assert 0.0 <= low < high < 1.0


@given(even=st.floats(0.0, 1.0), mean=st.floats(0.0, 20.0), decoding=st.floats(1.0, 500.0))
def test_waiting_prompts_keep_others_away(even: float, mean: float, decoding: float) -> None:
    waiting = np.array([[0.0, mean, mean + 1.0, mean + 1e6]])
    share = share_coming(np.array([even]), waiting, np.array([mean]), np.array([decoding]))[0]
    assert np.all(np.diff(share) <= 0.0) and share[-1] > 0.0
    assert share[1] == 1.0


@given(replicas=st.integers(1, 64), expected=st.floats(0.0, 20.0))
def test_arrivals_come_early_in_a_step_where_many_replicas_share_them(replicas: int, expected: float) -> None:
    sizes = np.array([float(replicas), float(replicas + 1)])
    now, larger = share_passed(sizes, np.full((2, 1), expected))[:, 0]
    assert 0.0 < larger <= now + 1e-9 <= 0.5 + 1e-9
    assert share_passed(np.array([1.0]), np.array([[expected]]))[0, 0] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("lengths", "budget", "replicas", "load"), [(DOCUMENTS, 512, 8, 0.75), (CHAT, 1024, 16, 0.85), (CHAT, 8192, 4, 0.8)]
)
def test_first_tokens_behind_a_shortest_queue_match_the_step_engine(
    lengths: Lengths, budget: int, replicas: int, load: float
) -> None:
    replica = Replica(step=linear(12.0, 0.3, 1e-5, 0.03), max_num_seqs=128, max_batched_tokens=budget)
    one = Stream(name="a", rate_rps=1.0, lengths=lengths)
    used = pool(replica, [one], replicas, "jsq").utilisation
    stream = Stream(name="a", rate_rps=load / used, lengths=lengths)
    found = pool(replica, [stream], replicas, "jsq")["a"]
    measured = simulate(replica, [stream], replicas=replicas, router="jsq", requests=40_000, seed=3).classes["a"]
    assert found.ttft.mean == pytest.approx(measured.ttft_s.mean(), rel=0.12)
    assert found.ttft.quantile(0.95) == pytest.approx(float(np.quantile(measured.ttft_s, 0.95)), rel=0.15)
    assert found.completion.mean == pytest.approx(measured.completion_s.mean(), rel=0.04)


def test_constant_prompts_that_always_fit_leave_the_law_of_the_first_token_bounded() -> None:
    replica = Replica(step=linear(20.0, 0.0, 0.0, 0.0), max_num_seqs=200, max_batched_tokens=8192)
    stream = Stream(name="a", rate_rps=80.0, lengths=Lengths.independent(Law.constant(10), Law.constant(200)))
    ttft = pool(replica, [stream], 8, "jsq")["a"].ttft
    assert 0.030 < ttft.mean < 0.035  # a step, and more than half of the one before: arrivals come early in it
    assert ttft.quantile(0.99) == pytest.approx(0.04, rel=0.03)
