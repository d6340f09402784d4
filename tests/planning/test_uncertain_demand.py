"""Plans for scenarios of demand: for all, for enough of them, and for the mean."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import pytest

import qmodel as qm
from qmodel.planning import verify
from tests.planning.days import day_of
from tests.planning.test_days import MEASURED

WEIGHTS = {"usual": 0.5, "busy": 0.2, "odd": 0.2, "storm": 0.1}
FACTORS = {"usual": (1.0, 1.0), "busy": (1.6, 1.2), "odd": (0.5, 2.5), "storm": (3.0, 3.0)}


def uncertain(seed: int, router: str, **stated: object) -> dict:
    """Two classes with a model each, and four scenarios."""
    data = day_of(seed, router, hours=False)
    for item in data["classes"].values():
        item["rate_rps"] = item.pop("arrivals")["rate_rps"] / 3.0
    scenarios = {
        name: {"weight": WEIGHTS[name], "factors": dict(zip(data["classes"], FACTORS[name], strict=True))}
        for name in WEIGHTS
    }
    data["demand"] = {"scenarios": scenarios, **stated}
    return data


def alone(data: dict, factors: tuple[float, float], terms: tuple[str, ...]) -> float:
    """Cost of the plan at certain rates."""
    found = copy.deepcopy(data)
    found.pop("demand")
    for item, factor in zip(found["classes"].values(), factors, strict=True):
        item["rate_rps"] *= factor
    for gpu in found["fleet"]["gpus"].values():
        gpu["tiers"] = [tier for tier in gpu["tiers"] if tier["term"] in terms]
    return qm.plan(found).cost_usd_per_hour


BOTH = ("on_demand", "reserved_1y")


@pytest.mark.parametrize("router", ["jsq", "random"])
def test_a_fleet_for_all_is_one_for_the_largest_rates(router):
    data = uncertain(1, router, plan_for="all")
    plan = qm.plan(data)
    assert plan.cost_usd_per_hour == pytest.approx(alone(data, (3.0, 3.0), BOTH))
    assert [item.scenario for item in plan.periods] == list(WEIGHTS) and plan.busiest == "storm"
    assert verify(plan).ok


@pytest.mark.parametrize("quantile", [0.45, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("router", ["jsq", "random"])
def test_enough_scenarios_are_served_at_the_least_cost(router, quantile):
    data = uncertain(1, router, plan_for={"quantile": quantile})
    plan = qm.plan(data)
    served = {item.scenario for item in plan.periods}
    assert sum(WEIGHTS[name] for name in served) >= quantile - 1e-9
    least = min(
        alone(data, tuple(max(FACTORS[name][place] for name in chosen) for place in range(2)), BOTH)
        for number in range(1, 5)
        for chosen in itertools.combinations(WEIGHTS, number)
        if sum(WEIGHTS[name] for name in chosen) >= quantile - 1e-9
    )
    assert plan.status == "optimal" and plan.cost_usd_per_hour == pytest.approx(least, rel=0.005)
    assert plan.bound_usd_per_hour <= least * (1.0 + 1e-6)
    assert verify(plan).ok


def test_the_mean_lies_between_every_scenario_alone_and_one_fleet():
    data = uncertain(2, "jsq", plan_for="mean")
    plan = qm.plan(data)
    hindsight = sum(WEIGHTS[name] * alone(data, FACTORS[name], ("on_demand",)) for name in WEIGHTS)
    certain = sum(WEIGHTS[name] * alone(data, FACTORS[name], ("reserved_1y",)) for name in WEIGHTS)
    assert certain * (1.0 - 0.005) <= plan.cost_usd_per_hour <= hindsight * (1.0 + 0.005)
    assert plan.cost_usd_per_hour <= alone(data, (3.0, 3.0), ("reserved_1y",)) * (1.0 + 0.005)
    assert plan.cost_usd_per_hour == pytest.approx(sum(item.weight * item.cost_usd_per_hour for item in plan.periods))
    assert plan.base and verify(plan).ok


def test_the_mean_by_hand():
    data = copy.deepcopy(MEASURED)
    del data["classes"]["long"]
    item = data["classes"]["short"]
    item["rate_rps"] = item.pop("arrivals")["rate_rps"]  # 10 a second take two replicas
    data["profiles"][0]["max_rate_rps"] = {"short": 5.0}
    tiers = [{"term": "reserved_1y", "usd_per_gpu_hour": 3.0}, {"term": "on_demand", "usd_per_gpu_hour": 4.0}]
    data["fleet"]["gpus"]["big"] = {"tiers": tiers}
    for weight, base in ((0.5, 2), (0.8, 4)):  # four replicas with this weight: two more are reserved from 3/4 on
        scenarios = {"high": {"weight": weight, "factors": {"short": 2}}, "low": {"weight": 1 - weight}}
        data["demand"] = {"scenarios": scenarios, "plan_for": "mean"}
        plan = qm.plan(data)
        assert sum(row.gpus for row in plan.base) == base
        assert plan.cost_usd_per_hour == pytest.approx(base * 3.0 + weight * (4 - base) * 4.0)


def test_one_scenario_is_a_certain_demand():
    data = uncertain(1, "jsq")
    data["demand"] = {"scenarios": {"only": {"weight": 1}}}
    assert qm.plan(data).cost_usd_per_hour == alone(data, (1.0, 1.0), BOTH)


def test_a_plan_for_a_part_is_kept_and_what_is_changed_is_found(tmp_path):
    plan = qm.plan(uncertain(1, "jsq", plan_for={"quantile": 0.9}))
    plan.save(tmp_path / "plan.json")
    again = qm.load_plan(tmp_path / "plan.json")
    assert again.to_dict() == plan.to_dict() and verify(again).ok
    periods = {**plan.inputs["periods"], "least_weight": 0.95}
    assert not verify(replace(plan, inputs={**plan.inputs, "periods": periods})).ok
    assert not verify(replace(plan, periods=plan.periods[1:])).ok


def test_the_scenario_that_cannot_be_served_is_named():
    data = uncertain(1, "jsq", plan_for="all")
    for gpu in data["fleet"]["gpus"].values():
        gpu["max_count"] = 1
    plan = qm.plan(data)
    assert plan.status == "infeasible" and plan.why.text.startswith("in scenario storm: ")


def told(data: dict) -> list[str]:
    return [str(problem).removeprefix("<dict>: ") for problem in qm.validate(data)]


def test_bad_demand_is_told():
    data = uncertain(1, "jsq")
    data["demand"]["scenarios"]["usual"]["weight"] = 0.4
    assert told(data) == ["demand.scenarios: weights must add up to 1 (got 0.9); they are probabilities"]
    data = uncertain(1, "jsq")
    data["demand"]["scenarios"]["usual"]["factors"]["class-o"] = 1.0
    (problem,) = told(data)
    assert problem.startswith("demand.scenarios.usual.factors.class-o: no class 'class-o'; did you mean 'class-")
    data = uncertain(1, "jsq")
    for item in data["demand"]["scenarios"].values():
        item["factors"]["class-m"] = 0.0
    assert told(data) == ["demand.scenarios: class 'class-m' has the factor 0 in every scenario; leave the class out"]
    for part, problem in (
        ({"cvar": 1.0}, "demand.plan_for.cvar: must be less than 1 (got 1.0)"),
        ({"quantile": 0}, "demand.plan_for.quantile: must be greater than 0 (got 0)"),
        ({}, "demand.plan_for: states neither of quantile and cvar; write {quantile: 0.9} or {cvar: 0.9}"),
        (
            {"quantile": 0.9, "cvar": 0.9},
            "demand.plan_for: states both of quantile and cvar; write {quantile: 0.9} or {cvar: 0.9}",
        ),
        ({"quantile": 0.9, "weight": 0.5}, "demand.plan_for.weight: belongs to cvar; leave it out"),
        ({"cvar": 0.9, "weight": 0}, "demand.plan_for.weight: must be greater than 0 (got 0)"),
        ("worst", "demand.plan_for: must be all, mean, {quantile: 0.9} or {cvar: 0.9} (got 'worst')"),
    ):
        assert told(uncertain(1, "jsq", plan_for=part)) == [problem]
    data = {**day_of(1, "jsq", hours=False), "demand": uncertain(1, "jsq")["demand"]}
    (problem,) = told(data)
    assert problem.startswith("demand: not supported yet: scenarios of demand beside a profile of hours")
