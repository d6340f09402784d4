"""Metrics of a fleet, its capacity and service curve."""

from qmodel.evaluation.api_pools import ApiCase
from qmodel.evaluation.assessment import assess, slo_ratios
from qmodel.evaluation.bindings import MOVED_BY
from qmodel.evaluation.day_costs import (
    base_rows,
    day_purchases,
    limits_in_period,
    paid_by_period,
    period_costs_usd,
    tokens_usd,
)
from qmodel.evaluation.excesses import allowances, slo_excesses
from qmodel.evaluation.fleet_metrics import evaluate_fleet, fleet_capacity, pool_cases
from qmodel.evaluation.kv_links import kv_token_bytes, links_into, own_link
from qmodel.evaluation.measured_pools import MeasuredCase
from qmodel.evaluation.path_predictions import PoolCase, PoolSettings, predict_paths
from qmodel.evaluation.purchases import price_in_fleet
from qmodel.evaluation.resource_worth import MarginalRow, MarginalValues, marginal_values
from qmodel.evaluation.results import CapacityResult, CurveRow, Evaluation, LatencyRow, LeavingRow, QualityRow
from qmodel.evaluation.target_values import TOLERANCE, value_of

__all__ = [
    "ApiCase",
    "CapacityResult",
    "MOVED_BY",
    "TOLERANCE",
    "CurveRow",
    "Evaluation",
    "LatencyRow",
    "MarginalRow",
    "MarginalValues",
    "MeasuredCase",
    "PoolCase",
    "LeavingRow",
    "PoolSettings",
    "QualityRow",
    "allowances",
    "assess",
    "base_rows",
    "day_purchases",
    "evaluate_fleet",
    "fleet_capacity",
    "kv_token_bytes",
    "limits_in_period",
    "links_into",
    "marginal_values",
    "own_link",
    "paid_by_period",
    "period_costs_usd",
    "pool_cases",
    "predict_paths",
    "price_in_fleet",
    "slo_excesses",
    "slo_ratios",
    "tokens_usd",
    "value_of",
]
