"""Robust fit of log factors with a prior: Gauss-Newton steps, each a convex problem solved by reweighting."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import lsq_linear

from qmodel.types import FloatArray

__all__ = ["Fit", "fit_factors", "solve_linear"]

Predict = Callable[[FloatArray], FloatArray]

LARGEST_LOG = math.log(4.0)  # a part of the step that is off by more has another cause than its constants
USUAL_NOISE = 0.03  # relative: repeats of a serving benchmark, and what a sum of a few terms misses of a real step
NOISE_POINTS = 5.0  # how many points USUAL_NOISE counts for
LEAST_NOISE = 0.01
HUBER = 1.345  # deviations beyond which a residual pulls with constant force; 95 % efficient for normal noise
LEARNT, TOLD = 0.9, 0.5  # posterior over prior deviation: above LEARNT a factor stays, up to TOLD the data tell it
DIFFERENCE = 1e-3  # in log factors
GAUSS_NEWTON_STEPS, REWEIGHTINGS, SCALE_UPDATES = 8, 60, 3
CLOSE = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """Factors that measurements ask for.

    Attributes:
        logs: log factors; 0 where left alone; shape (p,).
        deviation: posterior standard deviation of ``logs``; that of the prior where left alone.
        remaining: posterior over prior deviation by what the points alone say, 1: nothing learnt.
        jacobian: change of the log prediction per log factor at ``logs``, shape (n, p).
        gap: log measured minus log predicted at ``logs``, shape (n,).
        noise: deviation of a residual of ratio 1.
    """

    logs: FloatArray
    deviation: FloatArray
    remaining: FloatArray
    jacobian: FloatArray
    gap: FloatArray
    noise: float

    @property
    def moved(self) -> npt.NDArray[np.bool_]:
        """Which factors were moved."""
        return np.asarray(self.remaining <= LEARNT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Optimum of a linearised problem; see :class:`Fit`."""

    logs: FloatArray
    deviation: FloatArray
    remaining: FloatArray
    noise: float


def fit_factors(predict: Predict, measured: FloatArray, *, ratio: FloatArray, prior: FloatArray) -> Fit:
    """The most likely log factors: Huber loss of the log errors, normal prior around 0.

    Log predictions are convex in the log factors and almost linear, since a step is a sum of parts; a Gauss-Newton
    step solves the linear problem exactly, and few are needed.

    Args:
        predict: predictions (k, n) of k sets of log factors (k, p).
        measured: n positive values.
        ratio: noise of each over that of a value with usual noise, shape (n,).
        prior: covariance of the log factors, shape (p, p).

    Example:
        >>> work = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, 8.0]])
        >>> found = fit_factors(lambda logs: np.exp(logs) @ work.T, work @ [2.0, 3.0], ratio=np.ones(3),
        ...                     prior=np.eye(2))
        >>> np.exp(found.logs).round(2).tolist()
        [2.0, 3.0]

    Reference: Huber (1981), Robust Statistics, ch. 7 (reweighting with a scale); docs/calibration.md.
    """
    logs = np.zeros(prior.shape[0])
    for _ in range(GAUSS_NEWTON_STEPS):
        jacobian, gap = _linearised(predict, measured, logs)
        solution = solve_linear(jacobian, gap + jacobian @ logs, ratio=ratio, prior=prior)
        change, logs = float(np.max(np.abs(solution.logs - logs), initial=0.0)), solution.logs
        if change < 10 * CLOSE:
            break
    jacobian, gap = _linearised(predict, measured, logs)
    return Fit(
        logs=logs,
        deviation=solution.deviation,
        remaining=solution.remaining,
        jacobian=jacobian,
        gap=gap,
        noise=solution.noise,
    )


def solve_linear(jacobian: FloatArray, target: FloatArray, *, ratio: FloatArray, prior: FloatArray) -> Solution:
    """Minimum of the Huber loss of ``target - jacobian @ logs`` plus the prior, within the bounds on the factors.

    A factor of which the rows say next to nothing stays at 0.
    """
    deviation = np.sqrt(np.diag(prior))
    noise = USUAL_NOISE
    logs, remaining = np.zeros(deviation.size), np.ones(deviation.size)
    for _ in range(SCALE_UPDATES):
        kept, remaining = _learnt(jacobian / (noise * ratio)[:, None], deviation)
        logs = np.zeros(deviation.size)
        if not kept.size:
            break
        logs[kept] = _huber(jacobian[:, kept], target, noise * ratio, prior[np.ix_(kept, kept)])
        noise = _noise((target - jacobian @ logs) / ratio, kept.size)
    posterior = deviation.copy()
    kept = np.flatnonzero(remaining <= LEARNT)
    if kept.size:
        rows = jacobian[:, kept] / (noise * ratio)[:, None]
        rows = rows * np.sqrt(_weights((target - jacobian @ logs) / (noise * ratio)))[:, None]
        precision = rows.T @ rows + np.linalg.inv(prior[np.ix_(kept, kept)])
        posterior[kept] = np.sqrt(np.diag(np.linalg.inv(precision)))
    return Solution(logs=logs, deviation=posterior, remaining=remaining, noise=noise)


def _linearised(predict: Predict, measured: FloatArray, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    sets = np.vstack([logs, logs + DIFFERENCE * np.eye(logs.size)])
    predicted = np.log(predict(sets))
    return (predicted[1:] - predicted[0]).T / DIFFERENCE, np.log(measured) - predicted[0]


def _learnt(rows: FloatArray, deviation: FloatArray) -> tuple[npt.NDArray[np.intp], FloatArray]:
    """Factors that the rows say something about, and what is left of every prior deviation.

    The factor of which least is learnt leaves first: of two that the rows cannot tell apart, the smaller part.
    """
    kept = np.arange(deviation.size)
    remaining = np.ones(deviation.size)
    while kept.size:
        precision = rows[:, kept].T @ rows[:, kept] + np.diag(deviation[kept] ** -2)
        left = np.sqrt(np.diag(np.linalg.inv(precision))) / deviation[kept]
        worst = int(np.argmax(left))
        if left[worst] <= LEARNT:
            remaining[kept] = left
            break
        kept = np.delete(kept, worst)
    return kept, remaining


def _huber(jacobian: FloatArray, target: FloatArray, noise: FloatArray, prior: FloatArray) -> FloatArray:
    root = np.linalg.inv(np.linalg.cholesky(prior))
    logs = np.zeros(prior.shape[0])
    for _ in range(REWEIGHTINGS):
        scale = np.sqrt(_weights((target - jacobian @ logs) / noise)) / noise
        rows = np.vstack([jacobian * scale[:, None], root])
        sides = np.concatenate([target * scale, np.zeros(prior.shape[0])])
        step = np.asarray(lsq_linear(rows, sides, (-LARGEST_LOG, LARGEST_LOG), method="bvls").x)
        change, logs = float(np.max(np.abs(step - logs))), step
        if change < CLOSE:
            break
    return logs


def _weights(errors: FloatArray) -> FloatArray:
    return HUBER / np.maximum(np.abs(errors), HUBER)


def _noise(residuals: FloatArray, fitted: int) -> float:
    """Deviation of the residuals by their median, drawn towards the usual noise where they are few."""
    count = residuals.size
    free = max(count - fitted, 0)
    if not free:
        return USUAL_NOISE
    middle = 1.4826 * float(np.median(np.abs(residuals))) * math.sqrt(count / free)
    pooled = (NOISE_POINTS * USUAL_NOISE**2 + free * middle**2) / (NOISE_POINTS + free)
    return max(math.sqrt(pooled), LEAST_NOISE)
