"""Replicas that serve one request at a time: plain servers whose service time follows from a request's lengths."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from qmodel.queueing.replica.chain import SURELY_STABLE, Occupancy
from qmodel.queueing.replica.output_ranges import alone_s
from qmodel.queueing.replica.work import Work, bands
from qmodel.queueing.servers.multiserver import mgc
from qmodel.queueing.servers.service_time import Moments
from qmodel.types import FloatArray, Replica, Router

__all__ = ["alone_at_a_time", "service_moments"]

_PROMPT_BANDS, _OUTPUT_BANDS = 24, 64


@lru_cache(maxsize=256)
def service_moments(replica: Replica, work: Work) -> Moments:
    """Service time of a request that has the replica for itself, over all classes.

    Args:
        replica: engine instance.
        work: requests of all classes; prompt and output are independent within a class.
    """
    powers = np.zeros(3)
    for member in work.classes:
        prompt = bands(member.lengths.prompt.values, member.lengths.prompt.weights, _PROMPT_BANDS)
        output = bands(member.lengths.output.values, member.lengths.output.weights, _OUTPUT_BANDS)
        time_s = alone_s(replica, np.maximum(prompt[1], 1.0)[:, None], np.maximum(output[1], 1.0))
        powers += member.share * np.array([prompt[0] @ time_s**k @ output[0] for k in (1, 2, 3)])
    first, second, third = powers.tolist()
    return Moments(mean_s=first, scv=max(second / first**2 - 1.0, 0.0), third=third)


def alone_at_a_time(
    seen: Occupancy, replica: Replica, work: Work, rate_rps: FloatArray, replicas: FloatArray, router: Router
) -> Occupancy:
    """The occupancy of replicas with one slot: nobody interferes, and the wait is that of a queue of plain servers.

    A random router makes M/G/1 queues. In turn, arrivals have gaps of R stages. A shortest-queue router is close to
    one queue for all servers, M/G/c, but who waits has chosen a server: in light traffic it waits for that one, not
    for the first of all.

    Args:
        seen: from the chain, C cases.
        replica: engine instance with one slot.
        work: requests of all classes.
        rate_rps: arrivals of the whole pool, shape (C,).
        replicas: replicas of the pool, shape (C,).
        router: how requests are spread.

    Reference: Pollaczek-Khinchine; Kraemer and Langenbach-Belz (1976) for gaps of R stages; the correction for a
        shortest queue is own construction, see docs/theory/replica.md.
    """
    service = service_moments(replica, work)
    mean_s, scv, nu = (float(np.asarray(item)) for item in (service.mean_s, service.scv, service.nu))
    rho = np.minimum(rate_rps * mean_s / replicas, SURELY_STABLE)
    servers = replicas if router == "jsq" else np.ones_like(replicas)
    queue = mgc(rho * servers / mean_s, service, servers)
    p_wait, wait_s, shape = (np.asarray(item) for item in (queue.p_wait, queue.mean_delayed_s, queue.delayed_scv))
    if router == "jsq":
        first_free = mgc(1e-6 * servers / mean_s, service, servers).mean_delayed_s
        light = np.where(servers > 1.0, 1.0 - rho, 0.0)
        wait_s = wait_s + light * np.maximum(mean_s * (1.0 + scv) / 2.0 - first_free, 0.0)
        shape = (1.0 - light) * shape + light * max(nu - 1.0, 0.3)
    elif router == "round_robin":
        regular = 1.0 / replicas  # squared coefficient of variation of the gaps
        p_wait, wait_s = _staged(rho, regular, scv, p_wait, wait_s * p_wait)
    return replace(
        seen,
        mean_batch=rho,
        idle=np.ones_like(rho),
        residence_s=np.full_like(rho, mean_s),
        p_wait=p_wait,
        wait_mean_s=wait_s,
        wait_scv=shape,
        tau_mean_s=np.full_like(rho, float(replica.step.tau_s(1.0, work.context))),
        tau_variance=np.zeros_like(rho),
    )


def _staged(
    rho: FloatArray, gaps: FloatArray, scv: float, p_wait: FloatArray, wait_s: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Probability of waiting and mean wait of those that wait, GI/G/1 with gaps of scv at most 1, from M/G/1."""
    damp = np.exp(-2.0 * (1.0 - rho) * (1.0 - gaps) ** 2 / (3.0 * rho * np.maximum(gaps + scv, 1e-12)))
    mean = wait_s * (gaps + scv) / (1.0 + scv) * np.where(gaps < 1.0, damp, 1.0)
    ratio = (1.0 + gaps + rho * scv) / (1.0 + rho * (scv - 1.0) + rho**2 * (4.0 * gaps + scv))
    delayed = np.clip(p_wait + (gaps - 1.0) * rho * (1.0 - rho) * ratio, 1e-12, 1.0)
    return delayed, mean / delayed
