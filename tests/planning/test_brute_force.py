"""Random scenarios that mix features cost what brute force over counts and splits finds, and no bound is above that."""

from __future__ import annotations

import numpy as np
import pytest

import qmodel as qm
from tests.planning.brute_force import cheapest_fleet
from tests.planning.mixed_scenarios import existing_fleet, mixed_scenario, running_fleet
from tests.planning.stated_costs import StatedPool, fleet_cost, replicas_of_pool

SAME = 1e-6  # of a cost
QUICK = (2, 5, 9, 15, 24, 29, 37)
LONGER = (0, 1, 4, 6, 12, 14, 16, 17, 19, 21, 23, 25, 26, 31, 36, 120, 136, 168)


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(seed, marks=pytest.mark.slow) for seed in LONGER)])
def test_a_plan_costs_no_more_than_any_small_fleet_and_its_bound_is_below_all(seed: int) -> None:
    data = mixed_scenario(seed)
    plan = qm.plan(data, existing=existing_fleet(seed, data), solver=qm.SolverOptions(time_limit_s=600.0))
    best = cheapest_fleet(data, running_fleet(seed, data)).cost_usd_per_hour
    if plan.cost_usd_per_hour is None:
        assert plan.status == "infeasible" and np.isinf(best)
        return
    assert qm.verify(plan).ok
    assert plan.bound_usd_per_hour is not None and plan.bound_usd_per_hour <= best * (1.0 + SAME)
    assert plan.status == "optimal"
    assert plan.cost_usd_per_hour <= best * (1.0 + 0.005 + SAME)


def test_the_seeds_have_every_feature_that_the_generator_knows() -> None:
    words = [str(mixed_scenario(seed)) for seed in range(200)]
    features = (
        *("max_count", "tiers", "per_node", "max_nodes", "spot", "power_kw", "budget_usd_per_hour", "providers"),
        *("regions", "spare_replicas", "survive_nodes", "max_pools", "models", "floor", "apis", "isolate", "forbid"),
        *("change", "p90", "priority", "mmpp", "peakedness", "scv", "max_rate_rps", "kv_tokens", "answer_start"),
        *("round_robin", "jsq", "'router': 'random'"),
    )
    assert [one for one in features if not any(one in text for text in words)] == []


def test_costs_are_those_of_a_fleet_counted_by_hand() -> None:
    tiers = [
        {"term": "reserved_1y", "usd_per_gpu_hour": 1.0, "max_count": 3},
        {"term": "on_demand", "usd_per_gpu_hour": 2.0},
    ]
    spot = {"preemptions_per_hour": 0.5, "restart_s": 360, "instance_gpus": 1}
    gpus = {
        "cheap": {"tiers": tiers, "gpus_per_node": 4, "power_w": 500},
        "whole": {"price": {"usd_per_gpu_hour": 3.0}, "billing": "per_node", "gpus_per_node": 4, "power_w": 700},
        "spot": {"price": {"usd_per_gpu_hour": 0.5}, "spot": spot, "gpus_per_node": 4, "power_w": 400},
    }
    data = {"fleet": {"gpus": gpus, "power_kw": 9.9}, "policy": {"spare_replicas": 1}}
    pools = [StatedPool("cheap", 2, 1), StatedPool("whole", 1, 4)]
    assert fleet_cost(pools, data) == 3 * 1.0 + 1 * 2.0 + 8 * 3.0  # 4 GPUs, and 5 of 1 in two nodes
    assert replicas_of_pool(StatedPool("spot", 1, 15), data) == 20  # 4 of 20 are away at times
    assert np.isinf(fleet_cost([*pools, StatedPool("spot", 1, 15)], data))  # 2 + 5.6 + 8 kW
