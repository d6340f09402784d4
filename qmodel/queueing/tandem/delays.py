"""Independent delays added up by nodes: a law cut into slices, each with its probability, mean and variance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.queueing.replica.percentiles import GridLaw, KernelLaw
from qmodel.types import FloatArray

__all__ = ["DelayNodes", "no_delay", "nodes_of_grid", "slices", "steps_after"]

_EDGES = np.concatenate(
    [np.linspace(0.0, 0.9, 28)[:-1], 0.9 + 0.09 * np.linspace(0.0, 1.0, 13)[:-1], [0.99, 0.995, 0.999, 0.9999, 1.0]]
)
_SKEW = (1e-3, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DelayNodes:
    """Law of a delay as m slices.

    Attributes:
        weight: probabilities, shape (m,), sum 1.
        mean_s: slice means, s, shape (m,).
        variance: variance within each slice, s^2, shape (m,).
    """

    weight: FloatArray
    mean_s: FloatArray
    variance: FloatArray

    @property
    def mean(self) -> float:
        """Mean of the whole delay, s."""
        return float(self.weight @ self.mean_s)

    def plus(self, other: DelayNodes) -> DelayNodes:
        """The law of the sum of two independent delays.

        Example:
            >>> one = DelayNodes(weight=np.array([0.5, 0.5]), mean_s=np.array([0.0, 1.0]), variance=np.zeros(2))
            >>> one.plus(one).mean
            1.0
        """
        return slices(
            np.multiply.outer(self.weight, other.weight).ravel(),
            np.add.outer(self.mean_s, other.mean_s).ravel(),
            np.add.outer(self.variance, other.variance).ravel(),
        )

    def scaled(self, factor: float) -> DelayNodes:
        """The law of ``factor`` times the delay."""
        return DelayNodes(weight=self.weight, mean_s=self.mean_s * factor, variance=self.variance * factor**2)


def no_delay(delay_s: float = 0.0) -> DelayNodes:
    """A delay that is always the same."""
    return DelayNodes(weight=np.ones(1), mean_s=np.array([delay_s]), variance=np.zeros(1))


def slices(weight: FloatArray, mean_s: FloatArray, variance: FloatArray) -> DelayNodes:
    """Nodes in any order and number gathered into slices that are finer towards the tail; mean and variance stay."""
    kept = weight > 0.0
    order = np.argsort(mean_s[kept], kind="stable")
    mass, middle, within = (item[kept][order] for item in (weight / weight.sum(), mean_s, variance))
    if mass.size > _EDGES.size:
        level = np.cumsum(mass) - mass / 2.0
        place = np.searchsorted(_EDGES, level, side="right")
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        total = np.add.reduceat(mass, starts)
        centre = np.add.reduceat(mass * middle, starts) / total
        second = np.add.reduceat(mass * (within + middle**2), starts) / total
        mass, middle, within = total, centre, np.maximum(second - centre**2, 0.0)
    return DelayNodes(weight=mass, mean_s=middle, variance=within)


def nodes_of_grid(law: GridLaw) -> DelayNodes:
    """Slices of the first law on a grid."""
    times, level = law.times_s[0], law.cdf[0]
    mass, middle = np.diff(level, prepend=0.0), np.concatenate([times[:1], (times[1:] + times[:-1]) / 2.0])
    found = slices(mass, middle, np.diff(times, prepend=times[0]) ** 2 / 12.0)
    return DelayNodes(
        weight=found.weight, mean_s=found.mean_s + float(law.mean_s[0]) - found.mean, variance=found.variance
    )


def steps_after(
    delay: DelayNodes,
    weight: FloatArray,
    mean_s: FloatArray,
    variance: FloatArray,
    third: FloatArray,
    per_step: FloatArray | None = None,
) -> KernelLaw:
    """Law of a delay and an independent run of steps, one case.

    Args:
        delay: before the steps.
        weight: probability of each band of lengths, shape (k,).
        mean_s, variance, third: of the time of its steps, with the spread of lengths within the band, shapes (k,).
        per_step: steps of each band, where the law is wanted per step, shape (k,).
    """
    steps = np.ones_like(weight) if per_step is None else per_step
    mass = np.multiply.outer(delay.weight, weight).ravel()
    centre = (np.add.outer(delay.mean_s, mean_s) / steps).ravel()
    spread = np.sqrt(
        np.maximum((np.add.outer(delay.variance, variance) / steps**2).ravel(), (1e-5 * centre) ** 2 + 1e-18)
    )
    skew = np.clip(np.tile(third / steps**3, delay.weight.size) / spread**3, *_SKEW)
    kept = mass > 0.0
    return KernelLaw(
        weight=mass[None, kept] / mass.sum(),
        centre_s=centre[None, kept],
        spread_s=spread[None, kept],
        skew=skew[None, kept],
    )
