"""Requests dealt to the replicas of a pool in turn: each gets every R-th, which is smoother than Poisson."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.types import FloatArray

__all__ = ["Dealt", "dealt"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dealt:
    """What dealing in turn takes from the scatter of arrivals at one replica, C cases.

    Attributes:
        excess: asymptotic index of dispersion beyond a random split, 1/R - 1, shape (C,).
        decay_per_s: how fast it is forgotten, 1/s, shape (C,).
    """

    excess: FloatArray
    decay_per_s: FloatArray

    def dispersion(self, window_s: FloatArray) -> FloatArray:
        """Index of dispersion of the counts in windows of ``window_s`` s."""
        x = np.maximum(self.decay_per_s * window_s, 1e-9)
        return np.asarray(1.0 + self.excess * (1.0 + np.expm1(-x) / x))

    def repeated(self, times: int) -> Dealt:
        """Every case ``times`` times in a row."""
        return Dealt(excess=np.repeat(self.excess, times), decay_per_s=np.repeat(self.decay_per_s, times))


def dealt(rate_rps: FloatArray, replicas: FloatArray) -> Dealt:
    """Every R-th of a stream: gaps of R stages, so few arrivals come close together.

    Over long windows counts scatter by 1/R. A window too short for two arrivals has no second one: its index is 1 less
    the mean count, which sets how fast the component is forgotten.

    Args:
        rate_rps: arrivals at one replica, shape (C,).
        replicas: R, shape (C,).

    Example:
        >>> found = dealt(np.array([2.0]), np.array([4.0]))
        >>> found.dispersion(np.array([1e-3])).round(3).tolist(), found.dispersion(np.array([1e6])).round(3).tolist()
        ([0.998], [0.25])

    Reference: Cox, Renewal Theory (1962), sec. 4.5 for the limit; the decay is own construction, see
        docs/theory/replica.md.
    """
    excess = 1.0 / replicas - 1.0
    return Dealt(excess=excess, decay_per_s=2.0 * rate_rps / np.maximum(-excess, 1e-12))
