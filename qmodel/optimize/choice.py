"""Choose pools: solve the master, bound the whole problem, read prices."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from qmodel.candidates import Column, ColumnSet
from qmodel.optimize.formulation import bound_program, master_program
from qmodel.optimize.programs import Program
from qmodel.optimize.solvers import Solved, SolverOptions, solve_integer, solve_relaxed
from qmodel.types import FloatArray, RequestClass

__all__ = ["Choice", "ShadowPrice", "choose"]

Outcome = Literal["solved", "infeasible", "unsettled", "time", "error"]
_WITHOUT: Mapping[str, Outcome] = {"infeasible": "unsettled", "time": "time"}  # by what the master ended with
_SAME_COST = 1e-9  # relative; costs that differ by rounding are the same
_ROOM = 0.1  # of a pool: what carrying all of a class counts against one pool less
_COLUMN_GAP = 1e-6  # the master is small: solve it to the end, so that its gap is its own


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowPrice:
    """Change of the least cost per unit of one limit, from the relaxed master.

    Attributes:
        kind: ``cover`` (one request/s more of a class) or ``stock`` (one GPU more of a type).
        name: class or GPU type.
        usd_per_hour: per unit.
    """

    kind: Literal["cover", "stock"]
    name: str
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What the integer program chose.

    Attributes:
        chosen: columns with their counts, at least 1; empty where there is no fleet.
        outcome: ``solved``; ``infeasible``: no fleet exists; ``unsettled``: no fleet of these columns, others
            are not ruled out; ``time`` or ``error``.
        bound_usd_per_hour: on every fleet; minus infinity where none was found.
        columns_bound_usd_per_hour: on fleets made of these columns.
        words: the solver's own, kept for diagnosis.
    """

    chosen: tuple[tuple[Column, int], ...]
    outcome: Outcome
    bound_usd_per_hour: float
    columns_bound_usd_per_hour: float
    prices: tuple[ShadowPrice, ...]
    words: str

    def fits(self, stock: Mapping[str, int]) -> bool:
        """Whether the chosen pools take no more GPUs of any type than there are."""
        return all(
            sum(column.gpus * count for column, count in self.chosen if column.candidate.gpu == gpu) <= limit
            for gpu, limit in stock.items()
        )


def choose(
    sets: Mapping[str, ColumnSet],
    classes: Mapping[str, Sequence[RequestClass]],
    stock: Mapping[str, int],
    *,
    options: SolverOptions,
) -> Choice:
    """Least-cost counts of columns that cover every class within stock, and a bound on any fleet.

    The relaxation is solved first: where every model has one class its optimum is a
    fleet, and if the feasible side of the frontier carries it too, it is the answer and
    its own bound.

    Args:
        sets: columns by model.
        classes: classes by model.
        stock: GPUs by type, for the limited types.
        options: solver, gap and time limit.
    """
    deadline = time.monotonic() + options.time_limit_s
    columns = [column for found in sets.values() for column in found.columns]
    everyone = [item for group in classes.values() for item in group]
    master = master_program(columns, everyone, stock)
    relaxed = _solve(bound_program(sets, classes, stock), options, deadline)
    exact = all(found.complete and len(classes[model]) == 1 for model, found in sets.items())
    if relaxed.outcome == "infeasible":
        return _nothing("infeasible", relaxed)
    if exact and relaxed.values is not None and not master.violations(relaxed.values):
        solved = relaxed
    else:
        solved = _solve(master, options, deadline)
    bound = max(relaxed.bound, 0.0) if np.isfinite(relaxed.bound) else -np.inf
    if solved.values is None:
        return _nothing(_WITHOUT.get(solved.outcome, "error"), solved, bound)
    counts = _fewest_pools(master, columns, solved.values, options, deadline)
    return Choice(
        chosen=tuple((c, int(n)) for c, n in zip(columns, counts, strict=True) if n > 0),
        outcome="time" if solved.outcome == "time" else "solved",
        bound_usd_per_hour=bound,
        columns_bound_usd_per_hour=solved.bound,
        prices=_prices(master, everyone, stock, options.name),
        words=solved.words,
    )


def _fewest_pools(
    master: Program, columns: Sequence[Column], values: FloatArray, options: SolverOptions, deadline: float
) -> FloatArray:
    """Among fleets that cost no more, the one with the fewest pools, and of those the one with the most room.

    Equal costs are common: prices per GPU are, and layouts trade GPUs for replicas.
    """
    if values.sum() <= 1 or len(columns) < 2:
        return values
    room = np.array([min(sum(column.shares.values()), float(len(column.shares))) for column in columns])
    cap = float(master.cost @ values) * (1.0 + _SAME_COST)
    tie = replace(
        master,
        cost=1.0 - _ROOM * room / max(float(room.max()), 1e-9),
        row_names=(*master.row_names, "cost_no_more"),
        matrix=np.vstack([master.matrix, master.cost]),
        senses=(*master.senses, "<="),
        rhs=np.append(master.rhs, cap),
    )
    found = _solve(tie, options, deadline)
    return values if found.values is None else found.values


def _nothing(outcome: Outcome, solved: Solved, bound_usd_per_hour: float = -np.inf) -> Choice:
    return Choice(
        chosen=(),
        outcome=outcome,
        bound_usd_per_hour=bound_usd_per_hour,
        columns_bound_usd_per_hour=solved.bound,
        prices=(),
        words=solved.words,
    )


def _solve(program: Program, options: SolverOptions, deadline: float) -> Solved:
    left = max(deadline - time.monotonic(), 0.05)
    return solve_integer(program, solver=options.name, mip_gap=min(_COLUMN_GAP, options.mip_gap), time_limit_s=left)


def _prices(
    master: Program, classes: Sequence[RequestClass], stock: Mapping[str, int], solver: str
) -> tuple[ShadowPrice, ...]:
    relaxed = solve_relaxed(master, solver=solver)
    if relaxed is None:
        return ()
    duals: FloatArray = relaxed[1]
    prices = [
        ShadowPrice(kind="cover", name=item.name, usd_per_hour=float(dual) / item.rate_rps)
        for item, dual in zip(classes, duals[: len(classes)], strict=True)
    ]
    # cover rows come first, then one stock row per limited type, in the order of ``stock``
    prices += [
        ShadowPrice(kind="stock", name=gpu, usd_per_hour=float(dual))
        for gpu, dual in zip(stock, duals[len(classes) :], strict=True)
        if abs(dual) > 1e-9
    ]
    return tuple(prices)
