"""One program for several periods: that of a single period repeated, its cover rows at what each period asks for.

What columns carry is stated in shares of the largest demand of a class, so the same columns serve every period: in one
where a class has the factor f of it, ``cover`` asks for f instead of 1. Where lengths differ, periods of equal lengths
have one program and others another. Two ways to join the periods:

* one fleet: whole counts and everything that costs money stand once, what carries load stands for each period;
* a fleet that changes: everything stands for each period, and GPUs that are paid in every hour link them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from qmodel.optimize.joined_programs import JoinedProgram, Links, Tail, covers_of, moving, repeated
from qmodel.optimize.programs import Program
from qmodel.optimize.standing_pools import standing
from qmodel.types import FloatArray, Layer, Limits, Offer, Risk, by_the_hour

__all__ = ["ChangingFleet", "Frame", "OneFleet", "OnePeriod"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OnePeriod:
    """Every hour is the same: the program as it is."""

    def joined(self, program: Program) -> JoinedProgram:
        """The program as it is."""
        return JoinedProgram(
            program=program,
            places=(np.arange(len(program.names)),),
            regimes=(0,),
            origin=np.arange(len(program.row_names)),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneFleet:
    """One fleet for several periods, each with its own routing.

    Attributes:
        factors: share of each class's largest demand that a period asks for, shape (P, K), classes as in cover rows.
        weights: of the periods, shape (P,); empty where nothing is paid by what is served, and none may be left out.
        least_weight: the fleet may leave periods out as long as those it serves weigh so much; None: it may not.
        regimes: which of the single programs is that of each period; empty: the first.
    """

    factors: FloatArray
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    least_weight: float | None = None
    regimes: tuple[int, ...] = ()

    def joined(self, *programs: Program) -> JoinedProgram:
        """Counts once, flows for each period; rows that hold a flow or a cover for each period."""
        programs = tuple(program.with_part_corners() for program in programs)
        regimes = self.regimes or (0,) * len(self.factors)
        weights = self.weights if self.weights.size else None
        if len(programs) > 1:
            joined = standing(programs, regimes, self.factors, weights)
        else:
            (program,) = programs
            recourse = moving(program)
            kept = np.flatnonzero(~recourse)
            periods, size = self.factors.shape[0], int(recourse.sum())
            places = np.zeros((periods, len(program.names)), dtype=int)
            places[:, kept] = np.arange(kept.size)
            places[:, recourse] = kept.size + np.arange(periods * size).reshape(periods, size)
            each = np.any(program.matrix[:, recourse] != 0.0, axis=1)
            each[covers_of(program)] = True
            joined = repeated(programs, regimes, list(places), self.factors, [~each], weights=weights)
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
        factors, regimes: as for :class:`OneFleet`.
        layers: what is paid when, by position of the period.
        limits: with the offers of each GPU type.
        risk: what counts of the costs of the periods; None: their mean.
    """

    factors: FloatArray
    layers: tuple[Layer, ...]
    limits: Limits
    regimes: tuple[int, ...] = ()
    risk: Risk | None = None

    @property
    def weights(self) -> FloatArray:
        """Of the periods, shape (P,)."""
        found = np.zeros(len(self.factors))
        for layer in self.layers:
            found[layer.members[0]] += layer.weight
        return found

    def joined(self, *programs: Program) -> JoinedProgram:
        """Everything for each period, the cost of what is bought by layer, and the base R of each offer.

        With b the GPUs bought in a period, D those bought by the hour in a layer:
        ``b_o <= R_o`` for offers that are paid in every hour, ``sum_o b_o <= sum R + sum D`` in each layer for each of
        its periods. Cost: ``sum price R + sum weight price D``; all else at the weight of its period. Where the dearest
        part counts, see :meth:`_risky`.
        """
        programs = tuple(program.with_part_corners() for program in programs)
        regimes = self.regimes or (0,) * len(self.factors)
        widths = [len(programs[regime].names) for regime in regimes]
        starts = np.concatenate([[0], np.cumsum(widths)]).astype(int)
        places = [start + np.arange(width) for start, width in zip(starts[:-1].tolist(), widths, strict=True)]
        none = [np.zeros(len(program.row_names), dtype=bool) for program in programs]
        joined = repeated(programs, regimes, places, self.factors, none)
        of_period = joined.spread([program.cost for program in programs])  # USD/h while the period lasts
        links = Links(start=int(starts[-1]))
        hourly: list[tuple[int, int, float]] = []  # layer, variable, price
        lasting: list[int] = []
        freed: list[int] = []
        for gpu in sorted({gpu for program in programs for gpu, _ in program.offers}):
            offers = self.limits.of(gpu).offers
            bought = {
                offer.term: {
                    period: int(places[period][programs[regime].offers[gpu, offer.term]])
                    for period, regime in enumerate(regimes)
                    if (gpu, offer.term) in programs[regime].offers
                }
                for offer in offers
            }
            for positions in bought.values():
                of_period[list(positions.values())] = 0.0
                freed += positions.values()
            most = {
                term: max((float(joined.program.upper[place]) for place in positions.values()), default=0.0)
                for term, positions in bought.items()
            }
            base = {}
            for offer in (item for item in offers if not by_the_hour(item)):
                position, size = self._base(links, gpu, offer, most[offer.term])
                base[position] = -size
                for period, place in bought[offer.term].items():
                    links.row(f"within_base_{gpu}_{offer.term}_{period}", {place: 1.0, position: -size})
            lasting += base
            hourly += self._layered(links, gpu, bought, base, most)
        cost = of_period * np.repeat(self.weights, widths)
        if self.risk is not None:
            return self._risky(joined, links, cost, of_period, hourly, lasting, freed)
        return replace(links.added(joined, cost), base=np.array(lasting, dtype=int), bought=np.array(freed, dtype=int))

    def _base(self, links: Links, gpu: str, offer: Offer, most: float) -> tuple[int, float]:
        """The variable of what is paid in every period, and the GPUs of a unit of it.

        It need not be whole where the mean counts: for given fleets the best base of a type is what some period needs.
        The dearest part of the cost of all types together has kinks elsewhere, so there lots are counted.
        """
        limits = self.limits.of(gpu)
        size = float(limits.lot) if self.risk is not None else 1.0
        room = limits.room(offer)
        upper = ceil((most if room is None else min(most, float(room))) / size)
        name = f"base_{gpu}_{offer.term}"
        return links.variable(name, offer.usd_per_gpu_hour * size, upper, integer=self.risk is not None), size

    def _layered(
        self,
        links: Links,
        gpu: str,
        bought: Mapping[str, Mapping[int, int]],
        base: Mapping[int, float],
        most: Mapping[str, float],
    ) -> list[tuple[int, int, float]]:
        """GPUs by the hour in each layer, enough for each of its periods: the layer, the variable and its price."""
        offers = [offer for offer in self.limits.of(gpu).offers if by_the_hour(offer)]
        found = []
        for number, layer in enumerate(self.layers):
            paid: dict[int, float] = {}
            for offer in offers:
                room = self.limits.of(gpu).room(offer)
                upper = most[offer.term] if room is None else float(room)
                usd = layer.weight * offer.usd_per_gpu_hour
                position = links.variable(f"hourly_{gpu}_{offer.term}_{number}", usd, upper)
                paid[position] = -1.0
                found.append((number, position, offer.usd_per_gpu_hour))
            for member in layer.members:
                taken = {positions[member]: 1.0 for positions in bought.values() if member in positions}
                if taken:
                    links.row(f"paid_{gpu}_{number}_{member}", {**taken, **base, **paid})
        return found

    def _risky(
        self,
        joined: JoinedProgram,
        links: Links,
        cost: FloatArray,
        of_period: FloatArray,
        hourly: Sequence[tuple[int, int, float]],
        lasting: Sequence[int],
        freed: Sequence[int],
    ) -> JoinedProgram:
        """The dearest part of the cost beside its mean, in linear rows (Rockafellar and Uryasev 2000).

        With X_p what period p costs beyond the base, eta the border and e_p what X_p is above it:
        ``X_p - eta - e_p <= 0``; cost ``(1 - u) sum w X + u (eta + sum w e / (1 - a))``, u the weight of the dearest
        part. The base is paid in every period, so its price counts in full in both.
        """
        assert self.risk is not None
        costs: list[dict[int, float]] = [
            {int(place): float(of_period[place]) for place in row[of_period[row] != 0.0].tolist()}
            for row in joined.places
        ]
        for number, position, usd in hourly:
            costs[self.layers[number].members[0]][position] = usd
        upper = np.append(joined.program.upper, [most for _, _, most, _ in links.variables])
        largest = [sum(usd * float(upper[place]) for place, usd in own.items()) for own in costs]
        border = links.variable("border", self.risk.weight, max(largest))
        beyond, rows = [], []
        for layer in self.layers:
            (period,) = layer.members  # scenarios have no order, so nothing is started beforehand
            share = self.risk.weight * layer.weight / (1.0 - self.risk.level)
            beyond.append(links.variable(f"beyond_{period}", share, largest[period]))
            rows.append(links.row(f"tail_{period}", {**costs[period], border: -1.0, beyond[-1]: -1.0}))
        whole = links.added(joined, cost)
        mean = whole.program.cost.copy()
        mean[[border, *beyond]] = 0.0
        combined = whole.program.cost.copy()
        second = np.zeros(len(combined), dtype=bool)
        second[[place for own in costs for place in own]] = True
        combined[second] *= 1.0 - self.risk.weight
        tail = Tail(
            border=border,
            beyond=np.array(beyond, dtype=int),
            rows=len(joined.origin) + np.array(rows, dtype=int),
            mean_usd=mean,
        )
        return replace(
            whole,
            program=replace(whole.program, cost=combined),
            base=np.array(lasting, dtype=int),
            bought=np.array(freed, dtype=int),
            tail=tail,
        )


Frame = OnePeriod | OneFleet | ChangingFleet
