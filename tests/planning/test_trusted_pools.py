"""What a replica was found to carry is trusted at lighter loads, unless the evaluation of the fleet says no."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import Candidate, Column, enumerate_candidates, feasible_at, frontier
from qmodel.planning import planner
from qmodel.planning.assembly import pools_of
from qmodel.planning.built_fleets import BuiltFleet, build
from qmodel.planning.planned_pools import PlannedPool
from qmodel.problem import Instance, bind
from tests.optimize.pieces import stock_of

P1 = Path(__file__).parents[2] / "scenarios" / "peers" / "p1.yaml"


def p1_column(gpu: str, factor: float = 1.0) -> tuple[Instance, Column]:
    """One replica of a GPU type with ``factor`` times the share of the class that it carries."""
    instance = bind(qm.load_scenario(P1))
    found: Candidate = next(item for item in enumerate_candidates(instance).candidates if item.gpu == gpu)
    low = float(frontier([found], [instance.classes["chat"]], np.array([1])).low[0])
    shares = {"chat": min(factor * low, 1.0)}
    return instance, Column(candidate=found, replicas=1, shares=shares, upper=shares)


def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts that pools are looked at with from now on."""
    asked: list[int] = []

    def recorded(candidates: Any, classes: Any, counts: Any, loads: Any) -> Any:
        asked.extend(counts.tolist())
        return feasible_at(candidates, classes, counts, loads)

    monkeypatch.setattr("qmodel.planning.assembly.feasible_at", recorded)
    return asked


@pytest.mark.parametrize(("gpu", "count"), [("H100", 2), ("A100", 7)])
def test_pools_are_the_same_with_and_without_a_look(gpu: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, column = p1_column(gpu)
    asked = looks(monkeypatch)
    sure = pools_of(instance, [(column, count)], stock_of({}), trusting=True)
    assert asked == []
    looked = pools_of(instance, [(column, count)], stock_of({}))
    assert asked == [count]
    assert [(item.replicas, item.shares) for item in sure] == [(item.replicas, item.shares) for item in looked]


def test_a_pool_that_is_loaded_beyond_what_was_found_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, column = p1_column("A100")
    asked = looks(monkeypatch)
    (pool,) = pools_of(instance, [(column, 6)], stock_of({}), trusting=True)  # 6 carry 98 %, and have to carry all
    assert asked == [6, 7]
    assert pool.replicas == 7


def test_a_fleet_that_misses_a_target_is_built_again_with_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    trusted: list[bool] = []

    def short(*parts: Any, trusting: bool = False, **more: Any) -> BuiltFleet | None:
        """One replica too few where nobody looks."""
        trusted.append(trusting)
        found = build(*parts, trusting=trusting, **more)
        if found is None or not trusting:
            return found
        (pool,) = found.pools
        assert isinstance(pool, PlannedPool)
        return replace(found, pools=(replace(pool, replicas=pool.replicas - 1),))

    monkeypatch.setattr(planner, "build", short)
    plan = qm.plan(P1)
    assert trusted == [True, False]
    assert plan.status == "optimal"
    assert [(row.gpu, row.replicas) for row in plan.pools] == [("H100", 2)]
