"""Where a pool stops meeting its targets: intervals of the load narrowed by a few looks at many pools together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.types import FloatArray, IntArray

__all__ = ["TIGHT", "Bracket", "Look", "narrowed", "wide"]

TIGHT = 0.004  # relative width at which an interval is narrow enough
_ROUNDS = 20  # at most: every other one cuts an interval in four; smooth predictions take one or two
_SPARED = np.log(0.9)  # a target that a higher load meets with this much room is not looked at again below it
_ASIDE, _ENOUGH = 0.15, 0.45 * TIGHT  # looks beside the likely crossing: part of the way to an end, of the load
_TRUSTED = 0.25  # of what a curve moves the chord's crossing: how far beside it to look
_STEEP = 0.8  # 1 - target over prediction beyond which a chord up to it says nothing
_EVEN = np.array([0.25, 0.5, 0.75])  # looks at an interval of which little is known
_FEW = 6  # cases that need the same targets, below which they are not looked at apart
_EDGE = 0.02  # no look is closer to an end of its interval than this part of it

BoolArray = npt.NDArray[np.bool_]
# rows of the cases, loads of each (n, P) ascending, which targets (W,) -> log of prediction over target (n, P, W)
Look = Callable[[IntArray, FloatArray, BoolArray], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bracket:
    """Four ascending loads of each case, the second carried and the third not, and what is known there.

    Attributes:
        loads: shape (C, 4); the outer two may equal their neighbours.
        sides: log of prediction over target of W targets, shape (C, 4, W): minus infinity where a target is known to
            be met, infinite where nothing is known of a load that is not carried.
    """

    loads: FloatArray
    sides: FloatArray

    @property
    def low(self) -> FloatArray:
        """Loads that are carried, shape (C,)."""
        return self.loads[:, 1]

    @property
    def high(self) -> FloatArray:
        """Loads that are not carried, shape (C,)."""
        return self.loads[:, 2]

    def pending(self) -> BoolArray:
        """Targets that the load that is not carried does not meet with room to spare, shape (C, W)."""
        return np.asarray(self.sides[:, 2] > _SPARED)

    def with_looks(self, rows: IntArray, loads: FloatArray, sides: FloatArray) -> Bracket:
        """The interval of some cases cut at looks between its ends, made monotone over the load.

        Args:
            rows: of the cases, shape (n,).
            loads: ascending, shape (n, P).
            sides: shape (n, P, W).
        """
        place = np.concatenate([self.loads[rows, :2], loads, self.loads[rows, 2:]], axis=1)
        known = np.concatenate([self.sides[rows, :2], sides, self.sides[rows, 2:]], axis=1)
        known[:, 2:] = np.maximum.accumulate(known[:, 2:], axis=1)
        met = 1 + (known[:, 2:-2].max(axis=2) <= 0.0).sum(axis=1)
        take = met[:, None] + np.arange(-1, 3)
        found_loads, found_sides = self.loads.copy(), self.sides.copy()
        found_loads[rows] = np.take_along_axis(place, take, axis=1)
        found_sides[rows] = np.take_along_axis(known, take[..., None], axis=1)
        return Bracket(loads=found_loads, sides=found_sides)


def narrowed(look: Look, bracket: Bracket, rivals: IntArray | None = None) -> Bracket:
    """Shrink intervals that hold the crossing until they are narrow, three looks in each round of all cases together.

    One look is where the curve through the points known crosses, one to each side of it, closer the straighter the
    curve. A percentile jumps where the share of requests that wait passes its level, and everything does near full
    load; there, and after two rounds that shrank an interval little, it is cut in four even parts. Predictions rise
    with the load, so a target that a higher load meets with room to spare is not asked for again.

    Args:
        look: gives log of prediction over target.
        bracket: what is known, C cases.
        rivals: number of the group of each case, of which only the one that carries most is wanted, shape (C,): the
            interval of another is left as soon as it ends near or below what one of its group carries.

    Example:
        >>> sides = np.array([-1.0, -1.0, 3.0, 3.0]).reshape(1, 4, 1)
        >>> ends = Bracket(loads=np.array([[0.0, 0.0, 9.0, 9.0]]), sides=sides)
        >>> found = narrowed(lambda rows, loads, targets: np.log(loads / 2.0)[..., None], ends)
        >>> bool(found.low[0] <= 2.0 < found.high[0] < 2.01)
        True
    """
    slow = np.zeros(bracket.loads.shape[0], dtype=int)  # rounds in a row that shrank an interval little
    for _ in range(_ROUNDS):
        rows = np.flatnonzero(wide(bracket.low, bracket.high) & ~_outdone(bracket, rivals))
        if rows.size == 0:
            break
        width = bracket.high - bracket.low
        middle, aside = _likely(bracket, rows)
        even = np.isnan(middle) | (slow[rows] > 1)
        beside = middle[:, None] + aside[:, None] * np.array([-1.0, 0.0, 1.0])
        loads = bracket.low[rows, None] + width[rows, None] * np.where(even[:, None], _EVEN, beside)
        bracket = bracket.with_looks(rows, loads, _looked(look, rows, loads, bracket.pending()[rows]))
        little = bracket.high[rows] - bracket.low[rows] > width[rows] / 3.0
        slow[rows] = np.where(even, np.minimum(slow[rows], 1), np.where(little, slow[rows] + 1, 0))
    return bracket


def wide(low: FloatArray, high: FloatArray) -> BoolArray:
    """Whether intervals are wider than asked for."""
    return np.asarray(high - low > TIGHT * high)


def _outdone(bracket: Bracket, rivals: IntArray | None) -> BoolArray:
    """Cases that carry no more than another of their group surely does, but for the width that is asked for."""
    if rivals is None:
        return np.zeros(bracket.low.size, dtype=bool)
    most = np.zeros(int(rivals.max(initial=0)) + 1)
    np.maximum.at(most, rivals, bracket.low)
    return np.asarray(bracket.high * (1.0 - TIGHT) <= most[rivals])


def _looked(look: Look, rows: IntArray, loads: FloatArray, pending: BoolArray) -> FloatArray:
    """Cases that need the same targets are looked at together; the others' sides are minus infinity.

    Where few need the same, they are looked at with the rest: a call costs as much as several targets.
    """
    sides = np.full((*loads.shape, pending.shape[1]), -np.inf)
    if rows.size < _FEW:
        targets = np.asarray(pending.any(axis=0))
        sides[:, :, targets] = look(rows, loads, targets)
        return sides
    _, which, many = np.unique(pending, axis=0, return_inverse=True, return_counts=True)
    which = np.where(many < _FEW, -1, np.arange(many.size))[which.reshape(-1)]
    for kind in np.unique(which):
        mine = np.flatnonzero(which == kind)
        targets = np.asarray(pending[mine].any(axis=0))
        sides[np.ix_(mine, np.arange(loads.shape[1]), np.flatnonzero(targets))] = look(rows[mine], loads[mine], targets)
    return sides


def _likely(bracket: Bracket, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Where the crossing is likely, and how far beside it to look, as parts of the interval, shapes (n,).

    NaN where nothing says so: the interval is then cut evenly.
    """
    chord, curve = _crossing(bracket, rows)
    middle = np.clip(np.where(np.isnan(curve), chord, curve), _EDGE, 1.0 - _EDGE)
    nearer = np.minimum(middle, 1.0 - middle)
    enough = _ENOUGH * bracket.high[rows] / (bracket.high[rows] - bracket.low[rows])
    bend = np.where(np.isnan(curve), np.inf, _TRUSTED * np.abs(middle - chord))
    aside = np.maximum(np.minimum(bend, _ASIDE * nearer), enough)
    return middle, np.minimum(aside, 0.5 * nearer)


