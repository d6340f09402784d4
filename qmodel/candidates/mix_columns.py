"""Columns of one mix of classes: the counts of each candidate that could be part of a cheapest fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.candidates.frontiers import feasible_at, frontier, least_counts, optimistic_loads
from qmodel.candidates.pool_kinds import Candidate, CountedPool
from qmodel.candidates.promising import optimistic_costs
from qmodel.types import FloatArray, IntArray, RequestClass

__all__ = [
    "ALL_SIZES",
    "NOT_TRIED",
    "Column",
    "MixColumns",
    "cheapest_usd",
    "columns_of_mix",
    "tried_counts",
    "undominated",
]

NOT_TRIED = -1  # a least count that was not looked for: even its optimistic cost is beyond the best
_FIRST = 4  # candidates tried before the others are held against the best of them
ALL_SIZES = 12  # up to here every count becomes a column; beyond, a spread of counts
_NO_LOAD = 1e-6  # of the largest stable load: only the hardware speaks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column(CountedPool):
    """A pool with its count and what it carries.

    Attributes:
        shares: share of each class's demand carried with every target met, at most 1.
        upper: the same just beyond the frontier; optimistic, for the bound.
    """

    shares: Mapping[str, float]
    upper: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixColumns:
    """Columns of one mix, and what was found on the way.

    Attributes:
        columns: candidates with counts.
        least: least count of each candidate for the whole mix; 0: none does, ``NOT_TRIED``: not looked for.
        ratios: most of the mix that one replica of each candidate carries at the counts that were looked at.
        best_usd_per_hour: of the cheapest pool for the whole mix, whatever else is bought.
        spread: positions of candidates of which only a spread of counts became columns.
        known: crossings by candidate and size.
    """

    columns: list[Column]
    least: IntArray
    ratios: FloatArray
    best_usd_per_hour: float
    spread: tuple[int, ...]
    known: dict[tuple[int, int], tuple[float, float]]


def columns_of_mix(
    candidates: Sequence[Candidate],
    mix: Sequence[RequestClass],
    *,
    every_count: bool,
    keep_all: bool,
    floor_usd: FloatArray | None = None,
    elsewhere_usd: float = np.inf,
) -> MixColumns:
    """Columns of one mix. A count is kept while it could still be part of a cheapest fleet.

    Args:
        candidates: pools that serve the model.
        mix: the classes.
        every_count: leave none out.
        keep_all: nor those that another count or candidate does better than.
        floor_usd: where pools that carry all of the mix, at their least counts, are enough: what each candidate costs
            for it at the very least, USD/h, shape (J,). If there is no such pool, parts are looked for all the same.
        elsewhere_usd: least cost of the whole mix in pools that are not among the candidates.
    """
    if not candidates:
        nothing = np.zeros(0)
        return MixColumns(
            columns=[], least=np.zeros(0, dtype=int), ratios=nothing, best_usd_per_hour=np.inf, spread=(), known={}
        )
    known: dict[tuple[int, int], tuple[float, float]] = {}
    least = _least(candidates, mix, known, all_of_them=every_count, floor_usd=floor_usd)
    best = cheapest_usd(candidates, least)
    if floor_usd is not None and (least > 0).any():
        carried = {item.name: 1.0 for item in mix}
        least_pools = [
            Column(candidate=item, replicas=int(count), shares=carried, upper=carried)
            for item, count in zip(candidates, least.tolist(), strict=True)
            if count > 0
        ]
        return MixColumns(
            columns=undominated(least_pools),
            least=least,
            ratios=np.zeros(len(candidates)),
            best_usd_per_hour=best,
            spread=(),
            known=known,
        )
    counts = _useful_counts(candidates, mix, least, np.inf if every_count else best, elsewhere_usd)
    cases = [
        (position, count)
        for position, sizes in enumerate(counts)
        for count in tried_counts(candidates[position], sizes)
    ]
    columns = []
    ratios = np.zeros(len(candidates))
    if cases:
        sizes = np.array([count for _, count in cases])
        able = [candidates[position] for position, _ in cases]
        found = frontier(able, mix, sizes, known, best_settings=not keep_all)
        for (position, count), low, high in zip(cases, found.low.tolist(), found.high.tolist(), strict=True):
            ratios[position] = max(ratios[position], high / count)
            if low > 0:
                whole = count == least[position]
                columns.append(
                    Column(
                        candidate=candidates[position],
                        replicas=count,
                        shares={item.name: 1.0 if whole else min(low, 1.0) for item in mix},
                        upper={item.name: 1.0 if whole else min(high, 1.0) for item in mix},
                    )
                )
    return MixColumns(
        columns=columns if keep_all else undominated(columns),
        least=least,
        ratios=ratios,
        best_usd_per_hour=best,
        spread=tuple(
            position
            for position, (item, most) in enumerate(zip(candidates, counts, strict=True))
            if not item.adds_up and most > ALL_SIZES
        ),
        known=known,
    )


def _least(
    candidates: Sequence[Candidate],
    mix: Sequence[RequestClass],
    known: dict[tuple[int, int], tuple[float, float]],
    *,
    all_of_them: bool,
    floor_usd: FloatArray | None = None,
) -> IntArray:
    """Least counts, the most promising first; a candidate whose optimistic cost is beyond the best is not tried."""
    floor = optimistic_costs(candidates, mix) if floor_usd is None else floor_usd
    order = np.argsort(floor, kind="stable")
    order = order[np.isfinite(floor[order])]
    least = np.zeros(len(candidates), dtype=int)
    best = np.inf
    for rows in (order,) if all_of_them else (order[:_FIRST], order[_FIRST:]):
        tried = rows[floor[rows] <= best * (1 + 1e-9)]
        least[np.setdiff1d(rows, tried)] = NOT_TRIED
        if tried.size:
            least[tried] = least_counts([candidates[row] for row in tried.tolist()], mix, known)
        best = min(best, cheapest_usd(candidates, least))
    return least


def cheapest_usd(candidates: Sequence[Candidate], least: IntArray) -> float:
    """Cost of the cheapest pool at its least count whatever else is bought, USD/h; infinite where there is none."""
    most = np.array(
        [
            item.most_usd_per_hour * item.pool_replicas(max(n, 0))
            for item, n in zip(candidates, least.tolist(), strict=True)
        ]
    )
    return float(np.where(least > 0, most, np.inf).min(initial=np.inf))


def _useful_counts(
    candidates: Sequence[Candidate],
    mix: Sequence[RequestClass],
    least: IntArray,
    budget: float,
    elsewhere_usd: float,
) -> list[int]:
    """The largest count of each candidate that could be part of a fleet within the budget; 0: none is."""
    cost = np.array([item.cost_usd_per_hour for item in candidates])
    load = optimistic_loads(candidates, mix)
    able = np.isfinite(load)
    rows = np.flatnonzero(able & (least == 0))
    if rows.size:  # not even next to no load: no count helps
        ones = np.ones(rows.size, dtype=int)
        able[rows] = feasible_at([candidates[row] for row in rows.tolist()], mix, ones, _NO_LOAD / load[rows]) <= 1.0
    # serving the rest of the demand costs at least this much per unit of load
    cheapest = float(np.min(cost[able] * load[able], initial=elsewhere_usd))
    useful = []
    for position, item in enumerate(candidates):
        most = (max(int(least[position]), 0) or item.max_replicas) if able[position] else 0
        if most and np.isfinite(budget):
            sizes = np.arange(1, min(most, int(budget / cost[position] * (1 + 1e-9))) + 1)
            rest = (1.0 - np.minimum(sizes / load[position], 1.0)) * cheapest
            whole = cost[position] * (sizes + item.spare)
            most = int(np.count_nonzero(whole + rest <= budget * (1 + 1e-9)))
        useful.append(most)
    return useful


def tried_counts(candidate: Candidate, most: int) -> list[int]:
    """Counts that become columns: one where pools of any count carry in proportion to it, else all or a spread."""
    if candidate.adds_up:
        return [1] if most else []
    return list(range(1, most + 1)) if most <= ALL_SIZES else _spread(most)


def _spread(most: int) -> list[int]:
    """A spread of counts with the small ones and the largest, for pools too large to try every count."""
    sizes = np.concatenate([[1, 2, 3, 4], np.round(np.geomspace(5, most, 6)), [most - 1, most]])
    return [int(size) for size in np.unique(sizes)]


def _most_taken(column: Column) -> float:
    """GPUs that a replica may take where it stands in for one of this column, which repeats if pools add up."""
    return column.candidate.taken_gpus if column.candidate.adds_up else np.inf


def undominated(columns: list[Column]) -> list[Column]:
    """Without columns that take no fewer GPUs of the same type, cost no less and carry no more than another."""
    kept: list[Column] = []
    ordered = sorted(columns, key=lambda c: (c.candidate.gpu, c.cost_usd_per_hour, c.gpus, -min(c.shares.values())))
    for column in ordered:
        share, upper = min(column.shares.values()), min(column.upper.values())
        if not any(
            other.candidate.gpu == column.candidate.gpu
            and other.gpus <= column.gpus
            and other.candidate.taken_gpus <= _most_taken(column)
            and min(other.shares.values()) >= share
            and min(other.upper.values()) >= upper
            for other in kept
        ):
            kept.append(column)
    return kept
