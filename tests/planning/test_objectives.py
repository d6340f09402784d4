"""Objectives beside cost: served demand and least latency within limits, and fronts of cost against a target."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import enumerate_candidates, feasible_at
from qmodel.optimize import served as served_programs
from qmodel.optimize.solvers import Solved
from qmodel.planning.latency_search import _Levels
from qmodel.planning.pareto_front import front_of
from qmodel.problem import bind
from qmodel.types import Slo
from tests.planning.limited_fleets import two_models

SERVED = {"objective": {"maximize": "served_rps"}}


def most_served(data: dict[str, Any], stock: int) -> dict[tuple[float, float], None]:
    """What any split of the stock serves of the two classes, requests/s, by brute force over pools of each class."""
    instance = bind(qm.load_scenario(data))
    found = enumerate_candidates(instance)
    points = {}
    each = []
    for item in instance.classes.values():
        (candidate,) = [one for one in found.of(item.model) if one.gpu == "big"]
        carried = [0.0]
        for count in range(1, stock + 1):
            low, high = 0.0, 1.0
            if feasible_at([candidate], [item], np.array([count]), np.array([1.0]))[0] <= 1.0:
                carried.append(item.rate_rps)
                continue
            for _ in range(14):
                middle = (low + high) / 2.0
                good = feasible_at([candidate], [item], np.array([count]), np.array([middle]))[0] <= 1.0
                low, high = (middle, high) if good else (low, middle)
            carried.append(low * item.rate_rps)
        each.append(carried)
    for first, second in itertools.product(range(stock + 1), repeat=2):
        if first + second <= stock:
            points[each[0][first], each[1][second]] = None
    return points


def scarce(stock: int) -> dict[str, Any]:
    data = two_models(1, "jsq")
    for item in data["classes"].values():
        item["rate_rps"] *= 6.0
    del data["fleet"]["gpus"]["small"]
    data["profiles"] = [item for item in data["profiles"] if item["gpu"] == "big"]
    data["fleet"]["gpus"]["big"]["max_count"] = stock
    return data


@pytest.mark.parametrize("stock", [1, 3, 5])
def test_as_many_requests_are_served_as_any_split_of_the_stock_serves(stock: int) -> None:
    data = scarce(stock)
    best = max(sum(point) for point in most_served(data, stock))
    plan = qm.plan({**data, **SERVED})
    assert plan.fleet is not None and plan.objective is not None
    served = sum(row.served_rps for row in plan.served)
    assert served == pytest.approx(best, rel=0.006)  # the frontier is followed to 0.4 %
    assert plan.objective.value == pytest.approx(served)
    assert plan.objective.bound is not None and plan.objective.bound >= best * (1.0 - 1e-6)
    assert sum(row.rate_rps for row in plan.routing) == pytest.approx(served)
    assert all(row.met for row in plan.slo)
    assert qm.verify(plan).ok
    assert qm.Plan.from_dict(plan.to_dict()) == plan


@pytest.mark.parametrize("first", ["class-m", "class-n"])
def test_the_important_class_is_served_first(first: str) -> None:
    data = scarce(4)
    data["classes"][first]["priority"] = 3
    place = list(data["classes"]).index(first)
    best = max(most_served(data, 4), key=lambda point: (point[place], point[1 - place]))
    plan = qm.plan({**data, **SERVED})
    served = [row.served_rps for row in plan.served]
    assert served[place] == pytest.approx(best[place], rel=0.006)
    assert served[1 - place] == pytest.approx(best[1 - place], rel=0.02, abs=0.05)


def test_demand_that_fits_is_served_whole_at_the_least_cost() -> None:
    data = two_models(2, "random")
    free = qm.plan(data)
    data["fleet"]["gpus"]["big"]["max_count"] = data["fleet"]["gpus"]["small"]["max_count"] = 100
    plan = qm.plan({**data, **SERVED})
    assert plan.status == "optimal"
    assert plan.cost_usd_per_hour == pytest.approx(free.cost_usd_per_hour)
    assert [row.dropped_share for row in plan.served] == [0.0, 0.0]
    assert plan.objective is not None and plan.objective.proven


def test_a_budget_limits_what_is_served_and_more_money_serves_more() -> None:
    data = scarce(100)
    served = []
    for budget in (5.0, 10.0, 20.0):
        data["fleet"]["budget_usd_per_hour"] = budget
        plan = qm.plan({**data, **SERVED})
        assert plan.cost_usd_per_hour is not None and plan.cost_usd_per_hour <= budget * (1.0 + 1e-9)
        served.append(sum(row.served_rps for row in plan.served))
    assert served == sorted(served) and served[0] < served[-1]


def test_where_nothing_can_be_served_the_reason_is_that_of_a_plan_for_all() -> None:
    data = scarce(4)
    for item in data["classes"].values():
        item["slo"] = {"tpot_mean_s": 1e-6}
    plan = qm.plan({**data, **SERVED})
    assert plan.status == "infeasible"
    assert "tpot_mean_s" in plan.why.text


def test_a_budget_below_the_smallest_fleet_does_not_say_that_all_of_the_demand_must_be_paid() -> None:
    data = scarce(100)
    data["fleet"]["budget_usd_per_hour"] = 0.01
    plan = qm.plan({**data, **SERVED})
    assert plan.status == "infeasible"
    assert plan.why.text.startswith("within the limits less than 0.1% of any class can be served; for all of it: ")
    assert plan.why.change.endswith("less may do for a part")


def two_priorities() -> dict[str, Any]:
    """Two classes of one model on measured GPUs, of which a few cheap ones carry all."""
    lengths = {"chat": (800, 200, 6.0), "first": (300, 100, 2.0)}
    return {
        "qmodel": 1,
        "classes": {
            name: {
                "model": "m",
                "rate_rps": rate,
                "prompt_tokens": {"mean": prompt, "cv": 1},
                "output_tokens": {"mean": output, "cv": 1},
                "slo": {"ttft_p95_s": 2.0},
                "priority": int(name == "first"),
            }
            for name, (prompt, output, rate) in lengths.items()
        },
        "fleet": {"budget_usd_per_hour": 8.0, "gpus": {"a": {"price": {"usd_per_gpu_hour": 2.0}}}},
        "profiles": [{"model": "m", "gpu": "a", "alpha_s": 0.02, "beta_s": 2e-4, "gamma_s": 5e-8, "delta_s": 1e-4}],
    }


def test_a_solver_that_fails_at_one_priority_loses_none_of_those_above(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {**two_priorities(), **SERVED}
    data["fleet"]["budget_usd_per_hour"] = 2.0
    data["classes"]["chat"]["rate_rps"] = 60.0
    solve, calls = served_programs.solve_integer, itertools.count()

    def failing(*arguments: Any, **options: Any) -> Any:
        found = solve(*arguments, **options)
        return replace(found, values=None, outcome="error", words="Solve error") if next(calls) == 3 else found

    monkeypatch.setattr(served_programs, "solve_integer", failing)  # bound, fleets, bound, fleets
    plan = qm.plan(data)
    assert {row.cls: row.dropped_share for row in plan.served}["first"] == 0.0
    assert plan.status == "feasible"


@pytest.mark.parametrize(("budget", "status"), [(8.0, "optimal"), (1.0, "limit")])
def test_a_solver_that_fails_outright_is_not_taken_for_a_proof(
    monkeypatch: pytest.MonkeyPatch, budget: float, status: str
) -> None:
    def nothing(*arguments: Any, **options: Any) -> Solved:
        return Solved(values=None, objective=None, bound=-np.inf, outcome="error", words="Solve error")

    monkeypatch.setattr(served_programs, "solve_integer", nothing)
    data = {**two_priorities(), **SERVED}
    data["fleet"]["budget_usd_per_hour"] = budget
    plan = qm.plan(data)
    assert plan.status == status
    if plan.fleet is not None:
        assert plan.objective is not None and plan.objective.proven
        assert [row.dropped_share for row in plan.served] == [0.0, 0.0]
    else:
        assert plan.why.text.startswith("what part of the demand can be served was not found (Solve error)")


def test_price_tiers_that_end_are_a_limit_of_the_whole_fleet() -> None:
    data = scarce(3)
    (spec,) = data["fleet"]["gpus"].values()
    del spec["max_count"]
    price = spec.pop("price")["usd_per_gpu_hour"]
    spec["tiers"] = [{"term": "reserved_1y", "usd_per_gpu_hour": price, "max_count": 3}]
    assert qm.plan({**data, **SERVED}).served == qm.plan({**scarce(3), **SERVED}).served
    spec["tiers"].append({"term": "on_demand", "usd_per_gpu_hour": 2.0 * price})
    with pytest.raises(qm.ScenarioError, match="needs a limit of the whole fleet"):
        qm.load_scenario({**data, **SERVED})


def latency(data: dict[str, Any], key: str = "ttft_p95_s") -> dict[str, Any]:
    return {**data, "objective": {"minimize": key, "class": "class-m"}}


def test_no_fleet_within_the_stock_has_a_lower_latency() -> None:
    data = two_models(1, "jsq")
    data["fleet"]["gpus"]["big"]["max_count"] = 4
    data["fleet"]["gpus"]["small"]["max_count"] = 4
    plan = qm.plan(latency(data))
    assert plan.fleet is not None and plan.objective is not None
    value = plan.objective.value
    assert plan.objective.name == "ttft_p95_s of class-m"
    assert plan.objective.bound is not None and 0.98 * value <= plan.objective.bound <= value
    rows = [row for row in plan.slo if row.cls == "class-m" and row.metric == "ttft" and row.path != "fleet"]
    assert max(row.predicted_s or np.inf for row in rows) == pytest.approx(value, rel=1e-3)
    data["classes"]["class-m"]["slo"]["ttft_p95_s"] = plan.objective.bound * 0.995
    assert qm.plan(data).status == "infeasible"
    data["classes"]["class-m"]["slo"]["ttft_p95_s"] = value * 1.0001
    assert qm.plan(data).fleet is not None
    assert qm.verify(plan).ok


def test_a_larger_budget_buys_no_higher_latency() -> None:
    data = two_models(3, "random")
    free = qm.plan(data)
    assert free.cost_usd_per_hour is not None
    values = []
    for factor in (1.0, 1.5, 2.5):
        data["fleet"]["budget_usd_per_hour"] = free.cost_usd_per_hour * factor
        plan = qm.plan(latency(data))
        assert plan.objective is not None and plan.cost_usd_per_hour is not None
        assert plan.cost_usd_per_hour <= data["fleet"]["budget_usd_per_hour"] * (1.0 + 1e-9)
        values.append(plan.objective.value)
    assert values == sorted(values, reverse=True) and values[0] > values[-1]


def test_least_latency_of_a_demand_that_no_fleet_serves_says_why() -> None:
    data = two_models(1, "jsq")
    data["fleet"]["budget_usd_per_hour"] = 0.5
    plan = qm.plan(latency(data))
    assert plan.fleet is None and plan.objective is None
    assert plan.why.limit == "fleet.budget_usd_per_hour"


@pytest.mark.parametrize(
    ("gives_way", "settled"), [(lambda level: level < 0.3, True), (lambda level: False, False)]
)  # whether a level that is missed is also ruled out
def test_levels_close_in_on_what_is_reached_and_what_is_ruled_out(gives_way: Any, settled: bool) -> None:
    search, looks = _Levels(reached_s=9.0), 0
    while (level := search.next_level(1.01)) is not None:
        looks += 1
        if level >= 0.3:
            search.reach(level)
        else:
            search.miss(level, ruled_out=gives_way(level))
    assert looks < 30
    assert 0.3 <= search.reached_s <= 0.3 * 1.01
    assert (search.ruled_out_s > 0.3 / 1.01**2) == settled


def test_a_front_trades_cost_for_latency_and_each_plan_is_the_cheapest_at_its_level() -> None:
    data = two_models(1, "jsq")
    front = qm.pareto(data, "class-m", "tpot_mean_s", points=4, closest=0.9)
    plans = list(front.values())
    costs = [plan.cost_usd_per_hour or np.nan for plan in plans]
    levels = [float(name.split()[1]) for name in front]
    assert len(plans) > 2
    assert costs == sorted(costs) and len(set(costs)) == len(costs)
    assert levels == sorted(levels, reverse=True)
    assert all(plan.status == "optimal" for plan in plans)
    for level, cost in zip(levels, costs, strict=True):
        again = qm.plan(qm.load_scenario(data, set={"classes.class-m.slo.tpot_mean_s": level * 1.001}))
        assert again.cost_usd_per_hour == pytest.approx(cost, rel=0.006)


def test_a_front_ends_where_the_limits_end() -> None:
    data = two_models(1, "jsq")
    data["fleet"]["gpus"]["big"]["max_count"] = 3
    data["fleet"]["gpus"]["small"]["max_count"] = 0
    front = qm.pareto(data, "class-m", "tpot_mean_s", points=50, closest=0.9)
    assert 1 <= len(front) < 50
    assert all(plan.fleet is not None for plan in front.values())
    data["fleet"]["gpus"]["big"]["max_count"] = 0
    (nothing,) = qm.pareto(data, "class-m", "tpot_mean_s").values()
    assert nothing.status == "infeasible"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"cls": "nobody", "target": "ttft_p95_s"}, "cls must be one of class-m, class-n (got 'nobody')"),
        ({"cls": "class-m", "target": "ttft"}, "unknown target 'ttft'"),
        ({"cls": "class-m", "target": "ttft_p95_s", "points": 0}, "points must be at least 1 (got 0)"),
        ({"cls": "class-m", "target": "ttft_p95_s", "closest": 1.0}, "closest must be in (0, 1) (got 1)"),
    ],
)
def test_a_front_of_nothing_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text.replace("(", r"\(").replace(")", r"\)")):
        qm.pareto(two_models(1, "jsq"), **arguments)


def test_a_front_of_another_objective_than_cost_is_refused() -> None:
    data = {**scarce(3), **SERVED}
    with pytest.raises(qm.ScenarioError, match="objective: a front is of cost against a target, not of served_rps"):
        qm.pareto(data, "class-m", "tpot_mean_s")
    assert qm.pareto(qm.load_scenario(data, set={"objective": None}), "class-m", "tpot_mean_s", points=1)


def test_seconds_of_measured_capacities_cannot_be_made_small() -> None:
    data = two_priorities()
    data["profiles"] = [{"model": "m", "gpu": "a", "max_rate_rps": {"chat": 2.5, "first": 5.0}}]
    assert qm.plan(data).fleet is not None
    words = r"ttft_p95_s of chat is not predicted: profiles\[0\] states max_rate_rps, which has no seconds"
    with pytest.raises(qm.ScenarioError, match=f"objective.minimize: {words}"):
        qm.plan({**data, "objective": {"minimize": "ttft_p95_s", "class": "chat"}})
    with pytest.raises(qm.ScenarioError, match=f"classes.chat: {words}"):
        qm.pareto(data, "chat", "ttft_p95_s")


def test_seconds_of_an_api_that_states_none_cannot_be_made_small() -> None:
    data = two_priorities()
    price = {"usd_per_million_input": 0.1, "usd_per_million_output": 0.1}
    data["fleet"]["apis"] = {"p": {"models": {"m": {**price, "meets": ["chat"]}}}}
    words = "ttft_p95_s of chat is not predicted: fleet.apis.p states meets, which has no seconds"
    with pytest.raises(qm.ScenarioError, match=f"objective.minimize: {words}"):
        qm.plan({**data, "objective": {"minimize": "ttft_p95_s", "class": "chat"}})
    with pytest.raises(qm.ScenarioError, match=f"classes.chat: {words}"):
        qm.pareto(data, "chat", "ttft_p95_s")
    assert qm.load_scenario({**data, "objective": {"minimize": "ttft_p95_s", "class": "first"}})


def test_no_plan_of_a_front_is_undercut_by_a_tighter_one() -> None:
    front_plan = qm.plan(two_models(1, "jsq"))
    costs = iter([30.0, 31.0, 29.9, 40.0])
    reached_s = iter([0.8, 0.5, 0.3, 0.2])
    asked = []

    def plan_at(level_s: float) -> qm.Plan:
        asked.append(level_s)
        if len(asked) > 4:
            return replace(front_plan, fleet=None)
        target = next(row for row in front_plan.slo if (row.cls, row.metric) == ("class-m", "tpot"))
        rows = (replace(target, target_s=level_s, predicted_s=next(reached_s)),)
        return replace(front_plan, cost_usd_per_hour=next(costs), slo=rows)

    front = front_of(plan_at, "class-m", Slo(metric="tpot", p=None, target_s=1.0), points=3, closest=0.7)
    assert list(front) == ["tpot_mean 0.3 s", "tpot_mean 0.2 s"]
    assert asked[1:] == [0.56, 0.35, 0.21, 0.14]


@pytest.mark.parametrize(
    ("objective", "text"),
    [
        ({"maximize": "served_rps"}, "objective: served_rps needs a limit of the whole fleet"),
        ({"minimize": "ttft_p95_s", "class": "class-m"}, "objective: ttft_p95_s needs a limit of the whole fleet"),
    ],
)
def test_an_objective_that_more_gpus_always_improve_needs_a_limit(objective: dict[str, str], text: str) -> None:
    with pytest.raises(qm.ScenarioError, match=text):
        qm.load_scenario({**two_models(1, "jsq"), "objective": objective})


def test_the_class_of_an_objective_must_exist() -> None:
    data = two_models(1, "jsq")
    data["fleet"]["budget_usd_per_hour"] = 50.0
    with pytest.raises(qm.ScenarioError, match=r"objective\.class: no class 'class-x'; did you mean"):
        qm.load_scenario({**data, "objective": {"minimize": "ttft_p95_s", "class": "class-x"}})


def test_a_check_simulates_the_demand_that_is_served() -> None:
    data = {**scarce(2), **SERVED}
    plan = qm.plan(data)
    check = qm.check_plan(data, plan, requests=2000)
    assert check.verdict != "missed"
    assert check.plan.fleet == plan.fleet
