"""The robust fit by itself: known answers, limits, and a convex solver as an outside oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.calibration.fitting import HUBER, LARGEST_LOG, Terms, fit_factors, solve_linear
from qmodel.calibration.validation import blended_band, held_out_logs, summarise_errors
from qmodel.types import Band, FloatArray

RNG = np.random.default_rng(7)
PARTS = np.exp(RNG.uniform(-2, 2, (60, 3)))  # seconds of three parts of a step in 60 measurements


def terms(rows: int, deviation: float = 0.3, parts: int = 3, lowest: float = -LARGEST_LOG) -> Terms:
    return Terms(
        ratio=np.ones(rows),
        common=0.5 * deviation,
        own=np.full(parts, deviation),
        shared=np.ones(parts, dtype=bool),
        lowest=np.full(parts, lowest),
    )


def sums(parts: FloatArray, logs: FloatArray) -> FloatArray:
    return np.exp(logs) @ parts.T


@settings(max_examples=25, deadline=None)
@given(logs=st.lists(st.floats(-0.6, 0.6), min_size=3, max_size=3))
def test_exact_measurements_give_their_factors_back(logs: list[float]) -> None:
    measured = sums(PARTS, np.array(logs))
    found = fit_factors(lambda sets: sums(PARTS, sets), measured, terms(60))
    np.testing.assert_allclose(found.solution.logs, logs, atol=0.02)


def test_without_information_every_factor_stays_at_the_default() -> None:
    found = solve_linear(np.zeros((4, 3)), np.full(4, 0.5), terms(4))
    assert not found.logs.any()
    assert found.remaining.tolist() == [1.0, 1.0, 1.0]


def test_without_measurements_every_factor_stays_at_the_default() -> None:
    assert not solve_linear(np.zeros((0, 3)), np.zeros(0), terms(0)).logs.any()


def test_more_measurements_move_a_factor_further_towards_the_data() -> None:
    moves = [
        float(solve_linear(np.ones((count, 1)), np.full(count, 0.2), terms(count, 0.05, 1)).logs[0])
        for count in (1, 3, 10, 100, 1000)
    ]
    assert moves == sorted(moves)
    assert moves[0] < 0.15
    assert moves[-1] == pytest.approx(0.2, abs=0.002)


def test_what_all_values_say_together_moves_factors_that_none_tells_alone() -> None:
    narrow = terms(4, 0.04, parts=6)
    jacobian = np.full((4, 6), 1 / 6)
    found = solve_linear(jacobian, np.full(4, 0.1), narrow)
    assert np.all(found.remaining > 0.9)
    assert found.moved.all()
    assert 0.01 < found.logs.min() < 0.1
    assert found.logs.max() == pytest.approx(found.logs.min(), abs=1e-3)


def test_outliers_do_not_drag_the_factors() -> None:
    logs = np.array([0.3, -0.2, 0.1])
    measured = sums(PARTS, logs)
    measured[::10] *= 3.0
    found = fit_factors(lambda sets: sums(PARTS, sets), measured, terms(60))
    np.testing.assert_allclose(found.solution.logs, logs, atol=0.05)


def test_of_two_parts_that_cannot_be_told_apart_the_smaller_has_no_factor_of_its_own() -> None:
    parts = PARTS[:, [0, 0, 1]] * [0.9, 0.1, 1.0]
    measured = sums(parts, np.array([0.2, 0.2, 0.0]))
    found = fit_factors(lambda sets: sums(parts, sets), measured, terms(60))
    assert found.solution.remaining[1] == 1.0
    assert found.solution.remaining[0] < 0.5
    np.testing.assert_allclose(sums(parts, found.solution.logs[None])[0], measured, rtol=0.02)


def test_a_factor_stops_at_its_limit() -> None:
    measured = sums(PARTS, np.array([-0.5, 0.0, 0.0]))
    found = fit_factors(lambda sets: sums(PARTS, sets), measured, terms(60, lowest=-0.1))
    assert found.solution.logs.min() == pytest.approx(-0.1)


def test_the_linear_problem_is_solved_as_a_convex_solver_solves_it() -> None:
    import cvxpy

    jacobian, target = RNG.normal(size=(30, 3)), RNG.normal(scale=0.3, size=30)
    target[:3] += 0.7
    given_terms = terms(30, 0.2, lowest=-0.02)
    prior = 0.01 + 0.04 * np.eye(3)
    found = solve_linear(jacobian, target, given_terms)
    logs = cvxpy.Variable(3)
    noise = _last_noise(jacobian, target, prior, given_terms.lowest)
    # cvxpy's huber is twice the one of the textbooks
    loss = cvxpy.sum(cvxpy.huber((target - jacobian @ logs) / noise, HUBER)) + cvxpy.quad_form(
        logs, np.linalg.inv(prior)
    )
    cvxpy.Problem(cvxpy.Minimize(loss), [logs >= -0.02]).solve(solver="CLARABEL")
    np.testing.assert_allclose(found.logs, logs.value, atol=1e-4)


def _last_noise(jacobian: FloatArray, target: FloatArray, prior: FloatArray, lowest: FloatArray) -> float:
    """The scale that the last reweighting used: the one that the fit before it left."""
    from qmodel.calibration import fitting

    scales = [fitting.USUAL_NOISE]
    for _ in range(fitting.SCALE_UPDATES):
        logs = fitting._huber(jacobian, target, np.full(30, scales[-1]), prior, lowest)
        scales.append(fitting._noise(target - jacobian @ logs, 4))
    return scales[-2]


def test_each_measurement_is_left_out_once() -> None:
    measured = sums(PARTS, np.array([0.2, 0.0, 0.0]))
    found = fit_factors(lambda sets: sums(PARTS, sets), measured, terms(60))
    groups = np.repeat(np.arange(30), 2)
    logs, part = held_out_logs(found, terms(60), groups=groups, order=np.arange(30.0))
    assert logs.shape[0] == 6
    assert np.bincount(part).tolist() == [10] * 6
    assert all(len(set(part[groups == index])) == 1 for index in range(30))


def test_a_fit_without_a_point_does_not_know_that_point() -> None:
    measured = sums(PARTS[:8], np.zeros(3))
    changed = measured.copy()
    changed[4] *= 1.5
    held = []
    for values in (measured, changed):
        found = fit_factors(lambda sets: sums(PARTS[:8], sets), values, terms(8))
        logs, part = held_out_logs(found, terms(8), groups=np.arange(8), order=np.arange(8.0))
        held.append(logs[part[4]])
    np.testing.assert_allclose(held[0], held[1], atol=0.02)


def test_the_band_goes_from_the_old_one_to_the_errors() -> None:
    old = Band(p50=0.1, p90=0.4)
    none = blended_band(np.array([]), old, "new")
    assert (none.p50, none.p90) == (pytest.approx(0.1, rel=1e-3), pytest.approx(0.4, rel=1e-3))
    errors = np.abs(np.random.default_rng(1).normal(0, 0.03, 2000))
    many = blended_band(errors, old, "new")
    assert many.p90 == pytest.approx(float(np.quantile(errors, 0.9)), rel=0.05)
    widths = [blended_band(errors[:count], old, "new").p90 for count in (0, 5, 20, 100)]
    assert widths == sorted(widths, reverse=True)


def test_errors_are_summed_up_with_their_sign() -> None:
    found = summarise_errors(np.array([0.1, -0.2, -0.3]))
    assert found is not None
    assert (found.points, found.median, found.signed) == (3, pytest.approx(0.2), pytest.approx(-0.2))
    assert summarise_errors(np.array([])) is None
