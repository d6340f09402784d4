"""Plan one fleet for scenarios of the demand that weigh enough, leaving out those that would make it dear."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from qmodel.optimize import OneFleet, SolverOptions, check_solver, choose
from qmodel.planning.day_plans import bounded, day_plan
from qmodel.planning.day_problems import columns_of, day_of
from qmodel.planning.day_reasons import no_day_plan
from qmodel.planning.plans import Plan
from qmodel.planning.progress import Cancel, OnProgress
from qmodel.problem import Instance
from qmodel.types import Period, Periods

__all__ = ["quantile_plan"]

_ROUNDING = 1e-6  # of a weight


def quantile_plan(
    instance: Instance, *, options: SolverOptions, on_progress: OnProgress | None = None, cancel: Cancel | None = None
) -> Plan:
    """One fleet for scenarios of enough weight: the program that chooses them also bounds the cost.

    Which scenarios are served is a binary of each: ``cover`` asks for f s, and ``sum weight s >= quantile``.

    Args:
        instance: the bound problem, with scenarios of which some may be left out.
        options: solver, gap and time limit.
        on_progress: told where the search stands.
        cancel: asked between stages; a true answer stops the search.
    """
    check_solver(options.name)
    day = day_of(instance, options, time.perf_counter())
    items, sets = day.periods.items, columns_of(day)
    if not day.served(sets):
        return no_day_plan(day.instances, instance, day.options, "infeasible", day.started_s)
    frame = OneFleet(
        factors=np.array([[own.factors[item.name] for item in day.everyone] for own in items]),
        weights=np.array([item.weight for item in items]),
        least_weight=day.periods.least_weight - _ROUNDING,
        regimes=day.periods.regimes,
    )
    half = replace(day.options, time_limit_s=day.options.time_limit_s / 2.0)
    choice = choose(sets, day.members, instance.limits, options=half, frame=frame, regimes=day.regimes)
    if choice.empty:
        return no_day_plan(day.instances, instance, day.options, choice.outcome, day.started_s, choice.words)
    kept = tuple(item for item, served in zip(items, choice.served, strict=True) if served)
    left_out = tuple(item for item in items if item not in kept)
    least = day.periods.least_weight if left_out else 1.0
    chosen = _only(instance, replace(day.periods, items=kept, left_out=left_out, least_weight=least))
    plan = day_plan(chosen, options=half, on_progress=on_progress, cancel=cancel)
    names = ", ".join(item.name for item in left_out) or "none"
    weight = sum(item.weight for item in kept)
    told = f"scenarios of weight {weight:g} are served; left out: {names}"
    found = bounded(plan, choice.bound_usd_per_hour, options, choice.outcome)
    return found if found.fleet is None else replace(found, assumptions=(*found.assumptions, told))


def _only(instance: Instance, periods: Periods) -> Instance:
    """The problem with some of its scenarios, classes at their largest rates in these."""
    tops = {name: max(item.factors[name] for item in periods.items) for name in instance.classes}
    asked = {name: top for name, top in tops.items() if top > 0.0}
    classes = {name: item.part(asked[name]) for name, item in instance.classes.items() if name in asked}
    models = {item.model for item in classes.values()}

    def scaled(item: Period) -> Period:
        lengths = {name: own for name, own in item.lengths.items() if name in asked}
        return replace(item, factors={name: item.factors[name] / top for name, top in asked.items()}, lengths=lengths)

    return replace(
        instance,
        classes=classes,
        models={name: item for name, item in instance.models.items() if name in models},
        periods=replace(
            periods,
            items=tuple(scaled(item) for item in periods.items),
            left_out=tuple(scaled(item) for item in periods.left_out),
        ),
    )
