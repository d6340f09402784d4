"""Waits of classes that are served in order of importance, as arrays over classes and cases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.queueing.servers.conditional_wait import conditional_wait_scv
from qmodel.queueing.servers.erlang import delay_probability
from qmodel.queueing.servers.halfin_whitt import halfin_whitt_weight, residual_spread
from qmodel.queueing.servers.multiserver import mgc
from qmodel.queueing.servers.service_time import Moments
from qmodel.types.laws import FloatArray

__all__ = ["ClassLoads", "ClassWaits", "non_preemptive_waits"]

_TOP_EXPONENT = 1.0 / 3.0  # how the weight of the heavy-traffic limit falls for classes of little load; fitted
_TURNOVER = 0.17  # of servers by jobs sorted by size; fitted to simulations of shortest job first
_LEAST_GAP = 1e-5  # load between neighbouring classes over which a slope is taken
_DIGITS = 10  # of the shape of the pooled service, so that equal mixes at different loads are one shape
_SCV_RANGE = (0.3, 20.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassLoads:
    """Classes in order of importance and the servers they share; K classes, cases of any shape.

    Attributes:
        rate_rps: arrivals that are served, shape (K, ...); with those of the classes above they load c servers at
            most fully.
        first, second, third: E[S^k] of each class, shape (K, ...).
        servers: c, shape (...).
        first_free: r0 of the mixture, from ``residual_mixture.first_free_ratio``, shape (...).
    """

    rate_rps: FloatArray
    first: FloatArray
    second: FloatArray
    third: FloatArray
    servers: FloatArray
    first_free: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassWaits:
    """Waits before service.

    Attributes:
        p_wait: probability that an arrival finds all servers busy, shape (...).
        mean_wait_s: shape (K, ...).
        delayed_scv: squared coefficient of variation of the wait of those that wait, shape (K, ...).
        fcfs_wait_s: mean wait of every class without priorities, shape (...); infinite under full load.
    """

    p_wait: FloatArray
    mean_wait_s: FloatArray
    delayed_scv: FloatArray
    fcfs_wait_s: FloatArray


def non_preemptive_waits(classes: ClassLoads, *, by_size: bool = False) -> ClassWaits:
    """Waits where a server that comes free takes the most important class that waits, in order of arrival within it.

    While a class waits, servers go over to it and to those above it: briefly they end services at the rate of the
    whole mix, in the long run at that of the classes served. Between the two the weight of the heavy-traffic limit is
    taken, or, where classes are slices of one law in order of size, that of the turnover of short services.

    Args:
        classes: loads, most important first.
        by_size: classes are slices of sizes, shortest first.

    Exact means for one server (Cobham) and for exponential service that is the same for all classes. Otherwise own
    construction, see docs/theory/priority.md.

    Reference: Cobham, Operations Research 2 (1954); Kella and Yechiali, Naval Research Logistics 32 (1985).
    """
    mix = _Mix.of(classes)
    weight, ratio = _ratios(classes, mix)
    by_load, by_number = mix.by_load, mix.by_number
    turned = _turnover(classes, mix) if by_size else weight
    light = np.minimum(np.minimum(classes.first_free, 1.0) * (1.0 - turned), ratio)
    mean = mix.base_s * (light * _openness(by_number) + (ratio - light) * _openness(by_load))
    idle = 1.0 - mix.rho
    return ClassWaits(
        p_wait=mix.p_wait,
        mean_wait_s=mean,
        delayed_scv=_delayed_scv(classes, mix, weight),
        fcfs_wait_s=np.where(idle > 0.0, mix.base_s * mix.ratio / np.where(idle > 0.0, idle, 1.0), np.inf),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Mix:
    """All classes as one stream.

    Attributes:
        mean_s, scv, nu: of the pooled service.
        rho: load per server.
        by_load: load of each class and those above per server, shape (K, ...).
        by_number: the same as if all services were alike, shape (K, ...).
        base_s: Erlang C times E[S] / c.
        p_wait: probability that all servers are busy.
        ratio: mean wait over that of exponential service, first come, first served.
        delayed_scv: squared coefficient of variation of the wait of those that wait, first come, first served.
    """

    mean_s: FloatArray
    scv: FloatArray
    nu: FloatArray
    rho: FloatArray
    by_load: FloatArray
    by_number: FloatArray
    base_s: FloatArray
    p_wait: FloatArray
    ratio: FloatArray
    delayed_scv: FloatArray

    @classmethod
    def of(cls, classes: ClassLoads) -> _Mix:
        rate, servers = classes.rate_rps, classes.servers
        total = rate.sum(axis=0)
        share = np.where(total > 0.0, rate / np.where(total > 0.0, total, 1.0), 1.0 / rate.shape[0])
        first, second, third = (
            (share * moment).sum(axis=0) for moment in (classes.first, classes.second, classes.third)
        )
        scv = np.round(np.maximum(second / first**2 - 1.0, 0.0), _DIGITS)
        nu = np.round(residual_spread(first, second, third), _DIGITS)
        rho = np.minimum(total * first / servers, 1.0)
        full = rho >= 1.0 - 1e-12
        load = np.where(full, 0.5, rho)
        unit = Moments(mean_s=1.0, scv=scv, third=np.maximum(0.75 * nu, 1.0) * (1.0 + scv) ** 2)
        queue = mgc(load * servers, unit, servers)  # in units of the mean service
        erlang = np.where(full, 1.0, delay_probability(load * servers, servers))
        factor = np.where(erlang > 0.0, queue.p_wait / np.where(erlang > 0.0, erlang, 1.0), 1.0)
        ratio = queue.mean_delayed_s * servers * (1.0 - load) * factor
        return cls(
            mean_s=first,
            scv=scv,
            nu=nu,
            rho=rho,
            by_load=np.minimum(np.cumsum(rate * classes.first, axis=0) / servers, 1.0),
            by_number=np.minimum(np.cumsum(rate, axis=0) * first / servers, 1.0),
            base_s=erlang * first / servers,
            p_wait=np.where(full, 1.0, queue.p_wait),
            ratio=np.where(full, (1.0 + scv) / 2.0, ratio),
            delayed_scv=np.where(full, 1.0, queue.delayed_scv),
        )


def _ratios(classes: ClassLoads, mix: _Mix) -> tuple[FloatArray, FloatArray]:
    """Weight of the heavy-traffic limit and ratio to exponential service of each class, shape (K, ...).

    Classes 1..k wait as one class that goes before the rest, whose ratio is that of their load; what class k alone
    waits is the difference between neighbours, by conservation of work.
    """
    heavy = (1.0 + mix.scv) / 2.0
    exponential = (np.abs(mix.scv - 1.0) < 1e-9) & (np.abs(mix.nu - 2.0) < 1e-9)
    light = np.where((classes.servers <= 1.0) | exponential, heavy, classes.first_free)
    whole = halfin_whitt_weight(classes.servers, mix.rho, mix.nu)
    missing = mix.ratio - (light + (heavy - light) * whole)

    def at(load: FloatArray) -> tuple[FloatArray, FloatArray]:
        part = np.where(mix.rho > 0.0, load / np.where(mix.rho > 0.0, mix.rho, 1.0), 1.0)
        exponent = np.where(classes.servers <= 1.0, 0.0, _TOP_EXPONENT)
        weight = halfin_whitt_weight(classes.servers, np.minimum(load, 1.0), mix.nu) * np.minimum(part, 1.0) ** exponent
        return weight, light + (heavy - light) * weight + missing * weight / whole

    above = _above(mix.by_load)
    upper = np.maximum(mix.by_load, above + _LEAST_GAP)
    (weight, ratio), (weight_above, ratio_above) = at(upper), at(above)
    pull = above * (1.0 - mix.by_load) / (upper - above)
    weight = np.clip(weight + pull * (weight - weight_above), 0.0, 1.0)
    ratio = ratio + pull * (ratio - ratio_above)
    low = np.minimum(np.minimum(light, heavy), mix.ratio)
    return weight, np.clip(ratio, low, np.maximum(np.maximum(light, heavy), mix.ratio))


def _turnover(classes: ClassLoads, mix: _Mix) -> FloatArray:
    """How far servers have gone over to the slices 1..k while these wait, from 0 to 1, shape (K, ...).

    A wait lasts about E[S] / (c (1 - load)^2), a service of theirs their own mean.
    """
    number = np.cumsum(classes.rate_rps, axis=0)
    own = np.cumsum(classes.rate_rps * classes.first, axis=0) / np.maximum(number, 1e-300)
    size = np.where(number > 0.0, own / mix.mean_s, classes.first / mix.mean_s)
    spread = _TURNOVER * classes.servers * (1.0 - mix.by_load) ** 2 * size
    return np.asarray(np.where(classes.servers <= 1.0, 1.0, 1.0 / (1.0 + spread)))


def _delayed_scv(classes: ClassLoads, mix: _Mix, weight: FloatArray) -> FloatArray:
    """SCV of the wait of those that wait; second moments of the one-server queue, exact there."""
    rate = classes.rate_rps
    squares = np.cumsum(rate * classes.second, axis=0)
    total = np.where(squares[-1] > 0.0, squares[-1], 1.0)
    part = weight * mix.rho * squares / total + (1.0 - weight) * mix.by_number
    level = weight * mix.by_load + (1.0 - weight) * mix.by_number
    free, free_above = 1.0 - level, 1.0 - _above(level)
    heavy = (1.0 + mix.scv) / 2.0
    whole = halfin_whitt_weight(classes.servers, mix.rho, mix.nu)
    missing = mix.delayed_scv - conditional_wait_scv(mix.rho, mix.nu, heavy, whole)
    own = conditional_wait_scv(mix.by_load, mix.nu, heavy, weight) + missing * np.minimum(weight / whole, 1.0)
    share = np.where(free_above > 0.0, free / np.where(free_above > 0.0, free_above, 1.0), 0.0)
    return np.asarray(np.clip(own - 2.0 * level + 2.0 * part + 2.0 * _above(part) * share, *_SCV_RANGE))


def _above(values: FloatArray) -> FloatArray:
    """The values of the classes above, 0 for the first."""
    return np.concatenate([np.zeros_like(values[:1]), values[:-1]], axis=0)


def _openness(load: FloatArray) -> FloatArray:
    """1 / ((1 - load of those above) (1 - load with those above)); without meaning where that load is full."""
    return np.asarray(1.0 / np.maximum((1.0 - _above(load)) * (1.0 - load), 1e-30))
