"""M/G/c: probability of waiting, mean wait and its percentiles; exact where that is possible, else in closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from qmodel.queueing.servers.competing_residuals import WaitShape, wait_shape
from qmodel.queueing.servers.conditional_wait import conditional_wait_sf, wait_quantile
from qmodel.queueing.servers.erlang import MAX_SERVERS, delay_probability
from qmodel.queueing.servers.exact_methods import ExactMethod, WaitLaw, exact_wait
from qmodel.queueing.servers.phase_type import PhaseType
from qmodel.queueing.servers.service_time import Moments, Service, ServiceLaw
from qmodel.types.fleets import Overload
from qmodel.types.laws import FloatArray

__all__ = ["Moments", "QueueResult", "mgc"]

_ROWS = 4096  # queues whose service times are integrated over at once


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
            (0 where the mean is exact).
        percentile_band: the same for p90 to p99, where more than twice as many wait as exceed them; None: not known.
        delayed_third: E[W^3] / E[W]^3 of the wait of those that wait; None: that of a mixture of two equal loads.
        overload: the most loaded queue and why it has no numbers; None if all are stable.
        laws: the exact distribution of each queue, where ``method`` was an exact one.
    """

    utilisation: FloatArray
    stable: npt.NDArray[np.bool_]
    p_wait: FloatArray
    mean_wait_s: FloatArray
    mean_delayed_s: FloatArray
    delayed_scv: FloatArray
    band: FloatArray
    percentile_band: FloatArray | None = None
    delayed_third: FloatArray | None = None
    overload: Overload | None = None
    laws: tuple[WaitLaw | None, ...] | None = field(default=None, repr=False)

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
        if self.laws is not None:
            return self._by_law(level, lambda law, at: law.quantile(1.0 - at), unstable=np.inf)
        mean = np.where(self.stable, self.mean_delayed_s, 1.0)
        wait = wait_quantile(level, self.p_wait, mean, self.delayed_scv, self.delayed_third)
        return np.asarray(np.where(self.stable, wait, np.inf))[()]

    def wait_survival(self, wait_s: npt.ArrayLike) -> FloatArray:
        """Probability that an arrival waits longer than ``wait_s``; 1 where the queue is overloaded.

        Args:
            wait_s: time, s, at least 0; broadcasts.

        Raises:
            ValueError: if a time is negative or not a number.
        """
        time = np.asarray(wait_s, dtype=float)
        if not np.all(time >= 0.0):
            raise ValueError(f"wait_s must be at least 0 s (got {wait_s!r})")
        if self.laws is not None:
            return self._by_law(time, lambda law, at: law.survival(at), unstable=1.0)
        mean = np.where(self.stable & (self.mean_delayed_s > 0.0), self.mean_delayed_s, 1.0)
        above = self.p_wait * conditional_wait_sf(time, mean, self.delayed_scv, self.delayed_third)
        return np.asarray(np.where(self.stable, above, 1.0))[()]

    def _by_law(self, points: FloatArray, value: Callable[[WaitLaw, float], float], unstable: float) -> FloatArray:
        assert self.laws is not None
        index, at = np.broadcast_arrays(np.arange(len(self.laws)).reshape(np.shape(self.p_wait)), points)
        found = np.full(index.shape, unstable)
        for place in np.ndindex(index.shape):
            law = self.laws[index[place]]
            if law is not None:
                found[place] = value(law, float(at[place]))
        return found[()]


def mgc(
    rate_rps: npt.ArrayLike,
    service: Moments | PhaseType | ServiceLaw,
    servers: npt.ArrayLike,
    *,
    method: Literal["approx", "exact", "qbd"] = "approx",
) -> QueueResult:
    """Waiting in a first-come, first-served queue with Poisson arrivals, general service and c servers.

    ``approx`` is closed form and takes any law; its measured error is in ``band`` and, by shape of service, in
    docs/theory/queueing.md. It is exact for one server (mean) and for exponential service. ``exact`` solves
    exponential and constant service and laws of few phases to many digits, with the whole distribution.

    Args:
        rate_rps: arrivals per second, at least 0; broadcasts.
        service: a law of atoms in seconds, :class:`PhaseType`, or :class:`Moments`, whose fields broadcast. With
            ``exact`` moments stand for the smallest usual law of phases that has them, a law for its single value.
        servers: number of servers, 1 to a million (with ``approx`` a real number interpolates); broadcasts.
        method: ``approx``; ``exact``: Erlang C, M/D/c or, for phases, the matrix-analytic method; ``qbd``: always
            the matrix-analytic method. Exact methods take tens of milliseconds a queue.

    Returns:
        :class:`QueueResult` in the common shape.

    Raises:
        ValueError: naming the argument and its range; with ``exact`` and ``qbd`` also where the law has no phases or
            the servers have more than 300 phase configurations.

    Example:
        >>> queue = mgc(8.0, Moments(mean_s=1.0, scv=1.0), 10)
        >>> round(float(queue.p_wait), 4), round(float(queue.mean_wait_s), 4)
        (0.4092, 0.2046)
        >>> round(float(mgc(8.0, Moments(mean_s=1.0, scv=4.0), 10, method="exact").wait_quantile_s(0.95)), 4)
        2.3644

    Reference: Pollaczek-Khinchine for c = 1; else ``approx`` is own construction, see docs/theory/queueing.md;
        ``exact`` by Latouche and Ramaswami (1993) and, for constant service, Crommelin (1932) and Franx (2001).
    """
    if method not in ("approx", "exact", "qbd"):
        raise ValueError(f"method must be 'approx', 'exact' or 'qbd' (got {method!r})")
    shape = Service.of(service)
    rate, count = _checked_rate(rate_rps), _checked_servers(servers)
    rate, count, mean_s, *_ = np.broadcast_arrays(rate, count, shape.mean_s, shape.scv, shape.nu)
    rho = rate * mean_s / count
    if method == "approx":
        return _approximate(rate, count, mean_s, rho, shape)
    return _exact(rate, count, mean_s, rho, _each_service(service, rho.shape), method)


