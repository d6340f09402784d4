"""Plans with separate prefill and decode pools: against brute force, within limits, saved, verified and checked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import columns_by_stage, enumerate_candidates
from qmodel.candidates.stage_candidates import staged_candidates
from qmodel.planning.verification import verify
from qmodel.problem import bind
from tests.planning.apart_fleets import apart, least_cost_apart, thinking
from tests.planning.test_order import facts, reordered

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
TIGHT = 1e-6  # relative


def with_rule(data: dict[str, Any], rule: bool | str, **fleet: Any) -> dict[str, Any]:
    return {**data, "layouts": {"disaggregate": rule}, "fleet": {**data["fleet"], **fleet}}


def documents(rule: bool | str, stock: int) -> dict[str, Any]:
    """Long prompts at a pace that they must not disturb: four unified replicas, or one of each stage."""
    return {
        "qmodel": 1,
        "classes": {
            "documents": {
                "model": "llama-3.1-8b",
                "rate_rps": 3,
                "prompt_tokens": {"mean": 6000, "cv": 0.6},
                "output_tokens": {"mean": 250, "cv": 0.7},
                "slo": {"ttft_p95_s": 2.0, "tpot_p95_s": 0.011},
            }
        },
        "fleet": {"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 2.5}, "max_count": stock}}},
        "layouts": {"tp": [1, 2], "pp": [1], "disaggregate": rule},
    }


@pytest.fixture(scope="module")
def planned() -> qm.Plan:
    plan = qm.plan(apart(0))
    assert [row.role for row in plan.pools] == ["prefill", "decode"]
    return plan


@pytest.mark.parametrize(
    ("seed", "router", "completion"),
    [
        (0, "jsq", False),
        (4, "jsq", False),
        (8, "jsq", False),
        (0, "random", False),
        (4, "random", False),
        (5, "jsq", True),
    ],
)
def test_plan_costs_no_more_than_brute_force_and_its_bound_is_below(seed: int, router: str, completion: bool) -> None:
    data = apart(seed, router=router, completion=completion)
    best, plan = least_cost_apart(data), qm.plan(data)
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= best * (1 + TIGHT)
    assert plan.bound_usd_per_hour <= best * (1 + TIGHT)
    assert plan.status == "optimal"
    assert verify(plan).ok, verify(plan).first_failure
    unified = qm.plan(with_rule(data, False))
    assert unified.cost_usd_per_hour is None or plan.cost_usd_per_hour <= unified.cost_usd_per_hour * (1 + TIGHT)


@pytest.mark.slow
def test_two_classes_share_pools_of_each_stage_at_the_cost_that_brute_force_finds() -> None:
    data = apart(4, classes=2)
    best, plan = least_cost_apart(data), qm.plan(data)
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= best * (1 + TIGHT) and plan.bound_usd_per_hour <= best * (1 + TIGHT)
    assert {row.role for row in plan.pools} == {"prefill", "decode"}
    assert verify(plan).ok, verify(plan).first_failure
    assert all(sum(row.share for row in plan.routing if row.cls == name) == pytest.approx(1.0) for name in ("c0", "c1"))


@pytest.mark.slow
def test_a_class_that_thinks_gets_an_answer_pool_where_that_is_cheapest() -> None:
    data = thinking(4)
    best = least_cost_apart(data, 2, ("prefill", "decode", "answer"))
    assert best < least_cost_apart(data, 3)
    plan = qm.plan(data)
    assert [row.role for row in plan.pools] == ["prefill", "decode", "answer"]
    assert plan.cost_usd_per_hour == pytest.approx(best) and plan.bound_usd_per_hour == pytest.approx(best)
    assert [row.pool for row in plan.links] == [row.pool for row in plan.pools[1:]]
    assert verify(plan).ok, verify(plan).first_failure


@pytest.mark.slow
def test_no_bound_is_above_a_fleet_with_an_answer_pool_that_the_search_does_not_find() -> None:
    data = thinking(1)
    best, plan = least_cost_apart(data, 2, ("prefill", "decode", "answer")), qm.plan(data)
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None and plan.gap is not None
    assert plan.bound_usd_per_hour <= best * (1 + TIGHT)
    assert plan.cost_usd_per_hour * (1.0 - plan.gap) <= best * (1 + TIGHT)


def test_targets_are_met_at_the_upper_band_where_the_policy_asks_for_that() -> None:
    data = apart(4) | {"policy": {"confidence": "p90"}}
    best, plan = least_cost_apart(data), qm.plan(data)
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= min(best, plan.cost_usd_per_hour) * (1 + TIGHT)
    assert plan.cost_usd_per_hour <= best * (1 + TIGHT)
    assert all(row.met_at_p90 for row in plan.slo)
    assert verify(plan).ok, verify(plan).first_failure


def test_replicas_that_run_already_keep_their_role() -> None:
    data = apart(0)
    fleet = qm.plan(data).fleet
    again = qm.plan(data, existing=fleet)
    assert again.fleet == fleet and again.status == "optimal"
    assert {row.role for row in again.pools} == {"prefill", "decode"}
    assert again.change_usd_per_hour == 0.0


def test_a_class_is_split_between_unified_pools_and_pools_in_a_row_where_that_is_cheapest() -> None:
    plan = qm.plan(apart(5, router="random"))
    assert {row.role for row in plan.pools} == {"unified", "prefill", "decode"}
    assert sum(row.share for row in plan.routing) == pytest.approx(1.0)
    assert [row.path for row in plan.slo if row.metric == "ttft"][-1] == "fleet"
    assert verify(plan).ok, verify(plan).first_failure


def test_rules_auto_and_false_give_the_same_plan_where_unified_pools_are_enough() -> None:
    data = json.loads(json.dumps(apart(4)))
    plans = [qm.plan(with_rule(data, rule)).to_dict(reproducible=True) for rule in ("auto", False)]
    for plan in plans:
        assert plan.pop("scenario") and plan.pop("assumptions")  # they tell the rule
    assert plans[0] == plans[1]
    assert plans[0]["links"] == []


def test_auto_tries_separate_pools_where_no_fleet_of_unified_ones_is_enough() -> None:
    assert qm.plan(documents(False, 2)).status == "infeasible"
    plan = qm.plan(documents("auto", 2))
    assert [(row.role, row.gpus) for row in plan.pools] == [("prefill", 1), ("decode", 1)]
    assert (plan.status, plan.bound_usd_per_hour) == ("optimal", 5.0)
    told = "no fleet of unified pools meets every target: separate prefill and decode pools were tried"
    assert told in plan.assumptions
    assert verify(plan).ok, verify(plan).first_failure
    enough = qm.plan(documents("auto", 4))
    assert {row.role for row in enough.pools} == {"unified"} and told not in enough.assumptions
    nothing = qm.plan(documents("auto", 1))  # the answer is that of unified pools
    assert nothing.status == "infeasible"
    assert replace(nothing.why, conflicts=()) == replace(qm.plan(documents(False, 1)).why, conflicts=())
    assert all(conflict.unified_only for conflict in nothing.why.conflicts)


def test_limits_that_separate_pools_do_not_keep_are_told_with_the_least_that_would_do() -> None:
    plan = qm.plan(documents(True, 1))
    assert (plan.status, plan.termination, plan.cost_usd_per_hour) == ("infeasible", "proven", None)
    assert plan.why.text == "the classes together need more GPUs than are in stock"
    assert plan.why.best == "2 h100-sxm GPUs at least, 1 allowed"
    assert plan.why.change == "raise fleet.gpus.h100-sxm.max_count to 2"
    assert qm.plan(documents(True, 2)).cost_usd_per_hour == 5.0


def test_a_target_that_no_pool_meets_is_told_as_without_separate_pools() -> None:
    data = apart(0)
    data["classes"]["c0"]["slo"] = {"tpot_p95_s": 0.001}
    found = [qm.plan(with_rule(data, rule)) for rule in (True, False)]
    assert [plan.status for plan in found] == ["infeasible", "infeasible"]
    assert replace(found[0].why, conflicts=()) == replace(found[1].why, conflicts=())
    assert [conflict.unified_only for plan in found for conflict in plan.why.conflicts] == [True, False]
    assert "tpot_p95_s" in found[0].why.text


def test_the_order_of_the_scenario_does_not_matter() -> None:
    data = apart(5, router="random")
    assert facts(qm.plan(reordered(data))) == facts(qm.plan(data))


def test_a_saved_plan_is_the_same_plan_and_a_fleet(planned: qm.Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    planned.save(path)
    loaded = qm.load_plan(path)
    assert loaded.to_dict() == planned.to_dict()
    assert verify(loaded).ok
    assert [row.pool for row in loaded.links] == [planned.pools[1].pool]
    evaluated = qm.evaluate(apart(0), path)
    assert evaluated.feasible and evaluated.cost_usd_per_hour == pytest.approx(planned.cost_usd_per_hour)
    assert evaluated.links == planned.links
    assert qm.simulate(apart(0), path, requests=1000).transfers


def test_verification_finds_a_changed_role_link_or_count(planned: qm.Plan) -> None:
    assert planned.fleet is not None
    decode = planned.pools[1]
    rows = (planned.pools[0], replace(decode, role="answer"))
    assert verify(replace(planned, pools=rows)).first_failure == "tables: table 'pools' differs from the fleet"
    slower = json.loads(json.dumps(planned.inputs))
    slower["pools"][decode.pool]["link"]["bytes_per_s"] /= 20.0  # the prediction moves beyond the target
    assert verify(replace(planned, inputs=slower)).first_failure.startswith("targets: c0 tpot p95")
    pools = {**planned.fleet.pools}
    first = planned.pools[0].pool
    pools[first] = replace(pools[first], replicas=1)
    assert not verify(replace(planned, fleet=replace(planned.fleet, pools=pools))).ok


def test_explanation_names_both_pools_and_the_cheapest_unified_ones(planned: qm.Plan) -> None:
    text = planned.explain()
    assert all(row.pool in text for row in planned.pools)
    assert any(item.candidate == "h100-sxm tp1 x2" and item.limit == "dearer" for item in planned.why.alternatives)


def test_classes_that_rows_are_not_predicted_for_stay_in_unified_pools() -> None:
    data = apart(0)
    data["classes"]["c0"] = {**data["classes"]["c0"], "arrivals": {"rate_rps": 3.0, "scv": 9.0}}
    del data["classes"]["c0"]["rate_rps"]
    plan = qm.plan(data)
    assert {row.role for row in plan.pools} == {"unified"}
    assert "no separate prefill and decode pools were tried for c0: it comes in bursts" in plan.assumptions
    data = apart(4, classes=2)
    data["classes"]["c1"]["priority"] = 1
    told = "no separate prefill and decode pools were tried for c0, c1: their priorities differ"
    instance = bind(qm.load_scenario(data))
    found = columns_by_stage(instance, enumerate_candidates(instance).candidates, instance.sharing())
    assert found.notes == (told,) and not found.sets and not found.serves("c0", "llama-3.1-8b")


def test_separate_pools_for_the_most_requests_served_are_refused() -> None:
    data = documents(True, 2) | {"objective": {"maximize": "served_rps"}}
    (problem,) = qm.validate(data)
    told = "not supported yet: separate prefill and decode pools where objective is served_rps"
    assert (problem.key, problem.what, problem.hint) == ("layouts.disaggregate", told, "use auto or false")
    assert qm.validate(data | {"layouts": {"disaggregate": "auto"}}) == []


def test_pools_whose_link_is_not_known_are_not_tried_and_the_plan_says_so() -> None:
    data = apart(0)
    data["fleet"]["gpus"] = {"own": {"price": {"usd_per_gpu_hour": 3.0}}}
    data["profiles"] = [{**data["profiles"][0], "gpu": "own"}]
    plan = qm.plan(data)
    assert {row.role for row in plan.pools} == {"unified"}
    assert any("no prefill and decode pools of llama-3.1-8b on own were tried" in text for text in plan.assumptions)


def test_a_simulation_grows_the_pool_of_the_stage_that_misses(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    waves = np.concatenate([start + np.sort(rng.random(120)) * 4.0 for start in range(0, 300, 20)])
    path = tmp_path / "waves.jsonl"
    lines = [json.dumps({"timestamp": 1000.0 * at, "input_length": 2000, "output_length": 40, "hash_ids": []})
             for at in np.sort(waves).tolist()]  # fmt: skip
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = apart(0)
    trace = {"file": str(path), "arrivals": "poisson"}
    data["classes"] = {"c0": {"model": "llama-3.1-8b", "trace": trace, "slo": {"ttft_p90_s": 1.0, "tpot_p95_s": 0.015}}}
    plan = qm.plan(data)
    assert [row.role for row in plan.pools] == ["prefill", "decode"]
    check = qm.check_plan(data, plan, arrivals="recorded", most_added=3)
    assert check.growth and check.growth[0].pool == plan.pools[0].pool
    assert "ttft p90 of c0" in check.growth[0].reason


def test_separate_pools_are_tried_on_spot_gpus_too() -> None:
    data = apart(1)
    data["fleet"]["gpus"]["h200-sxm"] = {
        "price": {"term": "spot", "usd_per_gpu_hour": 0.9},
        "spot": {"preemptions_per_hour": 0.1, "restart_s": 300},
    }
    instance = bind(qm.load_scenario(data))
    found, notes = staged_candidates(instance, enumerate_candidates(instance).candidates, "prefill")
    assert {item.gpu for item in found} == {"h100-sxm", "h200-sxm"}
    assert notes == []
