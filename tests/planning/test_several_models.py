"""Classes that several models may serve: shares and cost as brute force over both has them, and every claim checked."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import Candidate, enumerate_candidates, frontier
from qmodel.evaluation import evaluate_fleet
from qmodel.problem import Instance, bind
from qmodel.types import Path

EXACT = qm.SolverOptions(mip_gap=0.0)
BOTH = {"small": {"quality": 0.80}, "large": {"quality": 0.83}}
_LARGEST = 6  # replicas of one pool in brute force


def asking(seed: int = 1, router: str = "random", **chat: Any) -> dict[str, Any]:
    """One class, two models measured on two GPU types; the better one takes about twice the time."""
    rng = np.random.default_rng([seed, 23])
    profiles = [
        {
            "model": model,
            "gpu": gpu,
            "alpha_s": heavy * slow * float(rng.uniform(0.007, 0.009)),
            "beta_s": heavy * slow * float(rng.uniform(0.8e-4, 1.6e-4)),
            "gamma_s": heavy * slow * 3e-8,
            "delta_s": heavy * slow * float(rng.uniform(3e-5, 5e-5)),
            "max_num_seqs": 64,
        }
        for model, heavy in (("small", 1.0), ("large", float(rng.uniform(1.6, 2.4))))
        for gpu, slow in (("a", 1.7), ("b", 1.0))
    ]
    prices = {"a": float(rng.uniform(1.2, 2.2)), "b": float(rng.uniform(2.4, 3.6))}
    section = {
        "rate_rps": float(rng.uniform(4.0, 12.0)),
        "prompt_tokens": {"mean": 800, "cv": 0.7, "max": 8000},
        "output_tokens": {"mean": 200, "cv": 0.9, "max": 4000},
        "slo": {"ttft_p95_s": 1.0, "tpot_mean_s": 0.06},
        **chat,
    }
    return {
        "qmodel": 1,
        "classes": {"chat": section},
        "fleet": {"gpus": {gpu: {"price": {"usd_per_gpu_hour": usd}} for gpu, usd in prices.items()}},
        "engine": {"router": router},
        "profiles": profiles,
    }


def with_code(data: dict[str, Any], model: str) -> dict[str, Any]:
    """The same with a second class that asks for one of the models."""
    code = {**data["classes"]["chat"], "rate_rps": 2.0}
    for key in ("models", "min_quality", "floor"):
        code.pop(key, None)
    return {**data, "classes": {**data["classes"], "code": {**code, "model": model}}}


def least_cost(instance: Instance, min_quality: float) -> float:
    """Least cost over counts of up to two pools of each model: shares follow from what the pools of each carry."""
    (item,) = instance.classes.values()
    candidates = enumerate_candidates(instance)
    options = {model: _carried(candidates.of(model), item.name, instance) for model in item.models}
    quality = {tier.model: tier.quality or 0.0 for tier in item.alternatives}
    first, second = item.models  # the better one first
    part = max(0.0, (min_quality - quality[second]) / (quality[first] - quality[second]))
    best = np.inf
    for (better, better_usd), (other, other_usd) in itertools.product(options[first], options[second]):
        if better >= part - 1e-12 and min(better, 1.0) + other >= 1.0 - 1e-12:
            best = min(best, better_usd + other_usd)
    return float(best)


def _carried(candidates: tuple[Candidate, ...], name: str, instance: Instance) -> list[tuple[float, float]]:
    """What up to two pools carry of the class and their cost, for every choice of both."""
    pools = [(0.0, 0.0)]
    counts = np.arange(1, _LARGEST + 1)
    for item in candidates:
        shares = frontier([item] * _LARGEST, [instance.classes[name]], counts).low.tolist()
        pools += [(share, item.pool_cost(count)) for share, count in zip(shares, counts.tolist(), strict=True)]
    return [(a + b, usd + more) for (a, usd), (b, more) in itertools.combinations_with_replacement(pools, 2)]


def shares_of(plan: qm.Plan) -> dict[str, float]:
    return {row.model: row.share for row in plan.quality if row.cls == "chat"}


def test_one_model_alone_gives_the_plan_of_that_model_digit_for_digit() -> None:
    plain = qm.plan(asking(model="large"), solver=EXACT).to_dict(reproducible=True)
    alone = qm.plan(asking(models={"large": BOTH["large"]}, min_quality=0.83), solver=EXACT)
    floored = qm.plan(asking(models=BOTH, floor=0.81), solver=EXACT)
    for plan in (alone, floored):
        found = plan.to_dict(reproducible=True)
        for key in plain:
            if key not in ("quality", "scenario", "inputs"):
                assert found[key] == plain[key], key
        assert shares_of(plan) == {"large": 1.0}


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_at_the_quality_of_one_model_the_plan_is_that_of_the_model(router: str) -> None:
    cheap = qm.plan(asking(router=router, model="small"), solver=EXACT)
    good = qm.plan(asking(router=router, model="large"), solver=EXACT)
    for asked in ({}, {"min_quality": 0.80}):
        low = qm.plan(asking(router=router, models=BOTH, **asked), solver=EXACT)
        assert low.cost_usd_per_hour == pytest.approx(cheap.cost_usd_per_hour)
        assert shares_of(low) == {"large": 0.0, "small": 1.0}
    high = qm.plan(asking(router=router, models=BOTH, min_quality=0.83), solver=EXACT)
    assert high.cost_usd_per_hour == pytest.approx(good.cost_usd_per_hour)
    assert shares_of(high) == {"large": 1.0, "small": 0.0}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("min_quality", [0.808, 0.82])
def test_the_cost_is_that_of_brute_force_over_shares_and_counts(seed: int, min_quality: float) -> None:
    data = asking(seed, "jsq" if seed % 2 else "random", models=BOTH, min_quality=min_quality)
    plan = qm.plan(data, solver=EXACT)
    best = least_cost(bind(qm.load_scenario(data)), min_quality)
    assert plan.cost_usd_per_hour == pytest.approx(best, rel=1e-6)
    assert plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= best * (1.0 + 1e-9)
    shares = shares_of(plan)
    assert sum(shares.values()) == pytest.approx(1.0)
    average = sum(BOTH[model]["quality"] * share for model, share in shares.items())
    assert average >= min_quality - 1e-6
    assert [row.average for row in plan.quality] == pytest.approx([average, average])
    assert qm.verify(plan).ok


def test_a_higher_average_is_never_cheaper() -> None:
    costs = [
        qm.plan(asking(4, models=BOTH, min_quality=level), solver=EXACT).cost_usd_per_hour
        for level in (0.80, 0.805, 0.81, 0.815, 0.82, 0.825, 0.83)
    ]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", ["small", "large"])
def test_beside_a_class_with_one_model_pools_are_shared_and_the_bound_holds(seed: int, model: str) -> None:
    together = with_code(asking(seed, models=BOTH, min_quality=0.815), model)
    plan = qm.plan(together)
    assert plan.cost_usd_per_hour is not None
    assert plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour * (1.0 + 1e-9)
    assert qm.verify(plan).ok
    assert plan.quality[0].average >= 0.815 - 1e-6
    # a fleet for each class alone is one for both
    alone = qm.plan(asking(seed, models=BOTH, min_quality=0.815)).cost_usd_per_hour
    other = with_code(asking(seed, model=model), model)
    del other["classes"]["chat"]
    apart = qm.plan(other).cost_usd_per_hour
    assert alone is not None
    assert apart is not None
    assert plan.bound_usd_per_hour <= alone + apart + 1e-9
    assert plan.cost_usd_per_hour <= (alone + apart) * 1.005


def test_an_isolated_class_has_pools_of_its_own_in_every_model() -> None:
    data = with_code(asking(2, models=BOTH, min_quality=0.815, isolate=True), "small")
    plan = qm.plan(data)
    assert plan.fleet is not None
    used = [pool for path in plan.fleet.routing["chat"] for pool in path.pools]
    assert not set(used) & {pool for path in plan.fleet.routing["code"] for pool in path.pools}


def test_stock_moves_the_shares_and_is_named_where_the_average_needs_more() -> None:
    data = asking(3, models=BOTH, min_quality=0.82, rate_rps=20.0)
    free = qm.plan(data, solver=EXACT)
    used = {row.gpu: sum(pool.gpus for pool in free.pools if pool.gpu == row.gpu) for row in free.pools}
    scarce = max(used, key=lambda gpu: used[gpu])
    data["fleet"]["gpus"][scarce]["max_count"] = 0
    other = qm.plan(data, solver=EXACT)
    assert other.cost_usd_per_hour is not None
    assert free.cost_usd_per_hour is not None
    assert other.cost_usd_per_hour >= free.cost_usd_per_hour
    assert qm.verify(other).ok
    for gpu in data["fleet"]["gpus"].values():
        gpu["max_count"] = 1
    none = qm.plan(data, solver=EXACT)
    assert none.status == "infeasible"
    assert none.why.limit.startswith("fleet.gpus.")
    data["classes"]["chat"]["rate_rps"] /= 100.0  # one GPU of each type is plenty now
    assert qm.plan(data, solver=EXACT).fleet is not None


def test_an_average_that_no_model_in_reach_has_is_told() -> None:
    data = asking(models=BOTH, min_quality=0.82)
    for profile in data["profiles"]:
        if profile["model"] == "large":
            profile["alpha_s"] = 0.2
    plan = qm.plan(data)
    assert (plan.status, plan.why.limit, plan.why.best) == ("infeasible", "classes.chat.min_quality", "0.8 by small")
    assert plan.why.text == (
        "class 'chat' cannot have an average quality of 0.82: no pool of large meets its targets within the limits"
    )
    assert plan.why.change == "lower classes.chat.min_quality to 0.8, or allow GPUs that serve large"
    data["classes"]["chat"]["min_quality"] = 0.8
    served = qm.plan(data)
    assert shares_of(served) == {"large": 0.0, "small": 1.0}
    told = "class chat: large serves none of it: no pool of it meets the targets within the limits"
    assert told in served.assumptions


def test_a_target_that_no_model_meets_is_told_with_the_nearest_model() -> None:
    plan = qm.plan(asking(models=BOTH, slo={"tpot_mean_s": 0.001}))
    assert (plan.status, plan.why.limit) == ("infeasible", "classes.chat.slo.tpot_mean_s")
    assert plan.why.best.startswith("small on b tp1: ")


def test_a_path_of_another_model_is_refused_with_all_that_the_class_asks_for() -> None:
    data = with_code(asking(models=BOTH), "small")
    data["classes"]["code"]["model"] = "other"
    data["profiles"] += [{**item, "model": "other"} for item in data["profiles"] if item["model"] == "small"]
    pool = {"model": "other", "gpu": "b", "replicas": 4}
    fleet = {"qmodel": 1, "pools": {"p": pool}, "routing": {name: [{"path": ["p"]}] for name in ("chat", "code")}}
    with pytest.raises(qm.ScenarioError, match="class 'chat' asks for large or small but pool 'p' serves other"):
        qm.evaluate(data, fleet)


def test_measured_pools_and_apis_serve_their_models_share() -> None:
    data = asking(models=BOTH, min_quality=0.82, rate_rps=6.0)
    data["profiles"] = [
        {"model": "small", "gpu": "a", "max_rate_rps": {"chat": 2.0}},
        {"model": "large", "gpu": "b", "max_rate_rps": {"chat": 2.0}},
    ]
    plan = qm.plan(data, solver=EXACT)
    assert plan.cost_usd_per_hour is not None
    usd = {gpu: item["price"]["usd_per_gpu_hour"] for gpu, item in data["fleet"]["gpus"].items()}
    # four of six requests per second by the better model are two GPUs, the others one
    assert plan.cost_usd_per_hour == pytest.approx(2.0 * usd["b"] + usd["a"])
    assert shares_of(plan) == pytest.approx({"large": 2.0 / 3.0, "small": 1.0 / 3.0})
    assert qm.verify(plan).ok
    prices = {"usd_per_million_input": 0.01, "usd_per_million_output": 0.01}
    data["fleet"]["apis"] = {"seller": {"models": {"large": {**prices, "meets": ["chat"]}}}}
    bought = qm.plan(data, solver=EXACT)
    assert bought.cost_usd_per_hour is not None
    assert bought.cost_usd_per_hour < plan.cost_usd_per_hour
    assert qm.verify(bought).ok


def test_an_api_serves_the_share_of_its_model() -> None:
    data = asking(models=BOTH, min_quality=0.82, rate_rps=6.0)
    data["classes"]["chat"] |= {"prompt_tokens": {"constant": 1000}, "output_tokens": {"constant": 100}}
    data["profiles"] = [{"model": "large", "gpu": "b", "max_rate_rps": {"chat": 2.0}}]
    del data["fleet"]["gpus"]["a"]
    prices = {"usd_per_million_input": 0.1, "usd_per_million_output": 0.2}
    data["fleet"]["apis"] = {"seller": {"models": {"small": {**prices, "meets": ["chat"]}}}}
    plan = qm.plan(data, solver=EXACT)
    # two of six requests per second are bought: 1000 tokens in and 100 out, 3600 s an hour
    bought = 2.0 * 3600.0 * (1000 * 0.1 + 100 * 0.2) * 1e-6
    usd = data["fleet"]["gpus"]["b"]["price"]["usd_per_gpu_hour"]
    assert plan.cost_usd_per_hour == pytest.approx(2.0 * usd + bought)
    assert plan.bound_usd_per_hour == pytest.approx(plan.cost_usd_per_hour)
    assert shares_of(plan) == pytest.approx({"large": 2.0 / 3.0, "small": 1.0 / 3.0})
    assert qm.verify(plan).ok
    assert plan.fleet is not None
    assert qm.evaluate(data, plan.fleet).feasible


def test_a_routing_that_was_tampered_with_does_not_pass() -> None:
    data = asking(models=BOTH, min_quality=0.82)
    plan = qm.plan(data, solver=EXACT)
    assert plan.fleet is not None
    paths = {path.pools[0]: path.share for path in plan.fleet.routing["chat"]}
    for model, more in (("small", 0.05), ("large", -0.05)):
        first = next(name for name in paths if plan.fleet.pools[name].model == model)
        paths[first] += more
    moved = tuple(Path(pools=(name,), share=share) for name, share in paths.items())
    fleet = replace(plan.fleet, routing={"chat": moved})
    check = qm.verify(replace(plan, fleet=fleet))
    assert check.first_failure.startswith("quality: class 'chat' has an average quality of 0.819")
    found = evaluate_fleet(bind(qm.load_scenario(data)), fleet)
    assert not found.feasible
    assert not found.quality[0].met
    stated = plan.to_dict()
    stated["quality"][0]["share"] = 0.9  # type: ignore[index]
    assert "table 'quality'" in qm.verify(qm.Plan.from_dict(stated)).first_failure
    assert qm.verify(qm.Plan.from_dict(plan.to_dict())).ok


def told(data: dict[str, Any]) -> list[str]:
    with pytest.raises(qm.ScenarioError) as caught:
        qm.plan(data)
    return [str(problem).removeprefix("<dict>: ") for problem in caught.value.problems]


def test_demand_that_differs_and_batches_are_refused_beside_several_models() -> None:
    data = asking(models=BOTH, min_quality=0.82)
    chat = data["classes"]["chat"]
    del chat["rate_rps"]
    for arrivals in ({"hours": True}, {}):
        chat["arrivals"] = {"rate_rps": 4.0, "profile": [0.5] * 12 + [1.5] * 12, **arrivals}
        (problem,) = told(data)
        assert problem == (
            "classes.chat.models: not supported yet: several models for a class where the demand differs by the hour "
            "(profile of class 'chat'); state one model, or one rate of each class"
        )
    del chat["arrivals"]
    chat |= {"batch": {"requests": 200, "deadline_s": 600.0, "deadline_p": 0.95}, "slo": {"completion_p95_s": 500.0}}
    (problem,) = told(data)
    assert problem == (
        "classes.chat.models: not supported yet: several models for a batch; "
        "state one model, or a rate and a completion target"
    )


def test_an_unknown_model_is_told_with_its_key() -> None:
    data = asking(models={**BOTH, "llama-3.3-70bb": {"quality": 0.9}}, min_quality=0.82)
    with pytest.raises(qm.ScenarioError) as caught:
        qm.plan(data)
    (problem,) = caught.value.problems
    assert problem.key == 'classes.chat.models."llama-3.3-70bb"'
    assert problem.hint.startswith("nearest: 'llama-3.3-70b'")


def test_the_same_lengths_are_an_assumption_that_is_told() -> None:
    plan = qm.plan(asking(models=BOTH))
    told = "class chat: lengths of prompts and outputs are taken to be the same under large, small"
    assert told in plan.assumptions
