"""Law of the wait of those that wait, from its mean, its squared coefficient of variation and its third moment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

from qmodel.types.laws import FloatArray

__all__ = [
    "conditional_wait_on_grid",
    "conditional_wait_quantile",
    "conditional_wait_scv",
    "conditional_wait_sf",
    "wait_quantile",
]

_NEWTON_STEPS = 60
_LEAST_EXCESS = 1e-9  # relative distance from the laws at which the three moments of a mixture degenerate
_FINE = 0.25  # grid spacing over the scale of a gamma law up to which two points per cell integrate its density
_GAUSS = 0.5 + np.array([-0.5, 0.5]) / np.sqrt(3.0)  # Gauss-Legendre points of a cell
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
    scv = 1.0 + (1.0 - load) * (spread - 2.0) * weight + between
    return np.asarray(np.minimum(np.maximum(scv, _SCV_RANGE[0]), _SCV_RANGE[1]))


def conditional_wait_sf(
    t: npt.ArrayLike, mean: npt.ArrayLike, scv: npt.ArrayLike, third: npt.ArrayLike | None = None
) -> FloatArray:
    """P(W > t | W > 0): gamma below scv 1, hyperexponential from 1 on.

    Args:
        t: times, s, at least 0; broadcasts.
        mean: mean wait of those that wait, s; broadcasts.
        scv: its squared coefficient of variation, positive; broadcasts.
        third: E[W^3] / E[W]^3, used above scv 1; None: that of branches with equal load; broadcasts.

    Example:
        >>> round(float(conditional_wait_sf(2.0, 2.0, 1.0)), 6)
        0.367879
    """
    time, unit, spread, cube = _as_arrays(t, mean, scv, third)
    x = time / unit
    regular = spread < 1.0
    if not regular.all():
        light, light_rate, heavy_rate = _branches(spread, cube)
        mixed = light * np.exp(-light_rate * x) + (1.0 - light) * np.exp(-heavy_rate * x)
        if not regular.any():
            return np.asarray(mixed)
    shape = 1.0 / np.minimum(spread, 1.0)
    gamma = special.gammaincc(shape, shape * x)
    return np.asarray(gamma if regular.all() else np.where(regular, gamma, mixed))


def conditional_wait_on_grid(spacing: FloatArray, points: int, mean: FloatArray, scv: FloatArray) -> FloatArray:
    """The law given W > 0 on an even grid from 0: each point has what is nearest to it, the last one all beyond.

    Args:
        spacing: of the grid, s, shape (C,).
        points: of the grid.
        mean: mean wait of those that wait, s, shape (C,).
        scv: its squared coefficient of variation, positive, shape (C,).

    Returns:
        Probabilities, shape (C, points). Where the law is a gamma and the grid fine they come from its density, the
        incomplete gamma function only at the ends: equal to :func:`conditional_wait_sf` within 1e-5.

    Example:
        >>> law = conditional_wait_on_grid(np.array([0.01]), 2000, np.array([1.0]), np.array([0.5]))
        >>> law.shape, round(float(law[0].sum()), 12), round(float(law[0] @ np.arange(2000)) * 0.01, 4)
        ((1, 2000), 1.0, 1.0)
    """
    edges = np.maximum(np.arange(points) - 0.5, 0.0)
    fine = (scv < 1.0) & (spacing <= _FINE * mean * scv)
    law = np.empty((spacing.size, points))
    if not fine.all():
        rows = ~fine
        survival = conditional_wait_sf(edges * spacing[rows, None], mean[rows, None], scv[rows, None])
        law[rows] = survival
        law[rows, :-1] -= survival[:, 1:]
    if fine.any():
        shape = 1.0 / scv[fine]
        law[fine] = _gamma_on_grid((spacing[fine] / mean[fine]) * shape, points, shape)
    return law


def _gamma_on_grid(spacing: FloatArray, points: int, shape: FloatArray) -> FloatArray:
    """As :func:`conditional_wait_on_grid` for gamma laws of scale 1, with ``spacing`` in scales."""
    ends = special.gammaincc(shape[:, None], spacing[:, None] * np.array([0.5, points - 1.5]))
    place = (np.arange(points - 2)[:, None] + 0.5 + _GAUSS).ravel() * spacing[:, None]
    density = np.exp((shape[:, None] - 1.0) * np.log(place) - place)
    cells = density[:, ::2] + density[:, 1::2]
    inner = ends[:, :1] - ends[:, 1:]
    cells *= inner / np.maximum(cells.sum(axis=1, keepdims=True), 1e-300)
    return np.concatenate([1.0 - ends[:, :1], cells, ends[:, 1:]], axis=1)


def conditional_wait_quantile(
    p_tail: npt.ArrayLike, mean: npt.ArrayLike, scv: npt.ArrayLike, third: npt.ArrayLike | None = None
) -> FloatArray:
    """The time that a share ``p_tail`` of those that wait exceeds, s.

    Args:
        p_tail: probability above the quantile, in (0, 1]; 1 and more give 0; broadcasts.
        mean: mean wait of those that wait, s; broadcasts.
        scv: its squared coefficient of variation, positive; broadcasts.
        third: E[W^3] / E[W]^3, used above scv 1; None: that of branches with equal load; broadcasts.

    Example:
        >>> round(float(conditional_wait_quantile(0.05, 1.0, 1.0)), 6)
        2.995732
    """
    tail, unit, spread, cube = _as_arrays(p_tail, mean, scv, third)
    tail = np.minimum(np.maximum(tail, 1e-300), 1.0)
    regular = spread < 1.0
    if not regular.all():
        mixed = _mixed_quantile(tail, *_branches(spread, cube))
        if not regular.any():
            return np.asarray(unit * mixed)
    shape = 1.0 / np.minimum(spread, 1.0)
    gamma = special.gammainccinv(shape, tail) / shape
    return np.asarray(unit * (gamma if regular.all() else np.where(regular, gamma, mixed)))


def class_wait_quantile(
    p: float,
    stable: npt.NDArray[np.bool_],
    p_delayed: FloatArray,
    mean_wait_s: FloatArray,
    scv: FloatArray,
    third: FloatArray | None = None,
) -> FloatArray:
    """Quantile of the wait of each class, in the common shape; infinite where a class is not stable.

    Args:
        p: level in (0, 1).
        stable: which classes have a steady state.
        p_delayed: probability of waiting.
        mean_wait_s: mean wait of all, s.
        scv, third: shape of the wait of those that wait, as :func:`wait_quantile` takes it.

    Raises:
        ValueError: if the level is outside (0, 1).

    Example:
        >>> one = np.ones(1)
        >>> class_wait_quantile(0.5, one > 0.0, one, 2.0 * one, one).round(3).tolist()
        [1.386]
    """
    if not 0.0 < p < 1.0:
        raise ValueError(f"p must be between 0 and 1, e.g. 0.95 (got {p!r})")
    waits = stable & (p_delayed > 0.0)
    mean = np.where(waits, mean_wait_s, 1.0) / np.where(waits, p_delayed, 1.0)
    wait = wait_quantile(p, p_delayed, np.maximum(mean, 1e-300), scv, third)
    return np.asarray(np.where(stable, wait, np.inf))


def wait_quantile(
    p: npt.ArrayLike,
    p_wait: npt.ArrayLike,
    mean: npt.ArrayLike,
    scv: npt.ArrayLike,
    third: npt.ArrayLike | None = None,
) -> FloatArray:
    """Quantile of the whole wait: 0 with probability 1 - ``p_wait``, else the law above; broadcasts.

    Args:
        p: level in (0, 1).
        p_wait: probability of waiting.
        mean: mean wait of those that wait, s.
        scv: its squared coefficient of variation.
        third: E[W^3] / E[W]^3; None: that of branches with equal load.

    Example:
        >>> float(wait_quantile(0.5, 0.3, 1.0, 1.0))
        0.0
    """
    delayed, level = np.asarray(p_wait, dtype=float), np.asarray(p, dtype=float)
    tail = (1.0 - level) / np.maximum(delayed, 1e-300)
    return np.asarray(np.where(tail >= 1.0, 0.0, conditional_wait_quantile(np.minimum(tail, 1.0), mean, scv, third)))


def _as_arrays(
    first: npt.ArrayLike, mean: npt.ArrayLike, scv: npt.ArrayLike, third: npt.ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
    cube = None if third is None else np.asarray(third, dtype=float)
    return np.asarray(first, dtype=float), np.asarray(mean, dtype=float), np.asarray(scv, dtype=float), cube


def _branches(spread: FloatArray, third: FloatArray | None) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weight of the short branch and both rates of the hyperexponential of mean 1; exponential up to scv 1."""
    mixed = np.maximum(spread, 1.0)
    if third is None:
        light = 0.5 * (1.0 + np.sqrt((mixed - 1.0) / (mixed + 1.0)))
        return light, 2.0 * light, 2.0 * (1.0 - light)
    excess = np.maximum((mixed - 1.0) / 2.0, _LEAST_EXCESS)
    half = 1.0 + excess
    cube = np.maximum(third / 6.0, half**2 * (1.0 + _LEAST_EXCESS))  # below, no mixture has these moments
    total = (cube - half) / excess  # branch means are the roots of x^2 - total x + product
    product = total - half
    long = 0.5 * (total + np.sqrt(np.maximum(total**2 - 4.0 * product, 0.0)))
    short = np.maximum(product / long, _LEAST_EXCESS)
    plain = mixed <= 1.0 + 2.0 * _LEAST_EXCESS
    light = np.where(plain, 1.0, (long - 1.0) / (long - short))
    return np.asarray(light), np.where(plain, 1.0, 1.0 / short), np.where(plain, 1.0, 1.0 / long)


def _mixed_quantile(tail: FloatArray, light: FloatArray, fast: FloatArray, slow: FloatArray) -> FloatArray:
    """Newton on the log of the survival function; it is convex, so from the left the iteration never overshoots."""
    target = np.log(tail)
    with np.errstate(divide="ignore"):  # a branch without weight gives no bound
        bounds = (np.log(light) - target) / fast, (np.log1p(-light) - target) / slow
    x = np.maximum(np.maximum(*bounds), 0.0)
    for _ in range(_NEWTON_STEPS):
        short, long = light * np.exp(-fast * x), (1.0 - light) * np.exp(-slow * x)
        survival = short + long
        step = (np.log(survival) - target) * survival / (fast * short + slow * long)
        x = x + step
        if np.all(np.abs(step) <= 1e-13 * (1.0 + x)):
            break
    return np.asarray(x)
