"""Split classes over the pools that serve them so that the target with the least room has as much as can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates import unit_loads
from qmodel.evaluation import slo_ratios
from qmodel.optimize import Program, ProgramBuilder
from qmodel.planning.planned_pools import PlannedKind, PlannedPool
from qmodel.types import FloatArray

__all__ = ["evened", "lower_lines"]

_LOADS = np.array([0.01, 0.1, 0.25, 0.4, 0.55, 0.65, 0.75, 0.82, 0.88, 0.93, 0.96, 0.98])  # of the largest stable one
_GAIN = 0.005  # of the worst ratio: less is not worth an uneven number
_LEAST_PART = 0.02  # of what a pool carries of a class: with less it would be another fleet
_MOST_RATIO = 100.0  # of prediction over target; more is not stable

Solve = Callable[[Program], FloatArray | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Delay:
    """An under-fit of how a pool's worst prediction over target grows with its load, convex and piecewise linear.

    Attributes:
        slopes, heights: of its lines, shape (L,); the under-fit is their maximum.
        largest: load beyond which the pool is not stable.
        takes: load that the whole demand of each class brings, shape (K,).
    """

    slopes: FloatArray
    heights: FloatArray
    largest: float
    takes: FloatArray


def evened(pools: Sequence[PlannedKind], solve: Solve) -> list[PlannedKind]:
    """The same pools with the load of their classes split so that the worst target has more room, where it gets any.

    Each pool's worst prediction over target is a function of its load, under-fitted by lines; the largest of them over
    the pools of a model is made small by a linear program. What comes out is predicted exactly, and kept only if the
    worst of all is better than before.

    Args:
        pools: of a plan, every target met; those of measured capacity stay as they are.
        solve: the point that a program's optimum is at; None where it was not found.
    """
    found = list(pools)
    for model in dict.fromkeys(item.candidate.model for item in pools):
        places = [
            place
            for place, item in enumerate(found)
            if isinstance(item, PlannedPool) and item.candidate.model == model and item.classes[0].batch is None
        ]
        members = [item for place in places if isinstance(item := found[place], PlannedPool)]
        names = [name.name for item in members for name in item.classes]
        if len(set(names)) == len(names):
            continue
        better = _split(members, solve)
        if better is not None and _worst(better) < _worst(members) * (1.0 - _GAIN):
            for place, item in zip(places, better, strict=True):
                found[place] = item
    return found


def _split(pools: Sequence[PlannedPool], solve: Solve) -> list[PlannedPool] | None:
    """Shares with the least worst ratio by the under-fits: sum_p x_kp >= sum as it is, line(load_p) <= worst."""
    builder = ProgramBuilder()
    worst = builder.variable("worst", cost=1.0, upper=_MOST_RATIO, integer=False)
    wanted: dict[str, float] = {}
    flows: dict[str, dict[int, float]] = {}
    for number, item in enumerate(pools):
        delay, load = _delay(item), dict[int, float]()
        for one, share, takes in zip(item.classes, item.shares, delay.takes.tolist(), strict=True):
            flow = builder.variable(f"flow {one.name} {number}", cost=0.0, upper=1.0, integer=False)
            load[flow] = takes
            builder.row(f"kept {one.name} {number}", {flow: 1.0}, ">=", _LEAST_PART * share)
            flows.setdefault(one.name, {})[flow] = 1.0
            wanted[one.name] = wanted.get(one.name, 0.0) + share
        builder.row(f"stable {number}", load, "<=", delay.largest)
        for line, (slope, height) in enumerate(zip(delay.slopes.tolist(), delay.heights.tolist(), strict=True)):
            row = {flow: slope * takes for flow, takes in load.items()}
            builder.row(f"line {number} {line}", {**row, worst: -1.0}, "<=", -height)
    for name, row in flows.items():
        builder.row(f"cover {name}", row, ">=", wanted[name])
    values = solve(builder.build())
    if values is None:
        return None
    sums = {name: float(sum(values[flow] for flow in row)) for name, row in flows.items()}
    left = iter(values[1:].tolist())
    found = []
    for item in pools:
        shares = {one.name: next(left) * wanted[one.name] / sums[one.name] for one in item.classes}
        found.append(replace(item, shares=tuple(shares.values())))
    return found


def _delay(item: PlannedPool) -> _Delay:
    takes = np.array([float(unit_loads([item.candidate], [one])[0]) for one in item.classes])
    takes = takes / float(takes @ np.array(item.shares))
    mix = [one.part(share) for one, share in zip(item.classes, item.shares, strict=True)]
    loads = _LOADS * item.replicas / float(unit_loads([item.candidate], mix)[0])
    ratios = np.maximum.accumulate(_ratios(item, loads))
    stable = ratios < _MOST_RATIO
    slopes, heights = lower_lines(loads[stable], ratios[stable])
    return _Delay(slopes=slopes, heights=heights, largest=float(loads[stable].max()), takes=takes)


def lower_lines(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slopes and heights at 0 of the lower convex hull of points with ascending ``x``, flat lines included."""
    hull: list[int] = []
    for place in range(x.size):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[place] - x[a]) <= (y[place] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(place)
    if len(hull) == 1:
        return np.zeros(1), y[hull]
    slopes = np.diff(y[hull]) / np.diff(x[hull])
    return slopes, y[hull[:-1]] - slopes * x[hull[:-1]]


def _worst(pools: Sequence[PlannedPool]) -> float:
    return max(float(_ratios(item, np.ones(1))[0]) for item in pools)


def _ratios(item: PlannedPool, loads: FloatArray) -> FloatArray:
    """Worst prediction over target at multiples of what the pool carries; infinite where it is not stable."""
    candidate, counts = item.candidate, np.full(loads.size, item.replicas)
    found = slo_ratios(
        [candidate.replica] * loads.size,
        item.classes,
        item.shares,
        counts,
        loads,
        candidate.router,
        confidence=candidate.confidence,
    )
    return np.asarray(found.max(axis=1))
