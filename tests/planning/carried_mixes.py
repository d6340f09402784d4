"""What one pool carries of one to three classes, by looks along rays of its own; nothing of the optimizer is used."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.evaluation import slo_ratios
from qmodel.types import FloatArray, MeasuredCapacity, Replica, RequestClass, Router

__all__ = ["STEPS", "Region", "regions_of"]

STEPS = {1: 1, 2: 240, 3: 20}  # of the share of every class but the last, by number of classes
_CUTS = {1: 1, 2: 10, 3: 6}  # rays are these even parts of the mixes
_INWARD = 0.02  # and none is closer to a mix without one of its classes: there the edge may jump
_LOOKS = 14
_TIGHT = {1: 0.0003, 2: 0.002, 3: 0.002}
_NEXT_TO_NONE = 1e-4  # of the demand


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Mixes that a pool carries: the largest share of the last class by the shares of the others.

    Attributes:
        most: shape (S + 1,) * (K - 1) over shares 0, 1/S, ..., 1; minus infinity where the others are too much.
    """

    most: FloatArray


def regions_of(
    replica: Replica | MeasuredCapacity,
    classes: Sequence[RequestClass],
    counts: Sequence[int],
    router: Router,
    confidence: str,
) -> list[Region]:
    """One region for each count of a pool.

    Args:
        replica: at the confidence in force, or what was measured.
        classes: that may share the pool, at most three; the shares of those that it does not serve are zero.
        counts: replicas that serve.
        router: how requests are spread.
        confidence: ``nominal`` or ``p90``.
    """
    if isinstance(replica, MeasuredCapacity):
        takes = [item.rate_rps / replica.max_rate_rps.get(item.name, 1e-12) for item in classes]
        return [Region(_linear(np.array(takes) / count)) for count in counts]
    most = [np.full((STEPS[len(classes)] + 1,) * (len(classes) - 1), -np.inf) for _ in counts]
    for size in range(1, len(classes) + 1):
        for some in itertools.combinations(range(len(classes)), size):
            mix, rays = [classes[place] for place in some], _rays(size)
            looked = [1] if router == "random" else list(counts)
            found = np.array([_crossings(replica, mix, ray.tolist(), looked, router, confidence) for ray in rays])
            loads = [found[:, 0] * count for count in counts] if router == "random" else list(found.T)
            for place, each in enumerate(loads):
                own = _table(rays, each, STEPS[len(classes)])
                most[place] = np.maximum(most[place], _among(own, some, len(classes), STEPS[len(classes)]))
    return [Region(item) for item in most]


def _among(own: FloatArray, some: Sequence[int], classes: int, steps: int) -> FloatArray:
    """What is known of some classes as a table over all: the others have no share."""
    total = np.full((steps + 1,) * (classes - 1), -np.inf)
    if some[-1] == classes - 1:  # the last of them is the last of all
        total[tuple(slice(None) if place in some else 0 for place in range(classes - 1))] = own
        return total
    cells = itertools.product(range(steps + 1), repeat=len(some) - 1)
    for cell, last in zip(cells, own.reshape(-1).tolist(), strict=True):
        if last >= 0.0:
            places = dict(zip(some[:-1], cell, strict=True))
            for share in range(int(last * steps + 1e-9) + 1):
                places[some[-1]] = share
                total[tuple(places.get(place, 0) for place in range(classes - 1))] = 0.0
    return total


def _rays(classes: int) -> FloatArray:
    """Even parts of the mixes, a little inward; each sums to 1."""
    cuts = _CUTS[classes]
    whole = [item for item in itertools.product(range(cuts + 1), repeat=classes) if sum(item) == cuts]
    inward = _INWARD if classes > 1 else 0.0
    return np.array(whole, dtype=float) / cuts * (1.0 - inward) + inward / classes


def _crossings(
    replica: Replica,
    classes: Sequence[RequestClass],
    mix: Sequence[float],
    counts: Sequence[int],
    router: Router,
    confidence: str,
) -> FloatArray:
    """Largest multiple of a mix with every target met, up to twice the demand of a class; shape (N,).

    The interval is cut where the chord of the logarithm of the worst ratio crosses, or in half.
    """
    served = [place for place, part in enumerate(mix) if part > 0.0]
    some, parts = [classes[place] for place in served], [mix[place] for place in served]
    sizes = np.array(counts)

    def worst(rows: np.ndarray, loads: FloatArray) -> FloatArray:
        many = [replica] * rows.size
        found = slo_ratios(many, some, parts, sizes[rows], loads, router, confidence=confidence).max(axis=1)
        return np.log(np.maximum(found, 1e-9))

    every = np.arange(sizes.size)
    end = (1.0 if len(classes) == 1 else 2.0) / max(parts)
    low, high = np.zeros(sizes.size), np.full(sizes.size, end)
    below, above = worst(every, high * _NEXT_TO_NONE), worst(every, high)
    low = np.where(above <= 0.0, high, low)
    left = (below <= 0.0) & (above > 0.0)
    for look in range(_LOOKS):
        rows = np.flatnonzero(left & (high - low > _TIGHT[len(classes)] * high))
        if rows.size == 0:
            break
        chord = -below[rows] / (above[rows] - below[rows])
        even = ~np.isfinite(chord) | (look % 3 == 2) | (above[rows] > 1.5)
        part = np.clip(np.where(even, 0.5, chord + 0.02 * (-1.0) ** look), 0.02, 0.98)
        loads = low[rows] + part * (high[rows] - low[rows])
        found = worst(rows, loads)
        met = found <= 0.0
        low[rows[met]], below[rows[met]] = loads[met], found[met]
        high[rows[~met]], above[rows[~met]] = loads[~met], found[~met]
    return low


