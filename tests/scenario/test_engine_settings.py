"""Engine settings with several values, by class and by pool: what may be written, and what is wrong with the rest."""

from __future__ import annotations

from typing import Any

import pytest

from qmodel.scenario import check_fleet, check_scenario, read_scenario
from tests.scenario.examples import small


def told(**changes: Any) -> list[str]:
    return [str(problem).removeprefix("<dict>: ") for problem in check_scenario(small(**changes)).problems]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_num_seqs", [], "engine.max_num_seqs: must not be empty"),
        ("max_num_seqs", [64, 64.0], "engine.max_num_seqs: lists 64 twice"),
        ("max_num_seqs", [64, 0], "engine.max_num_seqs[1]: must be at least 1 (got 0)"),
        ("max_num_seqs", ["many"], "engine.max_num_seqs[0]: must be a whole number (got 'many', text)"),
        ("max_num_seqs", "many", "engine.max_num_seqs: must be a whole number (got 'many', text)"),
        ("max_num_seqs", [64, "auto"], "engine.max_num_seqs[1]: must be a whole number (got 'auto', text)"),
        ("max_batched_tokens", [512, 2.5], "engine.max_batched_tokens[1]: must be a whole number (got 2.5)"),
        ("max_batched_tokens", True, "engine.max_batched_tokens: must be a whole number (got true)"),
        ("kv_dtype", ["fp8", "int8"], "engine.kv_dtype[1]: must be auto, bf16 or fp8 (got 'int8')"),
        ("kv_dtype", ["fp8", "fp8"], "engine.kv_dtype: lists 'fp8' twice"),
        ("watermark", [0.01, 0.05], "engine.watermark: must be a number (got a list)"),
    ],
)
def test_a_list_that_is_wrong_is_told_where_it_is(name: str, value: object, expected: str) -> None:
    assert told(**{f"engine__{name}": value}) == [expected]
    assert told(classes__chat__engine={name: value}) == [f"classes.chat.{expected}"]


def test_the_position_is_that_of_the_item() -> None:
    text = "qmodel: 1\nengine:\n  max_num_seqs: [64,\n    none]\n"
    problems = check_scenario(text).problems
    assert any(str(one).startswith("<text>:4:5: engine.max_num_seqs[1]: must be a whole number") for one in problems)


def test_values_are_kept_as_they_are_written() -> None:
    data = small(engine__max_num_seqs=[256, 64], engine__max_batched_tokens="auto", engine__kv_dtype=["fp8", "auto"])
    data["classes"]["chat"]["engine"] = {"max_num_seqs": 32}
    scenario = read_scenario(data)
    gpu = next(iter(scenario.fleet.gpus))
    whole, own = scenario.engine_settings(gpu), scenario.engine_settings(gpu, "chat")
    assert whole["max_num_seqs"] == (256, 64) and own["max_num_seqs"] == 32
    assert own["max_batched_tokens"] == "auto" and own["kv_dtype"] == ("fp8", "auto")
    assert scenario.engine_key(gpu, "max_num_seqs", "chat") == "classes.chat.engine.max_num_seqs"
    assert scenario.engine_key(gpu, "max_num_seqs") == "engine.max_num_seqs"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("name", "vllm", "is set for each GPU type, not by a class: constants and memory rules follow from it"),
        ("version", "0.9", "is set for each GPU type, not by a class: constants and memory rules follow from it"),
        (
            "step_times",
            "aic",
            "says where step times come from, not how an engine runs: it is the same for all classes",
        ),
    ],
)
def test_what_a_class_cannot_set_is_refused_with_the_reason(name: str, value: str, reason: str) -> None:
    way_out = "move it to engine or fleet.gpus.<gpu>.engine"
    assert told(classes__chat__engine={name: value}) == [f"classes.chat.engine.{name}: {reason}; {way_out}"]


def fleet(**engine: Any) -> dict[str, Any]:
    pool = {"model": "m", "gpu": "g", "replicas": 1, "engine": engine}
    return {"qmodel": 1, "pools": {"a": pool}, "routing": {"chat": [{"path": ["a"]}]}}


def test_a_pool_has_one_value_of_each() -> None:
    (problem,) = check_fleet(fleet(max_num_seqs=[64, 128])).problems
    assert str(problem) == "<dict>: pools.a.engine.max_num_seqs: must be a whole number (got a list)"
    (problem,) = check_fleet(fleet(kv_dtype=["fp8"])).problems
    assert str(problem).startswith("<dict>: pools.a.engine.kv_dtype: must be auto, bf16 or fp8 (got ")


def test_a_pool_may_state_speculation_and_the_source_of_step_times() -> None:
    stated = fleet(speculative={"draft": "mtp", "tokens": 2, "acceptance": 0.7}, step_times="fitted")
    assert not check_fleet(stated).problems
    (problem,) = check_fleet(fleet(speculative={"draft": "mtp", "tokens": 2})).problems
    assert str(problem) == "<dict>: pools.a.engine.speculative: 'acceptance' is missing"
