"""Fleets whose paths have several pools, simulated: the same tables as one pool, transfers, shared pools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.simulation import (
    EnginePolicy,
    KvLink,
    Stage,
    draw_requests,
    simulate_network,
    simulate_pool,
    simulate_tandem,
    table_from_arrays,
)
from qmodel.simulation.pool_runs import MeasuredRun
from qmodel.simulation.transfers import transfer_rows
from qmodel.types import Law, Lengths, PoolLink, Replica, StepLaw, Stream

SCENARIOS = Path(__file__).parents[2] / "scenarios"
ENGINE = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=1e-4), max_num_seqs=32)


@pytest.fixture(scope="module")
def found() -> Any:
    return qm.simulate(
        SCENARIOS / "60-disaggregated.yaml", SCENARIOS / "fleets" / "60-prefill-decode.yaml", requests=1500
    )


def test_every_table_names_the_path(found) -> None:
    assert {row.path for row in found.slo} == {row.path for row in found.latency} == {"prefill > decode"}
    assert [row.pool for row in found.pools] == ["prefill", "decode"]
    assert {row.pool for row in found.course} == {"prefill", "decode"}
    assert {row.cls for row in found.buckets} == {row.cls for row in found.fairness} == {"chat", "documents"}


def test_requests_are_counted_once(found) -> None:
    assert found.requests == found.pools[0].requests
    assert 1300 < found.requests < 1700


def test_means_agree_with_the_predictions(found) -> None:
    for row in found.latency:
        if row.stat == "mean":
            near = 0.25 if row.metric == "ttft" else 0.1
            assert row.simulated_s == pytest.approx(row.predicted_s, rel=near), (row.cls, row.metric)
            assert row.ci_low_s < row.simulated_s < row.ci_high_s


def test_transfers_tell_what_the_link_moved(found) -> None:
    (row,) = found.transfers
    assert (row.tier, row.pool, row.sources) == ("gpu to gpu", "decode", "prefill")
    assert row.gib == pytest.approx(row.tokens * 327680 / 2**30)
    assert row.utilisation == pytest.approx(row.predicted_utilisation, rel=0.15)
    assert found.to_dict()["transfers"] == [row.to_dict()]


def test_slowdowns_are_at_least_one(found) -> None:
    assert all(0.99 < row.slowdown_mean < 3.0 for row in found.buckets)


def test_the_same_seed_gives_the_same_digits() -> None:
    runs = [
        qm.simulate(SCENARIOS / "60-disaggregated.yaml", SCENARIOS / "fleets" / "60-prefill-decode.yaml", requests=200)
        for _ in range(2)
    ]
    assert runs[0].to_dict() == runs[1].to_dict()


def test_an_overloaded_link_is_missed_and_has_no_numbers() -> None:
    fleet = qm.load_fleet(SCENARIOS / "fleets" / "60-prefill-decode.yaml")
    narrow = replace(fleet.pools["decode"], link=PoolLink(bandwidth_gbps=1.0, lanes=2))
    fleet = replace(fleet, pools={**fleet.pools, "decode": narrow})
    found = qm.simulate(SCENARIOS / "60-disaggregated.yaml", fleet, requests=1500)
    assert not found.stable and not {row.pool: row.stable for row in found.pools}["decode"]
    assert all(row.decision == "missed" and row.simulated_s is None for row in found.slo)


@pytest.mark.parametrize(
    ("preemption", "tiers"), [("swap", ["gpu to host", "host to gpu"]), ("recompute", ["recompute"])]
)
def test_memory_that_runs_out_is_told_by_where_its_kv_went(preemption, tiers) -> None:
    engine = replace(ENGINE, kv_tokens=4000.0, watermark=0.0)
    table = table_from_arrays(np.arange(30) * 0.1, prompt=400, output=300)
    policy = EnginePolicy(preemption=preemption, swap_out_s_per_token=1e-6, swap_in_s_per_token=1e-6)
    run = simulate_pool(table, engine, policy=policy, window_s=(0.0, 1000.0))
    measured = MeasuredRun(run=run, measured=np.ones(30, dtype=bool), stable=True, warm_s=0.0, end_s=1000.0)
    predicted = qm.evaluate(SCENARIOS / "60-disaggregated.yaml", SCENARIOS / "fleets" / "60-unified.yaml")
    rows = transfer_rows({"a": [measured]}, {}, predicted, {"a": 1e5})
    assert [row.tier for row in rows] == tiers
    assert rows[0].tokens > 0 and rows[0].gib == pytest.approx(rows[0].tokens * 1e5 / 2**30)
    assert rows[0].gib_per_s == pytest.approx(rows[0].gib / 1000.0)
    if preemption == "swap":
        assert rows[0].tokens == rows[1].tokens == int(run.log.swapped_tokens.sum())
    assert transfer_rows({"a": [measured]}, {}, predicted, {})[0].gib is None


def test_one_way_through_a_network_is_a_row() -> None:
    lengths = Lengths.independent(Law.constant(800), Law.constant(40))
    table = draw_requests([Stream(name="a", rate_rps=5.0, lengths=lengths)], rng=np.random.default_rng(3), count=400)
    link = KvLink(bytes_per_s=1e9, bytes_per_token=1e5)
    first = Stage(serves="prompt", replica=ENGINE, replicas=2, router="jsq")
    last = Stage(serves="output", replica=ENGINE, replicas=2, router="jsq", link=link)
    row = simulate_tandem(table, [first, last], rng=np.random.default_rng(1))
    network = simulate_network(
        table, np.zeros(len(table), dtype=np.int64), [("p", "d")], {"p": first, "d": last}, rng=np.random.default_rng(1)
    )
    assert np.array_equal(row.log.completion_s, network.log.completion_s)
    assert network.links["d"].bytes_moved == 400 * 800 * 1e5


def test_ways_share_a_prefill_pool() -> None:
    table = table_from_arrays([0.0, 0.0], prompt=1000, output=11)
    stages = {name: Stage(serves="output", replica=ENGINE) for name in ("p", "d", "e")}
    run = simulate_network(table, np.array([0, 1]), [("p", "d"), ("p", "e")], stages)
    assert run.rows["p"].tolist() == [0, 1] and run.rows["d"].tolist() == [0] and run.rows["e"].tolist() == [1]
    assert run.log.first_token_s.tolist() == pytest.approx([0.21, 0.21])  # both prompts in one step
    assert run.log.completion_s.tolist() == pytest.approx([0.21 + 10 * 0.0101] * 2)


@pytest.mark.parametrize(
    ("ways", "message"),
    [([("p", "d"), ("d", "p")], "at the same place"), ([("a", "b", "c", "d")], "one to three pools")],
)
def test_ways_are_checked(ways, message) -> None:
    stages = {name: Stage(serves="output", replica=ENGINE) for name in "abcdp"}
    with pytest.raises(ValueError, match=message):
        simulate_network(table_from_arrays([0.0], prompt=10, output=2), np.array([0]), ways, stages)
