"""Unequal mixes: pools of one model joined at the shares they actually carry, where that costs no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from qmodel.candidates import Candidate, feasible_at, few_of_each_kind, least_counts, optimistic_loads
from qmodel.planning.assembly import cost_of
from qmodel.planning.planned_pools import PlannedKind, PlannedPool
from qmodel.types import Limits, RequestClass

__all__ = ["merged"]

_SAME = 1e-9  # relative; a saving below this is rounding
_MOST_TRIED = 6  # candidates tried for one pair, cheapest by their optimistic load first


Holds = Callable[[Sequence[PlannedKind]], bool]


def merged(
    pools: Sequence[PlannedKind], candidates: Sequence[Candidate], limits: Limits, *, holds: Holds | None = None
) -> list[PlannedKind]:
    """The same demand in fewer pools, as long as joining two of them saves money or costs nothing.

    Columns mix classes in proportion to their demand only; two pools that carry different shares of the same
    classes may do better as one. The best joining of all pairs is taken, and again, until none helps.

    Args:
        pools: planned pools, every target met; those of measured capacity stay as they are.
        candidates: pools that may take the place of a pair.
        limits: of the fleet.
        holds: whether all pools together meet what is asked of them; None: those that meet their own targets do.
    """
    found, known = list(pools), _Options(candidates=candidates)
    while (better := _best_joining(found, known, limits, holds)) is not None:
        first, second, joined = better
        found = [item for item in found if item is not first and item is not second] + [joined]
    return found


def _best_joining(
    pools: Sequence[PlannedKind], known: _Options, limits: Limits, holds: Holds | None
) -> tuple[PlannedPool, PlannedPool, PlannedPool] | None:
    best, saving, paid = None, -_SAME, cost_of(pools, limits)
    for first, second in combinations([item for item in pools if isinstance(item, PlannedPool)], 2):
        if first.candidate.model != second.candidate.model or _kept_apart(first, second):
            continue
        others = [item for item in pools if item is not first and item is not second]
        held = [item.holding for item in others]
        within = [item for item in known.of(first, second) if limits.broken([*held, item.holding]) is None]
        joined = min(within, key=lambda item: (_cost(item), item.candidate.layout.gpus * item.replicas), default=None)
        if joined is None:
            continue
        saved = (paid - cost_of([*others, joined], limits)) / paid
        if saved > saving and (holds is None or holds([*others, joined])):
            best, saving = (first, second, joined), saved
    return best


def _kept_apart(first: PlannedPool, second: PlannedPool) -> bool:
    """Whether a class that shares no pool would come to share one."""
    classes = {item.name: item for item in (*first.classes, *second.classes)}
    if any(item.batch is not None for item in classes.values()):  # its pools are settled as parts of one batch
        return True
    if len({item.patience for item in classes.values()}) > 1:
        return True
    return len(classes) > 1 and any(item.isolate for item in classes.values())


@dataclass(slots=True, kw_only=True, eq=False)
class _Options:
    """Pools that carry what two carry, found once for each pair."""

    candidates: Sequence[Candidate]
    _found: dict[tuple[int, int], tuple[PlannedPool, PlannedPool, list[PlannedPool]]] = field(default_factory=dict)

    def of(self, first: PlannedPool, second: PlannedPool) -> list[PlannedPool]:
        """Those that cost no more than both; the pair is kept with them, so that its identity stays its own."""
        key = id(first), id(second)
        if key not in self._found:
            self._found[key] = first, second, _joined(first, second, self.candidates)
        return self._found[key][2]


def _joined(first: PlannedPool, second: PlannedPool, candidates: Sequence[Candidate]) -> list[PlannedPool]:
    """Pools of the most promising candidates that carry what both carry at no more cost."""
    paid_usd_per_hour = sum(_cost(item) for item in (first, second)) * (1.0 + _SAME)
    shares: dict[str, float] = {}
    classes: dict[str, RequestClass] = {}
    for item in (first, second):
        for request_class, share in zip(item.classes, item.shares, strict=True):
            classes[request_class.name] = request_class
            shares[request_class.name] = shares.get(request_class.name, 0.0) + share
    load = [item.part(shares[name]) for name, item in classes.items()]
    able = [item for item in candidates if item.model == first.candidate.model and item.takes(shares)]
    least = optimistic_loads(able, load)
    whole = np.where(np.isfinite(least), np.maximum(np.ceil(least * (1.0 - _SAME)), 1.0), np.inf)
    least_usd = np.array([item.cost_usd_per_hour for item in able]) * whole
    order = np.argsort(least_usd, kind="stable")
    order = order[least_usd[order] <= paid_usd_per_hour]
    theirs = [float(item is not first.candidate and item is not second.candidate) for item in able]
    rows = few_of_each_kind(able, order, _MOST_TRIED, np.array(theirs))
    tried = _enough([able[row] for row in rows], load, paid_usd_per_hour)
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
    return [item for item in options if _cost(item) <= paid_usd_per_hour]


def _enough(candidates: Sequence[Candidate], load: Sequence[RequestClass], paid_usd_per_hour: float) -> list[Candidate]:
    """Those of which as many replicas as may be paid carry the load."""
    most = [_affordable(item, paid_usd_per_hour) for item in candidates]
    some = [(item, count) for item, count in zip(candidates, most, strict=True) if count > 0]
    if not some:
        return []
    counts = np.array([count for _, count in some])
    worst = feasible_at([item for item, _ in some], load, counts, np.ones(counts.size))
    return [item for (item, _), ratio in zip(some, worst.tolist(), strict=True) if ratio <= 1.0]


def _affordable(candidate: Candidate, paid_usd_per_hour: float) -> int:
    """The most replicas that cost no more; 0: not even one."""
    paid = paid_usd_per_hour * (1.0 + _SAME)
    count = min(int(paid / candidate.cost_usd_per_hour), candidate.max_replicas)
    while count > 0 and candidate.least_cost(count) > paid:
        count -= 1
    return count


def _cost(item: PlannedPool) -> float:
    """At the cheapest price; what is truly saved is decided for the whole fleet."""
    return item.candidate.least_cost(item.replicas)
