from __future__ import annotations

import ciw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import Moments, erlang_c, mgc, priority
from qmodel.types import Law
from tests.queueing.priority_cells import class_cells

EXPONENTIAL = Moments(mean_s=1.0, scv=1.0)


def test_one_server_gives_cobhams_waits() -> None:
    # rates 0.1, 0.2, 0.3; exponential 1 s, constant 2 s, scv 4 with mean 1 s: residual work 1.25 s, loads 0.1, 0.5, 0.8
    services = [EXPONENTIAL, Moments(mean_s=2.0, scv=0.0), Moments(mean_s=1.0, scv=4.0)]
    queue = priority([0.1, 0.2, 0.3], services, 1)
    assert queue.mean_wait_s.tolist() == pytest.approx([1.25 / 0.9, 1.25 / (0.9 * 0.5), 1.25 / (0.5 * 0.2)], rel=1e-12)
    assert np.all(queue.band == 0.0)


def test_one_server_with_preemption_gives_the_textbook_times_in_system() -> None:
    services = [EXPONENTIAL, Moments(mean_s=2.0, scv=0.0), Moments(mean_s=1.0, scv=4.0)]
    queue = priority([0.1, 0.2, 0.3], services, 1, discipline="preemptive_resume")
    expected = [1.0 + 0.1 / 0.9, 2.0 / 0.9 + 0.5 / (0.9 * 0.5), 1.0 / 0.5 + 1.25 / (0.5 * 0.2)]
    assert queue.mean_completion_s.tolist() == pytest.approx(expected, rel=1e-9)


def test_the_second_moments_at_one_server_are_exact() -> None:
    # Kleinrock II, sec. 3: two exponential classes of rate 0.4; E[W_2^2] from the busy-period decomposition
    queue = priority([0.4, 0.4], [EXPONENTIAL, EXPONENTIAL], 1)
    residual, above, load = 1.0, 0.4, 0.8
    second = 2.0 / ((1 - above) ** 2 * (1 - load)) + 2.0 * load / ((1 - above) ** 2 * (1 - load) ** 2)
    second += 2.0 * above / ((1 - above) ** 3 * (1 - load))
    first = residual / ((1 - above) * (1 - load))
    assert queue.delayed_scv[1] == pytest.approx(second / first**2 - 1.0, rel=1e-9)


@pytest.mark.parametrize("servers", [2, 7, 50])
def test_equal_exponential_service_gives_the_exact_waits(servers: int) -> None:
    loads = np.array([0.2, 0.35, 0.3])
    queue = priority((loads * servers).tolist(), [EXPONENTIAL] * 3, servers)
    upto = np.cumsum(loads)
    exact = float(erlang_c(loads.sum() * servers, servers)) / servers
    expected = exact / ((1.0 - np.concatenate([[0.0], upto[:-1]])) * (1.0 - upto))
    assert queue.mean_wait_s.tolist() == pytest.approx(expected.tolist(), rel=1e-7)


@pytest.mark.parametrize("servers", [1, 4, 30])
def test_preemption_of_equal_exponential_services_conserves_the_number_in_system(servers: int) -> None:
    loads = np.array([0.3, 0.25, 0.35])
    queue = priority((loads * servers).tolist(), [EXPONENTIAL] * 3, servers, discipline="preemptive_resume")
    for last in (1, 2, 3):
        alone = mgc(loads[:last].sum() * servers, EXPONENTIAL, servers)
        assert loads[:last] @ queue.mean_wait_s[:last] == pytest.approx(
            loads[:last].sum() * float(alone.mean_wait_s), rel=1e-7
        )


def test_one_class_alone_is_the_queue_without_priorities() -> None:
    service = Moments(mean_s=2.0, scv=3.0)
    queue, plain = priority([[3.0, 6.0]], [service], [8, 16]), mgc([3.0, 6.0], service, [8, 16])
    assert queue.mean_wait_s[0].tolist() == pytest.approx(plain.mean_wait_s.tolist(), rel=1e-6)
    assert queue.delayed_scv[0].tolist() == pytest.approx(plain.delayed_scv.tolist(), rel=1e-5)
    assert queue.wait_quantile_s(0.99)[0].tolist() == pytest.approx(plain.wait_quantile_s(0.99).tolist(), rel=0.06)


