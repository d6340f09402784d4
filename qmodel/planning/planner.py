"""Plan a fleet: enumerate, trace the frontier, solve, re-score, verify."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from qmodel.candidates import (
    NO_STAGES,
    CandidateSet,
    Column,
    ColumnSet,
    StageColumns,
    columns_by_stage,
    columns_for_group,
    enumerate_candidates,
    open_pools_of,
)
from qmodel.evaluation import Evaluation, evaluate_fleet
from qmodel.optimize import (
    Choice,
    SolverOptions,
    check_solver,
    choose,
    stopped_by,
)
from qmodel.planning.answers import bound_below, cost_at_p90, finite, price_rows, termination_of, without_fleet
from qmodel.planning.built_fleets import BuiltFleet, build
from qmodel.planning.fleet_wide_plans import as_choice, best_over_fleet, wide_groups
from qmodel.planning.measured_pools import measured_alternatives
from qmodel.planning.no_fleets import cancelled_plan, infeasible_plan, over_budget, without_choice
from qmodel.planning.planned_pools import PlannedMeasured
from qmodel.planning.plans import Plan, Status, Termination, Why
from qmodel.planning.progress import Cancel, OnProgress, Progress
from qmodel.planning.rationale import reasons
from qmodel.planning.record import plan_inputs, versions
from qmodel.planning.search import LEAST_TIME_S, Search, chosen_within, left_of
from qmodel.planning.served_models import (
    able_groups,
    alone_with_its_model,
    left_out_notes,
    out_of_reach,
    share_of_none,
)
from qmodel.planning.verification import verify
from qmodel.problem import Instance
from qmodel.types import RequestClass, SloRow, replicas_by_kind

__all__ = ["plan_instance"]

_ROUNDING = 1e-6  # of a cost
_PARTS_LATE = Why(
    text="a batch fits within the limits in parts only, each done in time as surely as asked for, but not all of them",
    limit="fleet",
    change="raise the limits of the fleet, or the deadline",
)


def plan_instance(
    instance: Instance,
    *,
    options: SolverOptions,
    on_progress: OnProgress | None = None,
    cancel: Cancel | None = None,
) -> Plan:
    """The least-cost fleet for a bound problem, or the typed reason why there is none.

    Args:
        instance: the bound problem.
        options: solver, gap and time limit.
        on_progress: told where the search stands.
        cancel: asked between stages; a true answer stops the search.

    Raises:
        SolverUnavailableError: if the named solver is not installed.
    """
    check_solver(options.name)
    with stopped_by(cancel):
        return _plan_either_way(instance, options, on_progress, cancel)


def _plan_either_way(
    instance: Instance, options: SolverOptions, on_progress: OnProgress | None, cancel: Cancel | None
) -> Plan:
    """With unified pools, and where these are not enough with separate prefill and decode pools too."""
    apart = instance.layouts.disaggregate
    plan = _plan(instance, options, on_progress, cancel, apart=apart is True)
    if apart != "auto" or plan.fleet is not None or plan.termination not in ("proven", "gap"):
        return plan
    # what prefill and decode pools apart can do where unified ones are not enough
    told = "no fleet of unified pools meets every target: separate prefill and decode pools were tried"
    again = replace(instance, assumptions=(*instance.assumptions, told))
    other = _plan(again, options, on_progress, cancel, apart=True)
    return plan if other.status == "infeasible" else other


def _plan(
    instance: Instance, options: SolverOptions, on_progress: OnProgress | None, cancel: Cancel | None, *, apart: bool
) -> Plan:
    """The plan with unified pools, and with separate prefill and decode pools beside them if ``apart``."""
    started = time.perf_counter()
    tell = on_progress or (lambda _: None)
    tell(Progress(stage="layouts", done=0, total=len(instance.models)))
    candidates = enumerate_candidates(instance)
    classes = _in_order(instance.sharing())
    stages = NO_STAGES
    if apart:
        tell(Progress(stage="frontier", done=0, total=len(classes)))
        stages = columns_by_stage(
            instance,
            candidates.candidates,
            classes,
            every_count=instance.limits.pays_nodes,
            keep_all=instance.limits.change is not None,
        )
        instance = replace(instance, assumptions=(*instance.assumptions, *stages.notes))
    sets: dict[str, ColumnSet] = {}
    for done, (group, members) in enumerate(classes.items()):
        if cancel is not None and cancel():
            return cancelled_plan(instance, started)
        tell(Progress(stage="frontier", done=done, total=len(classes)))
        sets[group] = _columns(instance, candidates, members, stages)
    if any(len(item.models) > 1 for item in instance.classes.values()):
        able = able_groups(sets, classes, stages)
        short = share_of_none(classes, able, alone_with_its_model(candidates, sets, instance.limits, options, stages))
        if short is not None:
            return without_fleet(instance, "infeasible", "proven", short, started)
        sets = {
            group: sets[group] if members == classes[group] else _columns(instance, candidates, members, stages)
            for group, members in able.items()
        }
        instance = replace(instance, assumptions=(*instance.assumptions, *left_out_notes(classes, able)))
        classes = able
        short = out_of_reach(able)
        if short is not None:
            return without_fleet(instance, "infeasible", "proven", short, started)
    search = Search(
        instance=instance,
        options=options,
        started_s=started,
        candidates=candidates,
        sets=sets,
        classes=classes,
        stages=stages,
    )
    tell(Progress(stage="solve", done=0, total=1))
    if instance.policy.slo_scope == "fleet":
        return _over_fleet(search, tell, cancel)
    if not search.serves_all:
        return infeasible_plan(search)
    search, choice = chosen_within(search)
    if cancel is not None and cancel():
        return cancelled_plan(instance, started)
    for hopeful in search.stages.hopeful if choice.outcome == "unsettled" else ():
        # what no split is sufficient for may still hold from end to end
        other = choose(search.sets, search.classes, search.limits, options=options, stages=hopeful)
        if not other.empty:
            search, choice = replace(search, stages=hopeful), other
            break
    if choice.empty:
        return without_choice(search, choice)
    tell(Progress(stage="verify", done=0, total=1, bound_usd_per_hour=finite(choice.bound_usd_per_hour)))
    return _planned(search, choice)


def _columns(
    instance: Instance, candidates: CandidateSet, members: Sequence[RequestClass], stages: StageColumns
) -> ColumnSet:
    """Columns of a group; of a class that several models may serve any part may be asked for, so every count counts."""
    model = members[0].model
    return columns_for_group(
        candidates.of(model, members[0].name),
        members,
        open_pools=open_pools_of(candidates.measured_of(model), members),
        every_count=instance.limits.pays_nodes or any(len(item.models) > 1 for item in members),
        keep_all=instance.limits.change is not None,
        elsewhere_usd=stages.least_usd,
    )


def _in_order(groups: Mapping[str, tuple[RequestClass, ...]]) -> dict[str, tuple[RequestClass, ...]]:
    """Groups and their classes by name, so that the plan does not depend on the order of the scenario."""
    return {name: tuple(sorted(members, key=lambda item: item.name)) for name, members in sorted(groups.items())}


def _over_fleet(search: Search, tell: OnProgress, cancel: Cancel | None) -> Plan:
    """The plan where targets hold over all pools of a class: it starts from the one whose pools meet them all."""
    started = time.perf_counter()
    instance, limits, able = search.instance, search.limits, search.candidates.candidates
    built: BuiltFleet | None = None
    chosen: Sequence[tuple[Column, int]] = ()
    if search.serves_all:
        search, choice = chosen_within(search)
        if not choice.empty:
            built = build(instance, choice, (), able, limits, search.sets, options=search.options)
            chosen = choice.chosen
        if cancel is not None and cancel():
            return cancelled_plan(instance, search.started_s)
    groups = wide_groups(search.sets, search.classes, chosen, instance)
    wide, built = best_over_fleet(instance, able, groups, built, left_of(search.options, started))
    search = replace(search, solve_s=time.perf_counter() - started)
    choice = as_choice(wide, built, limits)
    if built is None:
        return without_choice(search, choice, wide.master)
    tell(Progress(stage="verify", done=0, total=1, bound_usd_per_hour=finite(choice.bound_usd_per_hour)))
    return _planned(search, choice, built)


def _planned(search: Search, choice: Choice, built: BuiltFleet | None = None) -> Plan:
    instance, options = search.instance, search.options
    if built is not None:
        found: tuple[BuiltFleet, Evaluation] | None = built, evaluate_fleet(instance, built.fleet)
    else:
        found = _evaluated(search, choice, trusting=True)
        if found is not None and not found[1].feasible:
            found = _evaluated(search, choice, trusting=False)
    if found is None:  # pools in a row do not keep what their columns promised, and no few replicas help
        return _unified_only(search, choice)
    built, result = found
    pools, row, fleet = built.pools, built.row, result.fleet
    if any(row.path == "fleet" and row.metric == "makespan" and not _holds(row, instance) for row in result.slo):
        return without_fleet(instance, "limit", "gap", _PARTS_LATE, search.started_s, choice.bound_usd_per_hour)
    change = search.limits.change
    moved = () if change is None else change.rows(replicas_by_kind(fleet))
    moved_usd_per_hour = 0.0 if change is None else change.usd_per_hour(replicas_by_kind(fleet))
    cost = result.cost_usd_per_hour + moved_usd_per_hour
    bound = bound_below(cost, choice.bound_usd_per_hour)
    if search.limits.budget_usd_per_hour is not None and cost > search.limits.budget_usd_per_hour:
        return over_budget(search, cost, choice.bound_usd_per_hour)
    gap = None if bound is None else max(cost - bound, 0.0) / cost
    proven = gap is not None and gap <= options.mip_gap + _ROUNDING
    status: Status = "optimal" if proven else "feasible"
    termination: Termination = "proven" if proven else termination_of(choice.outcome)
    plan = Plan(
        title=instance.title,
        status=status,
        termination=termination,
        cost_usd_per_hour=cost,
        bound_usd_per_hour=bound,
        gap=gap,
        gap_columns=max(cost - choice.columns_bound_usd_per_hour, 0.0) / cost,
        fleet=fleet,
        pools=result.pools,
        routing=result.routing,
        slo=result.slo,
        latency=result.latency,
        purchases=result.purchases,
        changes=moved,
        change_usd_per_hour=moved_usd_per_hour,
        prices=price_rows(choice, instance.limits, instance.classes),
        links=result.links,
        quality=result.quality,
        leaving=result.leaving,
        why=_reasons(search, choice, built, result),
        cost_at_p90_usd_per_hour=cost_at_p90(instance, pools, row, cost, result.slo),
        assumptions=result.assumptions,
        scenario=instance.scenario,
        inputs=plan_inputs(instance, fleet, mip_gap=options.mip_gap),
        versions=versions(instance),
        run=_run(search),
    )
    check = verify(plan)
    if not check.ok:
        why = Why(text=f"the plan did not pass its own verification: {check.first_failure}")
        return without_fleet(instance, "limit", "solver_error", why, search.started_s)
    return plan


def _evaluated(search: Search, choice: Choice, *, trusting: bool) -> tuple[BuiltFleet, Evaluation] | None:
    """The cheapest fleet of what was chosen with its predictions; None where pools in a row miss targets."""
    built = _built(search, choice, trusting)
    return None if built is None else (built, evaluate_fleet(search.instance, built.fleet))


def _built(search: Search, choice: Choice, trusting: bool) -> BuiltFleet | None:
    """The cheapest fleet of what was chosen.

    Targets over both stages are split in a way that is sufficient. Where that leaves a gap, masters that give
    each stage the whole of them are asked too: what their fleets take to meet them from end to end may be less.
    """
    limits, able = search.limits, search.candidates.candidates

    def of(one: Choice, stages: StageColumns) -> BuiltFleet | None:
        instance, options = search.instance, search.options
        return build(instance, one, stages.chains, able, limits, search.sets, options=options, trusting=trusting)

    found = [of(item, search.stages) for item in (choice, *choice.doubtful)]
    open_gap = choice.cost_usd_per_hour > choice.bound_usd_per_hour * (1.0 + search.options.mip_gap)
    until_s = time.perf_counter() + search.options.time_limit_s - search.solve_s
    for hopeful in search.stages.hopeful if open_gap else ():
        left_s = until_s - time.perf_counter()
        if left_s <= 0.0:
            break
        options = replace(
            search.options, time_limit_s=max(min(left_s, search.options.time_limit_s / 4.0), LEAST_TIME_S)
        )
        other = choose(search.sets, search.classes, limits, options=options, stages=hopeful)
        if not other.empty:
            found.append(of(other, hopeful))
    fleets = [item for item in found[:1] if item is not None]
    fleets += [item for item in found[1:] if item is not None and limits.broken(item.holdings) is None]
    return min(fleets, key=lambda item: item.cost_usd_per_hour(limits), default=None)


def _holds(row: SloRow, instance: Instance) -> bool:
    """Whether a target is met at the confidence in force."""
    return row.met_at_p90 if instance.policy.confidence == "p90" else row.met


def _unified_only(search: Search, choice: Choice) -> Plan:
    """The plan without separate pools; the bound of all still holds."""
    alone, found = chosen_within(replace(search, stages=NO_STAGES))
    bound = min(choice.bound_usd_per_hour, found.bound_usd_per_hour)
    found = replace(found, bound_usd_per_hour=bound)
    if found.outcome == "infeasible":  # of unified pools only
        found = replace(found, outcome="unsettled")
    return without_choice(alone, found) if found.empty else _planned(alone, found)


def _reasons(search: Search, choice: Choice, built: BuiltFleet, result: Evaluation) -> Why:
    measured = [item for item in built.pools if isinstance(item, PlannedMeasured)]
    pools = (*built.pools, *built.row.pools)
    tight = _tight(search, choice, result)
    outcome = choice.outcome
    why = reasons(search.sets, search.classes, search.candidates, pools, result.pools, tight=tight, outcome=outcome)
    more = measured_alternatives(search.instance, search.candidates, measured, result.cost_usd_per_hour)
    return replace(why, alternatives=(*why.alternatives, *more))


def _tight(search: Search, choice: Choice, result: Evaluation) -> list[str]:
    """Limits of which nothing is left, of which more would make the fleet cheaper, or that ruled a cheaper one out."""
    limits, holdings = search.limits, result.fleet.holdings
    priced = {(item.kind, item.name) for item in choice.prices}
    found = []
    for cap in limits.caps:
        used = limits.used(cap, holdings)
        spent = used >= cap.most * (1.0 - _ROUNDING)
        if spent or (cap.kind, cap.name) in priced or cap.key in search.pressing:
            found.append(f"{cap.key} ({used:.4g} of {cap.most:g})")
    return found


def _run(search: Search) -> dict[str, float]:
    return {
        "solve_s": search.solve_s,
        "total_s": time.perf_counter() - search.started_s,
        "candidates": float(len(search.candidates.candidates) + len(search.candidates.measured)),
        "refused_layouts": float(len(search.candidates.refused)),
        "columns": float(sum(len(item.columns) for item in (*search.sets.values(), *search.stages.sets.values()))),
    }
