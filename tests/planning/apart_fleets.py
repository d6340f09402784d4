"""Long prompts on two measured GPU types, and the least cost of one prefill and one decode pool by brute force."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import qmodel as qm
from qmodel.evaluation import evaluate_fleet
from qmodel.problem import bind
from qmodel.types import Fleet, Layout, Path, Pool, Role

__all__ = ["apart", "least_cost_apart", "thinking"]

MODEL = "llama-3.1-8b"


def apart(seed: int, *, router: str = "jsq", classes: int = 1, completion: bool = False) -> dict[str, Any]:
    """A dear, fast GPU type and a cheap one half as fast; separate prefill and decode pools are allowed.

    Args:
        completion: targets on the completion instead of on the time per token.
    """
    rng = np.random.default_rng([seed, 5])
    demand = {}
    for number in range(classes):
        slo = {"ttft_p95_s": float(rng.uniform(0.6, 2.5)), "tpot_p95_s": float(rng.uniform(0.018, 0.03))}
        if completion:
            slo = {"completion_p90_s": float(rng.uniform(8, 16)), "ttft_mean_s": float(rng.uniform(0.6, 1.5))}
        demand[f"c{number}"] = {
            "model": MODEL,
            "rate_rps": float(rng.uniform(2, 6)),
            "prompt_tokens": {"mean": float(rng.uniform(1500, 6000)), "cv": 0.7, "max": 20000},
            "output_tokens": {"mean": float(rng.uniform(100, 400)), "cv": 0.8, "max": 4000},
            "slo": slo,
        }
    profiles = [
        {
            "model": MODEL,
            "gpu": gpu,
            "layout": {"tp": 1},
            "alpha_s": slow * float(rng.uniform(0.006, 0.01)),
            "beta_s": slow * float(rng.uniform(5e-5, 2e-4)),
            "gamma_s": slow * 3e-8,
            "delta_s": slow * float(rng.uniform(3e-5, 6e-5)),
            "max_num_seqs": 128,
            "kv_tokens": 400000,
        }
        for gpu, slow in (("h100-sxm", 1.0), ("h200-sxm", 2.0))
    ]
    prices = {"h100-sxm": 3.0, "h200-sxm": float(rng.uniform(1.2, 1.6))}
    return {
        "qmodel": 1,
        "classes": demand,
        "fleet": {"gpus": {gpu: {"price": {"usd_per_gpu_hour": usd}} for gpu, usd in prices.items()}},
        "engine": {"router": router, "max_batched_tokens": 4096},
        "profiles": profiles,
        "layouts": {"disaggregate": True},
    }


def thinking(seed: int) -> dict[str, Any]:
    """One class that thinks, with targets on the first token, the start of the answer and the completion."""
    rng = np.random.default_rng([seed, 9])
    data = apart(seed)
    del data["classes"]["c0"]["output_tokens"]
    data["classes"]["c0"] |= {
        "rate_rps": float(rng.uniform(1.5, 4)),
        "reasoning_tokens": {"mean": float(rng.uniform(300, 900)), "cv": 0.8, "max": 6000},
        "answer_tokens": {"mean": float(rng.uniform(100, 300)), "cv": 0.7, "max": 2000},
        "slo": {
            "ttft_p95_s": float(rng.uniform(0.8, 2.5)),
            "answer_start_p90_s": float(rng.uniform(9, 20)),
            "completion_p90_s": float(rng.uniform(20, 40)),
        },
    }
    return data


def least_cost_apart(data: dict[str, Any], most: int = 8, roles: Sequence[Role] = ("prefill", "decode")) -> float:
    """Least cost of one pool of each role, of up to ``most`` replicas, that meet every target from end to end."""
    instance = bind(qm.load_scenario(data))
    prices = {gpu: item.price.usd_per_gpu_hour for gpu, item in instance.gpus.items()}
    sizes = list(itertools.product(prices, range(1, most + 1)))
    fleets = sorted(
        (sum(prices[gpu] * count for gpu, count in chosen), chosen)
        for chosen in itertools.product(sizes, repeat=len(roles))
    )
    path = Path(pools=tuple(roles), share=1.0)
    for cost, chosen in fleets:
        pools = {
            role: Pool(name=role, model=MODEL, gpu=gpu, layout=Layout(), replicas=count, role=role)
            for role, (gpu, count) in zip(roles, chosen, strict=True)
        }
        if evaluate_fleet(instance, Fleet(pools=pools, routing=dict.fromkeys(instance.classes, (path,)))).feasible:
            return cost
    return float("inf")
