"""What a plan makes small where several costs may come: their mean, the mean of the dearest part, or a mix of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Risk", "risk_words", "tail_mean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """How costs that may come count together.

    Attributes:
        level: the conditional value at risk is the mean of the dearest ``1 - level`` of what may come, in [0, 1).
        weight: of it beside the mean, in (0, 1].
    """

    level: float
    weight: float = 1.0

    def value(self, costs: Sequence[float], weights: Sequence[float]) -> float:
        """``(1 - weight) mean + weight CVaR`` of costs with their probabilities.

        Example:
            >>> Risk(level=0.75, weight=0.5).value([10.0, 20.0], [0.5, 0.5])
            17.5
        """
        tail = tail_mean(costs, weights, self.level)
        return (1.0 - self.weight) * tail_mean(costs, weights, 0.0) + self.weight * tail


def risk_words(risk: Risk) -> str:
    """What counts as the cost, for people.

    Example:
        >>> risk_words(Risk(level=0.9))
        'the mean of the dearest 10 % of what may come (CVaR)'
    """
    share = f"{(1.0 - risk.level) * 100.0:.4g} %"
    if risk.weight == 1.0:
        return f"the mean of the dearest {share} of what may come (CVaR)"
    return (
        f"{1.0 - risk.weight:.4g} times the mean over scenarios and {risk.weight:.4g} times that of the dearest {share}"
        " of what may come (CVaR)"
    )


def tail_mean(costs: Sequence[float], weights: Sequence[float], level: float) -> float:
    """Conditional value at risk: the mean of the dearest ``1 - level`` of what may come.

    An outcome that lies across the border counts with the part of it that lies beyond.

    Args:
        costs: of each outcome.
        weights: their probabilities; only their proportions matter.
        level: in [0, 1); 0: the mean.

    Returns:
        ``min over eta of eta + sum w (cost - eta)+ / (1 - level)``, where w sum to 1.

    Reference: Rockafellar and Uryasev, Optimization of conditional value-at-risk, Journal of Risk 2 (2000);
    for discrete outcomes, Conditional value-at-risk for general loss distributions, J. Banking & Finance 26 (2002).

    Example:
        >>> round(tail_mean([10.0, 20.0, 60.0], [0.7, 0.25, 0.05], 0.9), 9)  # half of the tail at 60, half at 20
        40.0
    """
    total, left = sum(weights), 1.0 - level
    mean = 0.0
    for cost, weight in sorted(zip(costs, weights, strict=True), reverse=True):
        part = min(weight / total, left)
        mean += part * cost
        left -= part
    return mean / (1.0 - level)
