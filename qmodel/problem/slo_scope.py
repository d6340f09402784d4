"""What targets over the whole fleet do not go with yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from qmodel.errors import Problem

if TYPE_CHECKING:
    from qmodel.scenario import Scenario

__all__ = ["slo_scope_problems"]

_HINT = "set policy.slo_scope: pool, or leave it out"


def slo_scope_problems(scenario: Scenario) -> list[Problem]:
    """Each key that does not go with ``policy.slo_scope: fleet``; none where targets hold in every pool.

    Args:
        scenario: checked against its schema.
    """
    if scenario.policy.slo_scope == "pool":
        return []
    return [
        scenario.problem(key, f"not supported yet: {what} with policy.slo_scope: fleet", hint or _HINT)
        for key, what, hint in _found(scenario)
    ]


def _found(scenario: Scenario) -> Iterator[tuple[str, str, str]]:
    """Key, what it is, and another way out than the usual one."""
    for name, spec in scenario.classes.items():
        key = f"classes.{name}"
        if spec.batch is not None:
            yield f"{key}.batch", "batches", ""
        if spec.patience_s is not None:
            yield f"{key}.patience_s", "requests that leave", ""
        if spec.models is not None and len(spec.served_by) > 1:
            yield f"{key}.models", "several models for a class", ""
        if spec.arrivals is not None and spec.arrivals.profile is not None:
            yield f"{key}.arrivals.profile", "demand by the hour", ""
    if scenario.demand is not None:
        yield "demand", "uncertain demand", ""
    for name, gpu in scenario.fleet.gpus.items():
        if gpu.spot is not None:
            yield f"fleet.gpus.{name}.spot", "spot GPUs", ""
    if scenario.fleet.apis:
        yield "fleet.apis", "APIs, of whose requests no share beyond a target is known,", ""
    for number, profile in enumerate(scenario.profiles):
        if profile.max_rate_rps is not None:
            what = "measured capacities, which do not say what share of requests exceeds a target,"
            yield f"profiles[{number}].max_rate_rps", what, f"{_HINT}; or profile step times"
    if scenario.layouts.disaggregate is True:
        yield "layouts.disaggregate", "separate prefill and decode pools", "use auto or false"
    policy = scenario.policy
    for key, stated, what in (
        ("spare_replicas", policy.spare_replicas > 0, "replicas to spare"),
        ("survive_nodes", policy.survive_nodes > 0, "fleets that survive the loss of a node"),
        ("max_pools", policy.max_pools is not None, "a limit on pools"),
        ("change", policy.change is not None, "the cost of changing a fleet"),
    ):
        if stated:
            yield f"policy.{key}", what, ""
    if scenario.objective.maximize is not None or scenario.objective.target_key is not None:
        yield "objective", "another objective than cost", ""
