"""Plan where the demand differs by period: one fleet for every hour or scenario, or a fleet that changes with it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qmodel.candidates import ColumnSet
from qmodel.evaluation import (
    Evaluation,
    assess,
    base_rows,
    limits_in_period,
    period_costs_usd,
    pool_cases,
    tokens_usd,
)
from qmodel.optimize import ChangingFleet, Choice, Frame, OneFleet, SolverOptions, check_solver, choose, stopped_by
from qmodel.planning.answers import price_rows, termination_of, without_fleet
from qmodel.planning.day_fleets import changing_fleets, joined_fleets, named_fleets, one_fleet
from qmodel.planning.day_problems import Day, at_once, binding_periods, columns_of, day_of, without_budget
from qmodel.planning.day_reasons import no_day_plan, over_budget, residence_notes
from qmodel.planning.period_plans import PeriodPlan, RiskRow
from qmodel.planning.planned_pools import PlannedKind, PlannedPool
from qmodel.planning.planner import plan_instance
from qmodel.planning.plans import Plan, Status, Termination, Why
from qmodel.planning.progress import Cancel, OnProgress, Progress
from qmodel.planning.rationale import reasons
from qmodel.planning.record import day_inputs, versions
from qmodel.planning.single_pools import with_single_pools
from qmodel.planning.verification import verify
from qmodel.problem import Instance
from qmodel.types import DayPurchase, Fleet, Path, RequestClass

__all__ = ["bounded", "day_plan"]

_ROUNDING = 1e-6  # of a cost


def day_plan(
    instance: Instance, *, options: SolverOptions, on_progress: OnProgress | None = None, cancel: Cancel | None = None
) -> Plan:
    """The least-cost fleet for every hour of a day, or fleets that change with the hour.

    Args:
        instance: the bound problem, with periods.
        options: solver, gap and time limit.
        on_progress: told where the search stands.
        cancel: asked between stages; a true answer stops the search.

    Raises:
        SolverUnavailableError: if the named solver is not installed.
    """
    check_solver(options.name)
    started, tell = time.perf_counter(), on_progress or (lambda _: None)
    periods = instance.periods
    assert periods is not None
    day = day_of(instance, options, started)
    instance = day.instance
    binding = binding_periods(day)
    if not periods.fleet_changes and all(len(found) == 1 for found in binding.values()):
        return _of_busiest(day, on_progress, cancel)
    tell(Progress(stage="frontier", done=0, total=len(day.groups)))
    sets = columns_of(day)
    if not day.served(sets):
        return no_day_plan(day.instances, instance, options, "infeasible", started)
    tell(Progress(stage="solve", done=0, total=1))
    left_s = max(options.time_limit_s - (time.perf_counter() - started), options.time_limit_s / 2.0)
    frame, factors = _frame(day, binding)
    limits = instance.limits
    within = replace(options, time_limit_s=left_s)
    with stopped_by(cancel):
        choice = choose(sets, day.members, limits, options=within, frame=frame, regimes=day.regimes)
    if cancel is not None and cancel():
        return plan_instance(at_once(instance), options=options, cancel=cancel)
    alike = len(day.regimes) == 1
    if choice.empty and choice.outcome == "time" and not periods.fleet_changes and alike:
        plan = _of_busiest(day, on_progress, cancel)  # serves every period, at no less than it may take
        return bounded(plan, choice.bound_usd_per_hour, options, "time")
    if choice.empty:
        return no_day_plan(day.instances, instance, options, choice.outcome, started, choice.words)
    tell(Progress(stage="verify", done=0, total=1))
    if periods.fleet_changes:
        pools = changing_fleets(day.instances, choice, day.solve)
        holdings = [[item.holding for item in own] for own in pools]
        bought = limits_in_period(limits, day.purchases(holdings))
        pools = joined_fleets(pools, day.candidates.candidates, [bought] * len(pools))
        return _planned(day, sets, choice, pools, named_fleets(pools, lasting=False))
    classes = [day.classes_in(place) for place in _places(day, binding)]
    pools = one_fleet(instance, choice, factors, day.solve, classes)
    if choice.cost_usd_per_hour > choice.bound_usd_per_hour * (1.0 + options.mip_gap) and not instance.apis:
        names = [[one.name for one in members] for members in day.groups.values()]
        demands = [_thinned(own, asked) for own, asked in zip(classes, factors, strict=True)]
        pools = with_single_pools(pools, names, day.candidates.candidates, demands, limits)
    return _planned(day, sets, choice, pools, _lasting(day, pools, binding))


def bounded(plan: Plan, bound: float, options: SolverOptions, outcome: str) -> Plan:
    """A plan with the bound of the whole problem instead of that of the part that was planned.

    Args:
        plan: with a fleet, or without one, which stays as it is.
        bound: on every fleet, USD/h; infinite where none was found.
        options: the gap at which a plan counts as optimal.
        outcome: of the program that gave the bound.
    """
    if plan.cost_usd_per_hour is None:
        return plan
    cost = plan.cost_usd_per_hour
    known = np.isfinite(bound) and bound <= cost * (1.0 + _ROUNDING)
    gap = max(cost - bound, 0.0) / cost if known else None
    proven = gap is not None and gap <= options.mip_gap + _ROUNDING
    return replace(
        plan,
        status="optimal" if proven else "feasible",
        termination="proven" if proven else termination_of(outcome),
        bound_usd_per_hour=min(bound, cost) if known else None,
        gap=gap,
    )


def _frame(day: Day, binding: Mapping[str, Sequence[int]]) -> tuple[Frame, list[dict[str, float]]]:
    """How the periods make one program, and the factors of each class in the periods of that program."""
    items = day.periods.items
    if day.periods.fleet_changes:
        factors = [dict(item.factors) for item in items]
    else:
        most = max(len(found) for found in binding.values())
        factors = [
            {
                one.name: items[found[min(number, len(found) - 1)]].factors[one.name]
                for group, found in binding.items()
                for one in day.groups[group]
            }
            for number in range(most)
        ]
    table = np.array([[own[item.name] for item in day.everyone] for own in factors])
    regimes = tuple(day.periods.regimes[place] for place in _places(day, binding))
    if day.periods.fleet_changes:
        periods, limits = day.periods, day.instance.limits
        changing = ChangingFleet(
            factors=table, layers=periods.layers, limits=limits, regimes=regimes, risk=periods.risk
        )
        return changing, factors
    weights = [day.periods.items[place].weight for place in _places(day, binding)] if day.instance.apis else []
    return OneFleet(factors=table, weights=np.array(weights), regimes=regimes), factors


def _places(day: Day, binding: Mapping[str, Sequence[int]]) -> list[int]:
    """For each period of the program one with its lengths."""
    if day.periods.fleet_changes:
        return list(range(len(day.periods.items)))
    most = max(len(places) for places in binding.values())
    return next(list(places) for places in binding.values() if len(places) == most)


def _of_busiest(day: Day, on_progress: OnProgress | None, cancel: Cancel | None) -> Plan:
    """One fleet where the classes that share pools are busiest together: that of all classes at their largest rates."""
    plan = plan_instance(at_once(day.instance), options=day.options, on_progress=on_progress, cancel=cancel)
    if plan.status == "infeasible":
        outcome, started_s = "infeasible", day.started_s
        return no_day_plan(day.instances, day.instance, day.options, outcome, started_s, together=plan.why)
    if plan.fleet is None:
        return plan
    fleet = plan.fleet
    fleets = [replace(fleet, routing={name: fleet.routing[name] for name in item.classes}) for item in day.instances]
    seen = _seen(day, fleets)
    hour = seen.busiest(day.instances)
    result = seen.results[hour]
    assert result is not None
    return _verified(
        day,
        replace(
            plan,
            pools=result.pools,
            routing=result.routing,
            slo=result.slo,
            latency=result.latency,
            purchases=result.purchases,
            fleet=fleets[hour],
            **seen.of_day(day, hour),
        ),
    )


def _thinned(classes: Mapping[str, RequestClass], factors: Mapping[str, float]) -> dict[str, RequestClass]:
    """Classes at their largest rates as a period of the program asks for them."""
    return {name: item.part(factors[name]) for name, item in classes.items() if factors[name] > 0.0}


def _lasting(
    day: Day,
    pools: Sequence[Sequence[PlannedKind]],
    binding: Mapping[str, Sequence[int]],
) -> list[Fleet]:
    """One fleet with the routing of each period: that of one which asks for no less, scaled down."""
    routed = named_fleets(pools, lasting=True)
    fleets = []
    regimes = day.periods.regimes
    for here, (item, alone) in enumerate(zip(day.periods.items, day.instances, strict=True)):
        routing: dict[str, tuple[Path, ...]] = {}
        for group, members in day.groups.items():
            number = next(
                place
                for place, period in sorted(enumerate(binding[group]), key=lambda found: found[1] != here)
                if regimes[period] == regimes[here]
                and all(day.periods.items[period].factors[one.name] >= item.factors[one.name] for one in members)
            )
            routing |= {one.name: routed[number].routing[one.name] for one in members if one.name in alone.classes}
        fleets.append(Fleet(pools=routed[0].pools, routing={name: routing[name] for name in alone.classes}))
    return fleets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Seen:
    """The fleets of a day, evaluated.

    Attributes:
        results: by period; None where nothing is asked for.
        costs: of an hour of each period, USD.
        purchases: where the fleet changes, by GPU type.
    """

    fleets: tuple[Fleet, ...]
    results: tuple[Evaluation | None, ...]
    costs: tuple[float, ...]
    purchases: Mapping[str, DayPurchase]

    def busiest(self, instances: Sequence[Instance]) -> int:
        """The dearest period, and of equals the one whose fullest pool is the fullest."""
        loads = [
            max((row.utilisation or 0.0 for row in result.pools), default=0.0) if result is not None else -1.0
            for result in self.results
        ]
        keys = [
            (result is not None, round(cost, 6), load)
            for result, cost, load in zip(self.results, self.costs, loads, strict=True)
        ]
        return max(range(len(instances)), key=lambda place: (keys[place], -place))

    def of_day(self, day: Day, hour: int) -> dict[str, Any]:
        """Parts of a plan that speak of the whole day."""
        rows = []
        for item, alone, fleet, result, cost in zip(
            day.periods.items, day.instances, self.fleets, self.results, self.costs, strict=True
        ):
            rows.append(
                PeriodPlan(
                    hours=item.hours,
                    scenario=item.scenario,
                    weight=item.weight,
                    rates_rps={name: one.rate_rps for name, one in alone.classes.items()},
                    output_tokens={name: one.lengths.output.mean for name, one in alone.classes.items()},
                    cost_usd_per_hour=cost,
                    fleet=fleet,
                    pools=() if result is None else result.pools,
                    routing=() if result is None else result.routing,
                    slo=() if result is None else result.slo,
                    purchases=() if result is None else result.purchases,
                    leaving=() if result is None else result.leaving,
                )
            )
        result = self.results[hour]
        assert result is not None
        notes = (f"tables are of {day.periods.items[hour].title}, the busiest; the others are in periods",)
        return {
            "periods": tuple(rows),
            "base": base_rows(day.instance.limits, self.purchases),
            "busiest": day.periods.items[hour].name,
            "risk": RiskRow.of_costs(day.periods, self.costs),
            "assumptions": (*result.assumptions, *notes, *residence_notes(day.instance, day.periods, result)),
            "inputs": day_inputs(day.instance, self.fleets, mip_gap=day.options.mip_gap),
            "run": {"total_s": time.perf_counter() - day.started_s},
        }


def _seen(day: Day, fleets: Sequence[Fleet]) -> _Seen:
    """Every period evaluated, and what the day costs."""
    limits, purchases = day.instance.limits, dict[str, DayPurchase]()
    within, costs = without_budget(limits), list[float]()
    if day.periods.fleet_changes:
        holdings = [fleet.holdings for fleet in fleets]
        purchases = day.purchases(holdings)
        within = limits_in_period(limits, purchases)
        costs = period_costs_usd(limits, holdings, day.periods, purchases)
    whole = replace(day.instance, limits=within)  # replicas are those of the candidates, whatever the mix of an hour
    results = [
        assess(
            alone.classes,
            pool_cases(whole, fleet, routed=alone.classes),
            fleet,
            limits=within,
            confidence=day.instance.policy.confidence,
            assumptions=day.instance.assumptions,
        )
        if alone.classes
        else None
        for alone, fleet in zip(day.instances, fleets, strict=True)
    ]
    if not costs:
        first = next(result for result in results if result is not None)
        costs = [first.cost_usd_per_hour - tokens_usd(first)] * len(fleets)
    costs = [cost + tokens_usd(result) for cost, result in zip(costs, results, strict=True)]
    return _Seen(fleets=tuple(fleets), results=tuple(results), costs=tuple(costs), purchases=purchases)


def _planned(
    day: Day,
    sets: Mapping[str, ColumnSet],
    choice: Choice,
    pools: Sequence[Sequence[PlannedKind]],
    fleets: Sequence[Fleet],
) -> Plan:
    seen = _seen(day, fleets)
    cost = day.periods.value(seen.costs)
    bound = choice.bound_usd_per_hour
    budget = day.instance.limits.budget_usd_per_hour
    if budget is not None and cost > budget * (1.0 + _ROUNDING):
        return over_budget(day.instance, cost, bound, budget, day.started_s)
    known = np.isfinite(bound) and bound <= cost * (1.0 + _ROUNDING)
    gap = max(cost - bound, 0.0) / cost if known else None
    proven = gap is not None and gap <= day.options.mip_gap + _ROUNDING
    status: Status = "optimal" if proven else "feasible"
    termination: Termination = "proven" if proven else termination_of(choice.outcome)
    hour = seen.busiest(day.instances)
    result = seen.results[hour]
    assert result is not None
    own = day.regimes[day.periods.regimes[hour]]
    why = reasons(
        {group: sets[group] for group in own},
        {group: day.members[group] for group in own},
        day.candidates,
        [item for item in pools[hour if day.periods.fleet_changes else 0] if isinstance(item, PlannedPool)],
        result.pools,
        tight=(),
        outcome="solved" if proven else choice.outcome,
    )
    return _verified(
        day,
        Plan(
            title=day.instance.title,
            status=status,
            termination=termination,
            cost_usd_per_hour=cost,
            bound_usd_per_hour=min(bound, cost) if known else None,
            gap=gap,
            gap_columns=max(cost - choice.columns_bound_usd_per_hour, 0.0) / cost,
            fleet=seen.fleets[hour],
            pools=result.pools,
            routing=result.routing,
            slo=result.slo,
            latency=result.latency,
            purchases=result.purchases,
            leaving=result.leaving,
            prices=price_rows(choice, day.instance.limits, day.instance.classes),
            why=why,
            scenario=day.instance.scenario,
            versions=versions(day.instance),
            **seen.of_day(day, hour),
        ),
    )


def _verified(day: Day, plan: Plan) -> Plan:
    check = verify(plan)
    if check.ok:
        return plan
    text = f"the plan did not pass its own verification: {check.first_failure}"
    return without_fleet(day.instance, "limit", "solver_error", Why(text=text), day.started_s)
