"""What does not go with requests that leave: routers, separate pools, and classes that would share a pool with them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING

from qmodel.errors import Problem
from qmodel.problem.instances import GpuOption
from qmodel.types import RequestClass

if TYPE_CHECKING:
    from qmodel.scenario import Scenario

__all__ = ["patience_problems"]


def patience_problems(
    scenario: Scenario, classes: Mapping[str, RequestClass], gpus: Mapping[str, GpuOption]
) -> list[Problem]:
    """Why classes with patience cannot be planned as stated.

    Args:
        scenario: checked against its schema.
        classes: bound, by name.
        gpus: GPU types with their engines.
    """
    impatient = [item for item in classes.values() if item.patience is not None]
    if not impatient:
        return []
    problems = []
    for item in impatient:
        for name, option in gpus.items():
            if scenario.engine_settings(name, item.name).get("router", option.engine.router) == "round_robin":
                what = f"round_robin is not predicted for requests that leave (patience_s of class '{item.name}')"
                place = scenario.engine_key(name, "router", item.name)
                problems.append(scenario.problem(place, what, "use random or jsq"))
    if scenario.layouts.disaggregate is True:
        what = f"separate pools are not predicted for requests that leave (patience_s of class '{impatient[0].name}')"
        problems.append(scenario.problem("layouts.disaggregate", what, "use auto or false"))
    for one, other in combinations(impatient, 2):
        alike = one.patience == other.patience and not (one.isolate or other.isolate)
        if alike and one.priority != other.priority and set(one.models) & set(other.models):
            what = (
                f"differs from that of class '{one.name}': requests that leave are predicted first come, first served"
            )
            hint = "give both the same priority, or isolate: true to one of them"
            problems.append(scenario.problem(f"classes.{other.name}.priority", what, hint))
    return list(dict.fromkeys(problems))
