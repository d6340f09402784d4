"""Two classes of one model on two measured GPU types, and the least cost of all fleets by brute force."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from qmodel.candidates import Candidate, enumerate_candidates, frontier
from qmodel.problem import Instance
from qmodel.types import FloatArray, RequestClass

__all__ = ["least_cost", "two_classes"]

_LARGEST = 5  # replicas of one pool
_ANGLES = 25
_STEPS = 400  # of the share of the first class


def two_classes(seed: int, router: str) -> dict[str, Any]:
    """Random classes, step laws and prices."""
    rng = np.random.default_rng([seed, 9])
    classes = {}
    for name in ("a", "b"):
        long = rng.random() < 0.3
        classes[name] = {
            "model": "m",
            "rate_rps": float(rng.uniform(0.1, 0.6) if long else rng.uniform(1, 6)),
            "prompt_tokens": {"mean": float(rng.uniform(200, 3000)), "cv": 0.7, "max": 16000},
            "output_tokens": {
                "mean": float(rng.uniform(1000, 3000) if long else rng.uniform(60, 600)),
                "cv": 0.9,
                "max": 16000,
            },
            "slo": {"ttft_p95_s": float(rng.uniform(0.4, 2)), "tpot_mean_s": float(rng.uniform(0.025, 0.06))},
        }
    profiles = [
        {
            "model": "m",
            "gpu": gpu,
            "alpha_s": slow * float(rng.uniform(0.006, 0.01)),
            "beta_s": slow * float(rng.uniform(5e-5, 2e-4)),
            "gamma_s": slow * 3e-8,
            "delta_s": slow * float(rng.uniform(3e-5, 6e-5)),
            "max_num_seqs": 128,
        }
        for gpu, slow in (("big", 1.0), ("small", 2.2))
    ]
    prices = {"big": float(rng.uniform(3, 6)), "small": float(rng.uniform(0.8, 2.0))}
    return {
        "qmodel": 1,
        "classes": classes,
        "fleet": {"gpus": {gpu: {"price": {"usd_per_gpu_hour": usd}} for gpu, usd in prices.items()}},
        "engine": {"router": router},
        "profiles": profiles,
    }


def least_cost(instance: Instance, most_pools: int = 3) -> float:
    """Least cost of fleets of up to three pools with up to five replicas each, whose mixes may differ.

    What a pool carries is followed along 25 mixes of its own, so that this shares no mix with the planner. Single GPUs
    are paid, the cheapest offer of a type first.
    """
    (model,) = instance.models
    candidates = enumerate_candidates(instance).of(model)
    classes = instance.classes_of(model)
    pools = []
    for item in candidates:
        for count, boundary in enumerate(_boundaries(item, classes), start=1):
            pools.append(((item.gpu, item.layout.gpus * (count + item.spare)), _second_class(boundary)))
    best = np.inf
    for size in range(1, most_pools + 1):
        for chosen in itertools.combinations_with_replacement(pools, size):
            cost = _cost(instance, [item[0] for item in chosen])
            if cost < best - 1e-9 and _together([item[1] for item in chosen]) >= 1.0:
                best = cost
    return best


def _cost(instance: Instance, pools: Sequence[tuple[str, int]]) -> float:
    """USD/h of GPUs by type, each GPU at the cheapest price that is left."""
    total = 0.0
    for gpu in {name for name, _ in pools}:
        gpus = sum(count for name, count in pools if name == gpu)
        for offer in sorted(instance.limits.of(gpu).offers, key=lambda item: item.usd_per_gpu_hour):
            taken = gpus if offer.max_gpus is None else min(gpus, offer.max_gpus)
            total, gpus = total + taken * offer.usd_per_gpu_hour, gpus - taken
        if gpus:
            return np.inf
    return total


def _boundaries(item: Candidate, classes: Sequence[RequestClass]) -> FloatArray:
    """Shares of both classes that pools of each count carry, along even angles, shape (N, A, 2)."""
    counts = np.arange(1, _LARGEST + 1)
    points = []
    for angle in np.linspace(0.0, np.pi / 2.0, _ANGLES):
        ray = np.array([np.cos(angle), np.sin(angle)])
        ray[ray < 1e-9] = 0.0
        mix = [one.part(part) for one, part in zip(classes, ray.tolist(), strict=True) if part > 0.0]
        points.append(frontier([item] * _LARGEST, mix, counts).low[:, None] * ray)
    return np.stack(points, axis=1)


def _second_class(boundary: FloatArray) -> FloatArray:
    """Share of the second class that goes with each share of the first from 0 to 1; -1 where the first is too much."""
    first = np.maximum.accumulate(boundary[::-1, 0])
    return np.interp(np.linspace(0.0, 1.0, _STEPS + 1), first, boundary[::-1, 1], right=-1.0)


def _together(carried: Sequence[FloatArray]) -> float:
    """Most of the second class when pools carry all of the first between them."""
    total = carried[0]
    for other in carried[1:]:
        sums = np.full(_STEPS + 1, -1.0)
        for part in range(_STEPS + 1):
            mine, its = total[: part + 1], other[: part + 1][::-1]
            sums[part] = np.where((mine >= 0.0) & (its >= 0.0), mine + its, -1.0).max()
        total = sums
    return float(total[-1])
