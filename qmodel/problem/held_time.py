"""Batches that hold their GPUs for a part of the time, and prices that go with that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmodel.errors import Problem
from qmodel.types import Limits

if TYPE_CHECKING:
    from qmodel.scenario import Scenario

__all__ = ["held_problems"]


def held_problems(scenario: Scenario, limits: Limits) -> list[Problem]:
    """Why batches that come ever so often cannot be paid by the time: nodes and price tiers are paid all the time.

    Args:
        scenario: checked against its schema.
        limits: of the fleet.
    """
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
