"""Choose pools where targets hold over all pools of a class together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates import Candidate, FleetWideColumns, LoadCurve
from qmodel.optimize.choice import shadow_prices
from qmodel.optimize.chosen_pools import ShadowPrice
from qmodel.optimize.fleet_wide_programs import Part, Place, WideProgram, wide_bound, wide_master
from qmodel.optimize.programs import Program
from qmodel.optimize.rounds import SAME_COST
from qmodel.optimize.solvers import Solved, SolverOptions, solve_integer, solve_relaxed
from qmodel.types import FloatArray, Limits, RequestClass

__all__ = ["WideChoice", "WidePool", "choose_fleet_wide"]

_MOST_ROUNDS = 20
_PATIENCE = 3  # rounds in which the bound may stand still after that
_ALL_POOLS = 2  # the round in which a fleet is looked for among all pools, once before the end
_RISE = 1e-3  # of the bound: less is standing still, and pools are then held to one load each
_TOLERANCE = 1e-5  # of a row: many small flows add up; what comes out is scaled and predicted exactly
_TIGHT = 2e-4  # relative width at which a part of a curve is known well enough
_COARSE = 0.03  # of other parts of a curve in use
_LEAST_FLOW = 1e-6  # of a class: less is rounding
_LEAST_TIME_S = 0.05
_OF_TIME = 0.2  # of what is left: for one look at pools that are held to one load each
_OF_GAP = 0.4  # of the gap asked for: what the programs may leave open


@dataclass(frozen=True, slots=True, kw_only=True)
class WidePool:
    """A pool that was chosen.

    Attributes:
        shares: of the demand of each class, by name.
    """

    candidate: Candidate
    replicas: int
    shares: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WideChoice:
    """What the programs say.

    Attributes:
        pools: of a fleet that costs less than the one that was known; empty: none was found.
        bound_usd_per_hour: on every fleet, minus infinity where none was found.
        cost_usd_per_hour: of the pools; infinite without any.
        columns_bound_usd_per_hour: on fleets of the pools and loads that were looked at.
        prices: of demand and limits.
        ruled_out: whether no fleet exists.
        in_time: the programs were solved to their end.
        master: the last program of fleets.
    """

    pools: tuple[WidePool, ...]
    bound_usd_per_hour: float
    cost_usd_per_hour: float
    columns_bound_usd_per_hour: float
    prices: tuple[ShadowPrice, ...]
    ruled_out: bool
    in_time: bool
    master: Program


def choose_fleet_wide(
    groups: Mapping[str, FleetWideColumns],
    classes: Sequence[RequestClass],
    limits: Limits,
    *,
    known_usd_per_hour: float,
    options: SolverOptions,
) -> WideChoice:
    """A fleet that costs less than one that is known, or that none does by more than the gap.

    The relaxation and the master are solved, then all pools in use are looked at closer at the loads in use, until the
    two agree within the gap or every part of a curve in use is narrow.

    Args:
        groups: pools by group of classes that may share them.
        classes: to be covered.
        limits: of the fleet.
        known_usd_per_hour: cost of a fleet that is known, whose targets hold in every pool; infinite: none is.
        options: solver, gap and time limit.
    """
    deadline = time.monotonic() + options.time_limit_s
    best, bound, columns_bound, pools = known_usd_per_hour, -np.inf, -np.inf, tuple[WidePool, ...]()
    in_time = ruled_out = apart = False
    stalled = 0
    for number in range(_MOST_ROUNDS):
        relaxation = wide_bound(groups, classes, limits, apart=apart)
        until = _part_of(deadline) if apart else deadline
        relaxed = _improved(relaxation.program, best, options, until)
        stands = relaxed.bound < bound + _RISE * abs(bound)
        bound, in_time = max(bound, relaxed.bound), relaxed.outcome != "time"
        ruled_out = relaxed.outcome == "infeasible"
        if ruled_out or _closed(best, bound, options):
            break
        stalled = stalled + 1 if apart and stands else 0
        ending = relaxed.values is None or stalled > _PATIENCE
        apart = apart or stands
        looks: dict[Place, list[float]] = {}
        if relaxed.values is not None:
            _look_closer(looks, groups, relaxation, relaxed.values)
        if number:  # the first looks are too coarse for a fleet that is worth having
            master, solved = None, None
            if relaxed.values is not None:
                only = _near(groups, relaxation, relaxed.values)
                master, solved = _fleet(groups, classes, limits, best, options, deadline, only)
            if (solved is None or solved.objective is None) and (ending or number == _ALL_POOLS):
                master, solved = _fleet(groups, classes, limits, best, options, deadline, None)
                columns_bound = solved.bound
            if master is not None and solved is not None and solved.values is not None and solved.objective is not None:
                best, pools = solved.objective, _pools(groups, master, solved.values)
                if _closed(best, bound, options):
                    break
                _look_at_loads(looks, groups, master, solved.values)
                stalled = 0
            elif ending:
                break
        closer = _looked_at(groups, looks)
        if closer is groups and apart:
            break
        apart = apart or closer is groups
        groups = closer
        if time.monotonic() > deadline:
            in_time = False
            break
    last = wide_master(groups, classes, limits).program
    duals = solve_relaxed(last, solver=options.name)
    return WideChoice(
        pools=pools,
        bound_usd_per_hour=bound,
        cost_usd_per_hour=best if pools else np.inf,
        columns_bound_usd_per_hour=max(columns_bound, bound),
        prices=() if duals is None else shadow_prices(duals[1], classes, limits),
        ruled_out=ruled_out,
        in_time=in_time,
        master=last,
    )


def _part_of(deadline: float) -> float:
    """When a solve must end that may take a part of the time left only."""
    now = time.monotonic()
    return now + (deadline - now) * _OF_TIME


def _fleet(
    groups: Mapping[str, FleetWideColumns],
    classes: Sequence[RequestClass],
    limits: Limits,
    known: float,
    options: SolverOptions,
    deadline: float,
    only: Mapping[Place, int] | None,
) -> tuple[WideProgram, Solved]:
    """A fleet that costs less than one that is known: of some pools with the most of each, or of all pools."""
    master = wide_master(groups, classes, limits, only=only)
    return master, _improved(master.program, known, options, _part_of(deadline))


def _improved(program: Program, known: float, options: SolverOptions, deadline: float) -> Solved:
    """The program's optimum, or that nothing costs less, by more than the gap, than a fleet that is known."""
    left = max(deadline - time.monotonic(), _LEAST_TIME_S)
    gap = options.mip_gap * _OF_GAP
    if not np.isfinite(known):
        return solve_integer(program, solver=options.name, mip_gap=gap, time_limit_s=left, tolerance=_TOLERANCE)
    cut = known * (1.0 - max(SAME_COST, options.mip_gap))
    below = program.below(cut)
    found = solve_integer(below, solver=options.name, mip_gap=gap, time_limit_s=left, tolerance=_TOLERANCE)
    if found.outcome == "infeasible":
        return replace(found, bound=cut, outcome="optimal")
    return replace(found, bound=min(found.bound, cut))