def test_the_most_important_class_under_preemption_is_alone() -> None:
    first, second = Moments(mean_s=1.0, scv=4.0), Moments(mean_s=5.0, scv=0.5)
    queue = priority([4.0, 0.7], [first, second], 8, discipline="preemptive_resume")
    assert queue.mean_wait_s[0] == pytest.approx(float(mgc(4.0, first, 8).mean_wait_s), rel=0.01)


@settings(deadline=None, max_examples=30)
@given(
    shares=st.lists(st.floats(0.05, 1.0), min_size=2, max_size=5),
    sizes=st.lists(st.floats(0.1, 10.0), min_size=5, max_size=5),
    scvs=st.lists(st.floats(0.0, 6.0), min_size=5, max_size=5),
    load=st.floats(0.1, 0.97),
)
def test_work_is_conserved_at_one_server(
    shares: list[float], sizes: list[float], scvs: list[float], load: float
) -> None:
    part = np.array(shares) / sum(shares) * load
    means = np.array(sizes[: len(shares)])
    services = [Moments(mean_s=mean, scv=scv) for mean, scv in zip(means, scvs, strict=False)]
    queue = priority((part / means).tolist(), services, 1)
    seconds = means**2 * (1.0 + np.array(scvs[: len(shares)]))
    assert part @ queue.mean_wait_s == pytest.approx(
        load * float((part / means) @ seconds) / 2.0 / (1.0 - load), rel=1e-9
    )


@settings(deadline=None, max_examples=30)
@given(
    shares=st.lists(st.floats(0.05, 1.0), min_size=2, max_size=5),
    scv=st.floats(0.0, 6.0),
    load=st.floats(0.3, 0.97),
    servers=st.integers(1, 64),
)
def test_of_alike_classes_the_more_important_never_waits_longer(
    shares: list[float], scv: float, load: float, servers: int
) -> None:
    part = np.array(shares) / sum(shares) * load * servers
    service = Moments(mean_s=1.0, scv=scv)
    queue = priority(part.tolist(), [service] * part.size, servers)
    plain = float(mgc(part.sum(), service, servers).mean_wait_s)
    assert np.all(np.diff(queue.mean_wait_s) >= -1e-9 * plain)
    assert queue.mean_wait_s[0] <= plain * (1.0 + 1e-6) <= queue.mean_wait_s[-1] * (1.0 + 2e-6)
    assert part @ queue.mean_wait_s == pytest.approx(part.sum() * plain, rel=0.08)


def test_lower_classes_may_overload_while_higher_ones_are_stable() -> None:
    queue = priority([1.8, 2.8, 1.0], [EXPONENTIAL] * 3, 4)
    assert queue.stable.tolist() == [True, False, False]
    assert queue.mean_wait_s[0] == pytest.approx(1.0 / 4.0 / (1.0 - 0.45), rel=1e-9)  # all servers are always busy
    assert np.isinf(queue.mean_wait_s[1:]).all() and np.isinf(queue.wait_quantile_s(0.5)[1:]).all()
    assert queue.overload is not None
    assert queue.overload.reason.startswith("class 2 of 3 sends 2.8 requests/s")
    assert "room for less than 2.2" in queue.overload.reason and "at least 5 servers" in queue.overload.reason


def test_an_overloaded_class_below_does_not_slow_a_preempting_one() -> None:
    kept = priority([1.8, 9.0], [EXPONENTIAL] * 2, 4, discipline="preemptive_resume")
    assert kept.mean_wait_s[0] == pytest.approx(float(mgc(1.8, EXPONENTIAL, 4).mean_wait_s), rel=1e-9)
    assert kept.stable.tolist() == [True, False]


def test_a_class_without_requests_changes_nothing_for_the_others() -> None:
    service = Moments(mean_s=1.0, scv=4.0)
    with_it = priority([3.0, 0.0, 3.0], [service] * 3, 8)
    without = priority([3.0, 3.0], [service] * 2, 8)
    assert with_it.mean_wait_s[[0, 2]].tolist() == pytest.approx(without.mean_wait_s.tolist(), rel=1e-9)
    assert with_it.mean_wait_s[0] < with_it.mean_wait_s[1] < with_it.mean_wait_s[2]
    assert priority([0.0, 0.0], [service] * 2, 8).mean_wait_s.tolist() == [0.0, 0.0]


