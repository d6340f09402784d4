"""Classes that share a model: the plan costs no more than any fleet of unequal mixes, and its bound never more."""

from __future__ import annotations

import pytest

import qmodel as qm
from qmodel.problem import bind
from tests.planning.shared_models import least_cost, two_classes

SLACK = 1e-6  # of a cost; mixes between two that were looked at are interpolated in both


def check(seed: int, router: str) -> str:
    data = two_classes(seed, router)
    plan = qm.plan(data)
    cheapest = least_cost(bind(qm.load_scenario(data)))
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= cheapest * (1.0 + 0.005 + SLACK)
    assert plan.bound_usd_per_hour <= cheapest * (1.0 + SLACK)
    assert qm.verify(plan).ok
    return plan.status


@pytest.mark.parametrize("seed", [0, 2, 6])
def test_two_classes_split_at_random_cost_no_more_than_brute_force(seed: int) -> None:
    assert check(seed, "random") == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_two_classes_behind_one_queue_cost_no_more_than_brute_force(seed: int) -> None:
    check(seed, "jsq")
