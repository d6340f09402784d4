"""Which engine settings classes may choose from, and which a given pool has."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

import qmodel as qm
from qmodel.problem import bind, engine_of, fully_stated, settings_of
from qmodel.problem.engine_settings import difference, listed_settings, with_engine
from qmodel.types import Engine, Fleet, Layout, Path, Pool, PoolKey, Speculation, replicas_by_kind

CHAT = {
    "model": "llama-3.1-8b",
    "rate_rps": 4,
    "prompt_tokens": {"mean": 900, "cv": 1.0},
    "output_tokens": {"mean": 200, "cv": 1.0},
    "slo": {"ttft_p95_s": 1},
}


def scenario(**classes: dict[str, Any]) -> dict[str, Any]:
    found = {name: {**copy.deepcopy(CHAT), "engine": engine} for name, engine in classes.items()}
    found = {name: {k: v for k, v in item.items() if v != {}} for name, item in found.items()}
    gpus = {"h100-sxm": {"price": {"usd_per_gpu_hour": 3}, "engine": {"max_num_seqs": 256}}}
    return {"qmodel": 1, "classes": found, "fleet": {"gpus": gpus}}


def fleet(*served: str, **engine: Any) -> Fleet:
    pool = Pool(name="a", model="llama-3.1-8b", gpu="h100-sxm", layout=Layout(tp=1), replicas=2, engine=engine)
    return Fleet(pools={"a": pool}, routing={name: (Path(pools=("a",), share=1.0),) for name in served})


def choices(data: dict[str, Any], cls: str) -> list[dict[str, object]]:
    return [dict(item) for item in settings_of(bind(qm.load_scenario(data)), cls, "h100-sxm")]


def test_nothing_is_chosen_where_nothing_is_listed() -> None:
    data = scenario(chat={}, batch={})
    assert choices(data, "chat") == [{}] and bind(qm.load_scenario(data)).settings == {}
    data["classes"]["chat"]["engine"] = {"max_num_seqs": 256}  # as it is anyway
    assert bind(qm.load_scenario(data)).settings == {}


def test_a_class_wins_over_its_gpu_and_lists_are_told_by_all() -> None:
    data = scenario(chat={"max_num_seqs": [64, 16]}, batch={"watermark": 0.1})
    assert choices(data, "chat") == [{"max_num_seqs": 16}, {"max_num_seqs": 64}]
    assert choices(data, "batch") == [{"max_num_seqs": 256, "watermark": 0.1}]
    data["engine"] = {"kv_dtype": ["fp8", "auto"], "max_batched_tokens": [128, 4096]}
    assert choices(data, "batch") == [
        {"kv_dtype": kv, "max_batched_tokens": 4096, "max_num_seqs": 256, "watermark": 0.1} for kv in ("auto", "fp8")
    ]  # 128 tokens leave no room for prompts
    notes = bind(qm.load_scenario(data)).assumptions
    assert any(
        text.startswith("h100-sxm: 2 choices of max_num_seqs and max_batched_tokens not tried") for text in notes
    )
    assert any(
        text.startswith("class batch: engine settings of its pools on h100-sxm: kv_dtype auto") for text in notes
    )


def test_no_choice_that_leaves_room_for_prompts_is_a_problem() -> None:
    data = scenario(chat={})
    data["engine"] = {"max_batched_tokens": [64, 128]}
    with pytest.raises(qm.ScenarioError, match=r"engine.max_batched_tokens: steps of max_batched_tokens 128 have no"):
        bind(qm.load_scenario(data))


def test_auto_is_a_quarter_and_a_sixteenth_of_the_usual_value() -> None:
    usual = Engine(max_num_seqs=10, max_batched_tokens=8192)
    found = listed_settings({"max_num_seqs": "auto", "max_batched_tokens": "auto", "kv_dtype": "auto"}, usual)
    assert dict(found.listed) == {"max_batched_tokens": (512, 2048, 8192), "max_num_seqs": (1, 2, 10)}
    assert dict(found.single) == {"kv_dtype": "auto"}
    assert found.roomiest == {"max_batched_tokens": 8192, "max_num_seqs": 1}
    assert len(found.combinations()) == 9


def test_a_pool_has_what_its_classes_ask_for_unless_it_says_otherwise() -> None:
    data = scenario(chat={"max_num_seqs": 64}, other={"max_num_seqs": 64}, batch={})
    instance = bind(qm.load_scenario(data))
    for served, stated, expected in (
        (("chat",), {}, 64),
        (("chat", "other"), {}, 64),
        (("batch",), {}, 256),
        (("chat",), {"max_num_seqs": 32}, 32),
        (("chat", "batch"), {"max_num_seqs": 64}, 64),
    ):
        whole, problems = fully_stated(instance, fleet(*served, **stated))
        assert not problems and engine_of(instance, whole.pools["a"]).max_num_seqs == expected
    _, (problem,) = fully_stated(instance, fleet("chat", "batch"))
    assert problem.key == "pools.a.engine" and problem.hint == "state max_num_seqs under pools.a.engine"


def test_settings_of_a_running_pool_are_compared_as_they_are_not_as_they_are_written() -> None:
    data = scenario(chat={})
    plan = qm.plan(data)
    (pool,) = plan.fleet.pools.values()
    written = replace(plan.fleet, pools={pool.name: replace(pool, engine={"max_num_seqs": 256, "watermark": 0.03})})
    assert qm.plan(data, existing=written).changes[0].started_gpus == 0
    other = replace(plan.fleet, pools={pool.name: replace(pool, engine={"watermark": 0.2})})
    rows = {row.replica: row for row in qm.plan(data, existing=other).changes}
    assert rows["llama-3.1-8b on h100-sxm tp1 (watermark 0.2)"].after == 0
    assert rows["llama-3.1-8b on h100-sxm tp1"].before == 0


def test_kinds_of_replicas_differ_by_their_settings() -> None:
    keys = [next(iter(replicas_by_kind(fleet("chat", **one)))) for one in ({}, {"max_num_seqs": 64})]
    assert keys[0] == PoolKey.of("llama-3.1-8b", "h100-sxm", Layout(tp=1), None) and keys[0] != keys[1]
    assert keys[1].label == "llama-3.1-8b on h100-sxm tp1 (max_num_seqs 64)"


def test_settings_by_key_and_the_record_go_into_each_other() -> None:
    drafting = {"draft": "mtp", "tokens": 2, "acceptance": 0.5}
    stated = {"max_num_seqs": 256, "speculative": drafting, "kv_dtype": "fp8"}
    found = with_engine(Engine(), stated)
    assert found == Engine(kv_dtype="fp8", speculation=Speculation(**drafting))  # type: ignore[arg-type]
    assert difference(found, Engine(), stated, []) == {"kv_dtype": "fp8", "speculative": drafting}
    assert difference(found, Engine(), stated, ["max_num_seqs"]) == stated


def test_a_pool_may_not_take_step_times_from_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ("step times of aiconfigurator need the package, which is not installed", "pip install 'qmodel[aic]'")
    monkeypatch.setattr("qmodel.evaluation.fleet_metrics.aic_missing", lambda: missing)
    with pytest.raises(qm.ScenarioError, match=r"pools.a.engine.step_times: step times of aiconfigurator need the"):
        qm.evaluate(scenario(chat={}), fleet("chat", step_times="aic"))
    fitted = qm.evaluate(scenario(chat={}), fleet("chat", step_times="fitted"))
    assert fitted.slo == qm.evaluate(scenario(chat={}), fleet("chat")).slo


def test_a_router_of_a_class_is_held_against_what_its_requests_do() -> None:
    data = scenario(chat={"router": "round_robin"}, other={})
    leaving = {"patience_s": 3, "slo": {"ttft_p95_s": 1, "abandoned_share": 0.01}}
    data["classes"]["other"] |= leaving
    bind(qm.load_scenario(data))
    data["classes"]["chat"] |= leaving
    told = "classes.chat.engine.router: round_robin is not predicted for requests that leave"
    with pytest.raises(qm.ScenarioError, match=told):
        bind(qm.load_scenario(data))
