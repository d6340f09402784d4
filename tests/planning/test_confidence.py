"""The two bands of a prediction in plans: at p90 every target holds at their upper ends, for profiles too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import qmodel as qm
from qmodel.evaluation import pool_cases
from qmodel.problem import bind
from qmodel.queueing import pool
from tests.planning.test_directions import small


def at_p90(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "policy": {"confidence": "p90"}}


def test_a_profile_without_a_step_band_has_a_cost_at_p90() -> None:
    costs = []
    for rate in (
        2.8,
        2.9,
        3.0,
        3.05,
        3.1,
        3.15,
    ):  # between those that one replica carries at p90 and those that two must
        plan = qm.plan(small(rate))
        costs.append((plan.cost_usd_per_hour, plan.cost_at_p90_usd_per_hour))
        assert all(row.met_at_p90 for row in plan.slo) == (plan.cost_usd_per_hour == plan.cost_at_p90_usd_per_hour)
    assert (1.7, 1.7) in costs and (1.7, 3.4) in costs


@pytest.mark.parametrize("band", [0.0, 0.2])
@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("rate", [3.0, 8.0])
def test_a_plan_at_p90_holds_there_and_costs_no_more_than_the_nominal_pools_grown(
    rate: float, router: str, band: float, tmp_path: Path
) -> None:
    data = small(rate, router=router)
    for profile in data["profiles"]:
        profile["band_p90"] = band
    nominal, plan = qm.plan(data), qm.plan(at_p90(data))
    assert plan.cost_usd_per_hour is not None and nominal.cost_usd_per_hour is not None
    assert plan.cost_usd_per_hour >= nominal.cost_usd_per_hour
    assert nominal.cost_at_p90_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= nominal.cost_at_p90_usd_per_hour + 1e-9
    assert plan.cost_at_p90_usd_per_hour == plan.cost_usd_per_hour
    assert all(row.met_at_p90 for row in plan.slo)
    plan.save(tmp_path / "plan.json")
    assert qm.verify(qm.load_plan(tmp_path / "plan.json")).ok
    capacity = qm.capacity(at_p90(data), plan.fleet)
    assert 1.0 <= capacity.factor <= qm.capacity(data, plan.fleet).factor


def test_ends_are_the_step_band_times_the_queueing_band_at_that_utilisation() -> None:
    data = small(3.0)
    for profile in data["profiles"]:
        profile["band_p90"] = 0.1
    plan = qm.plan(data)
    instance = bind(qm.load_scenario(data))
    assert plan.fleet is not None
    (case,) = pool_cases(instance, plan.fleet).values()
    row = next(item for item in plan.slo if item.metric == "ttft")
    for end_s, factor, up in ((row.high_s, 1.1, 1.0), (row.low_s, 1.0 / 1.1, -1.0)):
        step = case.replica.step.scaled(factor)  # type: ignore[union-attr]  # predicted
        engine = qm.queueing.Replica.from_dict({**case.replica.to_dict(), "step": step.to_dict()})  # type: ignore[union-attr]
        ttft = pool(engine, list(instance.classes.values()), case.serving, case.router)["chat"].ttft  # type: ignore[union-attr]
        assert end_s == pytest.approx(ttft.quantile(0.95) * (1.0 + ttft.band(0.95)) ** up)


def test_a_mixture_of_paths_takes_each_path_at_its_own_end() -> None:
    """With one path almost alone, the fleet's ends are that path's."""
    data = small(3.0)
    pools = {name: {"model": "m", "gpu": "small", "replicas": 2} for name in ("one", "two")}
    shares = [{"path": ["one"], "share": 0.999}, {"path": ["two"], "share": 0.001}]
    fleet = qm.load_fleet({"qmodel": 1, "pools": pools, "routing": {"chat": shares}})
    rows = {(row.path, row.metric): row for row in qm.evaluate(data, fleet).slo}
    for metric in ("ttft", "tpot"):
        whole, part = rows["fleet", metric], rows["one", metric]
        assert whole.high_s == pytest.approx(part.high_s, rel=2e-3)
        assert whole.low_s == pytest.approx(part.low_s, rel=2e-3)


def test_measured_capacities_have_no_band() -> None:
    data = small(3.0)
    data["profiles"] = [{"model": "m", "gpu": "small", "max_rate_rps": {"chat": 2.0}}]
    del data["fleet"]["gpus"]["big"]
    plan = qm.plan(data)
    assert plan.cost_at_p90_usd_per_hour == plan.cost_usd_per_hour == 3.4


def test_the_least_latency_at_p90_is_the_upper_end_and_not_below_what_is_ruled_out() -> None:
    data = small(3.0)
    data["fleet"]["gpus"]["big"]["max_count"] = data["fleet"]["gpus"]["small"]["max_count"] = 3
    data["objective"] = {"minimize": "ttft_p95_s", "class": "chat"}
    nominal, plan = qm.plan(data), qm.plan(at_p90(data))
    assert plan.objective is not None and nominal.objective is not None and plan.objective.bound is not None
    assert plan.objective.value > nominal.objective.value
    ends = [row.high_s for row in plan.slo if row.metric == "ttft" and row.path != "fleet"]
    assert plan.objective.value == pytest.approx(max(end for end in ends if end is not None), rel=0.05)
    assert plan.objective.bound <= plan.objective.value
