"""From what a program chose over several periods to the pools of each, with one set of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates import Candidate, Column, OpenPool, feasible_at
from qmodel.optimize import Choice, OpenChoice, PeriodPools, balanced
from qmodel.optimize.programs import Program
from qmodel.planning.assembly import assemble, pool_name, pools_of
from qmodel.planning.measured_pools import measured_pools_of
from qmodel.planning.merging import merged
from qmodel.planning.planned_pools import PlannedKind, PlannedMeasured, PlannedPool
from qmodel.problem import Instance
from qmodel.types import Fleet, FloatArray, Holding, Limits, PoolKey, RequestClass

__all__ = ["changing_fleets", "joined_fleets", "named_fleets", "one_fleet"]

_LEAST_SHARE = 1e-6  # of a class: less is rounding
_MOST_REPAIRS = 20  # replicas one pool may grow by before the columns must have been wrong

Solve = Callable[[Program], FloatArray | None]


def changing_fleets(instances: Sequence[Instance], choice: Choice, solve: Solve) -> list[list[PlannedKind]]:
    """The pools of each period where the fleet changes.

    Args:
        instances: the problem of each period alone, its classes at the rates of the period.
        choice: shares are of the largest rate of each class.
        solve: finds the optimum of a program.
    """
    found = []
    for number, instance in enumerate(instances):
        periods = instance.periods
        assert periods is not None
        factors = periods.items[number].factors
        chosen = []
        for item in choice.pools:
            count = item.counts[number]
            shares = {
                name: share / count / factors[name]
                for name, share in (item.shares[number].items() if count else ())
                if name in instance.classes and share > _LEAST_SHARE
            }
            if shares:
                column = Column(candidate=item.candidate, replicas=item.replicas, shares=shares, upper=shares)
                chosen.append((column, count))
        measured = measured_pools_of(instance, _measured(choice.measured[number], chosen, factors, solve))
        predicted = pools_of(instance, chosen, instance.limits, measured)
        found.append([*predicted, *measured])
    return found


def joined_fleets(
    fleets: Sequence[Sequence[PlannedKind]], candidates: Sequence[Candidate], limits: Sequence[Limits]
) -> list[list[PlannedKind]]:
    """The same with pairs of pools joined where that takes no more GPUs of any type.

    Args:
        fleets: pools of each period.
        candidates: pools that may take the place of a pair.
        limits: of each period.
    """
    found = []
    for pools, own in zip(fleets, limits, strict=True):
        joined = merged(pools, candidates, own)
        before, after = ([item.holding for item in kept] for kept in (pools, joined))
        more = any(own.paid_gpus(gpu, after) > own.paid_gpus(gpu, before) for gpu in own.gpus)
        found.append(list(pools) if more else joined)
    return found


def _measured(
    chosen: Sequence[OpenChoice],
    columns: Sequence[tuple[Column, int]],
    factors: Mapping[str, float],
    solve: Solve,
) -> list[OpenChoice]:
    """Pools of measured capacity in the units of a period, with flows that carry what the others do not.

    Args:
        chosen: shares of the largest rate of each class.
        columns: other pools with their counts, shares of what the period asks for.
        factors: of each class in the period.
        solve: finds the optimum of a program.
    """
    used = []
    for item in chosen:
        names = [name for name in item.shares if factors[name] > 0.0]
        if names:
            takes = {name: took * factors[name] for name, took in item.pool.takes.items() if factors[name] > 0.0}
            shares = {name: min(item.shares[name] / factors[name], 1.0) for name in names}
            used.append(replace(item, pool=OpenPool(candidate=item.pool.candidate, takes=takes), shares=shares))
    elsewhere: dict[str, float] = {}
    for column, count in columns:
        for name, share in column.shares.items():
            elsewhere[name] = elsewhere.get(name, 0.0) + share * count
    return balanced(used, elsewhere, solve)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LastingPool:
    """A pool that stands all day.

    Attributes:
        loads: share of each class's largest demand that it carries, by class name, in each period.
    """

    candidate: Candidate
    replicas: int
    loads: tuple[Mapping[str, float], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Classes that it serves in some period."""
        return tuple(sorted({name for load in self.loads for name in load}))

    def meets(self, classes: Sequence[Mapping[str, RequestClass]], replicas: int) -> bool:
        """Whether so many replicas meet every target in every period, classes being those of each."""
        mixes = [
            [own[name].part(share) for name, share in load.items()]
            for own, load in zip(classes, self.loads, strict=True)
            if load
        ]
        one = np.array([1.0])
        return all(feasible_at([self.candidate], mix, np.array([replicas]), one)[0] <= 1.0 for mix in mixes)


