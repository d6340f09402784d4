"""Re-derive what a plan says of a day: the fleet of every hour, what is bought, and the mean cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from qmodel.evaluation import (
    Evaluation,
    base_rows,
    day_purchases,
    limits_in_period,
    period_costs_usd,
    tokens_usd,
)
from qmodel.planning.period_plans import RiskRow
from qmodel.planning.plans import Plan
from qmodel.planning.record import limits_from, periods_from
from qmodel.types import HOURS, Limits, Periods, risk_words

__all__ = ["DayCosts", "day_costs", "day_problem"]

_RELATIVE = 1e-6  # digits that may differ between machines


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCosts:
    """What the fleets of a day cost, derived from their pools alone.

    Attributes:
        within: limits of the fleet of one period, what is bought included.
        each: of an hour of each period, USD; empty where one fleet stands all day.
    """

    within: Limits
    each: tuple[float, ...]


def day_costs(plan: Plan) -> DayCosts:
    """What a plan's periods buy and cost.

    Args:
        plan: with periods.
    """
    limits, periods = limits_from(plan.inputs), periods_from(plan.inputs)
    if not periods.fleet_changes:
        return DayCosts(within=_without_budget(limits), each=())
    holdings = [item.fleet.holdings for item in plan.periods]
    bought = day_purchases(limits, holdings, periods, _stated_base(plan, periods))
    return DayCosts(
        within=limits_in_period(limits, bought), each=tuple(period_costs_usd(limits, holdings, periods, bought))
    )


def day_problem(plan: Plan, costs: DayCosts, results: Sequence[Evaluation | None]) -> str:
    """What is wrong with the periods of a plan taken together; empty where nothing is.

    Args:
        plan: with periods.
        costs: of its periods.
        results: of the fleet of each period; None where nothing is asked for.
    """
    limits, periods = limits_from(plan.inputs), periods_from(plan.inputs)
    checks: tuple[Callable[[], str], ...] = (
        lambda: _whole(plan, periods),
        lambda: "" if periods.fleet_changes else _lasting(plan),
        lambda: _base(plan, limits, periods),
        lambda: _cost(plan, limits, periods, costs, results),
        lambda: _tables(plan),
    )
    return next((problem for check in checks if (problem := check())), "")


def _without_budget(limits: Limits) -> Limits:
    return Limits.from_dict({**limits.to_dict(), "budget_usd_per_hour": None})


def _whole(plan: Plan, periods: Periods) -> str:
    """The hours are a day, or the scenarios weigh enough."""
    if periods.of_scenarios:
        served = sum(item.weight for item in periods.items)
        total = served + sum(item.weight for item in periods.left_out)
        enough = served >= periods.least_weight - _RELATIVE and math.isclose(total, 1.0, rel_tol=_RELATIVE)
        return "" if enough else f"the scenarios served weigh {served:g}, {periods.least_weight:g} is asked for"
    if sorted(hour for item in plan.periods for hour in item.hours) != list(range(HOURS)):
        return "the hours of the plan are not a day"
    return ""


def _lasting(plan: Plan) -> str:
    first = plan.periods[0].fleet
    other = next((item for item in plan.periods if dict(item.fleet.pools) != dict(first.pools)), None)
    return "" if other is None else f"the fleet of {other.title} is not that of {plan.periods[0].title}"


def _base(plan: Plan, limits: Limits, periods: Periods) -> str:
    if not periods.fleet_changes:
        return "" if not plan.base else "a base is stated for a fleet that does not change"
    holdings = [item.fleet.holdings for item in plan.periods]
    bought = day_purchases(limits, holdings, periods, _stated_base(plan, periods))
    derived = base_rows(limits, bought)
    return "" if derived == plan.base else f"stated base {_counts(plan.base)}, derived {_counts(derived)}"


def _stated_base(plan: Plan, periods: Periods) -> dict[str, int] | None:
    """Where the dearest part counts the size of the base is a decision of the plan; else it follows from the fleets."""
    if periods.risk is None:
        return None
    return {gpu: sum(row.gpus for row in plan.base if row.gpu == gpu) for gpu in {row.gpu for row in plan.base}}


def _counts(rows: Sequence[object]) -> Mapping[str, object]:
    return {f"{getattr(row, 'gpu')} {getattr(row, 'term')}": getattr(row, "gpus") for row in rows}  # noqa: B009


def _cost(plan: Plan, limits: Limits, periods: Periods, costs: DayCosts, results: Sequence[Evaluation | None]) -> str:
    first = next((result for result in results if result is not None), None)
    one = math.inf if first is None else first.cost_usd_per_hour - tokens_usd(first)
    held = costs.each or (one,) * len(plan.periods)
    each = [usd + tokens_usd(result) for usd, result in zip(held, results, strict=True)]
    for item, usd in zip(plan.periods, each, strict=True):
        if not math.isclose(item.cost_usd_per_hour, usd, rel_tol=_RELATIVE, abs_tol=1e-9):
            return f"{item.title}: stated {item.cost_usd_per_hour} USD/h, derived {usd:.6g}"
    cost = periods.value(each)
    if plan.cost_usd_per_hour is None or not math.isclose(plan.cost_usd_per_hour, cost, rel_tol=_RELATIVE):
        what = "mean" if periods.risk is None else risk_words(periods.risk)
        return f"stated {plan.cost_usd_per_hour} USD/h, the {what.removeprefix('the ')} of its periods is {cost:.6g}"
    budget = limits.budget_usd_per_hour
    if budget is not None and cost > budget * (1.0 + _RELATIVE):
        return f"{cost:.6g} USD/h, fleet.budget_usd_per_hour is {budget:g}"
    return _risk(plan, RiskRow.of_costs(periods, each))


def _risk(plan: Plan, derived: RiskRow | None) -> str:
    """Mean, dearest part and worst of the costs are those of the periods."""
    if plan.risk is None or derived is None:
        return "" if plan.risk is derived else "mean and worst of the costs are stated where the fleet does not follow"
    for name, value in asdict(derived).items():
        said = getattr(plan.risk, name)
        same = said == value or (isinstance(value, float) and math.isclose(said or 0.0, value, rel_tol=_RELATIVE))
        if not same:
            return f"{name} of the scenarios: stated {said}, derived {value}"
    return ""


def _tables(plan: Plan) -> str:
    """The tables of the plan are those of its busiest period."""
    found = next((item for item in plan.periods if item.name == plan.busiest), None)
    if found is None:
        return f"no period '{plan.busiest}'"
    same = (
        plan.fleet == found.fleet,
        plan.pools == found.pools,
        plan.routing == found.routing,
        plan.slo == found.slo,
        plan.purchases == found.purchases,
    )
    return "" if all(same) else f"the tables are not those of {found.title}"
