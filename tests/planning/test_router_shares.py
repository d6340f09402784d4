"""Models that get fixed or bounded shares of a class, each with lengths and targets of its own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import enumerate_candidates, frontier
from qmodel.planning.stated_limits import moved, user_limits
from qmodel.problem import Instance, bind
from qmodel.types import RequestClass, best_average, settled_bounds

EXACT = qm.SolverOptions(mip_gap=0.0)
_LARGEST = 7  # replicas of one pool in brute force
_WEIGHT = {"fast": 1.0, "medium": 1.8, "full": 3.0}


def routed(seed: int = 1, router: str = "random", **chat: Any) -> dict[str, Any]:
    """One class and three models on two GPU types; the slowest thinks before it answers."""
    rng = np.random.default_rng([seed, 31])
    profiles = [
        {
            "model": model,
            "gpu": gpu,
            "alpha_s": heavy * slow * float(rng.uniform(0.005, 0.007)),
            "beta_s": heavy * slow * float(rng.uniform(0.6e-4, 1.0e-4)),
            "gamma_s": heavy * slow * 2e-8,
            "delta_s": heavy * slow * float(rng.uniform(2e-5, 4e-5)),
            "max_num_seqs": 64,
        }
        for model, heavy in _WEIGHT.items()
        for gpu, slow in (("a", 1.6), ("b", 1.0))
    ]
    section = {
        "rate_rps": float(rng.uniform(6.0, 14.0)),
        "prompt_tokens": {"mean": 700, "cv": 0.7, "max": 8000},
        "output_tokens": {"mean": 150, "cv": 0.9, "max": 4000},
        "slo": {"ttft_p95_s": 1.0, "tpot_mean_s": 0.06},
        **chat,
    }
    return {
        "qmodel": 1,
        "classes": {"chat": section},
        "fleet": {
            "gpus": {
                gpu: {"price": {"usd_per_gpu_hour": float(rng.uniform(*between))}}
                for gpu, between in (("a", (1.2, 2.2)), ("b", (2.2, 3.4)))
            }
        },
        "engine": {"router": router},
        "profiles": profiles,
    }


def tiers(fast: object, medium: object, full: object, *, thinking: bool = True) -> dict[str, Any]:
    """Shares of the three models; the largest thinks, and may take its time."""
    own = {
        "reasoning_tokens": {"mean": 500, "cv": 0.6, "max": 4000},
        "answer_tokens": {"mean": 150, "cv": 0.8, "max": 2000},
        "slo": {"ttft_p95_s": 2.0, "completion_p95_s": 90},
    }
    return {
        "fast": {"share": fast, "quality": 0.7},
        "medium": {"share": medium, "quality": 0.8},
        "full": {"share": full, "quality": 0.9, **(own if thinking else {})},
    }


def least_cost(instance: Instance) -> float:
    """Least cost over counts of up to two pools of each model that may carry shares between the bounds."""
    (item,) = instance.classes.values()
    options = _options(instance)
    best = np.inf
    for chosen in itertools.product(*options.values()):
        usd = sum(cost for _, cost in chosen)
        if usd < best and _allowed(item, [share for share, _ in chosen]):
            best = usd
    return best


def _undominated(pools: list[tuple[float, float]]) -> list[tuple[float, float]]:
    kept: list[tuple[float, float]] = []
    for share, usd in sorted(pools, key=lambda item: (item[1], -item[0])):
        if not kept or share > kept[-1][0]:
            kept.append((share, usd))
    return kept


def _allowed(item: RequestClass, carried: list[float]) -> bool:
    """Whether shares that the pools carry are between the bounds, sum to 1 and have the average."""
    parts = list(zip(item.alternatives, carried, strict=True))
    if any(share < tier.least - 1e-12 for tier, share in parts):
        return False
    left = 1.0 - sum(tier.least for tier, _ in parts)
    average = sum(tier.least * (tier.quality or 0.0) for tier, _ in parts)
    for tier, share in sorted(parts, key=lambda part: -(part[0].quality or 0.0)):
        more = min(left, max(min(tier.most, share) - tier.least, 0.0))
        left, average = left - more, average + more * (tier.quality or 0.0)
    return left <= 1e-9 and (item.min_quality is None or average >= item.min_quality - 1e-9)


FIXED = {"fast": 0.8, "medium": 0.15, "full": 0.05}
BOUNDED = {"fast": {"max": 0.7}, "medium": {"min": 0.1, "max": 0.5}, "full": {"min": 0.05}}


@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("shares", [FIXED, BOUNDED], ids=["fixed", "bounded"])
@pytest.mark.parametrize("min_quality", [None, 0.78])
@pytest.mark.parametrize("seed", range(2))
def test_the_cost_is_that_of_brute_force_over_counts_and_shares(
    seed: int, min_quality: float | None, shares: dict[str, Any], router: str
) -> None:
    asked = {} if min_quality is None or shares is FIXED else {"min_quality": min_quality}
    data = routed(seed, router, models=tiers(**shares), **asked)
    plan = qm.plan(data, solver=EXACT)
    best = least_cost(bind(qm.load_scenario(data)))
    assert plan.cost_usd_per_hour is not None
    assert plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= best * (1.0 + 1e-9)
    assert plan.cost_usd_per_hour == pytest.approx(best, rel=1e-6)
    assert qm.verify(plan).ok
    for row in plan.quality:
        assert row.met
        assert row.least - 1e-6 <= row.share <= row.most + 1e-6
    assert sum(row.share for row in plan.quality) == pytest.approx(1.0)


def test_fixed_shares_cost_what_a_class_for_each_part_costs() -> None:
    plan = qm.plan(routed(3, "jsq", models=tiers(**FIXED)), solver=EXACT)
    apart = routed(3, "jsq")
    whole = apart["classes"].pop("chat")
    for model, share in FIXED.items():
        own = {key: value for key, value in tiers(**FIXED)[model].items() if key not in ("share", "quality")}
        one = {**whole, **own, "model": model, "rate_rps": whole["rate_rps"] * share}
        one["slo"] = {**whole["slo"], **own.get("slo", {})}
        if "reasoning_tokens" in own:
            del one["output_tokens"]
        apart["classes"][model] = one
    other = qm.plan(apart, solver=EXACT)
    assert plan.cost_usd_per_hour == pytest.approx(other.cost_usd_per_hour, rel=1e-9)
    mine = {(row.model, row.gpu, row.replicas) for row in plan.pools}
    assert mine == {(row.model, row.gpu, row.replicas) for row in other.pools}
    assert sorted(row.predicted_s or 0.0 for row in plan.slo if row.path != "fleet") == pytest.approx(
        sorted(row.predicted_s or 0.0 for row in other.slo), rel=1e-9
    )


def test_wider_bounds_are_never_dearer() -> None:
    costs = []
    for half in (0.0, 0.05, 0.1, 0.2):
        shares = {name: {"min": max(at - half, 0.0), "max": min(at + half, 1.0)} for name, at in FIXED.items()}
        costs.append(qm.plan(routed(4, models=tiers(**shares)), solver=EXACT).cost_usd_per_hour)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0]


def test_a_model_with_lengths_of_its_own_is_predicted_and_simulated_with_them() -> None:
    plan = qm.plan(routed(5, models=tiers(**FIXED)), solver=EXACT)
    assert plan.fleet is not None
    found = qm.simulate(routed(5, models=tiers(**FIXED)), plan.fleet, seed=3)
    rows = {(row.path, row.metric, row.stat): row for row in found.slo}
    models = {path.pools[0]: plan.fleet.model_on(path) for path in plan.fleet.routing["chat"]}
    full = next(pool for pool, model in models.items() if model == "full")
    assert {metric for path, metric, _ in rows if path == full} == {"ttft", "tpot", "completion"}
    assert {metric for path, metric, _ in rows if path not in (full, "fleet")} == {"ttft", "tpot"}
    for row in found.slo:
        assert row.simulated_s == pytest.approx(row.predicted_s, rel=0.25)
    lengths = {row.path: row.mean_s for row in plan.latency if row.metric == "completion"}
    assert lengths[full] == max(lengths.values())
    starts = {row.path for row in plan.latency if row.metric == "answer_start"}
    assert starts == {full}


def test_the_whole_class_has_a_row_where_all_models_have_the_target() -> None:
    plan = qm.plan(routed(5, models=tiers(**FIXED)), solver=EXACT)
    wholes = [(row.metric, row.target_s) for row in plan.slo if row.path == "fleet"]
    assert wholes == [("tpot", 0.06)]


def test_a_fleet_with_other_shares_is_not_feasible_and_says_why() -> None:
    data = routed(6, models=tiers(**FIXED))
    plan = qm.plan(data, solver=EXACT)
    assert plan.fleet is not None
    assert qm.evaluate(data, plan.fleet).feasible
    moved = qm.evaluate({**data, "classes": routed(6, models=tiers(0.7, 0.2, 0.1))["classes"]}, plan.fleet)
    assert not moved.feasible
    assert [row.short for row in moved.quality] == [
        "has 0.05 of its requests at full, its share is 0.1",
        "has 0.15 of its requests at medium, its share is 0.2",
        "has 0.8 of its requests at fast, its share is 0.7",
    ]


def test_a_model_that_must_serve_and_cannot_is_told_with_its_target() -> None:
    data = routed(7, models=tiers(**FIXED))
    data["classes"]["chat"]["models"]["full"]["slo"]["completion_p95_s"] = 0.1
    plan = qm.plan(data)
    assert (plan.status, plan.why.limit) == ("infeasible", "classes.chat.models.full.slo.completion_p95_s")
    assert plan.why.text.startswith(
        "full is to serve 5.0% of class 'chat' at least, and no pool of it can: class 'chat'"
    )
    assert plan.why.change.startswith("raise classes.chat.models.full.slo.completion_p95_s to ")
    assert plan.why.change.endswith("or lower classes.chat.models.full.share")


def test_a_conflict_names_the_target_of_one_model_and_what_is_enough_is() -> None:
    data = routed(7, models=tiers(**FIXED))
    own = data["classes"]["chat"]["models"]["full"]["slo"]
    own["completion_p95_s"] = 0.1
    ((limit,),) = (conflict.limits for conflict in qm.plan(data).why.conflicts)
    assert (limit.limit, limit.help) == ("classes.chat.models.full.slo.completion_p95_s", "value")
    assert limit.enough is not None
    own["completion_p95_s"] = limit.enough
    assert qm.plan(data).status in ("optimal", "feasible")
    own["completion_p95_s"] = 0.9 * limit.enough
    assert qm.plan(data).status == "infeasible"


def test_a_target_of_the_class_moves_where_no_model_has_its_own() -> None:
    data = routed(7, models=tiers(**FIXED))
    data["classes"]["chat"]["models"]["full"]["slo"]["ttft_p95_s"] = 9.0
    instance = bind(qm.load_scenario(data))
    limits = {item.key: item for item in user_limits(instance)}
    assert limits["classes.chat.models.full.slo.ttft_p95_s"].value == 9.0
    for key, expected in (
        ("classes.chat.slo.ttft_p95_s", {"fast": 4.0, "medium": 4.0, "full": 9.0}),
        ("classes.chat.models.full.slo.ttft_p95_s", {"fast": 1.0, "medium": 1.0, "full": 4.0}),
    ):
        item = moved(instance, limits, {key: 4.0}).classes["chat"]
        found = {
            model: next(slo.target_s for slo in item.under(model).slos if slo.key == "ttft_p95_s")
            for model in item.models
        }
        assert found == expected


def test_models_that_may_not_get_all_of_a_class_are_told() -> None:
    data = routed(7, models=tiers({"max": 0.6}, {"max": 0.3}, {}, thinking=False))
    for profile in data["profiles"]:
        if profile["model"] == "full":
            profile["alpha_s"] = 0.2
    plan = qm.plan(data)
    assert plan.status == "infeasible"
    assert plan.why.text == (
        "full is to serve 10.0% of class 'chat' at least, and no pool of it can: "
        "class 'chat' cannot meet tpot_mean_s <= 0.06 on any allowed layout"
    )


def _options(instance: Instance) -> dict[str, list[tuple[float, float]]]:
    """What up to two pools of each model carry of the class, and their cost; each next one dearer and larger."""
    (item,) = instance.classes.values()
    candidates = enumerate_candidates(instance)
    found = {}
    for tier in item.alternatives:
        pools = [(0.0, 0.0)]
        counts = np.arange(1, _LARGEST + 1)
        for one in candidates.of(tier.model):
            carried = frontier([one] * _LARGEST, [item.under(tier.model)], counts).low.tolist()
            pools += [(share, one.pool_cost(count)) for share, count in zip(carried, counts.tolist(), strict=True)]
        both = [(a + b, usd + more) for (a, usd), (b, more) in itertools.combinations_with_replacement(pools, 2)]
        found[tier.model] = _undominated(both)
    return found


@pytest.mark.parametrize("router", ["random", "jsq"])
@pytest.mark.parametrize("seed", range(3))
def test_within_a_budget_as_much_is_served_as_brute_force_finds(seed: int, router: str) -> None:
    data = routed(seed, router, models=tiers(**FIXED), rate_rps=60.0)
    dear = qm.plan(data, solver=EXACT).cost_usd_per_hour
    assert dear is not None
    budget = 0.7 * dear
    data["fleet"]["budget_usd_per_hour"] = budget
    data["objective"] = {"maximize": "served_rps"}
    plan = qm.plan(data, solver=EXACT)
    options = _options(bind(qm.load_scenario(data)))
    best = max(
        min(share / FIXED[model] for model, (share, _) in zip(options, chosen, strict=True))
        for chosen in itertools.product(*options.values())
        if sum(usd for _, usd in chosen) <= budget
    )
    assert plan.objective is not None
    assert plan.objective.bound is not None
    assert plan.objective.value == pytest.approx(60.0 * best, rel=0.005)
    assert plan.objective.bound >= 60.0 * best * (1.0 - 1e-9)
    assert all(row.met for row in plan.quality)
    assert plan.cost_usd_per_hour is not None
    assert plan.cost_usd_per_hour <= budget * (1.0 + 1e-9)
    assert qm.verify(plan).ok


def test_the_least_value_of_a_target_is_found_over_all_models() -> None:
    data = routed(2, models=tiers(**FIXED))
    data["fleet"]["budget_usd_per_hour"] = 40.0
    plan = qm.plan({**data, "objective": {"minimize": "tpot_mean_s", "class": "chat"}}, solver=EXACT)
    assert plan.objective is not None
    assert plan.objective.bound is not None
    assert all(row.met for row in plan.quality)
    assert qm.verify(plan).ok
    worst = max(row.predicted_s or 0.0 for row in plan.slo if row.metric == "tpot" and row.path != "fleet")
    assert plan.objective.value == pytest.approx(worst, rel=1e-6)
    data["classes"]["chat"]["slo"]["tpot_mean_s"] = plan.objective.value * 1.001
    assert qm.plan(data, solver=EXACT).fleet is not None
    data["classes"]["chat"]["slo"]["tpot_mean_s"] = plan.objective.bound * 0.99
    assert qm.plan(data, solver=EXACT).status == "infeasible"


def test_a_target_that_a_model_has_for_itself_is_no_single_level() -> None:
    data = routed(2, models=tiers(**FIXED))
    data["fleet"]["budget_usd_per_hour"] = 40.0
    with pytest.raises(qm.ScenarioError) as caught:
        qm.plan({**data, "objective": {"minimize": "ttft_p95_s", "class": "chat"}})
    (problem,) = caught.value.problems
    assert problem.what == "ttft_p95_s of chat is not one level: full has its own"


def test_a_saved_plan_is_verified_with_its_tiers(tmp_path: Any) -> None:
    plan = qm.plan(routed(8, models=tiers(**BOUNDED)), solver=EXACT)
    path = tmp_path / "plan.json"
    plan.save(path)
    again = qm.load_plan(path)
    assert again.quality == plan.quality
    assert qm.verify(again).ok


@pytest.mark.parametrize(
    ("bounds", "settled"),
    [
        ([(0.8, 0.8), (0.0, 1.0)], [(0.8, 0.8), (0.2, 0.2)]),
        ([(0.333, 0.333)] * 3, [(1 / 3, 1 / 3)] * 3),
        ([(0.0, 0.5), (0.1, 0.3), (0.0, 1.0)], [(0.0, 0.5), (0.1, 0.3), (0.2, 0.9)]),
        ([(0.6, 1.0), (0.5, 1.0)], None),
        ([(0.0, 0.6), (0.0, 0.3)], None),
    ],
)
def test_bounds_are_as_tight_as_a_sum_of_one_makes_them(
    bounds: list[tuple[float, float]], settled: list[tuple[float, float]] | None
) -> None:
    found = settled_bounds(bounds)
    if settled is None:
        assert found is None
        assert best_average([1.0] * len(bounds), bounds) is None
    else:
        assert found is not None
        assert np.asarray(found) == pytest.approx(np.asarray(settled))


@pytest.mark.parametrize("seed", range(20))
def test_the_best_average_is_that_of_a_linear_program(seed: int) -> None:
    from scipy.optimize import linprog

    rng = np.random.default_rng([seed, 7])
    bounds = [tuple(sorted(rng.uniform(0.0, 1.0, size=2).tolist())) for _ in range(4)]
    scores = rng.uniform(0.1, 1.0, size=4)
    found = best_average(scores.tolist(), bounds)
    other = linprog(-scores, A_eq=np.ones((1, 4)), b_eq=[1.0], bounds=bounds)
    assert (found is None) == (not other.success)
    if found is not None:
        assert found == pytest.approx(-other.fun)
