"""Days of demand for two classes with a model each, and what they cost at least by brute force."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import qmodel as qm
from qmodel.candidates import enumerate_candidates
from qmodel.problem import bind
from tests.planning.limited_fleets import MOST, carried, two_models

__all__ = ["day_of", "least_day", "one_hour", "profile_of"]

LEVELS = ((1.0, 0.35), (0.6, 1.0), (0.25, 0.5))  # of the two classes in the three parts of the day
HOURS = (tuple(range(8, 18)), (18, 19, 20, 21), (0, 1, 2, 3, 4, 5, 6, 7, 22, 23))


def profile_of(levels: Sequence[float]) -> list[float]:
    """Factors for each hour of the day from those of its three parts."""
    return [level for hour in range(24) for level, hours in zip(levels, HOURS, strict=True) if hour in hours]


def day_of(seed: int, router: str, *, hours: bool, reserved: float | None = 0.7, lag_s: float = 0.0) -> dict[str, Any]:
    """Two classes with a model each on two GPU types; reserved GPUs cost a part of the hourly price."""
    data = two_models(seed, router)
    for place, item in enumerate(data["classes"].values()):
        profile = profile_of([level[place] for level in LEVELS])
        item["arrivals"] = {"rate_rps": item.pop("rate_rps"), "profile": profile, "hours": hours}
    for gpu in data["fleet"]["gpus"].values():
        usd = gpu.pop("price")["usd_per_gpu_hour"]
        gpu["tiers"] = [{"term": "on_demand", "usd_per_gpu_hour": usd}]
        if reserved is not None:
            gpu["tiers"].append({"term": "reserved_1y", "usd_per_gpu_hour": usd * reserved})
    if lag_s:
        data["fleet"]["start_lag_s"] = lag_s
    return data


def one_hour(data: dict[str, Any], factors: Sequence[float], *, terms: Sequence[str]) -> dict[str, Any]:
    """The same with the rates of one hour alone, and some of the prices."""
    found = copy.deepcopy(data)
    found["fleet"].pop("start_lag_s", None)
    for item, factor in zip(found["classes"].values(), factors, strict=True):
        item["rate_rps"] = item.pop("arrivals")["rate_rps"] * factor
    for gpu in found["fleet"]["gpus"].values():
        gpu["tiers"] = [tier for tier in gpu["tiers"] if tier["term"] in terms]
    return found


def least_day(data: dict[str, Any]) -> float:
    """Least mean cost of all days whose fleets have up to MOST replicas of each GPU type for each class.

    Written from the meaning of a base and of GPUs by the hour, without the optimizer's records.
    """
    instance = bind(qm.load_scenario(one_hour(data, (1.0, 1.0), terms=("on_demand",))))
    found = enumerate_candidates(instance)
    gpus = sorted(data["fleet"]["gpus"])
    shares = {}
    for item in instance.classes.values():
        by_gpu = {
            candidate.gpu: row
            for candidate, row in zip(found.of(item.model), carried(found.of(item.model), item), strict=True)
        }
        shares[item.name] = [by_gpu[gpu] for gpu in gpus]
    needs = []
    for level in LEVELS:
        each = [
            [
                sizes
                for sizes in itertools.product(range(MOST + 1), repeat=len(gpus))
                if sum(row[n] for row, n in zip(shares[name], sizes, strict=True)) >= factor
            ]
            for name, factor in zip(instance.classes, level, strict=True)
        ]
        sums = {tuple(map(sum, zip(*chosen, strict=True))) for chosen in itertools.product(*each)}
        stock = [data["fleet"]["gpus"][gpu].get("max_count", 10**6) for gpu in gpus]
        held = [one for one in sums if all(n <= most for n, most in zip(one, stock, strict=True))]
        needs.append([one for one in held if not any(other != one and _below(other, one) for other in held)])
    prices = {
        gpu: {tier["term"]: tier["usd_per_gpu_hour"] for tier in data["fleet"]["gpus"][gpu]["tiers"]} for gpu in gpus
    }
    lag = data["fleet"].get("start_lag_s", 0.0) / 3600.0
    tables = [
        _gpu_day(prices[gpu], lag, int(max(one[place] for part in needs for one in part)))
        for place, gpu in enumerate(gpus)
    ]
    costs = [
        sum(table[tuple(one[place] for one in day)] for place, table in enumerate(tables))
        for day in itertools.product(*needs)
    ]
    return float(min(costs, default=np.inf))


def _below(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(n <= m for n, m in zip(one, other, strict=True))


def _gpu_day(prices: dict[str, float], lag: float, most: int) -> dict[tuple[int, ...], float]:
    """Mean cost of one GPU type for every number of GPUs in the three parts of the day, hour by hour."""
    part = [next(place for place, hours in enumerate(HOURS) if hour in hours) for hour in range(24)]
    table = {}
    for counts in itertools.product(range(most + 1), repeat=3):
        best = np.inf
        for base in range(most + 1 if "reserved_1y" in prices else 1):
            usd = base * prices.get("reserved_1y", 0.0)
            for hour in range(24):
                now, after = counts[part[hour]], counts[part[(hour + 1) % 24]]
                hourly = (1.0 - lag) * max(now - base, 0) + lag * max(now - base, after - base, 0)
                usd += hourly * prices["on_demand"] / 24.0
            best = min(best, usd)
        table[counts] = best
    return table
