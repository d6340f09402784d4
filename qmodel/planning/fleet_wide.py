"""Pools of a plan whose targets hold over all pools of a class together: settled, trimmed, and split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qmodel.candidates import unit_loads
from qmodel.evaluation import TOLERANCE, allowances, slo_excesses, slo_ratios
from qmodel.optimize import Program, ProgramBuilder, WidePool
from qmodel.planning.assembly import cost_of
from qmodel.planning.load_split import lower_lines
from qmodel.planning.planned_pools import PlannedKind, PlannedPool
from qmodel.types import FloatArray, Limits, RequestClass

__all__ = ["FleetCheck", "evened_over_fleet", "settled_over_fleet"]

_LOADS = np.array([0.01, 0.1, 0.25, 0.4, 0.55, 0.65, 0.75, 0.82, 0.88, 0.93, 0.96, 0.98])  # of the largest stable one
_GAIN = 0.005  # of the worst target: less is not worth an uneven number
_LEAST_PART = 0.02  # of what a pool carries of a class: with less it would be another fleet
_MOST_WORSE = 1e3  # of what a target allows; beyond it a pool is as good as not stable

Solve = Callable[[Program], FloatArray | None]


@dataclass(slots=True)
class FleetCheck:
    """Whether pools meet the targets of their classes together; each pool is predicted once."""

    _known: dict[tuple[object, ...], tuple[FloatArray, FloatArray]] = field(default_factory=dict)

    def holds(self, pools: Sequence[PlannedKind]) -> bool:
        """Every target of every class holds over its pools, as an evaluation of the fleet says it."""
        return self.worst(pools) <= 1.0

    def worst(self, pools: Sequence[PlannedKind]) -> float:
        """Of all targets, what is taken of the one that is exceeded most, over what it allows; at most 1 if all hold.

        Of a class with one pool that is the prediction over the target, of one with several the share of requests
        beyond it over the share that may be, or the mean of means over the target.
        """
        taken: dict[str, FloatArray] = {}
        each: dict[str, list[FloatArray]] = {}
        allowed: dict[str, FloatArray] = {}
        for item in pools:
            assert isinstance(item, PlannedPool)  # pools of measured capacity do not go with targets over the fleet
            ratios, excesses = self._predicted(item)
            start = 0
            for one, share in zip(item.classes, item.shares, strict=True):
                mine = slice(start, start + len(one.slos))
                allowed[one.name] = allowances(one)
                taken[one.name] = taken.get(one.name, 0.0) + share * excesses[mine]
                each.setdefault(one.name, []).append(ratios[mine])
                start += len(one.slos)
        worst = 0.0
        for name, found in each.items():
            pool = np.max(found, axis=0)
            together = pool if len(found) == 1 else 1.0 + (taken[name] - TOLERANCE) / allowed[name]
            # where every pool holds a target, all of them do
            worst = max(worst, float(np.where(pool <= 1.0, np.minimum(pool, together), together).max()))
        return worst

    def _predicted(self, item: PlannedPool) -> tuple[FloatArray, FloatArray]:
        """Prediction over target, and excess, of every target of a pool."""
        names = tuple(one.name for one in item.classes)
        key = (id(item.candidate), item.replicas, names, item.shares)
        if key not in self._known:
            self._known[key] = (_looked_at(slo_ratios, item, np.ones(1))[0], excesses_of(item, np.ones(1))[0])
        return self._known[key]


def excesses_of(item: PlannedPool, loads: FloatArray) -> FloatArray:
    """Excess of every target at multiples of what a pool carries, shape (L, W); infinite where it is not stable."""
    return _looked_at(slo_excesses, item, loads)


def _looked_at(look: Callable[..., FloatArray], item: PlannedPool, loads: FloatArray) -> FloatArray:
    one = item.candidate
    return look(
        [one.replica] * loads.size,
        item.classes,
        item.shares,
        np.full(loads.size, item.replicas),
        loads,
        one.router,
        confidence=one.confidence,
    )


def settled_over_fleet(
    chosen: Sequence[WidePool], classes: Mapping[str, RequestClass], limits: Limits, check: FleetCheck
) -> list[PlannedPool] | None:
    """Planned pools of what was chosen, as few and as small as the targets of the whole fleet allow.

    What covers more than the demand is scaled down. Pools of one candidate and the same classes become one where the
    targets still hold, then pools lose replicas while they do. None where the targets do not hold as chosen.

    Args:
        chosen: pools with the shares that they carry.
        classes: by name.
        limits: of the fleet.
        check: says whether targets hold.
    """
    carried: dict[str, float] = {}
    for item in chosen:
        for name, share in item.shares.items():
            carried[name] = carried.get(name, 0.0) + share
    pools = [
        PlannedPool(
            candidate=item.candidate,
            replicas=item.replicas,
            classes=tuple(classes[name] for name in item.shares),
            shares=tuple(share / carried[name] for name, share in item.shares.items()),
        )
        for item in chosen
    ]
    if not check.holds(pools):
        return None
    return _trimmed(_joined(pools, limits, check), limits, check)


def _joined(pools: Sequence[PlannedPool], limits: Limits, check: FleetCheck) -> list[PlannedPool]:
    """Pools of one candidate and the same classes as one, where that holds every target."""
    found = list(pools)
    kinds = dict.fromkeys(_kind(item) for item in pools)
    for kind in kinds:
        members = [item for item in found if _kind(item) == kind]
        if len(members) > 1:
            shares = np.sum([item.shares for item in members], axis=0)
            replicas = sum(item.replicas for item in members)
            whole = replace(members[0], replicas=replicas, shares=tuple(np.minimum(shares, 1.0).tolist()))
            others = [
                whole if item is members[0] else item for item in found if item is members[0] or _kind(item) != kind
            ]
            if check.holds(others) and cost_of(others, limits) <= cost_of(found, limits) * (1.0 + TOLERANCE):
                found = others
    return found


def _kind(item: PlannedPool) -> tuple[int, tuple[str, ...]]:
    return id(item.candidate), tuple(one.name for one in item.classes)


def _trimmed(pools: Sequence[PlannedPool], limits: Limits, check: FleetCheck) -> list[PlannedPool]:
    """Pools without replicas that no target needs, the dearest first."""
    found = list(pools)
    tried = True
    while tried:
        tried = False
        for place in sorted(range(len(found)), key=lambda row: -found[row].candidate.cost_usd_per_hour):
            if found[place].replicas > 1:
                fewer = [*found]
                fewer[place] = replace(found[place], replicas=found[place].replicas - 1)
                if cost_of(fewer, limits) <= cost_of(found, limits) and check.holds(fewer):
                    found, tried = fewer, True
    return found


def evened_over_fleet(pools: Sequence[PlannedKind], check: FleetCheck, solve: Solve) -> list[PlannedKind]:
    """The same pools with the load of each class split so that its targets have more room over the whole fleet.

    What a pool takes of each target at a load is under-fitted by lines; a linear program makes the largest sum over the
    pools of a class small. What comes out is predicted exactly, and kept only if it is better. Pools that classes share
    keep what they carry. Own construction.

    Args:
        pools: of a plan, every target met over the fleet.
        check: says what targets take.
        solve: the point that a program's optimum is at; None where it was not found.
    """
    found = list(pools)
    names = dict.fromkeys(one.name for item in pools for one in item.classes)
    for name in names:
        places = [
            place
            for place, item in enumerate(found)
            if isinstance(item, PlannedPool) and [one.name for one in item.classes] == [name]
        ]
        if len(places) < 2:
            continue
        mine = [item for item in found if any(one.name == name for one in item.classes)]
        own = [item for place in places if isinstance(item := found[place], PlannedPool)]
        better = _split(own, solve)
        if better is None:
            continue
        swapped = {id(old): new for old, new in zip(own, better, strict=True)}
        after = [swapped.get(id(item), item) for item in mine]
        if _worst_of(name, after) < _worst_of(name, mine) * (1.0 - _GAIN):
            candidate = [swapped.get(id(item), item) for item in found]
            found = candidate if check.holds(candidate) else found
    return found


def _worst_of(name: str, pools: Sequence[PlannedKind]) -> float:
    """Of the targets of one class, the most that is taken of one over what it allows, over its pools."""
    taken, allowed = np.zeros(1), np.ones(1)
    for item in pools:
        assert isinstance(item, PlannedPool)
        excesses, start = excesses_of(item, np.ones(1))[0], 0
        for one, share in zip(item.classes, item.shares, strict=True):
            if one.name == name:
                allowed = allowances(one)
                taken = taken + share * (excesses[start : start + len(one.slos)] + allowed)
            start += len(one.slos)
    return float(np.max(taken / allowed))


def _split(pools: Sequence[PlannedPool], solve: Solve) -> list[PlannedPool] | None:
    """Shares with the least worst target by the under-fits: sum_p taken_pw <= worst, lines_pw(share_p) <= taken_pw."""
    builder = ProgramBuilder()
    worst = builder.variable("worst", cost=1.0, upper=_MOST_WORSE, integer=False)
    item = pools[0].classes[0]
    allowed = allowances(item)
    sums: list[dict[int, float]] = [{worst: -1.0} for _ in item.slos]
    flows = []
    for number, pool in enumerate(pools):
        (share,) = pool.shares
        most = pool.replicas / float(unit_loads([pool.candidate], [item])[0])
        loads = _LOADS * min(most, 1.0)
        excess = np.maximum.accumulate(excesses_of(replace(pool, shares=(1.0,)), loads), axis=0)
        taken = loads[:, None] * (excess + allowed) / allowed
        stable = (taken < _MOST_WORSE).all(axis=1)
        if not stable.any():
            return None
        flow = builder.variable(f"share {number}", cost=0.0, upper=float(loads[stable].max()), integer=False)
        builder.row(f"kept {number}", {flow: 1.0}, ">=", min(_LEAST_PART * share, float(loads[stable].max())))
        flows.append(flow)
        for target in range(len(item.slos)):
            part = builder.variable(f"taken {number} {target}", cost=0.0, upper=_MOST_WORSE, integer=False)
            sums[target][part] = 1.0
            slopes, heights = lower_lines(loads[stable], taken[stable, target])
            for line, (slope, height) in enumerate(zip(slopes.tolist(), heights.tolist(), strict=True)):
                builder.row(f"line {number} {target} {line}", {flow: slope, part: -1.0}, "<=", -height)
    for target, row in enumerate(sums):
        builder.row(f"target {target}", row, "<=", 0.0)
    wanted = sum(pool.shares[0] for pool in pools)
    builder.row("cover", dict.fromkeys(flows, 1.0), ">=", wanted)
    values = solve(builder.build())
    if values is None:
        return None
    total = float(sum(values[flow] for flow in flows))
    return [
        replace(pool, shares=(float(values[flow]) * wanted / total,)) for pool, flow in zip(pools, flows, strict=True)
    ]
