"""One pool for all classes of a model in every period: what a search that ran out of time may have missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qmodel.candidates import Candidate, least_counts, optimistic_loads
from qmodel.planning.assembly import cost_of
from qmodel.planning.planned_pools import PlannedKind, PlannedPool
from qmodel.types import Limits, RequestClass

__all__ = ["with_single_pools"]

_MOST_TRIED = 6  # candidates, cheapest by their optimistic load first
_SAME = 1e-9  # relative; a saving below this is rounding


def with_single_pools(
    fleet: Sequence[Sequence[PlannedKind]],
    groups: Sequence[Sequence[str]],
    candidates: Sequence[Candidate],
    demands: Sequence[Mapping[str, RequestClass]],
    limits: Limits,
) -> list[list[PlannedKind]]:
    """A fleet that stands in every period, pools of a group of classes replaced by one where that costs less.

    Args:
        fleet: pools in each period, the same ones in the same order.
        groups: names of classes that may share pools.
        candidates: pools of all models.
        demands: classes at the rates and lengths of each period; those that do not arrive left out.
        limits: of the fleet.
    """
    best = [list(pools) for pools in fleet]
    for names in groups:
        served = [{one.name for pools in best for one in pools[place].classes} for place in range(len(best[0]))]
        rest = [[pool for pool, own in zip(pools, served, strict=True) if not own & set(names)] for pools in best]
        for candidate, count in _able(names, candidates, demands):
            tried = [
                [*pools, _single(candidate, count, names, demand)] for pools, demand in zip(rest, demands, strict=True)
            ]
            kept = limits.broken([item.holding for item in tried[0]]) is None
            if kept and cost_of(tried[0], limits) < cost_of(best[0], limits) * (1.0 - _SAME):
                best = tried
    return best


def _able(
    names: Sequence[str], candidates: Sequence[Candidate], demands: Sequence[Mapping[str, RequestClass]]
) -> list[tuple[Candidate, int]]:
    """The most promising candidates that carry a group in every period, each with its least count."""
    loads = [own for demand in demands if (own := [demand[name] for name in names if name in demand])]
    able = [item for item in candidates if item.model == loads[0][0].model and item.takes(names)]
    most = np.max([optimistic_loads(able, load) for load in loads], axis=0)
    usd = np.array([item.cost_usd_per_hour for item in able]) * np.maximum(most, 1.0)
    order = [row for row in np.argsort(usd, kind="stable").tolist() if np.isfinite(usd[row])]
    tried = [able[row] for row in order[:_MOST_TRIED]]
    if not tried:
        return []
    counts = np.array([least_counts(tried, load) for load in loads])
    return [(item, int(own.max())) for item, own in zip(tried, counts.T, strict=True) if own.min() > 0]


def _single(candidate: Candidate, count: int, names: Sequence[str], demand: Mapping[str, RequestClass]) -> PlannedPool:
    classes = tuple(demand[name] for name in names if name in demand)
    return PlannedPool(candidate=candidate, replicas=count, classes=classes, shares=(1.0,) * len(classes))
