"""Two classes with a model each on two measured GPU types, and the least cost within limits by brute force."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

import qmodel as qm
from qmodel.candidates import Candidate, enumerate_candidates, feasible_at
from qmodel.problem import bind
from qmodel.types import FloatArray, RequestClass
from tests.planning.stated_costs import StatedPool, fleet_cost

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
    return min((fleet_cost(pools, data) for pools in fleets), default=np.inf)


Pools = tuple[StatedPool, ...]


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
                tuple(StatedPool(c.gpu, c.layout.gpus, n) for c, n in zip(candidates, sizes, strict=True) if n)
                for sizes in itertools.product(range(MOST + 1), repeat=len(candidates))
                if sum(share[j, n] for j, n in enumerate(sizes)) >= 1.0
            )
        )
    return tuple(each)


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
