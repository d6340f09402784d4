"""Metrics of a fleet, its capacity and service curve."""

from qmodel.evaluation.assessment import assess, slo_ratios
from qmodel.evaluation.fleet_metrics import evaluate_fleet, fleet_capacity, pool_cases
from qmodel.evaluation.kv_links import kv_token_bytes
from qmodel.evaluation.measured_pools import MeasuredCase
from qmodel.evaluation.path_predictions import PoolCase
from qmodel.evaluation.purchases import price_in_fleet
from qmodel.evaluation.resource_worth import MarginalRow, MarginalValues, marginal_values
from qmodel.evaluation.results import CapacityResult, CurveRow, Evaluation, LatencyRow

__all__ = [
    "CapacityResult",
    "CurveRow",
    "Evaluation",
    "LatencyRow",
    "MarginalRow",
    "MarginalValues",
    "MeasuredCase",
    "PoolCase",
    "assess",
    "evaluate_fleet",
    "fleet_capacity",
    "kv_token_bytes",
    "marginal_values",
    "pool_cases",
    "price_in_fleet",
    "slo_ratios",
]