def _closed(cost: float, bound: float, options: SolverOptions) -> bool:
    return bool(np.isfinite(cost)) and cost - bound <= max(options.mip_gap, SAME_COST) * cost * (1.0 + 1e-9)


def _curve(groups: Mapping[str, FleetWideColumns], part: Part) -> LoadCurve:
    wide = groups[part.group].classes[part.place]
    return (wide.tops if part.top else wide.pools)[part.curve]


def _look_closer(
    looks: dict[Place, list[float]],
    groups: Mapping[str, FleetWideColumns],
    relaxation: WideProgram,
    values: FloatArray,
) -> None:
    """Loads within the parts of curves that the relaxation uses, where these are not narrow."""
    used = {part.of for part in relaxation.parts if values[part.flow] > _LEAST_FLOW}
    for part in relaxation.parts:
        curve = _curve(groups, part)
        width = curve.width(part.part)
        if values[part.flow] > _LEAST_FLOW and width > _TIGHT:
            each = values[part.flow] / max(values[part.count], 1.0) * (curve.replicas if part.top else 1)
            looks.setdefault(part.of, []).extend(curve.middles(part.part, float(each)))
        elif part.of in used and part.part and width > _COARSE:  # else the relaxation goes there next
            looks.setdefault(part.of, []).append(float(curve.loads[part.part] + curve.ends[part.part]) / 2.0)


