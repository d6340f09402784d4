"""Scenarios of measured capacities, and their cheapest fleet by an independent solver."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from qmodel.types import FloatArray

__all__ = ["least_cost", "measured_scenario", "random_capacities"]


def measured_scenario(
    rates_rps: dict[str, float],
    capacities_rps: dict[str, dict[str, float]],
    prices: dict[str, float],
    stock: dict[str, int] | None = None,
) -> dict[str, Any]:
    """One model, its classes by rate, and GPU types by what one carries of each class."""
    lengths = {"prompt_tokens": {"constant": 500}, "output_tokens": {"constant": 100}}
    limits = stock or {}
    return {
        "qmodel": 1,
        "classes": {
            name: {"model": "m", "rate_rps": rate, **lengths, "slo": {"ttft_p99_s": 0.5}}
            for name, rate in rates_rps.items()
        },
        "fleet": {
            "gpus": {
                name: {"price": {"usd_per_gpu_hour": price}} | ({"max_count": limits[name]} if name in limits else {})
                for name, price in prices.items()
            }
        },
        "profiles": [
            {"model": "m", "gpu": name, "max_rate_rps": capacities} for name, capacities in capacities_rps.items()
        ],
    }


def random_capacities(
    seed: int,
) -> tuple[dict[str, float], dict[str, dict[str, float]], dict[str, float], dict[str, int]]:
    """Rates, capacities, prices and stock; some classes are not measured on some types, some types are scarce."""
    rng = np.random.default_rng([seed, 41])
    classes = [f"c{k}" for k in range(int(rng.integers(1, 6)))]
    gpus = [f"g{j}" for j in range(int(rng.integers(1, 5)))]
    rates = {name: float(rng.uniform(0.5, 12.0)) for name in classes}
    capacities = {
        gpu: {name: float(rng.uniform(0.5, 6.0)) for k, name in enumerate(classes) if rng.random() < 0.8 or k == 0}
        for gpu in gpus
    }
    prices = {gpu: float(rng.uniform(1.0, 9.0)) for gpu in gpus}
    stock = {gpu: int(rng.integers(1, 9)) for gpu in gpus if rng.random() < 0.3}
    return rates, capacities, prices, stock


def least_cost(
    rates_rps: dict[str, float],
    capacities_rps: dict[str, dict[str, float]],
    prices: dict[str, float],
    stock: dict[str, int],
) -> float:
    """The least cost by SciPy: whole counts n_j, requests/s y_kj of each class on each type; infinite where none."""
    classes, gpus = list(rates_rps), list(capacities_rps)
    pairs = [(k, j) for k, name in enumerate(classes) for j, gpu in enumerate(gpus) if name in capacities_rps[gpu]]
    size = len(gpus) + len(pairs)
    served, carried = np.zeros((len(classes), size)), np.zeros((len(gpus), size))
    carried[:, : len(gpus)] = -np.eye(len(gpus))
    for place, (k, j) in enumerate(pairs, start=len(gpus)):
        served[k, place] = 1.0
        carried[j, place] = 1.0 / capacities_rps[gpus[j]][classes[k]]
    upper: FloatArray = np.full(size, np.inf)
    upper[: len(gpus)] = [stock.get(gpu, np.inf) for gpu in gpus]
    found = milp(
        np.concatenate([[prices[gpu] for gpu in gpus], np.zeros(len(pairs))]),
        constraints=[
            LinearConstraint(served, list(rates_rps.values()), np.inf),
            LinearConstraint(carried, -np.inf, 0.0),
        ],
        bounds=Bounds(0.0, upper),
        integrality=np.concatenate([np.ones(len(gpus)), np.zeros(len(pairs))]),
        options={"mip_rel_gap": 0.0},
    )
    return float(found.fun) if found.success else np.inf
