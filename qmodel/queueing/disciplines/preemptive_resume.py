"""Waits and interruptions of classes that take servers from less important ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from qmodel.queueing.disciplines.priority_waits import ClassLoads, non_preemptive_waits
from qmodel.queueing.servers.erlang import delay_probability
from qmodel.types.laws import FloatArray

__all__ = ["PreemptiveWaits", "preemptive_waits"]

_SCV_RANGE = (0.3, 20.0)
_NEVER = 1e-100  # probability of waiting that counts as none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreemptiveWaits:
    """Time in the system that is not service, of K classes.

    Attributes:
        p_wait: probability that service does not begin at once, shape (K, ...).
        p_delayed: probability that it does not begin at once or is interrupted; rough, shape (K, ...).
        mean_wait_s: wait before service and interruptions, shape (K, ...).
        delayed_scv: squared coefficient of variation over those that wait or are interrupted, shape (K, ...).
    """

    p_wait: FloatArray
    p_delayed: FloatArray
    mean_wait_s: FloatArray
    delayed_scv: FloatArray


def preemptive_waits(classes: ClassLoads, first_free: Callable[[int], FloatArray]) -> PreemptiveWaits:
    """Waits where an arrival takes the server of the least important, latest job, which resumes later where it stopped.

    A class does not see those below: it is the last of the classes 1..k, waits for service like one that is not
    preempted, and is interrupted by those above. Exact means for one server and for exponential service that is the
    same for all classes; otherwise own construction, see docs/theory/priority.md.

    Args:
        classes: loads, most important first.
        first_free: r0 of the mixture of the classes up to an index.
    """
    p_wait, p_delayed, mean, scv = [], [], [], []
    for index in range(classes.rate_rps.shape[0]):
        kept = slice(index + 1)
        part = replace(
            classes,
            rate_rps=classes.rate_rps[kept],
            first=classes.first[kept],
            second=classes.second[kept],
            third=classes.third[kept],
            first_free=first_free(index),
        )
        start = non_preemptive_waits(part)
        count, stopped_s, stopped_square = _interruptions(part)
        begins_s, begins_scv = start.mean_wait_s[-1], start.delayed_scv[-1]
        late = start.p_wait
        both = begins_s + stopped_s
        any_wait = np.minimum(late + (1.0 - late) * count / (1.0 + count), 1.0)
        seen = (late > _NEVER) & (both > 0.0)
        chance = np.where(seen, late, 1.0)
        begin_square = np.where(seen, begins_s**2 * (1.0 + begins_scv) / chance, 0.0)  # of all, at once included
        square = begin_square + 2.0 * begins_s * stopped_s + stopped_square
        spread = np.where(seen, square * any_wait / np.where(seen, both, 1.0) ** 2 - 1.0, 1.0)
        p_wait.append(late)
        p_delayed.append(any_wait)
        mean.append(both)
        scv.append(np.clip(spread, *_SCV_RANGE))
    return PreemptiveWaits(
        p_wait=np.stack(p_wait), p_delayed=np.stack(p_delayed), mean_wait_s=np.stack(mean), delayed_scv=np.stack(scv)
    )


def _interruptions(part: ClassLoads) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean number of interruptions of a job of the last class, their mean total time and its second moment.

    Of exponential services that are all alike, the total time in system follows by difference from the multi-server
    queues of the classes 1..k and 1..k-1; less wait and service it is what interruptions take per unit of service.
    """
    servers = part.servers
    loads = part.rate_rps * part.first / servers
    load = np.minimum(loads.sum(axis=0), 1.0)
    above = np.minimum(loads[:-1].sum(axis=0), 1.0)
    own = np.maximum(load - above, 1e-9)
    free, free_above = 1.0 - load, 1.0 - above
    open_ = (free > 0.0) & (above > 0.0)
    safe, safe_above = np.where(free > 0.0, load, 0.5), np.where(free_above > 0.0, above, 0.5)
    busy, busy_above = delay_probability(safe * servers, servers), delay_probability(safe_above * servers, servers)
    queue, queue_above = (
        safe * busy / (servers * (1.0 - safe)),
        safe_above * busy_above / (servers * (1.0 - safe_above)),
    )
    share = (queue - queue_above) / own - busy / (servers * (1.0 - safe_above) * (1.0 - safe))
    share = np.where(open_, np.maximum(share, 0.0), 0.0)

    rate_above = part.rate_rps[:-1].sum(axis=0)
    divisor = np.where(rate_above > 0.0, rate_above, 1.0)
    first = (part.rate_rps[:-1] * part.first[:-1]).sum(axis=0) / divisor
    second = (part.rate_rps[:-1] * part.second[:-1]).sum(axis=0) / divisor
    total_s = share * part.first[-1]
    gap_s = np.where(first > 0.0, first / (servers * (1.0 - safe_above)), 1.0)  # one interruption: a busy period
    count = total_s / gap_s
    square = share**2 * part.second[-1] + count * second / (servers**2 * (1.0 - safe_above) ** 3)
    return count, total_s, square
