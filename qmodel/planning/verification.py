"""Re-derive what a plan claims from the plan alone: cost, limits, cover, stability and every target.

This module never imports the optimizer: what it checks must not come from what it checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qmodel.evaluation import Evaluation, LeavingRow, MeasuredCase, PoolCase, QualityRow
from qmodel.evaluation.assessment import assess
from qmodel.planning.day_verification import day_costs, day_problem
from qmodel.planning.period_plans import PeriodPlan
from qmodel.planning.plans import Plan
from qmodel.planning.record import cases_from, classes_from, limits_from, periods_from, scope_from, settings_from
from qmodel.types import (
    Limits,
    PoolRow,
    PurchaseRow,
    RequestClass,
    SloRow,
    SloScope,
    decisive,
    replicas_by_kind,
    settings_text,
)

__all__ = ["Check", "Verification", "verify"]

_RELATIVE = 1e-6  # digits that may differ between machines


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim and whether it holds."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """All claims of a plan."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Every claim holds."""
        return all(check.ok for check in self.checks)

    @property
    def first_failure(self) -> str:
        """Name and detail of the first claim that fails, empty where none does."""
        return next((f"{check.name}: {check.detail}" for check in self.checks if not check.ok), "")


def verify(plan: Plan) -> Verification:
    """Check a plan against what it embeds, without optimizer, scenario file or catalog.

    Args:
        plan: a plan with a fleet; a plan without one has nothing to check and passes.
    """
    if plan.fleet is None:
        return Verification(checks=())
    if plan.periods:
        return _verify_day(plan)
    classes = classes_from(plan.inputs)
    cases = cases_from(plan.inputs, plan.fleet)
    limits = limits_from(plan.inputs)
    confidence, scope = str(plan.inputs["confidence"]), scope_from(plan.inputs)
    left = _left_over(cases)
    if not left.ok:
        return Verification(checks=(left,))
    result = assess(classes, cases, plan.fleet, limits=limits, confidence=confidence, scope=scope, detail=False)
    return Verification(
        checks=(
            _cover(plan, classes),
            _quality(classes, result),
            _isolation(plan, classes),
            _settings(plan),
            left,
            _limits(plan, limits, result),
            _cost(plan, result),
            _changes(plan, limits),
            _stable(result),
            _targets(result, confidence, scope),
            _tables(plan, result),
            _predictions(plan, result),
            _bound(plan),
        )
    )


def _verify_day(plan: Plan) -> Verification:
    """Every hour as a plan of its own, then what is said of the day."""
    periods, classes = periods_from(plan.inputs), classes_from(plan.inputs)
    if [item.name for item in plan.periods] != [item.name for item in periods.items]:
        return Verification(checks=(Check(name="day", ok=False, detail="its periods are not those of the demand"),))
    costs = day_costs(plan)
    confidence = str(plan.inputs["confidence"])
    checks: list[Check] = []
    results: list[Evaluation | None] = []
    for item, period in zip(plan.periods, periods.items, strict=True):
        demand = period.demand(classes)
        results.append(None)
        if not demand:
            ok = not item.fleet.routing and (periods.fleet_changes is False or not item.fleet.pools)
            checks.append(Check(name=item.title, ok=ok, detail="nothing is asked for"))
            continue
        hour = replace(
            plan,
            periods=(),
            fleet=item.fleet,
            pools=item.pools,
            routing=item.routing,
            slo=item.slo,
            purchases=item.purchases,
            leaving=item.leaving,
            inputs={**plan.inputs, "limits": costs.within.to_dict()},
        )
        cases = cases_from(hour.inputs, item.fleet)
        found = [_left_over(cases)]
        if found[0].ok:
            result = assess(demand, cases, item.fleet, limits=costs.within, confidence=confidence, detail=False)
            results[-1] = result
            found += [
                _cover(hour, demand),
                _isolation(hour, classes),
                _settings(hour),
                _limits(hour, costs.within, result),
                _stable(result),
                _targets(result, confidence),
                _tables(hour, result),
                _predictions(hour, result),
                _rates(item, demand),
            ]
        checks += [replace(check, name=f"{check.name} in {item.title}") for check in found]
    whole = day_problem(plan, costs, results) if all(check.ok for check in checks) else ""
    checks.append(
        Check(name="day", ok=not whole, detail=whole or "periods, base and mean cost are those of the fleets")
    )
    return Verification(checks=(*checks, _bound(plan)))