def _near(groups: Mapping[str, FleetWideColumns], relaxation: WideProgram, values: FloatArray) -> dict[Place, int]:
    """Pools that the relaxation uses and those of nearly as many replicas, with the most of each: one more than there.

    What costs as little as a fleet can is found among few pools; to find that nothing does among all takes long.
    """
    used: dict[Place, int] = {}
    for count, part in {part.count: part for part in relaxation.parts}.items():
        if values[count] > 0:
            used[part.of] = used.get(part.of, 0) + int(values[count])
    found: dict[Place, int] = {}
    for (group, place, top, number), count in used.items():
        wide = groups[group].classes[place]
        curve = (wide.tops if top else wide.pools)[number]
        for other, pool in enumerate(wide.pools):
            if pool.candidate is curve.candidate and (top or abs(pool.replicas - curve.replicas) <= 1):
                key = (group, place, False, other)
                found[key] = max(found.get(key, 0), count + 1)
    return found


def _look_at_loads(
    looks: dict[Place, list[float]],
    groups: Mapping[str, FleetWideColumns],
    master: WideProgram,
    values: FloatArray,
) -> None:
    """Loads that pools of the master carry, where they carry less than they were looked at with."""
    for part in master.parts:
        if values[part.flow] > _LEAST_FLOW:
            curve, each = _curve(groups, part), float(values[part.flow] / values[part.count])
            if each < curve.loads[part.part] * (1.0 - _TIGHT):
                looks.setdefault(part.of, []).append(each)


def _looked_at(
    groups: Mapping[str, FleetWideColumns], looks: Mapping[Place, Sequence[float]]
) -> Mapping[str, FleetWideColumns]:
    """The groups with the looks taken; the same where all are known."""
    found = dict(groups)
    changed = False
    for group, columns in groups.items():
        classes = list(columns.classes)
        for place, wide in enumerate(columns.classes):
            pools, tops = (
                [looks.get((group, place, top, number), ()) for number in range(len(curves))]
                for top, curves in ((False, wide.pools), (True, wide.tops))
            )
            if any(pools) or any(tops):
                classes[place] = wide.looked_at(pools, tops)
                before, after = (
                    sum(curve.loads.size for curve in (*item.pools, *item.tops)) for item in (wide, classes[place])
                )
                changed = changed or after > before
        found[group] = replace(columns, classes=tuple(classes))
    return found if changed else groups


def _pools(groups: Mapping[str, FleetWideColumns], master: WideProgram, values: FloatArray) -> tuple[WidePool, ...]:
    """The pools of a solution; those that count together share what they carry evenly."""
    found: list[WidePool] = []
    for part in master.parts:
        count, share = int(values[part.count]), float(values[part.flow])
        if count > 0 and share > _LEAST_FLOW:
            curve = _curve(groups, part)
            one, name = curve.candidate, curve.item.name
            if one.adds_up:
                found.append(WidePool(candidate=one, replicas=curve.replicas * count, shares={name: share}))
            else:
                found += [WidePool(candidate=one, replicas=curve.replicas, shares={name: share / count})] * count
    for shared in master.shared:
        count = int(values[shared.count])
        shares = {name: float(values[flow]) for name, flow in shared.flows.items() if values[flow] > _LEAST_FLOW}
        if count > 0 and shares:
            each = {name: share / count for name, share in shares.items()}
            pool = WidePool(candidate=shared.column.candidate, replicas=shared.column.replicas, shares=each)
            found += [pool] * count
    return tuple(found)
