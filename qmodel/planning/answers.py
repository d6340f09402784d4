"""Parts of an answer: without a fleet, prices under the keys of a scenario, the cost at the upper bands."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from qmodel.optimize import Choice, Diagnosis
from qmodel.planning.assembly import grown_for
from qmodel.planning.planned_pools import PlannedKind, PlannedMeasured, PlannedPool
from qmodel.planning.planned_rows import PlannedRow, grown_row
from qmodel.planning.plans import Plan, PriceRow, Status, Termination, Why
from qmodel.planning.record import versions
from qmodel.problem import Instance, at_confidence, replica_of, with_engine
from qmodel.types import Limits, Replica, RequestClass, SloRow

__all__ = ["bound_below", "cost_at_p90", "finite", "price_rows", "termination_of", "why_not", "without_fleet"]

_ROUNDING = 1e-6  # of a cost
_MOST_AT_P90 = 200  # replicas that a row may grow by when steps take longer


def without_fleet(
    instance: Instance,
    status: Status,
    termination: Termination,
    why: Why,
    started_s: float,
    bound_usd_per_hour: float = -np.inf,
) -> Plan:
    """The answer where there is no fleet: why, and what is known of the cost."""
    return Plan(
        title=instance.title,
        status=status,
        termination=termination,
        cost_usd_per_hour=None,
        bound_usd_per_hour=finite(bound_usd_per_hour),
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


def termination_of(outcome: str) -> Termination:
    """Why a search stopped that has a fleet and no proof.

    Args:
        outcome: of the choice of pools.
    """
    if outcome == "error":
        return "solver_error"
    return "time" if outcome == "time" else "gap"


def why_not(found: Diagnosis) -> Why:
    return Why(text=found.text, limit=found.limit, best=found.best, change=found.change)


def _demand_key(item: RequestClass) -> str:
    """The key that says how much there is of a class."""
    return f"classes.{item.name}.rate_rps" if item.batch is None else f"classes.{item.name}.batch.requests"


def price_rows(choice: Choice, limits: Limits, classes: Mapping[str, RequestClass]) -> tuple[PriceRow, ...]:
    """Prices of demand and of limits under the keys that a scenario states them by."""
    keys = {(cap.kind, cap.name): cap.key for cap in limits.caps}
    return tuple(
        PriceRow(
            limit=_demand_key(classes[item.name]) if item.kind == "cover" else keys[item.kind, item.name],
            usd_per_hour_per_unit=item.usd_per_hour,
        )
        for item in choice.prices
    )


def cost_at_p90(
    instance: Instance, pools: Sequence[PlannedKind], row: PlannedRow, cost: float, rows: Sequence[SloRow]
) -> float | None:
    """Cost of the pools grown until they hold every target at the upper bands of steps and queueing.

    None where the limits forbid that or no count does it, and where a batch, or a class whose targets hold over the
    whole fleet, has several pools: each would be grown for itself. Measured capacities have no band.

    Args:
        instance: the bound problem.
        pools: of the plan, that serve whole requests.
        row: those that serve one stage.
        cost: of the plan, USD/h.
        rows: what the targets of the plan are predicted to be; where all hold at the upper bands, nothing grows.
    """
    predicted = [item for item in pools if isinstance(item, PlannedPool)]
    if not (predicted or row.pools) or instance.policy.confidence == "p90":
        return cost
    over_fleet = instance.policy.slo_scope == "fleet"
    whole = [one.name for item in predicted for one in item.classes if one.batch is not None or over_fleet]
    if len(set(whole)) < len(whole):
        return None
    if rows and not row.pools and all(item.met_at_p90 for item in rows):
        return cost
    slower = []
    for item in predicted:
        chosen = item.candidate
        nominal = replica_of(
            instance,
            model=chosen.model,
            gpu=chosen.gpu,
            layout=chosen.layout,
            engine=with_engine(instance.gpus[chosen.gpu].engine, chosen.settings, instance.drafts),
            precision=chosen.precision,
        )
        assert isinstance(nominal, Replica)
        slower.append(replace(chosen, replica=at_confidence(nominal, "p90"), confidence="p90"))
    measured = [item for item in pools if isinstance(item, PlannedMeasured)]
    held = [item.holding for item in pools]
    grown = grown_row(instance, row.at_p90, held, instance.limits, _MOST_AT_P90) if row.pools else row
    if grown is None:
        return None
    # what changing the fleet costs included
    return grown_for(predicted, slower, instance.limits, [*measured, *grown.pools])


def bound_below(cost: float, bound: float) -> float | None:
    """The bound without rounding above the cost; None without one, or where the fleet disproves it."""
    return min(bound, cost) if np.isfinite(bound) and bound <= cost * (1.0 + _ROUNDING) else None


def finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
