"""Classes with priorities at c servers: probability of waiting, mean wait, completion and percentiles of each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from qmodel.queueing.disciplines.preemptive_resume import preemptive_waits
from qmodel.queueing.disciplines.priority_waits import ClassLoads, non_preemptive_waits
from qmodel.queueing.disciplines.residual_mixture import first_free_ratio
from qmodel.queueing.servers.conditional_wait import class_wait_quantile
from qmodel.queueing.servers.erlang import MAX_SERVERS
from qmodel.queueing.servers.service_time import Moments, Service, ServiceLaw
from qmodel.types.fleets import Overload
from qmodel.types.laws import FloatArray

__all__ = ["Discipline", "PriorityResult", "priority"]

Discipline = Literal["non_preemptive", "preemptive_resume"]

# Nine in ten simulated classes (1 to 64 servers, utilisation 0.5 to 0.95) stay within, see docs/theory/priority.md.
_ALIKE_BAND = 0.10
_SIZES_BAND = 0.15
_HEAVY_BAND = 0.30
_SHARE_DIGITS = 12
_HEAVY_NU = 8.0  # residual spread of the pooled service from which a tail is heavy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriorityResult:
    """Waiting of K classes, the most important first; arrays have shape (K, ...) with the cases behind.

    Where a class has no steady state ``stable`` is False and its wait, completion and percentiles are +inf; the
    classes above it keep their numbers, with all servers busy.

    Attributes:
        utilisation: offered load of all classes per server, shape (...).
        stable: whether the class and those above it leave the servers idle time.
        p_wait: probability that service does not begin at once.
        p_delayed: the same, or that it is interrupted; under preemption a rough value, on the high side.
        mean_wait_s: mean time in system that is not service, s.
        mean_completion_s: wait and service, s.
        slowdown: mean completion over mean service.
        delayed_scv: squared coefficient of variation of the wait of those that wait.
        band: relative error of the mean wait that nine in ten simulated classes stay within (0 where it is exact);
            percentiles err up to twice as much.
        overload: the first class that has no steady state and why; None if all have one.
    """

    utilisation: FloatArray
    stable: npt.NDArray[np.bool_]
    p_wait: FloatArray
    p_delayed: FloatArray
    mean_wait_s: FloatArray
    mean_completion_s: FloatArray
    slowdown: FloatArray
    delayed_scv: FloatArray
    band: FloatArray
    overload: Overload | None = None

    def wait_quantile_s(self, p: float) -> FloatArray:
        """The wait that a share ``p`` of each class does not exceed, s, shape (K, ...).

        Args:
            p: level in (0, 1).

        Raises:
            ValueError: if the level is outside (0, 1).
        """
        return class_wait_quantile(p, self.stable, self.p_delayed, self.mean_wait_s, self.delayed_scv)


def priority(
    rates_rps: Sequence[npt.ArrayLike],
    services: Sequence[Moments | ServiceLaw],
    servers: npt.ArrayLike,
    *,
    discipline: Discipline = "non_preemptive",
) -> PriorityResult:
    """Waiting of classes that c servers take in order of importance, first come, first served within a class.

    Poisson arrivals. Means are exact for one server and for exponential service that is the same for all classes;
    else an approximation whose measured error is in ``band`` and in docs/theory/priority.md.

    Args:
        rates_rps: arrivals per second of each class, the most important first, at least 0; each broadcasts.
        services: a law of atoms in seconds, or :class:`Moments`, for each class.
        servers: number of servers, 1 to a million; broadcasts.
        discipline: ``non_preemptive`` finishes what has begun; ``preemptive_resume`` takes the server of the least
            important, latest job, which goes on later where it stopped.

    Returns:
        :class:`PriorityResult`, classes on the first axis.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> same = Moments(mean_s=1.0, scv=1.0)
        >>> queue = priority([1.8, 1.8], [same, same], 4)
        >>> queue.mean_wait_s.round(4).tolist()
        [0.3581, 3.5807]

    Reference: Cobham, Operations Research 2 (1954), for one server; Davis, Operations Research 14 (1966), and Kella and
        Yechiali, Naval Research Logistics 32 (1985), for exponential service; else own construction, see
        docs/theory/priority.md.
    """
    if discipline not in ("non_preemptive", "preemptive_resume"):
        raise ValueError(f"discipline must be 'non_preemptive' or 'preemptive_resume' (got {discipline!r})")
    items = [Service.of(item) for item in services]
    rate, count = _checked(rates_rps, items, servers)
    moments = [_raw_moments(item) for item in items]
    shape = np.broadcast_shapes(rate.shape[1:], count.shape, *(np.shape(first) for first, _, _ in moments))
    rate = np.broadcast_to(rate, (len(items), *shape))
    count = np.broadcast_to(count, shape)
    first, second, third = (
        np.stack([np.broadcast_to(item[power], shape) for item in moments]).astype(float) for power in range(3)
    )
    load = np.cumsum(rate * first, axis=0) / count
    stable = load < 1.0
    served = _served(rate, first, count)

    def first_free(last: int) -> FloatArray:
        kept = slice(last + 1)
        return _first_free(served[kept], rate[kept], items[kept], count)

    classes = ClassLoads(
        rate_rps=served,
        first=first,
        second=second,
        third=third,
        servers=count,
        first_free=first_free(len(items) - 1),
    )
    if discipline == "non_preemptive":
        waits = non_preemptive_waits(classes)
        p_wait = p_delayed = np.broadcast_to(waits.p_wait, rate.shape)
        mean, scv = waits.mean_wait_s, waits.delayed_scv
    else:
        paused = preemptive_waits(classes, first_free)
        p_wait, p_delayed, mean, scv = paused.p_wait, paused.p_delayed, paused.mean_wait_s, paused.delayed_scv
    mean = np.where(stable, mean, np.inf)
    return PriorityResult(
        utilisation=load[-1],
        stable=stable,
        p_wait=np.where(stable, p_wait, 1.0),
        p_delayed=np.where(stable, p_delayed, 1.0),
        mean_wait_s=mean,
        mean_completion_s=mean + first,
        slowdown=mean / first + 1.0,
        delayed_scv=scv,
        band=_band(classes),
        overload=_overload(rate, first, count, load),
    )


def _raw_moments(item: Service) -> tuple[FloatArray, FloatArray, FloatArray]:
    """E[S], E[S^2] and E[S^3]; the third follows from the spread of the residual."""
    second = item.mean_s**2 * (1.0 + item.scv)
    return item.mean_s, second, item.nu * 3.0 * second**2 / (4.0 * item.mean_s)


def _served(rate: FloatArray, first: FloatArray, servers: FloatArray) -> FloatArray:
    """Rates at which classes are served: the first class beyond capacity takes what is left, those below nothing."""
    asked = rate * first
    above = np.cumsum(asked, axis=0) - asked
    taken = np.clip(servers - above, 0.0, asked)
    return np.asarray(np.where(taken < asked, taken / first, rate))


def _first_free(served: FloatArray, rate: FloatArray, items: Sequence[Service], servers: FloatArray) -> FloatArray:
    """r0 of the served mixture; only where several servers use it."""
    exponential = all(np.all((item.scv == 1.0) & (item.nu == 2.0)) for item in items)
    alike = all(np.all(item.mean_s == items[0].mean_s) for item in items)
    if np.all(servers <= 1.0) or (exponential and alike):
        return np.ones(servers.shape)
    weight = np.where(served.sum(axis=0) > 0.0, served, np.where(rate.sum(axis=0) > 0.0, rate, 1.0))
    weight = np.round(weight / weight.sum(axis=0), _SHARE_DIGITS)
    if any(np.ndim(item.mean_s) or np.ndim(item.scv) or np.ndim(item.nu) for item in items):
        return first_free_ratio(weight, items, servers)
    # a sweep over loads has the same mix in every case
    mixes, which = np.unique(
        np.concatenate([weight, servers[None]]).reshape(len(items) + 1, -1), axis=1, return_inverse=True
    )
    return np.asarray(first_free_ratio(mixes[:-1], items, mixes[-1])[which.ravel()].reshape(servers.shape))


def _band(classes: ClassLoads) -> FloatArray:
    """Error by kind of queue: none, classes alike, different sizes, heavy tails."""
    present = classes.rate_rps > 0.0
    alike = np.all(np.isclose(classes.first, classes.first[:1], rtol=1e-12) | ~present, axis=0)
    markov = np.all(np.isclose(classes.second, 2.0 * classes.first**2, rtol=1e-12) | ~present, axis=0) & np.all(
        np.isclose(classes.third, 6.0 * classes.first**3, rtol=1e-9) | ~present, axis=0
    )
    total = np.maximum((classes.rate_rps).sum(axis=0), 1e-300)
    first, second, third = (
        (classes.rate_rps * item).sum(axis=0) / total for item in (classes.first, classes.second, classes.third)
    )
    heavy = 4.0 * first * third > 3.0 * _HEAVY_NU * second**2
    band = np.where(heavy, _HEAVY_BAND, np.where(alike, _ALIKE_BAND, _SIZES_BAND))
    band = np.where((classes.servers <= 1.0) | (alike & markov), 0.0, band)
    return np.asarray(np.broadcast_to(band, classes.rate_rps.shape))


def _overload(rate: FloatArray, first: FloatArray, servers: FloatArray, load: FloatArray) -> Overload | None:
    """The most important class without a steady state, in the most loaded case."""
    if np.all(load < 1.0):
        return None
    case = int(np.argmax(load[-1].ravel()))
    loads, means, rates = (item.reshape(item.shape[0], -1)[:, case] for item in (load, first, rate))
    count = float(servers.ravel()[case])
    index = int(np.argmax(loads >= 1.0))
    above = float(loads[index - 1]) if index else 0.0
    limit = count * (1.0 - above) / float(means[index])
    enough = np.floor(float(loads[index]) * count) + 1.0
    return Overload(
        kind="rate",
        value=float(rates[index]),
        limit=limit,
        reason=f"class {index + 1} of {loads.size} sends {rates[index]:g} requests/s of {means[index]:g} s each, and "
        f"{count:g} servers have room for less than {limit:g} after the classes above it; at least {enough:.0f} "
        f"servers are needed",
    )


def _checked(
    rates_rps: Sequence[npt.ArrayLike], items: Sequence[Service], servers: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    if len(rates_rps) == 0 or len(rates_rps) != len(items):
        raise ValueError(
            f"rates_rps and services must have one entry per class, at least one "
            f"(got {len(rates_rps)} and {len(items)})"
        )
    rate = np.stack(np.broadcast_arrays(*(np.asarray(item, dtype=float) for item in rates_rps)))
    if not np.all(np.isfinite(rate) & (rate >= 0.0)):
        raise ValueError(f"rates_rps must be finite and at least 0 requests/s (got {rates_rps!r})")
    count = np.asarray(servers, dtype=float)
    if not np.all((count >= 1.0) & (count <= MAX_SERVERS)):
        raise ValueError(f"servers must be from 1 to {MAX_SERVERS:,.0f} (got {servers!r})")
    return rate, count
