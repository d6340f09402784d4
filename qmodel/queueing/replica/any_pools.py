"""The prediction of a pool, whether its requests wait as long as it takes or leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qmodel.queueing.replica.case_bands import ABANDONED
from qmodel.queueing.replica.patience import impatient_pool
from qmodel.queueing.replica.pool_cases import patience_of
from qmodel.queueing.replica.pools import pool
from qmodel.queueing.replica.predictions import Impatience, PoolPrediction, Prediction
from qmodel.types import Replica, RequestClass, Router, Stream

__all__ = ["predict_pool"]


def predict_pool(
    replica: Replica, classes: Sequence[Stream | RequestClass], replicas: int, router: Router = "random"
) -> PoolPrediction:
    """Predict a pool whose classes wait as long as it takes, or all have the same patience.

    Args:
        replica: engine instance that the pool is made of.
        classes: streams with the rates that the whole pool receives, requests/s; first attempts only.
        replicas: number of replicas, at least 1.
        router: as for :func:`pool`; with patience ``random`` or ``jsq``.

    Returns:
        As :func:`pool`; with patience load alone is no overload, ``utilisation`` counts every attempt and may exceed 1,
        and ``impatience`` says what leaves.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.types import Law, Lengths, Patience, StepLaw
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0), max_num_seqs=10)
        >>> lengths = Lengths.independent(Law.constant(10), Law.constant(100))
        >>> chat = Stream(name="chat", rate_rps=15.0, lengths=lengths, patience=Patience(patience_s=2.0))
        >>> found = predict_pool(engine, [chat], 1)  # 10 a second can be served
        >>> found.stable, round(found.impatience.goodput_rps, 1), round(found["chat"].metric("abandoned").mean, 2)
        (True, 10.0, 0.33)
    """
    patience = patience_of(classes)
    if patience is None:
        return pool(replica, classes, replicas, router)
    found = impatient_pool(
        replica,
        classes,
        replicas,
        patience_s=patience.patience_s,
        retries=patience.retries,
        backoff_s=patience.backoff_s,
        router=router,
    )
    if found.overload is not None:
        return PoolPrediction(
            stable=False,
            overload=found.overload,
            utilisation=found.utilisation,
            kv_fill=None,
            mean_batch=None,
            p_wait=None,
            classes={},
        )
    lost = Prediction(mean=found.abandoned, error=ABANDONED)
    return PoolPrediction(
        stable=True,
        overload=None,
        utilisation=found.utilisation,
        kv_fill=found.kv_fill,
        mean_batch=found.mean_batch,
        p_wait=found.p_wait,
        classes={name: replace(item, abandoned=lost) for name, item in found.classes.items()},
        impatience=Impatience(
            abandoned=found.abandoned,
            attempts=found.attempts,
            attempt_rps=found.attempt_rps,
            goodput_rps=found.attempt_rps * (1.0 - found.leaving),
            lost_mean_s=found.lost_mean_s,
        ),
    )
