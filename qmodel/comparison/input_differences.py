"""Which inputs of several plans are not the same."""

from __future__ import annotations

from collections.abc import Sequence

from qmodel.planning.latency_search import NO_TARGET_S
from qmodel.planning.plans import Plan
from qmodel.scenario import diff_scenarios

__all__ = ["differing_inputs"]

NOT_INPUTS = frozenset({"qmodel", "title", "description", "extends", "variants", "comparisons"})  # they decide nothing


def differing_inputs(plans: Sequence[Plan]) -> dict[str, tuple[object, ...]]:
    """Dotted keys whose value is not the same in all plans, with the value of each plan.

    Args:
        plans: at least one; their resolved scenarios and the versions that made them are compared.

    Returns:
        Values by key, one per plan; None where a plan does not state a key.
    """
    first, *others = map(_inputs, plans)
    rows: dict[str, list[object]] = {}
    for index, other in enumerate(others, start=1):
        for key, left, right in diff_scenarios(first, other):
            rows.setdefault(key, [_stated(key, left)] * len(plans))[index] = _stated(key, right)
    return {key: tuple(values) for key, values in rows.items()}


def _stated(key: str, value: object) -> object:
    """A value as people state it: the loosest target of a front is none."""
    return None if ".slo." in key and value == NO_TARGET_S else value


def _inputs(plan: Plan) -> dict[str, object]:
    scenario = {key: value for key, value in plan.scenario.items() if key not in NOT_INPUTS}
    return {**scenario, "versions": dict(plan.versions)}
