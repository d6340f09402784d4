"""Closed-form queueing models: multi-server queues, the batching replica, closed loops and closed batches.

Names resolve on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmodel.queueing.erlang import erlang_b, erlang_c
    from qmodel.queueing.fixed_population import ClosedBatch, ClosedLoop, closed_batch, closed_loop, resident_cap
    from qmodel.queueing.multiserver import Moments, QueueResult, mgc
    from qmodel.queueing.pools import pool, pool_metrics, utilisation
    from qmodel.queueing.predictions import ClassPrediction, PoolPrediction, Prediction
    from qmodel.types import Replica, StepLaw

__all__ = [
    "ClassPrediction",
    "ClosedBatch",
    "ClosedLoop",
    "Moments",
    "PoolPrediction",
    "Prediction",
    "QueueResult",
    "Replica",
    "StepLaw",
    "closed_batch",
    "closed_loop",
    "erlang_b",
    "erlang_c",
    "mgc",
    "pool",
    "pool_metrics",
    "resident_cap",
    "utilisation",
]

_HOME = {
    "ClosedBatch": "qmodel.queueing.fixed_population",
    "ClosedLoop": "qmodel.queueing.fixed_population",
    "Moments": "qmodel.queueing.multiserver",
    "ClassPrediction": "qmodel.queueing.predictions",
    "PoolPrediction": "qmodel.queueing.predictions",
    "Prediction": "qmodel.queueing.predictions",
    "QueueResult": "qmodel.queueing.multiserver",
    "Replica": "qmodel.types",
    "StepLaw": "qmodel.types",
    "closed_batch": "qmodel.queueing.fixed_population",
    "closed_loop": "qmodel.queueing.fixed_population",
    "erlang_b": "qmodel.queueing.erlang",
    "erlang_c": "qmodel.queueing.erlang",
    "mgc": "qmodel.queueing.multiserver",
    "pool": "qmodel.queueing.pools",
    "pool_metrics": "qmodel.queueing.pools",
    "resident_cap": "qmodel.queueing.fixed_population",
    "utilisation": "qmodel.queueing.pools",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
