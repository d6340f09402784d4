"""Two classes with a model each on two measured GPU types, and the least cost within limits by brute force."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import Any

import numpy as np

import qmodel as qm
from qmodel.candidates import Candidate, enumerate_candidates, feasible_at
from qmodel.problem import bind
from qmodel.types import FloatArray, RequestClass

__all__ = ["MOST", "carried", "least_cost", "two_models"]

MOST = 6  # serving replicas of one candidate in brute force


def two_models(seed: int, router: str, tp: int = 1) -> dict[str, Any]:
    """A dear, fast GPU type and a cheap, slow one; nothing is limited."""
    rng = np.random.default_rng([seed, 11])
    classes, profiles = {}, []
    for model in ("m", "n"):
        classes[f"class-{model}"] = {
            "model": model,
            "rate_rps": float(rng.uniform(4, 10)),
            "prompt_tokens": {"mean": float(rng.uniform(200, 2000)), "cv": 0.7, "max": 16000},
            "output_tokens": {"mean": float(rng.uniform(100, 600)), "cv": 0.9, "max": 16000},
            "slo": {"ttft_p95_s": float(rng.uniform(0.7, 2)), "tpot_mean_s": float(rng.uniform(0.03, 0.06))},
        }
        for gpu, slow in (("big", 1.0), ("small", 2.2)):
            profiles.append(
                {
                    "model": model,
                    "gpu": gpu,
                    "layout": {"tp": tp},
                    "alpha_s": slow * float(rng.uniform(0.006, 0.01)),
                    "beta_s": slow * float(rng.uniform(5e-5, 2e-4)),
                    "gamma_s": slow * 3e-8,
                    "delta_s": slow * float(rng.uniform(3e-5, 6e-5)),
                    "max_num_seqs": 128,
                }
            )
    dear = float(rng.uniform(3, 5))
    prices = {"big": dear, "small": dear * float(rng.uniform(0.33, 0.45))}
    return {
        "qmodel": 1,
        "classes": classes,
        "fleet": {
            "gpus": {
                gpu: {"price": {"usd_per_gpu_hour": usd}, "gpus_per_node": 4, "power_w": watts}
                for (gpu, usd), watts in zip(prices.items(), (700, 500), strict=True)
            }
        },
        "engine": {"router": router},
        "profiles": profiles,
        "policy": {},
    }


def least_cost(data: dict[str, Any]) -> float:
    """Least cost of all fleets with up to MOST serving replicas in one pool of each candidate for each class.

    Infinite where none keeps every limit. Written from the meaning of the limits, without the optimizer's records.
    """
    each = _ways(json.dumps([data["classes"], data["profiles"], data["engine"]]))
    fleets = ([pool for part in chosen for pool in part] for chosen in itertools.product(*each))
    return min((_cost(pools, data) for pools in fleets), default=np.inf)


Pools = tuple[tuple[str, int, int], ...]  # GPU type, GPUs of a replica, serving replicas


@cache
def _ways(demand: str) -> tuple[tuple[Pools, ...], ...]:
    """For each class, the pools that carry it whole if nothing is limited."""
    classes, profiles, engine = json.loads(demand)
    gpus = {item["gpu"]: {"price": {"usd_per_gpu_hour": 1.0}} for item in profiles}
    free = {"qmodel": 1, "classes": classes, "profiles": profiles, "engine": engine, "fleet": {"gpus": gpus}}
    instance = bind(qm.load_scenario(free))
    found = enumerate_candidates(instance)
    each = []
    for item in instance.classes.values():
        candidates = found.of(item.model)
        share = carried(candidates, item)
        each.append(
            tuple(
                tuple((c.gpu, c.layout.gpus, n) for c, n in zip(candidates, sizes, strict=True) if n)
                for sizes in itertools.product(range(MOST + 1), repeat=len(candidates))
                if sum(share[j, n] for j, n in enumerate(sizes)) >= 1.0
            )
        )
    return tuple(each)


def _cost(pools: Pools | list[tuple[str, int, int]], data: dict[str, Any]) -> float:
    """USD/h with spare replicas and whole nodes; infinite where a limit is broken."""
    fleet, policy = data["fleet"], data["policy"]
    if len(pools) > policy.get("max_pools", 10**6):
        return np.inf
    total, kw = 0.0, 0.0
    sold: dict[tuple[str, str], tuple[int, float]] = {}
    for name, stated in fleet["gpus"].items():
        per_node, whole = stated["gpus_per_node"], stated.get("billing") == "per_node"
        counted = whole or "max_nodes" in stated
        used = held = 0
        for gpu, gpus, serving in pools:
            if gpu == name:
                lost = policy.get("spare_replicas", 0)
                if policy.get("survive_nodes"):
                    lost = max(lost, per_node // gpus, 1)
                used += gpus * (serving + lost)
                held += (4 if counted and gpus == 3 else gpus) * (serving + lost)  # nodes have 4 GPUs
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
    within = kw <= fleet.get("power_kw", np.inf) and total <= fleet.get("budget_usd_per_hour", np.inf)
    return total if within else np.inf


def _paid(gpus: int, stated: dict[str, Any], lot: int) -> float:
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


def carried(candidates: Sequence[Candidate], item: RequestClass) -> FloatArray:
    """Share of a class that 0 to MOST replicas of each candidate carry, by bisection, shape (J, MOST + 1)."""
    many = [candidate for candidate in candidates for _ in range(MOST)]
    counts = np.tile(np.arange(1, MOST + 1), len(candidates))
    low, high = np.zeros(counts.size), np.full(counts.size, 2.0)
    for _ in range(14):
        middle = (low + high) / 2.0
        good = feasible_at(many, [item], counts, middle) <= 1.0
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return np.concatenate([np.zeros((len(candidates), 1)), low.reshape(len(candidates), MOST)], axis=1)
