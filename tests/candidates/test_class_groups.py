"""Groups of classes for models that many classes share, and the plans that come of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import columns_for_model, enumerate_candidates, least_counts
from qmodel.candidates.class_groups import groups_of
from qmodel.problem import bind
from tests.optimize.pieces import request_class


def many_classes(seed: int, count: int, router: str = "jsq") -> dict[str, Any]:
    rng = np.random.default_rng([seed, 23])
    classes = {
        f"c{number}": {
            "model": "m",
            "rate_rps": float(rng.uniform(1, 4)),
            "prompt_tokens": {"mean": float(rng.uniform(200, 2000)), "cv": 0.7, "max": 16000},
            "output_tokens": {"mean": float(rng.uniform(100, 600)), "cv": 0.9, "max": 16000},
            "slo": {"ttft_p95_s": float(rng.uniform(0.7, 2)), "tpot_mean_s": float(rng.uniform(0.03, 0.06))},
        }
        for number in range(count)
    }
    profiles = [
        {
            "model": "m",
            "gpu": gpu,
            "alpha_s": slow * 0.008,
            "beta_s": slow * 1e-4,
            "gamma_s": slow * 3e-8,
            "delta_s": slow * 4e-5,
            "max_num_seqs": 128,
        }
        for gpu, slow in (("big", 1.0), ("small", 2.0))
    ]
    return {
        "qmodel": 1,
        "classes": classes,
        "fleet": {"gpus": {"big": {"price": {"usd_per_gpu_hour": 4.0}}, "small": {"price": {"usd_per_gpu_hour": 1.7}}}},
        "engine": {"router": router},
        "profiles": profiles,
    }


def test_groups_hold_all_classes_the_strict_the_lenient_and_all_but_one() -> None:
    classes = [request_class(name, tpot_mean=target) for name, target in zip("abcde", (5, 1, 4, 2, 3), strict=True)]
    found = groups_of(classes)
    strict_first = [1, 3, 4, 2, 0]
    assert found[0] == (0, 1, 2, 3, 4)
    assert len(set(found)) == len(found)
    assert {tuple(sorted(strict_first[:cut])) for cut in (2, 3, 4)} <= set(found)
    assert {tuple(sorted(strict_first[cut:])) for cut in (1, 2, 3)} <= set(found)
    assert {tuple(place for place in range(5) if place != left_out) for left_out in range(5)} <= set(found)
    assert all(len(group) > 1 for group in found)


@pytest.mark.parametrize("router", ["jsq", "random"])
def test_many_classes_cost_no_more_together_than_apart_or_in_one_pool(router: str) -> None:
    data = many_classes(1, 6, router)
    plan = qm.plan(data)
    instance = bind(qm.load_scenario(data))
    candidates, classes = enumerate_candidates(instance).of("m"), list(instance.classes.values())
    one_pool = min(
        item.pool_cost(int(count))
        for item, count in zip(candidates, least_counts(candidates, classes), strict=True)
        if count > 0
    )
    apart = sum(
        qm.plan({**data, "classes": {name: item}}).cost_usd_per_hour or np.inf for name, item in data["classes"].items()
    )
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= min(one_pool, apart) * (1.0 + 1e-9)
    assert 0.0 < plan.bound_usd_per_hour <= plan.cost_usd_per_hour
    assert qm.verify(plan).ok


def test_a_look_at_the_frontier_makes_optimistic_ratios_exact_and_never_larger() -> None:
    data = many_classes(2, 5)
    instance = bind(qm.load_scenario(data))
    candidates, classes = enumerate_candidates(instance).of("m"), list(instance.classes.values())
    found = columns_for_model(candidates, classes)
    assert found.many
    mix = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    closer = found.refined({(0, 0): [mix]})
    assert closer.exact["c0"][0] and not closer.exact["c1"].any()
    assert closer.ratios["c0"][0] <= found.ratios["c0"][0] * (1.0 + 1e-9)
    np.testing.assert_array_equal(closer.ratios["c1"], found.ratios["c1"])
    again = closer.refined({(0, 0): [mix]})
    assert again is closer  # a class alone is known now
    shared = closer.refined({(0, 0): [np.ones(5)]})  # the other classes are looked at first
    assert all(shared.exact[item.name][0] for item in classes)
    assert shared.refined({(0, 0): [np.ones(5)]}) is shared  # what they take together is known by its rows
