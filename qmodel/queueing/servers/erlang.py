"""Erlang's loss and delay formulas for any positive real number of servers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

from qmodel.types.laws import FloatArray

__all__ = ["MAX_SERVERS", "erlang_b", "erlang_c"]

MAX_SERVERS = 1e6  # accuracy is tested up to here; a larger count is a slip, not a pool
_FRACTION_STEPS = 200  # the continued fraction needs fewer than 40 where it is used
_FAR_OVERLOAD = 30.0  # standard deviations above the server count, where the gamma tail nears underflow


def erlang_b(offered: npt.ArrayLike, servers: npt.ArrayLike) -> FloatArray:
    """Probability that an arrival finds all servers busy and is lost, in M/G/c/c.

    Computed as P(Poisson(a) = c) / P(Poisson(a) <= c), continued to real c by
    1/B = integral of exp(-u) (1 + u/a)^c over u > 0, so it costs the same for 10 and for 100,000 servers.

    Args:
        offered: arrival rate times mean service time, in servers, at least 0; broadcasts.
        servers: number of servers, a positive real up to a million; broadcasts.

    Returns:
        Blocking probability, in the common shape.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> round(float(erlang_b(8.0, 10)), 4)
        0.1217

    Reference: Jagerman, Some properties of the Erlang loss function, BSTJ 53 (1974).
    """
    load, count = _checked(offered, servers)
    return np.asarray(_blocking(load, count))[()]


def erlang_c(offered: npt.ArrayLike, servers: npt.ArrayLike) -> FloatArray:
    """Probability that an arrival waits in M/M/c.

    Args:
        offered: arrival rate times mean service time, in servers, at least 0 and below ``servers``; broadcasts.
        servers: number of servers, a positive real up to a million; broadcasts.

    Returns:
        Delay probability, in the common shape.

    Raises:
        ValueError: if a queue is not stable (offered >= servers), or an argument is out of range.

    Example:
        >>> round(float(erlang_c(8.0, 10)), 4)
        0.4092

    Reference: Kleinrock, Queueing Systems I, sec. 3.5.
    """
    load, count = _checked(offered, servers)
    if np.any(load >= count):
        worst = int(np.argmax(load - count))
        raise ValueError(
            f"offered must be below servers, else the queue grows without end "
            f"(got offered {load.flat[worst]:g} on {count.flat[worst]:g} servers); add servers or lower the load"
        )
    return np.asarray(delay_probability(load, count))[()]


def delay_probability(offered: FloatArray, servers: FloatArray) -> FloatArray:
    """Erlang C without checks, for callers that know 0 <= offered < servers."""
    blocking = _blocking(offered, servers)
    return np.asarray(blocking / (1.0 - offered / servers * (1.0 - blocking)))


def _checked(offered: npt.ArrayLike, servers: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    load, count = np.broadcast_arrays(np.asarray(offered, dtype=float), np.asarray(servers, dtype=float))
    if not np.all(np.isfinite(load) & (load >= 0.0)):
        bad = load[~(np.isfinite(load) & (load >= 0.0))].flat[0]
        raise ValueError(f"offered must be a finite number of at least 0, in servers (got {bad:g})")
    if not np.all((count > 0.0) & (count <= MAX_SERVERS)):
        bad = count[~((count > 0.0) & (count <= MAX_SERVERS))].flat[0]
        raise ValueError(f"servers must be above 0 and at most {MAX_SERVERS:,.0f} (got {bad:g})")
    return load, count


def _blocking(offered: FloatArray, servers: FloatArray) -> FloatArray:
    a, c = np.broadcast_arrays(np.asarray(offered, dtype=float), np.asarray(servers, dtype=float))
    far = a > c + _FAR_OVERLOAD * np.sqrt(c + 1.0)
    near_a = np.where(far, c, a)
    blocking = _poisson_mass(near_a, c) / special.gammaincc(c + 1.0, near_a)
    if np.any(far):
        blocking = np.where(far, _overloaded_blocking(np.where(far, a, 2.0 * c + 100.0), c), blocking)
    return np.asarray(np.minimum(blocking, 1.0))


def _poisson_mass(mean: FloatArray, count: FloatArray) -> FloatArray:
    """P(Poisson(mean) = count) for real count, by the saddle-point form that loses no digits at large counts.

    Reference: Loader, Fast and accurate computation of binomial probabilities (2000).
    """
    safe = np.where(mean > 0.0, mean, 1.0)
    excess = (safe - count) / count
    log_ratio = np.where(excess < -0.5, np.log(safe) - np.log(count), np.log1p(np.maximum(excess, -0.5)))
    deviance = count * (excess - log_ratio)
    mass = np.exp(-deviance - _stirling_error(count)) / np.sqrt(2.0 * np.pi * count)
    return np.asarray(np.where(mean > 0.0, mass, 0.0))


def _stirling_error(count: FloatArray) -> FloatArray:
    """log Gamma(c+1) minus Stirling's formula."""
    large = np.maximum(count, 16.0)
    inverse = 1.0 / large**2
    series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / large
    small = np.minimum(count, 16.0)
    direct = special.gammaln(small + 1.0) - (small + 0.5) * np.log(small) + small - 0.5 * np.log(2.0 * np.pi)
    return np.asarray(np.where(count >= 16.0, series, direct))


def _overloaded_blocking(offered: FloatArray, servers: FloatArray) -> FloatArray:
    """Erlang B far above capacity: Legendre's continued fraction of the upper incomplete gamma function (Lentz)."""
    shape = servers + 1.0
    tail = offered + 1.0 - shape
    ratio, value = np.full_like(tail, 1e300), 1.0 / tail
    denominator = value.copy()
    for step in range(1, _FRACTION_STEPS):
        factor = -step * (step - shape)
        tail = tail + 2.0
        denominator = 1.0 / (factor * denominator + tail)
        ratio = tail + factor / ratio
        change = denominator * ratio
        value = value * change
        if np.all(np.abs(change - 1.0) < 1e-15):
            break
    return np.asarray(1.0 / (offered * value))
