"""An integer program as arrays and names, independent of any solver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from qmodel.types import FloatArray

__all__ = ["Program", "ProgramBuilder", "Sense", "Standing", "safe_names"]

Sense = Literal[">=", "<="]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What one unit of a variable takes of what stands for several periods.

    Attributes:
        family: things of which a larger one can take the place of a smaller one.
        size: of the thing.
        units: things of that size; 0: none.
    """

    family: str
    size: int = 1
    units: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """min cost y subject to rows, bounds and integrality.

    Attributes:
        names: solver-safe and unique, shape (V,).
        cost: objective, shape (V,).
        upper: upper bounds, shape (V,); lower bounds are zero.
        integer: which variables are integers, shape (V,).
        row_names: solver-safe and unique, shape (R,).
        matrix: coefficients, shape (R, V).
        senses: ``>=`` or ``<=``, shape (R,).
        rhs: right-hand sides, shape (R,).
        offers: variables of GPUs bought, by GPU type and term.
        model_shares: variables of the shares of a class that each of several models serves, by class and model.
        corners: integer variables that say below which corner the mixes of pools lie; as fractions they say less.
        standing: for each variable, what it takes where it stands for several periods; empty where a program is not to
            be joined.
    """

    names: tuple[str, ...]
    cost: FloatArray
    upper: FloatArray
    integer: np.ndarray[tuple[int], np.dtype[np.bool_]]
    row_names: tuple[str, ...]
    matrix: FloatArray
    senses: tuple[Sense, ...]
    rhs: FloatArray
    offers: Mapping[tuple[str, str], int] = field(default_factory=dict)
    model_shares: Mapping[tuple[str, str], int] = field(default_factory=dict)
    corners: tuple[int, ...] = ()
    standing: tuple[Standing, ...] = ()

    def with_row(self, name: str, coefficients: FloatArray, sense: Sense, rhs: float) -> Program:
        """The same with one row more; coefficients of all variables, shape (V,)."""
        return replace(
            self,
            row_names=(*self.row_names, name),
            matrix=np.vstack([self.matrix, coefficients]),
            senses=(*self.senses, sense),
            rhs=np.append(self.rhs, rhs),
        )

    def below(self, cost: float) -> Program:
        """The same with one row more: no dearer than ``cost``."""
        return self.with_row("cost_no_more", self.cost, "<=", cost)

    def least_use(self, row: int) -> Program:
        """The same without one row, whose left-hand side is made small instead of the cost."""
        return replace(self.without_rows([row]), cost=self.matrix[row].copy())

    def without_rows(self, rows: Sequence[int]) -> Program:
        """The same without some rows."""
        kept = ~np.isin(np.arange(len(self.row_names)), list(rows))
        return replace(
            self,
            row_names=tuple(name for name, keep in zip(self.row_names, kept, strict=True) if keep),
            matrix=self.matrix[kept],
            senses=tuple(sense for sense, keep in zip(self.senses, kept, strict=True) if keep),
            rhs=self.rhs[kept],
        )

    def with_part_corners(self) -> Program:
        """The same with fractions for :attr:`corners`: a looser program that is solved faster."""
        integer = self.integer.copy()
        integer[list(self.corners)] = False
        return replace(self, integer=integer, corners=())

    def violations(self, values: FloatArray, tolerance: float = 1e-6) -> tuple[str, ...]:
        """Names of rows and variables that ``values`` breaks; empty for a feasible point."""
        left = self.matrix @ values
        broken = [
            name
            for name, sense, row, rhs in zip(self.row_names, self.senses, left, self.rhs, strict=True)
            if (row < rhs - tolerance if sense == ">=" else row > rhs + tolerance)
        ]
        fractional = np.abs(values - np.round(values)) > tolerance
        outside = (values < -tolerance) | (values > self.upper + tolerance)
        return (*broken, *(self.names[i] for i in np.flatnonzero((fractional & self.integer) | outside)))


@dataclass(slots=True)
class ProgramBuilder:
    """Collects variables and rows, then freezes them into a :class:`Program`.

    Attributes:
        model_shares: as in a program.
        corners: as in a program.
    """

    model_shares: dict[tuple[str, str], int] = field(default_factory=dict)
    corners: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _cost: list[float] = field(default_factory=list)
    _upper: list[float] = field(default_factory=list)
    _integer: list[bool] = field(default_factory=list)
    _rows: list[tuple[str, dict[int, float], Sense, float]] = field(default_factory=list)
    _offers: dict[tuple[str, str], int] = field(default_factory=dict)
    _standing: list[Standing] = field(default_factory=list)

    def variable(self, name: str, *, cost: float, upper: float, integer: bool, standing: Standing | None = None) -> int:
        """Add a variable and return its position; it stands for itself if nothing else is said."""
        self._names.append(name)
        self._standing.append(standing or Standing(family=name))
        self._cost.append(cost)
        self._upper.append(upper)
        self._integer.append(integer)
        return len(self._names) - 1

    def cost(self, position: int) -> float:
        """Cost of a variable."""
        return self._cost[position]

    def offer(self, gpu: str, term: str, *, cost: float, upper: float) -> int:
        """Add a variable for the GPUs of a type that are bought at a term, and return its position."""
        position = self.variable(f"buy {gpu} {term}", cost=cost, upper=upper, integer=False)
        self._offers[gpu, term] = position
        return position

    def upper(self, position: int) -> float:
        """Upper bound of a variable."""
        return self._upper[position]

    def row(self, name: str, coefficients: dict[int, float], sense: Sense, rhs: float) -> None:
        """Add a row; coefficients by variable position."""
        self._rows.append((name, coefficients, sense, rhs))

    def build(self) -> Program:
        """The program with safe, unique names."""
        matrix = np.zeros((len(self._rows), len(self._names)))
        for index, (_, coefficients, _, _) in enumerate(self._rows):
            for position, value in coefficients.items():
                matrix[index, position] += value
        return Program(
            names=safe_names(self._names),
            cost=np.array(self._cost),
            upper=np.array(self._upper),
            integer=np.array(self._integer, dtype=bool),
            row_names=safe_names([row[0] for row in self._rows]),
            matrix=matrix,
            senses=tuple(row[2] for row in self._rows),
            rhs=np.array([row[3] for row in self._rows]),
            offers=dict(self._offers),
            model_shares=dict(self.model_shares),
            corners=tuple(self.corners),
            standing=tuple(self._standing),
        )


def safe_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names with letters, digits and underscores only, made unique by a number where two collide.

    Example:
        >>> safe_names(["cover[chat]", "cover(chat)", "pool.a"])
        ('cover_chat', 'cover_chat_2', 'pool_a')
    """
    seen: dict[str, int] = {}
    taken: set[str] = set()
    result = []
    for name in names:
        base = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or "x"
        if base[0].isdigit():
            base = f"x{base}"
        candidate = base
        while candidate in taken:
            seen[base] = seen.get(base, 1) + 1
            candidate = f"{base}_{seen[base]}"
        taken.add(candidate)
        result.append(candidate)
    return tuple(result)
