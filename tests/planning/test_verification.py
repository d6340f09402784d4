"""A plan that was tampered with does not pass, and a saved plan comes back whole."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import qmodel as qm

PEERS = Path(__file__).parents[2] / "scenarios" / "peers"


@pytest.fixture(scope="module")
def plan() -> qm.Plan:
    return qm.plan(PEERS / "p2.yaml")


def tampered(plan: qm.Plan, change: str) -> qm.Plan:
    data: dict[str, Any] = copy.deepcopy(plan.to_dict())
    name = next(iter(data["fleet"]["pools"]))
    if change == "cost":
        data["cost_usd_per_hour"] -= 16.08
    elif change == "targets":
        data["fleet"]["pools"][name]["replicas"] = 6
    elif change == "cover":
        data["fleet"]["routing"]["reasoning"][0]["share"] = 0.9
    elif change == "limits":
        data["inputs"]["limits"]["gpus"]["H100"]["max_count"] = 24
    elif change == "limits: forbidden":
        data["inputs"]["limits"]["forbidden"] = [{"gpu": "H100"}]
    elif change == "limits: budget":
        data["inputs"]["limits"]["budget_usd_per_hour"] = 20.0
    elif change == "spare":
        data["inputs"]["limits"]["spare_replicas"] = 50
    elif change == "isolation":
        data["inputs"]["classes"]["reasoning"]["isolate"] = True
        data["fleet"]["routing"]["other"] = data["fleet"]["routing"]["reasoning"]
        data["inputs"]["classes"]["other"] = data["inputs"]["classes"]["reasoning"]
    elif change == "stability":
        data["inputs"]["classes"]["reasoning"]["rate_rps"] = 20.0
    elif change == "predictions":
        data["slo"][0]["predicted_s"] *= 0.5
    elif change == "bound":
        data["bound_usd_per_hour"] = 1000.0
    elif change == "bound: gap":
        data["gap"] = 0.001
    elif change == "bound: status":
        data["bound_usd_per_hour"], data["gap"] = 56.28, 0.5
    elif change == "cover: model":
        data["inputs"]["classes"]["reasoning"]["model"] = "another"
    elif change == "predictions: band":
        data["slo"][0]["high_s"] *= 0.5
    elif change == "tables: pools":
        data["pools"][0]["gpus"] = 24
    elif change == "tables: routing":
        data["routing"][0]["rate_rps"] = 1.0
    elif change == "tables: slo":
        data["slo"][0]["met"] = False
    return qm.Plan.from_dict(data)


CHANGES = [
    *("cost", "targets", "cover", "cover: model", "limits", "limits: forbidden", "limits: budget", "spare"),
    *("isolation", "stability", "predictions", "predictions: band"),
    *("tables: pools", "tables: routing", "tables: slo", "bound", "bound: gap", "bound: status"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_claim_is_found(plan: qm.Plan, change: str) -> None:
    assert qm.verify(plan).ok
    failed = {check.name for check in qm.verify(tampered(plan, change)).checks if not check.ok}
    assert change.partition(":")[0] in failed


def test_saved_plan_is_the_same_plan(plan: qm.Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    again = qm.load_plan(path)
    assert again.to_dict() == plan.to_dict()
    assert qm.verify(again).ok
    assert qm.load_fleet(path).to_dict() == again.to_dict()["fleet"]


def test_equal_input_gives_equal_output_digit_by_digit() -> None:
    first, second = (qm.plan(PEERS / "p2kv.yaml").to_dict(reproducible=True) for _ in range(2))
    assert json.dumps(first) == json.dumps(second)
    assert "run" not in first


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"status": "best"}', '{"status": "optimal"}', "not json"])
def test_a_file_that_is_no_plan_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(qm.ScenarioError, match=r"plan\.json"):
        qm.load_plan(path)


def test_raise_for_status_raises_what_stopped_the_search() -> None:
    plan = qm.plan(qm.load_scenario(PEERS / "p2.yaml", set={"fleet.gpus.H100.max_count": 8}))
    assert plan.status == "infeasible"
    assert plan.to_dict()["cost_usd_per_hour"] is None
    with pytest.raises(qm.InfeasibleError, match="more GPUs than are in stock"):
        plan.raise_for_status()
    qm.plan(PEERS / "p1.yaml").raise_for_status()
