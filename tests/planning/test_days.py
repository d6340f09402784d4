"""Plans for demand that differs by the hour: against brute force, at their limits, and what they say."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

import qmodel as qm
from qmodel.planning import verify
from tests.planning.days import LEVELS, day_of, least_day, one_hour, profile_of

ROUGH = qm.SolverOptions(mip_gap=0.08)


@pytest.mark.parametrize("router", ["jsq", "random"])
@pytest.mark.parametrize("lag_s", [0.0, 900.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_changing_fleet_costs_what_brute_force_finds(seed, router, lag_s):
    data = day_of(seed, router, hours=True, lag_s=lag_s)
    plan, least = qm.plan(data), least_day(data)
    assert plan.status == "optimal"
    assert plan.cost_usd_per_hour <= least * (1.0 + 0.005)
    assert plan.bound_usd_per_hour <= least * (1.0 + 1e-6)
    assert plan.cost_usd_per_hour >= least * (1.0 - 0.005)  # the brute force follows the frontier to 0.01 %


def test_stock_holds_in_every_hour():
    data = day_of(3, "jsq", hours=True)
    free = qm.plan(data)
    used = max(sum(row.gpus for row in hour.pools if row.gpu == "small") for hour in free.periods)
    data["fleet"]["gpus"]["small"]["max_count"] = max(used - 1, 0)
    plan, least = qm.plan(data), least_day(data)
    assert plan.cost_usd_per_hour == pytest.approx(least, rel=0.005)
    assert plan.cost_usd_per_hour >= free.bound_usd_per_hour


@pytest.mark.parametrize("seed", [1, 4])
def test_the_day_lies_between_its_single_hours_and_its_largest_fleet(seed):
    data = day_of(seed, "jsq", hours=True)
    plan = qm.plan(data)
    hours = [len([h for h in range(24) if profile_of([0, 1, 2])[h] == part]) for part in range(3)]
    alone = [qm.plan(one_hour(data, level, terms=("on_demand",))) for level in LEVELS]
    by_the_hour = sum(n * one.cost_usd_per_hour for n, one in zip(hours, alone, strict=True)) / 24.0
    assert plan.bound_usd_per_hour <= by_the_hour * (1.0 + 1e-6)
    largest = qm.plan(one_hour(data, (1.0, 1.0), terms=("reserved_1y",)))
    assert plan.cost_usd_per_hour <= largest.cost_usd_per_hour * (1.0 + 0.005)


def test_without_a_base_every_hour_is_planned_for_itself():
    data = day_of(2, "jsq", hours=True, reserved=None)
    plan = qm.plan(data)
    for level, hour in zip(LEVELS, [next(h for h in plan.periods if n in h.hours) for n in (8, 18, 0)], strict=True):
        alone = qm.plan(one_hour(data, level, terms=("on_demand",)))
        assert hour.cost_usd_per_hour == pytest.approx(alone.cost_usd_per_hour, rel=0.005)
    assert plan.base == ()


def test_time_to_start_costs_no_less():
    costs = [qm.plan(day_of(1, "jsq", hours=True, lag_s=lag_s)).cost_usd_per_hour for lag_s in (0.0, 1200.0, 3600.0)]
    assert costs[0] <= costs[1] * (1.0 + 0.005) and costs[1] <= costs[2] * (1.0 + 0.005)
    assert costs[2] > costs[0]


def test_equal_hours_are_one_plan():
    data = day_of(1, "jsq", hours=False)
    for item in data["classes"].values():
        item["arrivals"]["profile"] = [1.0] * 24
    day = qm.plan(data)
    plain = copy.deepcopy(data)
    for item in plain["classes"].values():
        item["rate_rps"] = item.pop("arrivals")["rate_rps"]
    plan = qm.plan(plain)
    assert day.cost_usd_per_hour == plan.cost_usd_per_hour and day.bound_usd_per_hour == plan.bound_usd_per_hour
    assert day.fleet == plan.fleet and day.pools == plan.pools and day.slo == plan.slo
    assert [hour.hours for hour in day.periods] == [tuple(range(24))]
    for item in data["classes"].values():
        item["arrivals"]["hours"] = True
    changing = qm.plan(data)  # all of it is bought for every hour, at the lower price
    assert changing.cost_usd_per_hour == pytest.approx(plan.cost_usd_per_hour, rel=0.005)


def test_classes_that_share_nothing_need_their_largest_rates():
    data = day_of(2, "jsq", hours=False)
    plan = qm.plan(data)
    largest = qm.plan(one_hour(data, (1.0, 1.0), terms=("on_demand", "reserved_1y")))
    assert plan.cost_usd_per_hour == pytest.approx(largest.cost_usd_per_hour)
    assert len(plan.periods) == 3 and all(hour.fleet.pools == plan.fleet.pools for hour in plan.periods)


def shared(router: str, **changes: object) -> dict:
    """Two classes of one model whose peaks do not meet."""
    data = day_of(5, router, hours=False, reserved=None)
    first, second = data["classes"].values()
    second["model"] = "m"
    data["profiles"] = [item for item in data["profiles"] if item["model"] == "m"]
    for item, levels in ((first, (1.0, 0.3, 0.2)), (second, (0.2, 1.0, 0.3))):
        item["arrivals"] = {"rate_rps": 12.0, "profile": profile_of(levels), **changes}
        item["slo"] = {"ttft_p95_s": 1.5, "tpot_mean_s": 0.05}
    return data


@pytest.mark.parametrize("router", ["jsq", "random"])
def test_one_fleet_serves_classes_whose_peaks_do_not_meet(router):
    data = shared(router)
    plan = qm.plan(data, solver=ROUGH)
    at_once = qm.plan(one_hour(data, (1.0, 1.0), terms=("on_demand",)), solver=ROUGH)
    assert plan.cost_usd_per_hour < at_once.bound_usd_per_hour
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour
    assert all(hour.fleet.pools == plan.fleet.pools for hour in plan.periods)
    busiest = [qm.plan(one_hour(data, level, terms=("on_demand",)), solver=ROUGH) for level in ((1.0, 0.2), (0.3, 1.0))]
    assert plan.cost_usd_per_hour >= max(one.bound_usd_per_hour for one in busiest) * (1.0 - 1e-6)
    for pool in _single_pools(data):  # no pool of one type that serves every hour is cheaper than the bound says
        assert plan.bound_usd_per_hour <= pool * (1.0 + 1e-6)
        assert plan.cost_usd_per_hour <= pool * (1.0 + ROUGH.mip_gap)


def _single_pools(data: dict) -> list[float]:
    """Cost of the smallest pool of each GPU type that serves each of the three parts of the day."""
    costs = []
    for gpu in data["fleet"]["gpus"]:
        cost = 0.0
        for level in ((1.0, 0.2), (0.3, 1.0), (0.2, 0.3)):
            alone = one_hour(data, level, terms=("on_demand",))
            alone["fleet"]["gpus"] = {gpu: alone["fleet"]["gpus"][gpu]}
            alone["profiles"] = [item for item in alone["profiles"] if item["gpu"] == gpu]
            alone["policy"] = {"max_pools": 1}
            found = qm.plan(alone)
            cost = max(cost, np.inf if found.cost_usd_per_hour is None else found.cost_usd_per_hour)
        costs.append(cost)
    return costs


def test_a_changing_fleet_of_a_shared_model_costs_no_more_than_one_fleet():
    one, many = qm.plan(shared("jsq"), solver=ROUGH), qm.plan(shared("jsq", hours=True), solver=ROUGH)
    assert many.cost_usd_per_hour < one.cost_usd_per_hour
    assert verify(many).ok and verify(one).ok


def test_hours_without_demand_have_no_fleet():
    data = day_of(1, "jsq", hours=True)
    for item in data["classes"].values():
        item["arrivals"]["profile"] = [0.0] * 12 + [1.0] * 12
    plan = qm.plan(data)
    night = next(hour for hour in plan.periods if 0 in hour.hours)
    assert night.pools == () and night.rates_rps == {} and dict(night.fleet.routing) == {}
    assert plan.busiest == "12-23"
    assert night.cost_usd_per_hour == pytest.approx(sum(row.cost_usd_per_hour for row in plan.base))


MEASURED = {
    "qmodel": 1,
    "classes": {
        "short": {
            "model": "my-8b",
            "arrivals": {"rate_rps": 10, "profile": [0.3] * 12 + [1.0] * 12},
            "prompt_tokens": {"constant": 200},
            "output_tokens": {"constant": 100},
            "slo": {"ttft_p99_s": 0.5},
        },
        "long": {
            "model": "my-8b",
            "arrivals": {"rate_rps": 4, "profile": [1.0] * 12 + [0.25] * 12},
            "prompt_tokens": {"constant": 9000},
            "output_tokens": {"constant": 100},
            "slo": {"ttft_p99_s": 2},
        },
    },
    "fleet": {"gpus": {"big": {"price": {"usd_per_gpu_hour": 4.0}}}},
    "profiles": [{"model": "my-8b", "gpu": "big", "max_rate_rps": {"short": 5.0, "long": 2.0}}],
}


def test_measured_capacities_by_hand():
    plan = qm.plan(MEASURED)  # day 10/5 + 1/2 = 2.5, night 3/5 + 4/2 = 2.6: three replicas, not the four of both peaks
    assert plan.status == "optimal" and plan.cost_usd_per_hour == pytest.approx(12.0)
    data = copy.deepcopy(MEASURED)
    for item in data["classes"].values():
        item["arrivals"]["hours"] = True
    data["classes"]["long"]["arrivals"]["profile"] = [0.25] * 12 + [1.0] * 12  # 0.6 + 0.5 and 2 + 2
    data["fleet"]["gpus"]["big"] = {
        "tiers": [{"term": "reserved_1y", "usd_per_gpu_hour": 3.0}, {"term": "on_demand", "usd_per_gpu_hour": 4.0}]
    }
    plan = qm.plan(data)  # two for the day at 3, two more for half of it at 4
    assert [(row.term, row.gpus) for row in plan.base] == [("reserved_1y", 2)]
    assert plan.status == "optimal" and plan.cost_usd_per_hour == pytest.approx(2 * 3.0 + 2 * 4.0 / 2)


def test_whole_nodes_are_bought_by_the_hour():
    data = copy.deepcopy(MEASURED)
    for item in data["classes"].values():
        item["arrivals"]["hours"] = True
    data["classes"]["long"]["arrivals"]["profile"] = [0.25] * 12 + [1.0] * 12
    data["fleet"]["gpus"]["big"] |= {"billing": "per_node", "gpus_per_node": 2}
    plan = qm.plan(data)  # 1.1 and 4 replicas: one node and two
    assert [hour.cost_usd_per_hour for hour in plan.periods] == pytest.approx([8.0, 16.0])


def test_the_budget_is_one_of_the_mean():
    data = day_of(1, "jsq", hours=True)
    cost = qm.plan(data).cost_usd_per_hour
    data["fleet"]["budget_usd_per_hour"] = round(cost * 1.02, 6)
    assert qm.plan(data).cost_usd_per_hour == pytest.approx(cost, rel=0.005)
    data["fleet"]["budget_usd_per_hour"] = round(cost * 0.9, 6)
    plan = qm.plan(data)
    assert plan.status == "infeasible"
    assert plan.why.limit == "fleet.budget_usd_per_hour" and plan.why.text.endswith("USD/h on average")


def test_an_hour_that_cannot_be_served_is_named():
    data = day_of(1, "jsq", hours=True)
    for gpu in data["fleet"]["gpus"].values():
        gpu["max_count"] = 1
    plan = qm.plan(data)
    assert plan.status == "infeasible" and plan.cost_usd_per_hour is None
    assert plan.why.text.startswith(("in hours 8-17: ", "in hours 18-21: ")) and plan.why.change


def test_a_plan_of_a_day_is_kept_and_verified_alone(tmp_path):
    plan = qm.plan(day_of(1, "jsq", hours=True, lag_s=600.0))
    plan.save(tmp_path / "day.json")
    again = qm.load_plan(tmp_path / "day.json")
    assert again.to_dict() == plan.to_dict() and verify(again).ok
    assert plan.cost_usd_per_hour == pytest.approx(
        sum(len(hour.hours) * hour.cost_usd_per_hour for hour in plan.periods) / 24.0
    )
    assert len(plan.to_frame("periods")) == sum(len(hour.pools) for hour in plan.periods)


def test_what_is_changed_in_a_day_is_found():
    plan = qm.plan(day_of(1, "jsq", hours=True))
    first, *rest = plan.periods
    grown = {name: replace(pool, replicas=pool.replicas + 1) for name, pool in first.fleet.pools.items()}
    wrong = {
        "tables": replace(plan, periods=(replace(first, fleet=replace(first.fleet, pools=grown)), *rest)),
        "cost": replace(plan, periods=(replace(first, cost_usd_per_hour=first.cost_usd_per_hour + 1.0), *rest)),
        "mean": replace(plan, cost_usd_per_hour=plan.cost_usd_per_hour * 0.99),
        "base": replace(plan, base=tuple(replace(row, gpus=row.gpus + 1) for row in plan.base)),
        "rates": replace(
            plan, periods=(replace(first, rates_rps={n: r * 2 for n, r in first.rates_rps.items()}), *rest)
        ),
        "hours": replace(plan, periods=tuple(rest)),
        "busiest": replace(plan, busiest="3"),
    }
    assert plan.base
    assert [name for name, item in wrong.items() if verify(item).ok] == []


def test_a_day_is_checked_in_its_busiest_hours():
    data = day_of(1, "random", hours=True)
    plan = qm.plan(data)
    check = qm.check_plan(data, plan, requests=2000)
    assert check.growth == () and check.verdict in ("met", "not decided")


def test_long_stays_are_told():
    data = day_of(1, "jsq", hours=True)
    name, item = next(iter(data["classes"].items()))
    item["output_tokens"] = {"mean": 60000, "cv": 0.2}
    item["arrivals"]["rate_rps"] = 0.02
    item["slo"] = {"tpot_mean_s": 0.06}
    for profile in data["profiles"]:
        profile["max_num_seqs"] = 4096
    plan = qm.plan(data)
    assert any(text.startswith(f"class {name}: requests stay ") for text in plan.assumptions)
    assert not any("requests stay" in text for text in qm.plan(day_of(1, "jsq", hours=True)).assumptions)


def test_a_running_fleet_is_refused():
    data = day_of(1, "jsq", hours=True)
    plan = qm.plan(data)
    with pytest.raises(
        qm.ScenarioError, match="not supported yet: a running fleet where the demand differs by the hour"
    ):
        qm.plan(data, existing=plan.fleet)


def test_a_fleet_for_the_largest_rates_stands_in_where_time_is_short(monkeypatch):
    import qmodel.planning.day_plans as module

    data = shared("jsq")
    at_once = qm.plan(one_hour(data, (1.0, 1.0), terms=("on_demand",)), solver=ROUGH)
    choose = module.choose

    def out_of_time(*args, **options):
        return replace(choose(*args, **options), pools=(), measured=(), outcome="time", bound_usd_per_hour=5.0)

    monkeypatch.setattr(module, "choose", out_of_time)
    plan = qm.plan(data, solver=ROUGH)
    assert plan.cost_usd_per_hour == at_once.cost_usd_per_hour and verify(plan).ok
    assert (plan.status, plan.termination, plan.bound_usd_per_hour) == ("feasible", "time", 5.0)


def changing(**gpus: dict) -> dict:
    """The measured class alone, 10 a second by day and 5 by night, on a fleet that follows."""
    data = copy.deepcopy(MEASURED)
    del data["classes"]["long"]
    data["classes"]["short"]["arrivals"] = {"rate_rps": 10, "profile": [0.5] * 12 + [1.0] * 12, "hours": True}
    data["fleet"]["gpus"] = gpus
    data["profiles"][0]["max_rate_rps"] = {"short": 5.0}
    return data


def test_the_base_ends_where_its_offer_does():
    tiers = [{"term": "reserved_1y", "usd_per_gpu_hour": 1.0}, {"term": "on_demand", "usd_per_gpu_hour": 4.0}]
    plan = qm.plan(changing(big={"tiers": tiers}))  # two for the whole day, at the price of half a one
    assert plan.status == "optimal" and plan.cost_usd_per_hour == pytest.approx(2.0)
    tiers[0]["max_count"] = 1
    plan = qm.plan(changing(big={"tiers": tiers}))  # one for the whole day, the other by the hour for half of it
    assert plan.status == "optimal" and plan.cost_usd_per_hour == pytest.approx(1.0 + 4.0 / 2)


@pytest.mark.parametrize("hours", [True, False])
def test_measured_pools_share_a_class_with_others_in_every_hour(hours):
    big, small = ({"price": {"usd_per_gpu_hour": usd}, "max_count": most} for usd, most in ((4.0, 2), (1.0, 4)))
    data = changing(big=big, small=small)
    data["classes"]["short"]["arrivals"] |= {"rate_rps": 16, "hours": hours}
    steps = {"alpha_s": 0.02, "beta_s": 2e-3, "gamma_s": 1e-7, "delta_s": 1e-4, "max_num_seqs": 8}
    data["profiles"].append({"model": "my-8b", "gpu": "small", **steps})
    plan = qm.plan(data)
    assert plan.fleet is not None and verify(plan).ok
    peak = next(item for item in plan.periods if 23 in item.hours)
    assert {row.gpu for row in peak.pools} == {"big", "small"}
