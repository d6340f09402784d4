"""Saved plans: read them back, checked."""

from __future__ import annotations

from pathlib import Path

from qmodel.errors import Problem, ScenarioError
from qmodel.files import read_json
from qmodel.planning.plans import Plan

__all__ = ["load_plan"]

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
        return Plan.from_dict(data)
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        problem = Problem(
            what=f"not a saved plan (missing or wrong: {error})",
            file=str(path),
            hint="save one with 'qmodel plan SCENARIO --out FILE'",
        )
        raise ScenarioError([problem]) from error
