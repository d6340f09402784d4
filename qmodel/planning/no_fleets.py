"""Plans without a fleet: what was in the way, in the words of the search that met it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qmodel.optimize import Choice, Diagnosis, Program, diagnose
from qmodel.planning.answers import why_not, without_fleet
from qmodel.planning.plans import Plan, Why
from qmodel.planning.search import Search
from qmodel.problem import Instance

__all__ = ["cancelled_plan", "infeasible_plan", "over_budget", "without_choice"]

_ROUNDING = 1e-6  # of a cost


def cancelled_plan(instance: Instance, started_s: float) -> Plan:
    """No plan, because the caller wanted no more of it."""
    return without_fleet(instance, "limit", "cancelled", Why(text="the search was cancelled"), started_s)


def infeasible_plan(search: Search, master: Program | None = None) -> Plan:
    """No fleet exists; ``master`` as for :func:`without_choice`."""
    found = _diagnosed(search, master)
    return without_fleet(search.instance, "infeasible", "proven", why_not(found), search.started_s)


def over_budget(search: Search, cost: float, bound: float) -> Plan:
    """Why there is no plan although there is a fleet: it costs more than the budget allows."""
    budget = search.limits.budget_usd_per_hour
    assert budget is not None
    proven = bound > budget * (1.0 + _ROUNDING)
    least = f", and none costs less than {bound:.2f}" if np.isfinite(bound) else ""
    why = Why(
        text=f"the cheapest fleet found costs more than the budget of {budget:g} USD/h",
        limit="fleet.budget_usd_per_hour",
        best=f"{cost:.2f} USD/h for the cheapest fleet found{least}",
        change=f"raise fleet.budget_usd_per_hour to {np.ceil(cost * 100.0 - _ROUNDING) / 100.0:.2f}",
    )
    if proven:
        return without_fleet(search.instance, "infeasible", "proven", why, search.started_s, bound)
    return without_fleet(search.instance, "limit", "gap", why, search.started_s, bound)


def without_choice(search: Search, choice: Choice, master: Program | None = None) -> Plan:
    """The plan of a choice that is empty.

    Args:
        search: how far it came.
        choice: without pools; its outcome says why.
        master: the program of fleets, where it is not that of the columns.
    """
    if choice.outcome == "infeasible":
        return infeasible_plan(search, master)
    if choice.outcome == "unsettled":
        found = _diagnosed(search, master)
        text = "no fleet of the pools tried meets every target within the limits; other fleets are not ruled out"
        why = replace(why_not(found), text=text)
        return without_fleet(search.instance, "limit", "gap", why, search.started_s, choice.bound_usd_per_hour)
    if choice.outcome == "time":
        why = Why(
            text=f"no fleet was found within {search.options.time_limit_s:g} s",
            limit="--time-limit",
            change="raise the time limit",
        )
        return without_fleet(search.instance, "limit", "time", why, search.started_s, choice.bound_usd_per_hour)
    why = Why(text=f"solver '{search.options.name}' failed: {choice.words}", change="try another --solver")
    return without_fleet(search.instance, "limit", "solver_error", why, search.started_s, choice.bound_usd_per_hour)


def _diagnosed(search: Search, master: Program | None = None) -> Diagnosis:
    """What cannot be met."""
    return diagnose(
        search.candidates,
        search.sets,
        search.classes,
        search.limits,
        search.options,
        search.stages,
        scope=search.instance.policy.slo_scope,
        master=master,
    )
