"""Metrics of a fleet, its capacity and service curve."""

from qmodel.evaluation.assessment import PoolCase, assess, slo_ratios
from qmodel.evaluation.fleet_metrics import evaluate_fleet, fleet_capacity, pool_cases
from qmodel.evaluation.results import CapacityResult, CurveRow, Evaluation, LatencyRow

__all__ = [
    "CapacityResult",
    "CurveRow",
    "Evaluation",
    "LatencyRow",
    "PoolCase",
    "assess",
    "evaluate_fleet",
    "fleet_capacity",
    "pool_cases",
    "slo_ratios",
]
