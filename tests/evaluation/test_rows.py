"""Fleets whose paths have several pools: metrics, links, what binds, capacity, clear problems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import qmodel as qm
from qmodel.queueing import DecodeStage, PrefillStage, stages
from qmodel.types import Fleet

SCENARIOS = Path(__file__).parents[2] / "scenarios"
APART = SCENARIOS / "fleets" / "60-prefill-decode.yaml"
WHOLE = SCENARIOS / "fleets" / "60-unified.yaml"


@pytest.fixture(scope="module")
def scenario() -> Any:
    return qm.load_scenario(SCENARIOS / "60-disaggregated.yaml")


@pytest.fixture(scope="module")
def split(scenario) -> Any:
    return qm.evaluate(scenario, APART)


def apart(**changes: dict[str, Any]) -> Fleet:
    """The shipped fleet with keys of its pools replaced."""
    pools: dict[str, Any] = {
        name: {"model": "llama-3.3-70b", "gpu": "h100-sxm", "layout": {"tp": 4}, "replicas": 4, "role": name}
        | changes.get(name, {})
        for name in ("prefill", "decode")
    }
    path = [{"path": ["prefill", "decode"]}]
    return qm.load_fleet({"qmodel": 1, "pools": pools, "routing": {"chat": path, "documents": path}})


def test_shipped_fleets_cost_the_same_and_only_the_one_apart_meets_the_targets(scenario, split) -> None:
    whole = qm.evaluate(scenario, WHOLE)
    assert whole.cost_usd_per_hour == split.cost_usd_per_hour
    assert split.feasible and not whole.feasible
    assert {row.metric for row in whole.slo if not row.met} == {"tpot"}


def test_rows_are_named_by_their_pools_in_every_table(split) -> None:
    found = split
    assert {row.path for row in found.slo} == {"prefill > decode"}
    assert {row.path for row in found.routing} == {"prefill > decode"}
    assert [(row.pool, row.role) for row in found.pools] == [("prefill", "prefill"), ("decode", "decode")]
    (link,) = found.to_dict()["links"]
    assert (link["pool"], link["sources"], link["lanes"], link["overload"]) == ("decode", "prefill", 4, "")


def test_moved_bytes_are_context_tokens_times_the_bytes_of_one(split) -> None:
    (link,) = split.links
    assert link.kv_bytes_per_token == 80 * 2 * 8 * 128 * 2
    tokens_per_s = 10 * 900 + 3 * 6000
    assert link.moved_gbps == pytest.approx(tokens_per_s * link.kv_bytes_per_token / 1e9, rel=0.02)
    assert link.utilisation == pytest.approx(link.moved_gbps / (link.lanes * link.bandwidth_gbps))
    assert link.delay_mean_s >= link.kv_bytes_per_token * 2000 / (link.bandwidth_gbps * 1e9)


def test_a_lane_has_a_port_for_each_shard_of_the_narrower_layout(scenario, split) -> None:
    wide = split.links[0].bandwidth_gbps
    narrow = qm.evaluate(scenario, apart(decode={"layout": {"tp": 2}})).links[0].bandwidth_gbps
    assert wide == pytest.approx(2.0 * narrow)
    assert 4 * 40.0 < wide < 4 * 50.0  # four 400 Gbit/s ports at what large messages reach


def test_evaluation_of_a_row_is_that_of_the_queueing_function(scenario, split) -> None:
    from qmodel.evaluation import pool_cases
    from qmodel.problem import bind

    instance = bind(scenario)
    cases = pool_cases(instance, apart())
    line = [
        PrefillStage(replica=cases["prefill"].replica, replicas=4, router="jsq"),
        DecodeStage(replica=cases["decode"].replica, replicas=4, router="jsq", link=cases["decode"].link),
    ]
    alone = stages(line, list(instance.classes.values()))
    for row in split.latency:
        assert row.mean_s == pytest.approx(getattr(alone[row.cls], row.metric).mean, rel=1e-9)


def test_a_narrow_link_binds_and_says_so(scenario) -> None:
    found = qm.evaluate(scenario, apart(decode={"link": {"bandwidth_gbps": 9.6, "lanes": 1}}))
    assert found.stable and not found.feasible
    assert {row.pool: row.binding for row in found.pools}["decode"].startswith("link: SLO ")
    assert found.links[0].utilisation > 0.9


def test_an_overloaded_link_is_a_typed_result(scenario) -> None:
    found = qm.evaluate(scenario, apart(decode={"link": {"bandwidth_gbps": 1}}))
    assert not found.stable and not found.feasible
    assert all(row.stable for row in found.pools)
    assert {row.pool: row.binding for row in found.pools}["decode"] == "link"
    assert "GB/s of KV must be moved" in found.links[0].overload
    assert found.links[0].wait_mean_s is None
    assert all(row.predicted_s is None and not row.met for row in found.slo)


def test_an_overloaded_prefill_pool_leaves_the_path_without_numbers(scenario) -> None:
    found = qm.evaluate(scenario, apart(prefill={"replicas": 1}))
    assert {row.pool: row.stable for row in found.pools} == {"prefill": False, "decode": True}
    assert "prompts/s arrive" in found.pools[0].overload
    assert all(row.mean_s is None for row in found.latency)


@pytest.mark.slow
def test_capacity_of_a_row_is_where_the_first_target_is_missed(scenario) -> None:
    found = qm.capacity(scenario, APART)
    assert found.factor > 1.0 and found.binding.endswith("in prefill > decode")
    rates = {"classes.chat.rate_rps": 10.0, "classes.documents.rate_rps": 3.0}
    for factor, feasible in ((0.99, True), (1.01, False)):
        at = {key: rate * found.factor * factor for key, rate in rates.items()}
        loaded = qm.load_scenario(SCENARIOS / "60-disaggregated.yaml", set=at)
        assert qm.evaluate(loaded, APART).feasible is feasible


def shared() -> dict[str, Any]:
    """One prefill pool before two decode pools, and a pool for itself."""
    base = {"model": "llama-3.3-70b", "gpu": "h100-sxm", "layout": {"tp": 4}}
    return {
        "qmodel": 1,
        "pools": {
            "p": base | {"replicas": 4, "role": "prefill"},
            "d": base | {"replicas": 3, "role": "decode"},
            "e": base | {"replicas": 1, "role": "decode"},
            "w": base | {"replicas": 2},
        },
        "routing": {
            "chat": [{"path": ["p", "d"], "share": 0.6}, {"path": ["p", "e"], "share": 0.2},
                     {"path": ["w"], "share": 0.2}],
            "documents": [{"path": ["p", "d"]}],
        },
    }  # fmt: skip


def test_a_prefill_pool_may_feed_several_decode_pools(scenario) -> None:
    found = qm.evaluate(scenario, qm.load_fleet(shared()))
    ttft = {row.path: row.predicted_s for row in found.slo if row.cls == "chat" and row.metric == "ttft"}
    assert set(ttft) == {"p > d", "p > e", "w", "fleet"}
    assert ttft["p > d"] == ttft["p > e"]
    assert min(ttft.values()) <= ttft["fleet"] <= max(ttft.values())
    assert {row.pool: row.sources for row in found.links} == {"d": "p", "e": "p"}
    moved = {row.pool: row.moved_gbps for row in found.links}
    assert moved["d"] / moved["e"] == pytest.approx((6 * 900 + 3 * 6000) / (2 * 900), rel=0.02)


def test_a_fleet_with_rows_survives_its_plain_form() -> None:
    fleet = apart(decode={"link": {"bandwidth_gbps": 10, "lanes": 2}})
    again = Fleet.from_dict(fleet.to_dict())
    assert again == fleet
    assert "link" not in fleet.to_dict()["pools"]["prefill"]


@pytest.mark.parametrize(
    ("pools", "routing", "message"),
    [
        ({"decode": {"model": "llama-3.1-8b"}}, ("prefill", "decode"), "no class asks for 'llama-3.1-8b'"),
        ({}, ("decode", "prefill"), "pools do not follow each other: decode (decode), prefill (prefill)"),
        ({}, ("prefill",), "a path is one unified pool, or prefill, decode, or prefill, decode, answer"),
        ({}, ("prefill", "decode", "answer"), "class 'chat' has no thinking tokens: an answer pool has no part"),
    ],
)
def test_rows_that_cannot_be_are_reported(scenario, pools, routing, message) -> None:
    fleet = apart()
    made = {name: replace(pool, **pools.get(name, {})) for name, pool in fleet.pools.items()}
    made["answer"] = replace(made["decode"], name="answer", role="answer")
    paths = tuple(replace(path, pools=routing) for path in fleet.routing["chat"])
    with pytest.raises(qm.ScenarioError) as caught:
        qm.evaluate(scenario, Fleet(pools=made, routing={"chat": paths, "documents": paths}))
    assert message in str(caught.value)


def test_classes_of_two_models_cannot_share_a_path() -> None:
    scenario = qm.load_scenario(SCENARIOS / "60-disaggregated.yaml", set={"classes.documents.model": "llama-3.1-8b"})
    with pytest.raises(qm.ScenarioError, match=r"class 'documents' asks for llama-3\.1-8b but pool 'prefill' serves"):
        qm.evaluate(scenario, APART)


def test_what_the_catalog_does_not_know_of_a_link_must_be_stated() -> None:
    scenario = {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "mine", "rate_rps": 4, "slo": {"tpot_mean_s": 0.05},
                "prompt_tokens": {"mean": 800, "cv": 1}, "output_tokens": {"mean": 200, "cv": 1},
            }
        },
        "fleet": {"gpus": {"new-gpu": {"price": {"usd_per_gpu_hour": 3.0}}}},
        "profiles": [
            {"model": "mine", "gpu": "new-gpu", "layout": {"tp": 1}, "alpha_s": 0.01, "beta_s": 1e-4,
             "gamma_s": 1e-8, "delta_s": 5e-5, "max_num_seqs": 128},
        ],
    }  # fmt: skip
    pool = {"model": "mine", "gpu": "new-gpu", "replicas": 2}
    link: dict[str, float] = {}
    fleet = {
        "qmodel": 1,
        "pools": {"p": pool | {"role": "prefill"}, "d": pool | {"role": "decode", "link": link}},
        "routing": {"chat": [{"path": ["p", "d"]}]},
    }
    for key, value in (("kv_bytes_per_token", 131072), ("bandwidth_gbps", 25)):
        with pytest.raises(qm.ScenarioError, match=rf"pools\.d\.link: {key} is needed"):
            qm.evaluate(scenario, qm.load_fleet(fleet))
        link[key] = value
    found = qm.evaluate(scenario, qm.load_fleet(fleet))
    assert found.feasible and found.links[0].lanes == 2
