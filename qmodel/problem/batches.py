"""Batches, and prices and engines that do not go with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from qmodel.errors import Problem
from qmodel.problem.instances import GpuOption
from qmodel.types import Limits

if TYPE_CHECKING:
    from qmodel.scenario import Scenario

__all__ = ["batch_problems"]


def batch_problems(
    scenario: Scenario,
    limits: Limits,
    gpus: Mapping[str, GpuOption],
    settings: Mapping[tuple[str, str], Sequence[Mapping[str, object]]],
) -> list[Problem]:
    """What batches do not go with.

    Args:
        scenario: checked against its schema.
        limits: of the fleet.
        gpus: GPU types with their engines.
        settings: engine settings by class and GPU type, over those of the GPU type.
    """
    return _held_problems(scenario, limits) + _swapped_problems(scenario, gpus, settings)


def _swapped_problems(
    scenario: Scenario,
    gpus: Mapping[str, GpuOption],
    settings: Mapping[tuple[str, str], Sequence[Mapping[str, object]]],
) -> list[Problem]:
    problems = []
    for name in (name for name, spec in scenario.classes.items() if spec.batch is not None):
        swapping = [
            gpu
            for gpu, option in gpus.items()
            if any(
                one.get("preemption", option.engine.preemption) == "swap" for one in settings.get((name, gpu), ({},))
            )
        ]
        if swapping:
            what = f"is a batch, which is predicted with recomputation only, and engines on {', '.join(swapping)} swap"
            problems.append(scenario.problem(f"classes.{name}.batch", what, "use preemption: recompute"))
    return problems


def _held_problems(scenario: Scenario, limits: Limits) -> list[Problem]:
    """Why batches that come ever so often cannot be paid by the time: nodes and price tiers are paid all the time."""
    problems = []
    for name, spec in scenario.classes.items():
        if spec.batch is None or spec.batch.every_s is None:
            continue
        for gpu, item in limits.gpus.items():
            if item.whole_nodes or item.mixes_offers:
                how = "is paid by whole nodes" if item.whole_nodes else "has several price tiers"
                what = f"GPUs are held for a part of the time, but fleet.gpus.{gpu} {how}"
                hint = "leave every_s out: its GPUs are then paid all the time; or state one price and billing: per_gpu"
                problems.append(scenario.problem(f"classes.{name}.batch.every_s", what, hint))
    return problems
