"""Mixes of classes as rays, and cells between them in which what a pool carries is interpolated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.types import FloatArray, IntArray

__all__ = ["Fan", "corners"]

_SAME = 1e-3  # rays closer than this in every coordinate are one
_ON_FACE = 1e-9  # of a barycentric weight that counts as none
_MOST_CORNERS = 400  # if not said otherwise; what is left out cuts off least


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fan:
    """Rays in the space of class shares, and simplicial cells that together hold every mix.

    Attributes:
        rays: shares of the classes' demands, the largest of each ray 1, shape (R, K).
        cells: positions of the K rays of each cell, shape (M, K).
    """

    rays: FloatArray
    cells: IntArray

    @classmethod
    def start(cls, classes: int) -> Fan:
        """Each class alone, and all of them in proportion to their demand.

        Example:
            >>> fan = Fan.start(2)
            >>> fan.rays.tolist(), fan.cells.tolist()
            ([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[2, 1], [0, 2]])
        """
        alone = cls(rays=np.eye(classes), cells=np.arange(classes)[None, :])
        return alone.split(np.ones(classes)) if classes > 1 else alone

    def split(self, mix: FloatArray) -> Fan:
        """The fan with one ray more: every cell that holds it is cut there.

        Args:
            mix: shares, not negative, at least one positive, shape (K,).

        Returns:
            The same fan where the ray is there already.

        Example:
            >>> Fan.start(2).split(np.array([1.0, 0.5])).cells.tolist()
            [[2, 1], [3, 2], [0, 3]]
        """
        if self.near(mix) is not None:
            return self
        ray = np.asarray(mix, dtype=float) / np.max(mix)
        added = self.rays.shape[0]
        weights = self._weights(ray)
        holding = np.all(weights >= -_ON_FACE, axis=1)
        kept: list[list[int]] = self.cells[~holding].tolist()
        for cell, weight in zip(self.cells[holding].tolist(), weights[holding].tolist(), strict=True):
            for place, part in enumerate(weight):
                if part > _ON_FACE:
                    kept.append([*cell[:place], added, *cell[place + 1 :]])
        return Fan(rays=np.vstack([self.rays, ray]), cells=np.array(kept))

    def near(self, mix: FloatArray) -> int | None:
        """Position of a ray that is the same as the mix but for rounding; None where there is none."""
        away = np.max(np.abs(self.rays - np.asarray(mix, dtype=float) / np.max(mix)), axis=1)
        return int(np.argmin(away)) if away.min() < _SAME else None

    def holding(self, mix: FloatArray) -> IntArray:
        """Positions of the rays of a cell that holds the mix, shape (K,)."""
        return np.asarray(self.cells[int(np.argmax(self._weights(mix).min(axis=1)))])

    def _weights(self, mix: FloatArray) -> FloatArray:
        """The mix as a sum of the rays of each cell, shape (M, K)."""
        return np.asarray(np.linalg.solve(np.swapaxes(self.rays[self.cells], 1, 2), mix[:, None])[..., 0])


def corners(outside: FloatArray, alone: FloatArray, most: int = _MOST_CORNERS) -> FloatArray:
    """Largest points that may be inside a set that holds, with a point, all that is below it.

    Args:
        outside: points that are not inside, shape (P, K).
        alone: the largest coordinates there are, shape (K,).
        most: corners beyond which no more points are taken into account.

    Returns:
        Corners whose boxes cover the set, none below another, shape (Q, K): all points that are not at or above one
        of ``outside`` in every coordinate that is positive there.

    Example:
        >>> corners(np.array([[0.5, 0.5]]), np.array([1.0, 1.0])).tolist()
        [[0.5, 1.0], [1.0, 0.5]]
    """
    found = np.asarray(alone, dtype=float)[None, :]
    for point in outside[np.argsort(-np.count_nonzero(outside, axis=1), kind="stable")]:
        places = np.flatnonzero(point > 0.0)
        above = np.all(found[:, places] > point[places], axis=1)
        if not above.any() or found.shape[0] > most:
            continue
        cut = np.repeat(found[above], places.size, axis=0)
        rows = np.arange(cut.shape[0])
        cut[rows, np.tile(places, int(above.sum()))] = np.tile(point[places], int(above.sum()))
        found = _largest(np.vstack([found[~above], cut]))
    return found[np.lexsort(found.T[::-1])]


def _largest(points: FloatArray) -> FloatArray:
    """Without points that are at or below another in every coordinate."""
    below = np.all(points[:, None, :] <= points[None, :, :], axis=2)
    same = below & below.T
    below &= ~same
    below |= np.tril(same, -1)  # of equal ones the first stays
    return np.asarray(points[~below.any(axis=1)])
