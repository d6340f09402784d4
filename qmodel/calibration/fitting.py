"""Robust fit of log factors with a prior: Gauss-Newton steps, each a convex problem solved by reweighting."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import lsq_linear

from qmodel.types import FloatArray

__all__ = ["Fit", "Solution", "Terms", "fit_factors", "robust_weights", "solve_linear"]

Predict = Callable[[FloatArray], FloatArray]

LARGEST_LOG = math.log(4.0)  # a part of the step that is off by more has another cause than its constants
# Relative: what the model misses of a serving benchmark with constants that were fitted to benchmarks of the same
# model, GPU and engine; half of such errors are within 3.4 %.
USUAL_NOISE = 0.05
NOISE_POINTS = 5.0  # how many points USUAL_NOISE counts for
LEAST_NOISE = 0.01
HUBER = 1.345  # deviations beyond which a residual pulls with constant force; 95 % efficient for normal noise
FAR, MOST_FAR = 4.0, 0.15  # deviations at which a value no longer counts, where at most so many are that far off
LEARNT, TOLD = 0.9, 0.5  # posterior over prior deviation: above LEARNT a factor stays, up to TOLD the data tell it
SMALL = 0.01  # of a predicted time: a factor on less is not touched by what is learnt of all together
TIED = 1e-4  # deviation from the common part of a factor without a freedom of its own
DIFFERENCE = 1e-3  # in log factors
GAUSS_NEWTON_STEPS, REWEIGHTINGS, SCALE_UPDATES = 8, 60, 3
CLOSE = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """What a fit weighs measurements against.

    The logarithm of a factor is normal around 0: the sum of a part that all shared factors have in common and one of
    its own.

    Attributes:
        ratio: noise of each measured value over that of one with usual noise, shape (n,).
        common: prior deviation of the common part.
        own: prior deviations of the parts of their own, shape (p,).
        shared: which factors have the common part, shape (p,).
        lowest: least log factors, shape (p,): what the hardware can do at best.
    """

    ratio: FloatArray
    common: float
    own: FloatArray
    shared: npt.NDArray[np.bool_]
    lowest: FloatArray

    def of(self, rows: npt.NDArray[np.bool_]) -> Terms:
        """The terms of some of the values."""
        return replace(self, ratio=self.ratio[rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Optimum of a linear problem.

    Attributes:
        logs: log factors; 0 where left alone; shape (p,).
        deviation: posterior deviation of ``logs``, that of the prior where left alone.
        remaining: posterior over prior deviation of each factor's own part by what the values say, 1: nothing learnt.
        moved: which factors were moved, by their own part or by the common one.
        noise: deviation of a residual of ratio 1.
    """

    logs: FloatArray
    deviation: FloatArray
    remaining: FloatArray
    moved: npt.NDArray[np.bool_]
    noise: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """Factors that measurements ask for.

    Attributes:
        solution: the factors.
        jacobian: change of the log prediction per log factor at the factors found, shape (n, p).
        gap: log measured minus log predicted there, shape (n,).
    """

    solution: Solution
    jacobian: FloatArray
    gap: FloatArray


def fit_factors(predict: Predict, measured: FloatArray, terms: Terms) -> Fit:
    """The most likely log factors: Huber loss of the log errors, normal prior around 0.

    Log predictions are convex in the log factors and almost linear, since a step is a sum of parts; a Gauss-Newton
    step solves the linear problem exactly, and few are needed.

    Args:
        predict: predictions (k, n) of k sets of log factors (k, p).
        measured: n positive values.
        terms: noise, prior and bounds.

    Example:
        >>> work = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, 8.0]])
        >>> terms = Terms(ratio=np.ones(3), common=0.5, own=np.ones(2), shared=np.array([True, True]),
        ...               lowest=np.full(2, -1.0))
        >>> found = fit_factors(lambda logs: np.exp(logs) @ work.T, work @ [2.0, 3.0], terms)
        >>> np.exp(found.solution.logs).round(2).tolist()
        [2.0, 3.0]

    Reference: Huber (1981), Robust Statistics, ch. 7 (reweighting with a scale); docs/calibration.md.
    """
    logs = np.zeros(terms.own.size)
    for _ in range(GAUSS_NEWTON_STEPS):
        jacobian, gap = _linearised(predict, measured, logs)
        solution = solve_linear(jacobian, gap + jacobian @ logs, terms)
        change, logs = float(np.max(np.abs(solution.logs - logs), initial=0.0)), solution.logs
        if change < 10 * CLOSE:
            break
    jacobian, gap = _linearised(predict, measured, logs)
    return Fit(solution=solution, jacobian=jacobian, gap=gap)


