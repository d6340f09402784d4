"""Spot GPUs: how many replicas are up, what work is done twice, and pools that bear both."""

from __future__ import annotations

import copy
import itertools
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import qmodel as qm
from qmodel.candidates import enumerate_candidates
from qmodel.evaluation import evaluate_fleet
from qmodel.problem import bind, replica_of
from qmodel.problem.lost_work import repeat_factor
from qmodel.simulation import Availability, draw_outages, simulate_pool, table_from_arrays
from qmodel.types import GpuLimits, Limits, Replica, SpotTerms
from tests.planning.limited_fleets import MOST, carried, two_models

DAY_S = 86400.0


@pytest.mark.parametrize(
    ("replicas", "per_hour", "restart_s", "together"),
    [(1, 0.02, 300.0, 1), (4, 0.5, 360.0, 1), (10, 0.5, 360.0, 1), (20, 2.0, 600.0, 1), (9, 1.0, 400.0, 4)],
)
def test_the_replicas_that_are_left_are_up_as_long_as_asked(
    replicas: int, per_hour: float, restart_s: float, together: int
) -> None:
    terms = SpotTerms(preemptions_per_hour=per_hour, restart_s=restart_s, instance_gpus=together)
    left = replicas - terms.lost(replicas, 1)
    units = ceil(replicas / together)
    horizon_s = 400 * DAY_S
    rng = np.random.default_rng([replicas, together])
    outages = draw_outages(units, mean_up_s=3600.0 / per_hour, repair_s=restart_s, horizon_s=horizon_s, rng=rng)
    size = np.full(units, together)
    size[-1] = replicas - together * (units - 1)
    down = [(item.down_s, -size[item.replica]) for item in outages]
    changes = np.array(down + [(item.up_s, size[item.replica]) for item in outages], dtype=float)
    changes = changes[np.argsort(changes[:, 0], kind="stable")]
    up = replicas + np.cumsum(changes[:, 1])
    spans = np.diff(np.append(changes[:, 0], horizon_s + restart_s))
    first = changes[0, 0]
    share = (first + spans[up[:].astype(int) >= left].sum()) / (first + spans.sum())
    assert share >= terms.share_of_time - 0.002
    if together == 1 and left < replicas - 1:
        more = (first + spans[up.astype(int) >= left + 1].sum()) / (first + spans.sum())
        assert more < terms.share_of_time + 0.002


@given(
    replicas=st.integers(1, 400),
    per_hour=st.one_of(st.just(0.0), st.floats(1e-3, 20.0)),
    restart_s=st.floats(1.0, 3000.0),
    share=st.floats(0.5, 0.9999),
)
def test_no_more_are_taken_as_lost_than_the_binomial_law_asks_for(
    replicas: int, per_hour: float, restart_s: float, share: float
) -> None:
    terms = SpotTerms(preemptions_per_hour=per_hour, restart_s=restart_s, share_of_time=share)
    lost, away = terms.lost(replicas, 1), 1.0 - terms.availability(1)
    assert binom.cdf(lost, replicas, away) >= share - 1e-9
    assert lost <= 1 or binom.cdf(lost - 1, replicas, away) < share + 1e-9
    assert (lost == 0) == (per_hour == 0.0)


@given(
    serving=st.integers(1, 100),
    gpus=st.sampled_from([1, 2, 4, 8, 16]),
    instance=st.sampled_from([1, 4, 8]),
    per_hour=st.floats(0.0, 5.0),
)
def test_the_replicas_bought_are_the_fewest_that_leave_enough(
    serving: int, gpus: int, instance: int, per_hour: float
) -> None:
    terms = SpotTerms(preemptions_per_hour=per_hour, restart_s=300.0, instance_gpus=instance)
    bought = terms.replicas_for(serving, gpus)
    assert bought - terms.lost(bought, gpus) >= serving
    assert all(n - terms.lost(n, gpus) < serving for n in range(serving, bought))


