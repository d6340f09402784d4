"""What a scenario makes small or large, checked against its classes and limits."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from qmodel.errors import Problem
from qmodel.problem.instances import Objective
from qmodel.scenario.class_section import slo_from_key
from qmodel.types import GpuLimits, Limits

if TYPE_CHECKING:
    from qmodel.scenario import Scenario

__all__ = ["bind_objective", "unpredicted"]


def bind_objective(scenario: Scenario, limits: Limits) -> tuple[Objective, tuple[Problem, ...]]:
    """The objective of a scenario, and problems with it.

    Args:
        scenario: checked against its schema.
        limits: of the fleet; without any, more GPUs would always do better than cost alone allows.
    """
    stated = scenario.objective
    key = stated.target_key
    if key is None and stated.maximize is None:
        return Objective(), ()
    what = stated.maximize or key
    if not _bounded(limits):
        hint = "add fleet.budget_usd_per_hour, fleet.power_kw, or max_count for every GPU type or all its tiers"
        return Objective(), (scenario.problem("objective", f"{what} needs a limit of the whole fleet", hint),)
    if key is None and scenario.layouts.disaggregate is True:
        told = f"not supported yet: separate prefill and decode pools where objective is {what}"
        return Objective(), (scenario.problem("layouts.disaggregate", told, "use auto or false"),)
    batches = [name for name, spec in scenario.classes.items() if spec.batch is not None]
    if key is None and batches:
        what = f"served_rps counts requests per second, and class '{batches[0]}' is a batch"
        return Objective(), (scenario.problem("objective.maximize", what, "minimize cost_usd_per_hour"),)
    if key is None:
        return Objective(kind="served"), ()
    assert stated.cls is not None  # the schema asks for it
    if stated.cls not in scenario.classes:
        near = get_close_matches(stated.cls, scenario.classes, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"one of {', '.join(scenario.classes)}"
        return Objective(), (scenario.problem("objective.class", f"no class '{stated.cls}'", hint),)
    if (problem := unpredicted(scenario, stated.cls, "objective.minimize", key)) is not None:
        return Objective(), (problem,)
    return Objective(kind="latency", cls=stated.cls, target=slo_from_key(key, 1.0)), ()


def unpredicted(scenario: Scenario, cls: str, at: str, key: str) -> Problem | None:
    """Why the seconds of a class cannot be followed: measured capacities, APIs that meet targets, some of batches.

    Args:
        scenario: checked against its schema.
        cls: one of its classes.
        at: the key that asks for seconds.
        key: of the target.
    """
    if scenario.classes[cls].batch is not None and slo_from_key(key, 1.0).metric not in ("ttft", "completion"):
        what = f"{key} of {cls} is not predicted: its requests come as a batch"
        return scenario.problem(at, what, "name ttft or completion")
    for model, tier in scenario.classes[cls].tiers.items():
        if key in (tier.slo or {}):
            what = f"{key} of {cls} is not one level: {model} has its own"
            return scenario.problem(at, what, f"state {key} for the class alone, or name another target")
    for index, profile in enumerate(scenario.profiles):
        if profile.max_rate_rps is not None and cls in profile.max_rate_rps:
            what = f"{key} of {cls} is not predicted: profiles[{index}] states max_rate_rps, which has no seconds"
            return scenario.problem(at, what, "state step times in that profile, or take the class out of it")
    for name, api in scenario.fleet.apis.items():
        offers = [api.models[model] for model in scenario.classes[cls].served_by if model in api.models]
        if any(cls in offer.meets for offer in offers):
            what = f"{key} of {cls} is not predicted: fleet.apis.{name} states meets, which has no seconds"
            return scenario.problem(at, what, "state latency there, or take the class out of it")
    return None


def _bounded(limits: Limits) -> bool:
    """Whether a fleet can only be so large."""
    if limits.budget_usd_per_hour is not None or limits.power_kw is not None:
        return True
    return all(map(_in_stock, limits.gpus.values()))


def _in_stock(item: GpuLimits) -> bool:
    """Whether so many GPUs of a type can be had and no more."""
    offered = bool(item.offers) and all(offer.max_gpus is not None for offer in item.offers)
    return item.max_count is not None or item.max_nodes is not None or offered
