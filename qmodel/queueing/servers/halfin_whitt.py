"""Mean wait of M/G/c between its light-traffic and its heavy-traffic limit, by three moments and one weight.

The short form that the replica's chain and the priority queue use, where a curve of
residuals would cost too much. The wait is that of M/M/c times a ratio. The ratio falls from h = (1 + scv)/2 in
heavy traffic to r0 in light traffic, and depends on load and size almost only
through the Halfin-Whitt variable X = c (1 - rho)^2. See docs/theory/queueing.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qmodel.types.laws import FloatArray

__all__ = [
    "halfin_whitt_weight",
    "light_traffic_ratio",
    "residual_spread",
    "wait_ratio",
]


def halfin_whitt_weight(servers: npt.ArrayLike, rho: npt.ArrayLike, nu: npt.ArrayLike) -> FloatArray:
    """Weight g in [0, 1] of the heavy-traffic limit; 1 for a single server.

    Args:
        servers: c, a positive real; broadcasts.
        rho: utilisation in [0, 1); broadcasts.
        nu: spread of the residual service time, from :func:`residual_spread`; broadcasts.

    Returns:
        1 / (1 + 0.217 nu^1.14 c (1 - rho)^2); own construction, see docs/theory/queueing.md.

    Example:
        >>> float(halfin_whitt_weight(1, 0.5, 2.0))
        1.0
    """
    c, load, spread = (np.asarray(item, dtype=float) for item in (servers, rho, nu))
    weight = 1.0 / (1.0 + 0.217 * spread**1.14 * c * (1.0 - load) ** 2)
    return np.asarray(np.where(c <= 1.0, 1.0, weight))


def wait_ratio(
    servers: npt.ArrayLike, rho: npt.ArrayLike, scv: npt.ArrayLike, nu: npt.ArrayLike, r0: npt.ArrayLike
) -> FloatArray:
    """Mean wait of M/G/c over that of M/M/c by interpolation in the Halfin-Whitt variable.

    Args:
        servers: c, a positive real; broadcasts.
        rho: utilisation in [0, 1); broadcasts.
        scv: squared coefficient of variation of service; broadcasts.
        nu: spread of the residual service time, from :func:`residual_spread`; broadcasts.
        r0: light-traffic limit of the ratio, from :func:`light_traffic_ratio`; broadcasts.

    Returns:
        r0 + (h - r0) g; exact for one server, for exponential service and in both limits.

    Example:
        >>> float(wait_ratio(1, 0.7, 3.0, 2.0, 0.9))
        2.0
    """
    heavy = (1.0 + np.asarray(scv, dtype=float)) / 2.0
    light = np.asarray(r0, dtype=float)
    return np.asarray(light + (heavy - light) * halfin_whitt_weight(servers, rho, nu))


def residual_spread(first: npt.ArrayLike, second: npt.ArrayLike, third: npt.ArrayLike) -> FloatArray:
    """nu = E[R^2] / E[R]^2 of the residual service time R seen by an arrival; 2 for exponential, 4/3 for constant.

    Args:
        first: E[S]; broadcasts.
        second: E[S^2]; broadcasts.
        third: E[S^3]; broadcasts.

    Example:
        >>> float(residual_spread(1.0, 2.0, 6.0))
        2.0
    """
    m1, m2, m3 = (np.asarray(item, dtype=float) for item in (first, second, third))
    return np.asarray(4.0 * m1 * m3 / (3.0 * m2**2))


def light_traffic_ratio(values: FloatArray, weights: FloatArray, servers: npt.ArrayLike) -> FloatArray:
    """Light-traffic limit r0 of the wait ratio for a law of atoms.

    An arrival that finds all c servers busy waits for the shortest of c residual times. For atoms the
    residual's survival is piecewise linear, so its c-th power integrates in closed form, for real c too.

    Args:
        values: service times or token counts, ascending, shape (n,), in any unit.
        weights: their probabilities, shape (n,), sum 1.
        servers: c, a positive real; any shape.

    Returns:
        r0 in the shape of ``servers``: (1 + scv)/2 at c = 1, towards 1 for many servers.

    Example:
        >>> round(float(light_traffic_ratio(np.array([2.0]), np.array([1.0]), 4)), 9)
        0.8

    Reference: Burman and Smith, A light-traffic theorem for multi-server queues, Math. Oper. Res. 8 (1983).
    """
    power = np.asarray(servers, dtype=float)[..., None] + 1.0
    atoms = np.asarray(values, dtype=float)
    mean = float(atoms @ weights)
    width = np.diff(np.concatenate([[0.0], atoms]))
    above = np.clip(np.cumsum(weights[::-1])[::-1], 0.0, 1.0)  # P(S >= atom), the survival left of each atom
    remaining = np.cumsum((width * above)[::-1])[::-1] / mean  # residual survival at the left end of each piece
    drop = width * above / mean
    used = drop > 0.0
    remaining, drop, above = remaining[used], drop[used], above[used]
    fraction = np.minimum(drop / remaining, 1.0)
    with np.errstate(divide="ignore"):  # the last piece ends at zero: its log is -inf, its power 0
        fallen = -np.expm1(power * np.log1p(-fraction))
    area = remaining**power * fallen / above  # integral of survival^c over the piece, times (c + 1) / E[S]
    return np.asarray((power[..., 0] - 1.0) / power[..., 0] * area.sum(axis=-1))
