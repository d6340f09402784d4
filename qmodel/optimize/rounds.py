"""One round of a choice: the programs for what is known of the frontier, their solutions, and what to look at next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.candidates import Blend, Column, ColumnSet, OpenPool, feasible_at
from qmodel.optimize.joined_programs import JoinedProgram
from qmodel.optimize.level_rows import Flow
from qmodel.optimize.open_pools import OpenChoice, open_choices
from qmodel.optimize.solvers import Solved
from qmodel.types import FloatArray, RequestClass

__all__ = ["SAME_COST", "Regime", "Round", "refined"]

SAME_COST = 1e-7  # relative; costs that differ by rounding are the same
_LEAST_PART = 1e-6  # of a pool or a class: less is rounding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regime:
    """What the programs of periods with equal lengths are made of.

    Attributes:
        columns, blends, open_pools: of the master, in the order of their variables.
        flows: what shared pools carry in the relaxation.
        groups: of classes that may share pools.
    """

    columns: Sequence[Column]
    blends: Sequence[Blend]
    open_pools: Sequence[OpenPool]
    flows: Sequence[Flow]
    groups: Mapping[str, ColumnSet]

    def pools(self, point: FloatArray) -> list[tuple[Column, int]]:
        """Columns with their counts, blends at the mix that was chosen."""
        chosen = [(c, int(n)) for c, n in zip(self.columns, point, strict=False) if n > 0]
        for blend, count, shares in self.used(point):
            mix = {name: part / count for name, part in zip(blend.names, shares.tolist(), strict=True) if part > 0.0}
            pool = Column(candidate=blend.candidate, replicas=blend.replicas, shares=mix, upper=mix)
            chosen.append((pool, count))
        return chosen

    def open_choices(self, point: FloatArray) -> list[OpenChoice]:
        """Pools of measured capacity that a period uses."""
        before = len(self.columns) + sum(1 + len(blend.points) for blend in self.blends)
        return open_choices(self.open_pools, point, before)

    def used(self, point: FloatArray) -> list[tuple[Blend, int, FloatArray]]:
        """Blends of a period with their counts and what all of each carry, shape (K,)."""
        found: list[tuple[Blend, int, FloatArray]] = []
        place = len(self.columns)
        for blend in self.blends:
            size = blend.points.shape[0]
            parts = point[place + 1 : place + 1 + size]
            shares = np.where(parts > _LEAST_PART, parts, 0.0) @ blend.points
            if point[place] > 0 and shares.any():
                found.append((blend, int(point[place]), shares))
            place += 1 + size
        return found

    def position(self, blend: Blend) -> tuple[str, int]:
        """Group of classes and place of the candidate there; a candidate may serve several groups."""
        return next(
            (group, place)
            for group, found in self.groups.items()
            for place, pools in found.shared.items()
            if pools[0].candidate is blend.candidate and found.classes[0].name in blend.names
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """The programs for what is known of the frontier, and their solutions.

    Attributes:
        sets: columns by group of classes, of all regimes.
        regimes: what the single programs are made of.
        master, bounding: over all periods.
        known: what the master was made of.
        fresh: whether the master knows all that the relaxation does; it is not solved anew in every round.
        failure: words of the solver where it failed in this round; empty where it did not.
    """

    sets: Mapping[str, ColumnSet]
    known: Mapping[str, ColumnSet]
    regimes: Sequence[Regime]
    master: JoinedProgram
    bounding: JoinedProgram
    relaxed: Solved
    solved: Solved
    fresh: bool
    failure: str = ""

    def closed(self, mip_gap: float) -> bool:
        """Whether the best fleet costs no more than the bound, but for the gap."""
        cost = self.solved.objective
        return cost is not None and cost - self.relaxed.bound <= max(mip_gap, SAME_COST) * cost * (1.0 + 1e-9)

    def closer(self, mip_gap: float) -> Mapping[str, ColumnSet]:
        """The columns with the frontier along the mixes that decide the gap; the same where nothing is left to see."""
        if self.relaxed.values is None or self.closed(mip_gap):
            return self.sets
        mixes: dict[str, dict[tuple[int, int], list[FloatArray]]] = {group: {} for group in self.sets}
        for regime, point in self.points(self.solved.values):
            for blend, _, shares in regime.used(point):
                group, position = regime.position(blend)
                mixes[group].setdefault((position, blend.replicas), []).append(shares)
        for number, point in zip(self.bounding.regimes, self.bounding.points(self.relaxed.values), strict=True):
            for flow in self.regimes[number].flows:
                for mix in _decisive(flow, point):
                    mixes[flow.group].setdefault((flow.position, flow.replicas), []).append(mix)
        return refined(self.sets, mixes)

    def overloaded(
        self, values: FloatArray, classes: Mapping[str, Sequence[RequestClass]]
    ) -> Mapping[str, Mapping[tuple[int, int], Sequence[FloatArray]]]:
        """Mixes of a solution that its pools do not carry, as :func:`refined` takes them; empty: all are carried.

        A blend takes what lies between points of the frontier as carried; a percentile that jumps may break that.
        """
        mixes: dict[str, dict[tuple[int, int], list[FloatArray]]] = {}
        points = self.points(values)
        for regime, (blend, count, shares) in ((one, used) for one, point in points for used in one.used(point)):
            group, position = regime.position(blend)
            by_name = {item.name: item for item in classes[group]}
            parts = [(by_name[name], part / count) for name, part in zip(blend.names, shares.tolist(), strict=True)]
            load = [item.part(part) for item, part in parts if part > 0.0]
            one = np.array([1.0])
            if feasible_at([blend.candidate], load, np.array([blend.replicas]), one)[0] > 1.0:
                mixes.setdefault(group, {}).setdefault((position, blend.replicas), []).append(shares)
        return {group: mixes.get(group, {}) for group in self.sets} if mixes else {}

    def points(self, values: FloatArray | None) -> list[tuple[Regime, FloatArray]]:
        """For each period what its program is made of, and the solution as one of that program."""
        if values is None:
            return []
        points = self.master.points(values)
        return [(self.regimes[number], point) for number, point in zip(self.master.regimes, points, strict=True)]


def refined(
    sets: Mapping[str, ColumnSet], mixes: Mapping[str, Mapping[tuple[int, int], Sequence[FloatArray]]]
) -> Mapping[str, ColumnSet]:
    """Columns with the frontier along more mixes, by group, candidate and count; the same where all is known."""
    found = {group: item.refined(mixes[group]) if mixes[group] else item for group, item in sets.items()}
    return sets if all(found[group] is item for group, item in sets.items()) else found


def _decisive(flow: Flow, values: FloatArray) -> list[FloatArray]:
    """Mixes at which a look at the frontier would change what shared pools carry in the relaxation."""
    if flow.parts:
        used = flow.corners[values[list(flow.parts)] > _LEAST_PART]
        mixes = list(used)
    else:
        shares = np.zeros(flow.corners.shape[1])
        for place, variable in flow.shares.items():
            shares[place] = values[variable]
        mixes = [np.where(shares > _LEAST_PART, shares, 0.0)] if flow.replicas == 0 else []
    return [mix for mix in mixes if mix.any()]
