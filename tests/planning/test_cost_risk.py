"""Plans for the dearest part of what may come: the measure itself, its programs, and plans against brute force."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import qmodel as qm
from qmodel.optimize.linked_parts import settled, solve_linked
from qmodel.optimize.period_programs import ChangingFleet
from qmodel.planning import verify
from qmodel.types import Layer, Risk, tail_mean
from tests.optimize.test_period_programs import optimum, periods, pieces
from tests.planning.days import carried_shares, least_needs, least_over_bases
from tests.planning.test_days import MEASURED
from tests.planning.test_uncertain_demand import FACTORS, WEIGHTS, alone, told, uncertain

COSTS = st.lists(st.tuples(st.floats(0.0, 1e3), st.floats(0.01, 1.0)), min_size=1, max_size=8)


def test_the_dearest_part_by_hand():
    # Acerbi and Tasche's point: an outcome across the border counts with what lies beyond it
    assert tail_mean([1.0, 2.0, 3.0, 4.0], [0.25] * 4, 0.5) == pytest.approx(3.5)
    assert tail_mean([0.0, 100.0], [0.9, 0.1], 0.8) == pytest.approx(50.0)
    assert tail_mean([0.0, 100.0], [0.9, 0.1], 0.95) == pytest.approx(100.0)
    assert tail_mean([3.0, 5.0], [0.5, 0.5], 0.0) == pytest.approx(4.0)


@given(outcomes=COSTS, level=st.floats(0.0, 0.98))
def test_the_dearest_part_is_the_optimum_of_the_linear_program(outcomes, level):
    costs, weights = (np.array(part) for part in zip(*outcomes, strict=True))
    shares = weights / weights.sum()
    cost = np.concatenate([[1.0], shares / (1.0 - level)])  # the border, then what each costs above it
    rows = np.hstack([-np.ones((len(costs), 1)), -np.eye(len(costs))])
    found = linprog(cost, A_ub=rows, b_ub=-costs, bounds=[(None, None), *[(0.0, None)] * len(costs)])
    measured = tail_mean(costs.tolist(), weights.tolist(), level)
    assert measured == pytest.approx(found.fun, rel=1e-6, abs=1e-6)
    assert shares @ costs - 1e-9 <= measured <= costs.max() + 1e-9


@pytest.mark.parametrize("risk", [Risk(level=0.5), Risk(level=0.9), Risk(level=0.6, weight=0.3)])
@pytest.mark.parametrize("seed", range(3))
def test_the_program_with_the_dearest_part_is_solved_to_the_optimum(seed, risk):
    single, limits = pieces(seed)
    factors, _ = periods(seed)
    weights = np.array([0.4, 0.3, 0.2, 0.1])
    layers = tuple(Layer(weight=float(weight), members=(place,)) for place, weight in enumerate(weights))
    joined = ChangingFleet(factors=factors, layers=layers, limits=limits, risk=risk).joined(single)
    best = optimum(joined.program)
    found = solve_linked(joined, solver="highs", mip_gap=1e-6, time_limit_s=60.0)
    assert found.objective == pytest.approx(best, rel=1e-5) and found.bound <= best * (1.0 + 1e-6)
    bound = solve_linked(joined, solver="highs", mip_gap=1e-6, time_limit_s=60.0, bound_only=True).bound
    assert bound <= best * (1.0 + 1e-6)
    assert found.values is not None
    values = settled(joined, found.values, solver="highs", mip_gap=1e-6, time_limit_s=60.0)
    assert joined.program.cost @ values <= found.objective * (1.0 + 1e-6)
    assert joined.tail is not None
    assert joined.tail.mean_usd @ values <= joined.tail.mean_usd @ found.values * (1.0 + 1e-9)


def least_value(data: dict, risk: Risk) -> float:
    """Least mix of mean and dearest part over all bases and fleets of up to six replicas of each GPU type and class."""
    certain = copy.deepcopy(data)
    del certain["demand"]
    for item, top in zip(certain["classes"].values(), (3.0, 3.0), strict=True):
        item["rate_rps"] *= top
    gpus = sorted(data["fleet"]["gpus"])
    shares = carried_shares(certain)
    stock = [data["fleet"]["gpus"][gpu].get("max_count", 10**6) for gpu in gpus]
    needs = [least_needs(shares, [f / 3.0 for f in FACTORS[name]], stock) for name in WEIGHTS]
    return least_over_bases(data, needs, risk)


@pytest.mark.parametrize("router", ["jsq", "random"])
@pytest.mark.parametrize(("level", "weight"), [(0.9, 1.0), (0.75, 1.0), (0.5, 0.4)])
@pytest.mark.parametrize("seed", [1, 5])
def test_the_dearest_part_costs_what_brute_force_finds(seed, router, level, weight):
    data = uncertain(seed, router, plan_for={"cvar": level, "weight": weight})
    for item in data["classes"].values():
        item["rate_rps"] *= 2.0
    plan, least = qm.plan(data), least_value(data, Risk(level=level, weight=weight))
    assert plan.status == "optimal" and verify(plan).ok
    assert plan.bound_usd_per_hour <= least * (1.0 + 1e-6)
    assert least * (1.0 - 0.005) <= plan.cost_usd_per_hour <= least * (1.0 + 0.005)


def test_reserved_gpus_end_where_the_offer_does():
    data = uncertain(5, "jsq", plan_for={"cvar": 0.8})
    free = qm.plan(data)
    for gpu in data["fleet"]["gpus"].values():
        gpu["tiers"][1]["max_count"] = 1
    plan = qm.plan(data)
    least = least_value(data, Risk(level=0.8))
    assert plan.status == "optimal" and plan.cost_usd_per_hour == pytest.approx(least, rel=0.005)
    assert all(row.gpus <= 1 for row in plan.base) and plan.cost_usd_per_hour > free.cost_usd_per_hour


def single(weights: dict[str, float], factors: dict[str, float], **stated: object) -> dict:
    """One class of which a replica carries 5 a second; a GPU costs 3 always, or 4 by the hour."""
    data = copy.deepcopy(MEASURED)
    del data["classes"]["long"]
    item = data["classes"]["short"]
    item["rate_rps"] = item.pop("arrivals")["rate_rps"]
    data["profiles"][0]["max_rate_rps"] = {"short": 5.0}
    tiers = [{"term": "reserved_1y", "usd_per_gpu_hour": 3.0}, {"term": "on_demand", "usd_per_gpu_hour": 4.0}]
    data["fleet"]["gpus"]["big"] = {"tiers": tiers}
    scenarios = {name: {"weight": weight, "factors": {"short": factors[name]}} for name, weight in weights.items()}
    data["demand"] = {"scenarios": scenarios, **stated}
    return data


def test_the_dearest_tenth_by_hand():
    weights, factors = {"usual": 0.9, "storm": 0.1}, {"usual": 1.0, "storm": 3.0}
    mean = qm.plan(single(weights, factors, plan_for="mean"))  # 2 always, 4 more in one case of ten
    assert mean.cost_usd_per_hour == pytest.approx(2 * 3.0 + 0.1 * 4 * 4.0)
    assert mean.risk.worst == "storm" and mean.risk.worst_usd_per_hour == pytest.approx(22.0)
    plan = qm.plan(single(weights, factors, plan_for={"cvar": 0.9}))  # the storm alone counts: all six always
    assert plan.cost_usd_per_hour == pytest.approx(18.0) and plan.risk.mean_usd_per_hour == pytest.approx(18.0)
    half = qm.plan(single(weights, factors, plan_for={"cvar": 0.5}))  # a fifth of the dearest half is the storm
    assert half.cost_usd_per_hour == pytest.approx(0.2 * 22.0 + 0.8 * 6.0)
    assert half.risk.cvar_usd_per_hour == half.cost_usd_per_hour
    mixed = qm.plan(single(weights, factors, plan_for={"cvar": 0.9, "weight": 0.2}))
    costs = [
        0.8 * (base * 3.0 + 0.1 * (6 - base) * 4.0) + 0.2 * (base * 3.0 + (6 - base) * 4.0) for base in range(2, 7)
    ]
    assert mixed.cost_usd_per_hour == pytest.approx(min(costs))


def test_scenarios_that_do_not_count_cost_no_more_than_they_must():
    weights, factors = {"low": 0.5, "usual": 0.4, "storm": 0.1}, {"low": 0.5, "usual": 1.0, "storm": 3.0}
    plan = qm.plan(single(weights, factors, plan_for={"cvar": 0.95}))
    base = sum(row.gpus for row in plan.base)
    assert base == 6
    data = single(weights, factors, plan_for={"cvar": 0.95})
    data["fleet"]["gpus"]["big"]["tiers"][0]["max_count"] = 1
    plan = qm.plan(data)
    assert [item.cost_usd_per_hour for item in plan.periods] == pytest.approx([3.0, 3.0 + 4.0, 3.0 + 5 * 4.0])


def test_more_weight_on_the_dearest_part_never_makes_it_dearer():
    plans = [qm.plan(uncertain(2, "jsq", plan_for={"cvar": 0.9, "weight": w})) for w in (0.01, 0.3, 1.0)]
    tails = [plan.risk.cvar_usd_per_hour for plan in plans]
    means = [plan.risk.mean_usd_per_hour for plan in plans]
    assert tails[0] * (1.0 + 0.005) >= tails[1] and tails[1] * (1.0 + 0.005) >= tails[2]
    assert means[0] <= means[2] * (1.0 + 0.005)
    mean = qm.plan(uncertain(2, "jsq", plan_for="mean"))
    assert means[0] == pytest.approx(mean.cost_usd_per_hour, rel=0.015)
    most = alone(uncertain(2, "jsq"), (3.0, 3.0), ("reserved_1y",))
    assert tails[2] <= most * (1.0 + 0.005)


def test_a_plan_for_the_dearest_part_is_kept_and_what_is_changed_is_found(tmp_path):
    plan = qm.plan(uncertain(1, "jsq", plan_for={"cvar": 0.8, "weight": 0.7}))
    plan.save(tmp_path / "plan.json")
    again = qm.load_plan(tmp_path / "plan.json")
    assert again.to_dict() == plan.to_dict() and verify(again).ok
    risk = plan.risk
    wrong = {
        "mean": replace(plan, risk=replace(risk, mean_usd_per_hour=risk.mean_usd_per_hour * 0.9)),
        "tail": replace(plan, risk=replace(risk, cvar_usd_per_hour=risk.cvar_usd_per_hour * 0.9)),
        "worst": replace(plan, risk=replace(risk, worst="usual")),
        "none": replace(plan, risk=None),
        "level": replace(plan, inputs={**plan.inputs, "periods": {**plan.inputs["periods"], "risk": None}}),
        "base": replace(plan, base=plan.base[1:]),
    }
    assert plan.base
    assert [name for name, item in wrong.items() if verify(item).ok] == []
    assert f"{risk.cvar_usd_per_hour:.2f} in the dearest 20 % of it" in plan.explain()


def test_the_budget_is_one_of_what_counts():
    data = uncertain(1, "jsq", plan_for={"cvar": 0.9})
    cost = qm.plan(data).cost_usd_per_hour
    data["fleet"]["budget_usd_per_hour"] = round(cost * 0.9, 6)
    plan = qm.plan(data)
    assert plan.status == "infeasible" and plan.why.limit == "fleet.budget_usd_per_hour"
    assert plan.why.text.endswith("by the mean of the dearest 10 % of what may come (CVaR)")


def test_money_by_provider_is_refused_where_the_dearest_part_counts():
    data = uncertain(1, "jsq", plan_for={"cvar": 0.9})
    data["fleet"]["gpus"]["big"]["provider"] = "p"
    data["fleet"]["providers"] = {"p": {"max_usd_per_hour": 10}}
    (problem,) = told(data)
    assert problem.startswith("fleet.providers.p.max_usd_per_hour: not supported yet: money by provider")


def test_a_comparison_has_the_mean_and_the_dearest_of_scenarios():
    found = qm.compare({"mean": qm.plan(uncertain(1, "jsq", plan_for="mean")), "all": qm.plan(uncertain(1, "jsq"))})
    rows = {row.name: row.values for row in found.metrics if row.section == "cost"}
    assert rows["mean_usd_per_hour"][0] == rows["cost_usd_per_hour"][0] < rows["worst_usd_per_hour"][0]
    assert rows["mean_usd_per_hour"][1] is None  # one fleet costs the same in all of them
