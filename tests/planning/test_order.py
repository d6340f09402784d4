"""A plan does not depend on the order in which a scenario lists classes, GPU types, profiles and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import qmodel as qm
from tests.planning.measured import measured_scenario, random_capacities
from tests.planning.shared_models import two_classes

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
QUICK = ("10-quickstart", "50-priorities", "92-models", "p1", "p2", "p2kv", "p3")  # others take seconds, twice
LISTS = ("profiles", "forbid", "meets", "providers")  # whose order says nothing


def reordered(value: Any, key: str = "") -> Any:
    """The same content with every mapping backwards, and lists whose order says nothing."""
    if isinstance(value, dict):
        return {name: reordered(value[name], name) for name in reversed(value)}
    if isinstance(value, list) and key in LISTS:
        return [reordered(item) for item in reversed(value)]
    return value


def facts(plan: qm.Plan) -> dict[str, Any]:
    """What a plan says, without the order of its tables."""
    assert plan.fleet is not None
    return {
        "cost": pytest.approx(plan.cost_usd_per_hour),
        "bound": pytest.approx(plan.bound_usd_per_hour),
        "pools": {(row.pool, row.model, row.gpu, row.tp, row.replicas, row.binding) for row in plan.pools},
        "paths": {(row.cls, row.path): pytest.approx(row.share, abs=1e-6) for row in plan.routing},
        "slo": {(row.cls, row.path, row.metric, row.stat): row.met for row in plan.slo},
        "prices": {row.limit: pytest.approx(row.usd_per_hour_per_unit, abs=1e-6) for row in plan.prices},
    }


def from_anywhere(path: Path) -> dict[str, Any]:
    """A scenario file as plain data, with paths of traces that do not depend on where it is read from."""
    data = qm.load_scenario(path).resolved()
    for item in data["classes"].values():
        if "trace" in item:
            item["trace"]["file"] = str(path.parent / item["trace"]["file"])
    return data


def scenarios() -> dict[str, dict[str, Any]]:
    rates, capacities, prices, _ = random_capacities(4)
    files = sorted(path for path in SCENARIOS.rglob("*.yaml") if path.parent.name != "fleets")
    found = {path.stem: from_anywhere(path) for path in files}
    found["measured"] = measured_scenario(rates, capacities, prices)
    found["two classes, random"] = two_classes(2, "random")
    found["two classes, jsq"] = two_classes(3, "jsq")
    return found


CASES = [
    name if name in QUICK or " " in name or name == "measured" else pytest.param(name, marks=pytest.mark.slow)
    for name in scenarios()
]


@pytest.mark.parametrize("name", CASES)
def test_a_scenario_written_backwards_gives_the_same_plan(name: str):
    scenario = scenarios()[name]
    backwards = reordered(scenario)
    assert list(backwards) != list(scenario)
    assert facts(qm.plan(backwards)) == facts(qm.plan(scenario))
