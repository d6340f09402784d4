"""Programs of single periods put into one, and rows that link the periods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qmodel.optimize.programs import Program, Sense, safe_names
from qmodel.types import FloatArray, IntArray

__all__ = ["BoolArray", "JoinedProgram", "Links", "Tail", "covers_of", "moving", "repeated"]

BoolArray = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tail:
    """Where a program holds the dearest part of what may come.

    Attributes:
        border: variable of the cost from which a period counts.
        beyond: variable of what each period costs above it, shape (P,).
        rows: rows that say so, shape (P,): ``cost of the period - border - beyond <= 0``.
        mean_usd: of the mean cost, shape (V,).
    """

    border: int
    beyond: IntArray
    rows: IntArray
    mean_usd: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedProgram:
    """A program over several periods.

    Attributes:
        program: arrays and names.
        places: for each period, position of each variable of its own program, shape (V,).
        regimes: which of the single programs is that of each period.
        origin: row of a single program that each row comes from, shape (R,); -1: it links periods.
        base: variables that, once fixed, leave little between the periods.
        bought: variables of single programs that follow from what is linked.
        served: variables that say which periods are served; empty where all are.
        tail: where the dearest part counts; None: the mean does.
    """

    program: Program
    places: tuple[IntArray, ...]
    regimes: tuple[int, ...]
    origin: IntArray
    base: IntArray = field(default_factory=lambda: np.zeros(0, dtype=int))
    bought: IntArray = field(default_factory=lambda: np.zeros(0, dtype=int))
    served: IntArray = field(default_factory=lambda: np.zeros(0, dtype=int))
    tail: Tail | None = None

    def points(self, values: FloatArray) -> list[FloatArray]:
        """A solution as one of its own program for each period."""
        return [values[row] for row in self.places]

    def spread(self, each: Sequence[FloatArray]) -> FloatArray:
        """Figures of the variables of each single program as those of all, shape (V,)."""
        found = np.zeros(len(self.program.names))
        for row, regime in zip(self.places, self.regimes, strict=True):
            found[row] = each[regime]
        return found


class Links:
    """Variables and rows beside those of the periods."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.variables: list[tuple[str, float, float, bool]] = []
        self.rows: list[tuple[str, dict[int, float], float, int]] = []

    def variable(self, name: str, cost: float, upper: float, *, integer: bool = False) -> int:
        """A variable; its position."""
        self.variables.append((name, cost, upper, integer))
        return self.start + len(self.variables) - 1

    def row(self, name: str, coefficients: dict[int, float], most: float = 0.0, *, origin: int = -1) -> int:
        """A row ``... <= most``, and the one of a single program that it comes from; which of these rows it is."""
        self.rows.append((name, coefficients, most, origin))
        return len(self.rows) - 1

    def added(self, joined: JoinedProgram, cost: FloatArray) -> JoinedProgram:
        """The joined program with these, and the cost of its own variables."""
        program, more = joined.program, len(self.variables)
        below: list[Sense] = ["<="] * len(self.rows)
        matrix = np.zeros((len(program.row_names) + len(self.rows), len(program.names) + more))
        matrix[: len(program.row_names), : len(program.names)] = program.matrix
        for number, (_, coefficients, _, _) in enumerate(self.rows):
            for position, value in coefficients.items():
                matrix[len(program.row_names) + number, position] = value
        whole = replace(
            program,
            names=(*program.names, *safe_names([name for name, *_ in self.variables])),
            cost=np.append(cost, [usd for _, usd, _, _ in self.variables]),
            upper=np.append(program.upper, [most for _, _, most, _ in self.variables]),
            integer=np.append(program.integer, np.array([whole for *_, whole in self.variables], dtype=bool)),
            row_names=(*program.row_names, *safe_names([name for name, *_ in self.rows])),
            matrix=matrix,
            senses=(*program.senses, *below),
            rhs=np.append(program.rhs, [most for _, _, most, _ in self.rows]),
        )
        origin = np.array([*joined.origin.tolist(), *(origin for *_, origin in self.rows)], dtype=int)
        return replace(joined, program=whole, origin=origin)


def covers_of(program: Program) -> IntArray:
    """Rows of the classes that are to be covered, in the order of the classes: the only ones that ask for 1."""
    return np.flatnonzero((np.array(program.senses) == ">=") & (program.rhs == 1.0))


def moving(program: Program) -> BoolArray:
    """Variables that may differ from period to period under one fleet: all that carry load, and none that stand."""
    bought = np.isin(np.arange(len(program.names)), list(program.offers.values()))
    return np.asarray(~program.integer & ~bought)


def repeated(
    programs: Sequence[Program],
    regimes: Sequence[int],
    places: Sequence[IntArray],
    factors: FloatArray,
    once: Sequence[BoolArray],
    *,
    weights: FloatArray | None = None,
    left_out: bool = False,
) -> JoinedProgram:
    """The rows of each period's program for the period, some of them once.

    Args:
        programs: of single periods.
        regimes: which of them is that of each period.
        places: for each period, position of each variable of its program.
        factors: what cover rows ask for, shape (P, K).
        once: for each program, rows that stand once, for the first period that has it.
        weights: of the periods, at which what moves in them is paid; None: it costs nothing.
        left_out: rows of ``once`` do not stand at all.
    """
    width = max(int(row.max()) for row in places) + 1
    kept = [] if left_out else list(enumerate(once))
    rows = [(regimes.index(number), row) for number, mask in kept for row in np.flatnonzero(mask).tolist()]
    rows += [(period, row) for period, regime in enumerate(regimes) for row in np.flatnonzero(~once[regime]).tolist()]
    matrix, rhs = np.zeros((len(rows), width)), np.zeros(len(rows))
    cover_of = [{row: number for number, row in enumerate(covers_of(program).tolist())} for program in programs]
    for number, (period, row) in enumerate(rows):
        program, covers = programs[regimes[period]], cover_of[regimes[period]]
        matrix[number, places[period]] = program.matrix[row]
        rhs[number] = factors[period, covers[row]] if row in covers else program.rhs[row]
    names, upper = [""] * width, np.zeros(width)
    integer, cost = np.zeros(width, dtype=bool), np.zeros(width)
    several = len(regimes) > 1
    for period in range(len(regimes) - 1, -1, -1):
        program = programs[regimes[period]]
        upper[places[period]], integer[places[period]] = program.upper, program.integer
        cost[places[period]] = program.cost
        if weights is not None:
            moves = moving(program)
            cost[places[period][moves]] = weights[period] * program.cost[moves]
        for name, position in zip(program.names, places[period].tolist(), strict=True):
            names[position] = f"{name}_in_{period}" if several else name
    own = [programs[regimes[period]] for period, _ in rows]
    whole = replace(
        programs[0],
        names=tuple(names),
        cost=cost,
        upper=upper,
        integer=integer,
        row_names=tuple(
            f"{program.row_names[row]}_in_{period}" if several else program.row_names[row]
            for program, (period, row) in zip(own, rows, strict=True)
        ),
        matrix=matrix,
        senses=tuple(program.senses[row] for program, (_, row) in zip(own, rows, strict=True)),
        rhs=rhs,
        offers={},
        standing=(),
    )
    return JoinedProgram(
        program=whole,
        places=tuple(places),
        regimes=tuple(regimes),
        origin=np.array([row for _, row in rows], dtype=int),
    )
