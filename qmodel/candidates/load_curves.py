"""How far pools of one class exceed its targets at any load, for targets that hold over all pools together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates.frontiers import unit_loads
from qmodel.candidates.pool_kinds import Candidate
from qmodel.evaluation import slo_excesses
from qmodel.types import FloatArray, IntArray, RequestClass

__all__ = ["LoadCurve", "curves_of", "looked_at"]

# of the largest stable load
_PARTS = np.array([0.2, 0.35, 0.48, 0.55, 0.61, 0.66, 0.71, 0.75, 0.79, 0.83, 0.865, 0.9, 0.93, 0.955, 0.975, 0.995])
_EVEN = np.linspace(0.08, 1.0, 16)  # of the whole demand, where a pool carries all of it
_NO_LOAD = 1e-6  # of the largest load: only the hardware speaks
_SAME = 2e-5  # of the largest load: looks closer than this are one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadCurve:
    """A pool of one class: what it takes of each target beyond what that allows, at some loads.

    Attributes:
        replicas: that serve.
        loads: shares of the demand of the class, ascending, the first next to nothing, shape (P,).
        excess: in the measure of :func:`qmodel.evaluation.slo_excesses`, not falling with the load, shape (P, W).
        most: no load is larger: all of the demand, or the largest stable one; of a pool whose replicas stand for those
            of smaller ones always the latter.
    """

    candidate: Candidate
    replicas: int
    item: RequestClass
    loads: FloatArray
    excess: FloatArray
    most: float

    @property
    def ends(self) -> FloatArray:
        """The load at which the part of the curve from each load ends, shape (P,)."""
        return np.append(self.loads[1:], self.most)

    def middles(self, part: int, near: float) -> list[float]:
        """Loads to look at so that a part of the curve is known better: one that is in use, and its quarters."""
        low, high = float(self.loads[part]), float(self.ends[part])
        looks = [low + (high - low) * step for step in (0.25, 0.5, 0.75)] + [near]
        return [load for load in looks if low < load <= high]

    def width(self, part: int) -> float:
        """Of a part of the curve, over its end."""
        return float(1.0 - self.loads[part] / self.ends[part])

    def with_looks(self, loads: FloatArray, excess: FloatArray) -> LoadCurve:
        """The same with what was seen at more loads, made monotone; nothing beyond a load that is not stable."""
        place = np.concatenate([self.loads, loads])
        order = np.argsort(place, kind="stable")
        found = np.maximum.accumulate(np.concatenate([self.excess, excess])[order], axis=0)
        stable = np.isfinite(found).all(axis=1)
        count = int(stable.argmin()) if not stable.all() else stable.size
        most = self.most if count == stable.size else float(place[order][count])
        return replace(self, loads=place[order][:count], excess=found[:count], most=most)


def curves_of(
    cases: Sequence[tuple[Candidate, int]], item: RequestClass, *, beyond_demand: bool = False
) -> list[LoadCurve]:
    """Curves of pools from next to no load to the largest stable one; of pools that can serve the class at all.

    Args:
        cases: candidates and counts.
        item: the class.
        beyond_demand: look at loads beyond the whole demand too, for what each replica carries.
    """
    able = [candidate for candidate, _ in cases]
    if not able:
        return []
    capacity = np.array([count for _, count in cases]) / unit_loads(able, [item])
    demand = np.inf if beyond_demand else 1.0
    empty = np.zeros((0, len(item.slos)))
    curves = [
        LoadCurve(
            candidate=candidate, replicas=count, item=item, loads=np.zeros(0), excess=empty, most=min(most, demand)
        )
        for (candidate, count), most in zip(cases, capacity.tolist(), strict=True)
        if most > 0.0
    ]
    whole = [most > demand for most in capacity.tolist() if most > 0.0]
    looks = [
        np.append(_NO_LOAD, _EVEN if all_of_it else _PARTS) * curve.most
        for curve, all_of_it in zip(curves, whole, strict=True)
    ]
    return [curve for curve in looked_at(curves, looks) if curve.loads.size]


def looked_at(curves: Sequence[LoadCurve], looks: Sequence[FloatArray | Sequence[float]]) -> list[LoadCurve]:
    """The same curves of one class with more looks at each; those that are known already are left out.

    Args:
        curves: of one class.
        looks: loads for each of them.
    """
    new = [_unknown(curve, loads) for curve, loads in zip(curves, looks, strict=True)]
    cases = np.repeat(np.arange(len(curves)), [loads.size for loads in new])
    if not cases.size:
        return list(curves)
    excess = _excesses([curves[case] for case in cases.tolist()], np.concatenate(new))
    return [
        curve.with_looks(loads, excess[cases == number]) if loads.size else curve
        for number, (curve, loads) in enumerate(zip(curves, new, strict=True))
    ]


def _unknown(curve: LoadCurve, loads: FloatArray | Sequence[float]) -> FloatArray:
    """Loads that are not next to one that was looked at, or to another of them."""
    found: list[float] = []
    for load in sorted(float(load) for load in loads):
        known = np.concatenate([curve.loads, found])
        if not known.size or np.abs(known - load).min() > _SAME * curve.most:
            found.append(load)
    return np.array(found)


def _excesses(curves: Sequence[LoadCurve], loads: FloatArray) -> FloatArray:
    """Excess of each pool at a load of its own, shape (C, W)."""
    excess = np.empty((len(curves), len(curves[0].item.slos)))
    kinds = [(curve.candidate.router, curve.candidate.confidence) for curve in curves]
    counts: IntArray = np.array([curve.replicas for curve in curves])
    for router, confidence in sorted(set(kinds)):
        rows = np.flatnonzero([kind == (router, confidence) for kind in kinds])
        excess[rows] = slo_excesses(
            [curves[row].candidate.replica for row in rows.tolist()],
            [curves[0].item],
            [1.0],
            counts[rows],
            loads[rows],
            router,
            confidence=confidence,
        )
    return excess
