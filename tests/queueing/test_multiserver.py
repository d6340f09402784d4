"""M/G/c: exact special cases, reference queues, an independent simulator, properties and messages."""

from __future__ import annotations

import math

import ciw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from qmodel.queueing import Moments, erlang_c, mgc
from qmodel.queueing.servers.conditional_wait import (
    conditional_wait_quantile,
    conditional_wait_scv,
    conditional_wait_sf,
)
from qmodel.queueing.servers.halfin_whitt import halfin_whitt_weight, light_traffic_ratio, wait_ratio
from qmodel.queueing.servers.service_time import Service
from qmodel.types import Law
from tests.queueing.reference_queues import (
    reference_cells,
    relative_errors,
    service_of,
    simulated_cells,
    simulated_errors,
)

SECONDS = Law.from_atoms(np.array([0.5, 1.0, 4.0]), np.array([0.3, 0.5, 0.2]))


def test_exponential_service_is_mmc() -> None:
    servers = np.array([1, 2, 10, 100])
    load = 0.8
    queue = mgc(load * servers / 3.0, Moments(mean_s=3.0, scv=1.0), servers)
    delay = erlang_c(load * servers, servers)
    np.testing.assert_allclose(queue.p_wait, delay, rtol=1e-12)
    np.testing.assert_allclose(queue.mean_wait_s, delay * 3.0 / (servers * (1.0 - load)), rtol=1e-12)
    expected = np.maximum(np.log(delay / 0.05), 0.0) * 3.0 / (servers * (1.0 - load))
    np.testing.assert_allclose(queue.wait_quantile_s(0.95), expected, rtol=1e-9)
    assert np.all(queue.band == 0.0)


@pytest.mark.parametrize("service", [SECONDS, Moments(mean_s=2.0, scv=0.0), Moments(mean_s=0.3, scv=7.0)])
def test_one_server_is_pollaczek_khinchine(service: Law | Moments) -> None:
    shape = Service.of(service)
    mean, second = float(shape.mean_s), float(shape.mean_s**2 * (1.0 + shape.scv))
    rate = 0.7 / mean
    assert float(mgc(rate, service, 1).mean_wait_s) == pytest.approx(rate * second / (2.0 * 0.3), rel=1e-12)


def test_one_server_has_the_exact_second_moment_of_the_wait() -> None:
    first, second, third = SECONDS.moments
    rate = 0.6 / first
    queue = mgc(rate, SECONDS, 1)
    mean = rate * second / (2.0 * 0.4)
    square = 2.0 * mean**2 + rate * third / (3.0 * 0.4)  # Takacs
    delayed = square / 0.6
    assert float(queue.delayed_scv) == pytest.approx(delayed / (mean / 0.6) ** 2 - 1.0, rel=1e-12)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.8), (4, 0.9), (10, 0.9), (64, 0.8)])
def test_the_approximation_is_close_to_the_exact_wait(servers: int, load: float) -> None:
    for scv, least in ((0.0, 0.05), (0.5, 0.02), (2.0, 0.02), (4.0, 0.03), (10.0, 0.06)):
        service = Moments(mean_s=1.0, scv=scv)
        near, exact = (mgc(load * servers, service, servers, method=method) for method in ("approx", "exact"))
        assert float(near.mean_wait_s) == pytest.approx(float(exact.mean_wait_s), rel=least)
        assert float(near.p_wait) == pytest.approx(float(exact.p_wait), rel=0.025)


@pytest.mark.parametrize("servers", [1.0, 2.0, 2.5, 7.0, 64.0])
def test_light_traffic_ratio_of_atoms_matches_quadrature(servers: float) -> None:
    def remaining(t: float) -> float:
        return float(np.maximum(SECONDS.values - t, 0.0) @ SECONDS.weights) / SECONDS.mean

    area, _ = integrate.quad(lambda t: remaining(t) ** servers, 0.0, 4.0, points=[0.5, 1.0], epsrel=1e-11, epsabs=0.0)
    ratio = float(light_traffic_ratio(SECONDS.values, SECONDS.weights, servers))
    assert ratio == pytest.approx(servers * area / SECONDS.mean, rel=1e-8)


