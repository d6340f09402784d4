"""Records that several rooms share. Frozen, without behaviour beyond their own arithmetic."""

from qmodel.types.apis import Api
from qmodel.types.arrivals import Burst
from qmodel.types.batches import Batch
from qmodel.types.caps import Cap, LimitKind, Quota
from qmodel.types.changes import Change, ChangeRow, PoolKey, Running, replicas_by_kind
from qmodel.types.clusters import Cluster, Host
from qmodel.types.constants import BandLevel, CalibratedConstants, ConstantsOverride, EngineConstants, GpuSpec
from qmodel.types.day_purchases import DayPurchase, bought_for_day, by_the_hour
from qmodel.types.demand import METRICS, Metric, ModelTier, Patience, RequestClass, Slo, Stream
from qmodel.types.fleets import (
    ROLES_IN_A_ROW,
    Fleet,
    LinkRow,
    Overload,
    Path,
    Pool,
    PoolLink,
    PoolRow,
    Role,
    RouteRow,
    SloRow,
)
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
from qmodel.types.kv_links import KvLink
from qmodel.types.laws import FloatArray, IntArray, Law, Lengths, mix_laws, mix_lengths
from qmodel.types.layouts import Collective, Engine, Layout, LinkCosts, Refusal, Speculation
from qmodel.types.limits import Forbidden, GpuLimits, Holding, Limits
from qmodel.types.measured import MeasuredCapacity
from qmodel.types.offers import MIXED, Offer, Purchase, PurchaseRow, bought, in_merit_order
from qmodel.types.periods import HOURS, Layer, Period, Periods, hours_text
from qmodel.types.replica import Admission, Band, Preemption, Replica, Router, StepLaw
from qmodel.types.risks import Risk, risk_words, tail_mean
from qmodel.types.settings import settings_text
from qmodel.types.slo_scope import SloScope, decisive
from qmodel.types.spot import SpotTerms
from qmodel.types.tier_shares import best_average, settled_bounds

__all__ = [
    "decisive",
    "replicas_by_kind",
    "settings_text",
    "Running",
    "PoolKey",
    "ChangeRow",
    "Change",
    "HOURS",
    "METRICS",
    "MIXED",
    "ROLES_IN_A_ROW",
    "Admission",
    "Api",
    "Band",
    "BandLevel",
    "Batch",
    "Burst",
    "CalibratedConstants",
    "Cap",
    "Cluster",
    "Collective",
    "Confidence",
    "ConstantsOverride",
    "DayPurchase",
    "Engine",
    "EngineConstants",
    "Fabric",
    "Fleet",
    "FloatArray",
    "Forbidden",
    "Gpu",
    "GpuLimits",
    "GpuSpec",
    "Holding",
    "Host",
    "IntArray",
    "KvLink",
    "Law",
    "Layer",
    "Layout",
    "Lengths",
    "LimitKind",
    "Limits",
    "LinearState",
    "LinkCosts",
    "LinkRow",
    "MeasuredCapacity",
    "Metric",
    "Mla",
    "Model",
    "Moe",
    "Node",
    "Offer",
    "Overload",
    "Path",
    "Period",
    "Periods",
    "Pool",
    "Preemption",
    "PoolLink",
    "PoolRow",
    "Purchase",
    "PurchaseRow",
    "Quota",
    "Refusal",
    "Replica",
    "RequestClass",
    "Risk",
    "Role",
    "RouteRow",
    "Router",
    "ScaleUpDomain",
    "Slo",
    "SloRow",
    "SloScope",
    "Speculation",
    "SpotTerms",
    "StepLaw",
    "Stream",
    "ModelTier",
    "Patience",
    "Topology",
    "WeightFamily",
    "best_average",
    "bought",
    "bought_for_day",
    "by_the_hour",
    "hours_text",
    "in_merit_order",
    "mix_laws",
    "mix_lengths",
    "risk_words",
    "settled_bounds",
    "tail_mean",
]
