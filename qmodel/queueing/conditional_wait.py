"""Law of the wait of those that wait, from its mean and its squared coefficient of variation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

from qmodel.types.laws import FloatArray

__all__ = ["conditional_wait_quantile", "conditional_wait_scv", "conditional_wait_sf", "wait_quantile"]

_NEWTON_STEPS = 60
_SCV_RANGE = (0.3, 20.0)  # beyond it the two-moment law stops resembling any queue's


def conditional_wait_scv(rho: npt.ArrayLike, nu: npt.ArrayLike, heavy: npt.ArrayLike, g: npt.ArrayLike) -> FloatArray:
    """Squared coefficient of variation of the wait given that it is positive.

    Args:
        rho: utilisation in [0, 1); broadcasts.
        nu: spread of the residual service time; broadcasts.
        heavy: h = (1 + scv)/2 of the service; broadcasts.
        g: weight from ``halfin_whitt_weight``; broadcasts.

    Returns:
        A value in [0.3, 20]; exact for M/G/1 (g = 1) and for exponential service.

    Example:
        >>> float(conditional_wait_scv(0.5, 2.0, 1.0, 0.4))
        1.0
    """
    load, spread, h, weight = (np.asarray(item, dtype=float) for item in (rho, nu, heavy, g))
    between = 1.149 * (h - 1.0) / (1.0 + 0.137 * np.abs(h - 1.0)) * weight * (1.0 - weight)
    return np.asarray(np.clip(1.0 + (1.0 - load) * (spread - 2.0) * weight + between, *_SCV_RANGE))


def conditional_wait_sf(t: npt.ArrayLike, mean: npt.ArrayLike, scv: npt.ArrayLike) -> FloatArray:
    """P(W > t | W > 0): gamma below scv 1, balanced hyperexponential from 1 on.

    Args:
        t: times, s, at least 0; broadcasts.
        mean: mean wait of those that wait, s; broadcasts.
        scv: its squared coefficient of variation, positive; broadcasts.

    Example:
        >>> round(float(conditional_wait_sf(2.0, 2.0, 1.0)), 6)
        0.367879
    """
    time, unit, spread = np.broadcast_arrays(*(np.asarray(item, dtype=float) for item in (t, mean, scv)))
    x = time / unit
    shape = 1.0 / np.minimum(spread, 1.0)
    light, light_rate, heavy_rate = _balanced(np.maximum(spread, 1.0))
    mixed = light * np.exp(-light_rate * x) + (1.0 - light) * np.exp(-heavy_rate * x)
    return np.asarray(np.where(spread < 1.0, special.gammaincc(shape, shape * x), mixed))


def conditional_wait_quantile(p_tail: npt.ArrayLike, mean: npt.ArrayLike, scv: npt.ArrayLike) -> FloatArray:
    """The time that a share ``p_tail`` of those that wait exceeds, s.

    Args:
        p_tail: probability above the quantile, in (0, 1]; 1 and more give 0; broadcasts.
        mean: mean wait of those that wait, s; broadcasts.
        scv: its squared coefficient of variation, positive; broadcasts.

    Example:
        >>> round(float(conditional_wait_quantile(0.05, 1.0, 1.0)), 6)
        2.995732
    """
    tail, unit, spread = np.broadcast_arrays(*(np.asarray(item, dtype=float) for item in (p_tail, mean, scv)))
    tail = np.clip(tail, 1e-300, 1.0)
    shape = 1.0 / np.minimum(spread, 1.0)
    regular = special.gammainccinv(shape, tail) / shape
    mixed = _balanced_quantile(tail, np.maximum(spread, 1.0))
    return np.asarray(unit * np.where(spread < 1.0, regular, mixed))


def wait_quantile(p: npt.ArrayLike, p_wait: npt.ArrayLike, mean: npt.ArrayLike, scv: npt.ArrayLike) -> FloatArray:
    """Quantile of the whole wait: 0 with probability 1 - ``p_wait``, else the law above; broadcasts.

    Args:
        p: level in (0, 1).
        p_wait: probability of waiting.
        mean: mean wait of those that wait, s.
        scv: its squared coefficient of variation.

    Example:
        >>> float(wait_quantile(0.5, 0.3, 1.0, 1.0))
        0.0
    """
    delayed, level = np.asarray(p_wait, dtype=float), np.asarray(p, dtype=float)
    tail = (1.0 - level) / np.maximum(delayed, 1e-300)
    return np.asarray(np.where(tail >= 1.0, 0.0, conditional_wait_quantile(np.minimum(tail, 1.0), mean, scv)))


def _balanced(spread: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weight of the short phase and both rates of the hyperexponential of mean 1 with equal loads of its phases."""
    light = 0.5 * (1.0 + np.sqrt((spread - 1.0) / (spread + 1.0)))
    return light, 2.0 * light, 2.0 * (1.0 - light)


def _balanced_quantile(tail: FloatArray, spread: FloatArray) -> FloatArray:
    """Newton on the log of the survival function; it is convex, so from the left the iteration never overshoots."""
    light, fast, slow = _balanced(spread)
    target = np.log(tail)
    x = np.maximum(np.maximum((np.log(light) - target) / fast, (np.log1p(-light) - target) / slow), 0.0)
    for _ in range(_NEWTON_STEPS):
        short, long = light * np.exp(-fast * x), (1.0 - light) * np.exp(-slow * x)
        survival = short + long
        step = (np.log(survival) - target) * survival / (fast * short + slow * long)
        x = x + step
        if np.all(np.abs(step) <= 1e-13 * (1.0 + x)):
            break
    return np.asarray(x)
