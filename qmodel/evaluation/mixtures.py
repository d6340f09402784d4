"""All requests of a class together, whatever their paths: statistics of the mixture, and whether a target holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qmodel.evaluation.path_predictions import FleetPredictions
from qmodel.evaluation.target_values import TOLERANCE, value_of, widening
from qmodel.queueing import ClassPrediction
from qmodel.types import Path, Slo, SloScope

__all__ = ["Part", "mixture_holds", "mixture_of", "scoped_values", "together"]

Part = tuple[float, ClassPrediction | None]  # share of the class, and what it meets; None: not stable
_SCANS, _SCAN_POINTS = 5, 17  # each scan narrows a mixture's quantile by 16


def mixture_holds(parts: Sequence[Part], slo: Slo, level: str) -> bool:
    """Whether a target holds for all requests together.

    The mean of means within the target, or a share of requests beyond it of at most 1 - p; and in any case where every
    path holds it.

    Args:
        parts: one per path; their shares sum to 1.
        slo: the target.
        level: ``nominal``, ``p90`` or ``low``: the end of the queueing band that every path takes.
    """
    limit, exceeded, each = slo.target_s * (1.0 + TOLERANCE), 0.0, True
    for share, prediction in parts:
        if prediction is None:
            return False
        metric, value_s = prediction.metric(slo.metric), value_of(prediction, slo, level)
        assert value_s is not None  # the path is stable
        each = each and value_s <= limit
        if slo.p is None:
            exceeded += share * (value_s / limit - 1.0)
        else:
            within = metric.share_within(np.array([limit / widening(metric, slo.p, level)]))
            exceeded += share * (slo.p - float(within[0]))
    return each or exceeded <= TOLERANCE


def mixture_of(parts: Sequence[Part], slo: Slo, level: str) -> float | None:
    """The statistic over all paths: the mean of means, or the time that a share p of all requests does not exceed.

    None where a path is not stable.

    Args:
        parts, slo, level: as for :func:`mixture_holds`, with which the value agrees.
    """
    metrics = []
    for share, prediction in parts:
        if prediction is None:
            return None
        metric = prediction.metric(slo.metric)
        metrics.append((share, metric, widening(metric, slo.p, level)))
    if slo.p is None:
        value = float(sum(share * metric.mean * factor for share, metric, factor in metrics))
    else:
        edges = [float(metric.quantile(slo.p)) * factor for _, metric, factor in metrics]
        low, high = min(edges), max(edges)
        for _ in range(_SCANS):
            times = np.linspace(low, high, _SCAN_POINTS)
            reached = sum(share * metric.share_within(times / factor) for share, metric, factor in metrics)
            above = int(np.clip(np.searchsorted(reached, slo.p), 1, _SCAN_POINTS - 1))
            low, high = float(times[above - 1]), float(times[above])
        value = (low + high) / 2.0
    # a percentile is searched for; the share of requests beyond the target is not
    holds = mixture_holds(parts, slo, level)
    return min(value, slo.target_s) if holds else max(value, slo.target_s * (1.0 + 2.0 * TOLERANCE))


def together(paths: Sequence[Path], scope: SloScope) -> list[Sequence[Path]]:
    """Paths of a class over which a target must hold: each alone, or all of them.

    Example:
        >>> paths = [Path(pools=("a",), share=0.5), Path(pools=("b",), share=0.5)]
        >>> len(together(paths, "pool")), len(together(paths, "fleet")), together([], "fleet")
        (2, 1, [])
    """
    return [list(paths)] if scope == "fleet" and paths else [[path] for path in paths]


def scoped_values(
    predicted: FleetPredictions, cls: str, groups: Sequence[Sequence[Path]], slo: Slo, level: str
) -> list[float | None]:
    """The value of a target for each group of paths of a class, s; None where a path is not stable.

    Args:
        predicted: the fleet at the step times of the level.
        cls: the class.
        groups: as :func:`together` gives them.
        slo, level: as for :func:`mixture_holds`.
    """
    found: list[float | None] = []
    for paths in groups:
        if len(paths) == 1:
            found.append(value_of(predicted.paths[cls, paths[0].pools], slo, level))
        else:
            found.append(mixture_of(predicted.parts(cls, paths), slo, level))
    return found
