"""Price tiers: GPUs of one type at several prices, the cheapest first, as brute force over counts and offers has it."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmodel as qm
from qmodel.evaluation import evaluate_fleet
from qmodel.problem import bind
from qmodel.types import GpuLimits, Holding, Limits, Offer, bought, in_merit_order
from tests.planning.limited_fleets import least_cost, two_models
from tests.planning.shared_models import least_cost as cheapest_of_mixes
from tests.planning.shared_models import two_classes

EXACT = qm.SolverOptions(mip_gap=0.0)


def tiers(usd: float, *parts: tuple[float, int | None]) -> list[dict[str, Any]]:
    """Tiers at shares of a price, stated the dearest first."""
    terms = ("reserved_3y", "reserved_1y", "on_demand")[-len(parts) :]
    found = [
        {"term": term, "usd_per_gpu_hour": usd * share} | ({} if most is None else {"max_count": most})
        for term, (share, most) in zip(terms, parts, strict=True)
    ]
    return found[::-1]


def tiered(case: str, seed: int, router: str) -> dict[str, Any]:
    data = two_models(seed, router, tp=2 if seed % 2 else 1)
    gpus = data["fleet"]["gpus"]
    small, big = (gpus[name].pop("price")["usd_per_gpu_hour"] for name in ("small", "big"))
    match case:
        case "cheap GPUs run out":
            gpus["small"]["tiers"] = tiers(small, (0.7, 3), (1.0, None))
            gpus["big"]["tiers"] = tiers(big, (0.6, 2), (0.8, 2), (1.0, None))
        case "one type has tiers":
            gpus["small"]["tiers"] = tiers(small, (0.5, 2), (1.2, None))
            gpus["big"]["price"] = {"usd_per_gpu_hour": big}
        case "every tier runs out":
            gpus["small"]["tiers"] = tiers(small, (0.7, 2), (1.0, 4))
            gpus["big"]["tiers"] = tiers(big, (0.9, 2), (1.0, 2))
        case "whole nodes":
            gpus["small"] |= {"billing": "per_node", "tiers": tiers(small, (0.6, 6), (1.0, None))}
            gpus["big"]["tiers"] = tiers(big, (0.8, 4), (1.1, None))
        case "other limits too":
            gpus["small"] |= {"billing": "per_node", "max_nodes": 3, "tiers": tiers(small, (0.6, 4), (1.0, None))}
            gpus["big"] |= {"max_count": 9, "tiers": tiers(big, (0.5, 3), (1.1, None))}
            data["policy"] |= {"spare_replicas": 1, "max_pools": 3}
    return data


CASES = ["cheap GPUs run out", "one type has tiers", "every tier runs out", "whole nodes", "other limits too"]


def check(case: str, seed: int, router: str) -> None:
    data = tiered(case, seed, router)
    plan, best = qm.plan(data, solver=EXACT), least_cost(data)
    if not np.isfinite(best):
        assert plan.status == "infeasible", plan.why.text
        return
    assert plan.cost_usd_per_hour == pytest.approx(best), plan.why.text
    assert plan.status == "optimal"
    assert qm.verify(plan).ok
    assert sum(row.cost_usd_per_hour for row in plan.purchases) == pytest.approx(best)


@pytest.mark.parametrize("case", CASES)
def test_a_plan_with_tiers_costs_what_brute_force_costs(case: str) -> None:
    check(case, 3, "random")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "router"), [(1, "random"), (2, "random"), (4, "random"), (2, "jsq"), (3, "jsq")])
@pytest.mark.parametrize("case", CASES)
def test_more_plans_with_tiers_cost_what_brute_force_costs(case: str, seed: int, router: str) -> None:
    check(case, seed, router)


@pytest.mark.parametrize("limited", [False, True])
def test_one_tier_is_the_same_plan_as_one_price(limited: bool) -> None:
    data = two_models(3, "jsq")
    one = copy.deepcopy(data)
    for name, item in one["fleet"]["gpus"].items():
        item["tiers"] = [{"term": "on_demand", **item.pop("price")} | ({"max_count": 30} if limited else {})]
        if limited:
            data["fleet"]["gpus"][name]["max_count"] = 30
    plain, tiered = qm.plan(data), qm.plan(one)
    assert tiered.to_dict()["fleet"] == plain.to_dict()["fleet"]
    assert tiered.pools == plain.pools
    assert tiered.purchases == plain.purchases
    for name in ("cost_usd_per_hour", "bound_usd_per_hour", "gap", "slo", "routing"):
        assert getattr(tiered, name) == getattr(plain, name), name


def test_a_tier_that_nothing_is_left_for_changes_nothing() -> None:
    data = two_models(2, "random")
    more = copy.deepcopy(data)
    for item in more["fleet"]["gpus"].values():
        usd = item.pop("price")["usd_per_gpu_hour"]
        item["tiers"] = [
            {"term": "reserved_1y", "usd_per_gpu_hour": usd},
            {"term": "on_demand", "usd_per_gpu_hour": usd * 1.5},
        ]
    plain, found = qm.plan(data), qm.plan(more)
    assert found.cost_usd_per_hour == plain.cost_usd_per_hour
    assert {row.term for row in found.purchases} == {"reserved_1y"}
    assert any("nothing is bought at on_demand" in text for text in found.assumptions)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("router", ["random", "jsq"])
def test_classes_that_share_pools_cost_what_brute_force_over_mixes_and_offers_costs(seed: int, router: str) -> None:
    data = two_classes(seed, router)
    for item in data["fleet"]["gpus"].values():
        item["tiers"] = tiers(item.pop("price")["usd_per_gpu_hour"], (0.6, 2), (1.0, None))
    plan = qm.plan(data)
    best = cheapest_of_mixes(bind(qm.load_scenario(data)))
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= best * 1.005 + 1e-6
    assert plan.bound_usd_per_hour <= best + 1e-6
    assert plan.status == "optimal"
    assert qm.verify(plan).ok


@pytest.mark.parametrize("seed", range(6))
def test_measured_pools_with_tiers_cost_what_brute_force_over_counts_costs(seed: int) -> None:
    rng = np.random.default_rng([seed, 31])
    rates = {name: {gpu: float(rng.uniform(1.0, 4.0)) for gpu in ("g", "h")} for name in ("a", "b")}
    demand = {name: float(rng.uniform(4.0, 12.0)) for name in rates}
    offered = {
        gpu: tiers(float(rng.uniform(1.0, 3.0)), (0.5, int(rng.integers(1, 6))), (1.0, None)) for gpu in ("g", "h")
    }
    data = {
        "qmodel": 1,
        "classes": {
            name: {
                "model": name,
                "rate_rps": demand[name],
                "prompt_tokens": {"constant": 100},
                "output_tokens": {"constant": 10},
                "slo": {"ttft_p95_s": 1.0},
            }
            for name in rates
        },
        "fleet": {"gpus": {gpu: {"tiers": parts} for gpu, parts in offered.items()}},
        "profiles": [
            {"model": name, "gpu": gpu, "max_rate_rps": {name: rate}}
            for name, by_gpu in rates.items()
            for gpu, rate in by_gpu.items()
        ],
    }
    plan = qm.plan(data, solver=EXACT)

    def ways(name: str) -> list[tuple[int, int]]:
        sizes = itertools.product(range(13), repeat=2)
        return [(g, h) for g, h in sizes if g * rates[name]["g"] + h * rates[name]["h"] >= demand[name]]

    def paid(gpu: str, gpus: int) -> float:
        dear, cheap = offered[gpu]
        most = min(gpus, cheap["max_count"])
        return float(most * cheap["usd_per_gpu_hour"] + (gpus - most) * dear["usd_per_gpu_hour"])

    best = min(paid("g", a[0] + b[0]) + paid("h", a[1] + b[1]) for a in ways("a") for b in ways("b"))
    assert plan.cost_usd_per_hour == pytest.approx(best)
    assert plan.status == "optimal"
    assert qm.verify(plan).ok


def mixed_plan() -> qm.Plan:
    data = tiered("cheap GPUs run out", 3, "random")
    return qm.plan(data, solver=EXACT)


def test_pools_of_one_type_share_what_is_bought_at_its_mean_price() -> None:
    plan = mixed_plan()
    kinds = {row.gpu for row in plan.pools if row.price_tier == "mixed"}
    assert kinds
    for gpu in kinds:
        bought_here = [row for row in plan.purchases if row.gpu == gpu]
        pools = [row for row in plan.pools if row.gpu == gpu]
        assert len({row.usd_per_gpu_hour for row in pools}) == 1
        assert sum(row.cost_usd_per_hour for row in pools) == pytest.approx(
            sum(row.cost_usd_per_hour for row in bought_here)
        )
        assert sum(row.gpus for row in pools) == sum(row.gpus for row in bought_here)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpus": 1}, "table 'purchases'"),
        ({"term": "spot"}, "table 'purchases'"),
        ({"usd_per_gpu_hour": 0.1}, "table 'purchases'"),
        ({"cost_usd_per_hour": 0.1}, "table 'purchases'"),
        ({"provider": "aws"}, "table 'purchases'"),
    ],
)
def test_purchases_that_were_tampered_with_do_not_pass(change: dict[str, Any], says: str) -> None:
    data = mixed_plan().to_dict()
    data["purchases"][0] |= change  # type: ignore[index]
    check = qm.verify(qm.Plan.from_dict(data))
    assert not check.ok
    assert says in check.first_failure


def test_offers_that_were_tampered_with_change_the_cost_that_is_derived() -> None:
    data = copy.deepcopy(mixed_plan().to_dict())
    for item in data["inputs"]["limits"]["gpus"].values():  # type: ignore[index]
        item["offers"] = [{**offer, "usd_per_gpu_hour": 0.01} for offer in item["offers"]]
    check = qm.verify(qm.Plan.from_dict(data))
    assert not check.ok
    assert check.first_failure.startswith("cost")


def test_a_fleet_of_a_plan_is_evaluated_at_the_same_cost() -> None:
    data = tiered("whole nodes", 3, "random")
    plan = qm.plan(data, solver=EXACT)
    assert plan.fleet is not None
    found = evaluate_fleet(bind(qm.load_scenario(data)), plan.fleet)
    assert found.cost_usd_per_hour == plan.cost_usd_per_hour
    assert found.purchases == plan.purchases


def test_tiers_that_are_all_too_small_name_the_last_one_to_raise() -> None:
    data = tiered("every tier runs out", 3, "random")
    gpus = data["fleet"]["gpus"]
    for item in gpus.values():
        for tier in item["tiers"]:
            tier["max_count"] = 1
    plan = qm.plan(data, solver=EXACT)
    assert plan.status == "infeasible"
    assert ".tiers[" in plan.why.limit and plan.why.limit.endswith("].max_count")
    assert plan.why.change.startswith(f"raise {plan.why.limit} to ")


offer_lists = st.lists(
    st.tuples(st.floats(0.1, 10.0), st.one_of(st.none(), st.integers(0, 40))), min_size=1, max_size=5
).map(
    lambda parts: in_merit_order([Offer(term=str(i), usd_per_gpu_hour=p, max_gpus=m) for i, (p, m) in enumerate(parts)])
)


@given(offers=offer_lists, gpus=st.integers(0, 60), lot=st.sampled_from([1, 4, 8]))
def test_what_is_bought_adds_up_and_costs_no_less_for_more(offers: tuple[Offer, ...], gpus: int, lot: int) -> None:
    gpus = gpus // lot * lot
    found, more = bought(offers, gpus, lot=lot), bought(offers, gpus + lot, lot=lot)
    assert sum(item.gpus for item in found) == gpus
    assert all(item.gpus % lot == 0 for item in found)
    paid, next_paid = (sum(item.cost_usd_per_hour for item in part) for part in (found, more))
    assert next_paid >= paid + lot * offers[0].usd_per_gpu_hour - 1e-9


@given(offers=offer_lists, gpus=st.integers(0, 60))
def test_the_surcharge_is_the_cost_beyond_the_cheapest_price(offers: tuple[Offer, ...], gpus: int) -> None:
    limits = Limits(gpus={"g": GpuLimits(offers=offers)})
    holdings = [Holding(gpu="g", replica_gpus=1, replicas=gpus)]
    paid = sum(item.cost_usd_per_hour for item in limits.purchases("g", holdings))
    expected = paid - gpus * offers[0].usd_per_gpu_hour
    assert limits.surcharge_usd_per_hour(holdings) == pytest.approx(expected, abs=1e-9)
