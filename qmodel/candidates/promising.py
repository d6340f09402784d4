"""Which candidates to look at first: by what they cost at the very least, and few of the settings of each layout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qmodel.candidates.frontiers import optimistic_loads
from qmodel.candidates.pool_kinds import Candidate
from qmodel.types import FloatArray, IntArray, RequestClass

__all__ = ["few_of_each_kind", "most_promising", "optimistic_costs", "paid_usd_per_hour"]

_SETTINGS = 2  # of each layout that are looked at where little tells them apart


def most_promising(
    candidates: Sequence[Candidate], mix: Sequence[RequestClass], most: int, usd: FloatArray
) -> list[int]:
    """Positions of the candidates that could carry the mix at the least optimistic cost.

    Args:
        candidates: of one model.
        mix: the classes.
        most: layouts; of each the best settings.
        usd: by which settings of one layout are told apart, shape (J,).
    """
    floor = optimistic_costs(candidates, mix)
    order = np.argsort(floor, kind="stable")
    return sorted(few_of_each_kind(candidates, order[np.isfinite(floor[order])], most, usd, settings=1))


def few_of_each_kind(
    candidates: Sequence[Candidate], order: IntArray, most: int, usd: FloatArray, *, settings: int = _SETTINGS
) -> list[int]:
    """The first of an order: so many layouts, and of each a few settings.

    Args:
        candidates: of one model.
        order: positions, the best first.
        most: layouts.
        usd: by which settings of one layout are told apart, the least first, shape (J,).
        settings: of each layout.
    """
    kinds: dict[tuple[object, ...], list[int]] = {}
    for row in order.tolist():
        item = candidates[row]
        kind = (item.gpu, item.layout, item.precision)
        if kind in kinds or len(kinds) < most:
            kinds.setdefault(kind, []).append(row)
    best = (sorted(rows, key=lambda row: float(usd[row])) for rows in kinds.values())
    return [row for rows in best for row in rows[:settings]]


def optimistic_costs(candidates: Sequence[Candidate], mix: Sequence[RequestClass]) -> FloatArray:
    """What each candidate costs at the very least for the whole mix, USD/h, shape (J,); infinite: it cannot serve."""
    load = optimistic_loads(candidates, mix)
    whole = np.maximum(np.ceil(np.where(np.isfinite(load), load, 0.0) * (1.0 - 1e-9)), 1.0)
    return np.asarray(np.where(np.isfinite(load), paid_usd_per_hour(candidates, whole), np.inf))


def paid_usd_per_hour(candidates: Sequence[Candidate], serving: IntArray | FloatArray) -> FloatArray:
    """Cost of so many replicas of each candidate and its spare ones at the cheapest price, USD/h, shape (J,)."""
    cost = np.array([item.cost_usd_per_hour for item in candidates])
    return np.asarray(cost * (serving + np.array([item.spare for item in candidates])))
