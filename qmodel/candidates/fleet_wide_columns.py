"""What the integer program chooses from where targets hold over all pools of a class together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qmodel.candidates.columns import ColumnSet, most_replicas
from qmodel.candidates.frontiers import unit_loads
from qmodel.candidates.load_curves import LoadCurve, curves_of, looked_at
from qmodel.candidates.mix_columns import ALL_SIZES, Column, cheapest_usd, tried_counts
from qmodel.candidates.pool_kinds import Candidate
from qmodel.candidates.resources import resource_shares
from qmodel.types import FloatArray, RequestClass

__all__ = ["FleetWideColumns", "WideClass", "columns_over_fleet"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WideClass:
    """Pools of one class at any load.

    Attributes:
        pools: by candidate and count; one replica where pools add up.
        tops: the largest pool of candidates of which smaller ones count by what its replicas carry each, since none
            carries more per replica or exceeds targets less.
    """

    item: RequestClass
    pools: tuple[LoadCurve, ...]
    tops: tuple[LoadCurve, ...]

    def looked_at(self, pools: Sequence[Sequence[float]], tops: Sequence[Sequence[float]]) -> WideClass:
        """The same with more looks at each pool."""
        found = looked_at([*self.pools, *self.tops], [*pools, *tops])
        return replace(self, pools=tuple(found[: len(self.pools)]), tops=tuple(found[len(self.pools) :]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetWideColumns:
    """Pools of a group of classes that may share them.

    Attributes:
        classes: of the group.
        candidates: of its model.
        shared: pools that several of the classes share, each with every target met in the pool itself.
        times: optimistic share of a replica's step time that a class takes, by class and candidate, shape (K, J);
            empty where there is one class.
    """

    classes: tuple[WideClass, ...]
    candidates: tuple[Candidate, ...]
    shared: tuple[Column, ...] = ()
    times: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def alone(self) -> bool:
        """Whether its class shares no pool with another: its pools are then all there are."""
        return len(self.classes) == 1


def columns_over_fleet(
    found: ColumnSet, classes: Sequence[RequestClass], *, every_count: bool, shared: Sequence[Column] = ()
) -> FleetWideColumns:
    """Curves of all pools of a group that may be part of a cheapest fleet.

    As where targets hold in every pool, a count is left out that costs more than the cheapest pool which carries the
    whole class within its targets, since that fleet meets them too. What cannot meet a target may carry a part.

    Args:
        found: columns of the group for targets that hold in every pool.
        classes: of the group.
        every_count: leave no count out, because limits may take the cheapest pool away.
        shared: pools with several of the classes that may be chosen beside those of one class.
    """
    alone = len(classes) == 1
    wide = [_wide_class(found, item, every_count=every_count, alone=alone) for item in classes]
    if alone:
        return FleetWideColumns(classes=tuple(wide), candidates=found.candidates)
    times = np.array([resource_shares(found.candidates, item, within_targets=False) for item in classes])
    return FleetWideColumns(classes=tuple(wide), candidates=found.candidates, shared=tuple(shared), times=times)


def _wide_class(found: ColumnSet, item: RequestClass, *, every_count: bool, alone: bool) -> WideClass:
    candidates, least = found.candidates, np.array(found.least[item.name], dtype=int)
    if not candidates:
        return WideClass(item=item, pools=(), tops=())
    budget = np.inf if every_count else cheapest_usd(candidates, least)
    counts = _counts(found, item, least, budget)
    cases = [
        (candidates[row], count) for row, most in enumerate(counts) for count in tried_counts(candidates[row], most)
    ]
    top = found.budget_usd_per_hour
    if alone:
        tops = [
            (one, most) for one, most in zip(candidates, counts, strict=True) if not one.adds_up and most > ALL_SIZES
        ]
    else:
        tops = [(one, 1 if one.adds_up else most_replicas(one, top)) for one in candidates]
    return WideClass(
        item=item, pools=tuple(curves_of(cases, item)), tops=tuple(curves_of(tops, item, beyond_demand=True))
    )


def _counts(found: ColumnSet, item: RequestClass, least: FloatArray, budget: float) -> list[int]:
    """The largest count of each candidate that could be part of a cheapest fleet; 0: none is."""
    cost = np.array([one.cost_usd_per_hour for one in found.candidates])
    load = unit_loads(found.candidates, [item])
    able = np.isfinite(load)
    cheapest = float(np.min(cost[able] * load[able], initial=np.inf))  # of the rest, per unit of load at the very least
    counts = []
    for row, one in enumerate(found.candidates):
        most = (max(int(least[row]), 0) or one.max_replicas) if able[row] else 0
        if most and np.isfinite(budget):
            sizes = np.arange(1, min(most, int(budget / cost[row] * (1 + 1e-9))) + 1)
            rest = (1.0 - np.minimum(sizes / load[row], 1.0)) * cheapest
            most = int(np.count_nonzero(cost[row] * sizes + rest <= budget * (1 + 1e-9)))
        counts.append(most)
    return counts
