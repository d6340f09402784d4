"""How arrivals clump beyond a Poisson process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from qmodel.types.laws import FloatArray

__all__ = ["Burst"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Variability of a stationary arrival process beyond Poisson, to second order: a sum of fading components.

    The index of dispersion of counts in a window w is ``1 + sum_i excess_i (1 - (1 - exp(-d_i w)) / (d_i w))`` with
    ``d`` the decays: component i adds ``excess_i`` in windows much longer than ``1 / d_i``. A component with an
    infinite decay is arrivals in batches. Negative excess makes arrivals smoother than Poisson.

    Attributes:
        excess: asymptotic index of dispersion that each component adds, shape (k,).
        decay_per_s: how fast it is forgotten, 1/s, above 0, shape (k,).
        skew: skewness of the rate that each component makes vary, shape (k,), None where it is not known; empty: none
            is. Splitting a stream at random keeps it. Two seconds at ten times the rate and a slow swing may have one
            dispersion; the skewness tells them apart.

        prompt_swing: how far the prompt tokens that arrive swing over how far the output tokens do, shape (k,); empty:
            as far. Where busy minutes have short outputs, the work of decoding swings less than that of prefill.

    Example:
        >>> burst = Burst(excess=(3.0,), decay_per_s=(0.1,))
        >>> [round(float(value), 2) for value in burst.dispersion([0.01, 1000.0])], burst.thinned(0.5).excess
        ([1.0, 3.97], (1.5,))

    Reference: Cox and Lewis, The Statistical Analysis of Series of Events, 1966, sec. 4.5.
    """

    excess: tuple[float, ...]
    decay_per_s: tuple[float, ...]
    skew: tuple[float | None, ...] = field(default=(), repr=False)
    prompt_swing: tuple[float, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if len(self.excess) != len(self.decay_per_s):
            raise ValueError(
                f"decay_per_s must have one value per excess (got {len(self.decay_per_s)} and {len(self.excess)})"
            )
        if not all(math.isfinite(value) for value in self.excess):
            raise ValueError(f"excess must be finite (got {self.excess})")
        if not all(value > 0.0 for value in self.decay_per_s):
            raise ValueError(f"decay_per_s must be greater than 0 (got {self.decay_per_s})")
        if self.skew and len(self.skew) != len(self.excess):
            raise ValueError(f"skew must be empty or have one value per excess (got {len(self.skew)})")
        if not all(value is None or math.isfinite(value) for value in self.skew):
            raise ValueError(f"skew must be finite or None (got {self.skew})")
        if self.prompt_swing and len(self.prompt_swing) != len(self.excess):
            raise ValueError(f"prompt_swing must be empty or have one value per excess (got {len(self.prompt_swing)})")
        if not all(math.isfinite(value) and value >= 0.0 for value in self.prompt_swing):
            raise ValueError(f"prompt_swing must be finite and at least 0 (got {self.prompt_swing})")

    def dispersion(self, window_s: npt.ArrayLike) -> FloatArray:
        """Index of dispersion of the counts in windows of ``window_s`` s, in the shape of the windows."""
        window = np.asarray(window_s, dtype=float)
        index = np.ones_like(window)
        for excess, decay in zip(self.excess, self.decay_per_s, strict=True):
            x = np.maximum(decay * window, 1e-12)
            index = index + excess * (1.0 if math.isinf(decay) else 1.0 + np.expm1(-x) / x)
        return index

    def thinned(self, share: float) -> Burst:
        """The part of the stream that a random split sends one way; dispersion beyond Poisson shrinks with it."""
        return replace(self, excess=tuple(value * share for value in self.excess))

    @staticmethod
    def superposed(parts: Sequence[tuple[float, Burst | None]]) -> Burst | None:
        """Independent streams as one.

        Args:
            parts: rate, requests/s, and burst of each stream, None for Poisson.

        Returns:
            The burst of their sum; None where all are Poisson.
        """
        total = sum(rate for rate, _ in parts)
        terms = [
            (excess * rate / total, decay, skew, swing)
            for rate, burst in parts
            if burst is not None and rate > 0.0
            for excess, decay, skew, swing in burst.components()
        ]
        if not terms:
            return None
        excesses, decays, skews, swings = zip(*terms, strict=True)
        return Burst(
            excess=excesses,
            decay_per_s=decays,
            skew=skews if any(value is not None for value in skews) else (),
            prompt_swing=swings if any(value != 1.0 for value in swings) else (),
        )

    def components(self) -> tuple[tuple[float, float, float | None, float], ...]:
        """Excess, decay, skewness and prompt swing of each component."""
        size = len(self.excess)
        columns = (self.excess, self.decay_per_s, self.skew or (None,) * size, self.prompt_swing or (1.0,) * size)
        return tuple(zip(*columns, strict=True))

    def to_dict(self) -> dict[str, object]:
        """Plain data; the inverse of :meth:`from_dict`. An infinite decay is written as null."""
        return {
            "excess": list(self.excess),
            "decay_per_s": [None if math.isinf(decay) else decay for decay in self.decay_per_s],
            **({"skew": list(self.skew)} if self.skew else {}),
            **({"prompt_swing": list(self.prompt_swing)} if self.prompt_swing else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Sequence[float | None]]) -> Burst:
        """The inverse of :meth:`to_dict`."""
        return cls(
            excess=tuple(float(value or 0.0) for value in data["excess"]),
            decay_per_s=tuple(math.inf if value is None else float(value) for value in data["decay_per_s"]),
            skew=tuple(None if value is None else float(value) for value in data.get("skew", ())),
            prompt_swing=tuple(float(value or 0.0) for value in data.get("prompt_swing", ())),
        )
