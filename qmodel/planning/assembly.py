"""From chosen columns to a fleet: pools merged, load split, then trimmed or grown until the exact metrics agree."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from qmodel.candidates import ApiCandidate, Candidate, Column, feasible_at, least_counts
from qmodel.planning.measured_pools import carried_by
from qmodel.planning.planned_pools import PlannedKind, PlannedMeasured, PlannedPool
from qmodel.planning.planned_rows import NO_ROW, PlannedRow, PlannedStage, pool_of
from qmodel.problem import Instance
from qmodel.types import Fleet, Holding, Limits, Path, Pool, PoolKey, RequestClass

__all__ = ["assemble", "cost_of", "grown_for", "pool_name", "pools_of"]

_MOST_NAMED = 4  # classes in the name of a pool; with more it has that of its model
_ROUNDING = 1e-12  # of a share
_MOST_REPAIRS = 20  # replicas one pool may grow by before the columns must have been wrong


def cost_of(pools: Sequence[PlannedKind], limits: Limits) -> float:
    """Cost of a fleet of pools, USD/h.

    With idle GPUs of nodes that are paid whole, GPUs at dearer offers, and what changing the running fleet costs.
    """
    cheapest = sum(item.cost_usd_per_hour for item in pools)
    cost = cheapest + limits.surcharge_usd_per_hour([item.holding for item in pools])
    if limits.change is None:
        return cost
    replicas: dict[PoolKey, int] = {}
    for item in pools:
        replicas[item.candidate.key] = replicas.get(item.candidate.key, 0) + item.holding.replicas
    return cost + limits.change.usd_per_hour(replicas)


def pools_of(
    instance: Instance,
    chosen: Sequence[tuple[Column, int]],
    limits: Limits,
    beside: Sequence[PlannedMeasured] = (),
    row: PlannedRow = NO_ROW,
    model_shares: Mapping[tuple[str, str], float] | None = None,
    trusting: bool = False,
) -> list[PlannedPool]:
    """Pools that carry the chosen columns with every target met, re-scored at their actual load.

    Columns of one candidate and one mix become one pool. Where columns cover more than
    the demand the load of each is scaled down. A pool then loses replicas while it still
    meets every target, and gains a few if merging broke one; where that is not enough its
    columns stay pools of their own.

    Args:
        instance: the bound problem.
        chosen: columns with their counts.
        limits: of the fleet.
        beside: pools of measured capacity that carry a part.
        row: pools in a row that carry a part, their shares so that with all others they add up to the demand.
        model_shares: share of a class that a model serves, by class and model; of all others one model serves the
            whole.
        trusting: take what a replica was found to carry of one class as carried at any lighter load, without looking.
    """
    wanted = {} if model_shares is None else model_shares
    chosen = [(item, count) for column, count in chosen if (item := _without_unserved(column, wanted)).shares]
    groups: dict[tuple[int, tuple[str, ...]], list[tuple[Column, int]]] = {}
    for column, count in chosen:
        groups.setdefault((id(column.candidate), tuple(column.shares)), []).append((column, count))
    carried: dict[tuple[str, str], float] = {}
    for other in beside:
        for name, share in carried_by([other]).items():
            key = (name, other.candidate.model)
            carried[key] = carried.get(key, 0.0) + share
    for column, count in chosen:
        for name, share in column.shares.items():
            key = (name, column.candidate.model)
            carried[key] = carried.get(key, 0.0) + share * count
    passing = row.shares
    carried = {key: share / (wanted.get(key, 1.0) - passing.get(key, 0.0)) for key, share in carried.items()}
    parts = [_separate(instance, members, carried) for members in groups.values()]
    for place, members in enumerate(groups.values()):
        others = [item.holding for part in (*parts[:place], *parts[place + 1 :]) for item in part]
        others += [item.holding for item in (*beside, *row.pools)]
        pool = _pool(instance, members, carried)
        merged = pool if trusting and _lighter(pool, members) else _settled(pool, others, limits)
        if merged is not None and not _dearer(merged, parts[place]):
            parts[place] = [merged]
    return [item for part in parts for item in part]


def _lighter(pool: PlannedPool, members: Sequence[tuple[Column, int]]) -> bool:
    """Whether replicas that add up carry no more of one class than each was found to carry."""
    if not pool.candidate.adds_up or len(pool.shares) > 1:
        return False
    found = min(share / column.replicas for column, _ in members for share in column.shares.values())
    return pool.shares[0] / pool.replicas <= found * (1.0 + _ROUNDING)


def _without_unserved(column: Column, model_shares: Mapping[tuple[str, str], float]) -> Column:
    """The same without classes of which its model serves nothing."""
    shares = {
        name: share
        for name, share in column.shares.items()
        if model_shares.get((name, column.candidate.model), 1.0) > 0.0
    }
    return column if len(shares) == len(column.shares) else replace(column, shares=shares)


def _dearer(merged: PlannedPool, parts: Sequence[PlannedPool]) -> bool:
    """Whether a pool on spot GPUs has more replicas for what may be away than its parts have together."""
    return merged.candidate.spot is not None and merged.holding.replicas > sum(item.holding.replicas for item in parts)


def _separate(
    instance: Instance, members: Sequence[tuple[Column, int]], carried: Mapping[tuple[str, str], float]
) -> list[PlannedPool]:
    """Columns as pools of their own; replicas of a column that add up are one pool."""
    found = []
    for column, count in members:
        if column.candidate.adds_up:
            found.append(_pool(instance, [(column, count)], carried))
        else:
            found += [_pool(instance, [(column, 1)], carried)] * count
    return found


def _pool(
    instance: Instance, members: Sequence[tuple[Column, int]], carried: Mapping[tuple[str, str], float]
) -> PlannedPool:
    """One pool of columns of one candidate and mix, each share scaled to what all columns carry of its class."""
    first = members[0][0]
    raw = {name: sum(column.shares[name] * count for column, count in members) for name in first.shares}
    return PlannedPool(
        candidate=first.candidate,
        replicas=sum(column.replicas * count for column, count in members),
        classes=tuple(instance.classes[name].under(first.candidate.model) for name in raw),
        shares=tuple(share / carried[name, first.candidate.model] for name, share in raw.items()),
    )


def assemble(pools: Sequence[PlannedKind], row: PlannedRow = NO_ROW, *, names: Sequence[str] = ()) -> Fleet:
    """The fleet of planned pools, with readable pool names and routing by class.

    Where GPUs are bought at several prices no pool has its own: the fleet decides what is bought.

    Args:
        pools: that serve whole requests.
        row: pools that serve one stage, and the paths through them.
        names: of the pools that serve whole requests; made from their classes if left out.
    """
    fleet_pools: dict[str, Pool] = {}
    routing: dict[str, list[Path]] = {}
    for place, item in enumerate(pools):
        served = [request_class.name for request_class in item.classes]
        name = names[place] if names else pool_name(item, served, fleet_pools)
        fleet_pools[name] = pool_of(name, item)
        for request_class, share in zip(item.classes, item.shares, strict=True):
            routing.setdefault(request_class.name, []).append(Path(pools=(name,), share=share))
    in_row = []
    for stage in row.pools:
        in_row.append(pool_name(stage, [item.name for item in stage.classes], fleet_pools))
        fleet_pools[in_row[-1]] = pool_of(in_row[-1], stage)
    for cls, paths in row.paths.items():
        found = [Path(pools=tuple(in_row[place] for place in places), share=share) for places, share in paths]
        routing.setdefault(cls, []).extend(found)
    return Fleet(pools=fleet_pools, routing={name: tuple(paths) for name, paths in routing.items()})


def grown_for(
    pools: Sequence[PlannedPool],
    candidates: Sequence[Candidate],
    limits: Limits,
    beside: Sequence[PlannedKind] = (),
) -> float | None:
    """Cost of the same pools grown until every target holds with other replicas, USD/h.

    None where limits forbid it, or where no count meets every target.

    Args:
        pools: the planned pools.
        candidates: one per pool: the same pool at another confidence.
        limits: of the fleet.
        beside: pools that stay as they are.
    """
    grown: list[PlannedPool] = []
    for item, candidate in zip(pools, candidates, strict=True):
        count = item.replicas
        if not _meets(candidate, _loaded(item), count):
            count = int(least_counts([candidate], _loaded(item))[0])
        if count == 0:
            return None
        grown.append(replace(item, candidate=candidate, replicas=count))
    whole: list[PlannedKind] = [*grown, *beside]
    cost = cost_of(whole, limits)
    beyond = limits.budget_usd_per_hour is not None and cost > limits.budget_usd_per_hour
    return None if beyond or limits.broken([item.holding for item in whole]) else cost


def _loaded(item: PlannedPool) -> list[RequestClass]:
    return [request_class.part(share) for request_class, share in zip(item.classes, item.shares, strict=True)]


def _settled(item: PlannedPool, others: Sequence[Holding], limits: Limits) -> PlannedPool | None:
    """The pool at the least count that meets every target, None where a few more replicas are not enough."""
    classes, count = _loaded(item), item.replicas
    if _meets(item.candidate, classes, count):
        if item.candidate.adds_up:  # replicas carry in proportion to their count: merging frees none
            return item
        return replace(item, replicas=_trimmed(item.candidate, classes, count))
    for size in range(count + 1, count + _MOST_REPAIRS + 1):
        grown = replace(item, replicas=size)
        if limits.broken([*others, grown.holding]) is not None:
            return None
        if _meets(item.candidate, classes, size):
            return grown
    return None


def _trimmed(candidate: Candidate, classes: Sequence[RequestClass], enough: int) -> int:
    """The least count up to one that is enough: strides that double on the way down, then halving."""
    missed, stride = 0, 1
    while enough - missed > 1:
        guess = max(enough - stride, (enough + missed) // 2)
        if _meets(candidate, classes, guess):
            enough, stride = guess, stride * 2
        else:
            missed = guess
    return enough


def _meets(candidate: Candidate, classes: Sequence[RequestClass], count: int) -> bool:
    return bool(feasible_at([candidate], classes, np.array([count]), np.array([1.0]))[0] <= 1.0)


def pool_name(item: PlannedKind, served: Sequence[str], taken: Collection[str]) -> str:
    """A readable name for a pool that no other has: its classes, GPU type and layout.

    Args:
        item: the pool.
        served: names of its classes.
        taken: names that others have.
    """
    base = "-".join(sorted(served)) if len(served) <= _MOST_NAMED else item.candidate.model
    if len(served) <= _MOST_NAMED and any(len(one.models) > 1 for one in item.classes):
        base = f"{base}-{item.candidate.model}"
    base = f"{item.candidate.pool_role}-{base}" if isinstance(item, PlannedStage) else base
    layout = "" if isinstance(item.candidate, ApiCandidate) else f"-{item.candidate.layout}"
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{base}-{item.candidate.gpu}{layout}")
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name
