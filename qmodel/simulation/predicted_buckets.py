"""What the closed forms say about the requests of a class whose outputs lie in a range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.evaluation import PoolCase
from qmodel.queueing import ClassPrediction, PoolPrediction, predict_pool
from qmodel.simulation.pool_runs import Demand

__all__ = ["PredictedBucket", "predicted_bucket", "predicted_pools"]

_BISECTIONS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedBucket:
    """One range of output lengths, over all pools that serve the class."""

    ttft_mean_s: float
    tpot_mean_s: float
    completion_mean_s: float
    completion_p95_s: float
    slowdown_mean: float


def predicted_pools(demand: Demand, cases: Mapping[str, PoolCase]) -> dict[str, PoolPrediction]:
    """Every pool that serves something, at the confidence in force.

    Args:
        demand: what comes.
        cases: pools by name.
    """
    found = {}
    for name, case in cases.items():
        classes, shares = demand.on(name), demand.shares(name)
        streams = [item.stream(shares[cls]) for cls, item in classes.items() if item.batch is None]
        if streams:
            found[name] = predict_pool(case.replica, streams, case.serving, case.router)
    return found


def predicted_bucket(
    cls: str, shares: Mapping[str, float], pools: Mapping[str, PoolPrediction], above_tokens: float, up_to_tokens: float
) -> PredictedBucket | None:
    """The mixture over the pools of a class; None where one has no numbers or no output lies in the range.

    Args:
        cls: class name.
        shares: of the class's requests, by pool.
        pools: their predictions.
        above_tokens, up_to_tokens: range of outputs, the upper end included.
    """
    if not all(name in pools and pools[name].stable for name in shares):  # pools in a row have no ranges yet
        return None
    try:
        parts = [pools[name][cls].bucket(above_tokens, up_to_tokens) for name in shares]
    except ValueError:  # a recording has outputs where its law, a summary, has none
        return None
    weight = np.array(list(shares.values())) / sum(shares.values())

    def mean(values: Sequence[float]) -> float:
        return float(weight @ np.asarray(values))

    return PredictedBucket(
        ttft_mean_s=mean([part.ttft.mean for part in parts]),
        tpot_mean_s=mean([part.tpot.mean for part in parts]),
        completion_mean_s=mean([part.completion.mean for part in parts]),
        completion_p95_s=_quantile(parts, weight.tolist(), 0.95),
        slowdown_mean=mean([part.slowdown_mean for part in parts]),
    )


def _quantile(parts: Sequence[ClassPrediction], weight: Sequence[float], p: float) -> float:
    """Level of the mixture of completion times, by bisection."""
    each = [part.completion.quantile(p) for part in parts]
    low, high = min(each), max(each)
    for _ in range(_BISECTIONS if high > low else 0):
        middle = np.array([(low + high) / 2.0])
        level = sum(
            share * float(part.completion.share_within(middle)[0]) for part, share in zip(parts, weight, strict=True)
        )
        low, high = (float(middle[0]), high) if level < p else (low, float(middle[0]))
    return (low + high) / 2.0
