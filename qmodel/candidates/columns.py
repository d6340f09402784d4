"""Columns: a candidate, a count and the class shares it carries. What the integer program chooses from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from qmodel.candidates.class_groups import groups_of
from qmodel.candidates.frontiers import feasible_at, frontier, least_counts, optimistic_loads
from qmodel.candidates.mixed_pools import Blend, SharedPool, shared_pools
from qmodel.candidates.open_pools import OpenPool, cheapest_alone_usd, least_rate_usd
from qmodel.candidates.pool_kinds import Candidate, CountedPool
from qmodel.candidates.promising import most_promising, optimistic_costs
from qmodel.types import FloatArray, IntArray, RequestClass

__all__ = ["NOT_TRIED", "Column", "ColumnSet", "columns_for_model", "undominated"]

NOT_TRIED = -1  # a least count that was not looked for: even its optimistic cost is beyond the best
_SHARED_CANDIDATES = 6  # whose shared pools are looked at from the start
_MIXED = 4  # classes whose unequal mixes are looked at; more are put together whole
_GROUP_CANDIDATES = 3  # tried for each group of more classes
_AT_ONCE = 6  # candidates whose ratios are looked at together
_FIRST = 4  # candidates tried before the others are held against the best of them
_ALL_SIZES = 12  # up to here every count becomes a column; beyond, a spread of counts
_NO_LOAD = 1e-6  # of the largest stable load: only the hardware speaks

BoolArray = npt.NDArray[np.bool_]


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
class ColumnSet:
    """Columns of one model.

    Attributes:
        columns: candidates for the integer program.
        complete: every useful count of every useful candidate is there, so that for a
            model with one class the columns are the whole problem.
        least: for each class alone, the least count of each candidate (0: it cannot, ``NOT_TRIED``: even optimistically
            dearer than the best), by candidate position.
        candidates: all candidates of the model, positions as in ``least``.
        ratios: for each class alone, an upper bound on the share of its demand that one replica carries in a pool
            of any count that is useful, shape (J,); where the model has several classes, in a pool of any count.
        classes: of the model, those that some candidate serves; empty where the columns are all that is to be known.
        shared: pools that several classes share, by candidate position.
        budget_usd_per_hour: no fleet that is worth having pays more for this model.
        open_pools: pools of measured capacity, which take any mix of their classes.
        exact: where ``ratios`` come from the frontier, by class, shape (J,); elsewhere they are optimistic. A class
            that is not here has exact ones only.
        spread: candidates, by position, of which only a spread of counts became columns; where a model has one class.
    """

    columns: tuple[Column, ...]
    complete: bool
    least: Mapping[str, tuple[int, ...]]
    candidates: tuple[Candidate, ...]
    ratios: Mapping[str, FloatArray]
    classes: tuple[RequestClass, ...] = ()
    shared: Mapping[int, tuple[SharedPool, ...]] = field(default_factory=dict)
    budget_usd_per_hour: float = np.inf
    open_pools: tuple[OpenPool, ...] = ()
    exact: Mapping[str, BoolArray] = field(default_factory=dict)
    spread: frozenset[int] = frozenset()

    def sharing(self, classes: Sequence[RequestClass]) -> Sequence[RequestClass]:
        """Those of the model's classes that pools of the candidates may share."""
        return self.classes if self.open_pools else classes

    @property
    def many(self) -> bool:
        """Whether its classes are too many for their unequal mixes to be looked at; the bound is then a loose one."""
        return len(self.classes) > _MIXED

    def serves(self, name: str) -> bool:
        """Whether some pool carries a part of a class."""
        return any(name in item.shares for item in self.columns) or any(name in item.takes for item in self.open_pools)

    def blends(self) -> list[Blend]:
        """Shared pools as the integer program takes them."""
        return [blend for pools in self.shared.values() for item in pools for blend in item.blends()]

    def refined(self, mixes: Mapping[tuple[int, int], Sequence[FloatArray]]) -> ColumnSet:
        """The same with the frontier along more mixes, or of the classes in them alone where that is not known.

        Args:
            mixes: class shares of shape (K,) by candidate position and count; a candidate without shared pools gets
                them, whatever the count.

        Returns:
            This set where all of it is known already.
        """
        if not self.classes:
            return self
        looser = self._optimistic(mixes)
        if looser:
            return self._exact_at(looser)
        mixed = {place for place, found in mixes.items() if any(np.count_nonzero(mix) > 1 for mix in found)}
        new = sorted({position for position, _ in mixed if position not in self.shared})
        added = shared_pools(self.candidates, self.classes, new, self.budget_usd_per_hour) if new else {}
        shared = {
            position: tuple(
                item.refined([mix for mix in mixes.get((position, item.replicas), ()) if np.count_nonzero(mix) > 1])
                for item in pools
            )
            for position, pools in self.shared.items()
        }
        known = [item for pools in self.shared.values() for item in pools]
        found = [item for pools in shared.values() for item in pools]
        if not added and all(old is one for old, one in zip(known, found, strict=True)):
            return self
        return replace(self, shared={**shared, **added})

    def _optimistic(self, mixes: Mapping[tuple[int, int], Sequence[FloatArray]]) -> dict[str, list[int]]:
        """Candidates for which the ratio of a class in a mix is optimistic, by class, with the next best of them."""
        used: dict[str, set[int]] = {}
        for (position, _), found in mixes.items():
            for place in np.flatnonzero(np.any(np.array(found).reshape(-1, len(self.classes)) > 0.0, axis=0)):
                used.setdefault(self.classes[place].name, set()).add(position)
        looser = {}
        for name, positions in used.items():
            known = self.exact.get(name)
            if known is None or all(known[position] for position in positions):
                continue
            with np.errstate(divide="ignore"):
                paid = np.array([item.cost_usd_per_hour for item in self.candidates]) / self.ratios[name]
            order = np.argsort(np.where(known, np.inf, paid), kind="stable")[:_AT_ONCE]
            next_best = {row for row in order.tolist() if not known[row] and np.isfinite(paid[row])}
            looser[name] = sorted(next_best | {position for position in positions if not known[position]})
        return looser

    def _exact_at(self, rows: Mapping[str, Sequence[int]]) -> ColumnSet:
        """The same with ratios of some candidates from the frontier, by class."""
        by_name = {item.name: item for item in self.classes}
        ratios, exact = dict(self.ratios), dict(self.exact)
        for name, positions in rows.items():
            able = [self.candidates[position] for position in positions]
            ratios[name], exact[name] = ratios[name].copy(), exact[name].copy()
            ratios[name][list(positions)] = _top_ratios(able, by_name[name], self.budget_usd_per_hour, {})
            exact[name][list(positions)] = True
        return replace(self, ratios=ratios, exact=exact)


