"""The search that goes with the objective of a problem."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from qmodel.planning.planner import plan_instance

if TYPE_CHECKING:
    from qmodel.optimize import SolverOptions
    from qmodel.planning.plans import Plan
    from qmodel.planning.progress import Cancel, OnProgress
    from qmodel.problem import Instance

__all__ = ["plan_for_objective"]


def plan_for_objective(
    instance: Instance, *, options: SolverOptions, on_progress: OnProgress | None = None, cancel: Cancel | None = None
) -> Plan:
    """Plan for the least cost, over periods of demand or not, the least value of one target, or the most served.

    ``disaggregate: auto`` stands for the least cost only: elsewhere a level that unified pools miss is no surprise.

    Args:
        instance: the bound problem.
        options: solver, gap and time limit of the whole search.
        on_progress: told where the search stands.
        cancel: asked between stages; a true answer stops the search.
    """
    if instance.periods is not None:
        from qmodel.planning.day_plans import day_plan
        from qmodel.planning.demand_plans import quantile_plan

        over_periods = quantile_plan if instance.periods.least_weight < 1.0 else day_plan
        return over_periods(instance, options=options, on_progress=on_progress, cancel=cancel)
    match instance.objective.kind:
        case "latency":
            from qmodel.planning.latency_search import least_latency_plan as search
        case "served":
            from qmodel.planning.served_demand import most_served_plan as search
        case _:
            search = plan_instance
    if search is not plan_instance and instance.layouts.disaggregate == "auto":
        instance = replace(instance, layouts=replace(instance.layouts, disaggregate=False))
    return search(instance, options=options, on_progress=on_progress, cancel=cancel)
