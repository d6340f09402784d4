"""What a fleet of pools costs by the meaning of prices and limits in a scenario, without the records of the package."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

__all__ = ["StatedPool", "fleet_cost", "replicas_of_pool"]


class StatedPool(NamedTuple):
    """A pool: GPU type, GPUs of a replica, replicas that serve, and the model."""

    gpu: str
    gpus: int
    serving: int
    model: str = ""


def fleet_cost(
    pools: Sequence[StatedPool],
    data: Mapping[str, Any],
    *,
    tokens_usd: float = 0.0,
    running: Mapping[tuple[str, str, int], int] | None = None,
) -> float:
    """USD/h with spare replicas, whole nodes and changes; infinite where a limit is broken.

    Args:
        pools: of the fleet.
        data: the scenario; replicas fill nodes without gaps (1 or 2 of 4 GPUs, or 3, which take the place of 4).
        tokens_usd: what an API is paid.
        running: replicas that run already, by model, GPU type and GPUs of a replica.
    """
    fleet, policy = data["fleet"], data["policy"]
    if len(pools) > policy.get("max_pools", 10**6):
        return np.inf
    total, kw = tokens_usd, 0.0
    sold: dict[tuple[str, str], tuple[int, float]] = {}
    for name, stated in fleet["gpus"].items():
        per_node, whole = stated["gpus_per_node"], stated.get("billing") == "per_node"
        counted = whole or "max_nodes" in stated
        used = held = 0
        for pool in pools:
            if pool.gpu == name:
                replicas = replicas_of_pool(pool, data)
                used += pool.gpus * replicas
                held += (4 if counted and pool.gpus == 3 else pool.gpus) * replicas  # nodes have 4 GPUs
        nodes = ceil(held / per_node)
        taken = nodes * per_node if whole else held
        if taken > stated.get("max_count", 10**9) or nodes > stated.get("max_nodes", 10**9):
            return np.inf
        paid = _paid(taken if whole else used, stated, per_node if whole else 1)
        total += paid
        for word in ("provider", "region"):
            if word in stated:
                gpus, usd = sold.get((word, stated[word]), (0, 0.0))
                sold[word, stated[word]] = gpus + taken, usd + paid
        kw += taken * stated["power_w"] / 1000.0
    for (word, seller), (gpus, usd) in sold.items():
        quota = fleet.get(f"{word}s", {}).get(seller, {})
        if gpus > quota.get("max_gpus", gpus) or usd > quota.get("max_usd_per_hour", usd) + 1e-9:
            return np.inf
    total += _change_usd_per_hour(pools, data, running)
    within = kw <= fleet.get("power_kw", np.inf) + 1e-9 and total <= fleet.get("budget_usd_per_hour", np.inf) + 1e-9
    return total if within else np.inf


def replicas_of_pool(pool: StatedPool, data: Mapping[str, Any]) -> int:
    """Replicas of a pool with those that may be lost: stated, with a node, and away from spot GPUs."""
    stated, policy = data["fleet"]["gpus"][pool.gpu], data["policy"]
    spare = policy.get("spare_replicas", 0)
    if policy.get("survive_nodes"):
        spare = max(spare, stated["gpus_per_node"] // pool.gpus, 1)
    replicas = pool.serving + spare
    while "spot" in stated and replicas - _away(replicas, pool.gpus, stated["spot"]) < pool.serving + spare:
        replicas += 1
    return replicas


def _away(replicas: int, gpus: int, spot: Mapping[str, Any]) -> int:
    """Replicas of which no more are away in 99 % of the time, those of one instance at least."""
    together = max(spot["instance_gpus"] // gpus, 1)
    rate = spot["preemptions_per_hour"] / 3600.0 * ceil(gpus / spot["instance_gpus"])
    away = 1.0 - 1.0 / (1.0 + rate * spot["restart_s"])
    units = ceil(replicas / together)
    lost = next(count for count in range(units + 1) if binom.cdf(count, units, away) >= spot.get("share_of_time", 0.99))
    return min(max(lost, 1) * together, replicas)


def _change_usd_per_hour(
    pools: Sequence[StatedPool], data: Mapping[str, Any], running: Mapping[tuple[str, str, int], int] | None
) -> float:
    if not running:
        return 0.0
    cost = data["policy"]["change"]
    after: dict[tuple[str, str, int], int] = {}
    for pool in pools:
        key = (pool.model, pool.gpu, pool.gpus)
        after[key] = after.get(key, 0) + replicas_of_pool(pool, data)
    usd = 0.0
    for key in {*after, *running}:
        more = (after.get(key, 0) - running.get(key, 0)) * key[2]
        usd += max(more, 0) * cost["start_usd_per_gpu"] + max(-more, 0) * cost["stop_usd_per_gpu"]
    return usd / float(cost["spread_h"])


def _paid(gpus: int, stated: Mapping[str, Any], lot: int) -> float:
    """USD/h of GPUs at the cheapest prices that are left; infinite where no tier has enough."""
    if "tiers" not in stated:
        return float(gpus * stated["price"]["usd_per_gpu_hour"])
    most = [tier.get("max_count", gpus) // lot * lot if "max_count" in tier else gpus for tier in stated["tiers"]]
    ways = itertools.product(*(range(0, limit + 1, lot) for limit in most))
    costs = (
        sum(n * tier["usd_per_gpu_hour"] for n, tier in zip(way, stated["tiers"], strict=True))
        for way in ways
        if sum(way) == gpus
    )
    return min(costs, default=np.inf)
