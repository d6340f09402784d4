"""Errors on points left out of a fit, and the band that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from qmodel.calibration.fitting import Fit, Terms, solve_linear
from qmodel.types import Band, FloatArray

__all__ = ["ErrorSummary", "blended_band", "held_out_logs", "summarise_errors"]

ALL_ALONE = 12  # up to so many measurements each is left out alone
FOLDS = 6
PRIOR_POINTS = 6.0  # how many errors the band of the defaults counts for
LEAST_P50 = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """Relative errors of predictions: predicted over measured, minus 1.

    Attributes:
        points: how many.
        median: of the absolute error.
        mean: of the absolute error.
        p90: of the absolute error.
        signed: median of the signed error.
    """

    points: int
    median: float
    mean: float
    p90: float
    signed: float


def summarise_errors(errors: FloatArray) -> ErrorSummary | None:
    """Median, mean and 90th percentile of the absolute errors, median signed error; None without errors.

    Example:
        >>> summarise_errors(np.array([0.1, -0.2, 0.3])).median
        0.2
    """
    if not errors.size:
        return None
    size = np.abs(errors)
    return ErrorSummary(
        points=int(size.size),
        median=float(np.median(size)),
        mean=float(np.mean(size)),
        p90=float(np.quantile(size, 0.9)),
        signed=float(np.median(errors)),
    )


def held_out_logs(
    fit: Fit, terms: Terms, *, groups: npt.NDArray[np.intp], order: FloatArray
) -> tuple[FloatArray, npt.NDArray[np.intp]]:
    """Log factors fitted without each part of the measurements in turn.

    Parts interleave along ``order``, so that each is left out between its neighbours. The model is linearised at the
    fit of all points; what is fitted, and which factors move, is decided anew without the part.

    Args:
        fit: of all observations.
        terms: of the same fit.
        groups: measurement that each observation belongs to, shape (n,), counted from 0.
        order: batch of each measurement.

    Returns:
        (log factors (k, p), part of each observation (n,)).
    """
    count = order.size
    folds = count if count <= ALL_ALONE else FOLDS
    part_of_measurement = np.empty(count, dtype=np.intp)
    part_of_measurement[np.argsort(order, kind="stable")] = np.arange(count) % folds
    part = part_of_measurement[groups]
    target = fit.gap + fit.jacobian @ fit.solution.logs
    logs = np.zeros((folds, fit.solution.logs.size))
    for index in range(folds):
        rows = part != index
        if rows.any():
            logs[index] = solve_linear(fit.jacobian[rows], target[rows], terms.of(rows)).logs
    return logs, part


def blended_band(errors: FloatArray, before: Band, level: str) -> Band:
    """Median and 90th percentile of errors on points left out, with the old band as a few points more.

    The errors of the old band are taken as Weibull with its two quantiles.

    Args:
        errors: relative errors of points left out of the fit.
        before: the band without them.
        level: what the new band is called.

    Example:
        >>> old = Band(p50=0.1, p90=0.4)
        >>> few, many = (blended_band(np.full(count, 0.02), old, "x") for count in (2, 200))
        >>> round(few.p90, 2), round(many.p90, 2)
        (0.34, 0.02)

    Reference: own construction, see docs/calibration.md.
    """
    size = np.sort(np.abs(errors))
    share = size.size / (size.size + PRIOR_POINTS)
    shape = math.log(math.log(10.0) / math.log(2.0)) / math.log(max(before.p90 / before.p50, 1.01))
    scale = before.p50 / math.log(2.0) ** (1.0 / shape)

    def quantile(level: float) -> float:
        def excess(error: float) -> float:
            below = float(np.searchsorted(size, error, side="right")) / max(size.size, 1)
            return share * below + (1 - share) * (1 - math.exp(-((error / scale) ** shape))) - level

        return float(brentq(excess, 0.0, 100.0 * max(before.p90, float(size.max(initial=0.0)))))

    p50 = max(quantile(0.5), LEAST_P50)
    return Band(p50=p50, p90=max(quantile(0.9), p50), level=level, confidence=before.confidence)