def _linear(takes: FloatArray) -> FloatArray:
    """The region of a linear capacity, exact: takes . shares <= 1."""
    grids = _grids(takes.size)
    used = np.zeros((STEPS[takes.size] + 1,) * (takes.size - 1))
    for take, grid in zip(takes[:-1], grids, strict=True):
        used = used + take * grid
    most = np.minimum((1.0 - used) / takes[-1], 1.0)
    return np.where(used <= 1.0 + 1e-12, np.maximum(most, 0.0), -np.inf)


def _grids(classes: int) -> list[FloatArray]:
    axis = np.linspace(0.0, 1.0, STEPS[classes] + 1)
    return list(np.meshgrid(*[axis] * (classes - 1), indexing="ij"))


def _table(rays: FloatArray, loads: FloatArray, steps: int) -> FloatArray:
    """The region between points along rays: flat pieces of its edge join neighbours."""
    classes = rays.shape[1]
    points = rays * loads[:, None]
    axis = np.linspace(0.0, 1.0, steps + 1)
    if classes == 1:
        return np.array(min(float(points.max()), 1.0))
    if classes == 2:
        first, second = np.maximum.accumulate(points[:, 0]), points[:, 1]  # rays go from the second to the first
        most = np.minimum(np.interp(axis, first, second), 1.0)
        return np.where((axis <= first[-1] + 1e-12) & (most > 0.0), most, -np.inf)
    one, two = np.meshgrid(axis, axis, indexing="ij")
    low, high = np.zeros(one.shape), np.ones(one.shape)
    gauge = _Gauge(rays, loads)
    inside = gauge(np.stack([one, two, low], axis=-1)) <= 1.0
    whole = gauge(np.stack([one, two, high], axis=-1)) <= 1.0
    for _ in range(10):
        middle = (low + high) / 2.0
        good = gauge(np.stack([one, two, middle], axis=-1)) <= 1.0
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return np.where(whole, 1.0, np.where(inside, low, -np.inf))


class _Gauge:
    """How full a pool is with a mix of three classes: one over what it carries along the mix, linear between rays."""

    def __init__(self, rays: FloatArray, loads: FloatArray) -> None:
        self._cuts = _CUTS[3]
        with np.errstate(divide="ignore"):
            each = np.where(loads > 0.0, 1.0 / loads, 1e6)
        places = np.round((rays - _INWARD / 3.0) / (1.0 - _INWARD) * self._cuts).astype(int)
        self._values = np.full((self._cuts + 1,) * 2, 1e6)
        self._values[places[:, 0], places[:, 1]] = each

    def __call__(self, mixes: FloatArray) -> FloatArray:
        total = mixes.sum(axis=-1)
        parts = np.divide(mixes, total[..., None], out=np.full_like(mixes, 1.0 / 3.0), where=total[..., None] > 0.0)
        inner = np.maximum(parts - _INWARD / 3.0, 0.0)
        place = self._cuts * inner / inner.sum(axis=-1, keepdims=True)
        first, second = place[..., 0], place[..., 1]
        i = np.clip(np.floor(first), 0, self._cuts - 1).astype(int)
        j = np.clip(np.floor(second), 0, self._cuts - 1).astype(int)
        u, v = first - i, second - j
        upper = u + v > 1.0  # the triangle on the far side of the square
        near = (1 - u - v) * self._at(i, j) + u * self._at(i + 1, j) + v * self._at(i, j + 1)
        far = (u + v - 1) * self._at(i + 1, j + 1) + (1 - v) * self._at(i + 1, j) + (1 - u) * self._at(i, j + 1)
        return np.asarray(total * np.where(upper, far, near))

    def _at(self, first: np.ndarray, second: np.ndarray) -> FloatArray:
        top = self._cuts
        return np.where(first + second <= top, self._values[np.minimum(first, top), np.minimum(second, top)], 0.0)
