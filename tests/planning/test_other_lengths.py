"""Scenarios of the demand that differ in lengths: laws, plans against brute force, and what plans say."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest

import qmodel as qm
from qmodel.planning import verify
from qmodel.problem import bind
from qmodel.types import Risk
from tests.planning.days import carried_shares, day_of, least_needs, least_over_bases
from tests.planning.limited_fleets import MOST
from tests.planning.test_uncertain_demand import told

WEIGHTS = {"usual": 0.6, "wordy": 0.3, "ramble": 0.1}
CHANGES: dict[str, dict] = {
    "usual": {},
    "wordy": {"lengths": {"class-m": {"output_factor": 1.8}}},
    "ramble": {
        "factors": {"class-n": 1.5},
        "lengths": {
            "class-m": {"prompt_factor": 1.5, "output_factor": 2.5},
            "class-n": {"output_tokens": {"mean": 700, "cv": 1.6, "max": 16000}},
        },
    },
}


def lengthy(seed: int, router: str, **stated: object) -> dict:
    """Two classes with a model each, and three scenarios of which two have longer requests."""
    data = day_of(seed, router, hours=False)
    for item in data["classes"].values():
        item["rate_rps"] = item.pop("arrivals")["rate_rps"] / 1.6
    data["demand"] = {
        "scenarios": {name: {"weight": weight, **copy.deepcopy(CHANGES[name])} for name, weight in WEIGHTS.items()},
        **stated,
    }
    return data


def certain(data: dict, name: str) -> dict:
    """One scenario alone, its lengths written into the classes by hand."""
    found = copy.deepcopy(data)
    scenario = found.pop("demand")["scenarios"][name]
    for cls, factor in scenario.get("factors", {}).items():
        found["classes"][cls]["rate_rps"] *= factor
    for cls, change in scenario.get("lengths", {}).items():
        for key, value in change.items():
            if key.endswith("_factor"):
                found["classes"][cls][key.replace("_factor", "_tokens")]["mean"] *= value
            else:
                found["classes"][cls][key] = value
    return found


@pytest.mark.parametrize("name", list(WEIGHTS))
def test_lengths_of_a_scenario_are_those_written_out(name):
    data = lengthy(1, "jsq")
    instance = bind(qm.load_scenario(data))
    period = next(item for item in instance.periods.items if item.name == name)
    written = bind(qm.load_scenario(certain(data, name))).classes
    for cls, item in period.demand(instance.classes).items():
        assert item.rate_rps == pytest.approx(written[cls].rate_rps)
        own, other = item.lengths, written[cls].lengths
        assert own.prompt.moments == pytest.approx(other.prompt.moments)
        assert own.output.moments == pytest.approx(other.output.moments) and own.e_pn2 == pytest.approx(other.e_pn2)


@pytest.mark.parametrize("router", ["jsq", "random"])
@pytest.mark.parametrize("risk", [None, Risk(level=0.8), Risk(level=0.5, weight=0.5)])
@pytest.mark.parametrize("seed", [1, 5])
def test_a_fleet_that_follows_the_lengths_costs_what_brute_force_finds(seed, router, risk):
    part = "mean" if risk is None else {"cvar": risk.level, "weight": risk.weight}
    data = lengthy(seed, router, plan_for=part)
    needs = [least_needs(carried_shares(certain(data, name)), (1.0, 1.0), (10**6, 10**6)) for name in WEIGHTS]
    plan, least = qm.plan(data), least_over_bases(data, needs, risk)
    assert plan.status == "optimal" and verify(plan).ok
    assert plan.bound_usd_per_hour <= least * (1.0 + 1e-6)
    assert least * (1.0 - 0.005) <= plan.cost_usd_per_hour <= least * (1.0 + 0.005)


def least_fleet(data: dict, names: list[str]) -> float:
    """Least cost of pools of up to six replicas of each GPU type for each class that carry it in every scenario."""
    prices = [
        min(tier["usd_per_gpu_hour"] for tier in data["fleet"]["gpus"][gpu]["tiers"])
        for gpu in sorted(data["fleet"]["gpus"])
    ]
    carried = [carried_shares(certain(data, name)) for name in names]
    total = 0.0
    for cls in data["classes"]:
        able = [
            sizes
            for sizes in itertools.product(range(MOST + 1), repeat=len(prices))
            if all(sum(row[n] for row, n in zip(each[cls], sizes, strict=True)) >= 1.0 for each in carried)
        ]
        total += min((float(np.dot(sizes, prices)) for sizes in able), default=np.inf)
    return total


@pytest.mark.parametrize("router", ["jsq", "random"])
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_one_fleet_for_all_lengths_costs_what_brute_force_finds(seed, router):
    data = lengthy(seed, router)
    plan, least = qm.plan(data), least_fleet(data, list(WEIGHTS))
    assert plan.status == "optimal" and verify(plan).ok
    assert plan.bound_usd_per_hour <= least * (1.0 + 1e-6)
    assert least * (1.0 - 0.005) <= plan.cost_usd_per_hour <= least * (1.0 + 0.005)
    assert all(dict(item.fleet.pools) == dict(plan.fleet.pools) for item in plan.periods)


@pytest.mark.parametrize("quantile", [0.6, 0.9])
@pytest.mark.parametrize("router", ["jsq", "random"])
def test_enough_scenarios_of_lengths_are_served_at_the_least_cost(router, quantile):
    data = lengthy(2, router, plan_for={"quantile": quantile})
    plan = qm.plan(data)
    least = min(
        least_fleet(data, list(chosen))
        for number in range(1, 4)
        for chosen in itertools.combinations(WEIGHTS, number)
        if sum(WEIGHTS[name] for name in chosen) >= quantile - 1e-9
    )
    assert plan.status == "optimal" and verify(plan).ok
    assert plan.bound_usd_per_hour <= least * (1.0 + 1e-6)
    assert least * (1.0 - 0.005) <= plan.cost_usd_per_hour <= least * (1.0 + 0.005)


@pytest.mark.parametrize(
    ("policy", "router"),
    [
        ({"spare_replicas": 1}, "random"),
        ({"max_pools": 2}, "random"),
        ({"spare_replicas": 1}, "jsq"),
        ({"max_pools": 2}, "jsq"),
    ],
)
def test_limits_of_pools_hold_for_all_lengths(policy, router):
    data = lengthy(1, router)
    data["policy"] = policy
    plan = qm.plan(data)
    assert plan.fleet is not None and verify(plan).ok
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour
    alone = [qm.plan({**certain(data, name), "policy": policy}) for name in WEIGHTS]
    assert plan.cost_usd_per_hour >= max(one.bound_usd_per_hour for one in alone) * (1.0 - 1e-6)
    assert len(plan.fleet.pools) <= policy.get("max_pools", 9)


def test_whole_nodes_and_stock_count_once_for_all_lengths():
    data = lengthy(1, "jsq")
    for gpu in data["fleet"]["gpus"].values():
        gpu["billing"] = "per_node"
    plan = qm.plan(data)
    assert plan.status == "optimal" and verify(plan).ok
    free = qm.plan(lengthy(1, "jsq"))
    assert plan.cost_usd_per_hour >= free.bound_usd_per_hour
    data = lengthy(1, "jsq")
    held = sum(row.gpus for row in free.pools if row.gpu == "small")
    data["fleet"]["gpus"]["small"]["max_count"] = max(held - 1, 0)
    plan = qm.plan(data)
    assert verify(plan).ok and plan.cost_usd_per_hour >= free.bound_usd_per_hour
    assert sum(row.gpus for row in plan.pools if row.gpu == "small") < max(held, 1)


def shared(router: str, **stated: object) -> dict:
    """Both classes on one model."""
    data = lengthy(5, router, **stated)
    data["classes"]["class-n"]["model"] = "m"
    data["profiles"] = [item for item in data["profiles"] if item["model"] == "m"]
    return data


@pytest.mark.parametrize("router", ["jsq", "random"])
@pytest.mark.parametrize("part", ["all", "mean", {"cvar": 0.8}])
def test_classes_of_one_model_share_pools_whatever_their_lengths(router, part):
    data = shared(router, plan_for=part)
    plan = qm.plan(data, solver=qm.SolverOptions(mip_gap=0.05, time_limit_s=6.0))
    assert plan.fleet is not None and verify(plan).ok
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour
    for gpu in data["fleet"]["gpus"]:  # one pool of one type that serves every scenario is no better than the bound
        cost = 0.0
        for name in WEIGHTS:
            alone = certain(data, name)
            alone["fleet"]["gpus"] = {gpu: alone["fleet"]["gpus"][gpu]}
            alone["profiles"] = [item for item in alone["profiles"] if item["gpu"] == gpu]
            alone["policy"] = {"max_pools": 1}
            found = qm.plan(alone).cost_usd_per_hour
            cost = max(cost, np.inf if found is None else found)
        assert plan.bound_usd_per_hour <= cost * (1.0 + 1e-6)
        assert plan.cost_usd_per_hour <= cost * 1.05


def test_equal_lengths_are_one_problem():
    data = lengthy(2, "jsq")
    for item in data["demand"]["scenarios"].values():
        item.update(copy.deepcopy(CHANGES["ramble"]))
    plan = qm.plan(data)
    alone = qm.plan(certain(data, "usual"))
    assert plan.cost_usd_per_hour == pytest.approx(alone.cost_usd_per_hour)
    assert [row.predicted_s for row in plan.slo] == pytest.approx([row.predicted_s for row in alone.slo])


def test_a_plan_with_other_lengths_is_kept_and_what_is_changed_is_found(tmp_path):
    data = lengthy(1, "jsq", plan_for="mean")
    plan = qm.plan(data)
    plan.save(tmp_path / "plan.json")
    again = qm.load_plan(tmp_path / "plan.json")
    assert again.to_dict() == plan.to_dict() and verify(again).ok
    first, *rest = plan.periods
    longer = {name: tokens * 2 for name, tokens in first.output_tokens.items()}
    assert not verify(replace(plan, periods=(replace(first, output_tokens=longer), *rest))).ok
    items = [{**item, "lengths": {}} for item in plan.inputs["periods"]["items"]]
    periods = {**plan.inputs["periods"], "items": items}
    assert not verify(replace(plan, inputs={**plan.inputs, "periods": periods})).ok
    check = qm.check_plan(data, plan, requests=2000)
    assert plan.busiest == "ramble" and check.verdict in ("met", "not decided")
    frame = plan.to_frame("periods")
    assert frame["output_tokens_per_s"].max() > frame["output_tokens_per_s"].min()


def test_a_trace_is_scaled_request_by_request(tmp_path):
    rng = np.random.default_rng(1)
    rows = [
        f"{time:.3f},{prompt},{output}"
        for time, prompt, output in zip(
            np.cumsum(rng.exponential(0.5, 400)), rng.integers(50, 900, 400), rng.integers(20, 300, 400), strict=True
        )
    ]
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    data = lengthy(1, "jsq", plan_for="mean")
    item = data["classes"]["class-m"]
    for key in ("rate_rps", "prompt_tokens", "output_tokens"):
        del item[key]
    item["trace"] = {"file": str(tmp_path / "t.csv")}
    instance = bind(qm.load_scenario(data))
    own, wordy = instance.classes["class-m"].lengths, instance.periods.items[1].lengths["class-m"]
    assert wordy.output.mean == pytest.approx(1.8 * own.output.mean, rel=0.01)
    assert wordy.prompt.mean == own.prompt.mean and wordy.e_pn == pytest.approx(1.8 * own.e_pn, rel=0.01)
    plan = qm.plan(data)
    assert verify(plan).ok
    with pytest.raises(qm.ScenarioError, match="has other lengths than its trace, which can only be replayed"):
        qm.check_plan(data, plan)


def test_bad_lengths_are_told():
    key = "demand.scenarios.wordy.lengths"
    for change, problem in (
        ({"class-m": {}}, f"{key}.class-m: changes nothing; write {{output_factor: 1.3}}, or leave it out"),
        ({"class-m": {"output_factor": 0}}, f"{key}.class-m.output_factor: must be greater than 0 (got 0)"),
        (
            {"class-m": {"prompt_factor": 2, "prompt_tokens": {"constant": 9}}},
            f"{key}.class-m: states prompt_factor and prompt_tokens, which exclude each other; keep one of them",
        ),
        (
            {"class-m": {"reasoning_tokens": {"constant": 9}}},
            f"{key}.class-m: states reasoning_tokens, but the class has output_tokens; change output_tokens",
        ),
        ({"class-o": {"output_factor": 2}}, f"{key}.class-o: no class 'class-o'; did you mean 'class-n'?"),
        ({"class-m": {"output_facto": 2}}, f"{key}.class-m: unknown key 'output_facto'; did you mean 'output_factor'?"),
        ({"class-m": {"output_factor": 1e-3}}, f"{key}.class-m: mean: must be at least 1 (got 0.3)"),
    ):
        data = lengthy(1, "jsq")
        data["demand"]["scenarios"]["wordy"]["lengths"] = change
        (found,) = told(data)
        assert found.split(" (got")[0] == problem.split(" (got")[0]
    data = lengthy(1, "jsq")
    data["profiles"] += [{"model": "m", "gpu": "big", "layout": {"tp": 2}, "max_rate_rps": {"class-m": 3}}]
    assert told(data)[0].startswith(
        f"{key}.class-m: class 'class-m' has measured capacities (max_rate_rps), which say nothing of other lengths"
    )


def test_lengths_that_fit_nowhere_are_named():
    data = shared("jsq", plan_for="mean")
    for profile in data["profiles"]:
        profile["kv_tokens"] = 40000
    fits = qm.plan(data, solver=qm.SolverOptions(mip_gap=0.05, time_limit_s=6.0))
    assert fits.fleet is not None
    data["demand"]["scenarios"]["ramble"]["lengths"]["class-m"] = {"output_tokens": {"constant": 50000}}
    plan = qm.plan(data)
    assert plan.status == "infeasible" and plan.why.text.startswith("in scenario ramble: ")
    data["demand"]["scenarios"]["ramble"]["factors"]["class-m"] = 0  # nobody asks for them then
    assert qm.plan(data, solver=qm.SolverOptions(mip_gap=0.05, time_limit_s=6.0)).fleet is not None


@pytest.mark.parametrize("part", ["all", "mean"])
def test_engine_settings_are_chosen_for_pools_that_serve_several_lengths(part):
    data = lengthy(5, "jsq", plan_for=part)
    for profile in data["profiles"]:
        profile.pop("max_num_seqs", None)
    both = qm.plan({**data, "engine": {"max_num_seqs": [16, 128]}})
    alone = [qm.plan({**data, "engine": {"max_num_seqs": number}}) for number in (16, 128)]
    assert verify(both).ok
    assert both.bound_usd_per_hour <= both.cost_usd_per_hour
    costs = [plan.cost_usd_per_hour for plan in alone if plan.fleet is not None]
    assert both.bound_usd_per_hour <= min(costs) * (1.0 + 1e-9)
    assert both.cost_usd_per_hour <= min(costs) * (1.0 + 2e-3)
    settings = [sorted((row.pool, row.max_num_seqs) for row in item.pools) for item in both.periods]
    assert part == "mean" or settings[0] == settings[1] == settings[2]


def test_shared_pools_keep_one_setting_whatever_the_lengths():
    data = shared("jsq", plan_for="all")
    for profile in data["profiles"]:
        profile.pop("max_num_seqs", None)
    brief = qm.SolverOptions(mip_gap=0.1, time_limit_s=4.0)
    both = qm.plan({**data, "engine": {"max_num_seqs": [16, 128]}}, solver=brief)
    assert verify(both).ok
    alone = [qm.plan({**data, "engine": {"max_num_seqs": number}}, solver=brief) for number in (16, 128)]
    least = min(plan.cost_usd_per_hour for plan in alone if plan.fleet is not None)
    assert both.bound_usd_per_hour <= least * (1.0 + 1e-9)
    assert all(dict(item.fleet.pools) == dict(both.fleet.pools) for item in both.periods)


def test_requests_of_other_lengths_leave_as_others_do():
    data = lengthy(1, "jsq", plan_for="all")
    data["classes"]["class-m"] |= {"patience_s": 2.0, "retries": 1}
    data["classes"]["class-m"]["slo"]["abandoned_share"] = 0.01
    periods = bind(qm.load_scenario(data)).periods
    assert periods is not None
    (item,) = [item for item in periods.items if item.name == "ramble"]
    bound = item.demand(bind(qm.load_scenario(data)).classes)["class-m"]
    assert bound.patience is not None
    assert (bound.patience.patience_s, bound.patience.retries) == (2.0, 1)
    plan = qm.plan(data)
    assert verify(plan).ok
    assert all({row.cls for row in period.leaving} == {"class-m"} for period in plan.periods)


def test_lengths_stated_under_the_only_model_change_too():
    data = lengthy(1, "jsq")
    under = copy.deepcopy(data)
    item = under["classes"]["class-m"]
    item["models"] = {item.pop("model"): {"output_tokens": item.pop("output_tokens")}}
    stated, same = (bind(qm.load_scenario(one)) for one in (data, under))
    for own, other in zip(stated.periods.items, same.periods.items, strict=True):
        assert own.lengths.keys() == other.lengths.keys()
        for name, lengths in own.lengths.items():
            assert lengths.to_dict() == other.lengths[name].to_dict()
