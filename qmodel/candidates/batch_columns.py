"""Columns for a batch: a candidate, a count, and the share of the requests that it finishes by the deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from qmodel.candidates.batch_frontiers import least_batch_replicas
from qmodel.candidates.columns import ColumnSet, columns_for_model
from qmodel.candidates.mix_columns import NOT_TRIED, Column, undominated
from qmodel.candidates.open_pools import OpenPool
from qmodel.candidates.pool_kinds import Candidate
from qmodel.candidates.promising import few_of_each_kind
from qmodel.queueing.populations.batch_capacity import BatchCapacity, capacity_of
from qmodel.types import FloatArray, RequestClass

__all__ = ["columns_for_group"]

_MOST_TRIED = 12  # candidates of which the counts are looked for; a batch takes a second each
_PART_OF_TWO = 0.5  # power of the probability with which a part is done: two parts then keep it together
_ALL_SIZES = 64  # up to here every count becomes a column; beyond, only the largest
_ROUNDING = 1e-9


def columns_for_group(
    candidates: Sequence[Candidate],
    classes: Sequence[RequestClass],
    *,
    open_pools: Sequence[OpenPool] = (),
    every_count: bool = False,
    keep_all: bool = False,
    elsewhere_usd: Mapping[str, float] | None = None,
) -> ColumnSet:
    """Columns for classes that may share pools: of streams together, or of one batch, which has pools of its own.

    Args:
        candidates, classes, open_pools, every_count, keep_all, elsewhere_usd: as for :func:`columns_for_model`.
    """
    if classes[0].batch is None:
        return columns_for_model(
            candidates,
            classes,
            open_pools=open_pools,
            every_count=every_count,
            keep_all=keep_all,
            elsewhere_usd=elsewhere_usd,
        )
    return _batch_columns(candidates, classes[0], every_count=every_count or keep_all, keep_all=keep_all)


@dataclass(slots=True, kw_only=True, eq=False)
class _Found:
    """What is known of the candidates for one batch, in their order.

    Attributes:
        least: least counts for all of it, 0: no count does, ``NOT_TRIED``: not looked for.
        capacity: of those that were looked at and could do the batch with enough replicas.
        best_usd_per_hour: of the cheapest pool for all of it.
        left_out: whether candidates that might matter were not looked at.
    """

    least: list[int]
    capacity: dict[int, BatchCapacity]
    best_usd_per_hour: float = np.inf
    left_out: bool = False


def _batch_columns(
    candidates: Sequence[Candidate], item: RequestClass, *, every_count: bool, keep_all: bool
) -> ColumnSet:
    """Columns of one batch, on GPUs that stay: what preemptions do to a batch is not known.

    Candidates on which it could not be done in time with a replica for each request take no part of it. Its requests
    are dealt to the replicas in turn whatever the router, so n replicas carry less than n times what one does: no
    candidate adds up. Counts that cost more than the cheapest pool for the whole batch are left out unless every count
    is asked for, as for streams.
    """
    batch = item.batch
    assert batch is not None
    pools = [replace(one, router="round_robin", held_share=batch.held_share) for one in candidates if one.spot is None]
    floor = least_batch_replicas(pools, item)
    found = _looked_at(pools, item, floor, every_count=every_count)
    each = np.array([one.cost_usd_per_hour for one in pools])
    able = np.array(
        [count != 0 or position in found.capacity for position, count in enumerate(found.least)], dtype=bool
    )
    cheapest = float(np.min(each[able] * floor[able], initial=np.inf))  # per batch, if replicas were divisible
    columns: list[Column] = []
    ratios = np.zeros(len(pools))
    complete = not found.left_out
    for position, one in enumerate(pools):
        if position not in found.capacity:
            ratios[position] = 1.0 / max(floor[position], _ROUNDING) if able[position] else 0.0
            continue
        capacity, most = found.capacity[position], found.least[position] or min(one.max_replicas, batch.requests)
        if not every_count:
            most = _most_useful(one, most, float(floor[position]), found.best_usd_per_hour, cheapest)
        if most:
            complete = complete and most <= _ALL_SIZES
            columns += _counts(one, item, capacity, most, found.least[position])
            ratios[position] = capacity.per_replica(1, batch.requests)[1] / batch.requests
    return ColumnSet(
        columns=tuple(columns if keep_all else undominated(columns)),
        complete=complete,
        least={item.name: tuple(found.least)},
        candidates=tuple(pools),
        ratios={item.name: ratios},
        classes=(item,),
        budget_usd_per_hour=np.inf if every_count else found.best_usd_per_hour,
    )


def _looked_at(pools: Sequence[Candidate], item: RequestClass, floor: FloatArray, *, every_count: bool) -> _Found:
    """Least counts, the most promising candidates first, as long as they could be part of a cheapest fleet."""
    assert item.batch is not None
    requests, whole = item.batch.requests, np.maximum(np.ceil(floor * (1.0 - _ROUNDING)), 1.0)
    paid = np.array([one.least_cost(int(count)) for one, count in zip(pools, whole, strict=True)])
    found = _Found(least=[NOT_TRIED] * len(pools), capacity={})
    order = np.argsort(paid, kind="stable")
    looked_at = set(few_of_each_kind(pools, order, _MOST_TRIED, -np.array([one.replica.max_num_seqs for one in pools])))
    for position in order.tolist():
        one = pools[position]
        if paid[position] > found.best_usd_per_hour * (1.0 + _ROUNDING) and not every_count:
            continue
        if position not in looked_at:
            found.left_out = True
            continue
        capacity = capacity_of(item, one.replica)
        count = capacity.least_replicas(requests, one.max_replicas)
        found.least[position], found.capacity[position] = count, capacity
        if not capacity.possible(requests):
            del found.capacity[position]
        if count:
            most_paid = one.most_usd_per_hour * one.pool_replicas(count)
            found.best_usd_per_hour = min(found.best_usd_per_hour, most_paid)
    return found


def _most_useful(one: Candidate, most: int, floor: float, best: float, cheapest: float) -> int:
    """The largest count that could be part of a fleet no dearer than the best pool for the whole batch; 0: none."""
    if not np.isfinite(best):
        return most
    sizes = np.arange(1, most + 1)
    rest = (1.0 - np.minimum(sizes / max(floor, _ROUNDING), 1.0)) * cheapest
    paid = np.array([one.least_cost(int(size)) for size in sizes]) + rest
    return int(np.count_nonzero(paid <= best * (1.0 + _ROUNDING)))


def _counts(one: Candidate, item: RequestClass, capacity: BatchCapacity, most: int, least: int) -> list[Column]:
    """A column for every count up to one.

    More replicas are done together less surely. What a part of a batch has for each replica is therefore what it may
    have with all of them, so that parts may be joined, and is done as surely as each of two parts must be. Its upper
    side, what it could carry alone, is looked at for counts 1, 2, 4, ...; between two of them a replica does no more
    than at the smaller.
    """
    assert item.batch is not None
    requests, columns = item.batch.requests, []
    sizes = range(1, most + 1) if most <= _ALL_SIZES else [most]
    looked = [2**power for power in range(most.bit_length()) if 2**power < most] + [most]
    looked = looked if len(sizes) > 1 else [most]
    high_of = {count: capacity.most_requests(count, requests)[1] for count in looked}
    surer = replace(capacity, p=capacity.p**_PART_OF_TWO)  # the same solved batches, at another level
    together = surer.most_requests(most, requests * most)[0]
    for count in sizes:
        below = max(size for size in looked if size <= count)
        low = min(together * count // most, requests)
        high = min(ceil(high_of[below] * count / below), requests + 1)
        whole = count == least
        low, high = (requests, requests) if whole else (low, high)
        if low > 0:
            share, upper = min(low / requests, 1.0), min(high / requests, 1.0)
            columns.append(Column(candidate=one, replicas=count, shares={item.name: share}, upper={item.name: upper}))
    return columns