def _approximate(
    rate: FloatArray, count: FloatArray, mean_s: FloatArray, rho: FloatArray, shape: Service
) -> QueueResult:
    stable = rho < 1.0
    load = np.where(stable, rho, 0.5)  # any stable load: these entries are overwritten below
    form = _shape_of_wait(shape, count, load)
    erlang = delay_probability(load * count, count)
    p_wait = np.minimum(erlang * form.delay_factor, 1.0)
    unit_s = mean_s / (count * (1.0 - load))  # mean wait of those that wait in M/M/c
    factor = np.where(erlang > 0.0, p_wait / np.where(erlang > 0.0, erlang, 1.0), 1.0)
    exact = (count <= 1.0) | ((form.ratio == 1.0) & (form.scv == 1.0))
    return QueueResult(
        utilisation=rho[()],
        stable=np.asarray(stable)[()],
        p_wait=np.where(stable, p_wait, 1.0)[()],
        mean_wait_s=np.where(stable, erlang * unit_s * form.ratio, np.inf)[()],
        mean_delayed_s=np.where(stable, unit_s * form.ratio / factor, np.inf)[()],
        delayed_scv=form.scv[()],
        delayed_third=form.third[()],
        band=np.where(exact, 0.0, form.band)[()],
        percentile_band=np.where(exact & (form.scv == 1.0), 0.0, form.percentile_band)[()],
        overload=_overload(rate, count, mean_s, rho),
    )


def _shape_of_wait(shape: Service, count: FloatArray, load: FloatArray) -> WaitShape:
    """The wait's form in every queue, a few thousand at a time where each has its own service."""
    parts = []
    for start in range(0, max(count.size, 1), _ROWS):
        rows = slice(start, start + _ROWS)
        parts.append(wait_shape(count.ravel()[rows], load.ravel()[rows], shape.residuals(rows, count.shape)))
    joined = (np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(WaitShape))
    return WaitShape(*(column.reshape(count.shape) for column in joined))


def _exact(
    rate: FloatArray,
    count: FloatArray,
    mean_s: FloatArray,
    rho: FloatArray,
    services: list[Moments | PhaseType | ServiceLaw],
    method: ExactMethod,
) -> QueueResult:
    laws = tuple(
        exact_wait(float(rate.flat[k]), services[k], float(count.flat[k]), method) if rho.flat[k] < 1.0 else None
        for k in range(rho.size)
    )
    moments = np.array(
        [(1.0, np.inf, np.inf) if law is None else (law.p_wait, law.mean_s, law.square_s2) for law in laws]
    )
    p_wait, mean, square = (column.reshape(rho.shape) for column in moments.T)
    some = np.isfinite(mean) & (p_wait > 0.0)
    delayed = np.where(some, mean, 1.0) / np.where(some, p_wait, 1.0)
    scv = np.where(some, np.where(some, square, 1.0) / np.where(some, p_wait, 1.0) / delayed**2 - 1.0, 1.0)
    exact = np.zeros(rho.shape)
    return QueueResult(
        utilisation=rho[()],
        stable=np.asarray(rho < 1.0)[()],
        p_wait=p_wait[()],
        mean_wait_s=mean[()],
        mean_delayed_s=np.where(some, delayed, np.where(rho < 1.0, mean_s / count, np.inf))[()],
        delayed_scv=scv[()],
        band=exact[()],
        percentile_band=exact[()],
        overload=_overload(rate, count, mean_s, rho),
        laws=laws,
    )


def _each_service(
    service: Moments | PhaseType | ServiceLaw, shape: tuple[int, ...]
) -> list[Moments | PhaseType | ServiceLaw]:
    """The service of every queue in turn; moments broadcast, a law or phases are the same for all."""
    size = int(np.prod(shape))
    if not isinstance(service, Moments):
        return [service] * size
    mean_s, scv = (np.broadcast_to(item, shape).ravel().tolist() for item in (service.mean_s, service.scv))
    third = [None] * size if service.third is None else np.broadcast_to(service.third, shape).ravel().tolist()
    return [Moments(mean_s=mean_s[k], scv=scv[k], third=third[k]) for k in range(size)]


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
