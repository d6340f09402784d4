"""An optimistic share of a replica that a class takes whatever it shares the replica with; feeds the bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qmodel.candidates.enumeration import Candidate
from qmodel.types import FloatArray, Replica, RequestClass

__all__ = ["resource_shares"]

_PERCENTILE_ABOVE_MEAN = 0.9  # from this level up a TPOT percentile is never below the mean


def resource_shares(candidates: Sequence[Candidate], item: RequestClass) -> FloatArray:
    """Least share of one replica's step time that the whole demand of a class takes, shape (J,).

    A token takes tau(b)/b of a step, least at the largest batch; the batch is at most
    ``max_num_seqs`` and, since classes share the batch, at most the one at which this
    class's mean TPOT target still holds. KV reads and prefill tokens add their own time
    whatever the batch. Own construction, see docs/theory/optimizer.md.

    Args:
        candidates: shape (J,).
        item: the class.
    """
    return np.array([_share(candidate.replica, item) for candidate in candidates])


def _share(replica: Replica, item: RequestClass) -> float:
    lengths, step = item.lengths, replica.step
    batch = _largest_batch(replica, item)
    if batch < 1.0:
        return float("inf")
    per_token_s = float(step.tau_s(batch, 0.0)) / batch
    kv_s = step.gamma_s * (lengths.e_pn + lengths.output.moments[1] / 2.0)
    work_s = (lengths.output.mean - 1.0) * per_token_s + kv_s + step.delta_s * lengths.prompt.mean
    return item.rate_rps * work_s


def _largest_batch(replica: Replica, item: RequestClass) -> float:
    limit_s = min(
        (
            slo.target_s
            for slo in item.slos
            if slo.metric == "tpot" and (slo.p is None or slo.p >= _PERCENTILE_ABOVE_MEAN)
        ),
        default=float("inf"),
    )
    batch = np.geomspace(1.0, float(replica.max_num_seqs), 200)
    tau = replica.step.tau_s(batch, 0.0)
    within = batch[tau <= limit_s]
    if within.size == 0:
        return 0.0
    index = min(within.size, batch.size - 1)  # one knot further: the crossing lies between two knots
    return float(batch[index])
