"""Evaluation of given fleets: typed overload, fleet-wide values, capacity, clear problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import qmodel as qm
from qmodel.types import Fleet, Layout, Pool
from qmodel.types import Path as Route

PEERS = Path(__file__).parents[2] / "scenarios" / "peers"


def fleet(*counts: int, shares: tuple[float, ...] = (1.0,), gpus: tuple[str, ...] = ("H100",)) -> Fleet:
    pools = {
        f"p{index}": Pool(name=f"p{index}", model="llama-3.1-8b", gpu=gpu, layout=Layout(), replicas=count)
        for index, (gpu, count) in enumerate(zip(gpus, counts, strict=True))
    }
    routes = tuple(Route(pools=(name,), share=share) for name, share in zip(pools, shares, strict=True))
    return Fleet(pools=pools, routing={"chat": routes})


def test_overload_is_a_typed_result_with_a_reason_and_no_numbers() -> None:
    result = qm.evaluate(qm.load_scenario(PEERS / "p1.yaml", set={"classes.chat.rate_rps": 400}), fleet(2))
    assert not result.stable
    assert not result.feasible
    (pool,) = result.pools
    assert pool.binding == "overload"
    assert "requests/s" in pool.overload
    assert (pool.kv_fill, pool.mean_batch) == (None, None)
    assert all(row.predicted_s is None and not row.met for row in result.slo)
    assert all(row.mean_s is None for row in result.latency)


def test_class_split_over_two_pools_reports_each_path_and_the_fleet() -> None:
    result = qm.evaluate(PEERS / "p1.yaml", fleet(2, 2, shares=(0.8, 0.2), gpus=("H100", "A100")))
    assert [row.path for row in result.slo if row.metric == "tpot"] == ["p0", "p1", "fleet"]
    tpot = {row.path: row.predicted_s for row in result.slo if row.metric == "tpot"}
    assert tpot["fleet"] == pytest.approx(0.8 * tpot["p0"] + 0.2 * tpot["p1"])
    tail = {row.path: row.predicted_s for row in result.slo if row.metric == "ttft"}
    assert tail["p0"] is not None and tail["p1"] is not None and tail["fleet"] is not None
    assert min(tail["p0"], tail["p1"]) < tail["fleet"] < max(tail["p0"], tail["p1"])


def test_percentile_of_a_mixture_of_equal_pools_is_that_of_one_pool() -> None:
    result = qm.evaluate(PEERS / "p1.yaml", fleet(2, 2, shares=(0.5, 0.5), gpus=("H100", "H100")))
    tail = [row.predicted_s for row in result.slo if row.metric == "ttft"]
    assert tail[2] == pytest.approx(tail[0], rel=0.01)


def test_what_binds_is_the_target_missed_first_even_if_one_replica_less_would_overload() -> None:
    whole = qm.evaluate(PEERS / "p1.yaml", fleet(2))
    (tpot,) = (row.predicted_s for row in whole.slo if row.metric == "tpot")
    assert whole.pools[0].binding == "step time"
    assert tpot is not None
    tight = qm.load_scenario(PEERS / "p1.yaml", set={"classes.chat.slo.tpot_mean_s": 1.01 * tpot})
    assert qm.evaluate(tight, fleet(2)).pools[0].binding == "SLO chat tpot mean"


def test_capacity_is_where_the_first_target_is_missed() -> None:
    found = qm.capacity(PEERS / "p1.yaml", fleet(2))
    assert found.factor > 1.0
    at_limit = qm.load_scenario(PEERS / "p1.yaml", set={"classes.chat.rate_rps": 20 * found.factor * 0.999})
    beyond = qm.load_scenario(PEERS / "p1.yaml", set={"classes.chat.rate_rps": 20 * found.factor * 1.01})
    assert qm.evaluate(at_limit, fleet(2)).feasible
    assert not qm.evaluate(beyond, fleet(2)).feasible
    assert found.rate_rps == pytest.approx(20 * found.factor)
    assert "p0" in found.binding
    met = [row.met for row in found.curve]
    assert met == sorted(met, reverse=True)
    loads = [row.utilisation for row in found.curve if row.utilisation is not None]
    assert loads == sorted(loads)


def test_capacity_is_zero_where_the_targets_are_missed_at_any_load() -> None:
    scenario = qm.load_scenario(PEERS / "p1.yaml", set={"classes.chat.slo.ttft_p99_s": 0.001})
    found = qm.capacity(scenario, fleet(2))
    assert (found.factor, found.rate_rps) == (0.0, 0.0)
    assert found.binding == "chat ttft_p99_s in p0"


def file(**changes: Any) -> dict[str, Any]:
    pool = {"model": "llama-3.1-8b", "gpu": "H100", "replicas": 2, **changes}
    return {"qmodel": 1, "pools": {"a": pool}, "routing": {"chat": [{"path": ["a"]}]}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu": "H20"}, "pools.a.gpu: 'H20' is not in fleet.gpus; one of H100, A100"),
        ({"model": "mixtral"}, "pools.a.model: no class asks for 'mixtral'; one of llama-3.1-8b"),
        ({"layout": {"tp": 4}}, "pools.a.layout: llama-3.1-8b on H100 has profiles for tp1 only"),
    ],
)
def test_fleet_that_cannot_exist_is_reported_by_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(qm.ScenarioError) as caught:
        qm.evaluate(PEERS / "p1.yaml", qm.load_fleet(file(**changes)))
    assert message in str(caught.value)


def test_class_without_a_path_is_reported() -> None:
    data = file()
    data["routing"] = {"chatt": [{"path": ["a"]}]}
    with pytest.raises(qm.ScenarioError, match="class 'chat' has no path"):
        qm.evaluate(PEERS / "p1.yaml", qm.load_fleet(data))


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ((Route(pools=("p0",), share=0.8),), "routing.chat: shares must sum to 1 (got 0.8)"),
        ((Route(pools=("p9",), share=1.0),), "routing.chat: no pool 'p9'; one of p0"),
        (
            (Route(pools=("p0", "p0"), share=1.0),),
            "routing.chat: pools do not follow each other: p0 (unified), p0 (unified)",
        ),
    ],
)
def test_routes_of_a_fleet_made_in_python_are_checked(paths: tuple[Route, ...], message: str) -> None:
    with pytest.raises(qm.ScenarioError) as caught:
        qm.evaluate(PEERS / "p1.yaml", Fleet(pools=fleet(2).pools, routing={"chat": paths}))
    assert message in str(caught.value)


def test_pool_engine_settings_win_over_the_scenario() -> None:
    calm = qm.evaluate(PEERS / "p1.yaml", qm.load_fleet(file()))
    tight = qm.evaluate(PEERS / "p1.yaml", qm.load_fleet(file(engine={"max_batched_tokens": 1024})))
    assert calm.slo[0].predicted_s != tight.slo[0].predicted_s


def test_tables_have_the_documented_columns() -> None:
    result = qm.evaluate(PEERS / "p1.yaml", fleet(2))
    assert list(result.to_frame("slo").columns) == [
        "class", "path", "metric", "stat", "target_s", "predicted_s", "low_s", "high_s", "met", "met_at_p90",
        "basis",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="table must be one of"):
        result.to_frame("nonsense")
