"""Why no fleet finishes a batch by its deadline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qmodel.candidates import Candidate
from qmodel.optimize.limit_diagnosis import Diagnosis, beyond, round_up, rounded
from qmodel.queueing import ClosedBatch, closed_batch
from qmodel.queueing.populations.batch_capacity import batch_statistic
from qmodel.types import Limits, RequestClass, Slo

__all__ = ["late_batch", "too_large_batch"]


def late_batch(pools: Sequence[Candidate], item: RequestClass) -> Diagnosis | None:
    """The target that a batch misses with a replica for each of its requests; None where some candidate meets all.

    Args:
        pools: candidates, at least one.
        item: a class that comes as a batch.
    """
    best: tuple[float, Candidate, Slo, ClosedBatch] | None = None
    for one in pools:
        found = _alone(one, item)
        slo = max(item.slos, key=lambda slo: batch_statistic(found, slo) / slo.target_s)
        worst = batch_statistic(found, slo) / slo.target_s
        if worst <= 1.0:
            return None
        if best is None or worst < best[0]:
            best = worst, one, slo, found
    assert best is not None
    worst, one, slo, found = best
    if found.overload is not None:
        return Diagnosis(
            text=f"class '{item.name}' has requests that no allowed layout has the memory for",
            limit=f"classes.{item.name}",
            best=f"{one.label}: {found.overload.reason}",
            change=f"lower classes.{item.name}.max_tokens, or allow layouts with more KV memory",
        )
    key = _key(item, slo)
    return Diagnosis(
        text=f"class '{item.name}' cannot meet {slo.key} <= {slo.target_s:g} on any allowed layout",
        limit=key,
        best=f"{one.label}: {worst * slo.target_s:.3g} s with a replica for each request",
        change=f"raise {key} to {round_up(worst * slo.target_s):g}, or allow a faster GPU type or larger layouts",
    )


def too_large_batch(pools: Sequence[Candidate], item: RequestClass, limits: Limits) -> Diagnosis:
    """A batch that could be done in time, but not within what the limits allow of any one candidate.

    Args:
        pools: candidates, at least one.
        item: a class that comes as a batch.
        limits: of the fleet.
    """
    assert item.batch is not None
    requests = item.batch.requests
    taken: list[tuple[float, float, Candidate]] = []
    for one in pools:
        found = closed_batch(one.replica, requests, item.lengths, one.max_replicas)
        over = max(batch_statistic(found, slo) / slo.target_s for slo in item.slos)
        taken.append((over if np.isfinite(over) else np.inf, one.cost_usd_per_hour, one))
    over, _, best = min(taken, key=lambda found: found[:2])
    key = f"classes.{item.name}.batch.deadline_s"
    late = f"{best.label}: {best.max_replicas} replicas take {over:.3g} times as long as its targets allow"
    cap = next((one for one in limits.caps if one.key == best.limited_by), None)
    if cap is None:
        what = f"class '{item.name}' needs more replicas than a pool may have"
        return Diagnosis(text=what, limit=f"classes.{item.name}.batch.requests", best=late, change=f"raise {key}")
    later_s = round_up(over * item.batch.deadline_s)
    need = limits.used(cap, [best.holding(int(np.ceil(best.max_replicas * over)))])
    return Diagnosis(
        text=f"class '{item.name}' needs more {beyond(cap)}",
        limit=cap.key,
        best=late,
        change=f"raise {cap.key} to about {rounded(cap, need):g}, or {key} to about {later_s:g}",
    )


def _alone(one: Candidate, item: RequestClass) -> ClosedBatch:
    """The batch with a replica for each request, within what a batch may have."""
    assert item.batch is not None
    return closed_batch(one.replica, item.batch.requests, item.lengths, item.batch.requests)


def _key(item: RequestClass, slo: Slo) -> str:
    if slo.metric == "makespan":
        return f"classes.{item.name}.batch.deadline_s"
    return f"classes.{item.name}.slo.{slo.key}"