def columns_for_model(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    *,
    open_pools: Sequence[OpenPool] = (),
    every_count: bool = False,
    keep_all: bool = False,
    elsewhere_usd: Mapping[str, float] | None = None,
) -> ColumnSet:
    """Columns for the classes of one model: each alone, and pools that they share.

    A count that costs more than the cheapest pool for the same classes is left out. That is right only while
    nothing else competes for the GPUs of that pool. Where GPUs are bought at several prices, what might be left out
    counts at the cheapest of them and the pool that would take its place at the dearest: whatever else is bought, the
    one saves no less and the other adds no more.

    Args:
        candidates: pools that serve the model.
        classes: its classes.
        open_pools: pools of measured capacity that serve the model too.
        every_count: leave no count out, because stock may take the cheapest pool away.
        keep_all: leave no pool out, because it may cost less than it seems: its replicas run already.
        elsewhere_usd: what the whole of a class costs at the very least in pools of other columns, by class; none.
    """
    every_count = every_count or keep_all
    others = elsewhere_usd or {}
    alone = {
        item.name: _direction(
            candidates,
            [item],
            every_count=every_count,
            keep_all=keep_all,
            elsewhere_usd=min(least_rate_usd(open_pools, item.name), others.get(item.name, np.inf)),
        )
        for item in classes
    }
    ratios = {name: found.ratios for name, found in alone.items()}
    shared: dict[int, tuple[SharedPool, ...]] = {}
    cheapest = [min(item.best_usd_per_hour, cheapest_alone_usd(open_pools, name)) for name, item in alone.items()]
    budget = np.inf if every_count else sum(cheapest)
    served = [item for item in classes if alone[item.name].columns]
    exact: dict[str, BoolArray] = {}
    together: list[Column] = []
    each = _one_by_one(candidates, [ratios[item.name] for item in served])
    if len(served) > 1 and (open_pools or len(served) == len(classes)):
        if len(served) > _MIXED:
            ratios = {**ratios, **{item.name: _optimistic_ratios(candidates, item) for item in served}}
            exact = {item.name: np.zeros(len(candidates), dtype=bool) for item in served}
            together = _columns_together(candidates, served, budget, each)
        else:
            tops = {item.name: _top_ratios(candidates, item, budget, alone[item.name].known) for item in served}
            ratios = {**ratios, **tops}
            each = _one_by_one(candidates, list(tops.values()))
            first = most_promising(candidates, served, _SHARED_CANDIDATES, each)
            shared = shared_pools(candidates, served, first, budget)
    return ColumnSet(
        columns=(*(column for found in alone.values() for column in found.columns), *together),
        complete=not any(found.spread for found in alone.values()),
        least={name: tuple(int(n) for n in found.least) for name, found in alone.items()},
        candidates=tuple(candidates),
        ratios=ratios,
        classes=tuple(served if open_pools else classes),
        shared=shared,
        budget_usd_per_hour=budget,
        open_pools=tuple(open_pools),
        exact=exact,
        spread=frozenset(place for found in alone.values() for place in found.spread),
    )


def _one_by_one(candidates: Sequence[Candidate], ratios: Sequence[FloatArray]) -> FloatArray:
    """What classes would cost together if each had replicas of a candidate to itself, in fractions, USD/h, shape (J,).

    Args:
        candidates: shape (J,).
        ratios: share of each class's demand that one replica carries, each of shape (J,).
    """
    cost = np.array([item.cost_usd_per_hour for item in candidates])
    with np.errstate(divide="ignore"):
        return np.asarray(np.sum([cost / ratio for ratio in ratios], axis=0) if ratios else cost)