def _rates(item: PeriodPlan, demand: Mapping[str, RequestClass]) -> Check:
    ok = item.rates_rps.keys() == item.output_tokens.keys() == demand.keys() and all(
        math.isclose(item.rates_rps[name], one.rate_rps, rel_tol=_RELATIVE)
        and math.isclose(item.output_tokens[name], one.lengths.output.mean, rel_tol=_RELATIVE)
        for name, one in demand.items()
    )
    return Check(name="rates", ok=ok, detail=f"stated {dict(item.rates_rps)}")


def _cover(plan: Plan, classes: Mapping[str, RequestClass]) -> Check:
    assert plan.fleet is not None
    for name, item in classes.items():
        paths = plan.fleet.routing.get(name, ())
        total = sum(path.share for path in paths)
        if not math.isclose(total, 1.0, rel_tol=_RELATIVE) or any(path.share <= 0.0 for path in paths):
            return Check(name="cover", ok=False, detail=f"shares of class '{name}' sum to {total:.6g}")
        for pool in (plan.fleet.pools[name] for path in paths for name in path.pools):
            if not item.served_by(pool.model):
                detail = f"class '{name}' asks for {' or '.join(item.models)}, pool '{pool.name}' serves {pool.model}"
                return Check(name="cover", ok=False, detail=detail)
    return Check(name="cover", ok=True, detail=f"{len(classes)} classes routed whole")


def _quality(classes: Mapping[str, RequestClass], result: Evaluation) -> Check:
    """Models get shares between their bounds, and the average over the requests of each class is high enough."""
    for row in result.quality:
        if not row.met:
            return Check(name="quality", ok=False, detail=f"class '{row.cls}' {row.short}")
    asked = sum(item.min_quality is not None for item in classes.values())
    bound = sum(any(tier.least > 0.0 or tier.most < 1.0 for tier in item.alternatives) for item in classes.values())
    return Check(name="quality", ok=True, detail=f"{asked} classes ask for an average, {bound} bound shares of models")


def _isolation(plan: Plan, classes: Mapping[str, RequestClass]) -> Check:
    """Pools of a class that is isolated serve no other."""
    assert plan.fleet is not None
    served: dict[str, list[str]] = {}
    for name, paths in plan.fleet.routing.items():
        for pool in dict.fromkeys(pool for path in paths for pool in path.pools):
            served.setdefault(pool, []).append(name)
    for pool, names in served.items():
        kept = [name for name in names if classes[name].isolate]
        if kept and len(names) > 1:
            detail = f"pool '{pool}' of class '{kept[0]}', which is isolated, serves {', '.join(names)}"
            return Check(name="isolation", ok=False, detail=detail)
    return Check(name="isolation", ok=True, detail=f"{sum(item.isolate for item in classes.values())} classes isolated")


def _settings(plan: Plan) -> Check:
    """Every pool has engine settings that each of its classes may choose."""
    assert plan.fleet is not None
    choices, told = settings_from(plan.inputs), 0
    for name, paths in plan.fleet.routing.items():
        for pool in (plan.fleet.pools[one] for path in paths for one in path.pools):
            allowed = choices.get((name, pool.gpu))
            if allowed is None or pool.role == "api" or "capacity" in _pool_inputs(plan, pool.name):
                continue
            told += 1
            if not any(_chosen_from(pool.engine, item) for item in allowed):
                stated = settings_text(pool.engine) or "no settings of its own"
                detail = f"pool '{pool.name}' has {stated}, which class '{name}' does not choose from"
                return Check(name="settings", ok=False, detail=detail)
    return Check(name="settings", ok=True, detail=f"{told} pools on paths choose engine settings")


def _chosen_from(stated: Mapping[str, object], allowed: Mapping[str, object]) -> bool:
    """Whether the settings are these, but for a number of sequences that a profile was measured with."""
    left_out = {"max_num_seqs"} if "max_num_seqs" not in stated else set()
    return dict(stated) == {key: value for key, value in allowed.items() if key not in left_out}


