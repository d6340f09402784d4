"""APIs by the token where the demand differs by the hour or is uncertain: against brute force."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest

import qmodel as qm
from qmodel.planning import verify
from qmodel.types import Risk
from tests.planning.days import HOURS, LEVELS, carried_shares, day_of, one_hour
from tests.planning.limited_fleets import MOST
from tests.planning.test_other_lengths import certain, lengthy
from tests.planning.test_uncertain_demand import FACTORS, WEIGHTS, told, uncertain

TOKENS = {"usd_per_million_input": 0.6, "usd_per_million_output": 1.8}


def with_api(data: dict, price: float) -> dict:
    """The same beside an API of one of the models, ``price`` times as dear as :data:`TOKENS`."""
    found = copy.deepcopy(data)
    terms = {key: value * price for key, value in TOKENS.items()}
    found["fleet"]["apis"] = {"far": {"models": {"m": {**terms, "meets": ["class-m"]}}}}
    return found


def api_usd(data: dict, cls: str) -> float:
    """What all requests of a class cost there, USD/h, from the meaning of the prices."""
    item = qm.plan(data).inputs["classes"][cls]  # for its mean lengths alone
    terms = data["fleet"]["apis"]["far"]["models"]["m"]
    prompt, output = (item["lengths"][part]["moments"][0] for part in ("prompt", "output"))
    tokens = prompt * terms["usd_per_million_input"] + output * terms["usd_per_million_output"]
    return item["rate_rps"] * 3600.0 * tokens / 1e6


def ways(shares: dict, factors: dict[str, float], usd: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """GPUs by type, and what is paid by the token, of all fleets of up to six replicas of each GPU type and class."""
    each = []
    for name, rows in shares.items():
        able = []
        for sizes in itertools.product(range(MOST + 1), repeat=len(rows)):
            left = factors[name] - sum(row[n] for row, n in zip(rows, sizes, strict=True))
            if left <= 0.0 or name in usd:
                able.append((sizes, max(left, 0.0) * usd.get(name, 0.0)))
        each.append(able)
    found = [
        (np.sum([sizes for sizes, _ in chosen], axis=0), sum(paid for _, paid in chosen))
        for chosen in itertools.product(*each)
    ]
    return np.array([gpus for gpus, _ in found]), np.array([paid for _, paid in found])


def least(data: dict, scenarios: list[tuple[np.ndarray, np.ndarray]], weights: list[float], risk: Risk | None) -> float:
    """Least cost over all bases, each scenario at its cheapest."""
    tiers = [
        {tier["term"]: tier["usd_per_gpu_hour"] for tier in data["fleet"]["gpus"][gpu]["tiers"]}
        for gpu in sorted(data["fleet"]["gpus"])
    ]
    hourly, reserved = (np.array([tier[term] for tier in tiers]) for term in ("on_demand", "reserved_1y"))
    best = np.inf
    for base in itertools.product(range(MOST + 1), repeat=len(tiers)):
        costs = [
            float(base @ reserved + (np.maximum(gpus - base, 0) @ hourly + paid).min()) for gpus, paid in scenarios
        ]
        mean = float(np.average(costs, weights=weights))
        best = min(best, mean if risk is None else risk.value(costs, weights))
    return best


@pytest.mark.parametrize("router", ["jsq", "random"])
@pytest.mark.parametrize("risk", [None, Risk(level=0.8)])
@pytest.mark.parametrize("price", [0.1, 0.2, 1.0])
def test_an_api_takes_what_is_dear_to_serve(price, risk, router):
    data = with_api(uncertain(5, router, plan_for="mean" if risk is None else {"cvar": risk.level}), price)
    sure = copy.deepcopy(data)
    del sure["demand"]
    for item in sure["classes"].values():
        item["rate_rps"] *= 3.0
    usd = {"class-m": api_usd(sure, "class-m")}
    shares = carried_shares(sure)
    names = list(data["classes"])
    scenarios = [
        ways(shares, {cls: factor / 3.0 for cls, factor in zip(names, FACTORS[name], strict=True)}, usd)
        for name in WEIGHTS
    ]
    plan, found = qm.plan(data), least(data, scenarios, list(WEIGHTS.values()), risk)
    assert plan.status == "optimal" and verify(plan).ok
    assert plan.bound_usd_per_hour <= found * (1.0 + 1e-6)
    assert found * (1.0 - 0.01) <= plan.cost_usd_per_hour <= found * (1.0 + 0.01)
    sent = {item.name: [row for row in item.pools if row.role == "api"] for item in plan.periods}
    assert any(sent.values()) == (price == 0.1 or (price == 0.2 and risk is None))


@pytest.mark.parametrize("router", ["jsq", "random"])
@pytest.mark.parametrize("price", [0.1, 0.2])
@pytest.mark.parametrize("seed", [1, 5])
def test_one_fleet_with_an_api_costs_what_brute_force_finds(seed, router, price):
    data = with_api(day_of(seed, router, hours=False), price)
    sure = one_hour(data, (1.0, 1.0), terms=("on_demand", "reserved_1y"))
    usd = api_usd(sure, "class-m")
    shares = carried_shares(sure)
    hourly = [
        min(tier["usd_per_gpu_hour"] for tier in data["fleet"]["gpus"][gpu]["tiers"])
        for gpu in sorted(data["fleet"]["gpus"])
    ]
    weights = [len(hours) / 24.0 for hours in HOURS]
    total = 0.0
    for place, (name, rows) in enumerate(shares.items()):
        costs = []
        for sizes in itertools.product(range(MOST + 1), repeat=len(rows)):
            carried = sum(row[n] for row, n in zip(rows, sizes, strict=True))
            left = [max(level[place] - carried, 0.0) for level in LEVELS]
            if name == "class-m" or not any(left):
                costs.append(float(np.dot(sizes, hourly)) + usd * float(np.dot(weights, left)))
        total += min(costs)
    plan = qm.plan(data)
    assert plan.status == "optimal" and verify(plan).ok
    assert plan.bound_usd_per_hour <= total * (1.0 + 1e-6)
    assert total * (1.0 - 0.01) <= plan.cost_usd_per_hour <= total * (1.0 + 0.01)
    assert all(dict(item.fleet.pools) == dict(plan.fleet.pools) for item in plan.periods)
    mean = sum(item.weight * item.cost_usd_per_hour for item in plan.periods)
    assert plan.cost_usd_per_hour == pytest.approx(mean)


@pytest.mark.parametrize("part", ["all", "mean", {"cvar": 0.8}])
def test_longer_requests_cost_more_by_the_token(part):
    data = with_api(lengthy(5, "jsq", plan_for=part), 0.05)  # so cheap that all of the class goes there
    plan = qm.plan(data)
    assert verify(plan).ok and plan.bound_usd_per_hour <= plan.cost_usd_per_hour
    for item in plan.periods:
        (row,) = [row for row in item.pools if row.role == "api"]
        alone = with_api(certain(data, item.name), 0.05)
        assert row.cost_usd_per_hour == pytest.approx(api_usd(alone, "class-m"), rel=1e-6)


def test_an_api_does_not_go_with_scenarios_that_may_be_left_out():
    data = with_api(uncertain(1, "jsq", plan_for={"quantile": 0.9}), 1.0)
    assert told(data) == [
        "fleet.apis: not supported yet: an API where some scenarios may be left out (demand.plan_for.quantile);"
        " state plan_for: all, mean or {cvar: 0.9}"
    ]
