"""From a continuous law to a law on token counts, and from many atoms to few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np

from qmodel.types import FloatArray, Law

__all__ = ["MOST_TOKENS", "AtCap", "capped", "compress", "cut_given_atom", "discretise"]

AtCap = Literal["atom", "truncate"]

MOST_TOKENS = 10_000_000  # where every law ends at the latest
_TAIL = 1e-9  # an unbounded law ends where so little probability is left
_EXACT_TO = 8_192  # every integer is a cell of its own up to here
_RATIO = 1.0 + 2.0**-13  # above, cells grow by this factor: 0.012 % wide
_FINE = 2.0**-12  # log-width of the cells in which sums of atoms are gathered
_MAX_ATOMS = 512


def discretise(
    cdf: Callable[[FloatArray], FloatArray],
    *,
    label: str,
    minimum: int = 1,
    maximum: int | None = None,
    at_cap: AtCap = "atom",
) -> Law:
    """The law of a continuous variable rounded to the nearest token count and cut to ``[minimum, maximum]``.

    Moments are those of the rounded and cut law. Each integer up to 8,192 is a cell of its own; above, a
    cell is 0.012 % wide, which moves no moment by more than 1e-8. A law without ``maximum`` ends where 1e-9
    of probability is left, at 10,000,000 tokens at the latest.

    Args:
        cdf: distribution function, vectorised, tokens.
        label: name for people.
        minimum: smallest count; the probability below goes there.
        maximum: largest count, None for no limit.
        at_cap: ``atom`` moves the probability above ``maximum`` to it, ``truncate`` drops and renormalises.

    Returns:
        The law with at most 512 atoms; its mean and its moments are exact.

    Raises:
        ValueError: if the limits cross, or no probability lies between them.

    Example:
        >>> law = discretise(lambda x: np.clip(x / 100.0, 0.0, 1.0), label="uniform to 100", maximum=50)
        >>> law.maximum, round(law.capped_share, 3)
        (50.0, 0.495)
    """
    if minimum < 1 or (maximum is not None and maximum < minimum):
        raise ValueError(f"min: must be at least 1 and at most max (got {minimum}, max {maximum})")
    end = max(_end(cdf), minimum)  # nothing is lost above: the last count takes what is left
    cut = maximum is not None and maximum <= end
    values, last = _cells(maximum if maximum is not None and cut else end)
    below = np.array(cdf(last + 0.5))
    above = max(1.0 - float(below[-1]), 0.0) if cut else 0.0
    if not cut or at_cap == "atom":
        below[-1] = 1.0
    mass = np.diff(below, prepend=0.0)
    start = int(np.searchsorted(last, minimum))
    if start > 0:
        mass[start] += mass[:start].sum()
        values, mass = np.maximum(values[start:], float(minimum)), mass[start:]
    total = float(mass.sum())
    if total <= 0.0:
        raise ValueError(f"{label}: no probability is left between {minimum} and {maximum} tokens")
    return compress(
        values,
        np.maximum(mass, 0.0) / total,
        label=label,
        capped_share=above if at_cap == "atom" else 0.0,
    )


def compress(values: FloatArray, mass: FloatArray, *, label: str, capped_share: float = 0.0) -> Law:
    """A law of at most 512 atoms that keeps mean, smallest and largest value; moments are those of the input.

    Neighbours are merged into their conditional mean. Merged cells share out a measure of what matters equally:
    0.55 of it is log-width between the median and p99.95 (upper quantiles keep a relative accuracy of about half a
    cell), 0.3 probability (the body), 0.15 the third moment (the far tail).

    Args:
        values: atoms in ascending order, tokens, shape (n,).
        mass: their probabilities, sum 1, shape (n,).
        label: name for people.
        capped_share: probability that a cap cut the value.

    Reference: own construction (equidistribution of a monitor function), see docs/workload.md.
    """
    keep = mass > 0.0
    values, mass = values[keep], mass[keep]
    moments = (float(mass @ values), float(mass @ values**2), float(mass @ values**3))
    if values.size > _MAX_ATOMS:
        below = np.cumsum(mass)
        median, high = values[np.searchsorted(below, [0.5, 0.9995]).clip(max=values.size - 1)]
        low = median if median < high else values[0]  # a cap may hold more than half
        width = np.diff(np.log(np.clip(values, low, high)), prepend=np.log(low))
        monitor = 0.55 * width / width.sum() + 0.3 * mass + 0.15 * mass * values**3 / moments[2]
        cell = np.floor((np.cumsum(monitor) - monitor / 2.0) * (_MAX_ATOMS - 2)).astype(np.int64)
        cell[0], cell[-1] = -1, _MAX_ATOMS  # the ends stay as they are
        starts = np.flatnonzero(np.diff(cell, prepend=-2))
        merged = np.add.reduceat(mass, starts)
        ends = values[0], values[-1]
        values, mass = np.add.reduceat(mass * values, starts) / merged, merged
        values[0], values[-1] = ends  # without the rounding of a product and a quotient
    return Law(values=values, weights=mass / mass.sum(), moments=moments, label=label, capped_share=capped_share)


def capped(
    values: FloatArray,
    mass: FloatArray,
    moments: tuple[float, float, float],
    cap: float,
    *,
    label: str,
    cut: FloatArray,
) -> Law:
    """The law of min(X, cap), for X with these atoms in any order and these (finer) moments.

    The moments lose what the atoms lose, so that they stay finer than the atoms.

    Args:
        values: atoms of X, tokens, shape (n,).
        mass: their probabilities, shape (n,).
        moments: E[X], E[X^2], E[X^3].
        cap: largest value, infinite for none.
        label: name for people.
        cut: probability that an earlier cap made X, given the atom, shape (n,).
    """
    low = np.minimum(values, cap)
    cell = np.floor(np.log(low) / _FINE).astype(np.int64)
    cell[low == low.max()] += 1  # the largest value stays apart
    merged = np.bincount(cell, weights=mass).astype(np.float64)
    filled = merged > 0.0
    merged, total = merged[filled], np.bincount(cell, weights=mass * low)[filled]
    atoms = total / merged
    atoms[-1] = low.max()
    law = compress(atoms, merged, label=label, capped_share=float(mass @ np.where(values > cap, 1.0, cut)))
    first, second, third = (moments[k - 1] + float(mass @ (low**k - values**k)) for k in (1, 2, 3))
    return replace(law, moments=(first, second, third))


def cut_given_atom(law: Law) -> FloatArray:
    """Probability that a cap made the value, given the atom: only the largest atom can hold such values."""
    cut = np.zeros(law.values.size)
    cut[-1] = min(law.capped_share / law.weights[-1], 1.0)
    return cut


@lru_cache(maxsize=8)
def _cells(top: int) -> tuple[FloatArray, FloatArray]:
    """Middle and last integer of each cell from 1 to ``top``; ``top`` is alone in the last one."""
    ends = np.arange(1.0, min(top, _EXACT_TO) + 1.0)
    if top > _EXACT_TO:
        count = int(np.ceil(np.log(top / _EXACT_TO) / np.log(_RATIO)))
        wide = np.unique(np.floor(_EXACT_TO * _RATIO ** np.arange(1.0, count + 1.0)))
        ends = np.concatenate([ends, wide[(wide > _EXACT_TO) & (wide < top - 1)], [top - 1.0, float(top)]])
        ends = np.unique(ends)
    middle = (ends + np.concatenate([[1.0], ends[:-1] + 1.0])) / 2.0
    middle.flags.writeable = ends.flags.writeable = False
    return middle, ends


def _end(cdf: Callable[[FloatArray], FloatArray]) -> int:
    """A count above which less than 1e-9 of probability lies, within a few per cent of the first such."""
    grid = np.unique(np.geomspace(16.0, MOST_TOKENS, 256).round())
    return int(grid[min(int(np.searchsorted(cdf(grid + 0.5), 1.0 - _TAIL)), grid.size - 1)])
