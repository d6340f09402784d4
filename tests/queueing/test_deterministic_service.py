"""Exact M/D/c: M/D/1 in closed form, the embedded chain as an oracle, light and heavy traffic, properties, messages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from qmodel.queueing import Moments, erlang_c, mgc
from qmodel.queueing.servers.deterministic_service import solve_constant_service
from qmodel.types import Law
from tests.queueing.reference_queues import reference_cells

CONSTANT = Moments(mean_s=1.0, scv=0.0)


def embedded_chain(servers: int, load: float, states: int = 600) -> tuple[float, float]:
    """P(wait) and E[W] of M/D/c, D = 1: the number present, looked at every D, leaves c and gains a Poisson number."""
    offered = servers * load
    arrivals = stats.poisson.pmf(np.arange(states), offered)
    move = np.zeros((states, states))
    for present in range(states):
        left = max(present - servers, 0)
        move[present, left:] = arrivals[: states - left]
    balance = np.vstack([(move.T - np.eye(states))[:-1], np.ones(states)])
    stationary = np.linalg.solve(balance, np.append(np.zeros(states - 1), 1.0))
    queued = float(np.maximum(np.arange(states) - servers, 0) @ stationary)
    return float(stationary[servers:].sum()), queued / offered


def erlang_md1_cdf(wait: float, load: float) -> float:
    """P(W <= t) of M/D/1 with D = 1, Erlang's alternating sum of 1909; loses digits from t = 10 on."""
    return (1.0 - load) * sum(
        (-load * (wait - k)) ** k / math.factorial(k) * math.exp(load * (wait - k)) for k in range(int(wait) + 1)
    )


@pytest.mark.parametrize("load", [0.2, 0.6, 0.9, 0.99, 0.999])
def test_one_server_has_the_moments_of_takacs(load: float) -> None:
    queue = solve_constant_service(load, 1.0, 1)
    mean = load / (2.0 * (1.0 - load))  # half of that of M/M/1
    assert queue.p_wait == pytest.approx(load, rel=1e-11)
    assert queue.mean_s == pytest.approx(mean, rel=1e-11)
    assert queue.square_s2 == pytest.approx(2.0 * mean**2 + load / (3.0 * (1.0 - load)), rel=1e-10)


@pytest.mark.parametrize("wait", [0.0, 0.3, 1.0, 1.7, 4.25, 8.0])
def test_one_server_has_the_distribution_of_erlang(wait: float) -> None:
    queue = solve_constant_service(0.7, 1.0, 1)
    assert 1.0 - queue.survival(wait) == pytest.approx(erlang_md1_cdf(wait, 0.7), rel=1e-9)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.8), (4, 0.9), (10, 0.9), (25, 0.7)])
def test_many_servers_agree_with_the_embedded_chain(servers: int, load: float) -> None:
    p_wait, mean = embedded_chain(servers, load)
    queue = solve_constant_service(servers * load, 1.0, servers)
    assert queue.p_wait == pytest.approx(p_wait, rel=1e-9)
    assert queue.mean_s == pytest.approx(mean, rel=1e-9)


def test_stored_values_agree_where_those_have_their_digits() -> None:
    cells = reference_cells()
    for cell in cells[(cells["shape"] == "constant") & (cells["rho"] < 0.95)].itertuples():
        queue = mgc(cell.rho * cell.servers, CONSTANT, cell.servers, method="exact")
        assert float(queue.mean_wait_s) == pytest.approx(cell.mean_wait, rel=1e-6)
        if cell.wait_p99 > 0.0:
            assert float(queue.wait_quantile_s(0.99)) == pytest.approx(cell.wait_p99, rel=1e-6)


def test_small_probabilities_keep_their_digits() -> None:
    queue = solve_constant_service(40.0, 1.0, 100)
    first_jump = stats.poisson.sf(99, 40.0)  # all hundred servers busy, no older work: the next term is smaller by far
    assert queue.p_wait == pytest.approx(float(first_jump), rel=1e-6)
    assert 0.0 < queue.mean_s < 1e-14


@pytest.mark.parametrize(("servers", "load"), [(3, 0.9), (50, 0.95), (1000, 0.98)])
def test_the_distribution_has_the_moments(servers: int, load: float) -> None:
    queue = solve_constant_service(servers * load, 1.0, servers)
    wait = np.linspace(0.0, queue.quantile(1e-10 * queue.p_wait), 4001)
    survival = np.array([queue.survival(t) for t in wait])
    assert float(np.trapezoid(survival, wait)) == pytest.approx(queue.mean_s, rel=1e-4)
    assert float(np.trapezoid(2.0 * wait * survival, wait)) == pytest.approx(queue.square_s2, rel=1e-4)


def test_the_far_tail_is_exponential_without_a_step() -> None:
    queue = solve_constant_service(0.9999 * 50, 1.0, 50)
    below, above = queue.survival(3999.0), queue.survival(4001.0)
    assert above / below == pytest.approx(math.exp(-2.0 * queue.decay), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(servers=st.integers(1, 60), load=st.floats(0.3, 0.98), share=st.floats(1e-6, 0.95))
def test_the_quantile_inverts_the_survival_function(servers: int, load: float, share: float) -> None:
    queue = solve_constant_service(load * servers, 1.0, servers)
    tail = share * queue.p_wait
    assert queue.survival(queue.quantile(tail)) == pytest.approx(tail, rel=1e-8)


@settings(max_examples=30, deadline=None)
@given(servers=st.integers(1, 200), load=st.floats(0.3, 0.95), more=st.floats(0.001, 0.04))
def test_constant_service_waits_less_than_exponential_and_more_under_more_load(
    servers: int, load: float, more: float
) -> None:
    low, high = (mgc(rho * servers, CONSTANT, servers, method="exact") for rho in (load, load + more))
    exponential = float(erlang_c(load * servers, servers)) / (servers * (1.0 - load))
    assert 0.49 * exponential <= float(low.mean_wait_s) <= exponential
    assert float(low.mean_wait_s) <= float(high.mean_wait_s)


def test_a_law_with_one_value_is_constant_service() -> None:
    queue = mgc(3.0, Law.constant(2.0), 8, method="exact")
    same = mgc(3.0, Moments(mean_s=2.0, scv=0.0), 8, method="exact")
    assert float(queue.mean_wait_s) == float(same.mean_wait_s) > 0.0


def test_too_many_servers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"servers must be at most 10,000 for constant service .*\(got 20,000\)"):
        mgc(1.0, CONSTANT, 20_000, method="exact")
