"""Pools with Poisson arrivals, split at random or to the shortest queue: one replica or a stack of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qmodel.queueing.replica.chain import Occupancy, occupancy
from qmodel.queueing.replica.kv_limited import LimitStack, MemoryLimit
from qmodel.queueing.replica.prefill_pauses import more_waiting, slots_reached, spread_ratio
from qmodel.queueing.replica.shortest_queue import evenness
from qmodel.queueing.replica.solved_pools import SolvedPools
from qmodel.queueing.replica.stacks import ReplicaStack, WorkStack
from qmodel.queueing.replica.token_times import pace
from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, Replica, Router

__all__ = ["evenness_of", "solve_plain", "started_at_a_step"]


def solve_plain(
    replica: Replica | ReplicaStack,
    work: Work | WorkStack,
    limit: MemoryLimit | LimitStack | None,
    rate_rps: FloatArray,
    counts: FloatArray,
    router: Router,
) -> SolvedPools:
    """Solve C stable cases without priorities.

    Args:
        replica: with more than one slot, or a stack of C of them.
        work: requests of all classes.
        limit: memory limit, None without.
        rate_rps: arrivals of the whole pool, shape (C,).
        counts: replicas of the pool, shape (C,).
        router: ``random`` or ``jsq``; with one replica each any other is the same.
    """
    seen = occupancy(replica, work, limit, rate_rps, counts, router)
    each, even = rate_rps / counts, evenness_of(counts, router)
    spread = spread_ratio(work, replica.step.delta_s * work.lengths.prompt.mean * each * (1.0 - even))
    spread = 1.0 + (spread - 1.0) * (1.0 if limit is None else slots_reached(limit, replica.max_num_seqs))
    p_wait, wait_s = more_waiting(seen, spread, replica.max_num_seqs * (counts if router == "jsq" else 1.0))
    seen = replace(seen, p_wait=p_wait, wait_mean_s=_to_next_step_s(wait_s, seen.tau_mean_s / 2.0))
    return SolvedPools(
        replica=replica,
        work=work,
        seen=seen,
        run=pace(replica, work, seen, each, even, spread),
        rate_rps=each,
        evenness=even,
        beside=counts if router == "jsq" else None,
        company=None,
        bursts=None,
        ranks=None,
    )


def evenness_of(counts: FloatArray, router: Router) -> FloatArray:
    """How far a router keeps requests from a replica in a long step, 0 to 1, shape (C,)."""
    return evenness(counts) if router == "jsq" else np.zeros(counts.shape)


def started_at_a_step(seen: Occupancy, run_in_s: FloatArray) -> Occupancy:
    """The occupancy whose waits end ``run_in_s`` sooner: who waited starts with the step that follows, without a
    residual step."""
    return replace(seen, wait_mean_s=_to_next_step_s(seen.wait_mean_s, run_in_s))


def _to_next_step_s(wait_s: FloatArray, run_in_s: FloatArray) -> FloatArray:
    return np.maximum(wait_s - run_in_s, wait_s / 4.0)
