"""Priorities from the scenario file to the plan, its verification and its simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

import qmodel as qm

FILE = Path(__file__).parents[2] / "scenarios" / "50-priorities.yaml"


@pytest.fixture(scope="module")
def plan() -> qm.Plan:
    return qm.plan(qm.load_scenario(FILE))


def test_going_first_saves_a_replica(plan: qm.Plan) -> None:
    in_order = qm.plan(qm.load_scenario(FILE, apply=["in-order"]))
    assert sum(pool.replicas for pool in plan.pools) < sum(pool.replicas for pool in in_order.pools)
    assert len(plan.pools) == 1


def test_a_saved_plan_keeps_the_priorities(plan: qm.Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.json")
    loaded = qm.load_plan(tmp_path / "plan.json")
    assert [row.predicted_s for row in loaded.slo] == [row.predicted_s for row in plan.slo]
    check = qm.verify(loaded)
    assert check.ok, check.first_failure


def test_the_plan_says_that_engines_must_schedule_by_priority(plan: qm.Plan) -> None:
    assert any("engines admit requests by priority (chat 1, bulk 0)" in text for text in plan.assumptions)
    plain = qm.plan(qm.load_scenario(FILE, apply=["in-order"]))
    assert not any("by priority" in text for text in plain.assumptions)


def test_evaluation_and_simulation_serve_the_important_class_first(plan: qm.Plan) -> None:
    assert plan.fleet is not None
    found = {}
    for name, applied in (("ranked", []), ("in order", ["in-order"])):
        scenario = qm.load_scenario(FILE, apply=applied)
        predicted = {(row.cls, row.metric): row.predicted_s for row in qm.evaluate(scenario, plan.fleet).slo}
        simulated = {
            (row.cls, row.metric): row.simulated_s
            for row in qm.simulate(scenario, plan.fleet, seed=2, requests=20_000).slo
        }
        found[name] = (predicted["chat", "ttft"], simulated["chat", "ttft"])
    for ranked_s, in_order_s in zip(found["ranked"], found["in order"], strict=True):
        assert ranked_s < 0.4 * in_order_s
    assert found["ranked"][0] == pytest.approx(found["ranked"][1], rel=0.5)


def test_priorities_may_be_any_whole_number_and_nothing_else() -> None:
    assert qm.load_scenario(FILE, set={"classes.bulk.priority": -3}).classes["bulk"].priority == -3
    with pytest.raises(qm.ScenarioError, match=r"classes\.bulk\.priority"):
        qm.load_scenario(FILE, set={"classes.bulk.priority": "high"})