def _optimistic_ratios(candidates: Sequence[Candidate], item: RequestClass) -> FloatArray:
    """Share of a class's demand that one replica carries at most, from its step time and memory alone, shape (J,)."""
    return np.asarray(1.0 / optimistic_loads(candidates, [item]))


def _columns_together(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    budget_usd_per_hour: float,
    usd: FloatArray,
) -> list[Column]:
    """Pools that carry groups of many classes whole, at the least counts of the most promising candidates.

    Args:
        usd: by which settings of one layout are told apart, shape (J,).
    """
    found = []
    for group in groups_of(classes):
        mix = [classes[place] for place in group]
        able = [candidates[position] for position in most_promising(candidates, mix, _GROUP_CANDIDATES, usd)]
        for item, count in zip(able, least_counts(able, mix).tolist() if able else (), strict=True):
            if count > 0 and item.pool_cost(count) <= budget_usd_per_hour * (1.0 + 1e-9):
                shares = {one.name: 1.0 for one in mix}
                found.append(Column(candidate=item, replicas=count, shares=shares, upper=shares))
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Direction:
    columns: list[Column]
    least: IntArray
    ratios: FloatArray
    best_usd_per_hour: float
    spread: tuple[int, ...]
    known: dict[tuple[int, int], tuple[float, float]]


def _direction(
    candidates: Sequence[Candidate],
    mix: Sequence[RequestClass],
    *,
    every_count: bool,
    keep_all: bool,
    elsewhere_usd: float = np.inf,
) -> _Direction:
    """Columns of one mix. A count is kept while it could still be part of a cheapest fleet.

    Args:
        candidates: pools that serve the model.
        mix: the classes.
        every_count: leave none out.
        keep_all: nor those that another count or candidate does better than.
        elsewhere_usd: least cost of the whole mix in pools that are not among the candidates.
    """
    if not candidates:
        nothing = np.zeros(0)
        return _Direction(
            columns=[], least=np.zeros(0, dtype=int), ratios=nothing, best_usd_per_hour=np.inf, spread=(), known={}
        )
    known: dict[tuple[int, int], tuple[float, float]] = {}
    least = _least(candidates, mix, known, all_of_them=every_count)
    best = _cheapest(candidates, least)
    counts = _useful_counts(candidates, mix, least, np.inf if every_count else best, elsewhere_usd)
    cases = [
        (position, count) for position, sizes in enumerate(counts) for count in _tried(candidates[position], sizes)
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
    return _Direction(
        columns=columns if keep_all else undominated(columns),
        least=least,
        ratios=ratios,
        best_usd_per_hour=best,
        spread=tuple(
            position
            for position, (item, most) in enumerate(zip(candidates, counts, strict=True))
            if not item.adds_up and most > _ALL_SIZES
        ),
        known=known,
    )


def _least(
    candidates: Sequence[Candidate],
    mix: Sequence[RequestClass],
    known: dict[tuple[int, int], tuple[float, float]],
    *,
    all_of_them: bool,
) -> IntArray:
    """Least counts, the most promising first; a candidate whose optimistic cost is beyond the best is not tried."""
    floor = optimistic_costs(candidates, mix)
    order = np.argsort(floor, kind="stable")
    order = order[np.isfinite(floor[order])]
    least = np.zeros(len(candidates), dtype=int)
    best = np.inf
    for rows in (order,) if all_of_them else (order[:_FIRST], order[_FIRST:]):
        tried = rows[floor[rows] <= best * (1 + 1e-9)]
        least[np.setdiff1d(rows, tried)] = NOT_TRIED
        if tried.size:
            least[tried] = least_counts([candidates[row] for row in tried.tolist()], mix, known)
        best = min(best, _cheapest(candidates, least))
    return least


def _cheapest(candidates: Sequence[Candidate], least: IntArray) -> float:
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


def _tried(candidate: Candidate, most: int) -> list[int]:
    """Counts that become columns: one where pools of any count carry in proportion to it, else all or a spread."""
    if candidate.adds_up:
        return [1] if most else []
    return list(range(1, most + 1)) if most <= _ALL_SIZES else _spread(most)


def _top_ratios(
    candidates: Sequence[Candidate],
    item: RequestClass,
    budget: float,
    known: dict[tuple[int, int], tuple[float, float]],
) -> FloatArray:
    """Share of a class's demand that one replica carries in the largest pool that stock and budget allow, shape (J,).

    No smaller pool carries more each, and no fleet that is worth having pays more than ``budget`` for this model.
    """
    sizes = np.array(
        [1 if candidate.router == "random" else _most_replicas(candidate, budget) for candidate in candidates]
    )
    return np.asarray(frontier(candidates, [item], sizes, known).high / sizes)


def _most_replicas(candidate: Candidate, budget: float) -> int:
    paid = candidate.max_replicas if np.isinf(budget) else int(budget / candidate.cost_usd_per_hour * (1 + 1e-9))
    return max(min(candidate.max_replicas, paid), 1)


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
