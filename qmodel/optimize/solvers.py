"""The one place that speaks to PuLP and to the solvers behind it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from qmodel.errors import SolverUnavailableError
from qmodel.optimize.programs import Program
from qmodel.types import FloatArray

__all__ = [
    "Solved",
    "SolverOptions",
    "cancelled",
    "check_solver",
    "solve_integer",
    "solve_relaxed",
    "solved_point",
    "stopped_by",
]

_LOOK_S = 0.1  # between two looks at whether a search was cancelled
_CANCEL: ContextVar[Callable[[], bool] | None] = ContextVar("cancel", default=None)

Outcome = Literal["optimal", "infeasible", "time", "error"]
_NOT_RUN = "Not Set"  # what HiGHS says of a model that it did not look at
_INSTALL = {
    "highs": "pip install highspy",
    "cbc": "pip install 'pulp[cbc]' (or a system package that has the 'cbc' command)",
    "scip": "pip install pyscipopt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverOptions:
    """Which solver, and when it may stop.

    Attributes:
        name: ``highs``, ``cbc`` or ``scip``.
        mip_gap: relative gap between plan and bound at which a plan counts as optimal.
        time_limit_s: for all integer programs of one plan together.
    """

    name: str = "highs"
    mip_gap: float = 0.005
    time_limit_s: float = 30.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.mip_gap < 1.0:
            raise ValueError(f"mip_gap must be in [0, 1) (got {self.mip_gap!r})")
        if not self.time_limit_s > 0.0:
            raise ValueError(f"time_limit_s must be greater than 0 (got {self.time_limit_s!r})")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """What a solver said, in our words.

    Attributes:
        values: best point found, shape (V,), integers rounded; None without one.
        objective: cost of that point, computed here; None without one.
        bound: proven lower bound on the program; minus infinity where the solver gives none.
        outcome: ``optimal``, ``infeasible``, ``time`` (stopped by the limit) or ``error``.
        words: the solver's own.
    """

    values: FloatArray | None
    objective: float | None
    bound: float
    outcome: Outcome
    words: str


@contextmanager
def stopped_by(cancel: Callable[[], bool] | None) -> Iterator[None]:
    """What is solved inside stops soon after ``cancel`` gives a true answer, as if its time were over.

    HiGHS stops within a fraction of a second; other solvers finish what they are at.
    """
    token = _CANCEL.set(cancel)
    try:
        yield
    finally:
        _CANCEL.reset(token)


def cancelled() -> bool:
    """Whether what is solved here is to stop."""
    cancel = _CANCEL.get()
    return cancel is not None and cancel()


def check_solver(name: str) -> None:
    """Do nothing for a solver that is installed.

    Raises:
        SolverUnavailableError: with the names known, or the install command.
    """
    if name not in _INSTALL:
        raise SolverUnavailableError(f"no solver '{name}'; known: {', '.join(_INSTALL)}")
    if not _backend(name, mip=True, gap=0.0, seconds=1.0).available():
        raise SolverUnavailableError(f"solver '{name}' is not installed; to install it: {_INSTALL[name]}")


def solve_integer(
    program: Program, *, solver: str, mip_gap: float, time_limit_s: float, tolerance: float = 1e-6
) -> Solved:
    """Solve the integer program.

    The objective and feasibility of the point are recomputed from the arrays; a point
    that breaks a row is reported as an error, whatever the solver calls it.

    Args:
        program: arrays and names.
        solver: checked by :func:`check_solver`.
        mip_gap: relative gap at which the solver may stop.
        time_limit_s: wall-clock limit.
        tolerance: by which a row may be off.
    """
    problem, variables = _model(program, integer=True)
    try:
        answer = _answer(problem, solver, mip=True, gap=mip_gap, seconds=time_limit_s)
        return _read(program, problem, variables, answer, mip_gap, tolerance)
    except Exception as error:  # solvers raise anything; the cause is kept in words
        return Solved(values=None, objective=None, bound=-np.inf, outcome="error", words=_cause(error))


def solved_point(program: Program, options: SolverOptions) -> FloatArray | None:
    """The point at a program's optimum, None where it was not found: for programs that are small and an extra."""
    return solve_integer(program, solver=options.name, mip_gap=0.0, time_limit_s=options.time_limit_s).values


