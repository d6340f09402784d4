"""Limits by provider and region: the plan costs what brute force finds within them, or says what is in the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.problem import bind
from tests.planning.limited_fleets import least_cost, two_models

EXACT = qm.SolverOptions(mip_gap=0.0)


def sold(case: str, seed: int, router: str) -> dict[str, Any]:
    """The cheap GPU type from two providers, one of them with little; the dear type in a region of its own."""
    data = two_models(seed, router)
    fleet = data["fleet"]
    gpus = fleet["gpus"]
    small = gpus.pop("small")
    usd = small["price"]["usd_per_gpu_hour"]
    gpus["ours"] = small | {"provider": "ours", "region": "east", "price": {"usd_per_gpu_hour": usd * 0.8}}
    gpus["theirs"] = small | {"provider": "theirs", "region": "west"}
    gpus["big"] |= {"provider": "theirs", "region": "east"}
    profiles = [item for item in data["profiles"] if item["gpu"] == "small"]
    data["profiles"] = [item for item in data["profiles"] if item["gpu"] == "big"]
    data["profiles"] += [item | {"gpu": name} for name in ("ours", "theirs") for item in profiles]
    match case:
        case "GPUs of a provider":
            fleet["providers"] = {"ours": {"max_gpus": 2}}
        case "GPUs of a region":
            fleet["regions"] = {"east": {"max_gpus": 2}, "west": {"max_gpus": 4}}
        case "money of a provider":
            fleet["providers"] = {"ours": {"max_usd_per_hour": usd * 2.5}, "theirs": {"max_usd_per_hour": usd * 6}}
        case "nodes, tiers and money":
            del gpus["ours"]["price"]
            gpus["ours"] |= {
                "billing": "per_node",
                "tiers": [
                    {"term": "on_demand", "usd_per_gpu_hour": usd},
                    {"term": "reserved_1y", "usd_per_gpu_hour": usd * 0.5, "max_count": 4},
                ],
            }
            fleet["providers"] = {"ours": {"max_usd_per_hour": usd * 5}}
            fleet["regions"] = {"east": {"max_gpus": 6}}
    return data


CASES = ["GPUs of a provider", "GPUs of a region", "money of a provider", "nodes, tiers and money"]


def check(case: str, seed: int, router: str) -> None:
    data = sold(case, seed, router)
    plan, best = qm.plan(data, solver=EXACT), least_cost(data)
    if not np.isfinite(best):
        assert plan.status == "infeasible", plan.why.text
        return
    assert plan.cost_usd_per_hour == pytest.approx(best), plan.why.text
    assert plan.status == "optimal"
    assert qm.verify(plan).ok


@pytest.mark.parametrize("case", CASES)
def test_a_plan_within_limits_of_providers_costs_what_brute_force_costs(case: str) -> None:
    check(case, 1, "random")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "router"), [(2, "random"), (3, "random"), (3, "jsq"), (4, "jsq")])
@pytest.mark.parametrize("case", CASES)
def test_more_plans_within_limits_of_providers_cost_what_brute_force_costs(case: str, seed: int, router: str) -> None:
    check(case, seed, router)


def test_purchases_name_who_sells_and_where() -> None:
    plan = qm.plan(sold("GPUs of a provider", 1, "random"), solver=EXACT)
    assert {(row.gpu, row.provider, row.region) for row in plan.purchases} <= {
        ("ours", "ours", "east"),
        ("theirs", "theirs", "west"),
        ("big", "theirs", "east"),
    }
    assert sum(row.gpus for row in plan.purchases if row.provider == "ours") == 2
    assert "fleet.providers.ours.max_gpus (2 of 2)" in plan.why.tight


def test_a_plan_beyond_the_limit_of_a_provider_does_not_pass() -> None:
    data = qm.plan(sold("GPUs of a provider", 1, "random"), solver=EXACT).to_dict()
    data["inputs"]["limits"]["quotas"][0]["max_gpus"] = 1  # type: ignore[index]
    check = qm.verify(qm.Plan.from_dict(data))
    assert check.first_failure == "limits: 2 GPUs of provider ours used, fleet.providers.ours.max_gpus is 1"


@pytest.mark.parametrize(
    ("limits", "key", "text"),
    [
        (
            {"providers": {"ours": {"max_gpus": 0}, "theirs": {"max_gpus": 1}}},
            "fleet.providers.theirs.max_gpus",
            "the classes together need more GPUs than fleet.providers.theirs.max_gpus allows",
        ),
        (
            {"providers": {"ours": {"max_usd_per_hour": 0.1}, "theirs": {"max_usd_per_hour": 4.0}}},
            "fleet.providers.theirs.max_usd_per_hour",
            "the classes together need more money than fleet.providers.theirs.max_usd_per_hour allows",
        ),
    ],
)
def test_the_limit_that_is_in_the_way_is_named_and_what_it_asks_for_is_enough(
    limits: dict[str, Any], key: str, text: str
) -> None:
    data = sold("", 1, "random")
    data["fleet"] |= limits
    plan = qm.plan(data, solver=EXACT)
    assert (plan.status, plan.why.limit, plan.why.text) == ("infeasible", key, text)
    change, value = plan.why.change.removeprefix("raise ").split(" to ")
    assert change == key
    raised = qm.load_scenario(data).with_(overrides={key: float(value) if "usd" in key else int(value)})
    assert qm.plan(raised, solver=EXACT).fleet is not None


def test_a_provider_that_no_gpu_has_is_told_with_the_nearest_name() -> None:
    data = sold("", 1, "random")
    data["fleet"]["providers"] = {"our": {"max_gpus": 1}, "them-all": {"max_gpus": 1}, "vast.ai": {}}
    found = [str(problem).removeprefix("<dict>: ") for problem in qm.validate(data)]
    assert found == [
        'fleet.providers."vast.ai": is empty; state max_gpus or max_usd_per_hour, or leave it out',
    ]
    del data["fleet"]["providers"]["vast.ai"]
    found = [str(problem).removeprefix("<dict>: ") for problem in qm.validate(data)]
    assert found == [
        "fleet.providers.our: no GPU of the fleet has the provider 'our'; did you mean 'ours'?",
        "fleet.providers.them-all: no GPU of the fleet has the provider 'them-all'; "
        "state provider: them-all in an entry of fleet.gpus",
    ]


def test_an_order_of_entries_makes_no_difference() -> None:
    data = sold("nodes, tiers and money", 2, "random")
    turned = data | {"fleet": data["fleet"] | {"gpus": dict(reversed(data["fleet"]["gpus"].items()))}}
    first, second = qm.plan(data), qm.plan(turned)
    assert first.cost_usd_per_hour == second.cost_usd_per_hour
    assert first.purchases == second.purchases
    assert bind(qm.load_scenario(data)).limits.quotas == bind(qm.load_scenario(turned)).limits.quotas
