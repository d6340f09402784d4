"""Pools of one model are joined where that costs no more; the joined pool still meets every target."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import qmodel as qm
from qmodel.candidates import enumerate_candidates, feasible_at, least_counts
from qmodel.planning.merging import merged
from qmodel.planning.planned_pools import PlannedPool
from qmodel.problem import bind
from tests.optimize.pieces import stock_of

P4 = Path(__file__).parents[2] / "scenarios" / "peers" / "p4.yaml"


def separate(stock: dict[str, int] | None = None) -> tuple[list[PlannedPool], list[PlannedPool]]:
    """One pool per class on its cheapest candidate, and the same after joining."""
    instance = bind(qm.load_scenario(P4))
    candidates = enumerate_candidates(instance).candidates
    pools = []
    for item in instance.classes.values():
        able = [candidate for candidate in candidates if candidate.model == item.model]
        counts = least_counts(able, [item])
        cost = np.where(counts > 0, counts * np.array([c.cost_usd_per_hour for c in able]), np.inf)
        best = int(np.argmin(cost))
        pools.append(PlannedPool(candidate=able[best], replicas=int(counts[best]), classes=(item,), shares=(1.0,)))
    return pools, merged(pools, candidates, stock_of(stock or {}))


def cost(pools: list[PlannedPool]) -> float:
    return sum(item.candidate.cost_usd_per_hour * item.replicas for item in pools)


def gpus_of(pools: list[PlannedPool], gpu: str) -> int:
    return sum(item.holding.replica_gpus * item.holding.replicas for item in pools if item.candidate.gpu == gpu)


def test_joining_never_costs_more_and_keeps_every_share() -> None:
    before, after = separate()
    assert len(after) < len(before)
    assert cost(after) <= cost(before) * (1 + 1e-9)
    for name in {item.name for pool in before for item in pool.classes}:
        shares = [s for pool in after for c, s in zip(pool.classes, pool.shares, strict=True) if c.name == name]
        assert sum(shares) == 1.0


def test_joined_pools_meet_every_target() -> None:
    for pool in separate()[1]:
        assert feasible_at([pool.candidate], pool.classes, np.array([pool.replicas]), np.array([1.0]))[0] <= 1.0


def test_joining_stays_within_stock() -> None:
    before, _ = separate()
    stock = {gpu: gpus_of(before, gpu) for gpu in ("H100", "A100", "L40S")}
    after = separate(stock)[1]
    for gpu, limit in stock.items():
        assert gpus_of(after, gpu) <= limit


def test_plan_of_three_models_has_few_pools() -> None:
    plan = qm.plan(P4)
    assert len(plan.pools) <= 5
    assert qm.verify(plan).ok
