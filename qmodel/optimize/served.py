"""How much of the demand a fleet within its limits can serve, important classes first."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates import ColumnSet
from qmodel.optimize.alternatives import each_once
from qmodel.optimize.formulation import bound_program, master_program
from qmodel.optimize.programs import Program
from qmodel.optimize.solvers import Solved, SolverOptions, solve_integer
from qmodel.types import FloatArray, Limits, RequestClass

__all__ = ["Served", "most_served"]

_KEPT = 1.0 - 1e-5  # of what is served of the more important classes: well beyond the tolerance of solvers, 1e-6
_LEAST_TIME_S = 0.05
_PROGRAM_GAP = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the integer program serves.

    Attributes:
        shares: of each class's demand, by name, in [0, 1].
        bounds_rps: by priority, requests per second of its classes that no fleet exceeds which serves as much of the
            more important ones; infinite where none was proven.
        in_time: the programs were solved to their end.
        words: the solver's own where it found nothing, else empty.
    """

    shares: Mapping[str, float]
    bounds_rps: Mapping[int, float]
    in_time: bool
    words: str = ""


def most_served(
    sets: Mapping[str, ColumnSet],
    classes: Mapping[str, Sequence[RequestClass]],
    limits: Limits,
    *,
    options: SolverOptions,
) -> Served:
    """Shares of the classes that a fleet within the limits serves, each request within every target of its class.

    Priorities are taken in turn, the largest first: the requests per second of its classes are made as many as can be,
    and kept while the next are looked at. Within one priority a request counts as a request. What is left open after
    that is settled by cost. Every column and blend stays what it is; only cover rows change, from
    ``sum theta y >= 1`` to ``sum theta y >= s`` with a share s in [0, 1] of each class.

    Args:
        sets: columns by group of classes that may share pools, with every count.
        classes: the classes of each group.
        limits: of the fleet.
        options: solver and time limit.
    """
    deadline = time.monotonic() + options.time_limit_s
    everyone = each_once(item for group in classes.values() for item in group)
    columns = [column for found in sets.values() for column in found.columns]
    blends = [blend for found in sets.values() for blend in found.blends()]
    open_pools = [item for found in sets.values() for item in found.open_pools]
    paid = limits.budget_usd_per_hour
    fleets = _served_program(master_program(columns, everyone, limits, blends, open_pools), len(everyone), paid)
    optimistic = _served_program(bound_program(sets, classes, limits).program, len(everyone), paid)
    cost = fleets.cost
    bounds: dict[int, float] = {}
    in_time = True
    solved: Solved | None = None
    for priority in sorted({item.priority for item in everyone}, reverse=True):
        rates = np.array([item.rate_rps if item.priority == priority else 0.0 for item in everyone])
        above = _solved(_maximised(optimistic, rates), options, deadline)
        bounds[priority] = -above.bound
        found = _solved(_maximised(fleets, rates), options, deadline)
        if found.values is None:
            if solved is None:
                return Served(shares={}, bounds_rps=bounds, in_time=found.outcome != "time", words=found.words)
            in_time = False  # what is served of the more important classes stands
            break
        solved = found
        in_time = in_time and solved.outcome != "time"
        served = float(rates @ found.values[-len(everyone) :])
        fleets, optimistic = (_kept(program, rates, served) for program in (fleets, optimistic))
    cheapest = _solved(replace(fleets, cost=cost), options, deadline)
    values = solved.values if cheapest.values is None and solved is not None else cheapest.values
    assert values is not None  # every level before was solved
    shares = np.clip(values[-len(everyone) :], 0.0, 1.0)
    return Served(
        shares={item.name: float(share) for item, share in zip(everyone, shares, strict=True)},
        bounds_rps=bounds,
        in_time=in_time,
    )


def _served_program(program: Program, classes: int, budget_usd_per_hour: float | None) -> Program:
    """The same with the shares that are served as last variables; only its cover rows ask for 1 and no less."""
    if budget_usd_per_hour is not None:
        program = program.below(budget_usd_per_hour)
    covers = np.flatnonzero((np.array(program.senses) == ">=") & (program.rhs == 1.0))
    shares = np.zeros((len(program.row_names), classes))
    shares[covers, np.arange(classes)] = -1.0
    rhs = program.rhs.copy()
    rhs[covers] = 0.0
    return replace(
        program,
        names=(*program.names, *(f"served_share_{number}" for number in range(classes))),
        cost=np.append(program.cost, np.zeros(classes)),
        upper=np.append(program.upper, np.ones(classes)),
        integer=np.append(program.integer, np.zeros(classes, dtype=bool)),
        matrix=np.hstack([program.matrix, shares]),
        rhs=rhs,
    )


def _maximised(program: Program, rates_rps: FloatArray) -> Program:
    cost = np.zeros(program.cost.size)
    cost[-rates_rps.size :] = -rates_rps
    return replace(program, cost=cost)


def _kept(program: Program, rates_rps: FloatArray, served_rps: float) -> Program:
    coefficients = np.zeros(program.cost.size)
    coefficients[-rates_rps.size :] = rates_rps
    return program.with_row(f"kept_{len(program.row_names)}", coefficients, ">=", served_rps * _KEPT)


def _solved(program: Program, options: SolverOptions, deadline: float) -> Solved:
    left = max(deadline - time.monotonic(), _LEAST_TIME_S)
    return solve_integer(program, solver=options.name, mip_gap=min(_PROGRAM_GAP, options.mip_gap), time_limit_s=left)