def solve_relaxed(program: Program, *, solver: str, time_limit_s: float = 60.0) -> tuple[float, FloatArray] | None:
    """Optimum and row duals of the program without integrality; None where it has no optimum, or not in time.

    Args:
        program: arrays and names.
        solver: checked by :func:`check_solver`.
        time_limit_s: wall-clock limit.

    Returns:
        Objective, and the change of the objective per unit of each right-hand side, shape (R,).
    """
    problem, variables = _model(program, integer=False)
    try:
        answer = _answer(problem, solver, mip=False, gap=0.0, seconds=time_limit_s)
    except Exception:  # prices are an extra: a plan without them is still a plan
        return None
    if _words(problem, answer)[1]:
        return None
    values = [variable.varValue for variable in variables]
    if any(value is None for value in values):
        return None
    duals = [problem.get_constraint_by_name(name).pi for name in program.row_names]
    if any(dual is None for dual in duals):
        return None
    return float(program.cost @ np.array(values)), np.array(duals, dtype=float)


def _model(program: Program, *, integer: bool) -> tuple[Any, list[Any]]:
    import pulp

    # from pairs: sums of products make one expression per term, which takes longer than the solver does
    linear = getattr(pulp.LpAffineExpression, "from_list", pulp.LpAffineExpression)  # PuLP 4, PuLP 3
    problem = pulp.LpProblem("fleet", pulp.LpMinimize)
    variables = [
        problem.add_variable(name, 0.0, upper, cat="Integer" if integer and whole else "Continuous")
        for name, upper, whole in zip(program.names, program.upper.tolist(), program.integer.tolist(), strict=True)
    ]
    paid = np.flatnonzero(program.cost)
    problem.setObjective(
        linear([(variables[i], cost) for i, cost in zip(paid, program.cost[paid].tolist(), strict=True)])
    )
    for name, row, sense, rhs in zip(
        program.row_names, program.matrix, program.senses, program.rhs.tolist(), strict=True
    ):
        used = np.flatnonzero(row)
        left = linear([(variables[i], value) for i, value in zip(used, row[used].tolist(), strict=True)])
        problem.addConstraint(left >= rhs if sense == ">=" else left <= rhs, name)
    return problem, variables


def _answer(problem: Any, name: str, *, mip: bool, gap: float, seconds: float) -> Any:
    """What a solver answers to a problem.

    HiGHS keeps its workers for the thread that calls it, and refuses to run with another number of them: where that
    thread used it before in some other way, it is asked again without a number.
    """
    with _quiet_stdout():
        answer = problem.solve(_backend(name, mip=mip, gap=gap, seconds=seconds))
        if name == "highs" and _words(problem, answer)[0] == _NOT_RUN:
            answer = problem.solve(_backend(name, mip=mip, gap=gap, seconds=seconds, alone=False))
    return answer


def _backend(name: str, *, mip: bool, gap: float, seconds: float, alone: bool = True) -> Any:
    import pulp

    if name == "highs":
        # on programs of this size the feasibility jump costs 12 ms a solve and finds nothing; restarts and fixing by
        # reduced costs, and neighbourhoods of the relaxation (RINS), solve parts of them several times over; a second
        # worker looks at more nodes, not for less time, and spins for 8 ms when it has nothing to do
        quick: dict[str, bool | str] = {
            "mip_heuristic_run_feasibility_jump": False,
            "mip_heuristic_run_root_reduced_cost": False,
            "mip_heuristic_run_rins": False,
            "mip_allow_restart": False,
            "parallel": "off",
        }
        highs, workers = _interruptible_highs(), 1 if alone else None
        return highs(mip=mip, msg=False, gapRel=gap, timeLimit=seconds, random_seed=1, threads=workers, **quick)
    if name == "scip":
        return pulp.SCIP_PY(mip=mip, msg=False, gapRel=gap, timeLimit=seconds)
    bundled = getattr(pulp, "PULP_CBC_CMD", None)
    chosen = bundled if bundled is not None and bundled(msg=False).available() else pulp.COIN_CMD
    return chosen(mip=mip, msg=False, gapRel=gap, timeLimit=seconds)


