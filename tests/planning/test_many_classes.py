"""Many classes of one model: cost and bound against every way to put whole classes together; models on their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import enumerate_candidates, least_counts
from qmodel.problem import bind
from tests.candidates.test_class_groups import many_classes

WITHIN = 0.01  # of a cost: a fleet that saves less is not looked for


def partitions(places: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to put positions into groups."""
    if not places:
        yield ()
        return
    first, rest = places[0], places[1:]
    for size in range(len(rest) + 1):
        for others in itertools.combinations(rest, size):
            left = tuple(place for place in rest if place not in others)
            for further in partitions(left):
                yield ((first, *others), *further)


def cheapest_of_whole_classes(data: dict[str, Any]) -> float:
    """Least cost of fleets in which no class is split, the cheapest pool for each group of classes, USD/h."""
    instance = bind(qm.load_scenario(data))
    candidates, classes = enumerate_candidates(instance).of("m"), list(instance.classes.values())
    cost: dict[tuple[int, ...], float] = {}
    for size in range(1, len(classes) + 1):
        for group in itertools.combinations(range(len(classes)), size):
            counts = least_counts(candidates, [classes[place] for place in group])
            able = [item.pool_cost(int(n)) for item, n in zip(candidates, counts, strict=True) if n > 0]
            cost[group] = min(able, default=np.inf)
    return min(sum(cost[group] for group in groups) for groups in partitions(tuple(range(len(classes)))))


@pytest.mark.parametrize(("seed", "count", "router"), [(1, 5, "random"), (2, 5, "jsq"), (4, 6, "random")])
def test_no_bound_is_above_a_fleet_of_whole_classes_and_no_plan_much_dearer(seed: int, count: int, router: str) -> None:
    data = many_classes(seed, count, router)
    plan = qm.plan(data)
    cheapest = cheapest_of_whole_classes(data)
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= cheapest * (1.0 + 1e-6)
    assert plan.cost_usd_per_hour <= cheapest * (1.0 + WITHIN)
    assert plan.gap is not None and plan.gap < 0.2
    assert qm.verify(plan).ok


def two_models(seed: int) -> dict[str, Any]:
    data = many_classes(seed, 5, "random")
    for name in ("c0", "c1"):
        data["classes"][name]["model"] = "n"
    data["profiles"] += [{**item, "model": "n"} for item in data["profiles"]]
    return data


def test_models_that_nothing_ties_cost_what_they_cost_alone() -> None:
    data = two_models(5)
    whole = qm.plan(data)
    apart = [
        qm.plan({**data, "classes": {name: item for name, item in data["classes"].items() if item["model"] == model}})
        for model in ("m", "n")
    ]
    cost = sum(plan.cost_usd_per_hour or np.inf for plan in apart)
    bound = sum(plan.bound_usd_per_hour or np.inf for plan in apart)
    assert whole.cost_usd_per_hour == pytest.approx(cost, rel=5e-3)
    assert whole.bound_usd_per_hour == pytest.approx(bound, rel=5e-3)
    assert {row.cls for row in whole.routing} == set(data["classes"])


def test_models_that_share_what_is_scarce_are_planned_together() -> None:
    data = two_models(5)
    free = qm.plan(data)
    bigs = sum(pool.gpus for pool in free.pools if pool.gpu == "big")
    assert bigs > 0
    data["fleet"]["gpus"]["big"]["max_count"] = bigs - 1
    scarce = qm.plan(data)
    assert scarce.cost_usd_per_hour is not None and free.cost_usd_per_hour is not None
    assert scarce.cost_usd_per_hour >= free.cost_usd_per_hour * (1.0 - 5e-3)
    assert sum(pool.gpus for pool in scarce.pools if pool.gpu == "big") < bigs


def test_one_model_without_a_fleet_leaves_none_for_all() -> None:
    data = two_models(5)
    data["classes"]["c0"]["slo"]["tpot_mean_s"] = 1e-4
    plan = qm.plan(data)
    assert plan.status == "infeasible" and plan.fleet is None
