"""By how much the requests of a pool exceed their targets, in a measure that adds up over pools."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qmodel.queueing import pool_bands, pool_exceedances, pool_metrics
from qmodel.types import FloatArray, IntArray, Replica, RequestClass, Router

__all__ = ["allowances", "slo_excesses"]


def allowances(item: RequestClass) -> FloatArray:
    """What each target of a class allows in the measure of :func:`slo_excesses`, shape (W,).

    Of a percentile the share of requests that may take longer, of a mean 1.

    Example:
        >>> from qmodel.types import Law, Lengths, Slo
        >>> chat = RequestClass(
        ...     name="chat", model="m", rate_rps=1.0, lengths=Lengths.independent(Law.constant(9), Law.constant(9)),
        ...     slos=(Slo(metric="ttft", p=0.95, target_s=1.0), Slo(metric="tpot", p=None, target_s=0.1)),
        ... )
        >>> allowances(chat).round(6).tolist()
        [0.05, 1.0]
    """
    return np.array([1.0 if slo.p is None else 1.0 - slo.p for slo in item.slos])


def slo_excesses(
    replicas: Sequence[Replica],
    classes: Sequence[RequestClass],
    shares: Sequence[float],
    counts: Sequence[int] | IntArray,
    loads: Sequence[float] | FloatArray,
    router: Router,
    *,
    confidence: str = "nominal",
) -> FloatArray:
    """What every case takes of each target beyond what it allows; infinite where unstable.

    Of a percentile p with target T this is P(X > T) - (1 - p), of a mean (E[X] - T) / T. Over all requests of a class
    a target holds where the sum over its pools, weighted by the share of its requests that each serves, is at most 0.
    Own construction.

    Args:
        replicas: one per case, shape (C,), at the confidence in force.
        classes: the classes of the mix.
        shares: share of each class's rate that one unit of load brings.
        counts: replicas of the pool, shape (C,).
        loads: multiple of the shares, shape (C,).
        router: how requests are spread.
        confidence: ``nominal``, or ``p90``: predictions take the upper end of their queueing band.

    Returns:
        Excesses, shape (C, W) for W targets in the order of the classes and of their targets.
    """
    streams = [item.stream(share) for item, share in zip(classes, shares, strict=True)]
    targets = [(item.name, slo) for item in classes for slo in item.slos]
    sizes, factors = np.asarray(counts), np.asarray(loads, dtype=float)
    limits = np.broadcast_to([slo.target_s for _, slo in targets], (len(replicas), len(targets)))
    if confidence == "p90":
        wanted = [(name, slo.metric, slo.p) for name, slo in targets]
        limits = limits / (1.0 + pool_bands(replicas, streams, sizes, factors, wanted))
    found = np.empty(limits.shape)
    levels = [place for place, (_, slo) in enumerate(targets) if slo.p is not None]
    means = [place for place, (_, slo) in enumerate(targets) if slo.p is None]
    if levels:
        asked = [(targets[place][0], targets[place][1].metric) for place in levels]
        found[:, levels] = pool_exceedances(replicas, streams, sizes, factors, router, asked, limits[:, levels])
    if means:
        of_means = [(targets[place][0], targets[place][1].metric, None) for place in means]
        found[:, means] = pool_metrics(replicas, streams, sizes, factors, router, of_means) / limits[:, means]
    return np.asarray(found - np.concatenate([allowances(item) for item in classes]))
