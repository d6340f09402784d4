"""Plan for as much of the demand as the limits of the fleet allow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qmodel.candidates import columns_for_group, enumerate_candidates, open_pools_of
from qmodel.optimize import Served, SolverOptions, most_served
from qmodel.planning.planner import plan_instance
from qmodel.planning.plans import ObjectiveRow, Plan, ServedRow
from qmodel.planning.progress import Cancel, OnProgress, Progress
from qmodel.problem import Instance

__all__ = ["most_served_plan"]

_WHOLE = 1.0 - 1e-4  # of a class: what is left is rounding
_LEAST_SHARE = 1e-3  # of a class: less is not served at all
_STEPS = (1.0, 0.995, 0.99, 0.98, 0.95)  # of what the program says is served: mixes between looks may carry less
_SHARE_OF_TIME = 0.5  # for the programs that say what is served; the rest is for the plan
_LEAST_TIME_S = 0.05


def most_served_plan(
    instance: Instance, *, options: SolverOptions, on_progress: OnProgress | None = None, cancel: Cancel | None = None
) -> Plan:
    """The cheapest fleet for the most requests per second that the limits allow, important classes first.

    What is dropped of a class is dropped at random, so that what is left arrives as before, at a lower rate. The plan
    is one for the demand that is served: its bound is on the cost of that, its objective row bounds what is served.

    Args:
        instance: the bound problem.
        options: solver, gap and time limit.
        on_progress: told where the search stands.
        cancel: asked between stages; a true answer stops the search.
    """
    started = time.monotonic()
    tell = on_progress or (lambda _: None)
    candidates = enumerate_candidates(instance)
    groups = {name: tuple(sorted(group, key=lambda item: item.name)) for name, group in instance.sharing().items()}
    sets = {}
    for done, (group, members) in enumerate(sorted(groups.items())):
        tell(Progress(stage="frontier", done=done, total=len(groups)))
        if cancel is not None and cancel():
            return plan_instance(instance, options=options, cancel=cancel)
        model = members[0].model
        open_pools = open_pools_of(candidates.measured_of(model), members)
        sets[group] = columns_for_group(
            candidates.of(model, members[0].name), members, open_pools=open_pools, every_count=True
        )
    half = replace(options, time_limit_s=options.time_limit_s * _SHARE_OF_TIME)
    served = most_served(sets, {name: groups[name] for name in sets}, instance.limits, options=half)
    if not any(share > _LEAST_SHARE for share in served.shares.values()):
        plan = plan_instance(instance, options=options, on_progress=on_progress, cancel=cancel)
        if plan.fleet is None:
            return _none_served(plan, served)
        return _told(plan, instance, dict.fromkeys(instance.classes, 1.0), served, options.mip_gap)
    for step in _STEPS:
        shares = {name: _share(value, step) for name, value in served.shares.items()}
        left_s = max(options.time_limit_s - (time.monotonic() - started), _LEAST_TIME_S)
        plan = plan_instance(
            _part(instance, shares),
            options=replace(options, time_limit_s=left_s),
            on_progress=on_progress,
            cancel=cancel,
        )
        if plan.fleet is not None or plan.termination == "cancelled":
            break
    return _not_ruled_out(plan) if plan.fleet is None else _told(plan, instance, shares, served, options.mip_gap)


def _none_served(plan: Plan, served: Served) -> Plan:
    """A plan for all of the demand, found not to exist, said to be about that: a part may take less."""
    if plan.termination == "cancelled":
        return plan
    if served.words:
        text = f"what part of the demand can be served was not found ({served.words}); for all of it: {plan.why.text}"
        termination = plan.termination if plan.status == "limit" else ("solver_error" if served.in_time else "time")
        return replace(plan, status="limit", termination=termination, why=replace(plan.why, text=text))
    change = f"for all of the demand {plan.why.change}; less may do for a part" if plan.why.change else ""
    text = f"within the limits less than {_LEAST_SHARE:.1%} of any class can be served; for all of it: {plan.why.text}"
    return replace(plan, why=replace(plan.why, text=text, change=change))


def _not_ruled_out(plan: Plan) -> Plan:
    """A plan for a part of the demand, found not to exist: that says nothing of smaller parts."""
    if plan.status != "infeasible":
        return plan
    open_ = "no fleet was found for what the limits may allow; smaller parts of the demand are not ruled out"
    text = f"{open_}: {plan.why.text}"
    return replace(plan, status="limit", termination="gap", why=replace(plan.why, text=text))


def _share(value: float, step: float) -> float:
    if value >= _WHOLE:
        return 1.0
    return value * step if value > _LEAST_SHARE else 0.0


def _part(instance: Instance, shares: Mapping[str, float]) -> Instance:
    """The same with a share of each class; classes of which nothing is served are left out."""
    classes = {
        name: item if shares[name] == 1.0 else item.part(shares[name])
        for name, item in instance.classes.items()
        if shares[name] > 0.0
    }
    models = {model for item in classes.values() for model in item.models}
    return replace(
        instance,
        classes=classes,
        models={name: item for name, item in instance.models.items() if name in models},
    )


def _told(plan: Plan, instance: Instance, shares: Mapping[str, float], served: Served, mip_gap: float) -> Plan:
    rows = tuple(
        ServedRow(
            cls=name,
            priority=item.priority,
            rate_rps=item.rate_rps,
            served_rps=item.rate_rps * shares[name],
            dropped_share=1.0 - shares[name],
        )
        for name, item in instance.classes.items()
    )
    dropped = [row for row in rows if row.dropped_share > 0.0]
    # classes above are served whole, classes below get what is left: the first of which some is dropped decides
    priority = max((row.priority for row in dropped), default=min(row.priority for row in rows))
    level = [row for row in rows if row.priority == priority]
    value = sum(row.served_rps for row in level)
    asked = sum(row.rate_rps for row in level)
    most = min(served.bounds_rps.get(priority, np.inf), asked)
    proven = (served.in_time or not dropped) and value >= most * (1.0 - max(mip_gap, 1.0 - _WHOLE))
    name = "served_rps" if len({row.priority for row in rows}) == 1 else f"served_rps of priority {priority}"
    return replace(
        plan,
        status=plan.status if proven else "feasible",
        termination=plan.termination if proven or plan.termination != "proven" else "gap",
        objective=ObjectiveRow(name=name, unit="requests/s", value=value, bound=most, proven=proven),
        served=rows,
    )
