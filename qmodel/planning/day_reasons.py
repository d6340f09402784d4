"""Why a day has no plan, and what a reader must know of hours that are taken one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qmodel.evaluation import Evaluation
from qmodel.optimize import SolverOptions
from qmodel.planning.answers import without_fleet
from qmodel.planning.conflict_search import with_conflict
from qmodel.planning.planner import plan_instance
from qmodel.planning.plans import Plan, Why
from qmodel.problem import Instance
from qmodel.queueing import time_varying
from qmodel.types import HOURS, Law, Periods, risk_words

__all__ = ["no_day_plan", "over_budget", "residence_notes"]

_HOUR_S = 3600.0
_WORTH_A_NOTE = 0.05  # of the requests in progress
_SHORT_S = 60.0  # residence that an hour does not notice
_ROUNDING = 1e-6  # of a cost


def no_day_plan(
    instances: Sequence[Instance],
    instance: Instance,
    options: SolverOptions,
    outcome: str,
    started_s: float,
    words: str = "",
    together: Why | None = None,
) -> Plan:
    """Why there is no fleet: the first hours, the busiest first, that cannot be served even alone; or all together.

    Args:
        instances: the problem of each period alone.
        instance: the bound problem, with periods.
        options: solver, gap and time limit.
        outcome: of the programs, as in a choice.
        started_s: when the search began.
        words: the solver's own.
        together: why all periods together cannot be served, where that is known.
    """
    periods = instance.periods
    assert periods is not None
    if outcome == "time":
        why = Why(
            text=f"no fleet was found within {options.time_limit_s:g} s",
            limit="--time-limit",
            change="raise the time limit",
        )
        return without_fleet(instance, "limit", "time", why, started_s)
    if outcome == "error":
        why = Why(text=f"solver '{options.name}' failed: {words}", change="try another --solver")
        return without_fleet(instance, "limit", "solver_error", why, started_s)
    order = sorted(range(len(instances)), key=lambda place: -sum(periods.items[place].factors.values()))
    for place in order:
        if instances[place].classes:
            alone, asked_s = replace(instances[place], periods=None), time.monotonic()
            plan = plan_instance(alone, options=options)
            if plan.fleet is None:
                searched_s = time.monotonic() - asked_s
                plan = with_conflict(plan, alone, options=options, searched_s=searched_s)
                text = f"in {periods.items[place].title}: {plan.why.text}"
                return replace(plan, why=replace(plan.why, text=text), assumptions=instance.assumptions)
    kind, way_out = (
        ("scenario", "plan_for: mean or {cvar: 0.9}")
        if periods.of_scenarios
        else ("hour", "hours: true in the profiles")
    )
    why = Why(
        text=f"no one fleet serves every {kind} within the limits, though each {kind} alone can be served",
        limit="fleet",
        change=f"state {way_out}, so that the fleet may change, or raise the limits of the fleet",
    )
    if together is not None:
        why = replace(together, text=f"one fleet for every {kind}: {together.text}")
    if outcome == "infeasible":
        return without_fleet(instance, "infeasible", "proven", why, started_s)
    return without_fleet(instance, "limit", "gap", why, started_s)


def over_budget(instance: Instance, cost: float, bound: float, budget: float, started_s: float) -> Plan:
    """Why there is no plan although there are fleets: together they cost more than the budget allows."""
    periods = instance.periods
    assert periods is not None
    day, verb = ("fleets for the scenarios", "cost") if periods.of_scenarios else ("day", "costs")
    counted = "on average" if periods.risk is None else f"by {risk_words(periods.risk)}"
    least = f", and none costs less than {bound:.2f}" if np.isfinite(bound) else ""
    why = Why(
        text=f"the cheapest {day} found {verb} more than the budget of {budget:g} USD/h {counted}",
        limit="fleet.budget_usd_per_hour",
        best=f"{cost:.2f} USD/h for the cheapest {day} found{least}",
        change=f"raise fleet.budget_usd_per_hour to {np.ceil(cost * 100.0 - _ROUNDING) / 100.0:.2f}",
    )
    if bound > budget * (1.0 + _ROUNDING):
        return without_fleet(instance, "infeasible", "proven", why, started_s, bound)
    return without_fleet(instance, "limit", "gap", why, started_s, bound)


def residence_notes(instance: Instance, periods: Periods, result: Evaluation) -> list[str]:
    """Classes whose requests stay so long that an hour still holds many of the hour before.

    The number in progress follows the rate with the lag of the residence; hours are planned as if it followed at once.

    Args:
        instance: the bound problem, classes at their largest rates.
        periods: of the day.
        result: predictions for the busiest hours.
    """
    notes: list[str] = []
    for name, item in instance.classes.items() if not periods.of_scenarios else ():
        stays = [row.mean_s for row in result.latency if row.cls == name and row.metric == "completion"]
        stay_s = max((value for value in stays if value is not None), default=0.0)
        rates = np.zeros(HOURS)
        for period in periods.items:
            rates[list(period.hours)] = item.rate_rps * period.factors[name]
        if stay_s < _SHORT_S or rates.min() == rates.max():
            continue
        own = np.maximum(rates * stay_s, 1e-9)
        lagged = time_varying(
            rates, _HOUR_S, Law.constant(stay_s), float(np.ceil(own.max() * 2.0 + 10.0)), start="repeat"
        )
        beyond = np.where(rates > 0.0, lagged.offered / own - 1.0, 0.0)
        hour = int(np.argmax(beyond))
        if beyond[hour] > _WORTH_A_NOTE:
            notes.append(
                f"class {name}: requests stay {stay_s:.0f} s on average, so that in hour {hour} {beyond[hour]:.0%} more"
                " are in progress than its own rate brings; hours are planned one by one"
            )
    return notes