def test_a_replica_on_two_instances_is_lost_twice_as_often_and_small_ones_together() -> None:
    terms = SpotTerms(preemptions_per_hour=0.36, restart_s=100.0, instance_gpus=8)
    assert terms.losses_per_s(16) == pytest.approx(2 * terms.losses_per_s(8))
    assert terms.availability(16) == pytest.approx(1.0 / (1.0 + 2e-4 * 100.0))
    assert terms.together(2) == 4
    assert SpotTerms(preemptions_per_hour=40.0, restart_s=100.0, instance_gpus=8).lost(12, 2) % 4 == 0


@pytest.mark.parametrize("losses_per_s", [1e-4, 3e-3, 1e-2])
def test_work_that_is_done_twice_is_that_of_attempts_until_one_succeeds(losses_per_s: float) -> None:
    rng = np.random.default_rng(7)
    service_s, weights = np.array([20.0, 100.0]), np.array([0.7, 0.3])
    worked = 0.0
    jobs = rng.choice(service_s, size=200_000, p=weights)
    left = jobs
    while left.size:
        until_loss_s = rng.exponential(1.0 / losses_per_s, left.size)
        worked += float(np.minimum(until_loss_s, left).sum())
        left = left[until_loss_s < left]
    assert repeat_factor(service_s, weights, losses_per_s) == pytest.approx(worked / jobs.sum(), rel=0.02)


def test_without_losses_no_work_is_done_twice_and_a_little_grows_in_proportion() -> None:
    service_s, weights = np.array([50.0]), np.array([1.0])
    assert repeat_factor(service_s, weights, 0.0) == 1.0
    assert repeat_factor(service_s, weights, 1e-6) - 1.0 == pytest.approx(25e-6, rel=1e-3)


def with_spot(seed: int, router: str, **spot: Any) -> dict[str, Any]:
    """The two GPU types, and the cheap one as spot GPUs at half of its price."""
    data = two_models(seed, router)
    small = data["fleet"]["gpus"]["small"]
    terms = {"preemptions_per_hour": 0.3, "restart_s": 400, "instance_gpus": 1} | spot
    usd = small["price"]["usd_per_gpu_hour"]
    price = {"term": "spot", "usd_per_gpu_hour": usd * 0.5}
    data["fleet"]["gpus"]["away"] = small | {"price": price, "spot": terms}
    data["profiles"] += [item | {"gpu": "away"} for item in data["profiles"] if item["gpu"] == "small"]
    return data


def least_cost(data: dict[str, Any]) -> float:
    """Over up to three pools of any candidates for each class; of spot pools those that may be away are bought too."""
    instance = bind(qm.load_scenario(data))
    total = 0.0
    for item in instance.classes.values():
        candidates = enumerate_candidates(instance).of(item.model)
        share = carried(candidates, item)
        pools = []
        for j, one in enumerate(candidates):
            stated = data["fleet"]["gpus"][one.gpu]
            for serving in range(1, MOST + 1):
                bought = serving
                if "spot" in stated:
                    spot = stated["spot"]
                    away = 1.0 - 1.0 / (1.0 + spot["preemptions_per_hour"] / 3600.0 * spot["restart_s"])
                    bought += 1
                    while binom.cdf(bought - serving, bought, away) < spot.get("share_of_time", 0.99):
                        bought += 1
                pools.append((bought * one.layout.gpus * stated["price"]["usd_per_gpu_hour"], share[j, serving]))
        total += min(
            sum(cost for cost, _ in chosen)
            for size in (1, 2, 3)
            for chosen in itertools.combinations_with_replacement(pools, size)
            if sum(carried for _, carried in chosen) >= 1.0
        )
    return total


def check(seed: int, router: str, **spot: Any) -> qm.Plan:
    data = with_spot(seed, router, **spot)
    plan, best = qm.plan(data, solver=qm.SolverOptions(mip_gap=0.0)), least_cost(data)
    assert plan.cost_usd_per_hour == pytest.approx(best), plan.why.text
    assert plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= best + 1e-6
    assert plan.status == "optimal"
    assert qm.verify(plan).ok
    return plan


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_a_plan_with_spot_pools_costs_what_brute_force_costs(router: str) -> None:
    plan = check(3, router)
    assert "away" in {row.gpu for row in plan.pools}
    assert {row.term for row in plan.purchases if row.gpu == "away"} == {"spot"}