def solve_linear(jacobian: FloatArray, target: FloatArray, terms: Terms) -> Solution:
    """Minimum of the Huber loss of ``target - jacobian @ logs`` plus the prior, within the bounds on the factors.

    A factor stays at 0 unless the values say something about it, or depend on it and say something about all factors
    together.
    """
    noise = USUAL_NOISE
    logs = np.zeros(terms.own.size)
    prior = np.diag(terms.own**2 + terms.shared * terms.common**2)
    for _ in range(SCALE_UPDATES):
        touched = terms.shared & (np.max(np.abs(jacobian), axis=0, initial=0.0) >= SMALL)
        common, remaining = _learnt(jacobian / (noise * terms.ratio)[:, None], touched, terms)
        free = remaining <= LEARNT
        moved = free | (touched & common)
        logs = np.zeros(terms.own.size)
        if not moved.any():
            break
        prior = _prior(terms, free, touched & common)[np.ix_(moved, moved)]
        logs[moved] = _huber(jacobian[:, moved], target, noise * terms.ratio, prior, terms.lowest[moved])
        noise = _noise((target - jacobian @ logs) / terms.ratio, int(free.sum()) + int(common))
    deviation = np.sqrt(terms.own**2 + terms.shared * terms.common**2)
    if moved.any():
        errors = (target - jacobian @ logs) / (noise * terms.ratio)
        rows = jacobian[:, moved] * (np.sqrt(robust_weights(errors)) / (noise * terms.ratio))[:, None]
        deviation[moved] = np.sqrt(np.diag(np.linalg.inv(rows.T @ rows + np.linalg.inv(prior))))
    return Solution(logs=logs, deviation=deviation, remaining=remaining, moved=moved, noise=noise)


def _linearised(predict: Predict, measured: FloatArray, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    sets = np.vstack([logs, logs + DIFFERENCE * np.eye(logs.size)])
    predicted = np.log(predict(sets))
    return (predicted[1:] - predicted[0]).T / DIFFERENCE, np.log(measured) - predicted[0]


def _prior(terms: Terms, free: npt.NDArray[np.bool_], together: npt.NDArray[np.bool_]) -> FloatArray:
    """Covariance of the log factors: those without a freedom of their own follow the common part."""
    own = np.where(free, terms.own, TIED)
    return np.asarray(np.diag(own**2) + terms.common**2 * np.outer(together, together))


def _learnt(rows: FloatArray, touched: npt.NDArray[np.bool_], terms: Terms) -> tuple[bool, FloatArray]:
    """Whether the rows say something about all touched factors together, and what is left of each own deviation.

    What is learnt least about leaves first: of two factors that the rows cannot tell apart, the smaller part.
    """
    rows = np.column_stack([rows[:, touched].sum(axis=1), rows])
    deviation = np.concatenate([[terms.common], terms.own])
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
    return bool(remaining[0] <= LEARNT), remaining[1:]


def _huber(
    jacobian: FloatArray, target: FloatArray, noise: FloatArray, prior: FloatArray, lowest: FloatArray
) -> FloatArray:
    root = np.linalg.inv(np.linalg.cholesky(prior))
    logs = np.zeros(prior.shape[0])
    for weights in (_huber_weights, robust_weights):  # the second starts where the first, which is convex, ends
        for _ in range(REWEIGHTINGS):
            scale = np.sqrt(weights((target - jacobian @ logs) / noise)) / noise
            rows = np.vstack([jacobian * scale[:, None], root])
            sides = np.concatenate([target * scale, np.zeros(prior.shape[0])])
            step = np.asarray(lsq_linear(rows, sides, (lowest, LARGEST_LOG), method="bvls").x)
            change, logs = float(np.max(np.abs(step - logs))), step
            if change < CLOSE:
                break
    return logs


def robust_weights(errors: FloatArray) -> FloatArray:
    """Weights of values by their errors in deviations: Huber's, and none for a few that are far off.

    Example:
        >>> robust_weights(np.array([0.0, 2.69, 50.0] + 17 * [1.0])).round(2)[:3].tolist()
        [1.0, 0.5, 0.0]
    """
    far = np.abs(errors) > FAR
    weights = _huber_weights(errors)
    return np.where(far, 0.0, weights) if 0 < np.mean(far) <= MOST_FAR else weights


def _huber_weights(errors: FloatArray) -> FloatArray:
    return HUBER / np.maximum(np.abs(errors), HUBER)


def _noise(residuals: FloatArray, fitted: int) -> float:
    """Deviation of the residuals by their medians, drawn towards the usual noise where they are few.

    What all residuals have in common is no noise: the prior holds the factors back.
    """
    count = residuals.size
    free = max(count - fitted, 0)
    if not free:
        return USUAL_NOISE
    middle = 1.4826 * float(np.median(np.abs(residuals - np.median(residuals)))) * math.sqrt(count / free)
    pooled = (NOISE_POINTS * USUAL_NOISE**2 + free * middle**2) / (NOISE_POINTS + free)
    return max(math.sqrt(pooled), LEAST_NOISE)
