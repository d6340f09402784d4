"""A plan, an evaluation or a capacity as a page for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qmodel.report.blocks import Block, Bullets, Facts, Heading, Lines, TextTable
from qmodel.report.number_text import decimal_text, month_text, percent_text, seconds_text, usd_text
from qmodel.report.row_tables import (
    alternative_table,
    change_table,
    curve_table,
    gpus_text,
    latency_table,
    leaving_table,
    link_table,
    period_table,
    pool_table,
    price_table,
    purchase_table,
    quality_table,
    routing_table,
    served_table,
    slo_table,
)
from qmodel.types import Risk, risk_words

if TYPE_CHECKING:
    from qmodel.evaluation.results import CapacityResult, Evaluation
    from qmodel.planning.period_plans import RiskRow
    from qmodel.planning.plans import ObjectiveRow, Plan
    from qmodel.types import LinkRow, PoolRow

__all__ = ["capacity_page", "evaluation_page", "no_plan_lines", "plan_page"]

ALTERNATIVES_SHOWN = 3

STOPPED_BY = {
    "proven": "the search ended",
    "gap": "the search ended at the gap asked for",
    "time": "the time limit ended the search",
    "iterations": "the iteration limit ended the search",
    "solver_error": "the solver failed",
    "cancelled": "the search was cancelled",
}


def plan_page(plan: Plan) -> tuple[Block, ...]:
    """A plan with its cost, pools, targets, assumptions and reasons; or why there is none."""
    if plan.fleet is None:
        lines = Lines(lines=no_plan_lines(plan))
        alternatives = alternative_table(plan.why.alternatives, most=ALTERNATIVES_SHOWN)
        return (Heading(text=plan.title), lines, alternatives, _assumptions(plan.assumptions))
    routing, links = routing_table(plan.routing), link_table(plan.links)
    return (
        Heading(text=plan.title),
        Facts(rows=_plan_facts(plan)),
        *([period_table(plan.periods)] if plan.periods else []),
        pool_table(plan.pools),
        *_overloads(plan.pools),
        *_some(links),
        *_some(change_table(plan.changes)),
        *_some(purchase_table(plan.purchases)),
        *_some(routing),
        *_some(quality_table(plan.quality)),
        *_some(leaving_table(plan.leaving)),
        *([served_table(plan.served)] if plan.served else []),
        slo_table(plan.slo),
        price_table(plan.prices),
        Lines(lines=(plan.why.text,) if plan.why.text else ()),
        alternative_table(plan.why.alternatives, most=ALTERNATIVES_SHOWN),
        _assumptions(plan.assumptions),
    )


def no_plan_lines(plan: Plan) -> tuple[str, ...]:
    """Why there is no plan: the first limit that cannot be met, the best reachable, what would help."""
    word = "infeasible" if plan.status == "infeasible" else "no plan"
    text = plan.why.text.removeprefix(f"{word}:").strip() or STOPPED_BY.get(plan.termination, "the search ended")
    lines = [f"{word}: {text}"]
    if plan.why.best:
        lines.append(f"  best candidate: {plan.why.best}")
    if plan.why.change:
        lines.append(f"  to proceed: {plan.why.change}")
    lines += [f"  {line}" for line in plan.why.conflict_lines]
    return tuple(lines)


def evaluation_page(evaluation: Evaluation, *, title: str = "Evaluation of a fleet") -> tuple[Block, ...]:
    """What a given fleet does: pools, targets, latencies."""
    missed = sum(not row.met for row in evaluation.slo)
    if not evaluation.stable:
        verdict = "overloaded: at least one pool cannot carry its load"
        if all(row.stable for row in evaluation.pools):
            verdict = "overloaded: at least one link between pools cannot carry its load"
    elif missed:
        verdict = f"misses {missed} of {len(evaluation.slo)} targets"
    elif short := next((row for row in evaluation.quality if not row.met), None):
        verdict = f"class {short.cls} {short.short}"
    elif not evaluation.feasible:
        verdict = "meets every target as predicted, but not at the confidence asked for"
    else:
        verdict = "meets every target"
    facts = [("Verdict", verdict)]
    facts.append(("Cost", f"{usd_text(evaluation.cost_usd_per_hour)} = {month_text(evaluation.cost_usd_per_hour)}"))
    if evaluation.pools:
        facts.append(("GPUs", gpus_text(evaluation.pools)))
    routing, links = routing_table(evaluation.routing), link_table(evaluation.links)
    return (
        Heading(text=title),
        Facts(rows=tuple(facts)),
        pool_table(evaluation.pools),
        *_overloads(evaluation.pools, evaluation.links),
        *_some(purchase_table(evaluation.purchases)),
        *_some(links),
        *_some(routing),
        *_some(quality_table(evaluation.quality)),
        *_some(leaving_table(evaluation.leaving)),
        slo_table(evaluation.slo),
        latency_table(evaluation.latency),
        _assumptions(evaluation.assumptions),
    )


def capacity_page(capacity: CapacityResult, *, title: str = "Capacity of a fleet") -> tuple[Block, ...]:
    """How much more demand a fleet carries, what stops it, and the curve up to there."""
    facts = [
        ("Carries", f"{capacity.factor:.3f} x the demand = {capacity.rate_rps:,.4g} requests/s"),
        ("Stopped by", capacity.binding or "nothing within the range searched"),
    ]
    return (
        Heading(text=title),
        Facts(rows=tuple(facts)),
        curve_table(capacity.curve),
        _assumptions(capacity.assumptions),
    )


def _plan_facts(plan: Plan) -> tuple[tuple[str, str], ...]:
    facts = [("Status", _status_words(plan))]
    if plan.objective is not None:
        facts.append(("Objective", _objective_words(plan.objective)))
    if plan.cost_usd_per_hour is not None:
        moved = f", {usd_text(plan.change_usd_per_hour)} of it for the change" if plan.change_usd_per_hour else ""
        month = f"{month_text(plan.cost_usd_per_hour)} (730 h)"
        moved += _counted(plan)
        facts.append(("Cost", f"{usd_text(plan.cost_usd_per_hour)} = {month}{moved}"))
    if plan.risk is not None:
        facts.append(("Scenarios", _risk_words(plan.risk)))
    if plan.bound_usd_per_hour is not None:
        gaps = f"gap {percent_text(plan.gap)} %"
        if plan.gap_columns is not None:
            gaps += f" (of the fleets considered: {percent_text(plan.gap_columns)} %)"
        facts.append(("Bound", f"{usd_text(plan.bound_usd_per_hour)}: nothing allowed costs less; {gaps}"))
    if plan.pools:
        facts.append(("GPUs", gpus_text(plan.pools) + (f" in {_busiest(plan)}" if plan.busiest else "")))
    if plan.base:
        held = ", ".join(f"{row.gpus:,} {row.gpu} at {row.term}" for row in plan.base)
        facts.append(("Base", f"{held}, paid in every {'scenario' if plan.periods[0].scenario else 'hour'}"))
    if plan.cost_at_p90_usd_per_hour is not None:
        facts.append(
            (
                "At p90",
                f"{usd_text(plan.cost_at_p90_usd_per_hour)} to hold every target at the upper 90 % bands",
            )
        )
    return tuple(facts)


def _counted(plan: Plan) -> str:
    """What of the costs of several periods the cost is."""
    if plan.risk is not None and plan.risk.level is not None and plan.risk.weight is not None:
        return f", {risk_words(Risk(level=plan.risk.level, weight=plan.risk.weight))}"
    several = plan.base or len({item.cost_usd_per_hour for item in plan.periods}) > 1
    return ", the mean" if several else ""


def _risk_words(row: RiskRow) -> str:
    """What scenarios cost on average, in the dearest part, and at most."""
    parts = [f"{usd_text(row.mean_usd_per_hour)} on average"]
    if row.level is not None:
        parts.append(f"{usd_text(row.cvar_usd_per_hour)} in the dearest {percent_text(1.0 - row.level)} %")
    return ", ".join([*parts, f"{usd_text(row.worst_usd_per_hour)} in {row.worst}, the dearest"])


def _busiest(plan: Plan) -> str:
    return next(item.title for item in plan.periods if item.name == plan.busiest)


def _objective_words(row: ObjectiveRow) -> str:
    """What was reached and what nothing exceeds; seconds are made small, all else is made large."""
    small = row.unit == "s"
    value, bound = (
        seconds_text(number) if small else f"{decimal_text(number)} {row.unit}" for number in (row.value, row.bound)
    )
    if row.bound is None:
        return f"{row.name} is {value}; how much better a fleet could do is not known"
    return f"{row.name} is {value}; no fleet within the limits reaches {'less' if small else 'more'} than {bound}"


def _status_words(plan: Plan) -> str:
    if plan.status == "optimal":
        gap = f" within {percent_text(plan.gap)} %" if plan.gap and percent_text(plan.gap) != "0.0" else ""
        found = "" if plan.objective is None else " of fleets that reach the objective"
        return f"optimal: meets every target at the least cost{found}{gap}"
    stopped = STOPPED_BY.get(plan.termination, plan.termination)
    if plan.objective is not None and not plan.objective.proven:
        why = "" if plan.termination in ("proven", "gap") else f" ({stopped})"
        return f"{plan.status}: meets every target; that a fleet does better by the objective is not ruled out{why}"
    if plan.bound_usd_per_hour is None:
        return f"{plan.status}: meets every target; no lower bound is known, so a cheaper fleet is not ruled out"
    if plan.termination in ("proven", "gap"):
        return (
            f"{plan.status}: meets every target; the cheapest fleet considered, but the bound leaves the gap below open"
        )
    return f"{plan.status}: meets every target; a cheaper fleet is not ruled out ({stopped})"


def _some(table: TextTable | None) -> tuple[Block, ...]:
    return () if table is None else (table,)


def _overloads(pools: Sequence[PoolRow], links: Sequence[LinkRow] = ()) -> tuple[Block, ...]:
    reasons = (
        *(f"{row.pool}: {row.overload or 'the load exceeds what it carries'}" for row in pools if not row.stable),
        *(f"link into {row.pool}: {row.overload}" for row in links if row.overload),
    )
    return (Bullets(title="Overloaded", items=reasons),) if reasons else ()


def _assumptions(assumptions: Sequence[str]) -> Bullets:
    return Bullets(title="Assumptions", items=tuple(assumptions))
