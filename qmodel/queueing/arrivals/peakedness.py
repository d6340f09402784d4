"""Peakedness: how bursty arrivals spread the number in service, for a given law of how long requests stay.

z is the variance over the mean of the number in service with unlimited servers; 1 for Poisson arrivals whatever
the law. A component of a :class:`qmodel.types.Burst` shows in it by the share that residence times can feel: all
of it where the component fades much slower than requests leave, less where it is over before they do.
See docs/theory/bursty.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev
from scipy import special

from qmodel.queueing.servers.service_time import Moments, ServiceLaw
from qmodel.types.arrivals import Burst
from qmodel.types.laws import FloatArray

__all__ = ["burst_peakedness", "residence_weight"]

_TABLE_FROM = 128  # decays from which the weight is interpolated, to 1e-7 for lengths of requests
_TABLE_NODES = 97
_GAMMA_ATOMS = 128
_MOST_ROWS = 8192  # gamma laws evaluated at once
_NO_SPREAD = 1e-6  # scv below which a residence time counts as constant


def burst_peakedness(
    burst: Burst | None, residence: Moments | ServiceLaw, *, s_per_unit: npt.ArrayLike = 1.0
) -> FloatArray:
    """Variance over mean of the number in service with unlimited servers.

    Exact for any arrivals with this burst and residence times that do not depend on them.

    Args:
        burst: of the arrivals; None: Poisson.
        residence: law of how long a request stays, in units of ``s_per_unit``, or its moments, whose fields broadcast.
        s_per_unit: seconds per unit of the law, above 0; broadcasts.

    Returns:
        z in the common shape of ``s_per_unit`` and the moments; 1 for Poisson.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> burst = Burst(excess=(3.0,), decay_per_s=(0.1,))
        >>> float(burst_peakedness(burst, Moments(mean_s=10.0, scv=1.0)))  # 1 + 3 d / (2 (d + mu)), d = mu = 0.1
        1.75

    Reference: Eckberg, Generalized peakedness of teletraffic processes, ITC 10, 1983.
    """
    if burst is None:
        return np.ones(_common_shape(residence, s_per_unit))
    weight = residence_weight(np.asarray(burst.decay_per_s), residence, s_per_unit=_column(s_per_unit))
    return np.asarray(1.0 + weight @ np.asarray(burst.excess))


def residence_weight(
    decay_per_s: npt.ArrayLike, residence: Moments | ServiceLaw, *, s_per_unit: npt.ArrayLike = 1.0
) -> FloatArray:
    """Peakedness per unit of asymptotic excess of a component: d / E[S] times the double integral of
    exp(-d (u - v)) P(S > u) P(S > v) over 0 < v < u.

    Args:
        decay_per_s: d, 1/s, above 0, infinite for batches; its last axis is kept apart from the moments' shape.
        residence: law of S in units of ``s_per_unit``, or moments, to whose fields an axis is appended.
        s_per_unit: seconds per unit of the law, above 0; broadcasts against ``decay_per_s``.

    Returns:
        Weights in [0, 1): d / (2 (d + mu)) for exponential residence, 1 - (1 - exp(-d s)) / (d s) for constant.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> round(float(residence_weight(0.5, Moments(mean_s=2.0, scv=0.0))), 6)  # exp(-1)
        0.367879

    Reference: own derivation from the covariance density of the arrivals, see docs/theory/bursty.md.
    """
    decay, scale = np.asarray(decay_per_s, dtype=float), np.asarray(s_per_unit, dtype=float)
    if not np.all(decay > 0.0):
        raise ValueError(f"decay_per_s must be above 0 (got {decay_per_s!r}); infinity stands for batches")
    if not np.all(np.isfinite(scale) & (scale > 0.0)):
        raise ValueError(f"s_per_unit must be finite and above 0 (got {s_per_unit!r})")
    if not isinstance(residence, Moments):
        mean = residence.moments[0]
        if not (np.isfinite(mean) and mean > 0.0 and float(residence.values[0]) >= 0.0):
            raise ValueError(f"residence must be a law of non-negative times with a positive mean (got mean {mean:g})")
        return _atoms_weight(decay * scale, residence.values, residence.weights)
    mean_s, scv, nu = (_column(item) for item in (residence.mean_s, residence.scv, residence.nu))
    return _moments_weight(*np.broadcast_arrays(decay * scale * mean_s, scv, nu))


def _column(values: npt.ArrayLike) -> FloatArray:
    """With a last axis of length 1 for the components; a single number stays one, so that it adds no axis."""
    array = np.asarray(values, dtype=float)
    return array[..., None] if array.ndim else array


def _common_shape(residence: Moments | ServiceLaw, s_per_unit: npt.ArrayLike) -> tuple[int, ...]:
    if isinstance(residence, Moments):
        return np.broadcast_shapes(np.shape(residence.mean_s), np.shape(residence.scv), np.shape(s_per_unit))
    return np.shape(s_per_unit)


def _atoms_weight(decay: FloatArray, values: FloatArray, weights: FloatArray) -> FloatArray:
    """For a law of atoms, whose survival is constant between them; decay per unit of the law, any shape."""
    atoms = np.asarray(values, dtype=float)
    width = np.diff(np.concatenate([[0.0], atoms]))
    survival = np.clip(np.cumsum(np.asarray(weights)[::-1])[::-1], 0.0, 1.0)
    width, survival = width[width > 0.0], survival[width > 0.0]
    if decay.size <= _TABLE_FROM:
        return _piecewise_weight(decay.ravel(), width, survival).reshape(decay.shape)
    mean = float(width @ survival)
    nodes = chebyshev.chebpts1(_TABLE_NODES)
    at_nodes = _piecewise_weight((1.0 + nodes) / (1.0 - nodes) / mean, width, survival)
    table = chebyshev.chebvander(nodes, _TABLE_NODES - 1).T @ at_nodes * (2.0 / _TABLE_NODES)
    table[0] /= 2.0
    share = 1.0 / (1.0 + 1.0 / (decay * mean))  # the weight is smooth in it: a straight line for exponential residence
    return np.asarray(chebyshev.chebval(2.0 * share - 1.0, table))


def _piecewise_weight(decay: FloatArray, width: FloatArray, survival: FloatArray) -> FloatArray:
    """Weights for decays of shape (k,) and pieces of a falling step function, shape (n,) or (k, n).

    F(u), the integral of d exp(-d (u - v)) P(S > v) over v < u, follows F' = d (P(S > u) - F); over a piece it
    moves towards the survival by the factor exp(-d width). The running product is one scan by doubling.
    """
    decay = decay[..., None]
    infinite = np.isinf(decay)
    finite = np.where(infinite, 1.0, decay)
    kept = np.where(infinite, 0.0, np.exp(-finite * width))
    forgotten = np.where(infinite, 1.0, -np.expm1(-finite * width))
    level, factor = survival * forgotten, kept.copy()
    shift, pieces = 1, width.shape[-1]
    while shift < pieces:
        level[..., shift:] = level[..., shift:] + factor[..., shift:] * level[..., :-shift]
        factor[..., shift:] = factor[..., shift:] * factor[..., :-shift]
        shift *= 2
    before = np.concatenate([np.zeros_like(level[..., :1]), level[..., :-1]], axis=-1)
    gain = np.where(infinite, width, width - forgotten / finite)
    lag = np.where(infinite, 0.0, forgotten / finite)
    mean = (survival * width).sum(axis=-1)
    return np.asarray((survival * (before * lag + survival * gain)).sum(axis=-1) / mean)


def _moments_weight(decay: FloatArray, scv: FloatArray, nu: FloatArray) -> FloatArray:
    """For the stand-in law of moments at mean 1: constant, gamma or hyperexponential; arrays of one shape."""
    weight = np.empty(decay.shape)
    mixture = (scv > 1.0) & (nu > 2.0 * (1.0 + 1e-12))
    constant = scv < _NO_SPREAD
    exponential = (scv == 1.0) & ~mixture
    regular = ~(mixture | constant | exponential)
    with np.errstate(invalid="ignore"):
        weight[constant] = _constant_weight(decay[constant])
        weight[exponential] = _phase_weight(decay[exponential], np.asarray(1.0))
    if np.any(mixture):
        weight[mixture] = _hyperexponential_weight(decay[mixture], scv[mixture], nu[mixture])
    if np.any(regular):
        weight[regular] = _gamma_weight(decay[regular], scv[regular])
    return weight


def _constant_weight(decay: FloatArray) -> FloatArray:
    small = np.minimum(decay, 1e-3)
    series = small / 2.0 - small**2 / 6.0
    x = np.where(np.isinf(decay) | (decay < 1e-3), 1.0, decay)
    return np.asarray(np.where(decay < 1e-3, series, np.where(np.isinf(decay), 1.0, 1.0 + np.expm1(-x) / x)))


def _phase_weight(decay: FloatArray, rate: FloatArray) -> FloatArray:
    """d / (d + rate) / 2, also at infinite decay."""
    return np.asarray(0.5 / (1.0 + rate / decay))


def _hyperexponential_weight(decay: FloatArray, scv: FloatArray, nu: FloatArray) -> FloatArray:
    """The phase means are the roots of x^2 - A x + B that match three moments at mean 1."""
    second = (1.0 + scv) / 2.0
    third = nu * second**2 / 2.0
    total = (third - second) / (second - 1.0)
    product = total - second
    long = (total + np.sqrt(np.maximum(total**2 - 4.0 * product, 0.0))) / 2.0
    short = product / long
    share = (1.0 - short) / (long - short)
    phases = ((share, 1.0 / long), (1.0 - share, 1.0 / short))
    weight = np.zeros(decay.shape)
    for first_share, first in phases:
        for second_share, other in phases:
            weight += first_share * second_share / (first + other) / (1.0 + other / decay)
    return weight


def _gamma_weight(decay: FloatArray, scv: FloatArray) -> FloatArray:
    """By atoms at the midpoints of equal shares of the law, which keep its mean, shape (k,)."""
    kind, row = np.unique(scv, return_inverse=True)
    edges = special.gammaincinv(1.0 / kind[:, None], np.linspace(0.0, 1.0, _GAMMA_ATOMS + 1)[1:-1])
    partial = special.gammainc(1.0 / kind[:, None] + 1.0, edges)  # share of the mean below each edge
    ones, zeros = np.ones((kind.size, 1)), np.zeros((kind.size, 1))
    atoms = np.diff(np.concatenate([zeros, partial, ones], axis=1), axis=1) * _GAMMA_ATOMS
    width = np.diff(np.concatenate([zeros, atoms], axis=1), axis=1)
    survival = 1.0 - np.arange(_GAMMA_ATOMS) / _GAMMA_ATOMS
    step = _MOST_ROWS
    parts = [
        _piecewise_weight(decay[i : i + step], width[row[i : i + step]], survival) for i in range(0, decay.size, step)
    ]
    return np.concatenate(parts)
