"""Classes that compete for stock: the plan against brute force over counts, with exact evaluation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import Candidate, enumerate_candidates, feasible_at
from qmodel.problem import Instance, bind
from qmodel.types import FloatArray, RequestClass

MOST = 6  # replicas of one candidate in brute force
EXACT = qm.SolverOptions(mip_gap=0.0)


def two_models(seed: int, router: str) -> dict[str, Any]:
    """Two classes, each with a model of its own, on two measured GPU types; the cheap one is scarce."""
    rng = np.random.default_rng(seed)
    classes, profiles = {}, []
    for model in ("m", "n"):
        classes[f"class-{model}"] = {
            "model": model,
            "rate_rps": float(rng.uniform(1, 4)),
            "prompt_tokens": {"mean": float(rng.uniform(200, 2000)), "cv": 0.7, "max": 16000},
            "output_tokens": {"mean": float(rng.uniform(100, 600)), "cv": 0.9, "max": 16000},
            "slo": {"ttft_p95_s": float(rng.uniform(0.7, 2)), "tpot_mean_s": float(rng.uniform(0.03, 0.06))},
        }
        for gpu, slow in (("big", 1.0), ("small", 2.2)):
            profiles.append(
                {
                    "model": model,
                    "gpu": gpu,
                    "alpha_s": slow * float(rng.uniform(0.006, 0.01)),
                    "beta_s": slow * float(rng.uniform(5e-5, 2e-4)),
                    "gamma_s": slow * 3e-8,
                    "delta_s": slow * float(rng.uniform(3e-5, 6e-5)),
                    "max_num_seqs": 128,
                }
            )
    prices = {"big": float(rng.uniform(3, 6)), "small": float(rng.uniform(0.6, 1.4))}
    return {
        "qmodel": 1,
        "classes": classes,
        "fleet": {"gpus": {gpu: {"price": {"usd_per_gpu_hour": usd}} for gpu, usd in prices.items()}},
        "engine": {"router": router},
        "profiles": profiles,
    }


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


def brute_force(instance: Instance) -> float:
    """Least cost of all fleets with up to MOST replicas of each candidate, infinite where none is in stock."""
    found = enumerate_candidates(instance)
    gpus = list(instance.gpus)
    stock = [instance.limits.of(gpu).max_count or 10**6 for gpu in gpus]
    prices = np.array([instance.gpus[gpu].price.usd_per_gpu_hour for gpu in gpus])
    states = {(0, 0)}
    for item in instance.classes.values():
        share = carried(found.of(item.model), item)
        enough = [n for n in itertools.product(range(MOST + 1), repeat=2) if share[0, n[0]] + share[1, n[1]] >= 1.0]
        sums = {(a + x, b + y) for a, b in states for x, y in enough}
        states = {used for used in sums if used[0] <= stock[0] and used[1] <= stock[1]}
    return min((float(prices @ used) for used in states), default=np.inf)


@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("seed", range(4))
def test_plan_with_stock_that_binds_costs_what_brute_force_costs(seed: int, router: str) -> None:
    data = two_models(seed, router)
    free = qm.plan(data, solver=EXACT)
    assert free.fleet is not None
    wanted = free.fleet.gpus.get("small", 0)
    assert wanted > 1
    for have in (wanted - 1, 1):
        data["fleet"]["gpus"]["small"]["max_count"] = have
        plan = qm.plan(data, solver=EXACT)
        assert plan.status == "optimal"
        assert plan.cost_usd_per_hour == pytest.approx(brute_force(bind(qm.load_scenario(data))))
        assert qm.verify(plan).ok


def test_plan_that_stock_does_not_touch_is_the_plan_without_limits() -> None:
    data = two_models(0, "jsq")
    free = qm.plan(data, solver=EXACT)
    for gpu in data["fleet"]["gpus"].values():
        gpu["max_count"] = 50
    held = qm.plan(data, solver=EXACT)
    assert free.fleet is not None and held.fleet is not None
    assert held.fleet.to_dict() == free.fleet.to_dict()
    assert held.status == free.status == "optimal"


@pytest.mark.parametrize("seed", range(3))
def test_bound_for_two_classes_of_one_model_is_below_every_fleet_of_separate_pools(seed: int) -> None:
    data = two_models(seed, "jsq")
    for item in (*data["classes"].values(), *data["profiles"]):
        item["model"] = "m"
    data["profiles"] = data["profiles"][:2]
    plan = qm.plan(data)
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    separate = brute_force(bind(qm.load_scenario(data)))
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour <= separate + 1e-9
