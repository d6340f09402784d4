"""Pools of measured capacity from the scenario to a proven plan, and everything that reads the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from tests.planning.measured import least_cost, measured_scenario, random_capacities
from tests.planning.shared_models import two_classes

P3 = Path(__file__).resolve().parents[2] / "scenarios" / "peers" / "p3.yaml"
STEPS = {"alpha_s": 0.01, "beta_s": 1e-4, "gamma_s": 1e-8, "delta_s": 5e-5, "max_num_seqs": 64}


def two_types() -> dict[str, Any]:
    """X costs 10 and carries 10 of a or of b; Y costs 3 and carries 2 of b only."""
    return measured_scenario(
        {"a": 5.0, "b": 7.0}, {"X": {"a": 10.0, "b": 10.0}, "Y": {"b": 2.0}}, {"X": 10.0, "Y": 3.0}
    )


def test_a_class_is_split_over_types_where_that_is_cheaper():
    plan = qm.plan(two_types())
    assert plan.cost_usd_per_hour == pytest.approx(13.0)  # whole classes on one type each cost 20
    assert (plan.status, plan.termination) == ("optimal", "proven")
    assert plan.gap == pytest.approx(0.0, abs=1e-9)
    assert {row.gpu: (row.replicas, row.binding) for row in plan.pools} == {
        "X": (1, "one replica is the least"),
        "Y": (1, "one replica is the least"),
    }
    assert [row.utilisation for row in plan.pools] == pytest.approx([1.0, 1.0], abs=1e-6)


def test_a_hundred_buckets_on_four_types_are_proven():
    plan = qm.plan(P3)
    assert plan.cost_usd_per_hour == pytest.approx(67.18, abs=1e-6)
    assert (plan.status, plan.termination) == ("optimal", "proven")
    assert plan.gap == pytest.approx(0.0, abs=1e-9)
    assert all(row.met and row.basis == "measured" for row in plan.slo)
    shares: dict[str, float] = {}
    for row in plan.routing:
        shares[row.cls] = shares.get(row.cls, 0.0) + row.share
    assert shares == pytest.approx(dict.fromkeys(shares, 1.0)) and len(shares) == 100


@pytest.mark.parametrize("seed", range(30))
def test_cost_and_bound_are_the_optimum_of_an_independent_solver(seed: int):
    rates, capacities, prices, stock = random_capacities(seed)
    plan = qm.plan(measured_scenario(rates, capacities, prices, stock))
    cheapest = least_cost(rates, capacities, prices, stock)
    if plan.cost_usd_per_hour is None:
        assert plan.status == "infeasible" and cheapest == float("inf")
        assert plan.why.limit and plan.why.change
        return
    assert plan.cost_usd_per_hour == pytest.approx(cheapest, rel=1e-6)
    assert plan.bound_usd_per_hour == pytest.approx(cheapest, rel=1e-6)
    assert all(row.utilisation is not None and row.utilisation <= 1.0 + 1e-6 for row in plan.pools)


def test_room_is_spread_over_pools():
    plan = qm.plan(measured_scenario({"a": 9.0}, {"X": {"a": 5.0}, "Y": {"a": 5.0}}, {"X": 4.0, "Y": 4.0}, {"X": 1}))
    assert [row.utilisation for row in plan.pools] == pytest.approx([0.9] * len(plan.pools))


def mixed() -> dict[str, Any]:
    """Class a is predicted on G and measured on X; the target of class b is out of reach on G."""
    scenario = measured_scenario({"a": 5.0, "b": 2.0}, {"X": {"a": 2.0, "b": 4.0}}, {"X": 4.0, "G": 3.0})
    scenario["classes"]["b"]["slo"] = {"ttft_p99_s": 0.005}
    scenario["profiles"].append({"model": "m", "gpu": "G", **STEPS})
    return scenario


def test_predicted_and_measured_pools_serve_one_model_together():
    plan = qm.plan(mixed())
    alone = qm.plan(measured_scenario({"a": 5.0}, {}, {"G": 3.0}) | {"profiles": [{"model": "m", "gpu": "G", **STEPS}]})
    assert alone.cost_usd_per_hour is not None and plan.cost_usd_per_hour is not None
    assert plan.status == "optimal"
    assert plan.cost_usd_per_hour <= alone.cost_usd_per_hour + 4.0 + 1e-9
    basis = {(row.cls, row.path): (row.basis, row.predicted_s is None) for row in plan.slo if row.path != "fleet"}
    gpus = {name: pool.gpu for name, pool in plan.fleet.pools.items()}
    wanted = {"X": ("measured", True), "G": ("predicted", False)}
    assert all(value == wanted[gpus[path]] for (_, path), value in basis.items())
    assert {gpus[path] for cls, path in basis if cls == "b"} == {"X"}


def test_a_class_over_predicted_and_measured_pools_is_met_where_every_path_is():
    fleet = qm.load_fleet(
        {
            "qmodel": 1,
            "pools": {"g": {"model": "m", "gpu": "G", "replicas": 2}, "x": {"model": "m", "gpu": "X", "replicas": 1}},
            "routing": {"a": [{"path": ["g"], "share": 0.8}, {"path": ["x"], "share": 0.2}], "b": [{"path": ["x"]}]},
        }
    )
    result = qm.evaluate(mixed(), fleet)
    assert result.feasible
    assert {row.path: row.basis for row in result.slo if row.cls == "a"} == {
        "g": "predicted", "x": "measured", "fleet": "measured",
    }  # fmt: skip
    assert {row.path for row in result.latency} == {"g"}
    limit = qm.capacity(mixed(), fleet)
    assert limit.factor == pytest.approx(1.0 / (1.0 / 2.0 + 2.0 / 4.0))
    assert limit.binding == "measured capacity of x"
    assert [row.met for row in limit.curve][-2:] == [True, False]


def fleet_x(replicas: int, **pool: Any) -> Any:
    return qm.load_fleet(
        {
            "qmodel": 1,
            "pools": {"x": {"model": "m", "gpu": "X", "replicas": replicas, **pool}},
            "routing": {"a": [{"path": ["x"]}], "b": [{"path": ["x"]}]},
        }
    )


def test_a_pool_beyond_its_measured_capacity_is_overloaded_with_a_reason():
    result = qm.evaluate(two_types(), fleet_x(1))
    (row,) = result.pools
    assert (row.stable, row.utilisation, row.kv_fill, row.binding) == (False, pytest.approx(1.2), None, "overload")
    assert row.overload == "takes 1.2 replicas at the measured capacities, has 1"
    assert not result.stable and not result.feasible
    assert not any(item.met or item.met_at_p90 for item in result.slo)
    assert qm.evaluate(two_types(), fleet_x(2)).pools[0].binding == "measured capacity"
    assert qm.evaluate(two_types(), fleet_x(3)).pools[0].binding == "spare: one replica less still meets every target"


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ({"gpu": "Y"}, "pool 'x' has no measured capacity for class 'a'; add a to max_rate_rps of the profile"),
        ({"engine": {"max_num_seqs": 8}}, "runs at a measured capacity, which engine settings do not change"),
        ({"layout": {"tp": 2}}, "m on X has profiles for tp1 only"),
    ],
)
def test_a_fleet_that_asks_for_more_than_was_measured_is_refused(pool: dict[str, Any], expected: str):
    with pytest.raises(qm.ScenarioError, match=expected.replace("(", r"\(")):
        qm.evaluate(two_types(), fleet_x(2, **pool))


def test_simulation_is_refused_for_lack_of_step_times():
    with pytest.raises(qm.ScenarioError, match="runs at a measured capacity: without step times there is noth"):
        qm.simulate(two_types(), fleet_x(2), requests=200)
    plan = qm.plan(two_types())
    with pytest.raises(qm.ScenarioError, match="nothing to simulate"):
        qm.check_plan(two_types(), plan, requests=200)


def test_a_saved_plan_verifies_alone_and_reads_back_equal(tmp_path: Path):
    from qmodel.planning import verify

    plan = qm.plan(mixed())
    plan.save(tmp_path / "plan.json")
    read = qm.load_plan(tmp_path / "plan.json")
    assert read.to_dict() == plan.to_dict()
    assert verify(read).ok
    assert "capacities as measured" in read.explain()
    assert qm.evaluate(mixed(), read.fleet).slo == read.slo


def test_a_plan_that_claims_more_than_the_capacity_does_not_verify():
    from dataclasses import replace

    from qmodel.planning import verify

    plan = qm.plan(two_types())
    name = next(name for name, data in plan.inputs["pools"].items() if "a" in data["capacity"]["max_rate_rps"])
    lowered = plan.inputs["pools"][name] | {"capacity": {"max_rate_rps": {"a": 4.0, "b": 4.0}}}
    inputs = plan.inputs | {"pools": plan.inputs["pools"] | {name: lowered}}
    assert "replicas at the measured capacities" in verify(replace(plan, inputs=inputs)).first_failure


def test_a_class_that_was_measured_nowhere_is_named():
    scenario = measured_scenario({"a": 5.0, "b": 7.0}, {"X": {"a": 10.0}}, {"X": 10.0})
    plan = qm.plan(scenario)
    assert plan.status == "infeasible"
    assert plan.why.text == "class 'b' has no measured capacity on any GPU type, and nothing else serves m"
    assert plan.why.change == "add b to max_rate_rps of a profile"


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({"aa1": 3.0, "b": 2.0}, "profiles[0].max_rate_rps.aa1: no class 'aa1'; did you mean 'aa'?"),
        ({"aa": 3.0, "other": 2.0}, "profiles[0].max_rate_rps.other: class 'other' asks for m2; take it out"),
    ],
)
def test_names_of_classes_in_a_profile_are_checked(rates: dict[str, float], expected: str):
    scenario = measured_scenario({"aa": 5.0, "b": 1.0, "other": 1.0}, {"X": rates}, {"X": 10.0})
    scenario["classes"]["other"]["model"] = "m2"
    scenario["profiles"].append({"model": "m2", "gpu": "X", "max_rate_rps": {"other": 1.0}})
    assert [str(problem).removeprefix("<dict>: ") for problem in qm.validate(scenario)] == [expected]


def test_a_layout_has_step_times_or_a_capacity():
    scenario = two_types()
    scenario["profiles"].append({"model": "m", "gpu": "X", **STEPS})
    assert ["m on X in layout tp1 is profiled twice" in str(problem) for problem in qm.validate(scenario)] == [True]


def test_capacities_of_classes_that_a_variant_takes_out_are_noted():
    scenario = two_types() | {"variants": {"only-a": {"classes.b": None}}}
    plan = qm.plan(qm.load_scenario(scenario, apply=["only-a"]))
    assert plan.cost_usd_per_hour == pytest.approx(10.0)
    assert "m on X tp1: capacities for b are not used: no such class" in plan.assumptions


@pytest.mark.parametrize("seed", range(6))
def test_one_class_on_predicted_and_measured_pools_costs_what_arithmetic_says(seed: int):
    rng = np.random.default_rng([seed, 43])
    rate, prices = float(rng.uniform(10, 40)), {"G": float(rng.uniform(2, 4)), "X": float(rng.uniform(2, 4))}
    scenario = measured_scenario({"a": rate}, {"X": {"a": float(rng.uniform(4, 9))}}, prices)
    scenario["profiles"].append({"model": "m", "gpu": "G", **STEPS})
    scenario["engine"] = {"router": "random"}
    one = {"qmodel": 1, "pools": {"g": {"model": "m", "gpu": "G", "replicas": 1}}, "routing": {"a": [{"path": ["g"]}]}}
    on_g = qm.capacity(scenario, qm.load_fleet(one)).factor  # with a random split n replicas carry n times as much
    on_x = scenario["profiles"][0]["max_rate_rps"]["a"] / rate

    def cheapest(carried: float) -> float:
        costs = []
        for n in range(int(np.ceil(1.0 / carried)) + 1):
            rest = max(np.ceil((1.0 - n * carried) / on_x - 1e-9), 0.0)
            costs.append(n * prices["G"] + rest * prices["X"])
        return float(min(costs))

    plan = qm.plan(scenario)
    assert plan.status == "optimal" and plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert cheapest(on_g * 1.005) - 1e-9 <= plan.cost_usd_per_hour <= cheapest(on_g * 0.995) + 1e-9
    assert plan.bound_usd_per_hour <= cheapest(on_g) + 1e-9


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_classes_on_predicted_and_measured_pools_cost_no_more_than_on_either(seed: int):
    rng = np.random.default_rng([seed, 77])
    predicted = two_classes(seed, "random")
    price = {"usd_per_gpu_hour": float(rng.uniform(2, 6))}
    capacities = {name: float(item["rate_rps"] * rng.uniform(0.15, 0.9)) for name, item in predicted["classes"].items()}
    profile = {"model": "m", "gpu": "meas", "max_rate_rps": capacities}
    gpus = {"gpus": predicted["fleet"]["gpus"] | {"meas": {"price": price}}}
    both = predicted | {"fleet": gpus, "profiles": [*predicted["profiles"], profile]}
    measured = predicted | {"fleet": {"gpus": {"meas": {"price": price}}}, "profiles": [profile]}
    costs = [qm.plan(scenario).cost_usd_per_hour for scenario in (predicted, measured)]
    plan = qm.plan(both)
    cheapest = min(cost for cost in costs if cost is not None)
    assert plan.status == "optimal"
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour <= cheapest * (1.0 + 0.005)


def test_replicas_to_spare_are_paid_beside_those_that_carry():
    plan = qm.plan(two_types() | {"policy": {"spare_replicas": 1}})
    assert plan.cost_usd_per_hour == pytest.approx(26.0)
    assert {row.gpu: (row.replicas, row.utilisation) for row in plan.pools} == {
        "X": (2, pytest.approx(1.0)), "Y": (2, pytest.approx(1.0)),
    }  # fmt: skip


def test_an_isolated_class_has_open_pools_of_its_own():
    scenario = two_types()
    scenario["classes"]["b"]["isolate"] = True
    plan = qm.plan(scenario)
    assert plan.cost_usd_per_hour == pytest.approx(20.0)
    assert {(row.pool, row.utilisation) for row in plan.pools} == {("a-X-tp1", 0.5), ("b-X-tp1", 0.7)}


def test_stock_that_is_too_small_for_open_pools_is_named():
    scenario = two_types()
    scenario["classes"]["b"]["rate_rps"] = 9.0
    for gpu in ("X", "Y"):
        scenario["fleet"]["gpus"][gpu]["max_count"] = 1
    plan = qm.plan(scenario)
    assert (plan.status, plan.why.limit) == ("infeasible", "fleet.gpus.X.max_count")
    assert plan.why.change == "raise fleet.gpus.X.max_count to 2"
