"""Cells hold every mix once, and corners leave out nothing that a pool may carry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.candidates.fans import Fan, corners

parts = st.floats(0.01, 1.0)


def mixes(size: int) -> st.SearchStrategy[np.ndarray]:
    return st.lists(parts, min_size=size, max_size=size).map(np.array)


def cells_that_hold(fan: Fan, mix: np.ndarray) -> int:
    weights = np.linalg.solve(np.swapaxes(fan.rays[fan.cells], 1, 2), mix[:, None])[..., 0]
    return int(np.all(weights > 1e-9, axis=1).sum())


@pytest.mark.parametrize("size", [2, 3, 4])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_mix_lies_in_one_cell_however_often_the_fan_is_split(size: int, data: st.DataObject) -> None:
    fan = Fan.start(size)
    for mix in data.draw(st.lists(mixes(size), max_size=6)):
        fan = fan.split(mix)
    inside = data.draw(mixes(size)) * np.linspace(0.913, 1.0, size)
    assert cells_that_hold(fan, inside) <= 1
    assert np.linalg.solve(fan.rays[fan.holding(inside)].T, inside).min() >= -1e-6


def test_a_mix_of_some_classes_only_splits_all_cells_that_share_their_face() -> None:
    fan = Fan.start(3).split(np.array([1.0, 1.0, 0.0]))
    assert sorted(sorted(cell) for cell in fan.cells.tolist()) == [[0, 2, 3], [0, 3, 4], [1, 2, 3], [1, 3, 4]]


def test_a_ray_that_is_known_changes_nothing() -> None:
    fan = Fan.start(2)
    assert fan.split(np.array([3.0, 3.0])) is fan
    assert fan.split(np.array([0.0, 0.4])) is fan


@settings(max_examples=60, deadline=None)
@given(
    outside=st.lists(mixes(3), min_size=1, max_size=6),
    point=mixes(3),
)
def test_what_no_point_rules_out_lies_in_the_box_of_a_corner(outside: list[np.ndarray], point: np.ndarray) -> None:
    found = corners(np.array(outside), np.ones(3))
    open_to_it = not any(np.all(point >= item) for item in outside)
    assert open_to_it <= bool(np.any(np.all(point <= found, axis=1)))
    for corner in found:  # and a corner rules nothing in: just below it no point holds
        assert not any(np.all(corner * (1 - 1e-9) >= item) for item in outside)


def test_more_points_never_leave_more_room() -> None:
    loose = corners(np.array([[0.5, 0.5]]), np.ones(2))
    tight = corners(np.array([[0.5, 0.5], [0.3, 0.8], [0.8, 0.2]]), np.ones(2))
    assert all(np.any(np.all(corner <= loose, axis=1)) for corner in tight)
    assert tight.tolist() == [[0.3, 1.0], [0.5, 0.8], [0.8, 0.5], [1.0, 0.2]]
