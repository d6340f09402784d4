"""How much of a mix of classes n replicas of each candidate carry with every target met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.candidates.enumeration import Candidate
from qmodel.evaluation import slo_ratios
from qmodel.queueing import utilisation
from qmodel.types import FloatArray, IntArray, RequestClass

__all__ = ["Frontier", "feasible_at", "frontier", "least_counts", "unit_loads"]

_GRID = 6  # loads per round; each round narrows the interval that holds the crossing by this factor plus one
_ROUNDS = 4  # (6 + 1)^4: the crossing is known to 1/2400 of the first interval


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frontier:
    """Largest loads along one direction.

    Attributes:
        low: largest multiple of the classes' rates found feasible, shape (C,); 0 where none is.
        high: smallest multiple found infeasible, shape (C,).
    """

    low: FloatArray
    high: FloatArray


def unit_loads(candidates: Sequence[Candidate], classes: Sequence[RequestClass]) -> FloatArray:
    """Utilisation of one replica by the whole demand of the classes, shape (J,); infinite where it can never serve."""
    streams = [item.stream() for item in classes]
    ones = np.ones(len(candidates))
    return np.asarray(utilisation([item.replica for item in candidates], streams, ones.astype(int), ones), dtype=float)


def feasible_at(
    candidates: Sequence[Candidate], classes: Sequence[RequestClass], counts: IntArray, loads: FloatArray
) -> FloatArray:
    """Worst prediction over target of each case, shape (C,); at most 1 where every target is met."""
    worst = np.empty(len(candidates))
    for router in sorted({item.router for item in candidates}):
        rows = np.flatnonzero([item.router == router for item in candidates])
        ratios = slo_ratios(
            [item.replica for item in _take(candidates, rows)],
            classes,
            [1.0] * len(classes),
            counts[rows],
            loads[rows],
            router,
        )
        worst[rows] = ratios.max(axis=1)
    return worst


def frontier(candidates: Sequence[Candidate], classes: Sequence[RequestClass], counts: IntArray) -> Frontier:
    """The largest multiple of the classes' demand that ``counts`` replicas of each candidate carry.

    All cases are narrowed together. Predictions are made monotone over the loads of a
    round before the crossing is read off.

    Args:
        candidates: one per case, shape (C,).
        classes: the direction: every class brings its whole rate at load 1.
        counts: replicas of each case, shape (C,).
    """
    # a random split gives every replica its own independent share: n replicas carry n times the load of one
    alone = np.array([item.router == "random" for item in candidates])
    sizes = np.where(alone, 1, counts)
    scale = np.where(alone, counts, 1).astype(float)
    capacity = sizes / unit_loads(candidates, classes)
    low, high = np.zeros(len(candidates)), capacity.copy()
    dead = ~(capacity > 0)
    for step in range(_ROUNDS):
        inner = np.linspace(0.0, 1.0, _GRID + 2)[1:-1]
        if step == 0:
            inner = np.concatenate([[1e-4], inner])  # zero load: the prefill alone may miss
        loads = low[:, None] + (high - low)[:, None] * inner[None, :]
        worst = _monotone(candidates, classes, sizes, loads, dead)
        met = worst <= 1.0
        good = met.sum(axis=1)
        bounds = np.concatenate([low[:, None], loads, high[:, None]], axis=1)
        rows = np.arange(len(candidates))
        low, high = bounds[rows, good], bounds[rows, good + 1]
        dead = dead | (low == 0.0)
    low[dead] = 0.0
    return Frontier(low=low * scale, high=np.where(dead & ~(capacity > 0), 0.0, high) * scale)


def least_counts(candidates: Sequence[Candidate], classes: Sequence[RequestClass]) -> IntArray:
    """The least number of replicas of each candidate that carries the whole demand, shape (J,); 0 where none does.

    Args:
        candidates: shape (J,).
        classes: the direction.
    """
    load = unit_loads(candidates, classes)
    limit = np.array([item.max_replicas for item in candidates])
    counts = np.zeros(len(candidates), dtype=int)
    random = np.array([item.router == "random" for item in candidates])
    usable = np.isfinite(load) & (np.ceil(load) <= limit)
    if (random & usable).any():
        rows = np.flatnonzero(random & usable)
        single = frontier(_take(candidates, rows), classes, np.ones(rows.size, dtype=int)).low
        needed = np.where(single > 0, np.ceil(1.0 / np.maximum(single, 1e-12) - 1e-9), 0)
        counts[rows] = np.where(needed <= limit[rows], needed, 0)
    rows = np.flatnonzero(~random & usable)
    if rows.size:
        counts[rows] = _search_counts(_take(candidates, rows), classes, load[rows], limit[rows])
    return counts


def _search_counts(
    candidates: Sequence[Candidate], classes: Sequence[RequestClass], load: FloatArray, limit: IntArray
) -> IntArray:
    """Grow the count until every target holds, then halve the interval; all candidates together."""
    low = np.floor(load).astype(int)  # too few: not stable
    high = np.minimum(np.maximum(low + 1, 1), limit)
    ones = np.ones(len(candidates))
    found = np.zeros(len(candidates), dtype=bool)
    active = np.ones(len(candidates), dtype=bool)
    stride = 1
    while active.any():
        rows = np.flatnonzero(active)
        ratios = feasible_at(_take(candidates, rows), classes, high[rows], ones[rows])
        good = ratios <= 1.0
        found[rows[good]] = True
        at_limit = high[rows] >= limit[rows]
        active[rows[good | at_limit]] = False
        if not good.all():
            missed = rows[~good & ~at_limit]
            low[missed] = high[missed]
            stride *= 2
            high[missed] = np.minimum(high[missed] + stride, limit[missed])
            hopeless = _hopeless(candidates, classes, missed, high)
            active[hopeless] = False
    return np.where(found, _narrow(candidates, classes, low, high, found), 0)


def _hopeless(
    candidates: Sequence[Candidate], classes: Sequence[RequestClass], rows: IntArray, counts: IntArray
) -> IntArray:
    """Rows whose targets are missed even at next to no load: more replicas never help."""
    if rows.size == 0:
        return rows
    ratios = feasible_at(_take(candidates, rows), classes, counts[rows], np.full(rows.size, 1e-6))
    return np.asarray(rows[ratios > 1.0])


def _narrow(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    low: IntArray,
    high: IntArray,
    found: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> IntArray:
    low, high = low.copy(), high.copy()
    while (open_rows := np.flatnonzero(found & (high - low > 1))).size:
        middle = (low[open_rows] + high[open_rows]) // 2
        ratios = feasible_at(_take(candidates, open_rows), classes, middle, np.ones(open_rows.size))
        good = ratios <= 1.0
        high[open_rows[good]] = middle[good]
        low[open_rows[~good]] = middle[~good]
    return high


def _monotone(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    sizes: IntArray,
    loads: FloatArray,
    dead: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> FloatArray:
    """Worst ratios over a grid of loads, shape (C, L), non-decreasing in the load."""
    worst = np.full(loads.shape, np.inf)
    rows = np.flatnonzero(~dead)
    if rows.size:
        many = loads.shape[1]
        flat = feasible_at(
            [item for item in _take(candidates, rows) for _ in range(many)],
            classes,
            np.repeat(sizes[rows], many),
            loads[rows].ravel(),
        )
        worst[rows] = np.maximum.accumulate(flat.reshape(rows.size, many), axis=1)
    return worst


def _take(candidates: Sequence[Candidate], rows: IntArray) -> list[Candidate]:
    return [candidates[row] for row in rows.tolist()]