def test_interpolation_meets_both_limits() -> None:
    assert float(wait_ratio(8, 1.0 - 1e-12, 4.0, 3.0, 1.3)) == pytest.approx(2.5)
    assert float(wait_ratio(1e6, 0.1, 4.0, 3.0, 1.3)) == pytest.approx(1.3, abs=1e-4)
    assert float(halfin_whitt_weight(1, 0.2, 5.0)) == 1.0


@pytest.mark.parametrize(
    ("shape", "scv", "mean_error", "largest_error"),
    [
        ("exponential", 1.0, 1e-6, 1e-6),
        ("constant", 0.0, 0.015, 0.08),
        ("erlang2", 0.5, 0.01, 0.03),
        ("hyperexponential", 2.0, 0.01, 0.02),
        ("hyperexponential", 4.0, 0.015, 0.03),
        ("hyperexponential", 10.0, 0.025, 0.06),
    ],
)
def test_mean_wait_stays_within_the_documented_error(
    shape: str, scv: float, mean_error: float, largest_error: float
) -> None:
    cells = reference_cells()
    errors = relative_errors(cells[(cells["shape"] == shape) & (cells["scv"] == scv)])["mean_wait"].abs()
    assert errors.mean() <= mean_error
    assert errors.max() <= largest_error


@pytest.mark.parametrize(
    ("laws", "mean_error", "percentile_error"),
    [
        ("gamma", 0.015, 0.04),
        ("weibull", 0.015, 0.04),
        ("uniform", 0.015, 0.03),
        ("mix", 0.04, 0.03),
        ("lognormal", 0.03, 0.05),
        ("pareto", 0.045, 0.12),
    ],
)
def test_set_aside_laws_stay_within_the_documented_error(laws: str, mean_error: float, percentile_error: float) -> None:
    cells = simulated_cells("set_aside")
    errors = simulated_errors(cells[cells["law"].str.startswith(laws)])
    assert errors["mean_wait"].abs().mean() <= mean_error
    for column in ("wait_p95", "wait_p99"):
        assert errors[column].abs().mean() <= percentile_error


def test_nine_in_ten_set_aside_queues_lie_within_the_bands() -> None:
    errors = simulated_errors(simulated_cells("set_aside", widest_ci=0.06))
    assert np.mean(errors["mean_wait"].abs() <= errors["band"]) >= 0.9
    for column in ("wait_p90", "wait_p95", "wait_p99"):
        known = errors[column].notna()
        assert np.mean(errors[column].abs()[known] <= errors["percentile_band"][known]) >= 0.9


def test_wait_is_continuous_in_the_law() -> None:
    scv = np.array([0.99999, 1.0, 1.00001])
    queue = mgc(12.0, Moments(mean_s=1.0, scv=scv), 16)
    for value in (queue.mean_wait_s, queue.p_wait, queue.wait_quantile_s(0.95)):
        np.testing.assert_allclose(value, value[1], rtol=1e-3)
    lengths = service_of("lognormal", 1.0)
    spread = [Law.from_atoms(lengths.values + shift, lengths.weights) for shift in (-1e-6, 1e-6)]
    below, above = (float(mgc(12.0, law, 16).mean_wait_s) for law in spread)
    assert above == pytest.approx(below, rel=1e-4)


def test_survival_and_percentile_of_the_wait_are_inverse() -> None:
    for scv in (0.2, 1.0, 6.0):
        queue = mgc(7.0, Moments(mean_s=1.0, scv=scv), 8)
        assert float(queue.wait_survival(queue.wait_quantile_s(0.98))) == pytest.approx(0.02, rel=1e-8)
    assert float(queue.wait_survival(0.0)) == pytest.approx(float(queue.p_wait), rel=1e-12)
    assert float(mgc(9.0, Moments(mean_s=1.0, scv=1.0), 8).wait_survival(100.0)) == 1.0


@pytest.mark.parametrize(("scv", "third"), [(1.3, 9.0), (3.0, 40.0), (10.0, 500.0)])
def test_conditional_wait_has_the_third_moment_it_is_given(scv: float, third: float) -> None:
    time = np.concatenate([[0.0], np.geomspace(1e-6, 3000.0, 200_001)])
    survival = conditional_wait_sf(time, 1.0, scv, third)
    assert float(np.trapezoid(survival, time)) == pytest.approx(1.0, rel=1e-4)
    assert float(np.trapezoid(2.0 * time * survival, time)) == pytest.approx(1.0 + scv, rel=1e-3)
    assert float(np.trapezoid(3.0 * time**2 * survival, time)) == pytest.approx(third, rel=1e-3)


