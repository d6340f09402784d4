"""Phase-type service: moments, fits, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, linalg

from qmodel.queueing import Moments, PhaseType, mgc


def test_moments_match_the_density() -> None:
    service = PhaseType(initial=(0.6, 0.4), generator=((-3.0, 1.0), (0.5, -1.0)))

    def survival(t: float) -> float:
        return float(np.array(service.initial) @ linalg.expm(np.array(service.generator) * t) @ np.ones(2))

    for order, moment in enumerate(service.moments, start=1):
        area, _ = integrate.quad(lambda t, k=order: k * t ** (k - 1) * survival(t), 0.0, 60.0, limit=200)
        assert moment == pytest.approx(area, rel=1e-7)


@given(scv=st.floats(1.01, 50.0), stretch=st.floats(1.001, 20.0), mean=st.floats(1e-3, 1e3))
def test_two_branches_have_three_moments(scv: float, stretch: float, mean: float) -> None:
    third = 1.5 * (1.0 + scv) ** 2 * stretch * mean**3
    first, second, cube = PhaseType.of_moments(mean, scv, third).moments
    assert first == pytest.approx(mean, rel=1e-9)
    assert second == pytest.approx(mean**2 * (1.0 + scv), rel=1e-8)
    assert cube == pytest.approx(third, rel=1e-6)


@given(scv=st.floats(0.021, 0.99), mean=st.floats(1e-3, 1e3))
def test_an_erlang_mixture_has_two_moments(scv: float, mean: float) -> None:
    service = PhaseType.of_moments(mean, scv)
    assert service.mean_s == pytest.approx(mean, rel=1e-9)
    assert service.scv == pytest.approx(scv, rel=1e-7)
    assert len(service.initial) == math.ceil(1.0 / scv - 1e-9)


@pytest.mark.parametrize("phases", [1, 2, 5, 20])
def test_an_inverse_integer_scv_is_erlang(phases: int) -> None:
    found = PhaseType.of_moments(3.0, 1.0 / phases)
    assert np.allclose(found.generator, PhaseType.erlang(phases, 3.0).generator)
    assert found.initial[0] == pytest.approx(1.0, abs=1e-6)


def test_arrays_state_phases_as_well_as_tuples() -> None:
    by_array = PhaseType(initial=np.array([0.6, 0.4]), generator=np.array([[-3.0, 1.0], [0.5, -1.0]]))  # type: ignore[arg-type]
    assert by_array == PhaseType(initial=(0.6, 0.4), generator=((-3.0, 1.0), (0.5, -1.0)))


def test_phases_serve_in_the_approximation_too() -> None:
    two = PhaseType.of_moments(1.0, 4.0)
    by_phases, by_moments = mgc(6.0, two, 8), mgc(6.0, Moments(mean_s=1.0, scv=4.0), 8)
    assert float(by_phases.mean_wait_s) == pytest.approx(float(by_moments.mean_wait_s), rel=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PhaseType(initial=(0.5, 0.4), generator=((-1.0, 0.0), (0.0, -1.0))), r"probabilities that sum to 1"),
        (lambda: PhaseType(initial=(1.0,), generator=((-1.0, 0.0),)), r"must have 1 rows of 1 rates"),
        (lambda: PhaseType(initial=(1.0, 0.0), generator=((-1.0, -1.0), (0.0, -1.0))), r"at least 0 off its diagonal"),
        (lambda: PhaseType(initial=(1.0, 0.0), generator=((-1.0, 2.0), (0.0, -1.0))), r"row sums of at most 0"),
        (lambda: PhaseType(initial=(0.5, 0.5), generator=((-1.0, 1.0), (1.0, -1.0))), r"leave every phase in the end"),
        (lambda: PhaseType(initial=(1.0,), generator=((math.nan,),)), r"must be finite"),
        (lambda: PhaseType.hyperexponential((1.0,), (0.0,)), r"means_s must be finite and above 0 s"),
        (lambda: PhaseType.erlang(0, 1.0), r"phases must be an integer from 1 to 50 \(got 0\)"),
        (lambda: PhaseType.of_moments(1.0, 0.001), r"scv 0.001 would need more than 50 phases"),
        (lambda: PhaseType.of_moments(1.0, 0.5, 9.0), r"has third moment 3 s\^3 \(got 9\)"),
    ],
)
def test_what_is_no_service_time_is_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
