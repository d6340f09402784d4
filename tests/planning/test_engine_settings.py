"""Engine settings as decisions: against plans and brute force with each value alone."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import enumerate_candidates, frontier
from qmodel.planning import verify
from qmodel.problem import bind
from tests.planning.apart_fleets import apart
from tests.planning.limited_fleets import MOST, carried, two_models
from tests.planning.shared_models import least_cost, two_classes

EXACT = qm.SolverOptions(mip_gap=0.0)
LISTS = {"max_num_seqs": [12, 48, 200], "max_batched_tokens": [256, 6000]}
NOT_COMPARED = ("run", "scenario", "inputs")


def listed(data: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The scenario with engine settings, of which its profiles state none."""
    found = copy.deepcopy(data)
    for profile in found["profiles"]:
        profile.pop("max_num_seqs", None)
    found["engine"] = {**found.get("engine", {}), **settings}
    return found


def each_alone(settings: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(settings, values, strict=True)) for values in itertools.product(*settings.values())]


def one_model(seed: int, router: str) -> dict[str, Any]:
    data = two_models(seed, router)
    del data["classes"]["class-n"]
    data["profiles"] = [item for item in data["profiles"] if item["model"] == "m"]
    item = data["classes"]["class-m"]
    item["prompt_tokens"] = {"mean": 1500 + 500 * (seed % 3), "cv": 0.8, "max": 16000}
    item["slo"] = {"ttft_p95_s": 2.5, "tpot_p95_s": 0.02 + 0.004 * (seed % 4)}
    return data


def brute_force(data: dict[str, Any]) -> float:
    """Least cost of one class over counts of one pool for each GPU type and each of the settings alone."""
    shares, costs = [], []
    for settings in each_alone(LISTS):
        instance = bind(qm.load_scenario(listed(data, **settings)))
        (item,) = instance.classes.values()
        candidates = enumerate_candidates(instance).candidates
        shares += [row[: MOST + 1] for row in carried(candidates, item)]
        costs += [one.cost_usd_per_hour for one in candidates]
    best: dict[int, float] = {0: 0.0}  # least cost by the share carried, in steps of a thousandth, rounded down
    for row, cost in zip(shares, costs, strict=True):
        new = dict(best)
        for carried_so_far, paid in best.items():
            for count in range(1, MOST + 1):
                step = min(carried_so_far + int(row[count] * 1000.0 + 1e-9), 1000)
                new[step] = min(new.get(step, np.inf), paid + cost * count)
        best = new
    return best.get(1000, np.inf)


