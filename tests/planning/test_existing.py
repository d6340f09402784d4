"""Plans from a fleet that runs already, against brute force over counts."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import enumerate_candidates
from qmodel.problem import bind
from qmodel.types import Change, Fleet, Layout, Path, Pool, PoolKey, Running, replicas_by_kind
from tests.planning.limited_fleets import MOST, carried, two_models

EXACT = qm.SolverOptions(mip_gap=0.0)


def fleet_of(data: dict[str, Any], counts: dict[tuple[str, str], int]) -> Fleet:
    """One pool for each model and GPU type of which some run."""
    pools = {
        f"{model}-{gpu}": Pool(name=f"{model}-{gpu}", model=model, gpu=gpu, layout=Layout(tp=1), replicas=count)
        for (model, gpu), count in counts.items()
        if count
    }
    routing = {
        name: tuple(Path(pools=(pool.name,), share=1.0) for pool in pools.values() if pool.model == item["model"])[:1]
        for name, item in data["classes"].items()
    }
    return Fleet(pools=pools, routing=routing)


def least_total(data: dict[str, Any], change: Change) -> float:
    """Least cost with the spread cost of change over all counts, USD/h."""
    instance = bind(qm.load_scenario(data))
    found = enumerate_candidates(instance)
    ways = []
    for item in instance.classes.values():
        candidates = found.of(item.model)
        share = carried(candidates, item)
        ways.append(
            [
                dict(zip(candidates, sizes, strict=True))
                for sizes in itertools.product(range(MOST + 1), repeat=len(candidates))
                if sum(share[j, n] for j, n in enumerate(sizes)) >= 1.0
            ]
        )
    best = np.inf
    for parts in itertools.product(*ways):
        counts = {one: n for part in parts for one, n in part.items()}
        running = sum(one.cost_usd_per_hour * n for one, n in counts.items())
        replicas = {PoolKey.of(one.model, one.gpu, one.layout, None): n for one, n in counts.items()}
        best = min(best, running + change.usd_per_hour(replicas))
    return best


RUNNING = {
    "nothing that is wanted": {("m", "small"): 5, ("n", "small"): 5},
    "too many": {("m", "big"): 6, ("n", "big"): 6},
    "one model only": {("m", "big"): 2},
}


@pytest.mark.parametrize("case", RUNNING)
@pytest.mark.parametrize(("start", "stop", "spread_h"), [(20.0, 0.0, 24.0), (20.0, 8.0, 8.0), (400.0, 3.0, 8.0)])
def test_a_plan_from_a_running_fleet_costs_what_brute_force_costs(
    case: str, start: float, stop: float, spread_h: float
) -> None:
    data = two_models(3, "jsq")
    costs = {"start_usd_per_gpu": start, "stop_usd_per_gpu": stop, "spread_h": spread_h}
    data["policy"]["change"] = costs
    existing = fleet_of(data, RUNNING[case])
    plan = qm.plan(data, existing=existing, solver=EXACT)
    change = Change.from_fleet(existing, **costs)
    best = least_total(data, change)
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None and plan.fleet is not None
    assert plan.bound_usd_per_hour <= best * (1.0 + 1e-6)
    assert plan.cost_usd_per_hour == pytest.approx(best)
    assert plan.status == "optimal"
    assert plan.change_usd_per_hour == pytest.approx(change.usd_per_hour(replicas_by_kind(plan.fleet)))
    assert sum(row.after for row in plan.changes) == sum(pool.replicas for pool in plan.fleet.pools.values())
    assert qm.verify(plan).ok
    assert qm.Plan.from_dict(plan.to_dict()) == plan


def test_the_planned_fleet_itself_needs_no_change_and_dear_changes_keep_what_runs() -> None:
    data = two_models(2, "random")
    free = qm.plan(data, solver=EXACT)
    data["policy"]["change"] = {"start_usd_per_gpu": 50.0, "stop_usd_per_gpu": 1.0, "spread_h": 10.0}
    again = qm.plan(data, existing=free.fleet, solver=EXACT)
    assert again.cost_usd_per_hour == pytest.approx(free.cost_usd_per_hour)
    assert again.change_usd_per_hour == 0.0
    assert all(row.before == row.after for row in again.changes)
    more = qm.load_scenario(data, set={"classes.class-m.rate_rps": data["classes"]["class-m"]["rate_rps"] * 3.0})
    grown = qm.plan(more, existing=free.fleet, solver=EXACT)
    assert sum(row.stopped_gpus for row in grown.changes) == 0
    assert sum(row.started_gpus for row in grown.changes) > 0


def test_without_costs_the_plan_is_the_same_and_the_changes_are_listed() -> None:
    data = two_models(2, "random")
    free = qm.plan(data)
    plan = qm.plan(data, existing=fleet_of(data, {("m", "small"): 1, ("n", "small"): 1}))
    assert plan.cost_usd_per_hour == pytest.approx(free.cost_usd_per_hour)
    assert plan.changes
    assert any("policy.change" in note for note in plan.assumptions)


def test_costs_of_change_without_a_running_fleet_are_told_to_count_nothing() -> None:
    data = two_models(1, "jsq")
    change = {"start_usd_per_gpu": 100.0, "stop_usd_per_gpu": 0.0, "spread_h": 100.0}
    plan = qm.plan({**data, "policy": {"change": change}})
    assert plan.cost_usd_per_hour == qm.plan(data).cost_usd_per_hour
    assert [note for note in plan.assumptions if note.startswith("policy.change counts nothing: no fleet is given")]


def test_an_explanation_says_what_changes_and_what_that_costs() -> None:
    data = two_models(1, "jsq")
    change = {"start_usd_per_gpu": 100.0, "stop_usd_per_gpu": 0.0, "spread_h": 100.0}
    plan = qm.plan({**data, "policy": {"change": change}}, existing=fleet_of(data, {("m", "big"): 1}))
    text = plan.explain()
    assert f"cost {plan.cost_usd_per_hour:.2f} USD/h, {plan.change_usd_per_hour:.2f} of it for the change" in text
    for row in plan.changes:
        assert f"  {row.replica}: from {row.before} to {row.after} replicas, {row.usd:.2f} USD once" in text


def test_running_pools_that_cannot_stay_are_told_and_stopped() -> None:
    data = two_models(2, "random")
    data["policy"]["change"] = {"stop_usd_per_gpu": 3.0, "spread_h": 4.0}
    existing = fleet_of(data, {("m", "small"): 1, ("n", "small"): 1})
    odd = replace(existing.pools["m-small"], name="odd", gpu="tpu", replicas=2)
    plan = qm.plan(data, existing=Fleet(pools={**existing.pools, "odd": odd}, routing=existing.routing), solver=EXACT)
    told = "running pool odd (m on tpu) cannot be kept: 'tpu' is not in fleet.gpus"
    assert told in plan.assumptions
    (row,) = [row for row in plan.changes if "tpu" in row.replica]
    assert (row.before, row.after, row.stopped_gpus, row.usd) == (2, 0, 2, 6.0)
    assert plan.status == "optimal"


def test_stopping_that_costs_more_than_running_is_refused() -> None:
    data = two_models(2, "random")
    data["policy"]["change"] = {"stop_usd_per_gpu": 100.0, "spread_h": 2.0}
    with pytest.raises(qm.ScenarioError, match=r"policy.change: .* spread_h to at least"):
        qm.plan(data, existing=fleet_of(data, {("m", "small"): 1}))


def test_a_tampered_change_does_not_verify() -> None:
    data = two_models(2, "random")
    data["policy"]["change"] = {"start_usd_per_gpu": 12.0, "spread_h": 4.0}
    plan = qm.plan(data, existing=fleet_of(data, {("m", "small"): 1, ("n", "small"): 1}))
    assert plan.change_usd_per_hour > 0.0 and plan.cost_usd_per_hour is not None
    false = replace(plan, change_usd_per_hour=0.0, cost_usd_per_hour=plan.cost_usd_per_hour - plan.change_usd_per_hour)
    assert not qm.verify(false).ok


def test_changes_add_up_by_kind_and_survive_plain_data() -> None:
    keys = [PoolKey.of("m", "g", Layout(tp=2), None), PoolKey.of("m", "g", Layout(tp=4), "fp8")]
    change = Change(
        running=tuple(Running(key=key, replicas=3) for key in keys),
        start_usd_per_gpu=1.0,
        stop_usd_per_gpu=2.0,
        spread_h=10.0,
    )
    assert change.usd({keys[0]: 5}) == 2 * 2 * 1.0 + 3 * 4 * 2.0
    assert change.usd_per_hour({}) == (3 * 2 + 3 * 4) * 2.0 / 10.0
    assert change.usd(dict.fromkeys(keys, 3)) == 0.0
    assert Change.from_dict(change.to_dict()) == change


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"start_usd_per_gpu": 3.0}, "policy.change: 'spread_h' is missing"),
        ({"spread_h": 0}, r"policy.change.spread_h: must be greater than 0 \(got 0\)"),
        ({"spread_h": 5, "stop_usd_per_gpu": -1}, r"policy.change.stop_usd_per_gpu: must be at least 0 \(got -1\)"),
    ],
)
def test_costs_of_change_that_make_no_sense_are_refused(spec: dict[str, float], text: str) -> None:
    data = two_models(2, "random")
    data["policy"]["change"] = spec
    with pytest.raises(qm.ScenarioError, match=text):
        qm.load_scenario(data)


def test_a_plan_where_a_fleet_is_asked_for_is_told_apart() -> None:
    data = two_models(1, "jsq")
    plan = qm.plan(data)
    text = r"fleet must be a Fleet, or the path .* \(got Plan\); a plan has it as plan.fleet"
    for ask in (qm.evaluate, qm.capacity, qm.simulate, qm.marginal_values):
        with pytest.raises(TypeError, match=text):
            ask(data, plan)  # type: ignore[operator]
    with pytest.raises(TypeError, match=text):
        qm.plan(data, existing=plan)  # type: ignore[arg-type]
