"""Targets over the whole fleet: what brute force over counts and splits costs, and every place that speaks of them."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import qmodel as qm
from qmodel.types import Path as Route
from qmodel.types import decisive
from tests.planning.fleet_wide import least_cost, least_cost_of_two, two_types
from tests.planning.shared_models import two_classes
from tests.planning.test_tiers import tiered

EXACT = qm.SolverOptions(mip_gap=0.0, time_limit_s=10.0)
EXAMPLE = "scenarios/72-fleet-targets.yaml"


def by_pool(data: dict[str, Any]) -> dict[str, Any]:
    """The same with targets that hold in every pool."""
    found = copy.deepcopy(data)
    del found["policy"]["slo_scope"]
    return found


@pytest.fixture(scope="module")
def saving() -> qm.Plan:
    """Two old replicas and one new one, where every pool by itself would take more."""
    return qm.plan(two_types(4, "random"))


def check(data: dict[str, Any], *, most: int = 4) -> qm.Plan:
    """The plan costs no more than brute force and than with targets in every pool; no bound lies above."""
    plan, best = qm.plan(data, solver=EXACT), least_cost(data, most=most)
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= best * (1.0 + 1e-9)
    assert plan.bound_usd_per_hour <= best * (1.0 + 1e-9)
    every = qm.plan(by_pool(data), solver=EXACT).cost_usd_per_hour
    assert every is None or plan.cost_usd_per_hour <= every * (1.0 + 1e-9)
    assert qm.verify(plan).ok, qm.verify(plan).first_failure
    return plan


@pytest.mark.parametrize(("seed", "router"), [(3, "random"), (4, "random"), (18, "random"), (4, "jsq"), (12, "jsq")])
def test_a_plan_costs_what_brute_force_over_counts_and_splits_costs(seed: int, router: str) -> None:
    data = two_types(seed, router)
    plan = check(data)
    assert plan.cost_usd_per_hour == pytest.approx(least_cost(data))
    assert plan.status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("seed", [0, 1, 5, 7, 8, 10, 11, 14, 15, 16, 19, 21, 22, 23])
def test_no_plan_costs_more_than_brute_force_over_counts_and_splits(seed: int, router: str) -> None:
    check(two_types(seed, router))


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_targets_on_means_hold_for_the_mean_over_pools(router: str) -> None:
    plan = check(two_types(22, router, slo={"tpot_mean_s": 0.0191, "ttft_mean_s": 0.2}))
    assert plan.fleet is not None


def test_an_old_type_that_cannot_hold_a_target_carries_a_few_percent_and_saves_a_large_replica() -> None:
    over_fleet = qm.plan(EXAMPLE)
    in_pools = qm.plan(qm.load_scenario(EXAMPLE, apply=["every-pool"]))
    assert over_fleet.cost_usd_per_hour is not None and in_pools.cost_usd_per_hour is not None
    assert over_fleet.cost_usd_per_hour < 0.9 * in_pools.cost_usd_per_hour
    assert {row.gpu for row in over_fleet.pools} == {"h100-sxm", "l40s"}
    assert {row.gpu for row in in_pools.pools} == {"h100-sxm"}
    small = next(row for row in over_fleet.routing if "l40s" in row.path)
    assert 0.0 < small.share < 0.1
    alone = qm.load_scenario(EXAMPLE, set={"fleet.gpus.h100-sxm": None, "classes.chat.rate_rps": 0.01})
    assert qm.plan(alone).status == "infeasible"
    assert over_fleet.status == "optimal"


def test_met_is_that_of_the_whole_class_and_rows_of_pools_say_what_they_are(saving: qm.Plan) -> None:
    assert all(row.met for row in saving.slo)
    beyond = [row for row in saving.slo if row.predicted_s is not None and row.predicted_s > row.target_s]
    assert beyond and all(row.path != "fleet" for row in beyond)
    assert all(row.predicted_s <= row.target_s for row in decisive(saving.slo, "fleet") if row.predicted_s is not None)
    assert any("targets hold for all of its requests together" in text for text in saving.assumptions)
    assert "policy.slo_scope: fleet" in saving.explain()


def test_a_fleet_is_feasible_by_the_scope_in_force(saving: qm.Plan) -> None:
    data = two_types(4, "random")
    assert saving.fleet is not None
    assert qm.evaluate(data, saving.fleet).feasible
    found = qm.evaluate(by_pool(data), saving.fleet)
    assert not found.feasible
    assert {row.path: row.met for row in found.slo if row.metric == "ttft"}["fleet"]


def test_capacity_is_the_factor_at_which_the_mixture_meets_its_targets(saving: qm.Plan) -> None:
    data = two_types(4, "random")
    assert saving.fleet is not None
    limit = qm.capacity(data, saving.fleet)
    assert limit.factor >= 1.0
    assert limit.binding.endswith("in the fleet")
    assert qm.capacity(by_pool(data), saving.fleet).factor < 1.0
    for part, feasible in ((0.999, True), (1.001, False)):
        scaled = copy.deepcopy(data)
        scaled["classes"]["chat"]["rate_rps"] *= limit.factor * part
        assert qm.evaluate(scaled, saving.fleet).feasible is feasible


def test_the_split_has_as_much_room_as_splits_beside_it(saving: qm.Plan) -> None:
    data = two_types(4, "random")
    assert saving.fleet is not None

    def room(fleet: qm.Fleet) -> float:
        return qm.capacity(data, fleet).factor

    first, second = saving.fleet.routing["chat"]
    found = []
    for moved in (-0.04, -0.02, 0.02, 0.04):
        paths = (replace(first, share=first.share + moved), replace(second, share=second.share - moved))
        found.append(room(replace(saving.fleet, routing={"chat": paths})))
    assert room(saving.fleet) >= max(found) * 0.985


def test_a_saved_plan_is_verified_by_the_scope_it_was_made_for(saving: qm.Plan, tmp_path: Path) -> None:
    saving.save(tmp_path / "plan.json")
    read = qm.load_plan(tmp_path / "plan.json")
    assert qm.verify(read).ok
    assert read.inputs["slo_scope"] == "fleet"
    stricter = replace(read, inputs={**read.inputs, "slo_scope": "pool"})
    assert not qm.verify(stricter).ok
    assert read.fleet is not None
    first, second = read.fleet.routing["chat"]
    for moved in (0.15, -0.15):
        paths = (replace(first, share=first.share + moved), replace(second, share=second.share - moved))
        other = replace(read, fleet=replace(read.fleet, routing={"chat": paths}))
        assert not qm.verify(other).ok


def test_a_class_that_one_pool_serves_is_the_same_in_both_scopes() -> None:
    data = two_types(1, "random")
    over_fleet, in_pools = qm.plan(data), qm.plan(by_pool(data))
    assert len(over_fleet.pools) == 1
    assert over_fleet.pools == in_pools.pools and over_fleet.routing == in_pools.routing
    assert over_fleet.slo == in_pools.slo


def test_a_simulated_plan_is_judged_by_the_mixture(saving: qm.Plan) -> None:
    found = qm.check_plan(two_types(4, "random"), saving, requests=8000, most_added=0)
    rows = [row for row in found.simulation.slo if row.metric == "ttft"]
    assert len({row.decision for row in rows}) == 1
    whole = next(row for row in rows if row.path == "fleet")
    assert whole.simulated_s is not None and whole.predicted_s is not None
    assert whole.simulated_s == pytest.approx(whole.predicted_s, rel=0.25)


def test_a_plan_that_misses_in_simulation_grows_the_pool_that_exceeds_most() -> None:
    data = two_types(4, "random")
    plan = qm.plan(data)
    tighter = copy.deepcopy(data)
    tighter["classes"]["chat"]["slo"] = {"ttft_p99_s": 0.12, "tpot_p90_s": 0.2}
    found = qm.check_plan(tighter, plan, requests=4000, most_added=1)
    assert [item.pool for item in found.growth] == [row.pool for row in plan.pools if row.gpu == "old"]


@pytest.mark.parametrize("confidence", ["nominal", "p90"])
def test_bands_of_every_path_widen_the_mixture(confidence: str) -> None:
    data = two_types(18, "random", confidence=confidence)
    for profile in data["profiles"]:
        profile["band_p90"] = 0.03
    plan = qm.plan(data, solver=qm.SolverOptions(time_limit_s=4.0))
    every = qm.plan(by_pool(data))
    assert plan.cost_usd_per_hour is not None and every.cost_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= every.cost_usd_per_hour * (1.0 + 1e-9)
    assert qm.verify(plan).ok
    for row in plan.slo:
        assert row.low_s is not None and row.predicted_s is not None and row.high_s is not None
        assert row.low_s < row.predicted_s < row.high_s
        assert row.met_at_p90 or confidence == "nominal"


@pytest.mark.parametrize("case", ["cheap GPUs run out", "every tier runs out", "whole nodes"])
def test_tiers_stock_and_whole_nodes_go_with_targets_over_the_fleet(case: str) -> None:
    data = tiered(case, 3, "jsq")
    data["policy"] = {"slo_scope": "fleet"}
    plan, every = qm.plan(data), qm.plan(by_pool(data))
    assert plan.cost_usd_per_hour is not None and every.cost_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= every.cost_usd_per_hour * (1.0 + 1e-9)
    assert qm.verify(plan).ok


def test_scarce_stock_costs_less_where_the_other_type_may_exceed_a_target() -> None:
    data = two_types(4, "jsq")
    data["fleet"]["gpus"]["new"]["max_count"] = 1
    plan, every = qm.plan(data), qm.plan(by_pool(data))
    assert plan.cost_usd_per_hour is not None and every.cost_usd_per_hour is not None
    assert plan.cost_usd_per_hour < every.cost_usd_per_hour
    assert plan.fleet is not None and plan.fleet.gpus["new"] == 1


def test_a_budget_that_only_a_mixture_keeps() -> None:
    data = two_types(4, "random")
    data["fleet"]["budget_usd_per_hour"] = 6.0
    assert qm.plan(by_pool(data)).status == "infeasible"
    assert qm.plan(data).status == "optimal"
    data["fleet"]["budget_usd_per_hour"] = 5.0
    short = qm.plan(data)
    assert (short.status, short.why.limit) == ("infeasible", "fleet.budget_usd_per_hour")


def test_a_target_that_no_type_reaches_is_named() -> None:
    plan = qm.plan(two_types(4, "random", slo={"ttft_p99_s": 0.001}))
    assert plan.status == "infeasible"
    assert plan.why.limit == "classes.chat.slo.ttft_p99_s"


def test_stock_that_is_too_small_for_any_mixture_is_named() -> None:
    data = two_types(4, "random")
    for gpu in data["fleet"]["gpus"].values():
        gpu["max_count"] = 1
    plan = qm.plan(data)
    assert plan.status == "infeasible"
    assert plan.why.limit.endswith("max_count")


@pytest.mark.parametrize(("seed", "router"), [(0, "random"), (2, "jsq")])
def test_classes_that_share_pools_cost_no_more_than_with_targets_in_every_pool(seed: int, router: str) -> None:
    data = two_classes(seed, router)
    every = qm.plan(data)
    data["policy"] = {"slo_scope": "fleet"}
    plan = qm.plan(data)
    assert plan.cost_usd_per_hour is not None and every.cost_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= every.cost_usd_per_hour * (1.0 + 1e-9)
    assert qm.verify(plan).ok


@pytest.mark.slow
@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_bound_holds_where_classes_share_pools_that_exceed_their_targets(seed: int, router: str) -> None:
    data = two_classes(seed, router)
    data["policy"] = {"slo_scope": "fleet"}
    plan, best = qm.plan(data), least_cost_of_two(data)
    assert plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= best * (1.0 + 1e-9)


def test_a_path_of_pools_in_a_row_is_part_of_the_mixture() -> None:
    data = two_types(4, "jsq")
    plan = qm.plan(data)
    assert plan.fleet is not None
    first, second = plan.fleet.pools.values()
    row = {
        "in": replace(first, name="in", role="prefill", replicas=2),
        "out": replace(first, name="out", role="decode", replicas=2),
        second.name: second,
    }
    link = qm.types.PoolLink(bandwidth_gbps=50.0, kv_bytes_per_token=130_000.0)
    row["out"] = replace(row["out"], link=link)
    paths = (Route(pools=("in", "out"), share=0.8), Route(pools=(second.name,), share=0.2))
    fleet = qm.Fleet(pools=row, routing={"chat": paths})
    found = qm.evaluate(data, fleet)
    assert {r.path for r in found.slo} == {"in > out", second.name, "fleet"}
    limit = qm.capacity(data, fleet).factor
    assert (limit >= 1.0) == found.feasible
