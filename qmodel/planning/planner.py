"""Plan a fleet: enumerate, trace the frontier, solve, re-score, verify."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates import CandidateSet, ColumnSet, columns_for_model, enumerate_candidates
from qmodel.evaluation import evaluate_fleet
from qmodel.optimize import Choice, Diagnosis, SolverOptions, check_solver, choose, diagnose
from qmodel.planning.assembly import PlannedPool, assemble, grown_for, pools_of
from qmodel.planning.merging import merged
from qmodel.planning.plans import Plan, PriceRow, Status, Termination, Why
from qmodel.planning.progress import Cancel, OnProgress, Progress
from qmodel.planning.rationale import reasons
from qmodel.planning.record import plan_inputs, versions
from qmodel.planning.verification import verify
from qmodel.problem import Instance, at_confidence, replica_of
from qmodel.types import Replica, RequestClass

__all__ = ["plan_instance"]

_ROUNDING = 1e-6  # of a cost
_LEAST_TIME_S = 0.05  # a second integer program gets at least this


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Search:
    """One planning problem with everything the search has found so far."""

    instance: Instance
    options: SolverOptions
    started_s: float
    candidates: CandidateSet
    sets: Mapping[str, ColumnSet]
    classes: Mapping[str, tuple[RequestClass, ...]]
    stock: dict[str, int]
    solve_s: float = 0.0


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
    started = time.perf_counter()
    tell = on_progress or (lambda _: None)
    tell(Progress(stage="layouts", done=0, total=len(instance.models)))
    candidates = enumerate_candidates(instance)
    classes = {model: instance.classes_of(model) for model in instance.models}
    sets: dict[str, ColumnSet] = {}
    for done, model in enumerate(instance.models):
        if cancel is not None and cancel():
            return _cancelled(instance, started)
        tell(Progress(stage="frontier", done=done, total=len(instance.models)))
        sets[model] = columns_for_model(candidates.of(model), classes[model])
    search = _Search(
        instance=instance,
        options=options,
        started_s=started,
        candidates=candidates,
        sets=sets,
        classes=classes,
        stock={name: item.max_count for name, item in instance.gpus.items() if item.max_count is not None},
    )
    if not all(any(counts) for found in sets.values() for counts in _partial(found)):
        return _infeasible(search)
    tell(Progress(stage="solve", done=0, total=1))
    search, choice = _chosen(search)
    if cancel is not None and cancel():
        return _cancelled(instance, started)
    if not choice.chosen:
        return _no_choice(search, choice)
    tell(Progress(stage="verify", done=0, total=1, bound_usd_per_hour=_finite(choice.bound_usd_per_hour)))
    return _planned(search, choice)


def _chosen(search: _Search) -> tuple[_Search, Choice]:
    """The choice within stock, and the search with the columns it was made from.

    Classes that compete for stock may each need what is not cheapest for them alone. The
    columns leave such pools out, so they are tried first as if stock were not shared: that
    choice and its bound hold if it fits. If not, every count becomes a column.
    """
    started = time.perf_counter()
    shared = bool(search.stock) and len(search.instance.classes) > 1
    choice = choose(search.sets, search.classes, {} if shared else search.stock, options=search.options)
    if shared and not choice.fits(search.stock):
        sets = {
            model: columns_for_model(found.candidates, search.classes[model], every_count=True)
            for model, found in search.sets.items()
        }
        left_s = max(search.options.time_limit_s - (time.perf_counter() - started), _LEAST_TIME_S)
        search = replace(search, sets=sets)
        choice = choose(sets, search.classes, search.stock, options=replace(search.options, time_limit_s=left_s))
    return replace(search, solve_s=time.perf_counter() - started), choice


def _partial(found: ColumnSet) -> list[list[bool]]:
    """For each class of a model, which columns carry some of it; empty lists where nothing does."""
    return [[name in column.shares for column in found.columns] for name in found.least]


def _planned(search: _Search, choice: Choice) -> Plan:
    instance, options = search.instance, search.options
    pools = pools_of(instance, choice.chosen, search.stock)
    pools = merged(pools, search.candidates.candidates, search.stock)
    fleet = assemble(pools)
    result = evaluate_fleet(instance, fleet)
    cost = result.cost_usd_per_hour
    bound = _bound_below(cost, choice.bound_usd_per_hour)
    gap = None if bound is None else max(cost - bound, 0.0) / cost
    proven = gap is not None and gap <= options.mip_gap + _ROUNDING
    status: Status = "optimal" if proven else "feasible"
    termination: Termination = "proven" if proven else ("time" if choice.outcome == "time" else "gap")
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
        prices=_price_rows(choice),
        why=reasons(search.sets, search.candidates, pools, result.pools, in_time=choice.outcome != "time"),
        cost_at_p90_usd_per_hour=_cost_at_p90(instance, pools, cost),
        assumptions=result.assumptions,
        scenario=instance.scenario,
        inputs=plan_inputs(instance, fleet, mip_gap=options.mip_gap),
        versions=versions(instance),
        run=_run(search),
    )
    check = verify(plan)
    if not check.ok:
        why = Why(text=f"the plan did not pass its own verification: {check.first_failure}")
        return _without_fleet(instance, "limit", "solver_error", why, search.started_s)
    return plan


def _cancelled(instance: Instance, started_s: float) -> Plan:
    return _without_fleet(instance, "limit", "cancelled", Why(text="the search was cancelled"), started_s)


def _infeasible(search: _Search) -> Plan:
    found = diagnose(search.candidates, search.sets, search.classes, search.stock)
    return _without_fleet(search.instance, "infeasible", "proven", _why_not(found), search.started_s)


def _no_choice(search: _Search, choice: Choice) -> Plan:
    if choice.outcome == "infeasible":
        return _infeasible(search)
    if choice.outcome == "unsettled":
        found = diagnose(search.candidates, search.sets, search.classes, search.stock)
        text = "no fleet of the pools tried meets every target within stock; other fleets are not ruled out"
        why = replace(_why_not(found), text=text)
        return _without_fleet(search.instance, "limit", "gap", why, search.started_s, choice.bound_usd_per_hour)
    if choice.outcome == "time":
        why = Why(
            text=f"no fleet was found within {search.options.time_limit_s:g} s",
            limit="--time-limit",
            change="raise the time limit",
        )
        return _without_fleet(search.instance, "limit", "time", why, search.started_s, choice.bound_usd_per_hour)
    why = Why(text=f"solver '{search.options.name}' failed: {choice.words}", change="try another --solver")
    return _without_fleet(search.instance, "limit", "solver_error", why, search.started_s, choice.bound_usd_per_hour)


def _without_fleet(
    instance: Instance,
    status: Status,
    termination: Termination,
    why: Why,
    started_s: float,
    bound_usd_per_hour: float = -np.inf,
) -> Plan:
    return Plan(
        title=instance.title,
        status=status,
        termination=termination,
        cost_usd_per_hour=None,
        bound_usd_per_hour=_finite(bound_usd_per_hour),
        gap=None,
        gap_columns=None,
        fleet=None,
        pools=(),
        routing=(),
        slo=(),
        latency=(),
        prices=(),
        why=why,
        assumptions=instance.assumptions,
        scenario=instance.scenario,
        inputs={},
        versions=versions(instance),
        run={"total_s": time.perf_counter() - started_s},
    )


def _why_not(found: Diagnosis) -> Why:
    return Why(text=found.text, limit=found.limit, best=found.best, change=found.change)


def _price_rows(choice: Choice) -> tuple[PriceRow, ...]:
    unit = {"cover": "classes.{}.rate_rps", "stock": "fleet.gpus.{}.max_count"}
    return tuple(
        PriceRow(limit=unit[item.kind].format(item.name), usd_per_hour_per_unit=item.usd_per_hour)
        for item in choice.prices
    )


def _cost_at_p90(instance: Instance, pools: Sequence[PlannedPool], cost: float) -> float | None:
    """Cost of the pools grown until they hold every target at the upper band; None where that is beyond stock."""
    exact = all(item.candidate.replica.step.band.p90 == 0.0 for item in pools)
    if exact or instance.policy.confidence == "p90":
        return cost
    slower = []
    for item in pools:
        chosen = item.candidate
        nominal = replica_of(
            instance, model=chosen.model, gpu=chosen.gpu, layout=chosen.layout, precision=chosen.precision
        )
        assert isinstance(nominal, Replica)
        slower.append(replace(chosen, replica=at_confidence(nominal, "p90")))
    return grown_for(pools, slower, {name: item.max_count for name, item in instance.gpus.items()})


def _run(search: _Search) -> dict[str, float]:
    return {
        "solve_s": search.solve_s,
        "total_s": time.perf_counter() - search.started_s,
        "candidates": float(len(search.candidates.candidates)),
        "refused_layouts": float(len(search.candidates.refused)),
        "columns": float(sum(len(found.columns) for found in search.sets.values())),
    }


def _bound_below(cost: float, bound: float) -> float | None:
    """The bound without rounding above the cost; None without one, or where the fleet disproves it."""
    return min(bound, cost) if np.isfinite(bound) and bound <= cost * (1.0 + _ROUNDING) else None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
