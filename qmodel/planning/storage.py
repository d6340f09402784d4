"""Saved plans: read them back, checked."""

from __future__ import annotations

import json
from pathlib import Path

from qmodel.errors import Problem, ScenarioError
from qmodel.files import read_json
from qmodel.planning.plans import Plan

__all__ = ["is_saved_plan", "load_plan"]

_STATUSES = ("optimal", "feasible", "infeasible", "limit")


def load_plan(path: str | Path) -> Plan:
    """Read a plan that ``Plan.save`` or ``qmodel plan --out`` wrote.

    Args:
        path: a JSON file.

    Returns:
        The plan, equal to the one saved.

    Raises:
        ScenarioError: if the file is missing, is not JSON, or is not a plan.
    """
    data = read_json(path).data
    try:
        if not isinstance(data, dict) or data["status"] not in _STATUSES:
            raise KeyError("status")
        plan = Plan.from_dict(data)
        if (plan.fleet is None) is not (plan.cost_usd_per_hour is None):
            raise KeyError("fleet or cost_usd_per_hour")
        return plan
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        problem = Problem(
            what=f"not a saved plan (missing or wrong: {error})",
            file=str(path),
            hint="save one with 'qmodel plan SCENARIO --out FILE'",
        )
        raise ScenarioError([problem]) from error


def is_saved_plan(path: str | Path) -> bool:
    """Whether a file holds a plan, and not a scenario or a fleet; what cannot be read is none."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = json.loads(text) if text.lstrip().startswith("{") else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"status", "termination", "pools"} <= content.keys()
