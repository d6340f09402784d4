"""APIs priced by the token: beside pools of GPUs, instead of them, and within the limit on their rate."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import enumerate_candidates
from qmodel.evaluation import evaluate_fleet
from qmodel.problem import bind
from tests.planning.limited_fleets import MOST, carried, two_models

PRICES = {"usd_per_million_input": 0.5, "usd_per_million_output": 1.5}


def with_api(seed: int, router: str, *, dear: float, **stated: Any) -> dict[str, Any]:
    """Two models on two GPU types and by the token, at a multiple of what the tokens cost on the dear GPU type."""
    data = two_models(seed, router)
    models = {}
    for item in data["classes"].values():
        tokens = 3600 * item["rate_rps"] * (item["prompt_tokens"]["mean"] + item["output_tokens"]["mean"])
        usd = dear * 2.0 * data["fleet"]["gpus"]["big"]["price"]["usd_per_gpu_hour"] / tokens * 1e6
        prices = {"usd_per_million_input": usd, "usd_per_million_output": usd}
        models[item["model"]] = prices | {"latency": {"ttft_p99_s": 0.5, "tpot_mean_s": 0.01}} | stated
    data["fleet"]["apis"] = {"tokens": {"models": models}}
    return data


def least_cost(data: dict[str, Any]) -> float:
    """Over counts of every candidate for each class, the API taking what they leave; GPUs at the cheapest tiers."""
    instance = bind(qm.load_scenario(data))
    found = enumerate_candidates(instance)
    fleet = data["fleet"]
    each = []
    for item in instance.classes.values():
        stated = fleet["apis"]["tokens"]["models"][item.model]
        whole = 3600 * item.rate_rps / 1e6
        whole *= (
            item.lengths.prompt.mean * stated["usd_per_million_input"]
            + item.lengths.output.mean * stated["usd_per_million_output"]
        )
        most = stated.get("max_rate_rps", np.inf) / item.rate_rps
        candidates = found.of(item.model)
        share = carried(candidates, item)
        ways = []
        for sizes in itertools.product(range(MOST + 1), repeat=len(candidates)):
            left = max(1.0 - sum(share[j, n] for j, n in enumerate(sizes)), 0.0)
            if left <= most:
                counts = {c.gpu: c.layout.gpus * n for c, n in zip(candidates, sizes, strict=True)}
                ways.append((counts, left * whole))
        each.append(ways)
    best = np.inf
    for parts in itertools.product(*each):
        cost = sum(usd for _, usd in parts)
        for gpu, stated in fleet["gpus"].items():
            gpus = sum(counts.get(gpu, 0) for counts, _ in parts)
            if gpus > stated.get("max_count", gpus):
                cost = np.inf
            tiers = stated.get("tiers", [stated.get("price", {})])
            for tier in sorted(tiers, key=lambda one: one["usd_per_gpu_hour"]):
                taken = min(gpus, tier.get("max_count", gpus))
                cost, gpus = cost + taken * tier["usd_per_gpu_hour"], gpus - taken
            cost = cost if gpus == 0 else np.inf
        best = min(best, cost)
    return best


def case(name: str, seed: int, router: str) -> dict[str, Any]:
    match name:
        case "cheap API":
            return with_api(seed, router, dear=0.3)
        case "dear API":
            return with_api(seed, router, dear=5.0)
        case "for what is left":
            return with_api(seed, router, dear=1.3)
        case "limited rate":
            return with_api(seed, router, dear=0.8, max_rate_rps=2.0)
        case "tiers and stock":
            data = with_api(seed, router, dear=1.2, max_rate_rps=4.0)
            gpus = data["fleet"]["gpus"]
            usd = gpus["small"].pop("price")["usd_per_gpu_hour"]
            gpus["small"]["tiers"] = [
                {"term": "reserved_1y", "usd_per_gpu_hour": usd * 0.6, "max_count": 2},
                {"term": "on_demand", "usd_per_gpu_hour": usd},
            ]
            gpus["big"]["max_count"] = 1
            return data
    raise ValueError(name)


CASES = ["cheap API", "dear API", "for what is left", "limited rate", "tiers and stock"]


def check(name: str, seed: int, router: str) -> qm.Plan:
    data = case(name, seed, router)
    plan, best = qm.plan(data), least_cost(data)
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None, plan.why.text
    assert plan.cost_usd_per_hour <= best * 1.006 + 1e-6
    assert plan.bound_usd_per_hour <= best * (1.0 + 1e-6)
    assert plan.status == "optimal"
    assert qm.verify(plan).ok
    return plan


@pytest.mark.parametrize("name", CASES)
def test_a_plan_with_an_api_costs_what_brute_force_costs(name: str) -> None:
    check(name, 3, "random")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "router"), [(1, "random"), (2, "random"), (3, "jsq"), (4, "jsq")])
@pytest.mark.parametrize("name", CASES)
def test_more_plans_with_an_api_cost_what_brute_force_costs(name: str, seed: int, router: str) -> None:
    check(name, seed, router)


def test_a_cheap_api_carries_all_and_a_dear_one_nothing() -> None:
    cheap, dear = qm.plan(with_api(3, "random", dear=0.05)), qm.plan(with_api(3, "random", dear=50.0))
    assert {row.role for row in cheap.pools} == {"api"}
    assert cheap.bound_usd_per_hour == pytest.approx(cheap.cost_usd_per_hour)
    without = two_models(3, "random")
    assert {row.role for row in dear.pools} == {"unified"}
    assert dear.cost_usd_per_hour == qm.plan(without).cost_usd_per_hour


def test_the_cost_is_that_of_the_tokens() -> None:
    data = with_api(3, "random", dear=0.05)
    plan = qm.plan(data)
    expected = 0.0
    for item in bind(qm.load_scenario(data)).classes.values():
        stated = data["fleet"]["apis"]["tokens"]["models"][item.model]
        tokens = item.lengths.prompt.mean + item.lengths.output.mean
        expected += item.rate_rps * 3600 * tokens * stated["usd_per_million_input"] / 1e6
    assert plan.cost_usd_per_hour == pytest.approx(expected)
    assert sum(row.cost_usd_per_hour for row in plan.pools) == pytest.approx(expected)
    assert [(row.gpu, row.term, row.gpus) for row in plan.purchases] == [("tokens", "api", 0)] * 2
    assert all((row.gpus, row.replicas, row.price_tier) == (0, 0, "api") for row in plan.pools)
    assert {row.basis for row in plan.slo} == {"stated"}


def test_the_plan_comes_back_and_its_fleet_is_evaluated_at_the_same_cost() -> None:
    data = case("limited rate", 3, "random")
    plan = qm.plan(data)
    again = qm.Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert qm.verify(again).ok
    assert plan.fleet is not None
    found = evaluate_fleet(bind(qm.load_scenario(data)), plan.fleet)
    assert found.cost_usd_per_hour == plan.cost_usd_per_hour
    assert found.slo == plan.slo
    assert qm.capacity(data, plan.fleet).factor >= 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"usd_per_million_output": 0.001}, "cost"),
        ({"max_rate_rps": 0.1}, "stability"),
        ({"latency": {"ttft_p99_s": 9.0, "tpot_mean_s": 0.01}}, "targets"),
        ({"latency": {}, "meets": ["nobody"]}, "targets"),
    ],
)
def test_an_api_that_was_tampered_with_does_not_pass(change: dict[str, Any], says: str) -> None:
    data = copy.deepcopy(qm.plan(with_api(3, "random", dear=0.05, max_rate_rps=50.0)).to_dict())
    for item in data["inputs"]["pools"].values():  # type: ignore[index]
        item["api"] |= change
    assert qm.verify(qm.Plan.from_dict(data)).first_failure.startswith(says)


@pytest.mark.parametrize(("part", "all_sent"), [(2.0, True), (1.9, False)])
def test_one_limit_on_the_rate_holds_for_classes_that_share_no_pool(part: float, all_sent: bool) -> None:
    data = with_api(3, "random", dear=0.1)
    first = next(iter(data["classes"]))
    model, rate_rps = (data["classes"][first][key] for key in ("model", "rate_rps"))
    data["classes"]["other"] = data["classes"][first] | {"isolate": True}
    data["fleet"]["apis"]["tokens"]["models"][model]["max_rate_rps"] = part * rate_rps
    plan = qm.plan(data)
    assert plan.fleet is not None
    pools = [pool for pool in plan.fleet.pools.values() if pool.model == model]
    apis = [pool.name for pool in pools if pool.role == "api"]
    sent_rps = sum(row.rate_rps for row in plan.routing if row.path in apis)
    assert sent_rps <= part * rate_rps * (1.0 + 1e-6)
    assert all(pool.role == "api" for pool in pools) == all_sent
    assert qm.verify(plan).ok


def only_api(**stated: Any) -> dict[str, Any]:
    """A model that no GPU type serves."""
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "theirs",
                "rate_rps": 4,
                "prompt_tokens": {"constant": 1000},
                "output_tokens": {"constant": 100},
                "slo": {"ttft_p95_s": 0.5},
            }
        },
        "fleet": {
            "gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 2}}},
            "apis": {"tokens": {"models": {"theirs": PRICES | stated}}},
        },
    }


def test_a_model_that_only_an_api_serves_needs_no_catalog_entry() -> None:
    plan = qm.plan(only_api(meets=["chat"]))
    assert plan.cost_usd_per_hour == pytest.approx(4 * 3600 * (1000 * 0.5 + 100 * 1.5) / 1e6)
    assert plan.status == "optimal"
    assert (plan.slo[0].predicted_s, plan.slo[0].met) == (None, True)
    page = qm.plan(only_api(latency={"ttft_p95_s": 0.4})).slo[0]
    assert (page.predicted_s, page.high_s, page.basis) == (0.4, 0.4, "stated")


def test_rates_beyond_the_limit_and_targets_beyond_the_latency_say_why_there_is_no_plan() -> None:
    few = qm.plan(only_api(meets=["chat"], max_rate_rps=1.0))
    assert few.status == "infeasible"
    assert few.why.text == "class 'chat' asks for more requests/s than its APIs take"
    assert few.why.best == "1 requests/s by tokens, of 4"
    slow = qm.plan(only_api(latency={"ttft_p99_s": 0.9}))
    assert slow.status == "infeasible"
    said = "API tokens: class chat is not sent there: ttft_p95_s is stated as 0.9 s there, its target is 0.5 s"
    assert said in slow.assumptions


def test_a_fleet_that_nothing_limits_has_no_capacity() -> None:
    data = only_api(meets=["chat"])
    plan = qm.plan(data)
    assert plan.fleet is not None
    with pytest.raises(qm.ScenarioError, match="APIs without a limit on their rate"):
        qm.capacity(data, plan.fleet)
    with pytest.raises(qm.ScenarioError, match="there is nothing to simulate"):
        qm.simulate(data, plan.fleet)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, "{at}: does not say how fast it is; state latency: {{ttft_p95_s: ...}}, or under meets the classes whose "
             "targets it meets"),
        ({"latency": {"ttft_p95_s": 0.2}, "meets": ["chat"]},
         "{at}: states latency and meets, which exclude each other; keep one of them; "
         "in a variant or override '~' removes what the file states"),
        ({"latency": {"ttft_mean_s": 0.2}},
         "{at}.latency: says nothing of ttft_p95_s, a target of class 'chat'; "
         "add ttft_p95_s: <s>, or name the classes whose targets it meets under meets"),
        ({"latency": {"ttft_p90_s": 0.2}},
         "{at}.latency: says nothing of ttft_p95_s, a target of class 'chat'; "
         "add ttft_p95_s: <s>, or name the classes whose targets it meets under meets"),
        ({"latency": {"ttft_95_s": 0.2}},
         "{at}.latency.ttft_95_s: unknown target 'ttft_95_s'; did you mean 'ttft_p95_s'?"),
        ({"meets": ["chta"]}, "{at}.meets[0]: no class 'chta'; did you mean 'chat'?"),
        ({"meets": ["chat"], "usd_per_million_input": -1},
         "{at}.usd_per_million_input: must be at least 0 (got -1)"),
        ({"meets": ["chat"], "max_rate_rps": 0}, "{at}.max_rate_rps: must be greater than 0 (got 0)"),
        ({"meets": ["chat"], "usd_per_million_input": 0, "usd_per_million_output": 0},
         "{at}.usd_per_million_output: costs nothing; state a price above 0 of input or output"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_api_is_told(stated: dict[str, Any], expected: str) -> None:
    found = [str(problem).removeprefix("<dict>: ") for problem in qm.validate(only_api(**stated))]
    assert found == [expected.format(at="fleet.apis.tokens.models.theirs")]


def test_a_name_that_is_a_gpu_too_and_a_model_that_is_misspelt_are_told() -> None:
    data = only_api(meets=["chat"])
    data["fleet"]["apis"]["h100-sxm"] = {"models": {"their": PRICES | {"meets": ["chat"]}}}
    found = [str(problem).removeprefix("<dict>: ") for problem in qm.validate(data)]
    assert found == [
        "fleet.apis.h100-sxm: 'h100-sxm' is a GPU of the fleet too; give one another name",
        "fleet.apis.h100-sxm.models.their: no class asks for 'their'; did you mean 'theirs'?",
    ]


def test_a_class_in_two_places_meets_its_target_where_both_do_each_at_its_own_confidence() -> None:
    data = with_api(1, "random", dear=1.0)
    for item in data["profiles"]:
        item["band_p90"] = 0.6
    data["fleet"]["gpus"]["small"]["max_count"] = 2
    data["fleet"]["gpus"]["big"]["max_count"] = 0
    plan = qm.plan(data)
    rows = [row for row in plan.slo if row.path == "fleet"]
    assert rows
    for row in rows:
        parts = [one for one in plan.slo if (one.cls, one.metric, one.stat) == (row.cls, row.metric, row.stat)]
        parts.remove(row)
        assert row.basis == "stated"
        assert row.met == all(one.met for one in parts)
        assert row.met_at_p90 == all(one.met_at_p90 for one in parts)
    assert any(row.met and not row.met_at_p90 for row in rows)
