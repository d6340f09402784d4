"""M/G/c: probability of waiting, mean wait and its percentiles, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from qmodel.queueing.conditional_wait import (
    conditional_wait_quantile,
    conditional_wait_scv,
    conditional_wait_sf,
    wait_quantile,
)
from qmodel.queueing.erlang import MAX_SERVERS, delay_probability
from qmodel.queueing.halfin_whitt import (
    delay_probability_factor,
    halfin_whitt_weight,
    kimura_ratio,
    light_traffic_ratio,
    wait_ratio,
)
from qmodel.queueing.service_time import Moments, Service, ServiceLaw
from qmodel.types.fleets import Overload
from qmodel.types.laws import FloatArray

__all__ = [
    "Moments",
    "QueueResult",
    "conditional_wait_quantile",
    "conditional_wait_scv",
    "conditional_wait_sf",
    "delay_probability_factor",
    "halfin_whitt_weight",
    "kimura_ratio",
    "light_traffic_ratio",
    "mgc",
    "wait_quantile",
    "wait_ratio",
]

# Nine in ten reference queues (1 to 128 servers, utilisation 0.5 to 0.95) stay within, see docs/theory/queueing.md.
_REGULAR_BAND = 0.10
_HEAVY_BAND = 0.30
_HEAVY_NU = 8.0  # residual spread above which a tail is heavy: lognormal from scv 5, bounded Pareto from scv 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueResult:
    """Waiting in one or many M/G/c queues; every array has the common shape of the arguments.

    Where a queue is overloaded ``stable`` is False, ``p_wait`` is 1, the wait and its percentiles are +inf.

    Attributes:
        utilisation: offered load per server.
        stable: whether the queue has a steady state (utilisation below 1).
        p_wait: probability that an arrival waits.
        mean_wait_s: mean wait before service, s.
        mean_delayed_s: mean wait of those that wait, s.
        delayed_scv: squared coefficient of variation of the wait of those that wait.
        band: relative error of the mean wait that nine in ten reference queues of this shape stay within
            (0 where the mean is exact); percentiles err up to twice as much.
        overload: the most loaded queue and why it has no numbers; None if all are stable.
    """

    utilisation: FloatArray
    stable: npt.NDArray[np.bool_]
    p_wait: FloatArray
    mean_wait_s: FloatArray
    mean_delayed_s: FloatArray
    delayed_scv: FloatArray
    band: FloatArray
    overload: Overload | None = None

    def wait_quantile_s(self, p: npt.ArrayLike) -> FloatArray:
        """The wait that a share ``p`` of arrivals does not exceed, s; 0 where fewer than 1 - p wait at all.

        Args:
            p: level in (0, 1); broadcasts.

        Raises:
            ValueError: if a level is outside (0, 1).
        """
        level = np.asarray(p, dtype=float)
        if not np.all((level > 0.0) & (level < 1.0)):
            raise ValueError(f"p must be between 0 and 1, e.g. 0.95 (got {p!r})")
        mean = np.where(self.stable, self.mean_delayed_s, 1.0)
        wait = wait_quantile(level, self.p_wait, mean, self.delayed_scv)
        return np.asarray(np.where(self.stable, wait, np.inf))[()]


def mgc(
    rate_rps: npt.ArrayLike,
    service: Moments | ServiceLaw,
    servers: npt.ArrayLike,
    *,
    method: Literal["approx"] = "approx",
) -> QueueResult:
    """Waiting in a first-come, first-served queue with Poisson arrivals, general service and c servers.

    Exact for one server (mean) and for exponential service; else an approximation whose measured
    error is in ``band`` and, by shape of service, in docs/theory/queueing.md.

    Args:
        rate_rps: arrivals per second, at least 0; broadcasts.
        service: a law of atoms in seconds, or :class:`Moments`, whose fields broadcast.
        servers: number of servers, 1 to a million (a real number interpolates); broadcasts.
        method: ``approx``, the only method.

    Returns:
        :class:`QueueResult` in the common shape.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> queue = mgc(8.0, Moments(mean_s=1.0, scv=1.0), 10)
        >>> round(float(queue.p_wait), 4), round(float(queue.mean_wait_s), 4)
        (0.4092, 0.2046)

    Reference: Pollaczek-Khinchine for c = 1, Kimura (1986) for scv <= 1, else own construction, see
        docs/theory/queueing.md.
    """
    if method != "approx":
        raise ValueError(f"method must be 'approx' (got {method!r})")
    shape = Service.of(service)
    rate, count = _checked_rate(rate_rps), _checked_servers(servers)
    light = _light_traffic(shape, count)
    rate, count, mean_s, scv, nu = np.broadcast_arrays(rate, count, shape.mean_s, shape.scv, shape.nu)
    rho = rate * mean_s / count
    stable = rho < 1.0
    load = np.where(stable, rho, 0.5)  # any stable load: these entries are overwritten below

    heavy = (1.0 + scv) / 2.0
    weight = halfin_whitt_weight(count, load, nu)
    ratio = np.where(
        (scv <= 1.0) & (count > 1.0), kimura_ratio(count, load, scv), wait_ratio(count, load, scv, nu, light)
    )
    erlang = delay_probability(load * count, count)
    p_wait = np.minimum(erlang * delay_probability_factor(count, load, scv), 1.0)
    mean_wait_s = erlang * mean_s / (count * (1.0 - load)) * ratio
    factor = np.where(erlang > 0.0, p_wait / np.where(erlang > 0.0, erlang, 1.0), 1.0)
    mean_delayed_s = mean_s / (count * (1.0 - load)) * ratio / np.where(factor > 0.0, factor, 1.0)
    return QueueResult(
        utilisation=rho[()],
        stable=np.asarray(stable)[()],
        p_wait=np.where(stable, p_wait, 1.0)[()],
        mean_wait_s=np.where(stable, mean_wait_s, np.inf)[()],
        mean_delayed_s=np.where(stable, mean_delayed_s, np.inf)[()],
        delayed_scv=np.asarray(conditional_wait_scv(load, nu, heavy, weight))[()],
        band=np.asarray(_band(count, scv, nu))[()],
        overload=_overload(rate, count, mean_s, rho),
    )


def _light_traffic(shape: Service, servers: FloatArray) -> FloatArray:
    """r0 where the interpolation uses it; it does not depend on the rate, so it is not repeated over rates."""
    if np.all(shape.scv <= 1.0):
        return np.asarray(1.0)  # Kimura's formula and the one-server formula do not use it
    return shape.light_traffic_ratio(servers)


def _band(servers: FloatArray, scv: FloatArray, nu: FloatArray) -> FloatArray:
    exact = (servers <= 1.0) | ((scv == 1.0) & (np.abs(nu - 2.0) < 1e-9))
    return np.asarray(np.where(exact, 0.0, np.where(nu <= _HEAVY_NU, _REGULAR_BAND, _HEAVY_BAND)))


def _overload(rate: FloatArray, servers: FloatArray, mean_s: FloatArray, rho: FloatArray) -> Overload | None:
    if np.all(rho < 1.0):
        return None
    worst = int(np.argmax(rho))
    offered, limit = float(rate.flat[worst]), float(servers.flat[worst] / mean_s.flat[worst])
    return Overload(
        kind="rate",
        value=offered,
        limit=limit,
        reason=f"{offered:g} requests/s arrive, {servers.flat[worst]:g} servers of {mean_s.flat[worst]:g} s each "
        f"carry less than {limit:g}; at least {np.floor(offered * mean_s.flat[worst]) + 1:.0f} servers are needed",
    )


def _checked_rate(rate_rps: npt.ArrayLike) -> FloatArray:
    rate = np.asarray(rate_rps, dtype=float)
    if not np.all(np.isfinite(rate) & (rate >= 0.0)):
        raise ValueError(f"rate_rps must be finite and at least 0 requests/s (got {rate_rps!r})")
    return rate


def _checked_servers(servers: npt.ArrayLike) -> FloatArray:
    count = np.asarray(servers, dtype=float)
    if not np.all((count >= 1.0) & (count <= MAX_SERVERS)):
        raise ValueError(f"servers must be from 1 to {MAX_SERVERS:,.0f} (got {servers!r})")
    return count
