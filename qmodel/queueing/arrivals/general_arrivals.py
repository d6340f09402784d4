"""G/G/c: waiting with arrivals that are burstier or smoother than Poisson, and general service.

The probability of waiting is Erlang's for c/z servers, z the peakedness for the service time, corrected for what
arrivals in a burst see. The wait of those that wait follows the burst at the time scale of the queue itself, how
fast it empties, which is far shorter than a service time where servers are many. See docs/theory/bursty.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from qmodel.queueing.arrivals.peakedness import burst_peakedness, residence_weight
from qmodel.queueing.servers.erlang import delay_probability
from qmodel.queueing.servers.multiserver import Moments, QueueResult, mgc
from qmodel.queueing.servers.service_time import Service, ServiceLaw
from qmodel.types.arrivals import Burst
from qmodel.types.laws import FloatArray
from qmodel.workload.arrival_processes import GammaRenewal, Regular

__all__ = ["ggc"]

# Fitted to simulated queues, 1 to 64 servers, utilisation 0.5 to 0.95; see docs/theory/bursty.md.
_SEEN_POWER = 0.25
_ONE_SIDED = 4.0
_SMOOTH_SEEN, _SMOOTH_DELAYED = 0.33, 0.65

_LEAST_PEAKEDNESS, _LEAST_SEEN, _LEAST_DELAYED = 0.05, 0.5, 1e-6
_BISECTIONS = 50
# Of the mean wait and of percentiles, that nine in ten simulated queues stay within, see docs/theory/bursty.md;
# wider where it is not known whether a slow component pauses the arrivals or swings both ways.
_BANDS = {False: (0.12, 0.15), True: (0.15, 0.20)}


def ggc(
    rate_rps: npt.ArrayLike,
    service: Moments | ServiceLaw,
    servers: npt.ArrayLike,
    *,
    burst: Burst | None = None,
    peakedness: npt.ArrayLike | None = None,
    arrival_scv: npt.ArrayLike | None = None,
) -> QueueResult:
    """Waiting in a first-come, first-served queue with general arrivals, general service and c servers.

    Without any of ``burst``, ``peakedness`` and ``arrival_scv`` it is :func:`qmodel.queueing.mgc`. Give one of them:

    Args:
        rate_rps: arrivals per second, at least 0; broadcasts.
        service: a law of atoms in seconds, or :class:`Moments`, whose fields broadcast.
        servers: number of servers, 1 to a million; broadcasts.
        burst: of the arrivals, at these rates.
        peakedness: variance over mean of the number in service with unlimited servers, above 0, of arrivals whose
            bursts are much shorter than a service time; broadcasts.
        arrival_scv: squared coefficient of variation of independent gamma gaps, at least 0 (evenly spaced), at most
            10,000; broadcasts.

    Returns:
        :class:`QueueResult` in the common shape. P(wait) is that of arrivals, not that of a random moment.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> round(float(ggc(8.0, Moments(mean_s=1.0, scv=1.0), 10, arrival_scv=4.0).mean_wait_s), 2)  # Poisson: 0.20
        0.78

    Reference: own construction on Hayward's equivalent (Fredericks, BSTJ 59, 1980) and the root of GI/M/c (Takacs,
        Introduction to the Theory of Queues, 1962); see docs/theory/bursty.md.
    """
    given = [item is not None for item in (burst, peakedness, arrival_scv)]
    if sum(given) > 1:
        raise ValueError("give one of burst, peakedness and arrival_scv: each describes the same arrivals")
    plain = mgc(rate_rps, service, servers)
    if not any(given):
        return plain
    shape = Service.of(service)
    if burst is not None:
        parts = _of_burst(burst, service)
    elif peakedness is not None:
        parts = _of_peakedness(np.asarray(peakedness, dtype=float), service)
    else:
        parts = _of_scv(np.asarray(arrival_scv, dtype=float), np.asarray(rate_rps, dtype=float), service)
    return _bursty(plain, parts, np.asarray(rate_rps, dtype=float), shape, np.asarray(servers, dtype=float))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """Arrivals of many queues; components on the last axis, which ``peakedness`` lacks; all broadcast.

    Attributes:
        skew: skewness of the rate by component, nan where it is not known.
        peakedness: for the service time.
    """

    excess: FloatArray
    decay_per_s: FloatArray
    skew: FloatArray
    peakedness: FloatArray


def _of_burst(burst: Burst, service: Moments | ServiceLaw) -> _Parts:
    skew = burst.skew or (None,) * len(burst.excess)
    return _Parts(
        excess=np.asarray(burst.excess, dtype=float),
        decay_per_s=np.asarray(burst.decay_per_s, dtype=float),
        skew=np.array([np.nan if value is None else value for value in skew]),
        peakedness=burst_peakedness(burst, service),
    )


def _of_peakedness(peakedness: FloatArray, service: Moments | ServiceLaw) -> _Parts:
    if not np.all(np.isfinite(peakedness) & (peakedness > 0.0)):
        raise ValueError(f"peakedness must be finite and above 0 (got {peakedness}); it is 1 for Poisson arrivals")
    excess = (peakedness - 1.0) / residence_weight(np.inf, service)
    return _Parts(
        excess=excess[..., None],
        decay_per_s=np.full(1, np.inf),
        skew=np.full(1, np.nan),
        peakedness=np.broadcast_to(peakedness, excess.shape),
    )


def _of_scv(arrival_scv: FloatArray, rate_rps: FloatArray, service: Moments | ServiceLaw) -> _Parts:
    if not np.all((arrival_scv >= 0.0) & (arrival_scv <= 1e4)):
        raise ValueError(f"arrival_scv must be from 0 to 10,000 (got {arrival_scv}); it is 1 for Poisson arrivals")
    kinds, row = np.unique(arrival_scv, return_inverse=True)
    bursts = [
        (GammaRenewal(scv=float(scv)) if scv > 0.0 else Regular()).burst(1.0) or Burst(excess=(), decay_per_s=())
        for scv in kinds
    ]
    most = max(max(len(item.excess) for item in bursts), 1)
    excess, decay = np.zeros((kinds.size, most)), np.ones((kinds.size, most))
    for index, item in enumerate(bursts):
        excess[index, : len(item.excess)] = item.excess
        decay[index, : len(item.excess)] = item.decay_per_s
    excess, decay = (table[row.reshape(arrival_scv.shape)] for table in (excess, decay))
    decay = decay * np.where(rate_rps > 0.0, rate_rps, 1.0)[..., None]
    weight = residence_weight(decay, service)
    return _Parts(
        excess=excess,
        decay_per_s=decay,
        skew=np.full(most, np.nan),
        peakedness=np.asarray(1.0 + (weight * excess).sum(axis=-1)),
    )


def _bursty(
    plain: QueueResult, parts: _Parts, rate_rps: FloatArray, shape: Service, servers: FloatArray
) -> QueueResult:
    """The result for Poisson arrivals, moved to those of ``parts``."""
    rho, z, rate, c, mean_s, scv = np.broadcast_arrays(
        plain.utilisation,
        np.maximum(parts.peakedness, _LEAST_PEAKEDNESS),
        np.where(rate_rps > 0.0, rate_rps, 1.0),
        servers,
        shape.mean_s,
        shape.scv,
    )
    busy, stable = (rho > 0.0) & (rho < 1.0), np.broadcast_to(plain.stable, rho.shape)
    load = np.where(busy, rho, 0.5)  # any load: these entries are overwritten below
    unit_s = mean_s / (c * (1.0 - load))
    at_queue = _peakedness_of_queue(parts, rate, c, load, mean_s)
    seen = (1.0 - (1.0 - load) / at_queue) / load  # what arrivals of a burst see of it; 1 for Poisson
    regular = _regularity(parts.excess.sum(axis=-1), scv, load)

    p_wait = _delay_probability(plain.p_wait, load, c, z, seen) * np.exp(-_SMOOTH_SEEN * regular)
    p_wait = np.where(busy, np.minimum(p_wait, 1.0), plain.p_wait)
    poisson = np.where(busy, plain.mean_delayed_s, unit_s) / unit_s
    delayed = _delayed(poisson, at_queue, seen) * np.exp(-_SMOOTH_DELAYED * regular)
    delayed = np.maximum(delayed, _LEAST_DELAYED)
    kept = np.minimum(poisson / delayed, 1.0)  # of what makes the wait of those that wait more than exponential

    unknown = np.any(np.isnan(parts.skew) & (parts.excess > 0.0) & np.isfinite(parts.decay_per_s))
    band, percentile_band = _BANDS[bool(unknown)]
    third, percentiles = plain.delayed_third, plain.percentile_band
    return replace(
        plain,
        utilisation=rho[()],
        stable=stable[()],
        p_wait=p_wait[()],
        mean_wait_s=np.where(busy, p_wait * delayed * unit_s, plain.mean_wait_s)[()],
        mean_delayed_s=np.where(busy, delayed * unit_s, plain.mean_delayed_s)[()],
        delayed_scv=_towards(1.0, plain.delayed_scv, kept)[()],
        delayed_third=None if third is None else _towards(6.0, third, kept)[()],
        band=np.maximum(np.broadcast_to(plain.band, rho.shape), band)[()],
        percentile_band=np.maximum(0.0 if percentiles is None else percentiles, np.full(rho.shape, percentile_band))[
            ()
        ],
    )


def _delay_probability(
    poisson: FloatArray, load: FloatArray, c: FloatArray, z: FloatArray, seen: FloatArray
) -> FloatArray:
    """Erlang C of c/z servers, with what service does to it at Poisson arrivals, and what arrivals of a burst see."""
    erlang = delay_probability(load * c, c)
    of_service = np.where(erlang > 0.0, poisson / np.where(erlang > 0.0, erlang, 1.0), 1.0)
    many = delay_probability(load * c / z, c / z) * of_service * seen ** (c**-_SEEN_POWER)
    return np.asarray(np.where(c <= 1.0, load * seen, many))


def _delayed(poisson: FloatArray, at_queue: FloatArray, seen: FloatArray) -> FloatArray:
    """Conditional wait in units of M/M/c: that of exponential service, and what service adds at Poisson arrivals.

    With batches of Poisson arrivals at one server, and there at any service, the product with P(wait) is exact.
    """
    both_smooth = (poisson < 1.0) & (seen < 1.0)  # the part of service is not larger then
    of_service = (poisson - 1.0) / np.where(both_smooth, 1.0, np.maximum(seen, _LEAST_SEEN))
    return np.asarray(np.maximum(at_queue + of_service, 0.02))


def _towards(exponential: float, moment: FloatArray, kept: FloatArray) -> FloatArray:
    """A moment above that of an exponential law, with a share of the distance; one below stays."""
    beyond = np.asarray(moment) - exponential
    return np.asarray(exponential + np.where(beyond > 0.0, beyond * kept, beyond))


def _peakedness_of_queue(
    parts: _Parts, rate: FloatArray, c: FloatArray, load: FloatArray, mean_s: FloatArray
) -> FloatArray:
    """z_q with x z_q(s) = 1 - rho: peakedness for exponential residence of rate s, the speed at which a queue empties.

    With renewal arrivals and exponential service s = c x / E[S]; then 1 - x is exactly the root of GI/M/c, and
    z_q / (1 - rho) the conditional wait in mean service times per server. A rate that swings both ways keeps a queue
    going for longer; there s is 1 - rho times that, the speed at which a queue forgets.
    """
    excess, decay = parts.excess, parts.decay_per_s
    slower = (1.0 - load)[..., None] ** (1.0 - _one_sided(parts, rate))

    def peakedness(x: FloatArray) -> FloatArray:
        speed = slower * (c * x / mean_s)[..., None]
        return np.asarray(1.0 + (0.5 * excess / (1.0 + speed / decay)).sum(axis=-1))

    low = np.log((1.0 - load) / (1.0 + 0.5 * np.maximum(excess, 0.0).sum(axis=-1)))
    high = np.zeros_like(low)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        x = np.exp(middle)
        above = x * peakedness(x) > 1.0 - load
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.maximum(peakedness(np.exp(0.5 * (low + high))), 1.0 - load)


def _one_sided(parts: _Parts, rate: FloatArray) -> FloatArray:
    """1 where a component is Poisson arrivals with pauses, towards 0 where its rate swings both ways.

    A two-state rate of relative variance r has a skewness of at least (r - 1) / sqrt(r), that of pauses.
    """
    lasting = np.isfinite(parts.decay_per_s) & (parts.excess > 0.0)
    decay = np.where(lasting, parts.decay_per_s, 1.0)
    variance = np.where(lasting, parts.excess * decay / (2.0 * rate[..., None]), 1.0)
    root = np.sqrt(variance)
    above = np.maximum(parts.skew - (variance - 1.0) / root, 0.0)
    weight = np.where(np.isnan(parts.skew), root / (1.0 + root), 1.0 / (1.0 + _ONE_SIDED * above**2))
    return np.asarray(np.where(lasting, weight, 1.0))


def _regularity(excess: FloatArray, scv: FloatArray, load: FloatArray) -> FloatArray:
    """How much less than additive the variability is where arrivals and service are both smoother than Poisson.

    Reference: the exponent of Kraemer and Langenbach-Belz, ITC 8, 1976, scaled to vanish for exponential service.
    """
    arrivals = np.clip(1.0 + excess, 0.0, 1.0)
    service = np.clip(scv, 0.0, 1.0)
    exponent = (1.0 - load) * (1.0 - arrivals) ** 2 / (load * np.maximum(arrivals + service, 1e-9))
    return np.asarray(2.0 / 3.0 * exponent * (1.0 - service))
