"""Prices of demand and limits: together they pay for the fleet, and each is what plans beside it differ by."""

from __future__ import annotations

from typing import Any

import pytest

import qmodel as qm
from tests.planning.limited_fleets import two_models

FINE = qm.SolverOptions(mip_gap=1e-4)
SCALE = 3000.0  # so many replicas that whole counts do not matter


def large(seed: int, case: str) -> dict[str, Any]:
    """Two classes on thousands of GPUs, within half of what they take of something if nothing is limited."""
    data = two_models(seed, "random")
    for item in data["classes"].values():
        item["rate_rps"] *= SCALE
    free = qm.plan(data, solver=FINE)
    assert free.fleet is not None
    fleet, gpus = data["fleet"], data["fleet"]["gpus"]
    scarce = max(free.fleet.gpus, key=lambda gpu: free.fleet.gpus[gpu])  # type: ignore[union-attr]
    most, usd = free.fleet.gpus[scarce] // 2, gpus[scarce]["price"]["usd_per_gpu_hour"]
    match case:
        case "stock":
            gpus[scarce]["max_count"] = most
        case "nodes":
            gpus[scarce]["max_nodes"] = most // 4
        case "power":
            gpus[scarce]["power_w"] *= 3
            fleet["power_kw"] = 0.9 * sum(n * gpus[gpu]["power_w"] for gpu, n in free.fleet.gpus.items()) / 1000.0
        case "GPUs of a provider":
            gpus[scarce]["provider"] = "x"
            fleet["providers"] = {"x": {"max_gpus": most}}
        case "money at a provider":
            gpus[scarce]["provider"] = "x"
            fleet["providers"] = {"x": {"max_usd_per_hour": most * usd}}
        case "tier":
            del gpus[scarce]["price"]
            gpus[scarce]["tiers"] = [
                {"term": "reserved_1y", "usd_per_gpu_hour": 0.7 * usd, "max_count": most},
                {"term": "on_demand", "usd_per_gpu_hour": usd},
            ]
    return data


LIMITS = {
    "none": "",
    "stock": "max_count",
    "nodes": "max_nodes",
    "power": "power_kw",
    "GPUs of a provider": "max_gpus",
    "money at a provider": "max_usd_per_hour",
    "tier": "max_count",
}


def at(data: dict[str, Any], key: str) -> float:
    part: Any = data
    for name in key.replace("[", ".").replace("]", "").split("."):
        part = part[int(name)] if isinstance(part, list) else part[name]
    return float(part)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("case", LIMITS)
def test_prices_of_demand_and_limits_add_up_to_the_cost(case: str, seed: int) -> None:
    """Strong duality: rows that ask for something are those of classes and limits."""
    data = large(seed, case)
    plan = qm.plan(data, solver=FINE)
    assert plan.cost_usd_per_hour is not None
    paid = sum(row.usd_per_hour_per_unit * at(data, row.limit) for row in plan.prices)
    assert paid == pytest.approx(plan.cost_usd_per_hour, rel=2e-3)
    assert all(row.usd_per_hour_per_unit > 0.0 for row in plan.prices if row.limit.startswith("classes."))
    assert all(row.usd_per_hour_per_unit < 0.0 for row in plan.prices if not row.limit.startswith("classes."))
    limited = [row.limit for row in plan.prices if not row.limit.startswith("classes.")]
    assert [key.rpartition(".")[2] for key in limited] == ([LIMITS[case]] if case != "none" else [])


@pytest.mark.parametrize("case", ["stock", "power"])
def test_each_price_is_what_plans_beside_it_differ_by(case: str) -> None:
    data = large(2, case)
    plan = qm.plan(data, solver=FINE)
    assert len(plan.prices) == 3
    for row in plan.prices:
        value, costs, values = at(data, row.limit), [], []
        for factor in (0.97, 1.03):
            moved = round(value * factor) if row.limit.endswith("max_count") else value * factor
            beside = qm.plan(qm.load_scenario(data, set={row.limit: moved}), solver=FINE)
            assert beside.cost_usd_per_hour is not None
            costs.append(beside.cost_usd_per_hour)
            values.append(moved)
        difference = (costs[1] - costs[0]) / (values[1] - values[0])
        assert row.usd_per_hour_per_unit == pytest.approx(difference, rel=0.04), row.limit
