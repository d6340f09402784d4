"""M/PH/c by the matrix-analytic method: closed forms, a truncated chain and stored values as oracles, and messages."""

from __future__ import annotations

import math

import ciw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import Moments, PhaseType, erlang_c, mgc
from qmodel.queueing.servers.qbd import solve_phase_queue
from qmodel.queueing.servers.qbd_levels import state_count
from qmodel.types import Law
from tests.queueing.reference_queues import reference_cells

UNEVEN = PhaseType.hyperexponential((0.7, 0.3), (0.4, 2.4))


def truncated_chain(rate: float, service: PhaseType, most: int = 60) -> tuple[float, float]:
    """P(wait) and mean wait of M/PH/2 by balance equations of all states up to ``most`` present."""
    rates, start = np.array(service.generator), np.array(service.initial)
    finish, phases = -rates.sum(axis=1), range(len(start))
    states: list[tuple[int, ...]] = [(0,), *((1, i) for i in phases)]
    states += [(n, i, j) for n in range(2, most + 1) for i in phases for j in phases]
    index = {state: k for k, state in enumerate(states)}
    flow = np.zeros((len(states), len(states)))

    def move(origin: tuple[int, ...], target: tuple[int, ...], speed: float) -> None:
        flow[index[origin], index[target]] += speed
        flow[index[origin], index[origin]] -= speed

    for state in states:
        n, busy = state[0], state[1:]
        if n < most:
            if n < 2:
                for i in phases:
                    move(state, (n + 1, *busy, i), rate * start[i])
            else:
                move(state, (n + 1, *busy), rate)
        for place, i in enumerate(busy):
            for j in phases:
                if j != i:
                    move(state, (n, *busy[:place], j, *busy[place + 1 :]), rates[i, j])
            rest = busy[:place] + busy[place + 1 :]
            if n <= 2:
                move(state, (n - 1, *rest), finish[i])
            else:
                for j in phases:
                    move(state, (n - 1, *busy[:place], j, *busy[place + 1 :]), finish[i] * start[j])
    balance = np.vstack([flow.T[:-1], np.ones(len(states))])
    law = np.linalg.solve(balance, np.append(np.zeros(len(states) - 1), 1.0))
    present = np.array([state[0] for state in states])
    return float(law[present >= 2].sum()), float(np.maximum(present - 2, 0) @ law) / rate


@pytest.mark.parametrize("servers", [1, 2, 10, 64])
def test_exponential_phases_give_erlang_c(servers: int) -> None:
    queue = mgc(0.8 * servers / 3.0, Moments(mean_s=3.0, scv=1.0), servers, method="qbd")
    delay = float(erlang_c(0.8 * servers, servers))
    assert float(queue.p_wait) == pytest.approx(delay, rel=1e-11)
    assert float(queue.mean_wait_s) == pytest.approx(delay * 3.0 / (servers * 0.2), rel=1e-11)
    assert float(queue.delayed_scv) == pytest.approx(1.0, rel=1e-9)
    expected = max(math.log(delay / 0.01), 0.0) * 3.0 / (servers * 0.2)
    assert float(queue.wait_quantile_s(0.99)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    "service", [UNEVEN, PhaseType.erlang(3, 0.5), PhaseType.erlang_mixture(4, 0.3, 2.0), PhaseType.erlang(50, 1.0)]
)
def test_one_server_has_the_moments_of_takacs(service: PhaseType) -> None:
    first, second, third = service.moments
    rate = 0.7 / first
    mean = rate * second / (2.0 * 0.3)
    square = 2.0 * mean**2 + rate * third / (3.0 * 0.3)
    queue = solve_phase_queue(rate, service, 1)
    assert queue.p_wait == pytest.approx(0.7, rel=1e-12)
    assert queue.mean_s == pytest.approx(mean, rel=1e-12)
    assert queue.square_s2 == pytest.approx(square, rel=1e-12)


@pytest.mark.parametrize(
    "service", [UNEVEN, PhaseType.erlang(2, 1.0), PhaseType(initial=(0.6, 0.4), generator=((-3.0, 1.0), (0.5, -1.0)))]
)
def test_two_servers_agree_with_the_balance_of_all_states(service: PhaseType) -> None:
    rate = 1.2 / service.mean_s
    p_wait, mean = truncated_chain(rate, service)
    queue = solve_phase_queue(rate, service, 2)
    assert queue.p_wait == pytest.approx(p_wait, rel=1e-7)
    assert queue.mean_s == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("shape", ["erlang2", "hyperexponential"])
def test_stored_values_of_an_independent_solver_agree(shape: str) -> None:
    cells = reference_cells()
    for cell in cells[(cells["shape"] == shape) & (cells["servers"] <= 32)].itertuples():
        queue = mgc(cell.rho * cell.servers, Moments(mean_s=1.0, scv=cell.scv), cell.servers, method="exact")
        assert float(queue.p_wait) == pytest.approx(cell.p_wait, rel=1e-7)
        assert float(queue.mean_wait_s) == pytest.approx(cell.mean_wait, rel=1e-7)
        if cell.wait_p99 > 0.0:
            assert float(queue.wait_quantile_s(0.99)) == pytest.approx(cell.wait_p99, rel=1e-5)


def test_a_choice_between_alike_branches_is_one_branch() -> None:
    three = PhaseType.hyperexponential((0.3, 0.4, 0.3), (0.4, 0.4, 2.4))
    one, two = solve_phase_queue(6.0, UNEVEN, 7), solve_phase_queue(6.0, three, 7)
    assert two.mean_s == pytest.approx(one.mean_s, rel=1e-10)
    assert two.quantile(0.01) == pytest.approx(one.quantile(0.01), rel=1e-9)


