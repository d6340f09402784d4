"""KV on its way between two pools: sequences that a step finishes together queue for the lanes of a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qmodel.queueing.replica.percentiles import wait_nodes
from qmodel.queueing.replica.work import bands
from qmodel.queueing.servers.erlang import erlang_c
from qmodel.queueing.tandem.delays import DelayNodes, no_delay, slices
from qmodel.queueing.tandem.prefill_pool import PrefillPool
from qmodel.queueing.tandem.stage_parts import Leg
from qmodel.types import KvLink, Law, Overload

__all__ = ["Feed", "KvTransfer", "feed_of", "sending_time", "solve_transfer"]

_SENDING_BANDS = 24
_NOTHING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """How one pool hands sequences to a link.

    Attributes:
        rate_rps: sequences that go this way.
        together: E[X (X - 1)] / E[X] of those that come at once.
        scv: squared coefficient of variation of the time between such moments, of one replica.
        replicas: of the pool.
    """

    rate_rps: float
    together: float = 0.0
    scv: float = 1.0
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KvTransfer:
    """A link under its load.

    Attributes:
        overload: why it cannot carry its load; None where it can.
        utilisation: of its lanes.
        bytes_per_s: moved.
        wait: for a lane.
        delay: from the end of the stage before to the arrival, by class.
        delay_mean_s: the same, mean over all sequences.
    """

    overload: Overload | None
    utilisation: float
    bytes_per_s: float
    wait: DelayNodes = field(default_factory=no_delay)
    delay: Mapping[str, DelayNodes]
    delay_mean_s: float = 0.0


def feed_of(pool: PrefillPool, rate_rps: float, total_rps: float) -> Feed:
    """The feed of a prefill pool of which ``rate_rps`` of ``total_rps`` requests go this way."""
    share = min(rate_rps / total_rps, 1.0)
    together = pool.batch_pairs / max(pool.batch, _NOTHING) * share
    taken = min(pool.batch * share / (1.0 + together / 2.0), 1.0)  # steps that finish one that goes this way
    return Feed(rate_rps=rate_rps, together=together, scv=taken * pool.epoch_scv + 1.0 - taken, replicas=pool.replicas)


def solve_transfer(link: KvLink | None, legs: Sequence[Leg], feeds: Sequence[Feed]) -> KvTransfer:
    """Delay of sequences on a link.

    A queue with batch arrivals: the first of a batch waits as in M/G/1 whose services are whole batches, scaled by
    the variability of the time between batches (Kraemer and Langenbach-Belz without their exponential term); the
    others wait for those before them. Several lanes count as one that is as fast as all, times Erlang's delay
    probability over the utilisation.

    Args:
        link: None: everything is across at once.
        legs: what goes over it, one per class.
        feeds: where it comes from.

    Example:
        >>> from qmodel.queueing.tandem.stage_parts import decode_leg
        >>> from qmodel.types import Law, Lengths, Stream
        >>> lengths = Lengths.independent(Law.constant(1000), Law.constant(11))
        >>> leg = decode_leg(Stream(name="a", rate_rps=0.5, lengths=lengths))
        >>> found = solve_transfer(KvLink(bytes_per_s=1e6, bytes_per_token=1e3), [leg], [Feed(rate_rps=0.5)])
        >>> round(found.delay["a"].mean, 3)  # M/D/1: 1 + 0.5 / (2 * 0.5)
        1.5

    Reference: Whitt, The queueing network analyzer (1983), for superposition; own construction, docs/theory/stages.md.
    """
    if link is None:
        return KvTransfer(overload=None, utilisation=0.0, bytes_per_s=0.0, delay={leg.name: no_delay() for leg in legs})
    rate_rps = sum(leg.rate_rps for leg in legs)
    laws = [leg.lengths.prompt for leg in legs]
    first, second = (
        sum(leg.rate_rps * law.moments[k] for leg, law in zip(legs, laws, strict=True)) / rate_rps for k in (0, 1)
    )
    bytes_per_s = rate_rps * first * link.bytes_per_token
    offered = rate_rps * first * link.s_per_token
    used = offered / link.lanes
    if used >= 1.0:
        most = link.lanes * link.bytes_per_s
        reason = (
            f"{bytes_per_s / 1e9:.4g} GB/s of KV must be moved, the link carries less than {most / 1e9:.4g};"
            f" at least {int(offered) + 1} lanes are needed"
        )
        overload = Overload(kind="link", value=bytes_per_s, limit=most, reason=reason)
        return KvTransfer(overload=overload, utilisation=used, bytes_per_s=bytes_per_s, delay={})
    wait = _wait(link, feeds, offered, first * link.s_per_token, second * link.s_per_token**2)
    delay = {}
    for leg, law in zip(legs, laws, strict=True):
        delay[leg.name] = wait.plus(sending_time(link, law))
    return KvTransfer(
        overload=None,
        utilisation=used,
        bytes_per_s=bytes_per_s,
        wait=wait,
        delay=delay,
        delay_mean_s=sum(leg.rate_rps * delay[leg.name].mean for leg in legs) / rate_rps,
    )


def sending_time(link: KvLink, context: Law) -> DelayNodes:
    """Time on a lane and latency of sequences of some contexts, without any wait for the lane.

    Example:
        >>> sending_time(KvLink(bytes_per_s=1e6, bytes_per_token=1e3), Law.constant(1000)).mean
        1.0
    """
    weight, mean, within = bands(context.values, context.weights, _SENDING_BANDS)
    return DelayNodes(
        weight=weight / weight.sum(),
        mean_s=mean * link.s_per_token + link.latency_s,
        variance=within * link.s_per_token**2,
    )


def _wait(link: KvLink, feeds: Sequence[Feed], offered: float, mean_s: float, square: float) -> DelayNodes:
    """The wait for a lane: for earlier batches, then for those before one in its own."""
    if mean_s <= 0.0 or offered <= 0.0:
        return no_delay()
    lanes, used = link.lanes, offered / link.lanes
    total = sum(feed.rate_rps for feed in feeds)
    together = sum(feed.rate_rps * feed.together for feed in feeds) / total
    scv = sum(feed.rate_rps * feed.scv for feed in feeds) / total
    replicas = sum(feed.replicas for feed in feeds)
    steady = 1.0 / (1.0 + 4.0 * (1.0 - used) ** 2 * (replicas - 1))
    arrival_scv = steady * scv + 1.0 - steady
    batch = 1.0 + together / 2.0
    batch_mean, batch_square = batch * mean_s, batch * (square + together * mean_s**2)
    service_scv = max(batch_square / batch_mean**2 - 1.0, 0.0)
    scale = min((arrival_scv + service_scv) / (1.0 + service_scv), 2.0)
    busy = float(erlang_c(offered, lanes)) / used if lanes > 1 else 1.0
    # used is rate x batch mean / lanes; Pollaczek-Khinchine of batches at a lane as fast as all of them
    earlier_s = used * (batch_square / batch_mean) / lanes / (2.0 * (1.0 - used)) * scale * busy
    p_earlier = min(max(used * busy * min(scale, 1.0), _NOTHING), 1.0)
    share = together / 2.0 / batch  # geometric number of sequences before one in its batch
    p_before = share**lanes
    before_s = mean_s / lanes / (1.0 - share)
    return _sometimes(p_earlier, earlier_s / p_earlier).plus(_sometimes(p_before, before_s))


def _sometimes(probability: float, mean_s: float) -> DelayNodes:
    """An exponential wait with some probability, else none."""
    if probability <= _NOTHING or mean_s <= 0.0:
        return no_delay()
    share, middle, within = wait_nodes(np.array([mean_s]), np.array([1.0]))
    return slices(
        np.concatenate([[1.0 - probability], probability * share]),
        np.concatenate([[0.0], middle[0]]),
        np.concatenate([[0.0], within[0]]),
    )
