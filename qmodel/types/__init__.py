"""Records that several rooms share. Frozen, without behaviour beyond their own arithmetic."""

from qmodel.types.arrivals import Burst
from qmodel.types.constants import BandLevel, ConstantsOverride, EngineConstants, GpuSpec
from qmodel.types.demand import METRICS, Metric, RequestClass, Slo, Stream
from qmodel.types.fleets import Fleet, Overload, Path, Pool, PoolRow, RouteRow, SloRow
from qmodel.types.hardware import (
    Confidence,
    Fabric,
    Gpu,
    LinearState,
    Mla,
    Model,
    Moe,
    Node,
    ScaleUpDomain,
    Topology,
    WeightFamily,
)
from qmodel.types.laws import FloatArray, IntArray, Law, Lengths, mix_laws, mix_lengths
from qmodel.types.layouts import Collective, Engine, Layout, LinkCosts, Refusal
from qmodel.types.replica import Admission, Band, Replica, Router, StepLaw

__all__ = [
    "METRICS",
    "Admission",
    "Band",
    "BandLevel",
    "Burst",
    "Collective",
    "Confidence",
    "ConstantsOverride",
    "Engine",
    "EngineConstants",
    "Fabric",
    "Fleet",
    "FloatArray",
    "Gpu",
    "GpuSpec",
    "IntArray",
    "Law",
    "Layout",
    "Lengths",
    "LinearState",
    "LinkCosts",
    "Metric",
    "Mla",
    "Model",
    "Moe",
    "Node",
    "Overload",
    "Path",
    "Pool",
    "PoolRow",
    "Refusal",
    "Replica",
    "RequestClass",
    "RouteRow",
    "Router",
    "ScaleUpDomain",
    "Slo",
    "SloRow",
    "StepLaw",
    "Stream",
    "Topology",
    "WeightFamily",
    "mix_laws",
    "mix_lengths",
]
