"""Several models for a class where prefill and decode pools may be apart."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import qmodel as qm
from tests.planning.apart_fleets import MODEL, apart

EXACT = qm.SolverOptions(mip_gap=0.0)
OTHER = "llama-3.3-70b"
SHARES = {MODEL: 0.7, OTHER: 0.3}


def routed(seed: int, router: str = "random", **models: dict[str, Any]) -> dict[str, Any]:
    """The class of ``apart`` with two models, the second half as fast."""
    data = apart(seed, router=router)
    slower = copy.deepcopy(data["profiles"])
    for item in slower:
        item |= {"model": OTHER} | {key: 2.0 * item[key] for key in ("alpha_s", "beta_s", "gamma_s", "delta_s")}
    data["profiles"] += slower
    one = data["classes"]["c0"]
    del one["model"]
    one["models"] = {MODEL: {"share": SHARES[MODEL]}, OTHER: {"share": SHARES[OTHER]}}
    one["slo"] = {key: 2.5 * value for key, value in one["slo"].items()}
    return data


def separated(data: dict[str, Any]) -> dict[str, Any]:
    """The same with a class for each model's part."""
    one = copy.deepcopy(data["classes"]["c0"])
    del one["models"]
    parts = {
        f"part{number}": {**one, "model": model, "rate_rps": share * one["rate_rps"]}
        for number, (model, share) in enumerate(SHARES.items())
    }
    return {**data, "classes": parts}


@pytest.mark.parametrize(("seed", "router"), [(1, "random"), (2, "random"), (0, "jsq")])
def test_fixed_shares_cost_what_a_class_for_each_part_costs(seed: int, router: str) -> None:
    data = routed(seed, router)
    plan, other = qm.plan(data, solver=EXACT), qm.plan(separated(data), solver=EXACT)
    assert plan.cost_usd_per_hour == pytest.approx(other.cost_usd_per_hour, rel=1e-9)
    assert plan.bound_usd_per_hour is not None
    assert plan.cost_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour * (1.0 + 1e-9)
    assert all(row.met for row in plan.quality)
    assert qm.verify(plan).ok


def test_bounded_shares_cost_no_more_than_fixed_ones() -> None:
    data = routed(1)
    wider = copy.deepcopy(data)
    wider["classes"]["c0"]["models"] = {MODEL: {"share": {"min": 0.5}}, OTHER: {"share": {"min": 0.1}}}
    fixed, free = qm.plan(data, solver=EXACT), qm.plan(wider, solver=EXACT)
    assert fixed.cost_usd_per_hour is not None
    assert free.cost_usd_per_hour is not None
    assert free.cost_usd_per_hour <= fixed.cost_usd_per_hour * (1.0 + 1e-9)
    assert free.bound_usd_per_hour is not None
    assert free.bound_usd_per_hour <= fixed.cost_usd_per_hour * (1.0 + 1e-9)
    assert all(row.met for row in free.quality)
    assert qm.verify(free).ok


def test_pools_apart_are_tried_where_unified_ones_cost_more_than_the_budget() -> None:
    data = routed(2)
    unified = qm.plan(data | {"layouts": {"disaggregate": False}}, solver=EXACT).cost_usd_per_hour
    assert unified is not None
    data["fleet"]["budget_usd_per_hour"] = 0.99 * unified
    plan = qm.plan(data | {"layouts": {"disaggregate": "auto"}}, solver=EXACT)
    assert plan.fleet is not None
    assert plan.cost_usd_per_hour is not None
    assert plan.cost_usd_per_hour < 0.99 * unified
    assert any("separate prefill and decode pools were tried" in told for told in plan.assumptions)
    roles = {(pool.model, pool.role) for pool in plan.fleet.pools.values()}
    assert {(OTHER, "prefill"), (OTHER, "decode"), (MODEL, "unified")} <= roles
    assert all(row.met for row in plan.quality)
    assert qm.verify(plan).ok
