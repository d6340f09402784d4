"""The frontier separates loads that meet every target from loads that do not, and the plan over it is the cheapest."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import (
    Candidate,
    enumerate_candidates,
    feasible_at,
    frontier,
    least_counts,
    resource_shares,
    unit_loads,
)
from qmodel.candidates.frontiers import frontier_between
from qmodel.problem import Instance, Price, bind
from qmodel.queueing import pool
from qmodel.types import Law, Layout, Lengths, Replica, RequestClass, Slo, StepLaw


def scenario(seed: int, router: str = "random", classes: int = 1) -> dict[str, Any]:
    """Two measured GPU types with random step laws and prices."""
    rng = np.random.default_rng(seed)
    kinds = {}
    for index in range(classes):
        kinds[f"c{index}"] = {
            "model": "m",
            "rate_rps": float(rng.uniform(1, 9)),
            "prompt_tokens": {"mean": float(rng.uniform(200, 2000)), "cv": 0.7, "max": 16000},
            "output_tokens": {"mean": float(rng.uniform(100, 900)), "cv": 0.9, "max": 16000},
            "slo": {"ttft_p95_s": float(rng.uniform(0.5, 2)), "tpot_mean_s": float(rng.uniform(0.03, 0.06))},
        }
    return {
        "qmodel": 1,
        "classes": kinds,
        "fleet": {
            "gpus": {
                "big": {"price": {"usd_per_gpu_hour": float(rng.uniform(3, 6))}},
                "small": {"price": {"usd_per_gpu_hour": float(rng.uniform(1, 2.5))}},
            }
        },
        "engine": {"router": router},
        "profiles": [
            {
                "model": "m",
                "gpu": gpu,
                "alpha_s": slow * float(rng.uniform(0.006, 0.01)),
                "beta_s": slow * 5e-5,
                "gamma_s": slow * 3e-8,
                "delta_s": slow * float(rng.uniform(3e-5, 6e-5)),
                "max_num_seqs": 128,
            }
            for gpu, slow in (("big", 1.0), ("small", 2.2))
        ],
    }


def bound(data: dict[str, Any]) -> tuple[Instance, tuple[Candidate, ...]]:
    instance = bind(qm.load_scenario(data))
    return instance, enumerate_candidates(instance).candidates


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("place", [0.5, 1.0, 2.0])
def test_a_frontier_between_neighbours_that_leave_no_room_is_found_all_the_same(place: float) -> None:
    instance = bind(qm.load_scenario(scenario(3)))
    (item,), one = instance.classes.values(), enumerate_candidates(instance).of("m")[0]
    alone = frontier([one], [item], np.array([2]))
    edge = place * float(alone.high[0])
    low, high = frontier_between(one, [item], 2, 0.5 * edge, edge, edge)
    assert 0.0 < low <= high <= edge * 1.001


@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("seed", range(3))
def test_frontier_separates_met_from_missed(seed: int, router: str) -> None:
    instance, candidates = bound(scenario(seed, router))
    classes = tuple(instance.classes.values())
    many = [item for item in candidates for _ in range(3)]
    counts = np.array([1, 2, 5] * len(candidates))
    found = frontier(many, classes, counts)
    assert (found.low > 0).all()
    assert (found.high / found.low - 1 < 0.02).all()
    assert (feasible_at(many, classes, counts, found.low) <= 1.0).all()
    assert (feasible_at(many, classes, counts, found.high) > 1.0).all()


@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("classes", [1, 2])
def test_at_p90_targets_are_held_against_the_upper_end_of_the_queueing_band(classes: int, router: str) -> None:
    """Profiles have no step band: what the frontier loses is the queueing band at the utilisation it ends at."""
    data = scenario(2, router, classes)
    _, nominal = bound(data)
    instance, candidates = bound({**data, "policy": {"confidence": "p90"}})
    members = tuple(instance.classes.values())
    counts = np.array([3] * len(candidates))
    found = frontier(candidates, members, counts)
    assert (found.low < frontier(nominal, members, counts).low).all()
    for candidate, low, high in zip(candidates, found.low, found.high, strict=True):
        ratios = []
        for load in (low, high):
            prediction = pool(candidate.replica, [item.stream(load) for item in members], 3, candidate.router)
            ratios.append(
                max(
                    (metric.mean if slo.p is None else metric.quantile(slo.p))
                    * (1.0 + metric.band(slo.p))
                    / slo.target_s
                    for item in members
                    for slo in item.slos
                    for metric in [prediction[item.name].metric(slo.metric)]
                )
            )
        assert ratios[0] <= 1.0 < ratios[1]


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_the_bound_at_p90_is_below_every_fleet_at_p90(router: str) -> None:
    data = {**scenario(3, router, classes=2), "policy": {"confidence": "p90"}}
    plan = qm.plan(data)
    apart = [qm.plan({**data, "classes": {name: item}}) for name, item in data["classes"].items()]
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour + 1e-9
    assert plan.bound_usd_per_hour <= sum(item.cost_usd_per_hour or 0.0 for item in apart) + 1e-9


def test_random_routing_carries_in_proportion_to_the_count() -> None:
    instance, candidates = bound(scenario(1))
    classes = tuple(instance.classes.values())
    found = frontier([candidates[0]] * 4, classes, np.array([1, 2, 3, 10]))
    np.testing.assert_allclose(found.low / found.low[0], [1, 2, 3, 10])


def test_join_shortest_queue_carries_no_less_per_replica_in_larger_pools() -> None:
    instance, candidates = bound(scenario(1, "jsq"))
    classes = tuple(instance.classes.values())
    found = frontier([candidates[0]] * 4, classes, np.array([1, 2, 4, 8]))
    per_replica = found.low / np.array([1, 2, 4, 8])
    assert (np.diff(per_replica) > -0.01 * per_replica[0]).all()


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_least_count_meets_every_target_and_one_less_does_not(router: str) -> None:
    instance, candidates = bound(scenario(2, router))
    classes = tuple(instance.classes.values())
    counts = least_counts(candidates, classes)
    ones = np.ones(len(candidates))
    assert (feasible_at(candidates, classes, counts, ones) <= 1.0).all()
    fewer = np.maximum(counts - 1, 1)
    missed = feasible_at(candidates, classes, fewer, ones) > 1.0
    assert missed[counts > 1].all()


@pytest.mark.parametrize("seed", range(4))
def test_resource_share_is_optimistic(seed: int) -> None:
    """A class alone never carries more than its optimistic share of step time allows."""
    instance, candidates = bound(scenario(seed))
    (item,) = instance.classes.values()
    found = frontier(candidates, (item,), np.ones(len(candidates), dtype=int))
    shares = resource_shares(candidates, item)
    assert (found.low * shares <= 1.0 + 1e-9).all()
    assert (unit_loads(candidates, [item]) * found.low <= 1.0 + 1e-9).all()


@pytest.mark.parametrize("seed", range(6))
def test_plan_costs_what_brute_force_over_counts_and_splits_costs(seed: int) -> None:
    data = scenario(seed)
    instance, candidates = bound(data)
    classes = tuple(instance.classes.values())
    splits = np.linspace(0.0, 1.0, 101)
    best = np.inf
    for counts in itertools.product(range(9), repeat=2):
        cost = sum(n * item.cost_usd_per_hour for n, item in zip(counts, candidates, strict=True))
        if not any(counts) or cost >= best:
            continue
        parts = []
        for n, item, loads in zip(counts, candidates, (splits, 1.0 - splits), strict=True):
            ratio = np.where(loads > 0, np.inf, 0.0)
            busy = np.flatnonzero(loads > 0)
            if n:
                ratio[busy] = feasible_at([item] * busy.size, classes, np.full(busy.size, n), loads[busy])
            parts.append(ratio)
        if (np.maximum(*parts) <= 1.0).any():
            best = cost
    plan = qm.plan(data, solver=qm.SolverOptions(mip_gap=0.0))
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    # the grid of splits may miss a fleet that only just carries the demand; it never finds one that does not
    assert plan.cost_usd_per_hour <= best + 1e-9
    assert plan.bound_usd_per_hour <= best + 1e-9
    assert plan.status == "optimal"
    assert qm.verify(plan).ok


@pytest.mark.parametrize("seed", range(3))
def test_bound_with_two_classes_is_below_the_plan_and_the_plan_below_separate_pools(seed: int) -> None:
    data = scenario(seed, classes=2)
    plan = qm.plan(data)
    alone = 0.0
    for name in data["classes"]:
        single = {**data, "classes": {name: data["classes"][name]}}
        cost = qm.plan(single).cost_usd_per_hour
        assert cost is not None
        alone += cost
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour <= alone + 1e-9


@pytest.mark.parametrize("seed", range(2))
def test_plan_of_many_replicas_behind_one_queue_is_bounded_by_brute_force(seed: int) -> None:
    """Beyond a dozen replicas only a spread of counts is tried: the bound must hold for those left out."""
    data = scenario(seed + 20, "jsq")
    data["classes"]["c0"]["rate_rps"] *= 30
    instance, candidates = bound(data)
    classes = tuple(instance.classes.values())
    least = least_counts(candidates, classes)
    most = int(max(least))
    assert most > 12
    many = [item for item in candidates for _ in range(most)]
    found = frontier(many, classes, np.tile(np.arange(1, most + 1), len(candidates))).low.reshape(len(candidates), most)
    carried = np.concatenate([np.zeros((len(candidates), 1)), found], axis=1)
    counts = np.arange(most + 1)
    costs = [item.cost_usd_per_hour * counts for item in candidates]
    enough = carried[0][:, None] + carried[1][None, :] >= 1.0
    best = (costs[0][:, None] + costs[1][None, :])[enough].min()
    plan = qm.plan(data, solver=qm.SolverOptions(mip_gap=0.0))
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= best + 1e-9
    assert best - 1e-9 <= plan.cost_usd_per_hour <= 1.03 * best


def test_resource_share_lets_long_steps_take_turns_with_short_ones() -> None:
    """A mean of 25 ms is met at batch 64 for half of the tokens and batch 2 else, cheaper than 25 ms throughout."""
    step = StepLaw.table(batch=[0, 2, 3, 64], step_s=[0.010, 0.010, 0.039, 0.040])
    item = Candidate(
        model="m",
        gpu="g",
        layout=Layout(),
        precision=None,
        replica=Replica(step=step, max_num_seqs=64),
        router="random",
        price=Price(usd_per_gpu_hour=1.0, tier="on_demand", basis="test"),
        max_replicas=10,
    )
    lengths = Lengths.independent(Law.constant(1), Law.constant(1001))
    target = Slo(metric="tpot", p=None, target_s=0.025)
    request = RequestClass(name="a", model="m", rate_rps=1.0, lengths=lengths, slos=(target,))
    turns = 0.5 * 0.010 / 2 + 0.5 * 0.040 / 64
    throughout = 0.025 / (2 + 15 / 29)
    assert turns < throughout
    (share,) = resource_shares([item], request)
    assert share <= 1000 * turns
