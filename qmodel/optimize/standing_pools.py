"""One fleet where lengths differ: each regime of them has columns of its own and says how it uses pools that stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.optimize.joined_programs import BoolArray, JoinedProgram, Links, covers_of, moving, repeated
from qmodel.optimize.programs import Program
from qmodel.types import FloatArray

__all__ = ["standing"]


@dataclass(slots=True, kw_only=True)
class _Kind:
    """What stands of one kind.

    Attributes:
        usd: cost of a unit; in a relaxation the least of what stands for it.
        most: units.
        limits: what a unit takes of each row of the fleet, likewise the least, by name of the row.
    """

    usd: float
    most: float
    whole: bool
    limits: dict[str, float]


def standing(
    programs: Sequence[Program], regimes: Sequence[int], factors: FloatArray, weights: FloatArray | None = None
) -> JoinedProgram:
    """The programs of several regimes over one fleet.

    Variables that stand (pools, nodes, GPUs bought) take units of things of a size s; the fleet has G_s of them, which
    cost and count against the limits. A larger pool can take the place of a smaller one, so in each regime, for each
    family of things and each size c, ``sum over s >= c of units y_s <= sum over s >= c of G_s``: then there is such an
    assignment (Hall's condition; the families are chains). Rows without what carries load are those of the fleet, all
    others stand for each period. In a relaxation the things are replicas, whatever their pools.

    Args:
        programs: of single periods, one for each regime.
        regimes: which of them is that of each period.
        factors: what cover rows ask for, shape (P, K).
        weights: of the periods, as for :func:`repeated`.
    """
    moves = [moving(program) for program in programs]
    start = 0
    own = []
    for mask in moves:  # what stands, once for each regime
        own.append(start + np.arange(int((~mask).sum())))
        start += own[-1].size
    places = []
    for regime in regimes:  # what carries load, for each period
        placed = np.zeros(moves[regime].size, dtype=int)
        size = int(moves[regime].sum())
        placed[~moves[regime]], placed[moves[regime]] = own[regime], start + np.arange(size)
        start += size
        places.append(placed)
    of_fleet = []
    for program, mask in zip(programs, moves, strict=True):
        each = np.any(program.matrix[:, mask] != 0.0, axis=1)
        each[covers_of(program)] = True
        of_fleet.append(~each)
    joined = repeated(programs, regimes, places, factors, of_fleet, weights=weights, left_out=True)
    links, kinds = Links(start=start), _kinds(programs, moves, of_fleet)
    fleet = {
        (family, size): links.variable(f"standing {family} {size}", kind.usd, kind.most, integer=kind.whole)
        for (family, size), kind in kinds.items()
    }
    for number, (program, mask) in enumerate(zip(programs, moves, strict=True)):
        used: dict[str, dict[int, dict[int, float]]] = {}  # by family and size
        for place, position in zip(np.flatnonzero(~mask).tolist(), own[number].tolist(), strict=True):
            item = program.standing[place]
            if item.units:
                used.setdefault(item.family, {}).setdefault(item.size, {})[position] = item.units
        for family, sizes in used.items():
            larger: dict[int, float] = {}
            for size in sorted(sizes, reverse=True):
                larger |= sizes[size]
                standing_so = {fleet[key]: -1.0 for key in fleet if key[0] == family and key[1] >= size}
                links.row(f"stands {family} {size} {number}", {**larger, **standing_so})
    for name, (origin, most) in _rows(programs, of_fleet).items():
        row = {fleet[kind]: item.limits[name] for kind, item in kinds.items() if item.limits.get(name)}
        links.row(name, row, most, origin=origin)
    cost = joined.program.cost.copy()
    cost[np.concatenate(own)] = 0.0  # of what stands the fleet pays
    return links.added(joined, cost)


def _kinds(
    programs: Sequence[Program], moves: Sequence[BoolArray], of_fleet: Sequence[BoolArray]
) -> Mapping[tuple[str, int], _Kind]:
    """What stands, by family and size."""
    found: dict[tuple[str, int], _Kind] = {}
    for program, mask, rows in zip(programs, moves, of_fleet, strict=True):
        sums: dict[tuple[str, int], float] = {}
        for place in np.flatnonzero(~mask).tolist():
            item = program.standing[place]
            key, units = (item.family, item.size), item.units
            if not units:
                continue
            usd = float(program.cost[place]) / units
            kind = found.setdefault(key, _Kind(usd=usd, most=0.0, whole=bool(program.integer[place]), limits={}))
            kind.usd = min(kind.usd, usd)
            for row in np.flatnonzero(rows).tolist():
                name, takes = program.row_names[row], float(program.matrix[row, place]) / units
                kind.limits[name] = min(kind.limits.get(name, takes), takes)
            sums[key] = sums.get(key, 0.0) + float(program.upper[place]) * units
        for key, total in sums.items():
            found[key].most = max(found[key].most, total)
    return found


def _rows(programs: Sequence[Program], of_fleet: Sequence[BoolArray]) -> dict[str, tuple[int, float]]:
    """Rows of the fleet by name: their position in a single program, and the most of each."""
    found: dict[str, tuple[int, float]] = {}
    for program, rows in zip(programs, of_fleet, strict=True):
        for row in np.flatnonzero(rows).tolist():
            assert program.senses[row] == "<="  # what a fleet takes is bounded from above
            found.setdefault(program.row_names[row], (row, float(program.rhs[row])))
    return found
