"""Closed-form queueing models: multi-server queues, the batching replica, closed loops and closed batches.

Names resolve on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmodel.queueing.batch_company import SharedBatch, batch_with_online
    from qmodel.queueing.closed_batches import ClosedBatch, closed_batch
    from qmodel.queueing.erlang import erlang_b, erlang_c
    from qmodel.queueing.fixed_population import ClosedLoop, closed_loop, resident_cap
    from qmodel.queueing.general_arrivals import ggc
    from qmodel.queueing.measured_arrivals import measured_burst
    from qmodel.queueing.multiserver import Moments, QueueResult, mgc
    from qmodel.queueing.offered_load import modified_offered_load
    from qmodel.queueing.patience import ImpatientPool, impatient_pool
    from qmodel.queueing.peakedness import burst_peakedness
    from qmodel.queueing.phase_type import PhaseType
    from qmodel.queueing.pools import pool, pool_metrics, utilisation
    from qmodel.queueing.predictions import ClassPrediction, PoolPrediction, Prediction
    from qmodel.queueing.priority_classes import PriorityResult, priority
    from qmodel.queueing.recorded_windows import RecordedDemand, recorded_demand
    from qmodel.queueing.reserved_share import ReservedResult, reserved
    from qmodel.queueing.size_order import ShortestFirst, shortest_first
    from qmodel.queueing.stages_row import AnswerStage, DecodeStage, PrefillStage, StagesPrediction, stages
    from qmodel.queueing.time_varying_queue import TimeVaryingResult, time_varying
    from qmodel.types import Replica, StepLaw

__all__ = [
    "AnswerStage",
    "ClassPrediction",
    "ClosedBatch",
    "ClosedLoop",
    "DecodeStage",
    "ImpatientPool",
    "Moments",
    "PhaseType",
    "PoolPrediction",
    "Prediction",
    "PrefillStage",
    "PriorityResult",
    "QueueResult",
    "RecordedDemand",
    "Replica",
    "ReservedResult",
    "SharedBatch",
    "ShortestFirst",
    "StagesPrediction",
    "StepLaw",
    "TimeVaryingResult",
    "batch_with_online",
    "burst_peakedness",
    "closed_batch",
    "closed_loop",
    "erlang_b",
    "erlang_c",
    "ggc",
    "impatient_pool",
    "measured_burst",
    "mgc",
    "modified_offered_load",
    "pool",
    "pool_metrics",
    "priority",
    "recorded_demand",
    "reserved",
    "resident_cap",
    "shortest_first",
    "stages",
    "time_varying",
    "utilisation",
]

_HOME = {
    "impatient_pool": "qmodel.queueing.patience",
    "ImpatientPool": "qmodel.queueing.patience",
    "batch_with_online": "qmodel.queueing.batch_company",
    "SharedBatch": "qmodel.queueing.batch_company",
    "PhaseType": "qmodel.queueing.phase_type",
    "AnswerStage": "qmodel.queueing.stages_row",
    "DecodeStage": "qmodel.queueing.stages_row",
    "PrefillStage": "qmodel.queueing.stages_row",
    "StagesPrediction": "qmodel.queueing.stages_row",
    "stages": "qmodel.queueing.stages_row",
    "ClosedBatch": "qmodel.queueing.closed_batches",
    "ClosedLoop": "qmodel.queueing.fixed_population",
    "Moments": "qmodel.queueing.multiserver",
    "ClassPrediction": "qmodel.queueing.predictions",
    "PoolPrediction": "qmodel.queueing.predictions",
    "Prediction": "qmodel.queueing.predictions",
    "PriorityResult": "qmodel.queueing.priority_classes",
    "ReservedResult": "qmodel.queueing.reserved_share",
    "ShortestFirst": "qmodel.queueing.size_order",
    "priority": "qmodel.queueing.priority_classes",
    "reserved": "qmodel.queueing.reserved_share",
    "shortest_first": "qmodel.queueing.size_order",
    "QueueResult": "qmodel.queueing.multiserver",
    "Replica": "qmodel.types",
    "StepLaw": "qmodel.types",
    "closed_batch": "qmodel.queueing.closed_batches",
    "closed_loop": "qmodel.queueing.fixed_population",
    "erlang_b": "qmodel.queueing.erlang",
    "erlang_c": "qmodel.queueing.erlang",
    "mgc": "qmodel.queueing.multiserver",
    "pool": "qmodel.queueing.pools",
    "pool_metrics": "qmodel.queueing.pools",
    "resident_cap": "qmodel.queueing.fixed_population",
    "utilisation": "qmodel.queueing.pools",
    "ggc": "qmodel.queueing.general_arrivals",
    "measured_burst": "qmodel.queueing.measured_arrivals",
    "modified_offered_load": "qmodel.queueing.offered_load",
    "burst_peakedness": "qmodel.queueing.peakedness",
    "RecordedDemand": "qmodel.queueing.recorded_windows",
    "recorded_demand": "qmodel.queueing.recorded_windows",
    "TimeVaryingResult": "qmodel.queueing.time_varying_queue",
    "time_varying": "qmodel.queueing.time_varying_queue",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
