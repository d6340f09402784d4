"""Under bursty arrivals the frontier, the least counts and the bound keep what the integer program relies on."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import feasible_at, frontier, resource_shares
from tests.candidates.test_frontiers import bound, scenario

SWINGS = {"mmpp": {"peak_to_mean": 2.0, "mean_peak_s": 30, "mean_base_s": 120}}
SHAPES: list[dict[str, Any]] = [SWINGS, {"scv": 6}, {"batch_size": 3}]


def bursty(seed: int, shape: dict[str, Any], router: str = "random") -> dict[str, Any]:
    data = scenario(seed, router)
    for item in data["classes"].values():
        item["arrivals"] = {"rate_rps": item.pop("rate_rps"), **shape}
    return data


@pytest.mark.parametrize("shape", SHAPES, ids=["swings", "gamma", "batches"])
def test_random_routing_carries_in_proportion_to_the_count(shape: dict[str, Any]) -> None:
    """Each replica takes its part of the burst along with its part of the load."""
    instance, candidates = bound(bursty(1, shape))
    classes = tuple(instance.classes.values())
    load = 0.9 * float(frontier(candidates[:1], classes, np.array([1])).low[0])
    alone, many = (
        float(feasible_at(candidates[:1], classes, np.array([count]), np.array([load * count]))[0]) for count in (1, 4)
    )
    assert many == pytest.approx(alone, rel=1e-6)


def test_join_shortest_queue_carries_no_less_per_replica_in_larger_pools() -> None:
    instance, candidates = bound(bursty(1, SWINGS, "jsq"))
    classes = tuple(instance.classes.values())
    found = frontier([candidates[0]] * 4, classes, np.array([1, 2, 4, 8]))
    per_replica = found.low / np.array([1, 2, 4, 8])
    assert (np.diff(per_replica) > -0.02 * per_replica[0]).all()


@pytest.mark.parametrize("shape", SHAPES, ids=["swings", "gamma", "batches"])
def test_resource_share_is_optimistic(shape: dict[str, Any]) -> None:
    instance, candidates = bound(bursty(0, shape))
    (item,) = instance.classes.values()
    found = frontier(candidates, (item,), np.ones(len(candidates), dtype=int))
    assert (found.low * resource_shares(candidates, item) <= 1.0 + 1e-9).all()


def test_a_burst_never_lets_a_replica_carry_more() -> None:
    loads = []
    for shape in ({}, SWINGS):
        instance, candidates = bound(bursty(2, shape))
        classes = tuple(instance.classes.values())
        loads.append(frontier(candidates, classes, np.ones(len(candidates), dtype=int)).low)
    assert (loads[1] <= loads[0] * 1.005).all()
    assert (loads[1] < 0.97 * loads[0]).any()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", SHAPES[:2], ids=["swings", "gamma"])
def test_plan_costs_what_brute_force_over_counts_and_splits_costs(seed: int, shape: dict[str, Any]) -> None:
    data = bursty(seed, shape)
    instance, candidates = bound(data)
    classes = tuple(instance.classes.values())
    splits = np.linspace(0.0, 1.0, 21)
    best = np.inf
    for counts in itertools.product(range(9), repeat=2):
        cost = sum(n * item.cost_usd_per_hour for n, item in zip(counts, candidates, strict=True))
        if not any(counts) or cost >= best:
            continue
        parts = []
        for n, item, loads in zip(counts, candidates, (splits, 1.0 - splits), strict=True):
            ratio = np.where(loads > 0, np.inf, 0.0)
            busy = np.flatnonzero(loads > 0)
            if n:
                ratio[busy] = feasible_at([item] * busy.size, classes, np.full(busy.size, n), loads[busy])
            parts.append(ratio)
        if (np.maximum(*parts) <= 1.0).any():
            best = cost
    plan = qm.plan(data, solver=qm.SolverOptions(mip_gap=0.0))
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= min(best, plan.cost_usd_per_hour) + 1e-9
    assert plan.cost_usd_per_hour <= best + 1e-9
    assert qm.verify(plan).ok
