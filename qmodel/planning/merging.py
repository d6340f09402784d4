"""Unequal mixes: pools of one model joined at the shares they actually carry, where that costs no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from qmodel.candidates import Candidate, least_counts, optimistic_loads
from qmodel.planning.assembly import PlannedPool
from qmodel.types import RequestClass

__all__ = ["merged"]

_SAME = 1e-9  # relative; a saving below this is rounding
_MOST_TRIED = 6  # candidates tried for one pair, cheapest by their optimistic load first


def merged(
    pools: Sequence[PlannedPool], candidates: Sequence[Candidate], stock: Mapping[str, int]
) -> list[PlannedPool]:
    """The same demand in fewer pools, as long as joining two of them saves money or costs nothing.

    Columns mix classes in proportion to their demand only; two pools that carry different shares of the same
    classes may do better as one. The best joining of all pairs is taken, and again, until none helps.

    Args:
        pools: planned pools, every target met.
        candidates: pools that may take the place of a pair.
        stock: GPUs by type, for the limited types.
    """
    found = list(pools)
    while (better := _best_joining(found, candidates, stock)) is not None:
        first, second, joined = better
        found = [item for item in found if item is not first and item is not second] + [joined]
    return found


def _best_joining(
    pools: Sequence[PlannedPool], candidates: Sequence[Candidate], stock: Mapping[str, int]
) -> tuple[PlannedPool, PlannedPool, PlannedPool] | None:
    best, saving = None, -_SAME
    for first, second in combinations(pools, 2):
        if first.candidate.model != second.candidate.model:
            continue
        paid = _cost(first) + _cost(second)
        others = [item for item in pools if item is not first and item is not second]
        joined = _joined(first, second, candidates, paid, stock, others)
        if joined is not None and (paid - _cost(joined)) / paid > saving:
            best, saving = (first, second, joined), (paid - _cost(joined)) / paid
    return best


def _joined(
    first: PlannedPool,
    second: PlannedPool,
    candidates: Sequence[Candidate],
    paid_usd_per_hour: float,
    stock: Mapping[str, int],
    others: Sequence[PlannedPool],
) -> PlannedPool | None:
    """The cheapest pool within stock that carries what both carry, None where each would cost more."""
    shares: dict[str, float] = {}
    classes: dict[str, RequestClass] = {}
    for item in (first, second):
        for request_class, share in zip(item.classes, item.shares, strict=True):
            classes[request_class.name] = request_class
            shares[request_class.name] = shares.get(request_class.name, 0.0) + share
    load = [item.part(shares[name]) for name, item in classes.items()]
    able = [item for item in candidates if item.model == first.candidate.model]
    least_usd = np.array([item.cost_usd_per_hour for item in able]) * np.maximum(optimistic_loads(able, load), 1.0)
    rows = [row for row in np.argsort(least_usd, kind="stable") if least_usd[row] <= paid_usd_per_hour * (1 + _SAME)]
    tried = [able[row] for row in rows[:_MOST_TRIED]]
    options = [
        PlannedPool(
            candidate=candidate,
            replicas=int(count),
            classes=tuple(classes.values()),
            shares=tuple(min(shares[name], 1.0) for name in classes),
        )
        for candidate, count in zip(tried, least_counts(tried, load) if tried else (), strict=True)
        if count > 0
    ]
    within = [item for item in options if _fits(item, others, stock)]
    best = min(within, key=lambda item: (_cost(item), item.gpus), default=None)
    return best if best is not None and _cost(best) <= paid_usd_per_hour * (1 + _SAME) else None


def _fits(item: PlannedPool, others: Sequence[PlannedPool], stock: Mapping[str, int]) -> bool:
    gpu = item.candidate.gpu
    used = item.gpus + sum(other.gpus for other in others if other.candidate.gpu == gpu)
    return used <= stock.get(gpu, np.inf)


def _cost(item: PlannedPool) -> float:
    return item.candidate.cost_usd_per_hour * item.replicas
