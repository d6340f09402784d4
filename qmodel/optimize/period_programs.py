"""One program for several periods: that of a single period repeated, its cover rows at what each period asks for.

What columns carry is stated in shares of the largest demand of a class, so the same columns serve every period: in one
where a class has the factor f of it, ``cover`` asks for f instead of 1. Two ways to join the periods:

* one fleet: whole counts and everything that costs money stand once, what carries load stands for each period;
* a fleet that changes: everything stands for each period, and GPUs that are paid in every hour link them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from qmodel.optimize.programs import Program, Sense, safe_names
from qmodel.types import FloatArray, IntArray, Layer, Limits, by_the_hour

__all__ = ["ChangingFleet", "JoinedProgram", "OneFleet", "OnePeriod", "Frame"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedProgram:
    """A program over several periods.

    Attributes:
        program: arrays and names.
        places: position of each variable of the single period's program, shape (P, V).
        origin: row of the single period's program that each row comes from, shape (R,); -1: it links periods.
        base: variables that, once fixed, leave little between the periods.
        served: variables that say which periods are served; empty where all are.
    """

    program: Program
    places: IntArray
    origin: IntArray
    base: IntArray = field(default_factory=lambda: np.zeros(0, dtype=int))
    served: IntArray = field(default_factory=lambda: np.zeros(0, dtype=int))

    def points(self, values: FloatArray) -> list[FloatArray]:
        """A solution as one of the single program for each period."""
        return [values[row] for row in self.places]

    def spread(self, each: FloatArray) -> FloatArray:
        """Figures of the single program's variables as those of all, shape (V,)."""
        found = np.zeros(len(self.program.names))
        found[self.places] = each
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OnePeriod:
    """Every hour is the same: the program as it is."""

    def joined(self, program: Program) -> JoinedProgram:
        """The program as it is."""
        return JoinedProgram(
            program=program,
            places=np.arange(len(program.names))[None, :],
            origin=np.arange(len(program.row_names)),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneFleet:
    """One fleet for several periods, each with its own routing.

    Attributes:
        factors: share of each class's largest demand that a period asks for, shape (P, K), classes as in cover rows.
        weights: of the periods, shape (P,).
        least_weight: the fleet may leave periods out as long as those it serves weigh so much; None: it may not.
    """

    factors: FloatArray
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    least_weight: float | None = None

    def joined(self, program: Program) -> JoinedProgram:
        """Counts once, flows for each period; rows that hold a flow or a cover for each period."""
        program = program.with_part_corners()
        recourse = ~program.integer & (program.cost == 0.0)
        kept = np.flatnonzero(~recourse)
        periods, size = self.factors.shape[0], int(recourse.sum())
        places = np.zeros((periods, len(program.names)), dtype=int)
        places[:, kept] = np.arange(kept.size)
        places[:, recourse] = kept.size + np.arange(periods * size).reshape(periods, size)
        covers = _covers(program)
        repeated = np.any(program.matrix[:, recourse] != 0.0, axis=1)
        repeated[covers] = True
        joined = _joined(program, places, self.factors, covers, ~repeated)
        return joined if self.least_weight is None else self._choosing(joined)

    def _choosing(self, joined: JoinedProgram) -> JoinedProgram:
        """A binary s of each period, ``cover`` asking for f s, and ``sum weight s >= least``: minus that ``<=``."""
        program, periods = joined.program, len(self.weights)
        covers = [row for row, sense in enumerate(program.senses) if sense == ">="]
        each = len(covers) // periods
        matrix = np.hstack([program.matrix, np.zeros((len(program.row_names), periods))])
        rhs = program.rhs.copy()
        for number, row in enumerate(covers):
            matrix[row, len(program.names) + number // each] = -rhs[row]
            rhs[row] = 0.0
        weighed = np.concatenate([np.zeros(len(program.names)), -self.weights])
        assert self.least_weight is not None
        whole = replace(
            program,
            names=(*program.names, *(f"served_{number}" for number in range(periods))),
            cost=np.append(program.cost, np.zeros(periods)),
            upper=np.append(program.upper, np.ones(periods)),
            integer=np.append(program.integer, np.ones(periods, dtype=bool)),
            row_names=(*program.row_names, "weight_served"),
            matrix=np.vstack([matrix, weighed]),
            senses=(*program.senses, "<="),
            rhs=np.append(rhs, -self.least_weight),
        )
        served = len(program.names) + np.arange(periods)
        return replace(joined, program=whole, origin=np.append(joined.origin, -1), served=served)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangingFleet:
    """A fleet for each period, linked by GPUs that are paid in all of them.

    Attributes:
        factors: as for :class:`OneFleet`.
        layers: what is paid when, by position of the period.
        limits: with the offers of each GPU type.
    """

    factors: FloatArray
    layers: tuple[Layer, ...]
    limits: Limits

    def joined(self, program: Program) -> JoinedProgram:
        """Everything for each period, the cost of what is bought by layer, and the base R of each offer.

        With b the GPUs bought in a period, D those bought by the hour in a layer:
        ``b_o <= R_o`` for offers that are paid in every hour, ``sum_o b_o <= sum R + sum D`` in each layer for each of
        its periods. Cost: ``sum price R + sum weight price D``; all else at the weight of its period.
        """
        program = program.with_part_corners()
        periods, width = self.factors.shape[0], len(program.names)
        places = np.arange(periods * width).reshape(periods, width)
        none = np.zeros(len(program.row_names), dtype=bool)
        joined = _joined(program, places, self.factors, _covers(program), none)
        weights = np.zeros(periods)
        for layer in self.layers:
            weights[layer.members[0]] += layer.weight
        cost = joined.spread(program.cost) * np.repeat(weights, width)
        links = _Links(start=periods * width)
        lasting: list[int] = []
        for gpu in sorted({gpu for gpu, _ in program.offers}):
            offers = [offer for offer in self.limits.of(gpu).offers if (gpu, offer.term) in program.offers]
            bought = {offer.term: places[:, program.offers[gpu, offer.term]] for offer in offers}
            for positions in bought.values():
                cost[positions] = 0.0
            most = {term: float(program.upper[program.offers[gpu, term]]) for term in bought}
            base = {
                offer.term: links.variable(f"base_{gpu}_{offer.term}", offer.usd_per_gpu_hour, most[offer.term])
                for offer in offers
                if not by_the_hour(offer)
            }
            lasting += base.values()
            for term, position in base.items():
                for period in range(periods):
                    links.row(f"within_base_{gpu}_{term}_{period}", {int(bought[term][period]): 1.0, position: -1.0})
            self._layered(links, gpu, bought, base, most)
        return replace(links.added(joined, cost), base=np.array(lasting, dtype=int))

    def _layered(
        self,
        links: _Links,
        gpu: str,
        bought: Mapping[str, IntArray],
        base: Mapping[str, int],
        most: Mapping[str, float],
    ) -> None:
        """GPUs by the hour in each layer, enough for each of its periods."""
        hourly = [offer for offer in self.limits.of(gpu).offers if offer.term in bought and by_the_hour(offer)]
        for number, layer in enumerate(self.layers):
            paid = {
                links.variable(
                    f"hourly_{gpu}_{offer.term}_{number}",
                    layer.weight * offer.usd_per_gpu_hour,
                    most[offer.term] if (room := self.limits.of(gpu).room(offer)) is None else float(room),
                ): -1.0
                for offer in hourly
            }
            for member in layer.members:
                taken = {int(positions[member]): 1.0 for positions in bought.values()}
                row = {**taken, **dict.fromkeys(base.values(), -1.0), **paid}
                links.row(f"paid_{gpu}_{number}_{member}", row)


Frame = OnePeriod | OneFleet | ChangingFleet


class _Links:
    """Variables and rows beside those of the periods."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.variables: list[tuple[str, float, float]] = []
        self.rows: list[tuple[str, dict[int, float]]] = []

    def variable(self, name: str, cost: float, upper: float) -> int:
        self.variables.append((name, cost, upper))
        return self.start + len(self.variables) - 1

    def row(self, name: str, coefficients: dict[int, float]) -> None:
        """A row ``... <= 0``."""
        self.rows.append((name, coefficients))

    def added(self, joined: JoinedProgram, cost: FloatArray) -> JoinedProgram:
        """The joined program with these, and the cost of its own variables."""
        program, more = joined.program, len(self.variables)
        below: list[Sense] = ["<="] * len(self.rows)
        matrix = np.zeros((len(program.row_names) + len(self.rows), len(program.names) + more))
        matrix[: len(program.row_names), : len(program.names)] = program.matrix
        for number, (_, coefficients) in enumerate(self.rows):
            for position, value in coefficients.items():
                matrix[len(program.row_names) + number, position] = value
        whole = replace(
            program,
            names=(*program.names, *safe_names([name for name, _, _ in self.variables])),
            cost=np.append(cost, [usd for _, usd, _ in self.variables]),
            upper=np.append(program.upper, [most for _, _, most in self.variables]),
            integer=np.append(program.integer, np.zeros(more, dtype=bool)),
            row_names=(*program.row_names, *safe_names([name for name, _ in self.rows])),
            matrix=matrix,
            senses=(*program.senses, *below),
            rhs=np.append(program.rhs, np.zeros(len(self.rows))),
        )
        origin = np.append(joined.origin, np.full(len(self.rows), -1))
        return JoinedProgram(program=whole, places=joined.places, origin=origin)


def _covers(program: Program) -> IntArray:
    """Rows of the classes that are to be covered, in the order of the classes: the only ones that ask for 1."""
    return np.flatnonzero((np.array(program.senses) == ">=") & (program.rhs == 1.0))


def _joined(
    program: Program,
    places: IntArray,
    factors: FloatArray,
    covers: IntArray,
    once: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> JoinedProgram:
    """The rows of a program for each period, those that are the same in all of them once."""
    periods = factors.shape[0]
    width = int(places.max()) + 1
    rows = [(0, row) for row in np.flatnonzero(once).tolist()]
    rows += [(period, row) for period in range(periods) for row in np.flatnonzero(~once).tolist()]
    matrix = np.zeros((len(rows), width))
    rhs = np.zeros(len(rows))
    cover_of = {row: number for number, row in enumerate(covers.tolist())}
    for number, (period, row) in enumerate(rows):
        matrix[number, places[period]] = program.matrix[row]
        rhs[number] = factors[period, cover_of[row]] if row in cover_of else program.rhs[row]
    names, upper = [""] * width, np.zeros(width)
    integer, cost = np.zeros(width, dtype=bool), np.zeros(width)
    for period in range(periods - 1, -1, -1):
        upper[places[period]], integer[places[period]] = program.upper, program.integer
        cost[places[period]] = program.cost
        for name, position in zip(program.names, places[period].tolist(), strict=True):
            names[position] = f"{name}_in_{period}" if periods > 1 else name
    whole = replace(
        program,
        names=tuple(names),
        cost=cost,
        upper=upper,
        integer=integer,
        row_names=tuple(
            f"{program.row_names[row]}_in_{period}" if periods > 1 else program.row_names[row] for period, row in rows
        ),
        matrix=matrix,
        senses=tuple(program.senses[row] for _, row in rows),
        rhs=rhs,
        offers={},
    )
    return JoinedProgram(program=whole, places=places, origin=np.array([row for _, row in rows], dtype=int))