@pytest.mark.parametrize(("service", "servers"), [(UNEVEN, 5), (PhaseType.erlang(3, 1.0), 4), (UNEVEN, 128)])
def test_the_distribution_has_the_moments(service: PhaseType, servers: int) -> None:
    queue = solve_phase_queue(0.9 * servers / service.mean_s, service, servers)
    stay = np.linalg.inv(-queue.decay)
    assert float(queue.left @ stay @ queue.right) == pytest.approx(queue.mean_s, rel=1e-9)
    assert 2.0 * float(queue.left @ stay @ stay @ queue.right) == pytest.approx(queue.square_s2, rel=1e-9)
    assert queue.survival(0.0) == pytest.approx(queue.p_wait, rel=1e-12)
    assert queue.survival(1e6) == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(servers=st.integers(1, 12), load=st.floats(0.3, 0.97), scv=st.floats(1.05, 12.0), share=st.floats(1e-5, 0.9))
def test_the_quantile_inverts_the_survival_function(servers: int, load: float, scv: float, share: float) -> None:
    queue = mgc(load * servers, Moments(mean_s=1.0, scv=scv), servers, method="exact")
    tail = share * float(queue.p_wait)
    wait = float(queue.wait_quantile_s(1.0 - tail))
    assert float(queue.wait_survival(wait)) == pytest.approx(tail, rel=1e-7)


@settings(max_examples=15, deadline=None)
@given(servers=st.integers(1, 10), load=st.floats(0.4, 0.9), scv=st.floats(0.2, 8.0), scale=st.floats(1e-3, 1e3))
def test_time_has_no_unit_of_its_own(servers: int, load: float, scv: float, scale: float) -> None:
    servers = min(servers, 4) if scv < 1.0 else servers
    one = mgc(load * servers, Moments(mean_s=1.0, scv=scv), servers, method="exact")
    other = mgc(load * servers / scale, Moments(mean_s=scale, scv=scv), servers, method="exact")
    assert float(other.mean_wait_s) == pytest.approx(scale * float(one.mean_wait_s), rel=1e-9)
    assert float(other.wait_quantile_s(0.95)) == pytest.approx(scale * float(one.wait_quantile_s(0.95)), rel=1e-7)


@pytest.mark.slow
def test_an_independent_simulator_agrees_with_the_exact_wait() -> None:
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=0.8 * 4 / UNEVEN.mean_s)],
        service_distributions=[ciw.dists.HyperExponential(rates=[2.5, 1.0 / 2.4], probs=[0.7, 0.3])],
        number_of_servers=[4],
    )
    means, shares = [], []
    for seed in range(12):
        ciw.seed(seed)
        run = ciw.Simulation(network)
        run.simulate_until_max_time(8000.0)
        waits = np.array([record.waiting_time for record in run.get_all_records() if record.arrival_date > 500.0])
        means.append(float(waits.mean()))
        shares.append(float((waits > 1.0).mean()))
    queue = mgc(0.8 * 4 / UNEVEN.mean_s, UNEVEN, 4, method="exact")
    for found, exact in ((means, float(queue.mean_wait_s)), (shares, float(queue.wait_survival(1.0)))):
        half_width = 3.1 * float(np.std(found, ddof=1)) / math.sqrt(len(found))
        assert half_width < 0.15 * exact
        assert abs(float(np.mean(found)) - exact) <= half_width


def test_overload_and_idleness_are_typed_beside_exact_numbers() -> None:
    queue = mgc([0.0, 8.0, 12.0], Moments(mean_s=1.0, scv=2.0), 10, method="exact")
    assert queue.stable.tolist() == [True, True, False]
    assert queue.mean_wait_s[0] == 0.0 and math.isfinite(queue.mean_wait_s[1]) and queue.mean_wait_s[2] == math.inf
    assert queue.wait_quantile_s(0.9)[2] == math.inf and queue.wait_survival(5.0)[2] == 1.0
    assert queue.overload is not None and queue.overload.limit == 10.0
    assert np.all(queue.band == 0.0)


def test_levels_broadcast_against_exact_queues() -> None:
    queue = mgc([2.0, 3.0], Moments(mean_s=1.0, scv=4.0), 4, method="exact")
    assert queue.wait_quantile_s(np.array([[0.5], [0.9], [0.99]])).shape == (3, 2)
    assert queue.wait_survival(1.0).shape == (2,)


def test_configurations_are_counted_before_they_are_built() -> None:
    assert state_count(128, 2) == 129 and state_count(10, 4) == 286
    with pytest.raises(ValueError, match=r"1000000 servers with 2 phases have 1,000,001 configurations, above 300"):
        mgc(1.0, UNEVEN, 1_000_000, method="qbd")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: mgc(9.0, PhaseType.erlang(4, 1.0), 128, method="qbd"),
            r"128 servers with 4 phases have 366,145 config",
        ),
        (lambda: mgc(1.0, Moments(mean_s=1.0, scv=4.0), 2.5, method="qbd"), r"servers must be whole for method='qbd'"),
        (
            lambda: mgc(1.0, Law.from_atoms(np.array([1.0, 2.0]), np.ones(2)), 2, method="exact"),
            r"a service law with more than one value has no exact solution; state Moments",
        ),
        (lambda: mgc(1.0, Moments(mean_s=1.0, scv=0.0), 2, method="qbd"), r"constant service has no phases"),
        (
            lambda: mgc(1.0, Moments(mean_s=1.0, scv=2.0, third=10.0), 2, method="exact"),
            r"no two-phase law has scv 2 with third moment 10 s\^3: it needs scv above 1 and more than 13.5 s\^3",
        ),
    ],
)
def test_what_cannot_be_solved_exactly_says_what_would_work(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
