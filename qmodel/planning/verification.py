"""Re-derive what a plan claims from the plan alone: cost, stock, cover, stability and every target.

This module never imports the optimizer: what it checks must not come from what it checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from qmodel.evaluation import Evaluation
from qmodel.evaluation.assessment import assess
from qmodel.planning.plans import Plan
from qmodel.planning.record import cases_from, classes_from

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
    classes = classes_from(plan.inputs)
    cases = cases_from(plan.inputs, plan.fleet.pools)
    confidence = str(plan.inputs["confidence"])
    result = assess(classes, cases, plan.fleet, confidence=confidence)
    return Verification(
        checks=(
            _cover(plan, tuple(classes)),
            _stock(plan),
            _cost(plan, result),
            _stable(result),
            _targets(result, confidence),
            _predictions(plan, result),
            _bound(plan),
        )
    )


def _cover(plan: Plan, classes: tuple[str, ...]) -> Check:
    assert plan.fleet is not None
    for name in classes:
        total = sum(path.share for path in plan.fleet.routing.get(name, ()))
        if not math.isclose(total, 1.0, rel_tol=_RELATIVE):
            return Check(name="cover", ok=False, detail=f"shares of class '{name}' sum to {total:.6g}")
    return Check(name="cover", ok=True, detail=f"{len(classes)} classes routed whole")


def _stock(plan: Plan) -> Check:
    assert plan.fleet is not None
    stock = plan.inputs["stock"]
    assert isinstance(stock, Mapping)
    for gpu, used in plan.fleet.gpus.items():
        limit = stock.get(gpu)
        if limit is not None and used > int(limit):
            return Check(name="stock", ok=False, detail=f"{used} {gpu} used, {limit} in stock")
    return Check(name="stock", ok=True, detail=", ".join(f"{n} {gpu}" for gpu, n in plan.fleet.gpus.items()))


def _cost(plan: Plan, result: Evaluation) -> Check:
    ok = plan.cost_usd_per_hour is not None and math.isclose(
        plan.cost_usd_per_hour, result.cost_usd_per_hour, rel_tol=_RELATIVE
    )
    return Check(
        name="cost",
        ok=ok,
        detail=f"stated {plan.cost_usd_per_hour} USD/h, pools sum to {result.cost_usd_per_hour:.6g}",
    )


def _stable(result: Evaluation) -> Check:
    reason = next((f"{row.pool}: {row.overload}" for row in result.pools if not row.stable), "every pool is stable")
    return Check(name="stability", ok=result.stable, detail=reason)


def _targets(result: Evaluation, confidence: str) -> Check:
    for row in result.slo:
        if row.path == "fleet":
            continue
        if not (row.met_at_p90 if confidence == "p90" else row.met):
            return Check(
                name="targets",
                ok=False,
                detail=f"{row.cls} {row.metric} {row.stat} is {row.predicted_s} s in {row.path},"
                f" target {row.target_s:g} s",
            )
    return Check(name="targets", ok=True, detail=f"{len(result.slo)} targets met at {confidence} confidence")


def _predictions(plan: Plan, result: Evaluation) -> Check:
    fresh = {(row.cls, row.path, row.metric, row.stat): row.predicted_s for row in result.slo}
    for row in plan.slo:
        value = fresh.get((row.cls, row.path, row.metric, row.stat))
        if value is None or row.predicted_s is None or not math.isclose(value, row.predicted_s, rel_tol=_RELATIVE):
            return Check(
                name="predictions",
                ok=False,
                detail=f"{row.cls} {row.metric} {row.stat} in {row.path}: stated {row.predicted_s}, derived {value}",
            )
    return Check(name="predictions", ok=True, detail=f"{len(plan.slo)} values re-derived")


def _bound(plan: Plan) -> Check:
    if plan.bound_usd_per_hour is None or plan.cost_usd_per_hour is None:
        return Check(name="bound", ok=True, detail="no bound stated")
    ok = plan.bound_usd_per_hour <= plan.cost_usd_per_hour * (1.0 + _RELATIVE)
    return Check(
        name="bound", ok=ok, detail=f"bound {plan.bound_usd_per_hour:.6g}, cost {plan.cost_usd_per_hour:.6g} USD/h"
    )
