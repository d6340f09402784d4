"""One class on two GPU types, targets over the fleet, and the least cost over counts and splits by brute force."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import qmodel as qm
from qmodel.problem import Instance, bind
from qmodel.queueing import pool
from qmodel.types import FloatArray, RequestClass

__all__ = ["least_cost", "least_cost_of_two", "two_types"]

_STEPS = 100  # of the demand: shares tried are multiples of one part in so many
_MOST = 4  # replicas of one GPU type


def two_types(seed: int, router: str, *, slo: dict[str, float] | None = None, **policy: Any) -> dict[str, Any]:
    """A fast, dear GPU type and an old, cheap one; two to four fast replicas carry the class."""
    rng = np.random.default_rng([seed, 71])
    slow, dear = float(rng.uniform(1.4, 2.6)), float(rng.uniform(3.0, 5.0))
    profiles = [
        {
            "model": "m",
            "gpu": gpu,
            "alpha_s": times * float(rng.uniform(0.006, 0.01)),
            "beta_s": times * float(rng.uniform(5e-5, 2e-4)),
            "gamma_s": times * 3e-8,
            "delta_s": times * float(rng.uniform(3e-5, 6e-5)),
            "max_num_seqs": 64,
        }
        for gpu, times in (("new", 1.0), ("old", slow))
    ]
    prices = {"new": dear, "old": dear * float(rng.uniform(0.8, 1.0)) / slow}
    chat = {
        "model": "m",
        "rate_rps": float(rng.uniform(12.0, 26.0)),
        "prompt_tokens": {"mean": float(rng.uniform(300, 1200)), "cv": 0.7, "max": 16000},
        "output_tokens": {"mean": float(rng.uniform(150, 400)), "cv": 0.9, "max": 8000},
        "slo": slo
        or {
            f"ttft_p{rng.choice([90, 95, 99])}_s": float(rng.uniform(0.15, 0.6)),
            f"tpot_p{rng.choice([90, 95])}_s": float(rng.uniform(0.02, 0.045)),
        },
    }
    return {
        "qmodel": 1,
        "classes": {"chat": chat},
        "fleet": {"gpus": {gpu: {"price": {"usd_per_gpu_hour": usd}} for gpu, usd in prices.items()}},
        "engine": {"router": router},
        "profiles": profiles,
        "policy": {"slo_scope": "fleet", **policy},
    }


def least_cost(data: dict[str, Any], *, most: int = _MOST) -> float:
    """Least cost of up to three pools, of both types or of one, over counts and shares in hundredths.

    Written from the meaning of the targets: shares of requests that take longer, weighted by what each pool serves.
    """
    instance = bind(qm.load_scenario(data))
    (item,) = instance.classes.values()
    taken = {(gpu, n): _taken(instance, item, gpu, n) for gpu in instance.gpus for n in range(1, most + 1)}
    usd = {gpu: option.price.usd_per_gpu_hour for gpu, option in instance.gpus.items()}
    best = np.inf
    for size in (1, 2, 3):
        for pools in itertools.combinations_with_replacement(taken, size):
            cost = sum(usd[gpu] * n for gpu, n in pools)
            if cost < best - 1e-9 and _some_split_holds([taken[one] for one in pools]):
                best = cost
    return best


def _some_split_holds(pools: list[FloatArray]) -> bool:
    """Whether some shares in hundredths that add up to 1 keep every target: sum_i share_i excess_i <= 0."""
    if len(pools) == 1:
        return bool(np.all(pools[0][-1] <= 1e-12))
    first = np.arange(_STEPS + 1)
    if len(pools) == 2:
        return bool(np.any(np.all(pools[0][first] + pools[1][_STEPS - first] <= 1e-12, axis=1)))
    left = _STEPS - first[:, None] - first[None, :]
    sums = pools[0][first][:, None] + pools[1][first][None, :] + pools[2][np.maximum(left, 0)]
    return bool(np.any(np.all(sums <= 1e-12, axis=2) & (left >= 0)))


def _taken(instance: Instance, item: RequestClass, gpu: str, n: int) -> FloatArray:
    """Share times excess at every share in hundredths, by target; infinite where the pool is not stable."""
    (profile,) = instance.profiles["m", gpu]
    found = np.full((_STEPS + 1, len(item.slos)), np.inf)
    found[0] = 0.0
    for step in range(1, _STEPS + 1):
        share = step / _STEPS
        prediction = pool(profile.replica, [item.stream(share)], n, router=instance.gpus[gpu].engine.router)  # type: ignore[arg-type]
        if not prediction.stable:
            break
        for place, slo in enumerate(item.slos):
            metric = prediction[item.name].metric(slo.metric)
            if slo.p is None:
                found[step, place] = share * (metric.mean / slo.target_s - 1.0)
            else:
                beyond = 1.0 - float(metric.share_within(np.array([slo.target_s]))[0])
                found[step, place] = share * (beyond - (1.0 - slo.p))
    return found


def least_cost_of_two(data: dict[str, Any], *, most: int = 4, steps: int = 16) -> float:
    """Least cost of one or two pools that serve two classes of one model in any shares, by parts of a grid."""
    instance = bind(qm.load_scenario(data))
    items = list(instance.classes.values())
    usd = {gpu: option.price.usd_per_gpu_hour for gpu, option in instance.gpus.items()}
    taken = {(gpu, n): _taken_by_two(instance, items, gpu, n, steps) for gpu in usd for n in range(1, most + 1)}
    best = min(
        (usd[gpu] * n for (gpu, n), found in taken.items() if np.all(found[-1, -1] <= 1e-12)),
        default=np.inf,
    )
    for one, other in itertools.combinations_with_replacement(taken, 2):
        cost = usd[one[0]] * one[1] + usd[other[0]] * other[1]
        if cost < best and np.any(np.all(taken[one] + taken[other][::-1, ::-1] <= 1e-12, axis=2)):
            best = cost
    return best


def _taken_by_two(instance: Instance, items: list[RequestClass], gpu: str, n: int, steps: int) -> FloatArray:
    """Share times excess of every target of both classes at every pair of shares; infinite where not stable."""
    (profile,) = instance.profiles[items[0].model, gpu]
    router = instance.gpus[gpu].engine.router
    found = np.full((steps + 1, steps + 1, sum(len(item.slos) for item in items)), np.inf)
    found[0, 0] = 0.0
    for places in itertools.product(range(steps + 1), repeat=2):
        shares = [place / steps for place in places]
        streams = [item.stream(share) for item, share in zip(items, shares, strict=True) if share > 0.0]
        prediction = pool(profile.replica, streams, n, router=router) if streams else None  # type: ignore[arg-type]
        if prediction is None or not prediction.stable:
            continue
        values = []
        for item, share in zip(items, shares, strict=True):
            for slo in item.slos:
                if share == 0.0:
                    values.append(0.0)
                elif slo.p is None:
                    mean = prediction[item.name].metric(slo.metric).mean
                    values.append(share * (mean / slo.target_s - 1.0))
                else:
                    within = prediction[item.name].metric(slo.metric).share_within(np.array([slo.target_s]))
                    values.append(share * (slo.p - float(within[0])))
        found[places] = values
    return found
