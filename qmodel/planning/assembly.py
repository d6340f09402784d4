"""From chosen columns to a fleet: pools merged, load split, then trimmed or grown until the exact metrics agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates import Candidate, Column, feasible_at, least_counts
from qmodel.problem import Instance
from qmodel.types import Fleet, Path, Pool, RequestClass

__all__ = ["PlannedPool", "assemble", "grown_for", "pools_of"]

_MOST_REPAIRS = 20  # replicas one pool may grow by before the columns must have been wrong


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedPool:
    """A pool with the classes it serves and the share of each.

    Attributes:
        shares: share of each class's demand, by class name, in (0, 1].
    """

    candidate: Candidate
    replicas: int
    classes: tuple[RequestClass, ...]
    shares: tuple[float, ...]

    @property
    def gpus(self) -> int:
        """GPUs of the whole pool."""
        return self.candidate.layout.gpus * self.replicas


def pools_of(instance: Instance, chosen: Sequence[tuple[Column, int]], stock: Mapping[str, int]) -> list[PlannedPool]:
    """Pools that carry the chosen columns with every target met, re-scored at their actual load.

    Columns of one candidate and one mix become one pool. Where columns cover more than
    the demand the load of each is scaled down. A pool then loses replicas while it still
    meets every target, and gains a few if merging broke one; where that is not enough its
    columns stay pools of their own.

    Args:
        instance: the bound problem.
        chosen: columns with their counts.
        stock: GPUs by type, for the limited types.
    """
    groups: dict[tuple[int, tuple[str, ...]], list[tuple[Column, int]]] = {}
    for column, count in chosen:
        groups.setdefault((id(column.candidate), tuple(column.shares)), []).append((column, count))
    carried: dict[str, float] = {}
    for column, count in chosen:
        for name, share in column.shares.items():
            carried[name] = carried.get(name, 0.0) + share * count
    used: dict[str, int] = {}
    for column, count in chosen:
        used[column.candidate.gpu] = used.get(column.candidate.gpu, 0) + column.gpus * count
    pools: list[PlannedPool] = []
    for members in groups.values():
        gpu = members[0][0].candidate.gpu
        separate = [_pool(instance, [(column, 1)], carried) for column, count in members for _ in range(count)]
        merged = _settled(_pool(instance, members, carried), stock.get(gpu, np.inf) - used[gpu])
        settled = separate if merged is None else [merged]
        used[gpu] += sum(item.gpus for item in settled) - sum(item.gpus for item in separate)
        pools += settled
    return pools


def _pool(instance: Instance, members: Sequence[tuple[Column, int]], carried: Mapping[str, float]) -> PlannedPool:
    """One pool of columns of one candidate and mix, each share scaled to what all columns carry of its class."""
    first = members[0][0]
    raw = {name: sum(column.shares[name] * count for column, count in members) for name in first.shares}
    return PlannedPool(
        candidate=first.candidate,
        replicas=sum(column.replicas * count for column, count in members),
        classes=tuple(instance.classes[name] for name in raw),
        shares=tuple(share / carried[name] for name, share in raw.items()),
    )


def assemble(pools: Sequence[PlannedPool]) -> Fleet:
    """The fleet of planned pools, with readable pool names and routing by class."""
    fleet_pools: dict[str, Pool] = {}
    routing: dict[str, list[Path]] = {}
    for item in pools:
        name = _name(item, fleet_pools)
        fleet_pools[name] = Pool(
            name=name,
            model=item.candidate.model,
            gpu=item.candidate.gpu,
            layout=item.candidate.layout,
            replicas=item.replicas,
            precision=item.candidate.precision,
            price_tier=item.candidate.price.tier,
            usd_per_gpu_hour=item.candidate.price.usd_per_gpu_hour,
        )
        for request_class, share in zip(item.classes, item.shares, strict=True):
            routing.setdefault(request_class.name, []).append(Path(pools=(name,), share=share))
    return Fleet(pools=fleet_pools, routing={name: tuple(paths) for name, paths in routing.items()})


def grown_for(
    pools: Sequence[PlannedPool], candidates: Sequence[Candidate], stock: Mapping[str, int | None]
) -> float | None:
    """Cost of the same pools grown until every target holds with other replicas, USD/h; None where stock is too small.

    Args:
        pools: the planned pools.
        candidates: one per pool: the same pool with slower steps.
        stock: GPUs by type; None: no limit.
    """
    total, used = 0.0, dict.fromkeys(stock, 0)
    for item, candidate in zip(pools, candidates, strict=True):
        count = item.replicas
        if not _meets(candidate, _loaded(item), count):
            count = int(least_counts([candidate], _loaded(item))[0])
        if count == 0:
            return None
        total += count * candidate.cost_usd_per_hour
        used[candidate.gpu] += count * candidate.layout.gpus
    within = all(limit is None or used[gpu] <= limit for gpu, limit in stock.items())
    return total if within else None


def _loaded(item: PlannedPool) -> list[RequestClass]:
    return [request_class.part(share) for request_class, share in zip(item.classes, item.shares, strict=True)]


def _settled(item: PlannedPool, room_gpus: float) -> PlannedPool | None:
    """The pool at the least count that meets every target, None where a few more replicas are not enough."""
    classes, count = _loaded(item), item.replicas
    if _meets(item.candidate, classes, count):
        if item.candidate.router == "random":  # replicas carry in proportion to their count: merging frees none
            return item
        return replace(item, replicas=_trimmed(item.candidate, classes, count))
    most = count + int(min(_MOST_REPAIRS, room_gpus // item.candidate.layout.gpus))
    enough = (size for size in range(count + 1, most + 1) if _meets(item.candidate, classes, size))
    found = next(enough, None)
    return None if found is None else replace(item, replicas=found)


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


def _name(item: PlannedPool, taken: dict[str, Pool]) -> str:
    base = "-".join(request_class.name for request_class in item.classes)
    base = f"{base}-{item.candidate.gpu}-{item.candidate.layout}".replace("/", "-")
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name