def one_fleet(
    instance: Instance,
    choice: Choice,
    factors: Sequence[Mapping[str, float]],
    solve: Solve,
    classes: Sequence[Mapping[str, RequestClass]],
) -> list[list[PlannedKind]]:
    """The pools of a fleet that stands all day, with what they carry in each period.

    Pools of one candidate and the same classes become one where that meets every target in every period. Each pool then
    loses replicas while it still does.

    Args:
        instance: the bound problem.
        choice: shares are of the largest rate of each class.
        factors: of each class in each period of the program.
        solve: finds the optimum of a program.
        classes: at their largest rates, with the lengths of each period of the program.

    Returns:
        For each period, the same pools in the same order; a pool that carries nothing in a period has no classes there.
    """
    measured = _lasting_measured(choice, factors, solve, classes)
    scaled = _scaled(choice.pools, measured, factors)
    groups: dict[tuple[int, tuple[str, ...]], list[tuple[PeriodPools, _LastingPool]]] = {}
    for item, pool in scaled:
        groups.setdefault((id(item.candidate), pool.names), []).append((item, pool))
    parts = [_apart(members) for members in groups.values()]
    for place, members in enumerate(groups.values()):
        others = [
            item.candidate.holding(item.replicas) for part in (*parts[:place], *parts[place + 1 :]) for item in part
        ]
        others += [item.holding for item in measured[0]]
        parts[place] = _cheapest(_together(members), parts[place], classes, others, instance.limits)
    lasting = _joined([item for part in parts for item in part], classes)
    return [
        [*(_in_period(item, classes[number], number, own) for item in lasting), *measured[number]]
        for number, own in enumerate(factors)
    ]


def _scaled(
    pools: Sequence[PeriodPools],
    measured: Sequence[Sequence[PlannedMeasured]],
    factors: Sequence[Mapping[str, float]],
) -> list[tuple[PeriodPools, _LastingPool]]:
    """All pools of each column, with loads that add up to what each period asks for."""
    loads: list[list[dict[str, float]]] = [[] for _ in pools]
    for number, own in enumerate(factors):
        carried: dict[str, float] = {}
        for beside in measured[number]:
            for item, share in zip(beside.classes, beside.shares, strict=True):
                carried[item.name] = carried.get(item.name, 0.0) + share * own[item.name]
        wanted = {name: max(factor - carried.get(name, 0.0), 0.0) for name, factor in own.items()}
        total = {name: sum(item.shares[number].get(name, 0.0) for item in pools) for name in own}
        for place, entry in enumerate(pools):
            loads[place].append(
                {
                    name: share * wanted[name] / total[name]
                    for name, share in entry.shares[number].items()
                    if share > _LEAST_SHARE and wanted[name] > _LEAST_SHARE
                }
            )
    return [
        (item, _LastingPool(candidate=item.candidate, replicas=item.replicas * item.counts[0], loads=tuple(load)))
        for item, load in zip(pools, loads, strict=True)
        if any(load)
    ]


def _apart(members: Sequence[tuple[PeriodPools, _LastingPool]]) -> list[_LastingPool]:
    """Columns as pools of their own; replicas of a column that add up are one pool."""
    found = []
    for item, pool in members:
        count = item.counts[0]
        if item.candidate.adds_up or count == 1:
            found.append(pool)
        else:
            part = tuple({name: share / count for name, share in load.items()} for load in pool.loads)
            found += [replace(pool, replicas=item.replicas, loads=part)] * count
    return found


def _together(members: Sequence[tuple[PeriodPools, _LastingPool]]) -> _LastingPool:
    return _sum([pool for _, pool in members])


def _sum(pools: Sequence[_LastingPool]) -> _LastingPool:
    loads: list[dict[str, float]] = [{} for _ in pools[0].loads]
    for pool in pools:
        for total, load in zip(loads, pool.loads, strict=True):
            for name, share in load.items():
                total[name] = total.get(name, 0.0) + share
    return replace(pools[0], replicas=sum(pool.replicas for pool in pools), loads=tuple(loads))


def _cheapest(
    together: _LastingPool,
    apart: Sequence[_LastingPool],
    classes: Sequence[Mapping[str, RequestClass]],
    others: Sequence[Holding],
    limits: Limits,
) -> list[_LastingPool]:
    """One pool, or several, whichever meets every target with fewer replicas."""
    joined = _settled(together, classes, others, limits)
    if joined is not None and joined.replicas <= together.replicas:
        return [joined]
    settled: list[_LastingPool] = []
    for number, item in enumerate(apart):
        beside = [one.candidate.holding(one.replicas) for one in (*settled, *apart[number + 1 :])]
        found = _settled(item, classes, [*others, *beside], limits)
        if found is None:
            return list(apart) if joined is None else [joined]
        settled.append(found)
    if joined is not None and joined.replicas <= sum(item.replicas for item in settled):
        return [joined]
    return settled