def test_cases_broadcast_and_equal_single_calls() -> None:
    service = Moments(mean_s=[1.0, 2.0], scv=3.0)
    law = Law.from_atoms(np.array([0.5, 4.0]), np.array([0.8, 0.2]))
    queue = priority([1.0, [0.5, 1.0]], [service, law], [4, 8])
    for case, (rate, mean, servers) in enumerate([(0.5, 1.0, 4), (1.0, 2.0, 8)]):
        single = priority([1.0, rate], [Moments(mean_s=mean, scv=3.0), law], servers)
        assert queue.mean_wait_s[:, case].tolist() == pytest.approx(single.mean_wait_s.tolist(), rel=1e-12)
        assert queue.slowdown[:, case].tolist() == pytest.approx(single.slowdown.tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("rates", "services", "servers", "options", "message"),
    [
        ([], [], 2, {}, "one entry per class"),
        ([1.0], [EXPONENTIAL] * 2, 2, {}, "one entry per class"),
        ([1.0, float("nan")], [EXPONENTIAL] * 2, 2, {}, "rates_rps must be finite and at least 0"),
        ([1.0, -1.0], [EXPONENTIAL] * 2, 2, {}, "rates_rps must be finite and at least 0"),
        ([1.0], [EXPONENTIAL], 0, {}, "servers must be from 1 to 1,000,000"),
        ([1.0], [EXPONENTIAL], 1e7, {}, "servers must be from 1 to 1,000,000"),
        ([1.0], [EXPONENTIAL], 2, {"discipline": "lifo"}, "discipline must be 'non_preemptive' or"),
    ],
)
def test_bad_arguments_are_named(rates, services, servers, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        priority(rates, services, servers, **options)


@pytest.mark.parametrize("p", [0.0, 1.0, float("nan")])
def test_a_level_outside_its_range_is_named(p: float) -> None:
    with pytest.raises(ValueError, match="p must be between 0 and 1"):
        priority([1.0], [EXPONENTIAL], 2).wait_quantile_s(p)


@pytest.mark.parametrize("discipline", ["non_preemptive", "preemptive_resume"])
@pytest.mark.parametrize("which", ["development", "set_aside"])
def test_simulated_classes_lie_within_the_bands(discipline: str, which: str) -> None:
    cells = class_cells(discipline)
    cells = cells[(cells["set"] == which) & (cells["servers"] > 1)]
    assert len(cells) >= 20
    noise = cells["ci95_s"] / cells["mean_wait_s"]
    assert (cells["error"].abs() <= cells["band"] + noise).mean() >= 0.9
    assert cells["error"].abs().mean() <= 0.06
    assert cells["p_wait_error"].abs().mean() <= 0.03
    assert cells["completion_error"].abs().mean() <= 0.02
    assert cells["p95_error"].abs().mean() <= 0.16


@pytest.mark.slow
def test_an_independent_simulator_agrees() -> None:
    network = ciw.create_network(
        arrival_distributions={"high": [ciw.dists.Exponential(1.2)], "low": [ciw.dists.Exponential(1.2)]},
        service_distributions={"high": [ciw.dists.Deterministic(1.0)], "low": [ciw.dists.Gamma(0.5, 2.0)]},
        number_of_servers=[3],
        priority_classes={"high": 0, "low": 1},
    )
    waits: dict[str, list[float]] = {"high": [], "low": []}
    for seed in range(6):
        ciw.seed(seed)
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_time(6000.0)
        records = [item for item in simulation.get_all_records() if item.arrival_date > 500.0]
        for name, found in waits.items():
            found.append(float(np.mean([item.waiting_time for item in records if item.customer_class == name])))
    queue = priority([1.2, 1.2], [Moments(mean_s=1.0, scv=0.0), Moments(mean_s=1.0, scv=2.0, third=15.0)], 3)
    for index, name in enumerate(("high", "low")):
        mean, half = np.mean(waits[name]), 2.6 * np.std(waits[name], ddof=1) / np.sqrt(6)
        assert abs(queue.mean_wait_s[index] - mean) <= half + queue.band[index] * mean
