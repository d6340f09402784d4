"""Among solutions that cost the same, the one that is planned."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from qmodel.optimize.linked_parts import settled
from qmodel.optimize.programs import Program
from qmodel.optimize.rounds import SAME_COST, Round
from qmodel.optimize.solvers import Solved, SolverOptions, solve_integer
from qmodel.optimize.stage_rows import PASSING
from qmodel.types import FloatArray

__all__ = ["each_period", "fewest_pools", "solve_within"]

_OF_ROOM = 0.1  # of a pool: what carrying all of a class counts against one pool less
_IN_ROWS = 0.5  # of a pool: what a class in pools in a row counts against one in unified pools
_COLUMN_GAP = 1e-6  # the master is small: solve it to the end, so that its gap is its own
_LEAST_TIME_S = 0.05


def each_period(step: Round, options: SolverOptions, deadline: float) -> FloatArray:
    """The solution, its pools joined later; where the dearest part counts, every other period at its least cost too.

    Args:
        step: with a solution.
        options: solver and gap.
        deadline: on the monotonic clock, s.
    """
    assert step.solved.values is not None
    left_s = max(deadline - time.monotonic(), _LEAST_TIME_S)
    return settled(
        step.master,
        step.solved.values,
        solver=options.name,
        mip_gap=min(_COLUMN_GAP, options.mip_gap),
        time_limit_s=left_s,
    )


def fewest_pools(step: Round, options: SolverOptions, deadline: float) -> FloatArray:
    """Among fleets that cost no more, the one with the fewest pools, and of those the one with the most room.

    Equal costs are common: prices per GPU are, and layouts trade GPUs for replicas.

    Args:
        step: with a solution.
        options: solver and gap.
        deadline: on the monotonic clock, s.
    """
    joined, master, values = step.master, step.master.program, step.solved.values
    assert values is not None
    if values[master.integer].sum() <= 1 or master.cost.size < 2:
        return values
    each = joined.spread([_room(step, number) for number in range(len(step.regimes))])
    cap = float(master.cost @ values) * (1.0 + SAME_COST)
    pools = np.where(master.integer, 1.0 - _OF_ROOM * each / max(float(each.max()), 1e-9), 0.0)
    in_rows = np.array([name.startswith(PASSING) for name in master.names])
    tie = replace(master.below(cap), cost=pools + _IN_ROWS * in_rows)
    found = solve_within(tie, options, deadline)
    return values if found.values is None else found.values


def _room(step: Round, regime: int) -> FloatArray:
    """What each column carries, of the variables of the single program of a regime."""
    columns = step.regimes[regime].columns
    size = step.master.places[step.master.regimes.index(regime)].size
    room = np.array([min(sum(column.shares.values()), float(len(column.shares))) for column in columns])
    return np.concatenate([room, np.zeros(size - room.size)])


def solve_within(program: Program, options: SolverOptions, deadline: float) -> Solved:
    """The optimum of a program, to the end or until a time on the monotonic clock.

    Args:
        program: arrays and names.
        options: solver and gap.
        deadline: on the monotonic clock, s.
    """
    left_s = max(deadline - time.monotonic(), _LEAST_TIME_S)
    return solve_integer(program, solver=options.name, mip_gap=min(_COLUMN_GAP, options.mip_gap), time_limit_s=left_s)
