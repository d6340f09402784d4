"""Fleets for many classes of one model: proposed by the rows of the relaxation, corrected where pools carry less.

Own construction. The relaxation says what replicas carry at most. Its optimum is a fleet with a mix for every pool.
Each mix is looked at, and where a pool carries less of it, the rows of its candidate and level count for as much more
as it takes. The corrected program is solved again, until a fleet carries all that it promises or none is left that
costs less than the best one known. Corrections guide this search only; they never enter the bound.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates import Column, ColumnSet, carried_of
from qmodel.optimize.formulation import bound_program
from qmodel.optimize.level_rows import Flow
from qmodel.optimize.solvers import SolverOptions, solve_integer
from qmodel.optimize.stage_rows import Columns
from qmodel.types import FloatArray, Limits

__all__ = ["with_proposals"]

_MOST_TURNS = 8  # of correcting rows
_LEAST_PART = 1e-6  # of a class: less is rounding
_ROOM = 1e-3  # of a mix: what its pool must carry beyond it when its rows are corrected
_NEVER = 1e3  # factor on rows of a mix that is not carried at all
_GAP = 0.01  # of a program that only looks for a fleet, and what a fleet must save to be worth a look
_OF_LEFT = 0.2  # of what time is left: for one of them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pool:
    """A pool of a proposal with what it is to carry, and how much of that it surely and likely does."""

    flow: Flow
    replicas: int
    mix: FloatArray
    carried: float
    likely: float


def with_proposals(
    sets: Mapping[str, ColumnSet],
    demand: Columns,
    limits: Limits,
    *,
    options: SolverOptions,
    cost_usd_per_hour: float,
    deadline: float,
) -> Mapping[str, ColumnSet]:
    """The same with the pools of fleets that cost less than one that is known; the same set where none was found.

    Args:
        sets: columns by group of classes that may share pools.
        demand: the classes.
        limits: of the fleet.
        options: solver and gap.
        cost_usd_per_hour: of the best fleet known, infinite without one.
        deadline: on the monotonic clock, s.
    """
    strain: dict[tuple[str, int, int], float] = {}
    found = dict(sets)
    cut = cost_usd_per_hour * (1.0 - max(_GAP, options.mip_gap))
    for _ in range(_MOST_TURNS):
        left_s = deadline - time.monotonic()
        if left_s <= 0.0:
            break
        search = bound_program(demand.bounding(sets), demand.classes, limits, demand.stages.bounding, strain)
        program = search.program.below(cut) if np.isfinite(cut) else search.program
        solved = solve_integer(program, solver=options.name, mip_gap=_GAP, time_limit_s=max(left_s * _OF_LEFT, 0.05))
        if solved.values is None or solved.objective is None:
            break
        pools = [
            _looked_at(sets[flow.group], flow, solved.values)
            for flow in search.flows
            if flow.level >= 0 and solved.values[flow.count] > 0.5
        ]
        pools = [item for item in pools if item.mix.any()]
        for item in pools:
            if item.carried > 0.0:
                group = item.flow.group
                found[group] = replace(found[group], columns=(*found[group].columns, _column(found[group], item)))
        missed = [item for item in pools if item.carried < 1.0]
        if not missed:
            break
        for item in missed:
            key = (item.flow.group, item.flow.position, item.flow.level)
            rows = sets[item.flow.group].levels[item.flow.position][item.flow.level].rows
            taken = float((rows @ item.mix).max()) * item.likely / item.replicas  # of what it carries
            strain[key] = min(max((1.0 + _ROOM) / taken, strain.get(key, 1.0)), _NEVER) if taken > 0.0 else _NEVER
    return found if any(found[group] is not item for group, item in sets.items()) else sets


def _looked_at(found: ColumnSet, flow: Flow, values: FloatArray) -> _Pool:
    """A pool with all replicas that a program has of a candidate and level."""
    mix = np.zeros(len(found.classes))
    for place, variable in flow.shares.items():
        mix[place] = values[variable] if values[variable] > _LEAST_PART else 0.0
    count = round(float(values[flow.count]))
    carried = likely = 0.0
    if mix.any():
        load = [item.part(part) for item, part in zip(found.classes, mix.tolist(), strict=True) if part > 0.0]
        carried, likely = carried_of(found.candidates[flow.position], load, count)
    return _Pool(flow=flow, replicas=count, mix=mix, carried=carried, likely=likely)


def _column(found: ColumnSet, pool: _Pool) -> Column:
    shares = {
        item.name: min(part * pool.carried, 1.0)
        for item, part in zip(found.classes, pool.mix.tolist(), strict=True)
        if part > 0.0
    }
    candidate = found.candidates[pool.flow.position]
    return Column(candidate=candidate, replicas=pool.replicas, shares=shares, upper=shares)
