"""Demand that changes: offered load, agreement with the settled queue, fluid limits, replays and recorded traces."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qmodel.queueing import Moments, ggc, modified_offered_load, recorded_demand, time_varying
from qmodel.queueing.arrivals.offered_load import mean_offered_load
from qmodel.trace import read_trace
from qmodel.types import Burst, Law
from tests.queueing.slot_engine import slot_waits

EXPONENTIAL = Law.from_atoms(-np.log1p(-(np.arange(400) + 0.5) / 400), np.ones(400))


def drawn(rates: np.ndarray, window_s: float, rng: np.random.Generator) -> np.ndarray:
    """Poisson arrivals at rates that change from window to window."""
    return np.concatenate(
        [
            np.sort(rng.uniform(index * window_s, (index + 1) * window_s, rng.poisson(rate * window_s)))
            for index, rate in enumerate(rates)
        ]
    )


def test_the_offered_load_of_a_step_rises_as_service_times_pass() -> None:
    """M(t)/M/infinity after a step: m = a (1 - exp(-t / E[S]))."""
    times = np.array([0.0, 0.5, 1.0, 3.0])
    load = modified_offered_load([0.0, 8.0], 10.0, EXPONENTIAL, 10.0 + times)
    np.testing.assert_allclose(load, 8.0 * EXPONENTIAL.mean * (1.0 - np.exp(-times)), rtol=0.02, atol=0.02)


def test_a_constant_rate_has_a_constant_load_whatever_the_windows() -> None:
    load = modified_offered_load(np.full(7, 3.0), 0.3, EXPONENTIAL, np.linspace(0.0, 2.1, 9))
    np.testing.assert_allclose(load, 3.0 * EXPONENTIAL.mean, rtol=1e-9)


def test_the_mean_load_of_an_interval_is_the_mean_of_its_points() -> None:
    rates, means = np.array([1.0, 9.0, 0.0, 4.0]), np.array([1.0, 0.5, 2.0, 3.0])
    edges = np.linspace(0.0, 8.0, 17)
    found = mean_offered_load(rates, 2.0, EXPONENTIAL, edges, mean_service_s=means)
    middle = ((np.arange(400) + 0.5) / 400)[None, :] * np.diff(edges)[:, None] + edges[:-1, None]
    points = modified_offered_load(rates, 2.0, EXPONENTIAL, middle.ravel(), mean_service_s=means)
    np.testing.assert_allclose(found, points.reshape(middle.shape).mean(axis=1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("servers", [1, 10, 100])
@pytest.mark.parametrize("utilisation", [0.6, 0.9])
@pytest.mark.parametrize("burst", [None, Burst(excess=(2.0,), decay_per_s=(1.0,))])
def test_a_constant_rate_settles_into_the_ggc_queue(servers: int, utilisation: float, burst: Burst | None) -> None:
    rate = servers * utilisation / EXPONENTIAL.mean
    varying = time_varying(np.full(4, rate), 2000.0, EXPONENTIAL, servers, burst=burst)
    scv = EXPONENTIAL.scv
    shape = Moments(mean_s=EXPONENTIAL.mean, scv=scv, third=EXPONENTIAL.moments[2])
    settled = ggc(rate, shape, servers, burst=burst)
    assert varying.overall_p_wait == pytest.approx(float(settled.p_wait), rel=0.02)
    assert varying.overall_mean_wait_s == pytest.approx(float(settled.mean_wait_s), rel=0.03)


def test_long_overload_is_the_fluid_backlog() -> None:
    """10 % beyond capacity for 1000 service times: the wait ends at 100 and is 50 on average."""
    result = time_varying([50.0, 110.0], 1000.0, Law.constant(1.0), 100)
    assert result.p_wait[0] < 1e-6
    assert result.p_wait[1] > 0.97
    assert result.mean_wait_s[1] == pytest.approx(50.0, rel=0.05)
    assert result.window_wait_quantile_s(0.99)[1] == pytest.approx(99.0, rel=0.15)


@pytest.mark.parametrize(
    ("rates", "window_s", "servers"),
    [
        ([4.0, 11.0, 4.0], 60.0, 10),
        ([14.0, 19.0, 21.0, 18.0, 12.0], 20.0, 20),
        ([2.0, 6.0, 2.0, 6.0], 5.0, 5),
    ],
)
def test_simulated_rush_hours_agree(rates: list[float], window_s: float, servers: int) -> None:
    """200 replays of the same rates with fresh arrivals, started in the steady state of the first window."""
    rng = np.random.default_rng(11)
    before = 4
    whole = np.array([rates[0]] * before + rates)
    waits, places = [], []
    for _ in range(200):
        arrivals = drawn(whole, window_s, rng)
        waits.append(slot_waits(arrivals, rng.exponential(1.0, arrivals.size), servers))
        places.append((arrivals / window_s).astype(int) - before)
    wait, place = np.concatenate(waits), np.concatenate(places)
    result = time_varying(rates, window_s, EXPONENTIAL, servers)
    inside = place >= 0
    assert result.overall_p_wait == pytest.approx((wait[inside] > 0).mean(), abs=0.04)
    assert result.overall_mean_wait_s == pytest.approx(wait[inside].mean(), rel=0.18)
    assert result.wait_quantile_s(0.95) == pytest.approx(np.quantile(wait[inside], 0.95), rel=0.15)
    busiest = int(np.argmax(rates))
    assert result.mean_wait_s[busiest] == pytest.approx(wait[place == busiest].mean(), rel=0.20)


def test_a_repeated_day_carries_its_evening_backlog_into_the_morning() -> None:
    rates = [8.0, 5.0, 5.0, 13.0]
    once = time_varying(rates, 100.0, EXPONENTIAL, 10)
    daily = time_varying(rates, 100.0, EXPONENTIAL, 10, start="repeat")
    assert daily.mean_wait_s[0] > 10.0 * once.mean_wait_s[0]
    assert daily.overload is None


def test_a_repeated_day_with_too_much_work_is_a_typed_overload() -> None:
    result = time_varying([8.0, 15.0], 100.0, Law.constant(1.0), 10, start="repeat")
    assert result.overload is not None
    assert result.overload.limit == 10.0
    assert result.overall_mean_wait_s == math.inf
    assert result.wait_quantile_s(0.5) == math.inf


def test_more_servers_wait_less_and_bursts_wait_more() -> None:
    rates = [10.0, 19.0, 24.0, 12.0]
    waits = [time_varying(rates, 30.0, EXPONENTIAL, servers).overall_mean_wait_s for servers in (20, 22, 25, 30)]
    assert waits == sorted(waits, reverse=True)
    bursty = time_varying(rates, 30.0, EXPONENTIAL, 25, peakedness=3.0).overall_mean_wait_s
    assert bursty > waits[2]


def test_recorded_totals_vary_less_than_expected_ones() -> None:
    rates = np.full(50, 18.0)
    expected = time_varying(rates, 5.0, EXPONENTIAL, 20).overall_mean_wait_s
    recorded = time_varying(rates, 5.0, EXPONENTIAL, 20, totals="recorded").overall_mean_wait_s
    assert recorded < expected


def test_larger_requests_in_the_rush_wait_longer_than_smaller_ones() -> None:
    rates, mean = [5.0, 8.0, 5.0], float(EXPONENTIAL.mean)
    larger = time_varying(rates, 50.0, EXPONENTIAL, 10, mean_service_s=[mean, 1.3 * mean, mean])
    smaller = time_varying(rates, 50.0, EXPONENTIAL, 10, mean_service_s=[mean, 0.8 * mean, mean])
    assert larger.overall_mean_wait_s > 5.0 * smaller.overall_mean_wait_s


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "counts"),
    [("azure_2023_conv.csv.gz", (34, 31, 28, 26)), ("mooncake_fast25_conversation.csv.gz", (39, 35, 32, 30))],
)
def test_replays_of_recorded_hours_are_predicted(name: str, counts: tuple[int, ...]) -> None:
    """20 ms a generated token and 0.1 ms a prompt token in slots: P(wait) within 0.03, the mean wait within 40 %."""
    trace = read_trace(f"scenarios/data/{name}", spread=True)
    assert trace.arrival_s is not None
    holds = 0.02 * trace.output_tokens + 1e-4 * trace.prompt_tokens
    demand = recorded_demand(trace.arrival_s, holds)
    kept = trace.arrival_s > 5.0 * holds.mean()
    for servers in counts:
        waits = slot_waits(trace.arrival_s, holds, servers)[kept]
        found = time_varying(
            demand.rates_rps,
            demand.window_s,
            demand.service,
            servers,
            mean_service_s=demand.mean_service_s,
            peakedness=demand.peakedness,
            totals="recorded",
        )
        assert found.overall_p_wait == pytest.approx((waits > 1e-9).mean(), abs=0.03)
        assert found.overall_mean_wait_s == pytest.approx(waits.mean(), rel=0.40)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rates_rps": [1.0, -1.0]}, "rates_rps must be a list of finite rates"),
        ({"rates_rps": [0.0, 0.0]}, "rates_rps must be a list of finite rates"),
        ({"window_s": 0.0}, "window_s must be finite and above 0 s"),
        ({"servers": 0}, "servers must be from 1 to"),
        ({"servers": 1e7}, "servers must be from 1 to"),
        ({"peakedness": math.nan}, "peakedness must be finite and above 0"),
        ({"mean_service_s": [1.0]}, "mean_service_s must have one finite time"),
        ({"totals": "counted"}, "totals must be 'expected' or 'recorded'"),
        ({"start": "empty"}, "start must be 'steady' or 'repeat'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    usual: dict[str, object] = {"rates_rps": [1.0, 2.0], "window_s": 10.0, "service": EXPONENTIAL, "servers": 4}
    with pytest.raises(ValueError, match=message):
        time_varying(**(usual | arguments))  # type: ignore[arg-type]
