"""A plan explained in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from qmodel.planning.plans import Plan

__all__ = ["explanation"]

_STATUS = {
    "optimal": "proven cheapest within the gap asked for",
    "feasible": "meets every target; a cheaper fleet is not ruled out",
    "infeasible": "no fleet within these limits meets every target",
    "limit": "the search stopped without a fleet",
}


def explanation(plan: Plan) -> str:
    """Why this plan: status, what binds in each pool, what was nearly chosen, prices, assumptions."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    yield f"{plan.title}: {plan.status}, {_status_words(plan)}"
    if plan.fleet is None:
        yield from _without_fleet(plan)
        return
    assert plan.cost_usd_per_hour is not None
    if plan.objective is not None:
        bound = "not known" if plan.objective.bound is None else f"{plan.objective.bound:.4g} {plan.objective.unit}"
        yield f"  {plan.objective.name}: {plan.objective.value:.4g} {plan.objective.unit} (bound {bound})"
    for item in plan.served:
        yield f"  {item.cls}: {item.served_rps:.4g} of {item.rate_rps:.4g} requests/s are served"
    for part in plan.quality:
        if part.share > 0.0:
            scored = part.quality is not None and part.average is not None
            score = f" (quality {part.quality:g}), average {part.average:.4g}" if scored else ""
            yield f"  {part.cls}: {part.share:.1%} by {part.model}{score}"
    for lost in plan.leaving:
        if lost.abandoned_share is not None and lost.attempts is not None:
            yield (
                f"  {lost.cls}: {lost.abandoned_share:.2%} of those in {lost.path} leave for good, "
                f"{lost.attempts:.3g} attempts each on average"
            )
    moved = f", {plan.change_usd_per_hour:.2f} of it for the change" if plan.change_usd_per_hour else ""
    yield f"  cost {plan.cost_usd_per_hour:.2f} USD/h{moved}"
    if plan.risk is not None:
        tail = ""
        if plan.risk.level is not None and plan.risk.cvar_usd_per_hour is not None:
            tail = f", {plan.risk.cvar_usd_per_hour:.2f} in the dearest {(1.0 - plan.risk.level) * 100.0:.4g} % of it"
        worst = f"{plan.risk.worst_usd_per_hour:.2f} in {plan.risk.worst}, the dearest"
        yield f"  scenarios: {plan.risk.mean_usd_per_hour:.2f} USD/h on average{tail}, {worst}"
    for change in plan.changes:
        yield f"  {change.replica}: from {change.before} to {change.after} replicas, {change.usd:.2f} USD once"
    if plan.bound_usd_per_hour is not None and plan.gap is not None:
        yield f"  no fleet within the limits costs less than {plan.bound_usd_per_hour:.2f} USD/h (gap {plan.gap:.1%})"
    for kept in plan.base:
        yield f"  {kept.gpus} {kept.gpu} GPUs are paid always ({kept.term}, {kept.cost_usd_per_hour:.2f} USD/h)"
    for hour in plan.periods:
        used = [pool for pool in hour.pools if pool.role != "api" or pool.cost_usd_per_hour > 0.0]
        told = (pool.pool if pool.role == "api" else f"{pool.pool} x{pool.replicas}" for pool in used)
        pools = ", ".join(told) or "nothing is asked for"
        yield f"  {hour.title}: {hour.cost_usd_per_hour:.2f} USD/h, {pools}"
    if plan.cost_at_p90_usd_per_hour is not None:
        yield (
            f"  grown until every target also holds at the upper 90 % bands of step times and queueing:"
            f" {plan.cost_at_p90_usd_per_hour:.2f} USD/h"
        )
    yield "what binds"
    for row in plan.pools:
        load = "" if row.utilisation is None else f", utilisation {row.utilisation:.0%}"
        memory = "" if row.kv_fill is None else f", KV memory {row.kv_fill:.0%} full"
        yield f"  {row.pool}: {row.binding}{load}{memory}"
    if plan.why.tight:
        yield f"  limits of the fleet: {', '.join(plan.why.tight)}"
    if plan.why.alternatives:
        yield "nearest alternatives, each class alone"
        for other in plan.why.alternatives:
            cost = "refused" if other.cost_usd_per_hour is None else f"{other.cost_usd_per_hour:.2f} USD/h"
            yield f"  {other.cls}: {other.candidate}: {cost}, {other.limit}"
    if plan.prices:
        yield "what one more unit of a limit changes (linear relaxation)"
        for price in plan.prices:
            yield f"  {price.limit}: {price.usd_per_hour_per_unit:+.4g} USD/h"
    if plan.assumptions:
        yield "assumptions"
        for text in plan.assumptions:
            yield f"  {text}"


def _status_words(plan: Plan) -> str:
    if plan.objective is None or plan.fleet is None:
        return _STATUS[plan.status]
    if not plan.objective.proven:
        return "meets every target; that a fleet does better by the objective is not ruled out"
    return f"{_STATUS[plan.status]}, of fleets that reach the objective"


def _without_fleet(plan: Plan) -> Iterator[str]:
    yield f"  {plan.why.text}"
    if plan.why.best:
        yield f"  best candidate: {plan.why.best}"
    if plan.why.change:
        yield f"  to proceed: {plan.why.change}"
    yield from (f"  {line}" for line in plan.why.conflict_lines)
    for text in plan.assumptions:
        yield f"  assumed: {text}"