def simulated_wait_s(service: ciw.dists.Distribution, rate_rps: float, servers: int, seeds: int) -> tuple[float, float]:
    """Mean wait of an independent discrete-event simulator and the half width of its 99 % interval."""
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=rate_rps)],
        service_distributions=[service],
        number_of_servers=[servers],
    )
    means = []
    for seed in range(seeds):
        ciw.seed(seed)
        run = ciw.Simulation(network)
        run.simulate_until_max_time(5000.0 / rate_rps)
        waits = [record.waiting_time for record in run.get_all_records() if record.arrival_date > 500.0 / rate_rps]
        means.append(float(np.mean(waits)))
    return float(np.mean(means)), 2.9 * float(np.std(means, ddof=1)) / math.sqrt(seeds)


@pytest.mark.parametrize(
    ("service", "distribution", "servers"),
    [
        (Moments(mean_s=1.0, scv=1.0), ciw.dists.Exponential(rate=1.0), 2),
        (Moments(mean_s=1.0, scv=0.0), ciw.dists.Deterministic(value=1.0), 2),
        (
            Moments(mean_s=1.0, scv=4.0),
            ciw.dists.HyperExponential(
                rates=[1.0 + math.sqrt(0.6), 1.0 - math.sqrt(0.6)],
                probs=[(1.0 + math.sqrt(0.6)) / 2.0, (1.0 - math.sqrt(0.6)) / 2.0],
            ),
            4,
        ),
    ],
    ids=["M/M/2", "M/D/2", "M/H2/4"],
)
def test_an_independent_simulator_agrees(service: Moments, distribution: ciw.dists.Distribution, servers: int) -> None:
    rate = 0.7 * servers
    simulated, half_width = simulated_wait_s(distribution, rate, servers, seeds=12)
    predicted = float(mgc(rate, service, servers).mean_wait_s)
    assert half_width < 0.25 * simulated
    assert abs(predicted - simulated) <= half_width + 0.05 * simulated


@given(
    servers=st.integers(1, 300),
    load=st.floats(0.05, 0.95),
    scv=st.floats(0.0, 12.0),
    more=st.floats(0.001, 0.04),
)
def test_wait_rises_with_load_and_its_percentiles_are_ordered(
    servers: int, load: float, scv: float, more: float
) -> None:
    service = Moments(mean_s=1.0, scv=scv)
    queue = mgc(np.array([load, load + more]) * servers, service, servers)
    assert queue.mean_wait_s[0] <= queue.mean_wait_s[1]
    assert np.all((queue.p_wait >= 0.0) & (queue.p_wait <= 1.0))
    quantiles = np.array([queue.wait_quantile_s(p) for p in (0.5, 0.9, 0.95, 0.99)])
    assert np.all(np.diff(quantiles, axis=0) >= 0.0)
    assert np.all(np.diff(quantiles, axis=1) >= -1e-9 * quantiles[:, :1])


@given(load=st.floats(0.3, 0.95), servers=st.integers(2, 200), scale=st.floats(1e-3, 1e3), scv=st.floats(0.0, 8.0))
def test_time_has_no_unit_of_its_own(load: float, servers: int, scale: float, scv: float) -> None:
    one = mgc(load * servers, Moments(mean_s=1.0, scv=scv), servers)
    scaled = mgc(load * servers / scale, Moments(mean_s=scale, scv=scv), servers)
    assert float(scaled.mean_wait_s) == pytest.approx(scale * float(one.mean_wait_s), rel=1e-9)


@given(mean=st.floats(0.01, 100.0), scv=st.floats(0.31, 19.0), tail=st.floats(1e-9, 0.999))
def test_quantile_inverts_the_survival_function(mean: float, scv: float, tail: float) -> None:
    time = conditional_wait_quantile(tail, mean, scv)
    assert float(conditional_wait_sf(time, mean, scv)) == pytest.approx(tail, rel=1e-8)


@pytest.mark.parametrize("scv", [0.3, 0.8, 1.0, 2.0, 12.0])
def test_conditional_wait_has_the_mean_and_scv_it_is_given(scv: float) -> None:
    time = np.concatenate([[0.0], np.geomspace(1e-6, 3000.0, 200_001)])
    survival = conditional_wait_sf(time, 2.0, scv)
    assert float(np.trapezoid(survival, time)) == pytest.approx(2.0, rel=1e-4)
    assert float(np.trapezoid(2.0 * time * survival, time)) == pytest.approx(4.0 * (1.0 + scv), rel=1e-3)


