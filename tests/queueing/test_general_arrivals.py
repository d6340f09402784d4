"""G/G/c: limits, textbook values, exact solutions and simulated queues."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.queueing import Moments, ggc, mgc
from qmodel.types import Burst, Law
from qmodel.workload.arrival_processes import Batches, HyperexponentialRenewal, Regular, TwoRates
from tests.queueing.bursty_cells import bursty_cells, relative_errors
from tests.queueing.exact_bursty import modulated_wait, renewal_wait

EXPONENTIAL = Moments(mean_s=1.0, scv=1.0)
FIELDS = ("utilisation", "stable", "p_wait", "mean_wait_s", "mean_delayed_s", "delayed_scv")


@pytest.mark.parametrize("service", [EXPONENTIAL, Moments(mean_s=2.0, scv=4.0), Law.constant(0.5)])
@pytest.mark.parametrize("arrivals", [{}, {"burst": None}, {"arrival_scv": 1.0}, {"peakedness": 1.0}])
def test_poisson_arrivals_give_exactly_the_mgc_result(service: Moments | Law, arrivals: dict[str, float]) -> None:
    rate, servers = np.array([[0.0], [1.0], [3.0], [9.0]]), np.array([1, 4, 16])
    plain, general = mgc(rate, service, servers), ggc(rate, service, servers, **arrivals)  # type: ignore[arg-type]
    for field in FIELDS:
        np.testing.assert_allclose(getattr(general, field), getattr(plain, field), rtol=1e-9, atol=1e-300)


def test_an_exponential_on_off_source_is_a_hyperexponential_renewal_process() -> None:
    renewal = HyperexponentialRenewal(scv=4.0).burst(6.0)
    variance = 3.0 / 5.0
    on = 1.0 / (1.0 + variance)
    decay = 2.0 * 6.0 / 5.0
    switched = TwoRates.on_off(mean_on_s=1.0 / (decay * (1.0 - on)), mean_off_s=1.0 / (decay * on)).burst(6.0)
    assert renewal is not None and switched is not None
    for one, other in zip(
        (*renewal.excess, *renewal.decay_per_s, renewal.skew[0]),
        (*switched.excess, *switched.decay_per_s, switched.skew[0]),
        strict=True,
    ):
        assert one == pytest.approx(other)


@pytest.mark.parametrize("utilisation", [0.5, 0.7, 0.9])
def test_one_exponential_server_behind_hyperexponential_gaps_is_exact(utilisation: float) -> None:
    """GI/M/1: P(wait) is the root sigma of sigma = f(1 - sigma), the mean wait sigma / (1 - sigma)."""
    light = 0.5 * (1.0 + math.sqrt(3.0 / 5.0))

    def gap(s: float) -> float:
        fast, slow = 2.0 * light * utilisation, 2.0 * (1.0 - light) * utilisation
        return light * fast / (fast + s) + (1.0 - light) * slow / (slow + s)

    p_wait, mean_wait = renewal_wait(gap, 1)
    queue = ggc(utilisation, EXPONENTIAL, 1, burst=HyperexponentialRenewal(scv=4.0).burst(utilisation))
    assert float(queue.p_wait) == pytest.approx(p_wait, rel=1e-6)
    assert float(queue.mean_wait_s) == pytest.approx(mean_wait, rel=1e-6)


@pytest.mark.parametrize("scv", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("utilisation", [0.3, 0.7, 0.9])
def test_one_server_behind_poisson_batches_has_the_exact_mean_wait(scv: float, utilisation: float) -> None:
    """M^X/G/1: E[W] = (rho (1 + scv)/2 + (E[X^2]/E[X] - 1)/2) E[S] / (1 - rho)."""
    queue = ggc(utilisation, Moments(mean_s=1.0, scv=scv), 1, burst=Batches.geometric(3.0).burst(utilisation))
    exact = (utilisation * (1.0 + scv) / 2.0 + 4.0 / 2.0) / (1.0 - utilisation)
    assert float(queue.mean_wait_s) == pytest.approx(exact, rel=1e-3)


def test_the_exact_oracles_agree_where_both_hold() -> None:
    """Hyperexponential gaps are an on-off source; equal rates are Poisson."""
    on, decay, rate = 1.0 / 1.6, 2.0 * 3.2 / 5.0, 3.2
    switched = modulated_wait((rate / on, 0.0), (decay * (1.0 - on), decay * on), 4)
    light = 0.5 * (1.0 + math.sqrt(3.0 / 5.0))

    def gap(s: float) -> float:
        fast, slow = 2.0 * light * rate, 2.0 * (1.0 - light) * rate
        return light * fast / (fast + s) + (1.0 - light) * slow / (slow + s)

    assert switched == pytest.approx(renewal_wait(gap, 4), rel=1e-8)
    poisson = mgc(3.2, EXPONENTIAL, 4)
    expected = (float(poisson.p_wait), float(poisson.mean_wait_s))
    assert modulated_wait((3.2, 3.2), (0.3, 0.7), 4) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("servers", "utilisation"), [(2, 0.7), (2, 0.9), (8, 0.7), (8, 0.9), (32, 0.9)])
def test_evenly_spaced_arrivals_at_exponential_servers_are_near_the_closed_form(
    servers: int, utilisation: float
) -> None:
    """D/M/c."""
    rate = servers * utilisation
    p_wait, mean_wait = renewal_wait(lambda s: math.exp(-s / rate), servers)
    queue = ggc(rate, EXPONENTIAL, servers, burst=Regular().burst(rate))
    assert float(queue.p_wait) == pytest.approx(p_wait, rel=0.12)
    assert float(queue.mean_wait_s) == pytest.approx(mean_wait, rel=0.18)


@pytest.mark.parametrize("scv", [0.25, 0.5, 2.0, 4.0])
@pytest.mark.parametrize(
    ("servers", "utilisation"), [(4, 0.7), (4, 0.95), (16, 0.7), (16, 0.95), (64, 0.8), (64, 0.95)]
)
def test_gamma_gaps_at_exponential_servers_are_within_a_tenth_of_exact(
    scv: float, servers: int, utilisation: float
) -> None:
    rate = servers * utilisation
    p_wait, mean_wait = renewal_wait(lambda s: (1.0 + s * scv / rate) ** (-1.0 / scv), servers)
    queue = ggc(rate, EXPONENTIAL, servers, arrival_scv=scv)
    assert float(queue.p_wait) == pytest.approx(p_wait, rel=0.10)
    assert float(queue.mean_wait_s) == pytest.approx(mean_wait, rel=0.10)


@pytest.mark.parametrize("servers", [4, 16, 64])
@pytest.mark.parametrize(("swing", "stay"), [(0.2, 2.0), (0.3, 1.0), (0.4, 0.5)])
def test_two_rates_at_exponential_servers_are_within_a_fifth_of_exact(servers: int, swing: float, stay: float) -> None:
    rate = 0.85 * servers
    low, high = rate * (1.0 - swing), rate * (1.0 + swing)
    p_wait, mean_wait = modulated_wait((low, high), (1.0 / stay, 1.0 / stay), servers)
    burst = TwoRates(rates=(low, high), mean_stay_s=(stay, stay)).burst(rate)
    queue = ggc(rate, EXPONENTIAL, servers, burst=burst)
    assert float(queue.p_wait) == pytest.approx(p_wait, rel=0.20)
    assert float(queue.mean_wait_s) == pytest.approx(mean_wait, rel=0.20)


def test_simulated_queues_that_were_set_aside_lie_within_the_band() -> None:
    cells = bursty_cells()
    errors = relative_errors(cells[(cells["set"] == "aside") & (cells["group"] == "moderate")])
    assert errors["mean_wait"].abs().quantile(0.9) < 0.12
    assert errors["p_wait"].abs().quantile(0.9) < 0.10
    for column in ("p90", "p95", "p99"):
        assert errors[column].abs().quantile(0.9) < 0.15


@pytest.mark.slow
def test_moderate_bursts_at_four_and_more_servers_are_within_three_tenths() -> None:
    cells = bursty_cells()
    usual = cells["arrivals"].isin(["gamma", "h2", "geom", "mmpp"])
    cells = cells[(cells["group"] == "moderate") & (cells["servers"] >= 4) & usual]
    assert relative_errors(cells)["mean_wait"].abs().max() < 0.30


@given(
    excess=st.floats(0.01, 20.0),
    more=st.floats(1.01, 3.0),
    decay=st.one_of(st.floats(0.01, 100.0), st.just(math.inf)),
    servers=st.integers(1, 200),
    utilisation=st.floats(0.3, 0.98),
    scv=st.floats(0.0, 6.0),
)
@settings(max_examples=60, deadline=None)
def test_more_excess_never_waits_less(
    excess: float, more: float, decay: float, servers: int, utilisation: float, scv: float
) -> None:
    service = Moments(mean_s=1.0, scv=scv)
    rate = servers * utilisation
    poisson = ggc(rate, service, servers)
    less, greater = (
        ggc(rate, service, servers, burst=Burst(excess=(size,), decay_per_s=(decay,)))
        for size in (excess, more * excess)
    )
    assert float(less.mean_wait_s) >= float(poisson.mean_wait_s) * (1.0 - 1e-9)
    assert float(greater.mean_wait_s) >= float(less.mean_wait_s) * (1.0 - 1e-9)


def test_thinning_leads_back_to_poisson() -> None:
    burst = Burst(excess=(5.0, 2.0), decay_per_s=(0.2, math.inf))
    waits = [float(ggc(14.0, EXPONENTIAL, 16, burst=burst.thinned(share)).mean_wait_s) for share in (1.0, 0.1, 1e-6)]
    poisson = float(mgc(14.0, EXPONENTIAL, 16).mean_wait_s)
    assert waits[0] > waits[1] > poisson
    assert waits[2] == pytest.approx(poisson, rel=1e-4)


def test_arguments_broadcast_and_agree_with_single_calls() -> None:
    rate, servers, scv = np.array([[2.0], [3.5]]), np.array([4, 8, 64]), np.array([[[0.0]], [[0.3]], [[1.0]], [[5.0]]])
    service = Moments(mean_s=1.0, scv=2.0)
    whole = ggc(rate, service, servers, arrival_scv=scv)
    assert np.shape(whole.mean_wait_s) == (4, 2, 3)
    one = ggc(3.5, service, 4, arrival_scv=5.0)
    assert float(whole.mean_wait_s[3, 1, 0]) == pytest.approx(float(one.mean_wait_s), rel=1e-9)
    assert float(whole.wait_quantile_s(0.95)[3, 1, 0]) == pytest.approx(float(one.wait_quantile_s(0.95)), rel=1e-9)
    peaked = ggc(rate, service, servers, peakedness=np.array([0.6, 1.0, 3.0]))
    assert np.shape(peaked.p_wait) == (2, 3)


def test_an_overloaded_queue_is_a_typed_result() -> None:
    queue = ggc(np.array([3.0, 5.0]), EXPONENTIAL, 4, arrival_scv=2.0)
    assert queue.stable.tolist() == [True, False]
    assert float(queue.p_wait[1]) == 1.0
    assert float(queue.mean_wait_s[1]) == math.inf
    assert queue.overload is not None and queue.overload.value == 5.0


def test_no_arrivals_never_wait() -> None:
    queue = ggc(0.0, EXPONENTIAL, 4, arrival_scv=3.0)
    assert float(queue.p_wait) == 0.0
    assert float(queue.mean_wait_s) == 0.0


def test_evenly_spaced_arrivals_at_constant_servers_hardly_wait() -> None:
    queue = ggc(3.0, Moments(mean_s=1.0, scv=0.0), 4, arrival_scv=0.0)
    assert 0.0 <= float(queue.mean_wait_s) < 1e-3


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        ({"arrival_scv": -1.0}, "arrival_scv must be from 0"),
        ({"arrival_scv": math.nan}, "arrival_scv must be from 0"),
        ({"peakedness": 0.0}, "peakedness must be finite and above 0"),
        ({"peakedness": math.inf}, "peakedness must be finite and above 0"),
        ({"peakedness": 2.0, "arrival_scv": 2.0}, "give one of burst, peakedness and arrival_scv"),
    ],
)
def test_bad_arrivals_are_refused(arrivals: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ggc(3.0, EXPONENTIAL, 4, **arrivals)  # type: ignore[arg-type]
