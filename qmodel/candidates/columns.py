"""Columns of one model: for each class alone, and for classes together. What the integer program chooses from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from qmodel.candidates.class_groups import groups_of
from qmodel.candidates.frontiers import frontier, least_counts, optimistic_loads
from qmodel.candidates.joint_rows import Level, have_levels, joint_levels, least_replicas
from qmodel.candidates.mix_columns import Column, columns_of_mix
from qmodel.candidates.mixed_pools import Blend, SharedPool, shared_pools
from qmodel.candidates.open_pools import OpenPool, cheapest_alone_usd, least_rate_usd
from qmodel.candidates.pool_kinds import Candidate
from qmodel.candidates.promising import few_of_each_kind, most_promising, optimistic_costs, paid_usd_per_hour
from qmodel.types import FloatArray, RequestClass

__all__ = ["ColumnSet", "columns_for_model", "most_replicas"]

_SHARED_CANDIDATES = 6  # whose shared pools are looked at from the start
_MIXED = 4  # classes whose unequal mixes are looked at; more are put together whole
_GROUP_CANDIDATES = 3  # tried for each group of more classes
_AT_ONCE = 6  # candidates whose ratios are looked at together
_NEXT = 2  # of them where levels say what classes take together

BoolArray = npt.NDArray[np.bool_]


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
        levels: of each candidate, where many classes share the model.
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
    levels: tuple[tuple[Level, ...], ...] = ()

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
        if self.levels:
            return self
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
            order = np.argsort(np.where(known, np.inf, paid), kind="stable")[: _NEXT if self.levels else _AT_ONCE]
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
    many = len(classes) > _MIXED and have_levels(candidates, classes)
    levels = joint_levels(candidates, classes) if many else []
    floors: dict[str, FloatArray] = {}
    if many and not every_count:  # parts of many classes are proposed together, later
        floors = {item.name: _least_costs(candidates, levels, [place]) for place, item in enumerate(classes)}
    alone = {
        item.name: columns_of_mix(
            candidates,
            [item],
            every_count=every_count,
            floor_usd=floors.get(item.name),
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
            exact = {item.name: np.zeros(len(candidates), dtype=bool) for item in served}
            levels = joint_levels(candidates, served) if many and len(served) < len(classes) else levels
            ratios |= {
                item.name: _optimistic_ratios(candidates, item, levels, place) for place, item in enumerate(served)
            }
            usd = dict(zip(alone, cheapest, strict=True))
            together = _columns_together(candidates, served, levels, [usd[item.name] for item in served], budget, each)
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
        levels=tuple(levels) if exact else (),
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


def _optimistic_ratios(
    candidates: Sequence[Candidate], item: RequestClass, levels: Sequence[Sequence[Level]], place: int
) -> FloatArray:
    """Share of a class's demand that one replica carries at most, from its step time and memory alone, shape (J,)."""
    if levels:
        return np.array([1.0 / least_replicas(level, [place]) for level in levels])
    return np.asarray(1.0 / optimistic_loads(candidates, [item]))


def _columns_together(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    levels: Sequence[Sequence[Level]],
    alone_usd_per_hour: Sequence[float],
    budget_usd_per_hour: float,
    usd: FloatArray,
) -> list[Column]:
    """Pools that carry groups of many classes whole, at the least counts of the most promising candidates.

    A group is left out where its classes cost no more in pools of their own.

    Args:
        candidates, classes: of one model.
        levels: of each candidate, by which the promising ones are chosen; empty: by step time and memory.
        alone_usd_per_hour: cheapest pool of each class.
        budget_usd_per_hour: no pool that costs more is worth having.
        usd: by which settings of one layout are told apart, shape (J,).
    """
    found = []
    for group in groups_of(classes):
        mix = [classes[place] for place in group]
        most = min(budget_usd_per_hour, sum(alone_usd_per_hour[place] for place in group)) * (1.0 + 1e-9)
        floor = _least_costs(candidates, levels, group) if levels else optimistic_costs(candidates, mix)
        order = np.argsort(floor, kind="stable")
        order = order[np.isfinite(floor[order]) & (floor[order] <= most)]
        rows = few_of_each_kind(candidates, order, 1 if levels else _GROUP_CANDIDATES, usd, settings=1)
        able = [candidates[position] for position in rows]
        for item, count in zip(able, least_counts(able, mix).tolist() if able else (), strict=True):
            if count > 0 and item.pool_cost(count) <= most:
                shares = {one.name: 1.0 for one in mix}
                found.append(Column(candidate=item, replicas=count, shares=shares, upper=shares))
    return found


def _least_costs(
    candidates: Sequence[Candidate], levels: Sequence[Sequence[Level]], group: Sequence[int]
) -> FloatArray:
    """What each candidate costs at the very least for some classes, by its levels, USD/h, shape (J,)."""
    least = np.array([least_replicas(level, group) for level in levels])
    return paid_usd_per_hour(candidates, np.maximum(np.ceil(least * (1.0 - 1e-9)), 1.0))


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
        [1 if candidate.router == "random" else most_replicas(candidate, budget) for candidate in candidates]
    )
    return np.asarray(frontier(candidates, [item], sizes, known).high / sizes)


def most_replicas(candidate: Candidate, budget: float) -> int:
    paid = candidate.max_replicas if np.isinf(budget) else int(budget / candidate.cost_usd_per_hour * (1 + 1e-9))
    return max(min(candidate.max_replicas, paid), 1)
