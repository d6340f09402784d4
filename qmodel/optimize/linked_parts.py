"""Programs whose parts are linked by few rows: bounded by pricing the links, solved by turns.

Own construction from two textbook steps. The bound is Lagrangian: link rows leave the program and their duals in the
linear relaxation price what they hold, so that each part is a small integer program of its own (Geoffrion, Lagrangean
relaxation for integer programming, 1974). The solution starts there, and from one fleet for all periods; then the base
that is best for the parts and the parts that are best for the base are found in turn, which never costs more than
before. A solver that gets the program as a whole is often faster where it is small, so it is asked first, for a while.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from qmodel.optimize.joined_programs import JoinedProgram
from qmodel.optimize.parts import solve_in_parts
from qmodel.optimize.programs import Program
from qmodel.optimize.solvers import Solved, solve_relaxed
from qmodel.types import FloatArray, IntArray

__all__ = ["settled", "solve_linked"]

_MOST_TURNS = 6
_SAME = 1e-9  # relative; a saving below this is rounding
_DIRECT = 0.3  # of the time: for the program as a whole
_START = 0.2  # of what is left then: for one fleet that stands all day
_PARTS = 0.4  # of what is left then: for the parts at the prices of their links
_TURN = 0.5  # of what is left then: for each half of a turn


def solve_linked(
    joined: JoinedProgram,
    *,
    solver: str,
    mip_gap: float,
    time_limit_s: float,
    lasting: JoinedProgram | None = None,
    bound_only: bool = False,
) -> Solved:
    """Solve a program over periods of which each has its fleet.

    Args:
        joined: the program.
        solver, mip_gap: as for :func:`qmodel.optimize.solvers.solve_integer`.
        time_limit_s: for all of it.
        lasting: the same with one fleet for all periods: a start that costs no more than that fleet.
        bound_only: what matters is the bound; values are then those of the parts, links aside.
    """
    deadline = time.monotonic() + time_limit_s

    def solved(program: Program, share: float = 1.0) -> Solved:
        left_s = max((deadline - time.monotonic()) * share, 0.05)
        return solve_in_parts(program, solver=solver, mip_gap=mip_gap, time_limit_s=left_s)

    program, links = joined.program, np.flatnonzero(joined.origin < 0)
    whole = None if bound_only and links.size else solved(program, _DIRECT if links.size else 1.0)
    if whole is not None and (not links.size or whole.outcome != "time"):
        return whole
    relaxed = solve_relaxed(program, solver=solver, time_limit_s=max(deadline - time.monotonic(), 0.05))
    if relaxed is None:
        return whole or solved(program)
    start = None if lasting is None else solved(lasting.program, _START)
    priced, constant = _priced(program, links, relaxed[1])
    parts = solved(priced, 1.0 if bound_only else _PARTS)
    bound = max(parts.bound + constant, relaxed[0] - _SAME * abs(relaxed[0]))
    if parts.outcome == "infeasible" or whole is None:
        return replace(parts, bound=-np.inf if parts.outcome == "infeasible" else bound)
    bound, best = max(bound, whole.bound), whole.values
    for values in (_stood(joined, lasting, start), parts.values, best):
        found = None if values is None else _turns(joined, values, solved, deadline)
        if found is not None and (best is None or program.cost @ found < program.cost @ best):
            best = found
    if best is None:
        return replace(whole, bound=bound)
    cost = float(program.cost @ best)
    closed = cost - bound <= mip_gap * cost
    return Solved(
        values=best,
        objective=cost,
        bound=min(bound, cost),
        outcome="optimal" if closed else "time",
        words=whole.words,
    )


def settled(
    joined: JoinedProgram, values: FloatArray, *, solver: str, mip_gap: float, time_limit_s: float
) -> FloatArray:
    """A solution in which every period costs as little as its base allows, where the dearest part counts.

    Once the base is known the periods have nothing to do with each other. What a period costs that is not among the
    dearest does not count, so the program leaves it as it comes; here each is solved for itself, and takes the place of
    what was there where it costs less: neither the mean nor the dearest part can grow by that.
    """
    tail = joined.tail
    if tail is None:
        return values
    alone = replace(joined.program.without_rows(tail.rows.tolist()), cost=tail.mean_usd)

    def solved(program: Program, _: float = 1.0) -> Solved:
        return solve_in_parts(program, solver=solver, mip_gap=mip_gap, time_limit_s=time_limit_s)

    other = _fixed(alone, values, joined.base, solved)
    rows, own = joined.program.matrix[tail.rows].copy(), [tail.border, *tail.beyond.tolist()]
    rows[:, own] = 0.0
    found = values.copy()
    if other is not None:
        for number, places in enumerate(joined.places):
            if rows[number] @ other < rows[number] @ values:
                mine = np.union1d(places, np.flatnonzero(rows[number]))
                found[mine] = other[mine]
    costs, usd = rows @ found, joined.program.cost
    whole = [usd[tail.border] * eta + usd[tail.beyond] @ np.maximum(costs - eta, 0.0) for eta in costs]
    found[tail.border] = costs[int(np.argmin(whole))]  # convex and piecewise linear: least at one of the costs
    found[tail.beyond] = np.maximum(costs - found[tail.border], 0.0)
    return values if joined.program.violations(found) else found


def _stood(joined: JoinedProgram, lasting: JoinedProgram | None, start: Solved | None) -> FloatArray | None:
    """A fleet that stands all day as a point of the program, what is bought aside."""
    if lasting is None or start is None or start.values is None:
        return None
    values = np.zeros(len(joined.program.names))
    for places, point in zip(joined.places, lasting.points(start.values), strict=True):
        values[places] = point
    return values


def _priced(program: Program, links: IntArray, duals: FloatArray) -> tuple[Program, float]:
    """The program without its links, what they hold priced; and what the prices leave of those rows, a constant.

    Links are rows ``a x <= b``, whose duals are at most 0: a x - b costs -dual.
    """
    paid = np.maximum(-duals[links], 0.0)
    cost = program.cost + paid @ program.matrix[links]
    free = ~np.any(np.delete(program.matrix, links, axis=0) != 0.0, axis=0)  # held by links alone
    constant = float(np.minimum(cost[free], 0.0) @ program.upper[free]) - float(paid @ program.rhs[links])
    return replace(program.without_rows(links.tolist()), cost=np.where(free, 0.0, cost)), constant


def _turns(joined: JoinedProgram, values: FloatArray, solved: object, deadline: float) -> FloatArray | None:
    """The best of turns between the base and the fleets of each period; None where a start cannot be completed."""
    assert callable(solved)
    program = joined.program
    inside = np.setdiff1d(np.concatenate(joined.places), joined.bought)
    best: FloatArray | None = None
    for _ in range(_MOST_TURNS):
        completed = _fixed(program, values, inside, solved)
        if completed is None or program.violations(completed):
            return best
        cost = float(program.cost @ completed)
        if best is not None and cost >= float(program.cost @ best) * (1.0 - _SAME):
            return best
        best = completed
        again = _fixed(program, completed, joined.base, solved) if time.monotonic() < deadline else None
        if again is None:
            return best
        values = again
    return best


def _fixed(program: Program, values: FloatArray, kept: IntArray, solved: object) -> FloatArray | None:
    """The optimum where some variables stay what they are; None where there is none."""
    assert callable(solved)
    moves = np.ones(len(program.names), dtype=bool)
    moves[kept] = False
    where = np.flatnonzero(moves)
    rows = np.flatnonzero(np.any(program.matrix[:, where] != 0.0, axis=1))
    rest = replace(
        program,
        names=tuple(program.names[place] for place in where.tolist()),
        cost=program.cost[where],
        upper=program.upper[where],
        integer=program.integer[where],
        row_names=tuple(program.row_names[row] for row in rows.tolist()),
        matrix=program.matrix[np.ix_(rows, where)],
        senses=tuple(program.senses[row] for row in rows.tolist()),
        rhs=program.rhs[rows] - program.matrix[np.ix_(rows, kept)] @ values[kept],
    )
    found = solved(rest, _TURN)
    if found.values is None:
        return None
    whole = values.copy()
    whole[where] = found.values
    return whole