def _pool_inputs(plan: Plan, pool: str) -> Mapping[str, object]:
    pools = plan.inputs["pools"]
    assert isinstance(pools, Mapping)
    found = pools[pool]
    assert isinstance(found, Mapping)
    return found


def _left_over(cases: Mapping[str, PoolCase | MeasuredCase]) -> Check:
    """Every pool has replicas beside those that may be lost; the predictions are for these."""
    for name, case in cases.items():
        if case.serving < 1:
            detail = f"pool '{name}' has {case.pool.replicas} replicas, {case.spare} of which may be lost"
            return Check(name="spare", ok=False, detail=detail)
    return Check(name="spare", ok=True, detail=", ".join(f"{name}: {case.spare}" for name, case in cases.items()))


def _limits(plan: Plan, limits: Limits, result: Evaluation) -> Check:
    """Stock, nodes, power, pools, money, and what is forbidden."""
    assert plan.fleet is not None
    holdings = plan.fleet.holdings
    told = ", ".join(f"{limits.used(cap, holdings):.4g} of {cap.most:g} {cap.unit}" for cap in limits.caps)
    for pool in plan.fleet.pools.values():
        if any(item.bars(pool.model, pool.gpu, pool.layout) for item in limits.forbidden):
            return Check(name="limits", ok=False, detail=f"pool '{pool.name}' is forbidden by layouts.forbid")
    broken, budget = limits.broken(holdings), limits.budget_usd_per_hour
    if broken is not None:
        detail = f"{limits.used(broken, holdings):.6g} {broken.unit} used, {broken.key} is {broken.most:g}"
        return Check(name="limits", ok=False, detail=detail)
    cost = result.cost_usd_per_hour + plan.change_usd_per_hour
    if budget is not None and cost > budget * (1.0 + _RELATIVE):
        detail = f"{cost:.6g} USD/h, fleet.budget_usd_per_hour is {budget:g}"
        return Check(name="limits", ok=False, detail=detail)
    return Check(name="limits", ok=True, detail=told or "nothing is limited")


def _cost(plan: Plan, result: Evaluation) -> Check:
    cost = result.cost_usd_per_hour + plan.change_usd_per_hour
    ok = plan.cost_usd_per_hour is not None and math.isclose(plan.cost_usd_per_hour, cost, rel_tol=_RELATIVE)
    return Check(name="cost", ok=ok, detail=f"stated {plan.cost_usd_per_hour} USD/h, its parts sum to {cost:.6g}")


def _changes(plan: Plan, limits: Limits) -> Check:
    """What starts and stops follows from the fleet and from what ran before."""
    assert plan.fleet is not None
    replicas, change = replicas_by_kind(plan.fleet), limits.change
    rows = () if change is None else change.rows(replicas)
    usd_per_hour = 0.0 if change is None else change.usd_per_hour(replicas)
    ok = rows == plan.changes and math.isclose(usd_per_hour, plan.change_usd_per_hour, abs_tol=1e-9)
    detail = f"stated {plan.change_usd_per_hour:.6g} USD/h, derived {usd_per_hour:.6g}"
    return Check(name="changes", ok=ok, detail=detail)


def _stable(result: Evaluation) -> Check:
    reason = next((f"{row.pool}: {row.overload}" for row in result.pools if not row.stable), "every pool is stable")
    return Check(name="stability", ok=result.stable, detail=reason)


def _targets(result: Evaluation, confidence: str, scope: SloScope = "pool") -> Check:
    of_batches = [row for row in result.slo if row.path == "fleet" and row.metric == "makespan"]
    for row in (*decisive(result.slo, scope), *of_batches):  # a batch is done when all of its pools are
        met, value_s = (row.met_at_p90, row.high_s) if confidence == "p90" else (row.met, row.predicted_s)
        if not met:
            unit = "" if row.stat == "share" else " s"
            return Check(
                name="targets",
                ok=False,
                detail=f"{row.cls} {row.metric} {row.stat} is {value_s}{unit} in {row.path}, "
                f"target {row.target_s:g}{unit}",
            )
    return Check(name="targets", ok=True, detail=f"{len(result.slo)} targets met at {confidence} confidence")


