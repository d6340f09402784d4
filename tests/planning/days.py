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
from qmodel.types import Risk, tail_mean
from tests.planning.limited_fleets import MOST, carried, two_models

__all__ = ["carried_shares", "day_of", "least_day", "least_needs", "least_over_bases", "one_hour", "profile_of"]

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
    gpus = sorted(data["fleet"]["gpus"])
    shares = carried_shares(one_hour(data, (1.0, 1.0), terms=("on_demand",)))
    stock = [data["fleet"]["gpus"][gpu].get("max_count", 10**6) for gpu in gpus]
    needs = [least_needs(shares, level, stock) for level in LEVELS]
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


def carried_shares(data: dict[str, Any]) -> dict[str, list[list[float]]]:
    """Share of each class that 0, 1, ... replicas of each GPU type carry, types by name."""
    instance = bind(qm.load_scenario(data))
    found = enumerate_candidates(instance)
    shares = {}
    for item in instance.classes.values():
        by_gpu = {
            candidate.gpu: row
            for candidate, row in zip(found.of(item.model), carried(found.of(item.model), item), strict=True)
        }
        shares[item.name] = [by_gpu[gpu] for gpu in sorted(data["fleet"]["gpus"])]
    return shares


def least_needs(
    shares: dict[str, list[list[float]]], factors: Sequence[float], stock: Sequence[int]
) -> list[tuple[int, ...]]:
    """GPUs by type that carry every class at its factor, of which none does with less of every type."""
    each = [
        [
            sizes
            for sizes in itertools.product(range(MOST + 1), repeat=len(rows))
            if sum(row[n] for row, n in zip(rows, sizes, strict=True)) >= factor
        ]
        for rows, factor in zip(shares.values(), factors, strict=True)
    ]
    sums = {tuple(map(sum, zip(*chosen, strict=True))) for chosen in itertools.product(*each)}
    held = [one for one in sums if all(n <= most for n, most in zip(one, stock, strict=True))]
    return [one for one in held if not any(other != one and _below(other, one) for other in held)]


def least_over_bases(data: dict[str, Any], needs: Sequence[Sequence[tuple[int, ...]]], risk: Risk | None) -> float:
    """Least mean, or mix of mean and dearest part, over all bases: a base decides what every scenario costs."""
    tiers = [
        {tier["term"]: tier for tier in data["fleet"]["gpus"][gpu]["tiers"]} for gpu in sorted(data["fleet"]["gpus"])
    ]
    hourly = np.array([tier["on_demand"]["usd_per_gpu_hour"] for tier in tiers])
    reserved = np.array([tier["reserved_1y"]["usd_per_gpu_hour"] for tier in tiers])
    rooms = [tier["reserved_1y"].get("max_count", 2 * MOST) for tier in tiers]
    weights = [item["weight"] for item in data["demand"]["scenarios"].values()]
    best = np.inf
    for base in itertools.product(*(range(room + 1) for room in rooms)):
        costs = [float(base @ reserved + (np.maximum(np.array(each) - base, 0) @ hourly).min()) for each in needs]
        best = min(best, tail_mean(costs, weights, 0.0) if risk is None else risk.value(costs, weights))
    return best


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
