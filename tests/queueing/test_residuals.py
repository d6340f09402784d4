"""The shortest of k residual times: quadrature and closed forms as oracles, limits, and c* between its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from qmodel.queueing.servers.competing_residuals import competitors, wait_shape
from qmodel.queueing.servers.residuals import MomentResiduals, curve_of_atoms, curve_of_moments
from qmodel.types import Law

SECONDS = Law.from_atoms(np.array([0.5, 1.0, 4.0]), np.array([0.3, 0.5, 0.2]))
CURVE = curve_of_atoms(SECONDS.values, SECONDS.weights, SECONDS.moments)
GRID = 1e-3  # the curve is linear between its nodes


@pytest.mark.parametrize("count", [1.0, 1.5, 2.0, 7.0, 64.0])
def test_a_curve_of_atoms_matches_quadrature(count: float) -> None:
    def remaining(t: float) -> float:
        return float(np.maximum(SECONDS.values - t, 0.0) @ SECONDS.weights) / SECONDS.mean

    def moment(order: int) -> float:
        area, _ = integrate.quad(
            lambda t: order * t ** (order - 1) * remaining(t) ** count, 0.0, 4.0, points=[0.5, 1.0], limit=200
        )
        return area

    at = np.array(count)
    assert float(CURVE.ratio_at(at)) == pytest.approx(count * moment(1) / SECONDS.mean, rel=GRID)
    spread, third = CURVE.shape_at(at)
    assert float(spread) == pytest.approx(moment(2) / moment(1) ** 2, rel=3.0 * GRID)
    assert float(third) == pytest.approx(moment(3) / moment(1) ** 3, rel=5.0 * GRID)


@pytest.mark.parametrize(("scv", "count"), [(4.0, 2), (4.0, 5), (10.0, 3), (1.5, 8)])
def test_a_hyperexponential_matches_its_binomial_sum(scv: float, count: int) -> None:
    light = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))  # both phases carry half of the load
    fast, slow = 2.0 * light, 2.0 * (1.0 - light)
    expected = count * sum(math.comb(count, k) * 0.5**count / (k * fast + (count - k) * slow) for k in range(count + 1))
    nu = (1.0 / fast**2 + 1.0 / slow**2) / (0.5 / fast + 0.5 / slow) ** 2
    assert float(curve_of_moments(scv, nu).ratio_at(np.array(float(count)))) == pytest.approx(expected, rel=GRID)


def test_exponential_and_constant_service_have_closed_forms() -> None:
    count = np.array([1.0, 2.0, 10.0, 300.0])
    exponential, constant = curve_of_moments(1.0, 2.0), curve_of_moments(0.0, 4.0 / 3.0)
    assert np.all(exponential.ratio_at(count) == 1.0) and np.all(exponential.shape_at(count)[0] == 2.0)
    np.testing.assert_allclose(constant.ratio_at(count), count / (count + 1.0), rtol=GRID)
    np.testing.assert_allclose(constant.shape_at(count)[0], 2.0 * (count + 1.0) / (count + 2.0), rtol=GRID)


def test_moments_of_many_queues_give_the_numbers_of_each() -> None:
    scv, nu = np.array([0.0, 0.3, 1.0, 4.0, 9.0]), np.array([4.0 / 3.0, 1.6, 2.0, 3.2, 15.0])
    count = np.array([3.0, 5.5, 2.0, 1.3, 40.0])
    rows = MomentResiduals.of(scv, nu)
    for k in range(5):
        curve = curve_of_moments(float(scv[k]), float(nu[k]))
        assert rows.ratio_at(count)[k] == pytest.approx(float(curve.ratio_at(count[k])), rel=1e-12)
        for of_rows, of_curve in zip(rows.shape_at(count), curve.shape_at(count[k]), strict=True):
            assert of_rows[k] == pytest.approx(float(of_curve), rel=1e-12)


def test_the_tail_that_atoms_lack_is_in_the_first_point() -> None:
    wide = curve_of_atoms(SECONDS.values, SECONDS.weights, (SECONDS.mean, 5.0, 30.0))
    assert wide.ratio[0] == pytest.approx(5.0 / (2.0 * SECONDS.mean**2), rel=1e-12)
    assert float(wide.ratio_at(np.array(200.0))) == pytest.approx(float(CURVE.ratio_at(np.array(200.0))), rel=1e-3)


def test_competitors_go_from_all_servers_to_one() -> None:
    assert float(competitors(np.array(16.0), np.array(1e-9), CURVE)) == pytest.approx(16.0, rel=1e-6)
    assert float(competitors(np.array(16.0), np.array(1.0 - 1e-9), CURVE)) == pytest.approx(1.0, abs=1e-6)
    assert float(competitors(np.array(1.0), np.array(0.4), CURVE)) == 1.0


def test_the_wait_has_both_limits() -> None:
    heavy, light = (wait_shape(np.array(16.0), np.array(rho), CURVE) for rho in (1.0 - 1e-9, 1e-9))
    assert float(heavy.ratio) == pytest.approx((1.0 + SECONDS.scv) / 2.0, rel=1e-5)
    assert float(light.ratio) == pytest.approx(float(CURVE.ratio_at(np.array(16.0))), rel=1e-5)
    assert float(heavy.scv) == pytest.approx(1.0, abs=1e-3) and float(heavy.delay_factor) == pytest.approx(
        1.0, abs=1e-3
    )


@given(servers=st.floats(1.0, 500.0), load=st.floats(0.01, 0.95), more=st.floats(0.001, 0.04))
def test_more_load_leaves_fewer_competitors(servers: float, load: float, more: float) -> None:
    count = competitors(np.array(servers), np.array([load, load + more]), CURVE)
    assert 1.0 <= count[1] <= count[0] <= servers


@given(scv=st.floats(0.9, 1.1), servers=st.integers(2, 100), load=st.floats(0.3, 0.95))
def test_a_law_near_the_exponential_waits_nearly_like_it(scv: float, servers: int, load: float) -> None:
    nu = 2.0 + 2.0 * (scv - 1.0)
    shape = wait_shape(np.array(float(servers)), np.array(load), curve_of_moments(scv, nu))
    assert float(shape.ratio) == pytest.approx(1.0, abs=1.2 * abs(scv - 1.0) + 1e-9)
    assert float(shape.delay_factor) == pytest.approx(1.0, abs=0.2 * abs(scv - 1.0) + 1e-9)
