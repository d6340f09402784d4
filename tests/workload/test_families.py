"""Length laws against closed forms, brute force and what must hold for any of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from qmodel.types import Law
from qmodel.workload import gamma_law, lognormal_law, mixture_law, normal_law, quantile_law

LEVELS = np.concatenate([np.linspace(0.5, 0.99, 50), [0.995, 0.999]])


def of_atoms(law: Law, power: int) -> float:
    return float(law.weights @ law.values**power)


@pytest.mark.parametrize(("mean", "cv"), [(300.0, 0.9), (1200.0, 1.1), (6000.0, 0.5)])
def test_lognormal_moments_are_those_of_the_textbook(mean: float, cv: float) -> None:
    law = lognormal_law(mean, cv)
    assert law.mean == pytest.approx(mean, rel=1e-5)
    assert law.moments[1] == pytest.approx(mean**2 * (1 + cv**2), rel=1e-4)
    assert law.moments[2] == pytest.approx(mean**3 * (1 + cv**2) ** 3, rel=1e-3)


@pytest.mark.parametrize(("mean", "cv"), [(50.0, 0.5), (300.0, 0.9), (1200.0, 1.1), (400.0, 1.5), (6000.0, 0.9)])
def test_upper_quantiles_of_a_lognormal_keep_half_a_per_cent(mean: float, cv: float) -> None:
    law = lognormal_law(mean, cv)
    sigma = math.sqrt(math.log1p(cv**2))
    exact = np.rint(np.exp(math.log(mean) - sigma**2 / 2 + sigma * stats.norm.ppf(LEVELS)))
    np.testing.assert_allclose([law.quantile(p) for p in LEVELS], exact, rtol=0.005)


@pytest.mark.parametrize(
    ("mean", "sd", "low", "high"),
    [(1024, 256, 64, 4096), (256, 128, 16, 2048), (512, 256, 32, 4096), (8192, 4096, 256, 32768)],
)
def test_clipped_normal_is_what_a_sampler_draws(mean: int, sd: int, low: int, high: int) -> None:
    law = normal_law(mean, sd, low, high)
    drawn = np.clip(np.rint(np.random.default_rng(7).normal(mean, sd, 1_000_000)), low, high)
    for power, moment in enumerate(law.moments, start=1):
        assert moment == pytest.approx(np.mean(drawn**power), rel=0.002)
    assert law.weights[0] == pytest.approx(np.mean(drawn == low), abs=5e-4)
    assert (law.values[0], law.maximum) == (low, min(high, law.maximum))


def test_gamma_with_cv_one_is_exponential() -> None:
    law = gamma_law(1000.0, 1.0)
    assert law.mean == pytest.approx(1000.0, rel=1e-3)
    assert law.survival(3000) == pytest.approx(math.exp(-3.0), rel=0.01)
    assert law.moments[2] == pytest.approx(6e9, rel=1e-3)


def test_reasoning_mixture_has_forty_five_per_cent_above_5000_tokens() -> None:
    parts = [{"weight": 0.584, "mu": 7.567, "sigma": 0.828}, {"weight": 0.416, "mu": 9.195, "sigma": 0.484}]
    law = mixture_law(parts, maximum=32768)
    assert law.mean == pytest.approx(6182, rel=0.005)
    assert law.scv == pytest.approx(0.83, rel=0.06)
    assert law.survival(5000) == pytest.approx(0.452, abs=0.01)
    above = stats.norm.sf((math.log(32768.5) - np.array([7.567, 9.195])) / np.array([0.828, 0.484]))
    assert law.capped_share == pytest.approx(float(np.array([0.584, 0.416]) @ above), rel=1e-6)
    assert law.maximum == 32768
    assert law.weights[-1] == pytest.approx(law.capped_share, rel=0.01)


def test_truncation_drops_what_an_atom_keeps() -> None:
    atom = lognormal_law(500, 1.0, maximum=1000)
    cut = lognormal_law(500, 1.0, maximum=1000, at_cap="truncate")
    assert cut.mean < atom.mean < 500
    assert cut.capped_share == 0.0
    np.testing.assert_allclose(cut.survival(300), (atom.survival(300) - atom.capped_share) / (1 - atom.capped_share))


def test_two_quantiles_make_a_lognormal() -> None:
    sigma = math.sqrt(math.log1p(0.81))
    mu = math.log(300) - sigma**2 / 2
    law = quantile_law({p: math.exp(mu + sigma * stats.norm.ppf(p)) for p in (0.5, 0.9)})
    for got, wanted in zip(law.moments, lognormal_law(300, 0.9).moments, strict=True):
        assert got == pytest.approx(wanted, rel=1e-6)


def test_law_through_quantiles_goes_through_them() -> None:
    wanted = {0.1: 287, 0.5: 792, 0.9: 3432, 0.95: 5701, 0.99: 12607, 0.999: 20833}
    law = quantile_law(wanted, maximum=32768)
    for level, tokens in wanted.items():
        assert law.quantile(level) == pytest.approx(tokens, rel=0.02 if level < 0.5 else 0.005)


def test_no_spread_is_a_constant_and_a_fraction_keeps_its_mean() -> None:
    assert lognormal_law(300, 0.0).values.tolist() == [300.0]
    law = lognormal_law(300.25, 0.0)
    assert law.values.tolist() == [300.0, 301.0]
    assert law.mean == 300.25


laws = st.one_of(
    st.builds(lognormal_law, st.floats(1, 50_000), st.floats(0.05, 3), maximum=st.none() | st.integers(1, 40_000)),
    st.builds(gamma_law, st.floats(1, 50_000), st.floats(0.05, 3), maximum=st.none() | st.integers(1, 40_000)),
    st.builds(normal_law, st.floats(1, 20_000), st.floats(0.5, 9_000), st.integers(1, 90), st.integers(90, 40_000)),
)


@settings(max_examples=60, deadline=None)
@given(law=laws)
def test_any_law_is_a_law_of_few_atoms_with_its_own_mean(law: Law) -> None:
    assert law.values.size <= 512
    assert np.all(np.diff(law.values) > 0)
    assert np.all(law.weights > 0)
    assert law.weights.sum() == pytest.approx(1.0)
    assert law.values[0] >= 1.0
    assert of_atoms(law, 1) == pytest.approx(law.mean, rel=1e-9)
    assert of_atoms(law, 2) <= law.moments[1] * (1 + 1e-9)  # merging can only lose spread
    assert of_atoms(law, 2) == pytest.approx(law.moments[1], rel=0.005)
    quantiles = [law.quantile(p) for p in np.linspace(0.01, 1.0, 40)]
    assert quantiles == sorted(quantiles)


@settings(max_examples=40, deadline=None)
@given(mean=st.floats(10, 20_000), cv=st.floats(0.1, 2.5), cap=st.integers(5, 40_000))
def test_a_cap_is_never_exceeded_and_says_how_much_it_cut(mean: float, cv: float, cap: int) -> None:
    free, law = lognormal_law(mean, cv), lognormal_law(mean, cv, maximum=cap)
    assert law.maximum <= cap
    assert law.mean <= free.mean * (1 + 1e-9)
    sigma = math.sqrt(math.log1p(cv**2))
    above = stats.norm.sf((math.log(cap + 0.5) - math.log(mean) + sigma**2 / 2) / sigma)
    assert law.capped_share == pytest.approx(above, rel=1e-6, abs=2e-9)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: lognormal_law(0.0, 1.0), r"mean: must be at least 1 \(got 0\)"),
        (lambda: lognormal_law(10.0, -1.0), r"cv: must be at least 0 \(got -1\)"),
        (lambda: lognormal_law(math.nan, 1.0), "mean: must be at least 1"),
        (lambda: normal_law(10.0, 1.0, 9, 5), r"min: must be at least 1 and at most max \(got 9, max 5\)"),
        (lambda: lognormal_law(50.0, 0.0, maximum=10, at_cap="truncate"), "nothing is left"),
        (lambda: mixture_law([]), "at least one component"),
        (lambda: mixture_law([{"weight": 0.5, "mu": 5.0, "sigma": 1.0}]), r"sum to 1 \(got 0.5\)"),
        (lambda: mixture_law([{"weight": 1.0, "mean": 5.0}]), r"mixture\[0\]: needs mu and sigma, or mean and cv"),
        (lambda: quantile_law({0.5: 100}), "at least two levels"),
        (lambda: quantile_law({0.5: 100, 0.9: 90}), "rise with the level"),
        (lambda: quantile_law({0.0: 1, 0.9: 90}), "between 0 and 1"),
    ],
)
def test_bad_arguments_are_named(call: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()  # type: ignore[operator]