@pytest.mark.slow
@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("seed", [1, 2, 4])
@pytest.mark.parametrize(
    "spot", [{"preemptions_per_hour": 3.0}, {"restart_s": 1500, "share_of_time": 0.999}, {"share_of_time": 0.9}]
)
def test_more_plans_with_spot_pools_cost_what_brute_force_costs(seed: int, router: str, spot: dict[str, Any]) -> None:
    check(seed, router, **spot)


def test_gpus_that_are_never_taken_away_are_planned_as_any_others() -> None:
    never = with_spot(3, "jsq", preemptions_per_hour=0)
    stay = copy.deepcopy(never)
    del stay["fleet"]["gpus"]["away"]["spot"]
    first, second = qm.plan(never), qm.plan(stay)
    assert first.pools == second.pools
    assert (first.cost_usd_per_hour, first.bound_usd_per_hour) == (second.cost_usd_per_hour, second.bound_usd_per_hour)
    assert any("taken as never taken away" in text for text in second.assumptions)


def test_a_spot_pool_is_predicted_as_what_is_left_of_it_and_verified_so() -> None:
    data = with_spot(3, "jsq")
    plan = qm.plan(data)
    assert plan.fleet is not None
    instance = bind(qm.load_scenario(data))
    assert evaluate_fleet(instance, plan.fleet).slo == plan.slo
    terms = instance.limits.of("away").spot
    assert terms is not None
    pool = next(pool for pool in plan.fleet.pools.values() if pool.gpu == "away")
    lost = instance.limits.lost("away", pool.layout.gpus, pool.replicas)
    assert lost == terms.lost(pool.replicas, pool.layout.gpus) > 0
    tampered = copy.deepcopy(plan.to_dict())
    tampered["inputs"]["limits"]["gpus"]["away"]["spot"]["share_of_time"] = 0.9999999  # type: ignore[index]
    assert not qm.verify(qm.Plan.from_dict(tampered)).ok


def test_spare_replicas_come_on_top() -> None:
    terms = SpotTerms(preemptions_per_hour=1.0, restart_s=300.0)
    limits = Limits(gpus={"g": GpuLimits(spot=terms)}, spare_replicas=2)
    assert limits.lost("g", 1, 10) == terms.lost(10, 1) + 2
    assert Limits.from_dict(limits.to_dict()) == limits


def test_steps_are_longer_by_the_work_that_is_done_twice() -> None:
    data = with_spot(3, "jsq", preemptions_per_hour=5.0)
    instance = bind(qm.load_scenario(data))
    layout = instance.profiles["m", "away"][0].layout
    own, slow = (replica_of(instance, model="m", gpu=gpu, layout=layout) for gpu in ("small", "away"))
    assert isinstance(own, Replica) and isinstance(slow, Replica)
    factor = slow.step.delta_s / own.step.delta_s
    assert 1.0 < factor < 1.1
    assert slow.step.base_s == pytest.approx(own.step.base_s * factor)


