"""Batches on replicas of candidates: how late they are, and the least counts that finish them in time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qmodel.candidates.pool_kinds import Candidate
from qmodel.queueing import closed_batch
from qmodel.queueing.populations.batch_capacity import batch_statistic, capacity_of, least_work_s
from qmodel.types import FloatArray, IntArray, RequestClass

__all__ = ["batch_least_counts", "batch_ratios", "least_batch_replicas"]


def batch_ratios(
    candidates: Sequence[Candidate], item: RequestClass, counts: IntArray, loads: FloatArray
) -> FloatArray:
    """Worst prediction over target of parts of a batch that pools have to themselves, shape (C,).

    Args:
        candidates: shape (C,).
        item: a class that comes as a batch.
        counts: replicas, shape (C,).
        loads: share of its requests, shape (C,).
    """
    worst = np.empty(len(candidates))
    for row, (one, count, load) in enumerate(zip(candidates, counts.tolist(), loads.tolist(), strict=True)):
        part = item.part(load)
        assert part.batch is not None
        found = closed_batch(one.replica, part.batch.requests, item.lengths, count)
        worst[row] = max(batch_statistic(found, slo) / slo.target_s for slo in item.slos)
    return worst


def batch_least_counts(candidates: Sequence[Candidate], item: RequestClass) -> IntArray:
    """The least number of replicas of each candidate that finishes a whole batch in time, shape (J,); 0: none does."""
    assert item.batch is not None
    requests = item.batch.requests
    return np.array(
        [capacity_of(item, one.replica).least_replicas(requests, one.max_replicas) for one in candidates], dtype=int
    )


def least_batch_replicas(candidates: Sequence[Candidate], item: RequestClass) -> FloatArray:
    """Replicas that a batch takes at the very least, from its step time alone, shape (J,)."""
    batch = item.batch
    assert batch is not None
    work_s = [least_work_s(one.replica, item.lengths, batch.requests, batch.deadline_p) for one in candidates]
    return np.asarray(work_s, dtype=float) / batch.deadline_s