def _joined(pools: Sequence[_LastingPool], classes: Sequence[Mapping[str, RequestClass]]) -> list[_LastingPool]:
    """Pools of one candidate together, whatever their classes, where as many replicas then meet every target too."""
    found: list[_LastingPool] = []
    for pool in pools:
        for place, other in enumerate(found):
            names = {*pool.names, *other.names}
            if other.candidate is not pool.candidate or _kept_apart([classes[0][name] for name in names]):
                continue
            both = _sum([other, pool])
            if both.meets(classes, both.replicas):
                found[place] = both
                break
        else:
            found.append(pool)
    return found


def _kept_apart(members: Sequence[RequestClass]) -> bool:
    """Whether classes share no pool."""
    return len(members) > 1 and (any(one.isolate for one in members) or len({one.patience for one in members}) > 1)


def _settled(
    pool: _LastingPool, classes: Sequence[Mapping[str, RequestClass]], others: Sequence[Holding], limits: Limits
) -> _LastingPool | None:
    """The pool at the least count that meets every target all day; None where a few more are not enough."""
    count = pool.replicas
    if pool.meets(classes, count):
        while count > 1 and pool.meets(classes, count - 1):
            count -= 1
        return replace(pool, replicas=count)
    for size in range(count + 1, count + _MOST_REPAIRS + 1):
        if limits.broken([*others, pool.candidate.holding(size)]) is not None:
            return None
        if pool.meets(classes, size):
            return replace(pool, replicas=size)
    return None


def _in_period(
    pool: _LastingPool, classes: Mapping[str, RequestClass], number: int, factors: Mapping[str, float]
) -> PlannedPool:
    load = pool.loads[number]
    return PlannedPool(
        candidate=pool.candidate,
        replicas=pool.replicas,
        classes=tuple(classes[name] for name in load),
        shares=tuple(share / factors[name] for name, share in load.items()),
    )


def _lasting_measured(
    choice: Choice,
    factors: Sequence[Mapping[str, float]],
    solve: Solve,
    classes: Sequence[Mapping[str, RequestClass]],
) -> list[list[PlannedMeasured]]:
    """Pools of measured capacity in each period, the same ones with the same counts in all of them."""
    used = []
    for number, own in enumerate(factors):
        columns = []
        for item in choice.pools:
            shares = {name: share / own[name] for name, share in item.shares[number].items() if own[name] > 0.0}
            columns.append((Column(candidate=item.candidate, replicas=item.replicas, shares=shares, upper=shares), 1))
        used.append(_measured(choice.measured[number], columns, own, solve))
    kinds = {one.pool.candidate.key: one for chosen in used for one in chosen}
    nothing: Mapping[str, float] = {}
    found = []
    for chosen, by_name in zip(used, classes, strict=True):
        carried = {one.pool.candidate.key: one.shares for one in chosen}
        found.append(
            [
                PlannedMeasured(
                    candidate=one.pool.candidate,
                    replicas=one.replicas,
                    classes=tuple(by_name[name] for name in carried.get(key, nothing)),
                    shares=tuple(carried.get(key, nothing).values()),
                )
                for key, one in kinds.items()
            ]
        )
    return found


def named_fleets(fleets: Sequence[Sequence[PlannedKind]], *, lasting: bool) -> list[Fleet]:
    """The fleets of all periods; a name means the same kind of pool in each of them.

    Args:
        fleets: pools of each period.
        lasting: the same pools in the same order stand in every period.
    """
    names: dict[tuple[PoolKey, tuple[str, ...], int], str] = {}
    found = []
    for pools in fleets:
        seen: dict[tuple[PoolKey, tuple[str, ...]], int] = {}
        own = []
        for place, item in enumerate(pools):
            alike = [other[place] for other in fleets] if lasting else [item]
            served = tuple(sorted({one.name for pool in alike for one in pool.classes}))
            key = item.candidate.key, served
            seen[key] = seen.get(key, 0) + 1
            if (*key, seen[key]) not in names:
                names[*key, seen[key]] = pool_name(item, served, names.values())
            own.append(names[*key, seen[key]])
        found.append(assemble(pools, names=own))
    return found
