"""Batches in several pools: all of them are to be done by the deadline, not each for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qmodel.candidates import ColumnSet, least_counts
from qmodel.planning.assembly import cost_of
from qmodel.planning.planned_pools import PlannedPool
from qmodel.types import Limits, RequestClass

__all__ = ["whole_batches"]

_ROUNDING = 1e-9


def whole_batches(pools: Sequence[PlannedPool], sets: Mapping[str, ColumnSet], limits: Limits) -> list[PlannedPool]:
    """The same with batches that are done as a whole as surely as they are asked to be.

    Columns finish their part of a batch with its probability p. Where k pools share a batch each is grown until it
    finishes its part with probability p^(1/k), or one pool takes all of it where that costs no more.

    Args:
        pools: planned pools.
        sets: columns by group of classes that may share pools.
        limits: of the fleet.

    Returns:
        The pools, parts as they are where no such way is within the limits.
    """
    found = list(pools)
    for group in sets.values():
        for item in group.classes:
            parts = [pool for pool in found if pool.classes[0].name == item.name]
            if item.batch is not None and len(parts) > 1:
                others = [pool for pool in found if pool.classes[0].name != item.name]
                settled = _cheapest([_grown(item, parts), *_alone(item, group)], others, limits)
                found = others + (settled or parts)
    return found


def _grown(item: RequestClass, parts: Sequence[PlannedPool]) -> list[PlannedPool]:
    """The parts of a batch, each as sure as all together must be; empty where a part cannot be."""
    surer = _at_level(item, 1.0 / len(parts))
    grown = []
    for part in parts:
        (count,) = least_counts([part.candidate], [surer.part(part.shares[0])]).tolist()
        if count == 0:
            return []
        grown.append(replace(part, replicas=max(int(count), part.replicas)))
    return grown


def _at_level(item: RequestClass, power: float) -> RequestClass:
    assert item.batch is not None
    level = item.batch.deadline_p**power
    slos = tuple(replace(slo, p=level) if slo.metric == "makespan" else slo for slo in item.slos)
    return replace(item, batch=replace(item.batch, deadline_p=level), slos=slos)


def _alone(item: RequestClass, group: ColumnSet) -> list[list[PlannedPool]]:
    """Each pool that takes the whole batch."""
    return [
        [PlannedPool(candidate=candidate, replicas=count, classes=(item,), shares=(1.0,))]
        for candidate, count in zip(group.candidates, group.least[item.name], strict=True)
        if count > 0
    ]


def _cheapest(
    options: Sequence[list[PlannedPool]],
    others: Sequence[PlannedPool],
    limits: Limits,
) -> list[PlannedPool] | None:
    """The cheapest of several ways within the limits, the first of equals; None where there is none."""
    best, paid = None, float("inf")
    for option in options:
        whole = [*others, *option]
        if option and limits.broken([pool.holding for pool in whole]) is None:
            cost = cost_of(whole, limits)
            if cost < paid * (1.0 - _ROUNDING):
                best, paid = option, cost
    return best
