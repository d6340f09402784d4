"""Programs that fall into parts without a row in common, solved one by one: their trees then add up, not multiply."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from qmodel.optimize.programs import Program
from qmodel.optimize.solvers import Solved, solve_integer
from qmodel.types import IntArray

__all__ = ["solve_in_parts"]

_LEAST_TIME_S = 0.05


def solve_in_parts(program: Program, *, solver: str, mip_gap: float, time_limit_s: float) -> Solved:
    """Solve an integer program, each part of it on its own; as :func:`qmodel.optimize.solvers.solve_integer`.

    Args:
        program, solver, mip_gap: as there.
        time_limit_s: for all parts together.
    """
    empty = ~np.any(program.matrix != 0.0, axis=1)
    if np.any(empty & np.where(np.array(program.senses) == ">=", program.rhs > 0.0, program.rhs < 0.0)):
        return Solved(values=None, objective=None, bound=-np.inf, outcome="infeasible", words="an empty row")
    parts = _parts(program)
    deadline = time.monotonic() + time_limit_s
    values = np.zeros(len(program.names))
    bound, outcomes, words, whole = 0.0, [], "", True
    for number, part in enumerate(parts):
        left_s = max(deadline - time.monotonic(), 0.0) / (len(parts) - number)
        found = solve_integer(
            _part(program, part), solver=solver, mip_gap=mip_gap, time_limit_s=max(left_s, _LEAST_TIME_S)
        )
        outcomes.append(found.outcome)
        bound += found.bound
        words = words if found.values is not None else found.words
        if found.outcome == "infeasible":
            return replace(found, bound=-np.inf)
        if found.values is None:
            whole = False
        else:
            values[part] = found.values
    worst = next((word for word in ("error", "time") if word in outcomes), "optimal")
    return Solved(
        values=values if whole else None,
        objective=float(program.cost @ values) if whole else None,
        bound=bound,
        outcome=worst,  # type: ignore[arg-type]  # one of the parts' own
        words=words,
    )


def _parts(program: Program) -> list[IntArray]:
    """Variables of each part, variables that no row holds in parts of their own left out at zero."""
    rows, columns = np.nonzero(program.matrix)
    size = program.matrix.shape[0]
    ones = np.ones(rows.size)
    graph = coo_array((ones, (rows, columns + size)), shape=(size + len(program.names),) * 2)
    labels = connected_components(graph, directed=False)[1]
    held = np.intersect1d(labels[:size], labels[size:])
    return [np.flatnonzero(labels[size:] == label) for label in held.tolist()]


def _part(program: Program, part: IntArray) -> Program:
    rows = np.flatnonzero(np.any(program.matrix[:, part] != 0.0, axis=1))
    return replace(
        program,
        names=tuple(program.names[place] for place in part.tolist()),
        cost=program.cost[part],
        upper=program.upper[part],
        integer=program.integer[part],
        row_names=tuple(program.row_names[row] for row in rows.tolist()),
        matrix=program.matrix[np.ix_(rows, part)],
        senses=tuple(program.senses[row] for row in rows.tolist()),
        rhs=program.rhs[rows],
        offers={},
        corners=(),
    )
