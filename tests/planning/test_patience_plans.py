"""Requests that leave when they have waited too long: planned, evaluated, simulated, refused where not predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.problem import bind
from qmodel.queueing import predict_pool
from qmodel.types import Fleet, Path

EXACT = qm.SolverOptions(mip_gap=0.0)


def leaving(seed: int = 1, router: str = "jsq", **chat: Any) -> dict[str, Any]:
    """One class on two GPU types whose requests leave after two seconds; a few sequences fill a replica."""
    rng = np.random.default_rng([seed, 41])
    profiles = [
        {
            "model": "m",
            "gpu": gpu,
            "alpha_s": slow * float(rng.uniform(0.009, 0.012)),
            "beta_s": slow * float(rng.uniform(0.8e-4, 1.5e-4)),
            "gamma_s": slow * 2e-8,
            "delta_s": slow * float(rng.uniform(3e-5, 5e-5)),
            "max_num_seqs": 16,
        }
        for gpu, slow in (("a", 1.7), ("b", 1.0))
    ]
    section = {
        "model": "m",
        "rate_rps": float(rng.uniform(10.0, 20.0)),
        "patience_s": 2.0,
        "prompt_tokens": {"mean": 500, "cv": 0.8, "max": 8000},
        "output_tokens": {"mean": 120, "cv": 0.9, "max": 4000},
        "slo": {"abandoned_share": 0.02},
        **chat,
    }
    return {
        "qmodel": 1,
        "classes": {"chat": section},
        "fleet": {
            "gpus": {
                "a": {"price": {"usd_per_gpu_hour": float(rng.uniform(1.2, 2.0))}},
                "b": {"price": {"usd_per_gpu_hour": float(rng.uniform(2.2, 3.2))}},
            }
        },
        "engine": {"router": router},
        "profiles": profiles,
    }


def least_cost(data: dict[str, Any]) -> float:
    """Least cost over one pool, or two of different GPU types over which the class is split evenly by hundredths."""
    from qmodel.candidates import enumerate_candidates

    instance = bind(qm.load_scenario(data))
    (item,) = instance.classes.values()
    able = enumerate_candidates(instance).candidates

    def carried(candidate: Any, count: int) -> float:
        """Largest hundredth of the class that a pool carries with every target met."""
        low, high = 0, 100
        while low < high:
            middle = (low + high + 1) // 2
            found = predict_pool(candidate.replica, [item.stream(middle / 100)], count, candidate.router)["chat"]
            met = all(
                (found.metric(slo.metric).mean if slo.p is None else found.metric(slo.metric).quantile(slo.p))
                <= slo.target_s
                for slo in item.slos
            )
            low, high = (middle, high) if met else (low, middle - 1)
        return low / 100

    shares = {(place, count): carried(one, count) for place, one in enumerate(able) for count in range(1, 11)}
    usd = {key: able[key[0]].pool_cost(key[1]) for key in shares}
    alone = [usd[key] for key, share in shares.items() if share >= 1.0]
    both = [
        usd[one] + usd[other]
        for one in shares
        for other in shares
        if one[0] < other[0] and shares[one] + shares[other] >= 1.0
    ]
    return min([*alone, *both])


@pytest.mark.parametrize(
    "chat",
    [{}, {"retries": 2, "backoff_s": 3.0}, {"slo": {"abandoned_share": 0.2, "tpot_p95_s": 0.03}}],
    ids=["once", "again", "lossy"],
)
@pytest.mark.parametrize("router", ["jsq", "random"])
@pytest.mark.parametrize("seed", range(2))
def test_the_cost_is_that_of_brute_force(seed: int, router: str, chat: dict[str, Any]) -> None:
    data = leaving(seed, router, **chat)
    plan = qm.plan(data, solver=EXACT)
    best = least_cost(data)
    assert plan.cost_usd_per_hour is not None
    assert plan.bound_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= best * (1.0 + 1e-9)
    assert plan.cost_usd_per_hour <= best * (1.0 + 1e-9)
    assert qm.verify(plan).ok
    share = next(row for row in plan.slo if row.metric == "abandoned")
    assert (share.stat, share.met) == ("share", True)
    assert share.predicted_s is not None
    assert share.predicted_s <= share.target_s


def test_where_more_may_leave_fewer_replicas_do() -> None:
    costs = [
        qm.plan(leaving(3, slo={"abandoned_share": share}, rate_rps=60.0), solver=EXACT).cost_usd_per_hour
        for share in (0.001, 0.05, 0.3, 0.7)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.6 * costs[0]


def test_a_fleet_that_loses_more_than_its_capacity_lacks_is_no_overload() -> None:
    data = leaving(4, rate_rps=10.0)
    plan = qm.plan(data, solver=EXACT)
    assert plan.fleet is not None
    found = qm.evaluate({**data, "classes": leaving(4, rate_rps=30.0)["classes"]}, plan.fleet)
    assert found.stable
    assert not found.feasible
    for row, pool in zip(found.leaving, found.pools, strict=True):
        assert row.abandoned_share is not None
        assert row.goodput_rps is not None
        assert 0.3 < row.abandoned_share < 0.8
        assert row.goodput_rps == pytest.approx(row.rate_rps * (1.0 - row.abandoned_share))
        assert row.goodput_rps == pytest.approx(row.rate_rps / (pool.utilisation or 0.0), rel=0.02)


def test_a_share_that_leaves_has_no_upper_end_beyond_all_and_a_simulation_beyond_the_load_measures_it() -> None:
    data = leaving(4, retries=2, backoff_s=4.0, rate_rps=10.0)
    plan = qm.plan(data, solver=EXACT)
    assert plan.fleet is not None
    busy = {**data, "classes": leaving(4, retries=2, backoff_s=4.0, rate_rps=30.0)["classes"]}
    assert all(row.high_s == 1.0 for row in qm.evaluate(busy, plan.fleet).slo)
    found = qm.simulate(busy, plan.fleet, requests=3_000)
    assert found.stable
    for row in found.slo:
        assert row.decision == "missed"
        assert row.simulated_s == pytest.approx(row.predicted_s, abs=0.08)


def test_the_service_curve_goes_on_beyond_the_limit_and_shows_the_knee() -> None:
    data = leaving(5, retries=2, backoff_s=3.0)
    plan = qm.plan(data, solver=EXACT)
    assert plan.fleet is not None
    found = qm.capacity(data, plan.fleet)
    assert found.factor >= 1.0
    rates = [row.rate_rps for row in found.curve]
    served = [row.goodput_rps for row in found.curve]
    assert None not in served
    assert rates[-1] == pytest.approx(2.0 * found.rate_rps)
    assert served[0] == pytest.approx(rates[0], rel=1e-6)
    assert served[-1] == pytest.approx(served[-3], rel=0.01)  # full: more load is lost
    assert served[-1] < 0.7 * rates[-1]
    assert [row.met for row in found.curve][-4:] == [False] * 4
    assert found.binding.startswith("chat abandoned_share in ")


@pytest.mark.parametrize("retries", [0, 2])
def test_what_leaves_is_what_the_simulation_loses(retries: int) -> None:
    data = leaving(6, retries=retries, backoff_s=4.0, slo={"abandoned_share": 0.1, "ttft_mean_s": 3.0})
    plan = qm.plan(data, solver=EXACT)
    assert plan.fleet is not None
    busy = {
        **data,
        "classes": {"chat": {**data["classes"]["chat"], "rate_rps": 1.25 * data["classes"]["chat"]["rate_rps"]}},
    }
    found = qm.simulate(busy, plan.fleet, requests=20_000, seed=2)
    rows = {row.metric: row for row in found.slo if row.path != "fleet"}
    share, first = rows["abandoned"], rows["ttft"]
    assert share.simulated_s == pytest.approx(share.predicted_s, abs=0.03)
    assert share.ci_low_s is not None
    assert first.simulated_s == pytest.approx(first.predicted_s, rel=0.35)


def test_classes_share_pools_with_their_own_kind_only() -> None:
    data = leaving(7)
    chat = data["classes"]["chat"]
    patient = {key: value for key, value in chat.items() if key != "patience_s"} | {"slo": {"ttft_p95_s": 2.0}}
    data["classes"] |= {"other": {**chat, "rate_rps": 1.0}, "patient": {**patient, "rate_rps": 1.0}}
    plan = qm.plan(data)
    assert plan.fleet is not None
    used = {name: {path.pools[0] for path in paths} for name, paths in plan.fleet.routing.items()}
    assert not used["patient"] & (used["chat"] | used["other"])
    assert qm.verify(plan).ok
    mixed = Fleet(pools=plan.fleet.pools, routing={**plan.fleet.routing, "patient": plan.fleet.routing["chat"]})
    with pytest.raises(qm.ScenarioError) as caught:
        qm.evaluate(data, mixed)
    assert "whose patience_s differs" in str(caught.value)


@pytest.mark.parametrize("router", ["jsq", "random"])
def test_a_share_that_may_leave_conflicts_with_a_stock(router: str) -> None:
    data = leaving(1, router, rate_rps=80.0)
    for gpu in data["fleet"]["gpus"].values():
        gpu["max_count"] = 1
    plan = qm.plan(data)
    assert plan.status == "infeasible"
    (limit,) = (
        item for conflict in plan.why.conflicts for item in conflict.limits if item.limit.endswith("abandoned_share")
    )
    assert (limit.unit, limit.help) == ("share of the requests", "value")
    assert limit.enough is not None and limit.enough < 1.0
    data["classes"]["chat"]["slo"]["abandoned_share"] = limit.enough
    assert qm.plan(data).status in ("optimal", "feasible")


def test_a_saved_plan_keeps_what_leaves(tmp_path: Any) -> None:
    plan = qm.plan(leaving(8, retries=1), solver=EXACT)
    plan.save(tmp_path / "plan.json")
    again = qm.load_plan(tmp_path / "plan.json")
    assert again.leaving == plan.leaving
    assert qm.verify(again).ok
    changed = replace(again, leaving=(replace(again.leaving[0], attempts=9.0),))
    assert "table 'leaving'" in qm.verify(changed).first_failure


def test_the_demand_may_differ_by_the_hour() -> None:
    data = leaving(2)
    del data["classes"]["chat"]["rate_rps"]
    data["classes"]["chat"]["arrivals"] = {"rate_rps": 12.0, "profile": [0.5] * 12 + [1.0] * 12, "hours": True}
    plan = qm.plan(data)
    assert len(plan.periods) == 2
    assert all(row.met for item in plan.periods for row in item.slo)
    assert qm.verify(plan).ok


def told(data: dict[str, Any]) -> list[str]:
    with pytest.raises(qm.ScenarioError) as caught:
        qm.plan(data)
    return [str(problem).removeprefix("<dict>: ") for problem in caught.value.problems]


def test_what_is_not_predicted_beside_patience_is_refused_with_its_place() -> None:
    (problem,) = told(leaving(router="round_robin"))
    assert problem == (
        "engine.router: round_robin is not predicted for requests that leave (patience_s of class 'chat'); "
        "use random or jsq"
    )
    (problem,) = told(leaving() | {"layouts": {"disaggregate": True}})
    assert problem.startswith("layouts.disaggregate: separate pools are not predicted for requests that leave")
    data = leaving()
    data["classes"]["first"] = {**data["classes"]["chat"], "priority": 1}
    (problem,) = told(data)
    assert problem == (
        "classes.first.priority: differs from that of class 'chat': requests that leave are predicted first come, "
        "first served; give both the same priority, or isolate: true to one of them"
    )
    data["classes"]["first"]["isolate"] = True
    assert qm.plan(data).fleet is not None


def test_requests_that_leave_pass_no_pools_in_a_row() -> None:
    data = leaving()
    plan = qm.plan(data)
    assert plan.fleet is not None
    (name,) = list(plan.fleet.pools)[:1]
    one = plan.fleet.pools[name]
    pools = {"p": replace(one, name="p", role="prefill"), "d": replace(one, name="d", role="decode")}
    fleet = Fleet(pools=pools, routing={"chat": (Path(pools=("p", "d"), share=1.0),)})
    with pytest.raises(qm.ScenarioError) as caught:
        qm.evaluate(data, fleet)
    assert "not predicted in pools in a row" in str(caught.value)
