"""Splitting classes over their pools: the worst target gets the room that a search over splits finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import enumerate_candidates
from qmodel.evaluation import slo_ratios
from qmodel.optimize import SolverOptions, solved_point
from qmodel.planning.load_split import evened, lower_lines
from qmodel.planning.planned_pools import PlannedPool
from qmodel.problem import bind
from tests.planning.limited_fleets import two_models
from tests.planning.shared_models import two_classes


def solve(program):  # type: ignore[no-untyped-def]
    return solved_point(program, SolverOptions())


def worst(pools: list[PlannedPool]) -> float:
    return max(
        float(
            slo_ratios(
                [item.candidate.replica],
                item.classes,
                item.shares,
                [item.replicas],
                [1.0],
                item.candidate.router,
            ).max()
        )
        for item in pools
    )


def two_pools(share: float) -> list[PlannedPool]:
    """One class on a pool of each GPU type, unevenly loaded."""
    instance = bind(qm.load_scenario(two_models(3, "jsq")))
    item = instance.classes["class-m"]
    big, small = sorted(enumerate_candidates(instance).of("m"), key=lambda one: one.gpu)
    many = replace(item, rate_rps=5.0 * item.rate_rps)
    return [
        PlannedPool(candidate=big, replicas=2, classes=(many,), shares=(share,)),
        PlannedPool(candidate=small, replicas=4, classes=(many,), shares=(1.0 - share,)),
    ]


@pytest.mark.parametrize("share", [0.4, 0.7])
def test_one_class_on_two_pools_is_split_as_well_as_a_search_over_splits_does(share: float) -> None:
    before = two_pools(share)
    best = min(worst(two_pools(other)) for other in np.linspace(0.3, 0.9, 121))
    after = [item for item in evened(before, solve) if isinstance(item, PlannedPool)]
    assert worst(after) < worst(before)
    assert worst(after) == pytest.approx(best, rel=0.03)
    assert sum(item.shares[0] for item in after) == pytest.approx(1.0)
    assert [item.replicas for item in after] == [2, 4]


def test_a_split_that_is_even_already_stays() -> None:
    once = evened(two_pools(0.5), solve)
    assert evened(once, solve) == once


def test_pools_that_share_no_class_stay_as_they_are() -> None:
    pools = two_pools(0.6)
    alone = [pools[0], replace(pools[1], classes=(replace(pools[1].classes[0], name="other"),))]
    assert evened(alone, solve) == alone


@pytest.mark.parametrize(("seed", "router"), [(1, "jsq"), (4, "random"), (6, "jsq")])
def test_plans_of_shared_models_keep_cost_and_targets(seed: int, router: str) -> None:
    plan = qm.plan(two_classes(seed, router))
    assert plan.fleet is not None and qm.verify(plan).ok
    for name, paths in plan.fleet.routing.items():
        assert sum(path.share for path in paths) == pytest.approx(1.0), name


def test_lines_lie_below_the_points_and_touch_the_convex_ones() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    y = np.array([1.0, 1.0, 3.0, 2.0, 6.0])  # the third lies above the chord of its neighbours
    slopes, heights = lower_lines(x, y)
    under = (slopes[:, None] * x + heights[:, None]).max(axis=0)
    assert np.all(under <= y + 1e-12)
    np.testing.assert_allclose(under[[0, 1, 3, 4]], y[[0, 1, 3, 4]])
    assert np.all(np.diff(slopes) > 0.0)
    flat = lower_lines(x[:1], y[:1])
    assert (flat[0].tolist(), flat[1].tolist()) == ([0.0], [1.0])
