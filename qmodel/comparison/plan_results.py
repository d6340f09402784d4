"""The results of one plan that a comparison shows, by section and name."""

from __future__ import annotations

from collections.abc import Sequence

from qmodel.planning.latency_search import NO_TARGET_S
from qmodel.planning.plans import Plan
from qmodel.planning.record import scope_from
from qmodel.report import gpus_by_type
from qmodel.types import Layout, PoolRow, SloRow, decisive

__all__ = ["plan_metrics"]

Metrics = dict[tuple[str, str], float | str | None]


def plan_metrics(plan: Plan) -> Metrics:
    """Status, cost, GPUs by type, prediction and slack of each target, pools with what binds.

    What is served stands beside them where some may be dropped, and the mean and the worst cost of scenarios where the
    fleet follows them.
    """
    metrics: Metrics = {("status", "status"): plan.status}
    if plan.fleet is None:
        metrics["status", "reason"] = plan.why.text
    for item in plan.served:
        metrics["served", f"{item.cls} served_rps"] = item.served_rps
    metrics["cost", "cost_usd_per_hour"] = plan.cost_usd_per_hour
    metrics["cost", "bound_usd_per_hour"] = plan.bound_usd_per_hour
    if plan.risk is not None:
        metrics["cost", "mean_usd_per_hour"] = plan.risk.mean_usd_per_hour
        metrics["cost", "worst_usd_per_hour"] = plan.risk.worst_usd_per_hour
    for gpu, count in gpus_by_type(plan.pools).items():
        metrics["gpus", gpu] = count
    scope = scope_from(plan.inputs)
    worst = _worst_targets(plan.slo if scope == "pool" else decisive(plan.slo, scope))
    for name, row in worst.items():
        metrics["predicted", name] = row.predicted_s
    for name, row in worst.items():
        if row.target_s == NO_TARGET_S:
            continue
        metrics["slack", f"{name.removesuffix('_s')}_percent"] = _slack_percent(row)
    for pool in plan.pools:
        if pool.role == "api":
            metrics["binding", f"{pool.model} on {pool.gpu}"] = pool.binding if pool.stable else "unstable"
            continue
        layout = Layout(tp=pool.tp, pp=pool.pp, ep=pool.ep, dp=pool.dp, cp=pool.cp)
        key = ("binding", f"{pool.model} on {pool.gpu} {layout}")
        held = f"{metrics[key]}; " if key in metrics else ""
        metrics[key] = f"{held}{_pool_words(pool)}"
    return metrics


def _worst_targets(targets: Sequence[SloRow]) -> dict[str, SloRow]:
    """Each target's row on the path where it is tightest; the mixture over paths only where there is no other."""
    worst: dict[str, SloRow] = {}
    for row in targets:
        name = f"{row.cls} {row.metric}_{row.stat}{'' if row.stat == 'share' else '_s'}"
        held = worst.get(name)
        if held is None or held.path == "fleet" or (row.path != "fleet" and _ratio(row) > _ratio(held)):
            worst[name] = row
    return worst


def _ratio(row: SloRow) -> float:
    if row.predicted_s is None:  # not stable, or measured
        return 0.0 if row.met else float("inf")
    return row.predicted_s / row.target_s


def _slack_percent(row: SloRow) -> float | None:
    return None if row.predicted_s is None else 100.0 * (1.0 - row.predicted_s / row.target_s)


def _pool_words(pool: PoolRow) -> str:
    replicas = "1 replica" if pool.replicas == 1 else f"{pool.replicas} replicas"
    return f"{replicas}, {pool.binding if pool.stable else 'unstable'}"
