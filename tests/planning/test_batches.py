"""Batches with a deadline: planned in pools of their own, evaluated, simulated, verified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.errors import ScenarioError
from qmodel.planning.verification import verify
from qmodel.problem import bind
from qmodel.queueing import Replica, StepLaw, closed_batch
from qmodel.simulation import draw_requests, simulate_pool
from qmodel.types import Fleet, Layout, Pool
from qmodel.types import Path as Way

FAST = {"alpha_s": 0.012, "beta_s": 2e-4, "gamma_s": 3e-8, "delta_s": 6e-5, "max_num_seqs": 16, "kv_tokens": 20_000}
SLOW = FAST | {"alpha_s": 0.02}


def nightly(batch: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = {
        "qmodel": 1,
        "classes": {
            "nightly": {
                "model": "m",
                "batch": {"requests": 150, "deadline_s": 20.0} | (batch or {}),
                "prompt_tokens": {"mean": 300, "cv": 0.6},
                "output_tokens": {"mean": 250, "cv": 0.3},
            }
        },
        "fleet": {"gpus": {"big": {"price": {"usd_per_gpu_hour": 3.0}}, "small": {"price": {"usd_per_gpu_hour": 2.0}}}},
        "profiles": [{"model": "m", "gpu": "big", **FAST}, {"model": "m", "gpu": "small", **SLOW}],
    }
    for key, value in changes.items():
        *path, last = key.split("__")
        place = data
        for part in path:
            place = place[part]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return data


def fleet_of(**counts: int) -> Fleet:
    pools = {
        name: Pool(name=name, model="m", gpu=name, layout=Layout(tp=1), replicas=count)
        for name, count in counts.items()
        if count
    }
    share = 1.0 / len(pools)
    return Fleet(pools=pools, routing={"nightly": tuple(Way(pools=(name,), share=share) for name in pools)})


def told(data: dict[str, Any], fleet: Fleet | None = None) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        qm.plan(data) if fleet is None else qm.evaluate(data, fleet)
    return [str(problem) for problem in caught.value.problems]


def test_a_batch_of_one_request_is_done_when_the_request_is() -> None:
    data = nightly({"requests": 1}, classes__nightly__prompt_tokens={"constant": 100})
    data["classes"]["nightly"]["output_tokens"] = {"constant": 51}
    (row,) = qm.evaluate(data, fleet_of(big=1)).slo
    steps_s = 50 * (0.012 + 2e-4) + 3e-8 * sum(range(101, 151))
    assert (row.metric, row.stat, row.target_s) == ("makespan", "p95", 20.0)
    assert row.predicted_s == pytest.approx(0.012 + 2e-4 * 0 + 100 * 6e-5 + steps_s, rel=2e-3)


def test_a_deadline_far_away_takes_one_replica_of_the_cheapest() -> None:
    plan = qm.plan(nightly({"deadline_s": 1e8}))
    assert [(pool.gpu, pool.replicas) for pool in plan.pools] == [("small", 1)]
    assert (plan.status, plan.cost_usd_per_hour, plan.bound_usd_per_hour) == ("optimal", 2.0, 2.0)


@pytest.mark.parametrize(
    "deadline_s", [20.0, pytest.param(14.0, marks=pytest.mark.slow), pytest.param(30.0, marks=pytest.mark.slow)]
)
def test_the_plan_costs_no_more_than_the_best_of_all_single_pools(deadline_s: float) -> None:
    data = nightly({"deadline_s": deadline_s})
    plan = qm.plan(data)
    costs = []
    for gpu, usd in (("big", 3.0), ("small", 2.0)):
        met = (count for count in range(1, 12) if qm.evaluate(data, fleet_of(**{gpu: count})).feasible)
        costs.append(usd * next(met, 1000))
    assert plan.cost_usd_per_hour is not None and plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour <= min(costs)
    assert verify(plan).ok


@pytest.mark.parametrize("deadline_s", [13.0, 17.0])
def test_no_split_of_a_batch_is_cheaper_than_the_bound(deadline_s: float) -> None:
    data = nightly({"requests": 40, "deadline_s": deadline_s})
    bound = qm.plan(data).bound_usd_per_hour
    assert bound is not None and bound >= 3.0
    for big, small in ((0, 1), (1, 0), (0, 2), (1, 1)):
        fleet = fleet_of(big=big, small=small)
        for share in np.linspace(0.1, 0.9, 9) if big and small else [1.0]:
            ways = zip(fleet.pools, (float(share), 1.0 - float(share)), strict=False)
            split = replace(fleet, routing={"nightly": tuple(Way(pools=(name,), share=part) for name, part in ways)})
            assert 3.0 * big + 2.0 * small >= bound or not qm.evaluate(data, split).feasible


def test_simulated_batches_of_a_plan_are_done_in_time_as_often_as_promised() -> None:
    data = nightly({"deadline_p": 0.9})
    plan = qm.plan(data)
    (pool,) = plan.pools
    step = StepLaw.linear(**{name: (FAST if pool.gpu == "big" else SLOW)[name] for name in list(FAST)[:4]})
    engine = Replica(step=step, max_num_seqs=16, kv_tokens=20_000)
    (item,) = bind(qm.load_scenario(data)).classes.values()
    done = []
    for number in range(200):
        rng = np.random.default_rng([7, number])
        table = draw_requests([item], rng=rng, count=150)
        table = replace(table, arrival_s=np.zeros(150))
        run = simulate_pool(table, engine, replicas=pool.replicas, router="round_robin", rng=rng)
        done.append(float(run.log.completion_s.max()) <= 20.0)
    assert np.mean(done) >= 0.9 - 3.0 * np.sqrt(0.9 * 0.1 / 200)


def test_the_check_of_a_plan_simulates_its_batches() -> None:
    data = nightly({"requests": 60})
    check = qm.check_plan(data, qm.plan(data))
    (row,) = check.simulation.slo
    assert check.verdict in ("met", "not decided") and row.metric == "makespan"
    assert row.simulated_s == pytest.approx(row.predicted_s, rel=0.12)
    by_name = {(item.metric, item.stat): item for item in check.simulation.latency}
    for metric in ("ttft", "completion", "makespan"):
        found = by_name[metric, "mean"]
        assert found.simulated_s == pytest.approx(found.predicted_s, rel=0.06), metric
    assert any("batches drawn, of 60 requests each" in text for text in check.simulation.assumptions)


def test_time_that_is_held_is_paid_and_saved_plans_say_the_same(tmp_path: Path) -> None:
    always, held = qm.plan(nightly()), qm.plan(nightly({"every_s": 200.0}))
    assert always.cost_usd_per_hour is not None
    assert held.cost_usd_per_hour == pytest.approx(0.1 * always.cost_usd_per_hour)
    assert sum(row.cost_usd_per_hour for row in held.pools) == pytest.approx(held.cost_usd_per_hour)
    assert sum(row.cost_usd_per_hour for row in held.purchases) == pytest.approx(held.cost_usd_per_hour)
    assert any(text.endswith("held, and paid, 20 s of every 200 s (10.0%)") for text in held.assumptions)
    held.save(tmp_path / "plan.json")
    again = qm.load_plan(tmp_path / "plan.json")
    assert verify(again).ok and again.to_dict() == held.to_dict()


def test_a_pool_short_of_a_replica_is_found_out() -> None:
    plan = qm.plan(nightly())
    assert plan.fleet is not None
    ((name, pool),) = plan.fleet.pools.items()
    assert pool.replicas > 1
    short = replace(plan.fleet, pools={name: replace(pool, replicas=pool.replicas - 1)})
    assert "targets" in [check.name for check in verify(replace(plan, fleet=short)).checks if not check.ok]


def test_pools_that_share_a_batch_are_done_together_by_the_deadline() -> None:
    data = nightly({"deadline_s": 18.0})
    for gpu in ("big", "small"):
        data["fleet"]["gpus"][gpu]["max_count"] = 2
    plan = qm.plan(data)
    assert len(plan.pools) == 2 and verify(plan).ok
    whole = next(row for row in plan.slo if row.path == "fleet")
    parts = [row for row in plan.slo if row.path != "fleet"]
    assert whole.met and whole.predicted_s is not None
    assert all(row.predicted_s is not None and row.predicted_s < whole.predicted_s for row in parts)


def test_the_step_band_moves_a_batch_in_proportion() -> None:
    data = nightly()
    for profile in data["profiles"]:
        profile["band_p90"] = 0.25
    (row,) = qm.evaluate(data, fleet_of(big=6)).slo
    assert row.predicted_s is not None
    assert (row.low_s, row.high_s) == (pytest.approx(row.predicted_s / 1.25), pytest.approx(row.predicted_s * 1.25))
    plan = qm.plan(data | {"policy": {"confidence": "p90"}})
    assert all(row.met_at_p90 for row in plan.slo) and verify(plan).ok


def test_capacity_is_the_largest_multiple_of_the_requests() -> None:
    data = nightly()
    found = qm.capacity(data, fleet_of(big=6))
    most = round(found.factor * 150)
    assert found.binding == "nightly makespan_p95_s in big" and most >= 150
    assert qm.evaluate(nightly({"requests": most}), fleet_of(big=6)).feasible
    assert not qm.evaluate(nightly({"requests": most + 3}), fleet_of(big=6)).feasible


def test_why_a_deadline_cannot_be_met() -> None:
    plan = qm.plan(nightly({"deadline_s": 5.0}))
    assert (plan.status, plan.why.limit) == ("infeasible", "classes.nightly.batch.deadline_s")
    assert plan.why.text == "class 'nightly' cannot meet makespan_p95_s <= 5 on any allowed layout"
    assert plan.why.change.startswith("raise classes.nightly.batch.deadline_s to ")
    data = nightly()
    for gpu in ("big", "small"):
        data["fleet"]["gpus"][gpu]["max_count"] = 1
    plan = qm.plan(data)
    assert (plan.status, plan.why.limit) == ("infeasible", "fleet.gpus.big.max_count")
    assert plan.why.text == "class 'nightly' needs more GPUs than are in stock"


def test_a_batch_stays_apart_from_streams() -> None:
    data = nightly()
    data["classes"]["chat"] = {
        "model": "m",
        "rate_rps": 1.0,
        "prompt_tokens": {"constant": 200},
        "output_tokens": {"constant": 100},
        "slo": {"tpot_mean_s": 0.05},
    }
    plan = qm.plan(data)
    assert plan.fleet is not None and verify(plan).ok and len(plan.pools) == 2
    assert {row.cls for row in plan.slo} == {"chat", "nightly"}
    shared = replace(fleet_of(big=9), routing={name: (Way(pools=("big",), share=1.0),) for name in data["classes"]})
    assert told(data, shared) == [
        "<fleet>: routing.nightly: class 'nightly' is a batch, and pool 'big' serves chat too; give the batch a pool of"
        " its own; qmodel.queueing.batch_with_online predicts one that is shared"
    ]


def test_what_a_batch_does_not_go_with_is_told() -> None:
    assert told(nightly({"every_s": 10.0})) == [
        "<dict>: classes.nightly.batch: every_s 10 is less than deadline_s 20: batches would overlap; shorten the"
        " deadline, or leave every_s out"
    ]
    assert told(nightly(classes__nightly__slo={"tpot_mean_s": 0.1})) == [
        "<dict>: classes.nightly.slo.tpot_mean_s: tpot of requests that come as a batch is not predicted; state ttft or"
        " completion, or leave it out"
    ]
    assert told(nightly(classes__nightly__rate_rps=3.0)) == [
        "<dict>: classes.nightly: states rate_rps and batch, which exclude each other; leave one side out; in a variant"
        " or override 'rate_rps: ~' removes what the file states"
    ]
    served = nightly(objective={"maximize": "served_rps"})
    served["fleet"]["budget_usd_per_hour"] = 30
    assert told(served) == [
        "<dict>: objective.maximize: served_rps counts requests per second, and class 'nightly' is a batch; minimize"
        " cost_usd_per_hour"
    ]
    served["objective"] = {"minimize": "tpot_mean_s", "class": "nightly"}
    assert told(served) == [
        "<dict>: objective.minimize: tpot_mean_s of nightly is not predicted: its requests come as a batch; name ttft"
        " or completion"
    ]
    tiers = nightly({"every_s": 200.0})
    tiers["fleet"]["gpus"]["big"] = {
        "tiers": [
            {"term": "reserved_1y", "usd_per_gpu_hour": 2.0, "max_count": 2},
            {"term": "on_demand", "usd_per_gpu_hour": 3.0},
        ]
    }
    (problem,) = told(tiers)
    assert "GPUs are held for a part of the time, but fleet.gpus.big has several price tiers" in problem
    measured = nightly()
    measured["profiles"][0] = {"model": "m", "gpu": "big", "max_rate_rps": {"nightly": 3.0}}
    (problem,) = told(measured)
    assert "class 'nightly' is a batch: a rate does not say when it is done" in problem


def test_the_pool_row_is_that_of_the_batch() -> None:
    result = qm.evaluate(nightly(), fleet_of(big=5))
    (row,) = result.pools
    step = StepLaw.linear(**{name: FAST[name] for name in list(FAST)[:4]})
    (item,) = bind(qm.load_scenario(nightly())).classes.values()
    batch = closed_batch(Replica(step=step, max_num_seqs=16, kv_tokens=20_000), 150, item.lengths, 5)
    assert row.utilisation == pytest.approx(batch.makespan_s / 20.0)
    waiting_s = batch.first_token_s.mean()  # Little's law: sequences in a replica are what its requests spend there
    present = 150 / 5 * (batch.mean_completion_s - waiting_s) / batch.makespan_s
    assert row.mean_batch == pytest.approx(present, rel=0.15)
    assert {item.metric for item in result.latency} == {"ttft", "completion", "makespan"}
