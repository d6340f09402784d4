"""Plan LLM inference fleets: which GPUs, how many, in which layout, at the least cost within latency targets.

Example:
    >>> import qmodel as qm
    >>> plan = qm.plan(qm.load_scenario("scenarios/10-quickstart.yaml"))
    >>> plan.status
    'optimal'

Public names are resolved on first use, so that ``import qmodel`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmodel import perf, queueing, workload
    from qmodel.calibration import Calibration, calibrate
    from qmodel.catalog import load_catalog
    from qmodel.comparison import Comparison, compare
    from qmodel.errors import (
        CatalogError,
        InfeasibleError,
        Problem,
        QmodelError,
        ScenarioError,
        SolverFailedError,
        SolverUnavailableError,
    )
    from qmodel.evaluation import CapacityResult, Evaluation, MarginalValues
    from qmodel.optimize import FleetPlacement, SolverOptions, place_fleet
    from qmodel.planning import Plan, PlanCheck, Progress, Verification, load_plan, verify
    from qmodel.planning.calls import check_plan, pareto, plan
    from qmodel.planning.fleet_calls import capacity, evaluate, marginal_values, simulate
    from qmodel.planning.reading import load_fleet, load_scenario, validate
    from qmodel.scenario import Scenario
    from qmodel.simulation import Simulation
    from qmodel.trace import read_trace
    from qmodel.types import Cluster, Fleet, Host

__all__ = [
    "Calibration",
    "CapacityResult",
    "CatalogError",
    "Cluster",
    "Comparison",
    "Evaluation",
    "Fleet",
    "FleetPlacement",
    "Host",
    "InfeasibleError",
    "MarginalValues",
    "Plan",
    "PlanCheck",
    "Problem",
    "Progress",
    "QmodelError",
    "Scenario",
    "ScenarioError",
    "Simulation",
    "SolverFailedError",
    "SolverOptions",
    "SolverUnavailableError",
    "Verification",
    "calibrate",
    "capacity",
    "check_plan",
    "compare",
    "evaluate",
    "load_catalog",
    "load_fleet",
    "load_plan",
    "load_scenario",
    "marginal_values",
    "pareto",
    "perf",
    "place_fleet",
    "plan",
    "queueing",
    "read_trace",
    "simulate",
    "validate",
    "verify",
    "workload",
]

_HOME = {
    "calibration": ("Calibration", "calibrate"),
    "catalog": ("load_catalog",),
    "comparison": ("Comparison", "compare"),
    "errors": (
        "CatalogError",
        "InfeasibleError",
        "Problem",
        "QmodelError",
        "ScenarioError",
        "SolverFailedError",
        "SolverUnavailableError",
    ),
    "evaluation": ("CapacityResult", "Evaluation", "MarginalValues"),
    "optimize": ("FleetPlacement", "SolverOptions", "place_fleet"),
    "planning": ("Plan", "PlanCheck", "Progress", "Verification", "load_plan", "verify"),
    "planning.calls": ("check_plan", "pareto", "plan"),
    "planning.fleet_calls": ("capacity", "evaluate", "marginal_values", "simulate"),
    "planning.reading": ("load_fleet", "load_scenario", "validate"),
    "scenario": ("Scenario",),
    "simulation": ("Simulation",),
    "trace": ("read_trace",),
    "types": ("Cluster", "Fleet", "Host"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_ROOMS = ("perf", "queueing", "workload")


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"qmodel.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(f"qmodel.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'qmodel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
