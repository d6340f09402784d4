"""Shares of the models of a class between bounds: whether they can sum to 1, and the best average they allow."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["best_average", "settled_bounds"]

_ROUNDING = 2e-3  # three shares of 0.333 are meant to be all


def settled_bounds(bounds: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...] | None:
    """The tightest bounds that allow the same shares with a sum of 1; None where none has it.

    Bounds that miss a sum of 1 by rounding are scaled to it.

    Args:
        bounds: least and most of each share.

    Example:
        >>> settled_bounds([(0.8, 0.8), (0.0, 1.0)])
        ((0.8, 0.8), (0.2, 0.2))
        >>> settled_bounds([(0.8, 0.8), (0.3, 0.5)]) is None
        True
    """
    least, most = math.fsum(low for low, _ in bounds), math.fsum(high for _, high in bounds)
    if least > 1.0 + _ROUNDING or most < 1.0 - _ROUNDING:
        return None
    lows = [low / max(least, 1.0) for low, _ in bounds]
    highs = [max(high / min(most, 1.0), low) for (_, high), low in zip(bounds, lows, strict=True)]
    least, most = math.fsum(lows), math.fsum(highs)
    return tuple(
        _tight(max(low, 1.0 - (most - high)), min(high, 1.0 - (least - low)))
        for low, high in zip(lows, highs, strict=True)
    )


def _tight(low: float, high: float) -> tuple[float, float]:
    """Bounds without the rounding of sums, which may put the lower above the upper."""
    low, high = round(max(low, 0.0), 12), round(min(high, 1.0), 12)
    return (low, high) if low <= high else ((low + high) / 2.0, (low + high) / 2.0)


def best_average(qualities: Sequence[float], bounds: Sequence[tuple[float, float]]) -> float | None:
    """Largest average quality of shares between bounds with a sum of 1; None where there are no such shares.

    Args:
        qualities: of each model.
        bounds: least and most share of each model.

    Example:
        >>> round(best_average([0.9, 0.8], [(0.0, 0.25), (0.0, 1.0)]), 6)
        0.825
    """
    settled = settled_bounds(bounds)
    if settled is None:
        return None
    left, total = 1.0 - math.fsum(low for low, _ in settled), 0.0
    for quality, (low, high) in sorted(zip(qualities, settled, strict=True), reverse=True):
        share = low + min(max(left, 0.0), high - low)
        left -= share - low
        total += share * quality
    return total