@cache
def _interruptible_highs() -> Any:
    """HiGHS that stops soon after Ctrl-C and after its search was cancelled."""
    import pulp
    from highspy import cb

    class InterruptibleHighs(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no types
        def callSolver(self, lp: Any) -> None:
            with _signals() as interrupted:
                looked_s = time.monotonic()

                def look(kind: Any, message: str, told: Any, answer: Any, data: Any) -> None:
                    nonlocal looked_s
                    now_s = time.monotonic()
                    if interrupted() or (now_s - looked_s > _LOOK_S and cancelled()):
                        answer.user_interrupt = True
                    elif now_s - looked_s > _LOOK_S:
                        looked_s = now_s

                model = lp.solverModel
                model.setCallback(look, None)
                for kind in (
                    cb.HighsCallbackType.kCallbackMipInterrupt,
                    cb.HighsCallbackType.kCallbackSimplexInterrupt,
                ):
                    model.startCallback(kind)
                try:
                    model.run()
                finally:
                    model.setCallback(None, None)

    return InterruptibleHighs


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Keep an interrupt back while a solver runs, which no exception may pass; it is raised when the solver is done.

    Yields:
        Whether one has come. Other threads than the first get no signals.
    """
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    first = threading.current_thread() is threading.main_thread() and callable(before)
    if first:
        signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield lambda: bool(came)
    finally:
        if first:
            signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def _read(
    program: Program, problem: Any, variables: list[Any], answer: Any, mip_gap: float, tolerance: float
) -> Solved:
    raw = [variable.varValue for variable in variables]
    words, timed_out = _words(problem, answer)
    infeasible = "infeasible" in words.lower()
    if infeasible or any(value is None for value in raw):
        outcome: Outcome = "infeasible" if infeasible else ("time" if timed_out else "error")
        shown = _dual_bound(problem, answer) if outcome == "time" else None
        bound = -np.inf if shown is None else shown
        return Solved(values=None, objective=None, bound=bound, outcome=outcome, words=words)
    values = np.array(raw, dtype=float)
    values[program.integer] = np.round(values[program.integer])
    broken = program.violations(values, tolerance)
    if broken:
        outcome = "time" if timed_out else "error"
        proven = _dual_bound(problem, answer) if timed_out else None  # it does not rest on the point
        words = f"{words}; breaks {broken[0]}"
        below = -np.inf if proven is None else proven
        return Solved(values=None, objective=None, bound=below, outcome=outcome, words=words)
    objective = float(program.cost @ values)
    whole = bool(program.integer.any())
    known = _dual_bound(problem, answer) if whole or timed_out else objective  # a linear program ends at its optimum
    if known is None:  # the layer hands none on: an end that no limit caused is within the gap that was asked for
        known = -np.inf if timed_out else objective - mip_gap * abs(objective)
    return Solved(
        values=values,
        objective=objective,
        bound=min(known, objective),
        outcome="time" if timed_out else "optimal",
        words=words,
    )


def _cause(error: Exception) -> str:
    """What went wrong, in words: the layer's own, or that it could not make sense of what the solver left."""
    import pulp

    if isinstance(error, pulp.PulpError):
        return str(error) or repr(error)
    return f"its answer could not be read ({type(error).__name__}: {error})"


def _words(problem: Any, answer: Any) -> tuple[str, bool]:
    """The solver's status in words, and whether a limit stopped it."""
    import pulp

    model = getattr(problem, "solverModel", None)
    if model is not None and hasattr(model, "getModelStatus"):
        words = model.modelStatusToString(model.getModelStatus())
        return words, "limit" in words.lower() or "interrupt" in words.lower()
    words = str(answer) if not isinstance(answer, int) else pulp.LpStatus[answer]
    stopped = getattr(problem, "sol_status", 1) == getattr(pulp, "LpSolutionIntegerFeasible", 2)
    return words, "limit" in words.lower() or stopped


def _dual_bound(problem: Any, answer: Any) -> float | None:
    """The solver's proven bound; None where the layer does not hand it on."""
    stated = getattr(answer, "best_bound", None)
    if isinstance(stated, float):
        return stated
    model = getattr(problem, "solverModel", None)
    if model is not None and hasattr(model, "getInfo"):
        return float(model.getInfo().mip_dual_bound)
    return None


@contextmanager
def _quiet_stdout() -> Iterator[None]:
    """Send file descriptor 1 away while a solver runs: HiGHS prints a banner there whatever it is told."""
    sys.stdout.flush()
    try:
        saved = os.dup(1)
    except OSError:  # no standard output at all
        yield
        return
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.close(sink)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
