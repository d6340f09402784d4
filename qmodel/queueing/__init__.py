"""Closed-form queueing models: multi-server queues, the batching replica, closed loops and closed batches.

Names resolve on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmodel.queueing.arrivals.general_arrivals import ggc
    from qmodel.queueing.arrivals.measured_arrivals import measured_burst
    from qmodel.queueing.arrivals.offered_load import modified_offered_load
    from qmodel.queueing.arrivals.peakedness import burst_peakedness
    from qmodel.queueing.arrivals.recorded_windows import RecordedDemand, recorded_demand
    from qmodel.queueing.arrivals.time_varying_queue import TimeVaryingResult, time_varying
    from qmodel.queueing.disciplines.priority_classes import PriorityResult, priority
    from qmodel.queueing.disciplines.reserved_share import ReservedResult, reserved
    from qmodel.queueing.disciplines.size_order import ShortestFirst, shortest_first
    from qmodel.queueing.populations.batch_company import SharedBatch, batch_with_online
    from qmodel.queueing.populations.closed_batches import ClosedBatch, closed_batch
    from qmodel.queueing.populations.fixed_population import ClosedLoop, closed_loop, resident_cap
    from qmodel.queueing.replica.any_pools import predict_pool
    from qmodel.queueing.replica.case_bands import pool_bands
    from qmodel.queueing.replica.error_bands import ErrorBand, least_band, queueing_band
    from qmodel.queueing.replica.many_pools import least_tpot, pool_exceedances, pool_metrics
    from qmodel.queueing.replica.patience import ImpatientPool, impatient_pool
    from qmodel.queueing.replica.pools import pool, utilisation
    from qmodel.queueing.replica.predictions import ClassPrediction, PoolPrediction, Prediction
    from qmodel.queueing.servers.erlang import erlang_b, erlang_c
    from qmodel.queueing.servers.multiserver import Moments, QueueResult, mgc
    from qmodel.queueing.servers.phase_type import PhaseType
    from qmodel.queueing.tandem.row import AnswerStage, DecodeStage, PrefillStage, StagesPrediction, stages
    from qmodel.types import Replica, StepLaw

__all__ = [
    "AnswerStage",
    "ClassPrediction",
    "ClosedBatch",
    "ClosedLoop",
    "DecodeStage",
    "ErrorBand",
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
    "least_band",
    "least_tpot",
    "measured_burst",
    "mgc",
    "modified_offered_load",
    "pool",
    "pool_bands",
    "pool_exceedances",
    "pool_metrics",
    "predict_pool",
    "priority",
    "queueing_band",
    "recorded_demand",
    "reserved",
    "resident_cap",
    "shortest_first",
    "stages",
    "time_varying",
    "utilisation",
]

_HOME = {
    "impatient_pool": "qmodel.queueing.replica.patience",
    "ImpatientPool": "qmodel.queueing.replica.patience",
    "batch_with_online": "qmodel.queueing.populations.batch_company",
    "SharedBatch": "qmodel.queueing.populations.batch_company",
    "PhaseType": "qmodel.queueing.servers.phase_type",
    "AnswerStage": "qmodel.queueing.tandem.row",
    "DecodeStage": "qmodel.queueing.tandem.row",
    "PrefillStage": "qmodel.queueing.tandem.row",
    "StagesPrediction": "qmodel.queueing.tandem.row",
    "stages": "qmodel.queueing.tandem.row",
    "ClosedBatch": "qmodel.queueing.populations.closed_batches",
    "ClosedLoop": "qmodel.queueing.populations.fixed_population",
    "Moments": "qmodel.queueing.servers.multiserver",
    "ClassPrediction": "qmodel.queueing.replica.predictions",
    "PoolPrediction": "qmodel.queueing.replica.predictions",
    "Prediction": "qmodel.queueing.replica.predictions",
    "PriorityResult": "qmodel.queueing.disciplines.priority_classes",
    "ReservedResult": "qmodel.queueing.disciplines.reserved_share",
    "ShortestFirst": "qmodel.queueing.disciplines.size_order",
    "priority": "qmodel.queueing.disciplines.priority_classes",
    "reserved": "qmodel.queueing.disciplines.reserved_share",
    "shortest_first": "qmodel.queueing.disciplines.size_order",
    "QueueResult": "qmodel.queueing.servers.multiserver",
    "Replica": "qmodel.types",
    "StepLaw": "qmodel.types",
    "closed_batch": "qmodel.queueing.populations.closed_batches",
    "closed_loop": "qmodel.queueing.populations.fixed_population",
    "erlang_b": "qmodel.queueing.servers.erlang",
    "erlang_c": "qmodel.queueing.servers.erlang",
    "mgc": "qmodel.queueing.servers.multiserver",
    "pool": "qmodel.queueing.replica.pools",
    "predict_pool": "qmodel.queueing.replica.any_pools",
    "pool_exceedances": "qmodel.queueing.replica.many_pools",
    "pool_metrics": "qmodel.queueing.replica.many_pools",
    "least_tpot": "qmodel.queueing.replica.many_pools",
    "resident_cap": "qmodel.queueing.populations.fixed_population",
    "utilisation": "qmodel.queueing.replica.pools",
    "ErrorBand": "qmodel.queueing.replica.error_bands",
    "queueing_band": "qmodel.queueing.replica.error_bands",
    "least_band": "qmodel.queueing.replica.error_bands",
    "pool_bands": "qmodel.queueing.replica.case_bands",
    "ggc": "qmodel.queueing.arrivals.general_arrivals",
    "measured_burst": "qmodel.queueing.arrivals.measured_arrivals",
    "modified_offered_load": "qmodel.queueing.arrivals.offered_load",
    "burst_peakedness": "qmodel.queueing.arrivals.peakedness",
    "RecordedDemand": "qmodel.queueing.arrivals.recorded_windows",
    "recorded_demand": "qmodel.queueing.arrivals.recorded_windows",
    "TimeVaryingResult": "qmodel.queueing.arrivals.time_varying_queue",
    "time_varying": "qmodel.queueing.arrivals.time_varying_queue",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