def test_conditional_scv_stays_in_its_range() -> None:
    assert float(conditional_wait_scv(0.1, 500.0, 20.0, 0.9)) == 20.0
    assert float(conditional_wait_scv(0.0, 4.0 / 3.0, 0.5, 1.0)) >= 0.3


def test_percentile_is_zero_where_too_few_wait() -> None:
    assert float(mgc(1.0, Moments(mean_s=1.0, scv=1.0), 10).wait_quantile_s(0.9)) == 0.0


def test_no_arrivals_never_wait() -> None:
    queue = mgc(0.0, SECONDS, 4)
    assert float(queue.mean_wait_s) == 0.0 and float(queue.wait_quantile_s(0.999)) == 0.0


def test_overload_is_a_typed_result_with_a_way_out() -> None:
    queue = mgc([8.0, 12.0], Moments(mean_s=1.0, scv=2.0), 10)
    assert queue.stable.tolist() == [True, False]
    assert math.isfinite(queue.mean_wait_s[0]) and queue.mean_wait_s[1] == math.inf
    assert queue.wait_quantile_s(0.5)[1] == math.inf
    assert queue.overload is not None
    assert queue.overload.reason == (
        "12 requests/s arrive, 10 servers of 1 s each carry less than 10; at least 13 servers are needed"
    )
    assert mgc(8.0, Moments(mean_s=1.0, scv=2.0), 10).overload is None


def test_arguments_broadcast_with_moments() -> None:
    queue = mgc(
        np.array([1.0, 2.0])[:, None, None], Moments(mean_s=1.0, scv=np.array([0.5, 1.0, 4.0])), np.array([[4], [8]])
    )
    assert queue.mean_wait_s.shape == (2, 2, 3) == queue.band.shape == queue.wait_quantile_s(0.9).shape


def test_a_stated_third_moment_changes_the_wait_of_many_servers() -> None:
    light = mgc(12.0, Moments(mean_s=1.0, scv=4.0, third=40.0), 16)
    heavy = mgc(12.0, Moments(mean_s=1.0, scv=4.0, third=400.0), 16)
    assert float(heavy.mean_wait_s) < float(light.mean_wait_s)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mgc(-1.0, SECONDS, 2), r"rate_rps must be finite and at least 0 requests/s \(got -1.0\)"),
        (lambda: mgc(math.nan, SECONDS, 2), r"rate_rps must be finite"),
        (lambda: mgc(1.0, SECONDS, 0), r"servers must be from 1 to 1,000,000 \(got 0\)"),
        (lambda: mgc(1.0, SECONDS, 10_000_000), r"servers must be from 1 to 1,000,000 \(got 10000000\)"),
        (lambda: mgc(1.0, Moments(mean_s=0.0, scv=1.0), 2), r"service mean_s must be finite and above 0 s \(got 0.0\)"),
        (lambda: mgc(1.0, Moments(mean_s=1.0, scv=-0.1), 2), r"service scv must be finite and at least 0 \(got -0.1\)"),
        (lambda: mgc(1.0, Moments(mean_s=1.0, scv=1.0, third=1.0), 2), r"service third must be E\[S\^3\] in s\^3"),
        (lambda: mgc(1.0, Law.constant(0.0), 2), r"service must be a law of non-negative seconds"),
        (lambda: mgc(1.0, SECONDS, 2, method="best"), r"method must be 'approx', 'exact' or 'qbd' \(got 'best'\)"),  # type: ignore[call-overload]
        (lambda: mgc(1.0, SECONDS, 2).wait_survival(-1.0), r"wait_s must be at least 0 s \(got -1.0\)"),
        (
            lambda: mgc(1.0, Law(values=np.array([1.0]), weights=np.ones(1), moments=(1.0, math.inf, math.inf)), 2),
            r"service must have finite second and third moments \(got inf s\^2, inf s\^3\); cap its values",
        ),
        (lambda: mgc(1.0, SECONDS, 2).wait_quantile_s(95), r"p must be between 0 and 1, e.g. 0.95 \(got 95\)"),
    ],
)
def test_bad_input_is_named_with_its_range(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
