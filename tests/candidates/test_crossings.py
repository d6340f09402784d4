"""Intervals of the load end narrow around the crossing, whatever shape the predictions have, in few looks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmodel.candidates.crossings import TIGHT, BoolArray, Bracket, Look, narrowed
from qmodel.types import FloatArray, IntArray

Curve = Callable[[FloatArray], FloatArray]  # log of prediction over target at a load


def start(cases: int, targets: int, full: float = 1.0) -> Bracket:
    """Nothing known but that no load is carried well and full load is not."""
    sides = np.repeat([-np.inf, -np.inf, np.inf, np.inf], targets).reshape(1, 4, targets)
    return Bracket(loads=np.tile([0.0, 0.0, full, full], (cases, 1)), sides=np.repeat(sides, cases, axis=0))


def recorded(curves: list[Curve], scale: FloatArray) -> tuple[Look, list[tuple[IntArray, FloatArray, BoolArray]]]:
    """A look at cases that differ by how much load they carry, and the list that it writes down its calls in."""
    asked: list[tuple[IntArray, FloatArray, BoolArray]] = []

    def look(rows: IntArray, loads: FloatArray, targets: BoolArray) -> FloatArray:
        asked.append((rows, loads, targets))
        x = loads / scale[rows, None]
        return np.stack([curves[place](x) for place in np.flatnonzero(targets)], axis=-1)

    return look, asked


def root(curves: list[Curve]) -> float:
    """The first crossing by a fine scan, of scale 1."""
    loads = np.linspace(1e-6, 1.0, 200_001)
    return float(loads[np.argmax(np.max([curve(loads) for curve in curves], axis=0) > 0.0)])


SMOOTH: dict[str, list[Curve]] = {
    "queue": [lambda x: np.log(0.2 / np.maximum(1.0 - x, 1e-9))],
    "two targets": [lambda x: np.log(0.02 / np.maximum(1.0 - x, 1e-9)), lambda x: 2.0 * x - 0.7],
    "convex": [lambda x: 6.0 * x**3 - 1.0],
    "concave": [lambda x: np.sqrt(x) - 0.8],
}
JUMPS: dict[str, list[Curve]] = {
    "jump": [lambda x: np.where(x < 0.637, -1.5 + 0.3 * x, 2.0 + x)],
    "knee": [lambda x: np.where(x < 0.5, -0.6 + 0.2 * x, -0.5 + 60.0 * (x - 0.5))],
    "step to the level": [lambda x: np.where(x < 0.2, -0.01, 0.01)],
}


@pytest.mark.parametrize("name", [*SMOOTH, *JUMPS])
def test_intervals_end_narrow_around_the_first_crossing(name: str) -> None:
    curves, scale = {**SMOOTH, **JUMPS}[name], np.array([0.9, 0.31, 0.05])
    look, _ = recorded(curves, scale)
    found = narrowed(look, start(3, len(curves)))
    crossing = root(curves) * scale
    assert (found.low <= crossing * (1.0 + 1e-4)).all()
    assert (found.high >= crossing * (1.0 - 1e-4)).all()
    assert (found.high - found.low <= TIGHT * found.high).all()


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_predictions_take_few_rounds(name: str) -> None:
    look, asked = recorded(SMOOTH[name], np.array([0.9]))
    narrowed(look, start(1, len(SMOOTH[name])))
    assert len(asked) <= 4


def test_a_target_met_with_room_at_a_higher_load_is_not_asked_for_below_it() -> None:
    look, asked = recorded(SMOOTH["two targets"], np.array([1.0]))
    narrowed(look, start(1, 2))
    assert asked[0][2].tolist() == [True, True]
    assert asked[-1][2].tolist() == [False, True]


@pytest.mark.parametrize("room", [0.3, 0.1, 0.02])
def test_times_that_grow_like_one_over_the_room_left_are_crossed_in_one_round(room: float) -> None:
    def curve(x: FloatArray) -> FloatArray:
        return np.asarray(np.log(room / np.maximum(1.0 - x, 1e-9)))

    look, asked = recorded([curve], np.ones(1))
    loads = np.array([[0.2, 0.5, 1.0 - room / 3.0, 1.0 - room / 4.0]])
    found = narrowed(look, Bracket(loads=loads, sides=curve(loads)[..., None]))
    assert len(asked) == 1
    assert found.low[0] <= 1.0 - room < found.high[0]


def test_a_target_that_is_met_at_the_upper_end_does_not_say_where_to_look() -> None:
    look, asked = recorded([lambda x: np.full_like(x, -0.3), lambda x: np.log(0.5 / (1.0 - x))], np.ones(1))
    sides = np.array([[[-0.3, -1.0], [-0.3, -0.3], [-np.inf, 0.4], [-np.inf, 0.5]]])
    narrowed(look, Bracket(loads=np.array([[0.1, 0.3, 0.7, 0.75]]), sides=sides))
    assert asked[0][1][0, 0] > 0.4


@pytest.mark.parametrize(("each", "calls"), [(2, 1), (8, 2)])
def test_many_cases_that_need_different_targets_are_looked_at_apart(each: int, calls: int) -> None:
    loads = np.tile([0.0, 0.1, 0.9, 0.9], (2 * each, 1))
    sides = np.array([[[-1.0, -1.0], [-1.0, -1.0], [1.0, -0.5], [1.0, -0.5]]])
    known = np.concatenate([np.repeat(sides, each, axis=0), np.repeat(sides[..., ::-1], each, axis=0)])
    look, asked = recorded([lambda x: x - 0.5] * 2, np.ones(2 * each))
    found = narrowed(look, Bracket(loads=loads, sides=known))
    assert len({(tuple(rows.tolist()), tuple(targets.tolist())) for rows, _, targets in asked}) == calls
    np.testing.assert_allclose(found.low, 0.5, rtol=TIGHT)


@given(
    where=st.floats(0.01, 0.97),
    power=st.floats(0.3, 4.0),
    height=st.floats(0.0, 3.0),
    slope=st.floats(0.2, 5.0),
)
def test_any_rising_curve_is_narrowed(where: float, power: float, height: float, slope: float) -> None:
    def curve(x: FloatArray) -> FloatArray:
        return np.asarray(slope * (x**power - where**power) + np.where(x > where, height, 0.0))

    look, _ = recorded([curve], np.ones(1))
    found = narrowed(look, start(1, 1))
    assert found.low[0] <= where * (1.0 + 1e-9)
    assert found.high[0] > where * (1.0 - 1e-9)
    assert found.high[0] - found.low[0] <= TIGHT * found.high[0]
