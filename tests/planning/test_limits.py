"""Limits of a fleet: the plan costs what brute force finds within them, and says what stood in the way."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import columns_for_model, enumerate_candidates
from qmodel.optimize.formulation import master_program
from qmodel.optimize.solvers import solve_relaxed
from qmodel.problem import bind
from tests.planning.limited_fleets import least_cost, two_models
from tests.planning.shared_models import least_cost as cheapest_of_mixes
from tests.planning.shared_models import two_classes

EXACT = qm.SolverOptions(mip_gap=0.0)


def free_plan(data: dict[str, Any]) -> qm.Plan:
    plan = qm.plan(data, solver=EXACT)
    assert plan.fleet is not None
    return plan


def limited(case: str, seed: int, router: str) -> dict[str, Any]:
    """A scenario with a limit that rules out the fleet that is cheapest without it, or makes it dearer."""
    data = two_models(seed, router, tp=2 if seed % 2 else 1)
    gpus, fleet, policy = data["fleet"]["gpus"], data["fleet"], data["policy"]
    used = free_plan(data).fleet.gpus  # type: ignore[union-attr]
    kw = sum(count * gpus[gpu]["power_w"] for gpu, count in used.items()) / 1000.0
    match case:
        case "whole nodes":
            gpus["small"]["billing"] = gpus["big"]["billing"] = "per_node"
        case "whole nodes of one type":
            gpus["small"]["billing"] = "per_node"
        case "nodes in stock":
            gpus["small"]["max_nodes"] = 1
        case "whole nodes in stock":
            gpus["small"] |= {"billing": "per_node", "max_count": 7}
        case "power":
            fleet["power_kw"] = kw * 0.85
        case "pools":
            gpus["small"]["max_count"] = max(used["small"] - 1, 1)
            policy["max_pools"] = 2
        case "spare":
            policy["spare_replicas"] = 1
        case "spare and pools":
            policy |= {"spare_replicas": 2, "max_pools": 2}
        case "node lost":
            policy["survive_nodes"] = 1
        case "all":
            policy |= {"spare_replicas": 1, "max_pools": 3}
            gpus["small"] |= {"billing": "per_node", "max_nodes": 2}
            fleet["power_kw"] = kw * 2.0
    return data


CASES = [
    *("whole nodes", "whole nodes of one type", "nodes in stock", "whole nodes in stock", "power", "pools"),
    *("spare", "spare and pools", "node lost", "all"),
]


def check(case: str, seed: int, router: str) -> None:
    data = limited(case, seed, router)
    plan, best = qm.plan(data, solver=EXACT), least_cost(data)
    if not np.isfinite(best):
        assert plan.status == "infeasible", plan.why.text
        return
    assert plan.cost_usd_per_hour == pytest.approx(best), plan.why.text
    assert plan.status == "optimal"
    assert qm.verify(plan).ok


@pytest.mark.parametrize("case", CASES)
def test_a_plan_within_limits_costs_what_brute_force_costs(case: str) -> None:
    check(case, 3, "random")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "router"), [(1, "random"), (2, "jsq"), (3, "jsq")])
@pytest.mark.parametrize("case", CASES)
def test_more_plans_within_limits_cost_what_brute_force_costs(case: str, seed: int, router: str) -> None:
    check(case, seed, router)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "router", "policy"),
    [
        (1, "jsq", {"spare_replicas": 1}),
        (2, "random", {"spare_replicas": 1, "max_pools": 2}),
        (0, "jsq", {"max_pools": 1}),
    ],
)
def test_classes_that_share_pools_within_limits_cost_no_more_than_brute_force(
    seed: int, router: str, policy: dict[str, int]
) -> None:
    data = two_classes(seed, router)
    data["policy"] = policy
    plan = qm.plan(data)
    best = cheapest_of_mixes(bind(qm.load_scenario(data)), policy.get("max_pools", 3))
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= best * 1.005 + 1e-6
    assert plan.bound_usd_per_hour <= best + 1e-6
    assert len(plan.pools) <= policy.get("max_pools", len(plan.pools))
    assert qm.verify(plan).ok


def test_a_budget_that_is_enough_changes_nothing_and_one_cent_less_is_told() -> None:
    data = two_models(3, "jsq")
    free = free_plan(data)
    cost = free.cost_usd_per_hour
    assert cost is not None
    data["fleet"]["budget_usd_per_hour"] = cost + 1e-9
    held = qm.plan(data, solver=EXACT)
    assert held.cost_usd_per_hour == pytest.approx(cost)
    assert held.fleet == free.fleet
    data["fleet"]["budget_usd_per_hour"] = cost - 0.01
    none = qm.plan(data, solver=EXACT)
    assert (none.status, none.termination, none.fleet) == ("infeasible", "proven", None)
    assert none.why.limit == "fleet.budget_usd_per_hour"
    assert f"{cost:.2f} USD/h" in none.why.best
    raised = float(none.why.change.removeprefix("raise fleet.budget_usd_per_hour to "))
    data["fleet"]["budget_usd_per_hour"] = raised
    assert qm.plan(data, solver=EXACT).cost_usd_per_hour == pytest.approx(cost)


SCARCE: dict[str, tuple[dict[str, Any], str, str]] = {
    "power": (
        {"fleet.power_kw": 1.0},
        "fleet.power_kw",
        "the classes together need more power than fleet.power_kw allows",
    ),
    "pools": (
        {"policy.max_pools": 1},
        "policy.max_pools",
        "the classes together need more pools than policy.max_pools allows",
    ),
    "nodes": (
        {"fleet.gpus.small.max_nodes": 1, "fleet.gpus.big.max_nodes": 0},
        "fleet.gpus.small.max_nodes",
        "the classes together need more nodes than are in stock",
    ),
    "power of one replica": (
        {"fleet.power_kw": 0.3},
        "fleet.power_kw",
        "model 'm' needs more power for one replica than fleet.power_kw allows",
    ),
    "power of one class": (
        {"fleet.power_kw": 1.0, "classes.class-n.rate_rps": 60.0},
        "fleet.power_kw",
        "class 'class-n' needs more power than fleet.power_kw allows",
    ),
}


@pytest.mark.parametrize("case", SCARCE)
def test_what_is_scarce_is_named_and_the_change_makes_a_plan_possible(case: str) -> None:
    changes, limit, text = SCARCE[case]
    data = two_models(0, "random")
    none = qm.plan(qm.load_scenario(data, set=changes))
    assert (none.status, none.why.limit, none.why.text) == ("infeasible", limit, text)
    assert none.why.best
    plan, values = none, dict(changes)
    for _ in range(2):  # what is enough for one class may be too little for both
        proposed = re.findall(r"raise ([a-z]\S+) to (?:about )?([\d.]+)", plan.why.change)
        values |= {key: float(value) if key.endswith("kw") else int(float(value)) for key, value in proposed}
        plan = qm.plan(qm.load_scenario(data, set=values))
        if plan.fleet is not None:
            break
    assert plan.fleet is not None, plan.why.text


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_a_price_of_a_limit_is_what_the_relaxed_cost_falls_by(router: str) -> None:
    data = limited("power", 3, router)
    plan = qm.plan(data, solver=EXACT)
    (price,) = [row for row in plan.prices if row.limit == "fleet.power_kw"]
    assert price.usd_per_hour_per_unit < 0.0
    assert "limits that bind: fleet.power_kw" in plan.why.text
    step = 1e-3
    more = qm.load_scenario(data, set={"fleet.power_kw": data["fleet"]["power_kw"] + step})
    moved = (relaxed_cost(more) - relaxed_cost(qm.load_scenario(data))) / step
    assert price.usd_per_hour_per_unit == pytest.approx(moved, rel=1e-3)


def relaxed_cost(scenario: qm.Scenario) -> float:
    """Optimum of the master program without whole numbers."""
    instance = bind(scenario)
    found = enumerate_candidates(instance)
    sets = [
        columns_for_model(found.of(group[0].model), group, every_count=True) for group in instance.sharing().values()
    ]
    columns = [column for item in sets for column in item.columns]
    solved = solve_relaxed(master_program(columns, list(instance.classes.values()), instance.limits), solver="highs")
    assert solved is not None
    return solved[0]


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_an_isolated_class_shares_no_pool_and_costs_what_it_costs_alone(router: str) -> None:
    data = two_classes(2, router)
    together = qm.plan(data)
    data["classes"]["a"]["isolate"] = True
    apart = qm.plan(data)
    alone = [qm.plan({**data, "classes": {name: item}}) for name, item in data["classes"].items()]
    assert together.cost_usd_per_hour is not None and apart.cost_usd_per_hour is not None
    assert apart.cost_usd_per_hour == pytest.approx(sum(plan.cost_usd_per_hour or np.nan for plan in alone))
    assert together.cost_usd_per_hour <= apart.cost_usd_per_hour
    served = {row.path: [one.cls for one in apart.routing if one.path == row.path] for row in apart.routing}
    assert all(len(names) == 1 for names in served.values())
    assert qm.verify(apart).ok


def test_predictions_are_those_of_the_replicas_that_are_left() -> None:
    data = two_models(3, "jsq")
    plain = free_plan(data)
    data["policy"]["spare_replicas"] = 1
    spared = free_plan(data)
    assert [row.replicas for row in spared.pools] == [row.replicas + 1 for row in plain.pools]
    assert [row.predicted_s for row in spared.slo] == [row.predicted_s for row in plain.slo]
    again = qm.evaluate(data, spared.fleet)
    assert again.feasible and again.cost_usd_per_hour == pytest.approx(spared.cost_usd_per_hour or 0.0)


def test_a_fleet_that_is_lost_whole_is_refused() -> None:
    data = two_models(3, "jsq")
    fleet = free_plan(data).fleet
    data["policy"]["spare_replicas"] = 3
    with pytest.raises(qm.ScenarioError, match="replicas is left when 3 are lost, which policy asks for"):
        qm.evaluate(data, fleet)


def test_idle_gpus_of_whole_nodes_are_paid_and_said() -> None:
    data = limited("whole nodes", 2, "jsq")
    plan = qm.plan(data, solver=EXACT)
    assert plan.cost_usd_per_hour is not None
    idle = plan.cost_usd_per_hour - sum(row.cost_usd_per_hour for row in plan.pools)
    (told,) = [text for text in plan.assumptions if "are paid whole" in text]
    found = re.search(r"stand idle in them: (\d+) \(([\d.]+) USD/h\)", told)
    assert found is not None and float(found[2]) == pytest.approx(idle, abs=0.005)


def test_a_limit_that_rules_the_cheapest_fleet_out_is_named_although_it_has_no_price() -> None:
    plan = qm.plan(limited("power", 0, "random"), solver=EXACT)
    assert not [row for row in plan.prices if row.limit == "fleet.power_kw"]
    assert "limits that bind: fleet.power_kw (1.4 of 1.445)" in plan.why.text


def test_an_evaluated_fleet_that_breaks_limits_is_told_so() -> None:
    data = two_models(3, "jsq")
    fleet = free_plan(data).fleet
    assert fleet is not None
    data["fleet"] |= {"power_kw": 1.0, "budget_usd_per_hour": 1.0}
    told = [text for text in qm.evaluate(data, fleet).assumptions if text.startswith("the fleet breaks")]
    assert [text.split(":")[0] for text in told] == [
        "the fleet breaks fleet.power_kw",
        "the fleet breaks fleet.budget_usd_per_hour",
    ]


def test_what_is_forbidden_is_not_planned_and_said_where_nothing_is_left() -> None:
    data = two_models(3, "random")
    free = free_plan(data)
    assert {row.gpu for row in free.pools if row.model == "m"} == {"small"}
    data["layouts"] = {"forbid": [{"model": "m", "gpu": "small"}]}
    plan = free_plan(data)
    assert {row.gpu for row in plan.pools if row.model == "m"} == {"big"}
    assert qm.verify(plan).ok
    only_small = {**data["fleet"]["gpus"]}
    del only_small["big"]
    none = qm.plan({**data, "fleet": {"gpus": only_small}})
    assert (none.status, none.why.limit) == ("infeasible", "layouts")
    assert none.why.best == "small tp1: forbidden by layouts.forbid[0]"
    assert none.why.change == "allow what layouts.forbid[0] forbids"


def measured(**policy: int) -> dict[str, Any]:
    """Two classes of one model that take 2.5 and 1.5 replicas of a measured capacity, at 2 USD/h each."""
    lengths = {"prompt_tokens": {"constant": 500}, "output_tokens": {"constant": 100}}
    classes = {
        name: {"model": "m", "rate_rps": rate, **lengths, "slo": {"ttft_p95_s": 1.0}}
        for name, rate in (("a", 5.0), ("b", 1.5))
    }
    return {
        "qmodel": 1,
        "classes": classes,
        "fleet": {"gpus": {"g": {"price": {"usd_per_gpu_hour": 2.0}, "gpus_per_node": 4}}},
        "profiles": [{"model": "m", "gpu": "g", "max_rate_rps": {"a": 2.0, "b": 1.0}}],
        "policy": policy,
    }


@pytest.mark.parametrize(
    ("changes", "gpus", "usd"),
    [
        ({}, 4, 8.0),
        ({"policy.spare_replicas": 1}, 5, 10.0),
        ({"policy.survive_nodes": 1}, 8, 16.0),
        ({"policy.spare_replicas": 1, "fleet.gpus.g.billing": "per_node"}, 5, 16.0),
        ({"policy.spare_replicas": 1, "classes.b.isolate": True}, 7, 14.0),
        ({"policy.spare_replicas": 1, "policy.max_pools": 1}, 5, 10.0),
    ],
)
def test_measured_capacities_keep_the_same_limits(changes: dict[str, Any], gpus: int, usd: float) -> None:
    plan = qm.plan(qm.load_scenario(measured(), set=changes), solver=EXACT)
    assert plan.fleet is not None, plan.why.text
    assert plan.fleet.gpus == {"g": gpus}
    assert plan.cost_usd_per_hour == pytest.approx(usd)
    assert plan.status == "optimal"
    assert qm.verify(plan).ok


def test_measured_capacities_of_two_groups_need_two_pools() -> None:
    data = measured(max_pools=1)
    data["classes"]["b"]["isolate"] = True
    plan = qm.plan(data)
    assert (plan.status, plan.why.limit) == ("infeasible", "policy.max_pools")
    assert plan.why.change == "raise policy.max_pools to 2"
