"""Peakedness of a burst for a law of residence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from qmodel.queueing import Moments, burst_peakedness
from qmodel.queueing.arrivals.peakedness import residence_weight
from qmodel.types import Burst, Law
from qmodel.workload import lognormal_law
from qmodel.workload.arrival_processes import TwoRates
from qmodel.workload.burstiness import peakedness

DECAYS = np.array([1e-3, 0.1, 1.0, 7.0, math.inf])


def test_exponential_residence_shows_half_of_d_over_d_plus_mu() -> None:
    found = residence_weight(DECAYS, Moments(mean_s=2.0, scv=1.0))
    np.testing.assert_allclose(found, 0.5 / (1.0 + 0.5 / DECAYS), rtol=1e-12)


def test_constant_residence_shows_the_index_of_dispersion_of_its_window() -> None:
    burst = Burst(excess=(2.0, -0.3, 1.0), decay_per_s=(0.5, 3.0, math.inf))
    for window in (0.01, 1.0, 50.0):
        assert float(burst_peakedness(burst, Law.constant(window))) == pytest.approx(float(burst.dispersion(window)))
        assert float(burst_peakedness(burst, Moments(mean_s=window, scv=0.0))) == pytest.approx(
            float(burst.dispersion(window)), rel=1e-6
        )


def test_a_law_of_atoms_agrees_with_the_double_integral() -> None:
    law = Law.from_atoms(np.array([0.5, 1.0, 4.0]), np.array([0.2, 0.5, 0.3]))
    decay = 0.7

    def inner(u: float) -> float:
        edges = [0.5, 1.0]
        value, _ = integrate.quad(lambda v: math.exp(-decay * (u - v)) * law.survival(v), 0.0, u, points=edges)
        return value * law.survival(u)

    total, _ = integrate.quad(inner, 0.0, 4.0, points=[0.5, 1.0], limit=200)
    assert float(residence_weight(decay, law)) == pytest.approx(decay * total / law.mean, rel=1e-6)


@pytest.mark.parametrize("scv", [0.2, 0.5, 1.0, 3.0])
def test_moments_agree_with_a_fine_law_of_the_same_shape(scv: float) -> None:
    """The stand-in of moments: gamma up to scv 1, two phases above."""
    share = (np.arange(4000) + 0.5) / 4000
    if scv <= 1.0:
        values = special.gammaincinv(1.0 / scv, share) * scv
    else:
        light = 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0)))
        grid = np.linspace(0.0, 80.0, 400_001)
        survival = light * np.exp(-2.0 * light * grid) + (1.0 - light) * np.exp(-2.0 * (1.0 - light) * grid)
        values = np.interp(share, 1.0 - survival, grid)
    law = Law.from_atoms(values, np.ones(values.size))
    np.testing.assert_allclose(
        residence_weight(DECAYS, Moments(mean_s=1.0, scv=scv)), residence_weight(DECAYS, law), rtol=5e-3
    )


def test_many_scales_agree_with_one_at_a_time() -> None:
    law, burst = lognormal_law(300.0, 1.2), Burst(excess=(3.0, 1.0), decay_per_s=(0.1, math.inf))
    scales = np.geomspace(1e-5, 10.0, 300)
    together = burst_peakedness(burst, law, s_per_unit=scales)
    alone = [float(burst_peakedness(burst, law, s_per_unit=float(scale))) for scale in scales]
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_shapes_follow_the_arguments() -> None:
    burst = Burst(excess=(3.0,), decay_per_s=(0.1,))
    moments = Moments(mean_s=np.ones((2, 1)), scv=np.array([0.5, 1.0, 4.0]))
    assert burst_peakedness(burst, moments).shape == (2, 3)
    assert burst_peakedness(None, moments, s_per_unit=np.ones((4, 1, 1))).shape == (4, 2, 3)
    assert burst_peakedness(burst, Law.constant(3.0)).shape == ()


def test_poisson_arrivals_have_peakedness_one() -> None:
    assert burst_peakedness(None, Law.constant(3.0), s_per_unit=np.array([1.0, 2.0])).tolist() == [1.0, 1.0]


@given(decay=st.floats(1e-4, 1e4), faster=st.floats(1.01, 100.0), spread=st.floats(0.1, 3.0))
@settings(max_examples=20, deadline=None)
def test_weights_rise_with_the_decay_and_stay_below_one(decay: float, faster: float, spread: float) -> None:
    law = lognormal_law(100.0, spread)
    slow, fast = (float(residence_weight(value, law)) for value in (decay, decay * faster))
    assert 0.0 <= slow <= fast * (1.0 + 1e-9) < 1.0


def test_drawn_arrivals_have_the_predicted_peakedness() -> None:
    rng = np.random.default_rng(8)
    process = TwoRates(rates=(1.0, 5.0), mean_stay_s=(4.0, 2.0))
    arrivals = process.draw(rng, 300_000, 10.0)
    holds = rng.exponential(3.0, arrivals.size)
    predicted = float(burst_peakedness(process.burst(10.0), Moments(mean_s=3.0, scv=1.0)))
    assert peakedness(arrivals, holds) == pytest.approx(predicted, rel=0.05)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_that_is_not_above_zero_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="s_per_unit must be finite and above 0"):
        burst_peakedness(Burst(excess=(1.0,), decay_per_s=(1.0,)), Law.constant(1.0), s_per_unit=scale)


def test_a_law_without_a_mean_and_a_decay_of_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="residence must be a law of non-negative times with a positive mean"):
        residence_weight(1.0, Law.constant(0.0))
    with pytest.raises(ValueError, match="decay_per_s must be above 0"):
        residence_weight(0.0, Law.constant(1.0))
