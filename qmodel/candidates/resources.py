"""An optimistic share of a replica that a class takes whatever it shares the replica with; feeds the bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qmodel.candidates.pool_kinds import Candidate
from qmodel.candidates.stage_candidates import on_stages
from qmodel.candidates.stage_frontiers import stage_time
from qmodel.problem import Confidence
from qmodel.queueing import least_band
from qmodel.types import FloatArray, Replica, RequestClass

__all__ = ["least_served", "resource_shares", "tpot_limit_s"]

_BATCHES = 200  # tried, 2 % apart or closer
_BETWEEN = 0.999  # the least between two of them is no further below
_PERCENTILE_ABOVE_MEAN = 0.9  # from this level up a TPOT percentile is never below the mean


def resource_shares(candidates: Sequence[Candidate], item: RequestClass, *, within_targets: bool = True) -> FloatArray:
    """Least share of one replica's step time that the whole demand of a class takes, shape (J,).

    A token takes tau(b)/b of a step, least at large batches; classes share the batch, so
    the mean step that this class's TPOT target allows limits it, as does ``max_num_seqs``.
    KV reads and prefill tokens add their own time whatever the batch. Own construction,
    see docs/theory/optimizer.md.

    Args:
        candidates: shape (J,).
        item: the class.
        within_targets: the TPOT target holds in each of these pools; else it does not limit the batch.

    Returns:
        Shares of the time of one replica; infinite where not even one sequence meets the TPOT target.
    """
    if on_stages(candidates):
        # of a token in thought or answer the target says nothing: the other part may be faster
        limit_s = tpot_limit_s(item, candidates[0].confidence) if candidates[0].role == "decode" else np.inf
        tokens_s = [0.0 if one.role == "prefill" else _token_s(one.replica, limit_s) for one in candidates]
        return np.array([stage_time(one, item, token_s) for one, token_s in zip(candidates, tokens_s, strict=True)])
    limits_s = [tpot_limit_s(item, one.confidence) if within_targets else np.inf for one in candidates]
    return np.array([_share(one, item, limit_s) for one, limit_s in zip(candidates, limits_s, strict=True)])


def _share(candidate: Candidate, item: RequestClass, limit_s: float) -> float:
    replica, lengths, step = candidate.replica, item.lengths, candidate.replica.step
    kv_s = step.gamma_s * (lengths.e_pn + lengths.output.moments[1] / 2.0)
    work_s = (lengths.output.mean - 1.0) * _token_s(replica, limit_s) + kv_s
    return least_served(item) * item.rate_rps * (work_s + step.delta_s * lengths.prompt.mean)


def least_served(item: RequestClass) -> float:
    """Share of the requests that must be served: all but those that may leave."""
    return 1.0 - max((slo.target_s for slo in item.slos if slo.metric == "abandoned"), default=0.0)


def tpot_limit_s(item: RequestClass, confidence: Confidence = "nominal") -> float:
    """What the mean TPOT of the class cannot exceed, infinite where no target says so.

    At ``p90`` the mean times its band must stay within the target; no band is narrower than the least one.
    """
    target_s = min(
        (
            slo.target_s
            for slo in item.slos
            if slo.metric == "tpot" and (slo.p is None or slo.p >= _PERCENTILE_ABOVE_MEAN)
        ),
        default=float("inf"),
    )
    return target_s / (1.0 + least_band("tpot")) if confidence == "p90" else target_s


def _token_s(replica: Replica, limit_s: float) -> float:
    """Least mean of tau(b)/b over all laws of the batch b whose mean step is within the limit; infinite: none is."""
    slots, knots = float(replica.max_num_seqs), replica.step.batch
    batch = np.union1d(np.geomspace(1.0, slots, _BATCHES), knots[(knots >= 1.0) & (knots <= slots)])
    tau = replica.step.tau_s(batch, 0.0)
    each = tau / batch
    short, long = tau <= limit_s, tau > limit_s
    if not short.any():
        return float("inf")
    least = float(each[short].min())
    if long.any():
        # the target limits a mean: long steps may take turns with short ones, which pays where tau is concave
        weight = (limit_s - tau[short, None]) / (tau[None, long] - tau[short, None])
        turns = (1.0 - weight) * each[short, None] + weight * each[None, long]
        least = min(least, float(turns.min()))
    return least * _BETWEEN