def _crossing(bracket: Bracket, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Where the first target is likely missed, as part of the interval: by its chord, and by a curve; shapes (n,).

    Both are drawn through 1 - target over prediction, 0 at the crossing: times grow like one over the room that is
    left, so that this is straighter than the prediction or its log, and it ends at 1 where the load is full. The chord
    joins the ends; the curve is the inverse quadratic through them and the nearer of their neighbours. NaN where points
    are missing, do not rise or say little.
    """
    loads, sides = bracket.loads[rows], bracket.sides[rows]
    width = (loads[:, 2] - loads[:, 1])[:, None]
    place = ((loads - loads[:, 1:2]) / width)[..., None]  # 0 and 1 at the ends
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        before, low, high, behind = (-np.expm1(-sides[:, point]) for point in range(4))
        chord = -low / (high - low)
        nearer = np.abs(place[:, 0]) <= np.abs(place[:, 3] - 1.0)
        left = nearer & np.isfinite(before) & (place[:, 0] < 0.0)
        third, where = np.where(left, before, behind), np.where(left, place[:, 0], place[:, 3])
        curve = low * third / ((high - low) * (high - third)) + where * low * high / ((third - low) * (third - high))
        rising = np.where(left, before < low, high < behind) & (low < high)
        curve = np.where(rising & (curve > 0.0) & (curve < 1.0), curve, np.nan)
    first = np.where((high > low) & np.isfinite(chord), chord, np.inf)
    target = first.argmin(axis=1)[:, None]
    found = np.take_along_axis(first, target, axis=1)[:, 0]
    little = np.isinf(found) | (high > _STEEP).any(axis=1)
    curve = np.take_along_axis(curve, target, axis=1)[:, 0]
    return np.where(little, np.nan, found), np.where(little, np.nan, curve)
