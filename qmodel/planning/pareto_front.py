"""Cost against one target: plans from the loosest level to the tightest that the limits allow."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log10

from qmodel.planning.latency_search import NO_TARGET_S, reached
from qmodel.planning.plans import Plan
from qmodel.types import Slo

__all__ = ["front_of"]

_DIGITS = 4  # of the levels that are asked for


def front_of(
    plan_at: Callable[[float], Plan], name: str, target: Slo, *, points: int, closest: float
) -> dict[str, Plan]:
    """Plans that no other undercuts in cost and level at once, loosest level first, by a name that says the level.

    The first has no such target. Each next one is asked for a level that is ``closest`` times what the one before is
    predicted to reach, so that no look is spent where the cost cannot change; a plan that costs no more than those
    before takes their place. The front ends where the limits allow no fleet.

    Args:
        plan_at: the plan for a level of the target, s.
        name: class whose target it is.
        target: metric and level of percentile; its seconds are not used.
        points: most plans.
        closest: in (0, 1).
    """
    found: list[tuple[float, Plan]] = []
    level_s = NO_TARGET_S
    while len(found) < points:
        plan = plan_at(level_s)
        if plan.fleet is None:
            if not found:
                return {"no target": plan}
            break
        value_s = min(reached(plan, name, target), level_s)
        while found and _cost(plan) <= _cost(found[-1][1]):
            found.pop()
        found.append((value_s, plan))
        level_s = _rounded_down(value_s * closest)
    return {f"{target.key.removesuffix('_s')} {value_s:.4g} s": plan for value_s, plan in found}


def _rounded_down(level_s: float) -> float:
    scale = 10.0 ** (_DIGITS - 1 - floor(log10(level_s)))
    return floor(level_s * scale + 1e-6) / scale


def _cost(plan: Plan) -> float:
    assert plan.cost_usd_per_hour is not None
    return plan.cost_usd_per_hour