def _tables(plan: Plan, result: Evaluation) -> Check:
    """Pool, purchase and route rows say what the fleet is; routes, counts, prices and yes or no must agree exactly."""
    for name, stated, derived in (
        ("pools", _pool_facts(plan.pools), _pool_facts(result.pools)),
        ("routing", plan.routing, result.routing),
        ("slo", _slo_facts(plan.slo), _slo_facts(result.slo)),
        ("purchases", _purchase_facts(plan.purchases), _purchase_facts(result.purchases)),
        ("leaving", _leaving_facts(plan.leaving), _leaving_facts(result.leaving)),
        ("quality", _quality_facts(plan.quality), _quality_facts(result.quality)),
    ):
        if stated != derived:
            return Check(name="tables", ok=False, detail=f"table '{name}' differs from the fleet")
    return Check(name="tables", ok=True, detail="pools, routing, targets and purchases are those of the fleet")


def _pool_facts(rows: Sequence[PoolRow]) -> list[tuple[object, ...]]:
    return (
        [
            (row.pool, row.model, row.role, row.gpu, row.tp, row.pp, row.ep, row.dp, row.cp, row.replicas, row.gpus)
            for row in rows
        ]
        + [(row.max_num_seqs, row.max_batched_tokens, row.kv_dtype, row.precision, row.settings) for row in rows]
        + [
            (row.price_tier, round(row.usd_per_gpu_hour, 9), round(row.cost_usd_per_hour, 6), row.stable)
            for row in rows
        ]
    )


def _purchase_facts(rows: Sequence[PurchaseRow]) -> list[tuple[object, ...]]:
    return [
        (row.gpu, row.provider, row.region, row.term, row.gpus, row.usd_per_gpu_hour, round(row.cost_usd_per_hour, 6))
        for row in rows
    ]


def _leaving_facts(rows: Sequence[LeavingRow]) -> list[tuple[object, ...]]:
    return [
        (
            row.cls,
            row.path,
            row.patience_s,
            row.retries,
            *(None if value is None else round(value, 9) for value in shares),
        )
        for row in rows
        for shares in [(row.rate_rps, row.abandoned_share, row.attempts)]
    ]


def _quality_facts(rows: Sequence[QualityRow]) -> list[tuple[object, ...]]:
    return [
        (
            row.cls,
            row.model,
            row.quality,
            row.least,
            row.most,
            round(row.share, 9),
            round(row.average or 0.0, 9),
            row.met,
        )
        for row in rows
    ]


def _slo_facts(rows: Sequence[SloRow]) -> list[tuple[object, ...]]:
    return [(row.cls, row.path, row.metric, row.stat, row.target_s, row.met, row.met_at_p90) for row in rows]


def _predictions(plan: Plan, result: Evaluation) -> Check:
    for stated, fresh in zip(plan.slo, result.slo, strict=False):
        for name in ("predicted_s", "low_s", "high_s"):
            said, value = getattr(stated, name), getattr(fresh, name)
            if (said is None) != (value is None) or not math.isclose(said or 0.0, value or 0.0, rel_tol=_RELATIVE):
                where = f"{stated.cls} {stated.metric} {stated.stat} in {stated.path}"
                return Check(name="predictions", ok=False, detail=f"{where}: {name} stated {said}, derived {value}")
    return Check(name="predictions", ok=True, detail=f"{len(plan.slo)} values re-derived")


def _bound(plan: Plan) -> Check:
    """The bound lies below the cost, and the gap and the status are those of the two."""
    cost, bound, gap = plan.cost_usd_per_hour, plan.bound_usd_per_hour, plan.gap
    if cost is None or bound is None or gap is None:
        ok = plan.status != "optimal" and bound is None and gap is None
        return Check(name="bound", ok=ok, detail=f"no bound stated, status {plan.status}")
    mip_gap = plan.inputs["mip_gap"]
    assert isinstance(mip_gap, int | float)
    ok = (
        bound <= cost * (1.0 + _RELATIVE)
        and math.isclose(gap, max(cost - bound, 0.0) / cost, abs_tol=_RELATIVE)
        and (plan.status == "optimal") == (gap <= mip_gap + _RELATIVE and _objective_proven(plan))
    )
    detail = f"bound {bound:.6g}, cost {cost:.6g} USD/h, gap {gap:.4g}, status {plan.status}"
    return Check(name="bound", ok=ok, detail=detail)


def _objective_proven(plan: Plan) -> bool:
    return plan.objective is None or plan.objective.proven
