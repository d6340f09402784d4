"""Laws on grids and kernel mixtures against scipy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from qmodel.queueing.replica.percentiles import GridLaw, KernelLaw, delayed, wait_nodes
from qmodel.queueing.replica.work import bands
from qmodel.queueing.servers.conditional_wait import conditional_wait_on_grid, conditional_wait_sf


def kernels(*parts: tuple[float, float, float, float]) -> KernelLaw:
    weight, centre, spread, skew = (np.array([values]) for values in zip(*parts, strict=True))
    return KernelLaw(weight=weight, centre_s=centre, spread_s=spread, skew=skew)


@pytest.mark.parametrize("shape", [1.0, 4.0, 50.0])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_one_kernel_is_nearly_a_gamma_law(shape: float, p: float) -> None:
    law = kernels((1.0, 3.0, 3.0 / shape**0.5, 2.0 / shape**0.5))
    assert float(law.quantile(p)[0]) == pytest.approx(stats.gamma.ppf(p, shape, scale=3.0 / shape), rel=0.015)


def test_a_kernel_without_skew_is_normal() -> None:
    law = kernels((1.0, 10.0, 2.0, 1e-3))
    assert float(law.quantile(0.95)[0]) == pytest.approx(stats.norm.ppf(0.95, 10.0, 2.0), rel=1e-3)


def test_a_mixture_has_the_mean_and_the_quantile_of_its_parts() -> None:
    law = kernels((0.9, 1.0, 0.01, 1e-3), (0.1, 5.0, 0.01, 1e-3))
    assert float(law.mean_s[0]) == pytest.approx(1.4)
    assert float(law.quantile(0.5)[0]) == pytest.approx(1.0, rel=0.01)
    assert float(law.quantile(0.95)[0]) == pytest.approx(5.0, rel=0.01)


def test_a_wait_adds_its_exponential_tail() -> None:
    times = np.linspace(0.0, 0.011, 200)[None, :]
    delay = GridLaw(mean_s=np.array([0.01]), times_s=times, cdf=(times >= 0.01).astype(float))
    law = delayed(delay, np.array([0.2]), np.array([3.0]), np.array([1.0]))
    assert float(law.mean_s[0]) == pytest.approx(0.01 + 0.2 * 3.0)
    assert float(law.quantile(0.5)[0]) == pytest.approx(0.01, rel=0.02)
    assert float(law.quantile(0.99)[0]) == pytest.approx(0.01 + 3.0 * np.log(0.2 / 0.01), rel=0.01)


def test_no_wait_leaves_the_delay() -> None:
    times = np.linspace(0.0, 1.0, 50)[None, :]
    delay = GridLaw(mean_s=np.array([0.5]), times_s=times, cdf=times)
    law = delayed(delay, np.array([0.0]), np.array([0.0]), np.array([1.0]))
    assert float(law.quantile(0.9)[0]) == pytest.approx(0.9)


def test_quantiles_of_far_apart_kernels_lie_on_their_own_law() -> None:
    law = kernels((0.5, 0.02, 0.004, 0.4), (0.3, 1.0, 0.2, 1.0), (0.2, 300.0, 90.0, 2.0))
    for p in (0.1, 0.4, 0.7, 0.9, 0.99):
        found = law.quantile(p)
        assert float(law.cdf(found[:, None])[0, 0]) == pytest.approx(p, abs=1e-3)


def test_several_levels_are_found_as_each_alone() -> None:
    levels = (0.1, 0.5, 0.9, 0.95, 0.99)
    parts = ((0.5, 0.02, 0.004, 0.4), (0.3, 1.0, 0.2, 1.0), (0.2, 300.0, 90.0, 2.0))
    alone, many = kernels(*parts), kernels(*parts)
    rows = KernelLaw(
        weight=np.array([[0.5, 0.5, 0.0], [0.4, 0.3, 0.3]]),
        centre_s=np.repeat(many.centre_s, 2, axis=0),
        spread_s=np.repeat(many.spread_s, 2, axis=0),
        skew=np.repeat(many.skew, 2, axis=0),
        bounds_s=(np.array([0.1, 0.0]), np.array([1.2, np.inf])),
    )
    grid = GridLaw(mean_s=np.array([0.5]), times_s=np.linspace(0.0, 1.0, 50)[None], cdf=np.linspace(0.0, 1.0, 50)[None])
    for law in (alone, rows, replace(rows, bounds_s=None, plain=2), grid):
        together = law.quantiles(levels)
        np.testing.assert_allclose(together, np.column_stack([law.quantile(p) for p in levels]), rtol=1e-7)
        assert (np.diff(together, axis=1) >= 0.0).all()


@pytest.mark.parametrize("scv", [0.31, 0.6, 0.97, 1.0, 4.0])
@pytest.mark.parametrize("spacing", [0.003, 0.03, 3.0])
def test_a_wait_on_a_grid_is_the_law_of_the_wait(scv: float, spacing: float) -> None:
    points = 512
    law = conditional_wait_on_grid(np.array([spacing]), points, np.array([1.7]), np.array([scv]))[0]
    edges = (np.arange(points - 1) + 0.5) * spacing
    if scv < 1.0:
        below = stats.gamma.cdf(edges, 1.0 / scv, scale=1.7 * scv)
    else:
        below = 1.0 - conditional_wait_sf(edges, 1.7, scv)
    np.testing.assert_allclose(np.cumsum(law)[:-1], below, atol=2e-5)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)


def test_a_grid_is_read_as_numpy_interpolates() -> None:
    rng = np.random.default_rng(3)
    times, cdf = np.cumsum(rng.random((4, 30)), axis=1), np.cumsum(rng.random((4, 30)), axis=1)
    cdf /= cdf[:, -1:]
    law = GridLaw(mean_s=np.zeros(4), times_s=times, cdf=cdf)
    for p in (0.001, 0.3, 0.95, 0.9999):
        expected = [np.interp(p, cdf[case], times[case]) for case in range(4)]
        assert law.quantile(p) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scv", [0.4, 1.0, 4.0])
def test_wait_bands_keep_the_mean_and_most_of_the_spread(scv: float) -> None:
    share, mean, variance = wait_nodes(np.array([2.0]), np.array([scv]))
    assert share.sum() == pytest.approx(1.0)
    assert float(mean[0] @ share) == pytest.approx(2.0)
    second = float((mean[0] ** 2 + variance[0]) @ share)
    assert second - 4.0 == pytest.approx(4.0 * scv, rel=0.2)


def test_bands_keep_mean_and_variance() -> None:
    values = np.arange(1.0, 2001.0)
    weights = np.exp(-values / 300.0)
    weights /= weights.sum()
    mass, mean, within = bands(values, weights, 32)
    assert mass.size <= 32
    assert mass @ mean == pytest.approx(weights @ values)
    assert mass @ (mean**2 + within) == pytest.approx(weights @ values**2)


def test_a_single_atom_is_one_band_without_spread() -> None:
    mass, mean, within = bands(np.array([7.0]), np.array([1.0]))
    assert (mass.tolist(), mean.tolist(), within.tolist()) == ([1.0], [7.0], [0.0])