def test_a_pool_that_is_simulated_with_outages_keeps_its_target() -> None:
    data = with_spot(3, "jsq", preemptions_per_hour=20.0, restart_s=30)
    item = data["classes"]["class-m"]
    data["classes"] = {"class-m": item | {"rate_rps": 60.0, "slo": {"ttft_p95_s": 1.0, "completion_p90_s": 60.0}}}
    for name in ("big", "small"):
        del data["fleet"]["gpus"][name]
    data["profiles"] = [one for one in data["profiles"] if one["gpu"] == "away" and one["model"] == "m"]
    plan = qm.plan(data)
    assert plan.fleet is not None
    (pool,) = plan.fleet.pools.values()
    instance = bind(qm.load_scenario(data))
    request_class = instance.classes["class-m"]
    replica = instance.profiles["m", "away"][0].replica
    assert isinstance(replica, Replica)
    rng = np.random.default_rng(5)
    count = 60_000
    arrivals = np.cumsum(rng.exponential(1.0 / request_class.rate_rps, count))
    lengths = request_class.lengths
    prompt = np.rint(rng.choice(lengths.prompt.values, count, p=lengths.prompt.weights)).astype(int)
    output = np.rint(rng.choice(lengths.output.values, count, p=lengths.output.weights)).astype(int)
    outages = draw_outages(pool.replicas, mean_up_s=180.0, repair_s=30.0, horizon_s=float(arrivals[-1]), rng=rng)
    run = simulate_pool(
        table_from_arrays(arrivals, prompt=prompt, output=output),
        replica,
        replicas=pool.replicas,
        router="jsq",
        availability=Availability(outages=outages),
        rng=rng,
    )
    assert len(outages) > 50
    ttft_s = run.log.first_token_s - arrivals
    assert np.isfinite(ttft_s).all()
    assert np.quantile(ttft_s, 0.95) <= 1.0
    assert np.quantile(run.log.completion_s - arrivals, 0.9) <= 60.0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"spot": {"restart_s": 300}}, "fleet.gpus.away.spot: 'preemptions_per_hour' is missing"),
        ({"spot": {"preemptions_per_hour": -1, "restart_s": 300}},
         "fleet.gpus.away.spot.preemptions_per_hour: must be at least 0 (got -1)"),
        ({"spot": {"preemptions_per_hour": 1, "restart_s": 0}},
         "fleet.gpus.away.spot.restart_s: must be greater than 0 (got 0)"),
        ({"spot": {"preemptions_per_hour": 1, "restart_s": 9, "share_of_time": 1}},
         "fleet.gpus.away.spot.share_of_time: must be less than 1 (got 1)"),
        ({"price": None, "tiers": [{"term": "on_demand", "usd_per_gpu_hour": 1}]},
         "fleet.gpus.away: states spot and tiers: GPUs that may be taken away cannot stand in for others; "
         "give spot GPUs an entry of their own, with gpu: <the same GPU>"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_spot_gpus_is_told(change: dict[str, Any], expected: str) -> None:
    data = with_spot(3, "jsq")
    data["fleet"]["gpus"]["away"] |= change
    assert [str(problem).removeprefix("<dict>: ") for problem in qm.validate(data)] == [expected]


def test_measured_capacities_on_spot_gpus_are_refused() -> None:
    data = with_spot(3, "jsq")
    data["profiles"] = [one for one in data["profiles"] if one["gpu"] != "away"]
    data["profiles"].append({"model": "m", "gpu": "away", "max_rate_rps": {"class-m": 3.0}})
    found = [str(problem).removeprefix("<dict>: ") for problem in qm.validate(data)]
    assert found == [
        "fleet.gpus.away.spot: 'away' has measured capacities, which say nothing of lost work; "
        "profile step times instead, or leave spot out"
    ]


def test_a_fleet_of_which_nothing_is_left_says_how_many_it_needs() -> None:
    data = with_spot(3, "jsq")
    plan = qm.plan(data)
    assert plan.fleet is not None
    fleet = plan.fleet.to_dict()
    name = next(name for name, pool in plan.fleet.pools.items() if pool.gpu == "away")
    fleet["pools"][name]["replicas"] = 1  # type: ignore[index]
    with pytest.raises(qm.ScenarioError, match="as many spot GPUs are away at times; have at least 2"):
        qm.evaluate(data, type(plan.fleet).from_dict(fleet))


def test_replicas_that_are_lost_too_often_are_refused() -> None:
    data = with_spot(3, "jsq", preemptions_per_hour=3600)
    data["profiles"] = [one for one in data["profiles"] if one["gpu"] == "away"]
    del data["fleet"]["gpus"]["big"], data["fleet"]["gpus"]["small"]
    plan = qm.plan(data)
    assert plan.status == "infeasible"
    assert "of their work would be done again" in plan.why.best