@pytest.mark.parametrize("router", ["jsq", "random"])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_setting_of_each_pool_is_found(seed: int, router: str) -> None:
    data = one_model(seed, router)
    plan = qm.plan(listed(data, **LISTS), solver=EXACT)
    alone = [qm.plan(listed(data, **settings), solver=EXACT).cost_usd_per_hour for settings in each_alone(LISTS)]
    least = min(cost for cost in alone if cost is not None)
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= least * (1.0 + 1e-6)
    reached = brute_force(data)
    assert plan.bound_usd_per_hour <= min(reached, least) * (1.0 + 1e-6)
    assert plan.cost_usd_per_hour <= reached * (1.0 + 1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_classes_that_share_pools_cost_no_more_with_lists_and_the_bound_holds(seed: int) -> None:
    data = two_classes(seed, "jsq")
    lists = {"max_num_seqs": [24, 128], "max_batched_tokens": [512, 8192]}
    plan = qm.plan(listed(data, **lists))
    alone = [qm.plan(listed(data, **settings)) for settings in each_alone(lists)]
    costs = [item.cost_usd_per_hour for item in alone if item.cost_usd_per_hour is not None]
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None and plan.gap is not None
    assert plan.cost_usd_per_hour <= min(costs) * (1.0 + max(plan.gap, 0.005))
    assert plan.bound_usd_per_hour <= min(costs) * (1.0 + 1e-6)
    reached = least_cost(bind(qm.load_scenario(listed(data, **lists))), most_pools=2)
    assert plan.bound_usd_per_hour <= reached * (1.0 + 1e-6)
    assert verify(plan).ok


def test_the_order_of_the_lists_does_not_matter() -> None:
    data = one_model(1, "jsq")
    turned = {name: values[::-1] for name, values in reversed(LISTS.items())}
    plans = [qm.plan(listed(data, **settings), solver=EXACT).to_dict() for settings in (LISTS, turned)]
    first, second = ({key: value for key, value in item.items() if key not in NOT_COMPARED} for item in plans)
    assert first == second


def test_a_list_of_one_value_is_that_value() -> None:
    data = one_model(0, "jsq")
    plans = [qm.plan(listed(data, max_num_seqs=value)).to_dict() for value in ([48], 48)]
    first, second = ({key: value for key, value in item.items() if key not in NOT_COMPARED} for item in plans)
    assert first == second
    assert first["fleet"]["pools"] and all(pool["engine"] == {} for pool in first["fleet"]["pools"].values())


def test_settings_that_make_the_same_replica_are_looked_at_once() -> None:
    data = one_model(0, "jsq")
    for profile in data["profiles"]:
        profile["max_num_seqs"] = 64  # as measured
    data["engine"] |= {"max_num_seqs": [16, 32, 128], "max_batched_tokens": [1000, 4000]}
    instance = bind(qm.load_scenario(data))
    found = enumerate_candidates(instance).candidates
    assert len(found) == 2 * len(data["profiles"])
    assert {item.replica.max_num_seqs for item in found} == {64}
    plan = qm.plan(data)
    assert {row.max_num_seqs for row in plan.pools} == {64}
    assert all(set(pool.engine) == {"max_batched_tokens"} for pool in plan.fleet.pools.values())
    assert qm.evaluate(data, plan.fleet).pools == plan.pools


def test_the_frontier_of_the_best_setting_is_the_one_found_alone() -> None:
    instance = bind(qm.load_scenario(listed(one_model(2, "jsq"), **LISTS)))
    found, classes = enumerate_candidates(instance).candidates, list(instance.classes.values())
    sizes = np.full(len(found), 2)
    whole, best = frontier(found, classes, sizes), frontier(found, classes, sizes, best_settings=True)
    assert np.all(best.low <= whole.high) and np.all(whole.low <= best.high)
    for gpu in instance.gpus:
        rows = [place for place, item in enumerate(found) if item.gpu == gpu]
        assert best.low[rows].max() == pytest.approx(whole.low[rows].max(), rel=0.01)
        assert best.high[rows].max() <= whole.high[rows].max() * 1.01


def test_a_plan_says_what_it_took_and_stands_on_its_own(tmp_path: Any) -> None:
    data = listed(one_model(1, "jsq"), **LISTS)
    plan = qm.plan(data)
    assert plan.fleet is not None
    for row, pool in zip(plan.pools, plan.fleet.pools.values(), strict=True):
        assert pool.engine == {"max_num_seqs": row.max_num_seqs, "max_batched_tokens": row.max_batched_tokens}
        assert row.max_num_seqs in LISTS["max_num_seqs"] and row.max_batched_tokens in LISTS["max_batched_tokens"]
        assert f"max_num_seqs {row.max_num_seqs}" in row.settings
    assert qm.evaluate(data, plan.fleet).slo == plan.slo
    path = tmp_path / "plan.json"
    plan.save(path)
    again = qm.load_plan(path)
    assert again.fleet == plan.fleet and verify(again).ok
    simulated = qm.simulate(data, path, requests=500)
    assert {row.pool for row in simulated.pools} == set(plan.fleet.pools)
    broken = json.loads(path.read_text())
    pool = next(iter(broken["fleet"]["pools"].values()))
    pool["engine"] = {"max_num_seqs": 77}
    path.write_text(json.dumps(broken))
    assert verify(qm.load_plan(path)).first_failure.startswith("settings: pool ")


def test_a_fleet_says_which_of_several_settings_its_pools_have() -> None:
    data = listed(one_model(1, "jsq"), **LISTS)
    plan = qm.plan(data)
    silent = replace(plan.fleet, pools={name: replace(one, engine={}) for name, one in plan.fleet.pools.items()})
    with pytest.raises(qm.ScenarioError) as raised:
        qm.evaluate(data, silent)
    told = str(raised.value)
    assert "engine: the classes it serves leave open which engine settings it has: max_batched_tokens 256" in told
    assert "state max_batched_tokens, max_num_seqs under pools." in told
    with pytest.raises(qm.ScenarioError, match="state max_batched_tokens, max_num_seqs under pools"):
        qm.plan(data, existing=silent)


@pytest.mark.parametrize("seed", range(2))
def test_separate_pools_have_settings_of_their_own(seed: int) -> None:
    data = listed(apart(seed), max_num_seqs=[16, 128], max_batched_tokens=[1024, 8192])
    plan = qm.plan(data)
    assert plan.fleet is not None and plan.cost_usd_per_hour is not None and verify(plan).ok
    settings = [{"max_num_seqs": seqs, "max_batched_tokens": tokens} for seqs in (16, 128) for tokens in (1024, 8192)]
    alone = [qm.plan(listed(apart(seed), **one)) for one in settings]
    least = min(item.cost_usd_per_hour for item in alone if item.cost_usd_per_hour is not None)
    assert plan.bound_usd_per_hour <= least * (1.0 + 1e-6)
    assert plan.cost_usd_per_hour <= least * (1.0 + max(plan.gap, 0.005))
    assert all(pool.engine in settings for pool in plan.fleet.pools.values())


CHAT = {
    "model": "llama-3.1-8b",
    "rate_rps": 20,
    "prompt_tokens": {"mean": 2000, "cv": 1.0},
    "output_tokens": {"mean": 200, "cv": 0.9},
    "slo": {"ttft_p95_s": 2, "tpot_p95_s": 0.02},
}


def catalog_scenario(**keys: Any) -> dict[str, Any]:
    return {
        "qmodel": 1,
        "classes": {"chat": copy.deepcopy(CHAT)},
        "fleet": {"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 2.9}}}},
        "layouts": {"tp": [1], "pp": [1], "disaggregate": False},
        **keys,
    }


def test_types_of_weights_and_kv_cache_are_chosen_and_the_loss_of_quality_is_told() -> None:
    data = catalog_scenario(engine={"kv_dtype": ["auto", "fp8"]})
    data["layouts"]["precision"] = ["auto", "fp8"]
    data["classes"]["chat"]["rate_rps"] = 60
    plan = qm.plan(data)
    alone = []
    for weights, kv in itertools.product(("auto", "fp8"), ("auto", "fp8")):
        one = catalog_scenario(engine={"kv_dtype": kv})
        one["layouts"]["precision"] = [weights]
        one["classes"]["chat"]["rate_rps"] = 60
        alone.append(qm.plan(one).cost_usd_per_hour)
    assert plan.cost_usd_per_hour <= min(alone) * (1.0 + 1e-6)
    assert {row.precision for row in plan.pools} == {"fp8"}  # cheaper here
    assert all(row.kv_dtype in ("auto", "fp8") for row in plan.pools)
    assert "KV type fp8 is allowed: its effect on answer quality is not modelled" in plan.assumptions
    assert "precision fp8 is allowed: its effect on answer quality is not modelled" in plan.assumptions


def test_auto_is_the_usual_value_and_parts_of_it_and_costs_no_more_than_it() -> None:
    usual = qm.plan(catalog_scenario())
    auto = qm.plan(catalog_scenario(engine={"max_num_seqs": "auto", "max_batched_tokens": "auto"}))
    assert auto.cost_usd_per_hour <= usual.cost_usd_per_hour
    sequences, tokens = usual.pools[0].max_num_seqs, usual.pools[0].max_batched_tokens
    text = f"up to {sequences // 16} or {sequences // 4} or {sequences} sequences and {tokens // 16} or"
    assert any(text in item for item in auto.assumptions)
    assert {row.max_num_seqs for row in auto.pools} <= {sequences, sequences // 4, sequences // 16}


def test_replicas_that_run_with_other_settings_are_started_anew() -> None:
    data = catalog_scenario(engine={"max_num_seqs": [64, 256]})
    data["policy"] = {"change": {"start_usd_per_gpu": 50.0, "spread_h": 1.0}}
    plan = qm.plan(data)
    kept = qm.plan(data, existing=plan.fleet)
    assert kept.change_usd_per_hour == 0.0 and kept.cost_usd_per_hour == plan.cost_usd_per_hour
    (pool,) = plan.fleet.pools.values()
    other = 64 if pool.engine["max_num_seqs"] == 256 else 256
    running = replace(plan.fleet, pools={pool.name: replace(pool, engine={"max_num_seqs": other})})
    stays = qm.plan(data, existing=running)
    assert {row.max_num_seqs for row in stays.pools} == {other}  # starting costs more than the room is worth
    gone = replace(plan.fleet, pools={pool.name: replace(pool, engine={"max_num_seqs": 100})})
    anew = qm.plan(data, existing=gone)
    assert sum(row.started_gpus for row in anew.changes) > 0
    assert any("no class may have its engine settings (max_num_seqs 100)" in item for item in anew.assumptions)


def two_of_one_model(**engines: dict[str, Any]) -> dict[str, Any]:
    data = catalog_scenario()
    data["classes"]["drafts"] = copy.deepcopy(CHAT) | {"rate_rps": 10}
    for name, engine in engines.items():
        data["classes"][name]["engine"] = engine
    return data


def served(plan: Any) -> list[set[str]]:
    """Classes of each pool."""
    return [
        {name for name, paths in plan.fleet.routing.items() if any(pool in path.pools for path in paths)}
        for pool in plan.fleet.pools
    ]


def test_classes_with_other_settings_share_no_pool() -> None:
    data = two_of_one_model(chat={"max_num_seqs": 48, "max_batched_tokens": 1024})
    plan = qm.plan(data)
    assert sorted(map(sorted, served(plan))) == [["chat"], ["drafts"]]
    rows = {row.pool: row for row in plan.pools}
    for name, paths in plan.fleet.routing.items():
        for path in paths:
            row = rows[path.pools[0]]
            assert (row.max_num_seqs, row.max_batched_tokens) == ((48, 1024) if name == "chat" else (1024, 8192))
    assert verify(plan).ok and qm.evaluate(data, plan.fleet).slo == plan.slo
    silent = replace(plan.fleet, pools={name: replace(one, engine={}) for name, one in plan.fleet.pools.items()})
    assert qm.evaluate(data, silent).pools == plan.pools  # what a class asks for need not be said again
    whole = two_of_one_model()
    whole["engine"] = {"max_num_seqs": 48, "max_batched_tokens": 1024}
    whole["classes"]["drafts"] |= {"engine": {"max_num_seqs": 1024, "max_batched_tokens": 8192}}
    assert qm.plan(whole).cost_usd_per_hour == plan.cost_usd_per_hour  # stated from the other side
    together = replace(
        plan.fleet, routing=dict.fromkeys(plan.fleet.routing, plan.fleet.routing["chat"]), pools=silent.pools
    )
    with pytest.raises(qm.ScenarioError, match="max_batched_tokens 1024, max_num_seqs 48 or"):
        qm.evaluate(data, together)


def test_classes_with_settings_that_come_to_the_same_share_pools() -> None:
    usual = qm.plan(two_of_one_model())
    stated = qm.plan(two_of_one_model(chat={"max_num_seqs": 1024}))  # what it is anyway
    assert stated.fleet == usual.fleet and {"chat", "drafts"} in served(stated)
    both = {"max_num_seqs": 64, "watermark": 0.05}
    assert {"chat", "drafts"} in served(qm.plan(two_of_one_model(chat=both, drafts=both)))


def test_classes_may_choose_from_lists_of_their_own() -> None:
    data = two_of_one_model(chat={"max_num_seqs": 64, "max_batched_tokens": [1024, 512]}, drafts={"router": "random"})
    plan = qm.plan(data)
    assert sorted(map(sorted, served(plan))) == [["chat"], ["drafts"]]
    rows = {row.pool: row for row in plan.pools}
    for name, paths in plan.fleet.routing.items():
        pools = [rows[path.pools[0]] for path in paths]
        assert {row.max_batched_tokens for row in pools} <= ({512, 1024} if name == "chat" else {8192})
    assert verify(plan).ok
    assert all(pool.engine.get("router") == "random" for pool in plan.fleet.pools.values() if "drafts" in pool.name)


def test_speculation_by_class_and_by_pool_is_that_of_the_scenario() -> None:
    drafting = {"draft": "llama-3.2-1b", "tokens": 3, "acceptance": 0.8}
    known = qm.plan(catalog_scenario(engine={"speculative": drafting}))
    data = catalog_scenario()
    data["classes"]["chat"]["engine"] = {"speculative": drafting}
    plan = qm.plan(data)
    assert plan.cost_usd_per_hour == known.cost_usd_per_hour and plan.slo == known.slo and verify(plan).ok
    fleet = replace(
        known.fleet,
        pools={name: replace(one, engine={"speculative": drafting}) for name, one in known.fleet.pools.items()},
    )
    assert qm.evaluate(catalog_scenario(), fleet).slo == known.slo
    typo = {**drafting, "draft": "llama-3.2-1bb"}
    wrong = replace(
        fleet, pools={name: replace(one, engine={"speculative": typo}) for name, one in fleet.pools.items()}
    )
    with pytest.raises(qm.ScenarioError, match=r"engine.speculative.draft: no model 'llama-3.2-1bb' in the catalog"):
        qm.evaluate(catalog_scenario(), wrong)


def test_the_weight_type_of_a_pool_can_be_stated() -> None:
    data = catalog_scenario()
    data["layouts"]["precision"] = ["fp8"]
    plan = qm.plan(data)
    (name, pool), *_ = plan.fleet.pools.items()
    stated = {
        "qmodel": 1,
        "pools": {name: {"model": pool.model, "gpu": pool.gpu, "replicas": pool.replicas, "precision": "fp8"}},
        "routing": {"chat": [{"path": [name]}]},
    }
    found = qm.evaluate(data, qm.load_fleet(stated))
    assert found.slo == plan.slo and found.pools == plan.pools
    assert {row.precision for row in found.pools} == {"fp8"}


def test_a_batch_and_hours_of_the_day_choose_settings_too() -> None:
    data = catalog_scenario(engine={"max_num_seqs": [32, 256], "max_batched_tokens": [1024, 8192]})
    chat = data["classes"]["chat"]
    del chat["rate_rps"]
    chat["arrivals"] = {"rate_rps": 20, "profile": [0.4] * 12 + [1.0] * 12}
    day = qm.plan(data)
    assert verify(day).ok
    assert {row.max_num_seqs for item in day.periods for row in item.pools} <= {32, 256}
    batch = catalog_scenario(engine={"max_num_seqs": [32, 256]})
    chat = batch["classes"]["chat"]
    for key in ("rate_rps", "slo"):
        del chat[key]
    chat["batch"] = {"requests": 300, "deadline_s": 120}
    plan = qm.plan(batch)
    alone = [qm.plan(batch | {"engine": {"max_num_seqs": value}}).cost_usd_per_hour for value in (32, 256)]
    assert verify(plan).ok and plan.cost_usd_per_hour == min(alone)


def test_pools_of_a_path_have_one_weight_and_one_kv_type() -> None:
    data = catalog_scenario(engine={"kv_dtype": ["auto", "fp8"]})
    data["layouts"] |= {"precision": ["auto", "fp8"], "disaggregate": True}
    chat = data["classes"]["chat"]
    chat["slo"] = {"ttft_p95_s": 1.5, "tpot_p95_s": 0.012}
    plan = qm.plan(data)
    paths = [path.pools for path in plan.fleet.routing["chat"]]
    assert any(len(pools) == 2 for pools in paths) and verify(plan).ok
    for pools in paths:
        kinds = {(plan.fleet.pools[name].precision, plan.fleet.pools[name].engine.get("kv_dtype")) for name in pools}
        assert len(kinds) == 1
    for weights, kv in itertools.product(("auto", "fp8"), ("auto", "fp8")):
        alone = catalog_scenario(engine={"kv_dtype": kv})
        alone["layouts"] |= {"precision": [weights], "disaggregate": True}
        alone["classes"]["chat"]["slo"] = chat["slo"]
        cost = qm.plan(alone).cost_usd_per_hour
        assert cost is None or plan.bound_usd_per_hour <= cost * (1.0 + 1e-6)
