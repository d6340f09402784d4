"""extends, variants and overrides: precedence, removal, positions and what leads nowhere."""

from __future__ import annotations

import pytest

from qmodel.errors import ScenarioError
from qmodel.scenario import check_scenario, diff_scenarios, parse_set, read_scenario
from tests.scenario.examples import FULL_YAML, small

BASE = """\
qmodel: 1
title: base
classes:
  chat:
    model: llama-3.1-8b
    rate_rps: 4
    prompt_tokens: {mean: 1200, cv: 1.1}
    output_tokens: {mean: 300, cv: 0.9}
    slo: {ttft_p95_s: 0.5, tpot_p95_s: 0.04}
fleet: {gpus: {h100-sxm: {max_count: 8}, h200-sxm: {}}}
"""


def written(folder, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def told(source, **options) -> list[str]:
    return [str(problem) for problem in check_scenario(source, **options).problems]


def test_set_wins_over_variants_over_the_file_over_what_it_extends(tmp_path):
    written(
        tmp_path,
        base=BASE,
        child="extends: base.yaml\ntitle: child\nclasses: {chat: {rate_rps: 5}}\n"
        "variants: {a: {classes.chat.rate_rps: 6, title: a}, b: {classes: {chat: {rate_rps: 7}}}}\n",
    )
    path = tmp_path / "child.yaml"
    options = {"overrides": {"classes.chat.rate_rps": 8}}
    assert read_scenario(path).classes["chat"].rate == 5
    assert read_scenario(path, apply=["a"]).classes["chat"].rate == 6
    assert read_scenario(path, apply=["a", "b"]).classes["chat"].rate == 7
    assert read_scenario(path, apply=["b", "a"]).classes["chat"].rate == 6
    scenario = read_scenario(path, apply=["a", "b"], **options)
    assert (scenario.classes["chat"].rate, scenario.title, scenario.applied) == (8, "a", ("a", "b"))
    assert (
        read_scenario(path).with_(apply=["a"], **options).resolved()
        == read_scenario(path, apply=["a"], **options).resolved()
    )


def test_mappings_merge_lists_replace_and_null_removes():
    scenario = read_scenario(
        BASE + "layouts: {tp: [1, 2, 4]}\nvariants:\n"
        "  v:\n    fleet.gpus.h100-sxm.max_count: 4\n    fleet: {gpus: {h200-sxm: ~}}\n    layouts.tp: [8]\n"
        "    classes.chat.slo.tpot_p95_s: ~\n    classes.chat.slo.tpot_mean_s: 0.03\n",
        apply=["v"],
    )
    assert {name: spec.max_count for name, spec in scenario.fleet.gpus.items()} == {"h100-sxm": 4}
    assert scenario.layouts.tp == (8,)
    assert dict(scenario.classes["chat"].slo) == {"ttft_p95_s": 0.5, "tpot_mean_s": 0.03}


def test_a_law_is_swapped_by_removing_the_old_one():
    changes = {"classes.chat.output_tokens": {"constant": 100}}
    assert told(small(), overrides=changes) == [
        "<--set>: classes.chat.output_tokens: states mean and constant, which exclude each other; keep one of them; "
        "in a variant or override '~' removes what the file states"
    ]
    changes = {"classes.chat.output_tokens": {"constant": 100, "mean": None, "cv": None}}
    spec = read_scenario(small(), overrides=changes).classes["chat"].output_tokens
    assert spec is not None and spec.constant == 100 and spec.mean is None


def test_extending_several_files_lets_the_later_win(tmp_path):
    written(
        tmp_path,
        base=BASE,
        fleet="fleet: {gpus: {h100-sxm: {max_count: 99}}}\ntitle: fleet\n",
        child="extends: [base.yaml, fleet.yaml]\n",
    )
    scenario = read_scenario(tmp_path / "child.yaml")
    assert scenario.fleet.gpus["h100-sxm"].max_count == 99 and scenario.title == "fleet"
    assert "extends" not in scenario.resolved()


def test_extending_in_a_circle_names_the_circle(tmp_path):
    written(tmp_path, a="extends: b.yaml\n", b="qmodel: 1\nextends: c.yaml\n", c="extends: [a.yaml]\n")
    a, b, c = (tmp_path / f"{name}.yaml" for name in "abc")
    assert told(a) == [f"{c}:1:11: extends[0]: extends itself: {a} > {b} > {c} > {a}; take one link out"]
    written(tmp_path, a="extends: a.yaml\n")
    assert told(a) == [f"{a}:1:1: extends: extends itself: {a} > {a}; take one link out"]


def test_what_cannot_be_extended_is_told_at_the_value(tmp_path):
    written(tmp_path, child="qmodel: 1\nextends: [no.yaml, broken.yaml]\n", broken="a: [1\n")
    assert told(tmp_path / "child.yaml") == [
        f"{tmp_path / 'broken.yaml'}:2:1: is not valid YAML: expected ',' or ']', but got the end of the file "
        "(while parsing a flow sequence from line 1); a ',' or closing bracket is missing",
        f"{tmp_path / 'child.yaml'}:2:11: extends[0]: no such file '{tmp_path / 'no.yaml'}'",
    ]


def test_problems_point_into_the_file_that_states_the_value(tmp_path):
    (tmp_path / "sub").mkdir()
    written(tmp_path / "sub", base=BASE.replace("rate_rps: 4", "rate_rps: -4"))
    written(tmp_path, child="extends: sub/base.yaml\nengine: {watermark: 3}\n")
    base, child = tmp_path / "sub" / "base.yaml", tmp_path / "child.yaml"
    assert told(child) == [
        f"{child}:2:10: engine.watermark: must be less than 1 (got 3)",
        f"{base}:6:5: classes.chat.rate_rps: must be greater than 0 (got -4)",
    ]


def test_relative_paths_start_at_the_file_that_states_them(tmp_path):
    (tmp_path / "sub").mkdir()
    trace = "classes: {t: {model: ./m/config.json, trace: {file: data/t.csv}, slo: {ttft_p95_s: 1}}}\n"
    written(tmp_path / "sub", base=f"qmodel: 1\n{trace}fleet: {{gpus: {{h100-sxm: {{}}}}}}\n")
    written(tmp_path, child="extends: sub/base.yaml\nvariants: {v: {classes.t.trace.file: own.csv}}\n")
    spec = read_scenario(tmp_path / "child.yaml").classes["t"]
    assert spec.trace is not None and spec.trace.file == "sub/data/t.csv" and spec.model == "sub/m/config.json"
    varied = read_scenario(tmp_path / "child.yaml", apply=["v"]).classes["t"].trace
    assert varied is not None and varied.file == "own.csv"


def test_models_of_another_file_are_found_from_there(tmp_path):
    (tmp_path / "sub").mkdir()
    rest = "rate_rps: 1, prompt_tokens: {constant: 9}, output_tokens: {constant: 9}, slo: {ttft_p95_s: 1}"
    models = "models: {./m/config.json: {quality: 0.8}, b: {quality: 0.7}}"
    (tmp_path / "sub" / "base.yaml").write_text(f"classes: {{t: {{{models}, {rest}}}}}\n")
    (tmp_path / "top.yaml").write_text("qmodel: 1\nextends: sub/base.yaml\nfleet: {gpus: {h100-sxm: {}}}\n")
    spec = read_scenario(tmp_path / "top.yaml").classes["t"]
    assert spec.served_by == ("sub/m/config.json", "b")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("classes.chta.rate_rps", 3, "no class 'chta'; did you mean 'chat'?"),
        ("classes.zzz.rate_rps", 3, "no class 'zzz'; there are chat"),
        ("classes.chta", None, "no class 'chta'; did you mean 'chat'?"),
        ("classes.chat.rate_rp", 3, "unknown key 'rate_rp' in classes.chat; did you mean 'rate_rps'?"),
        ("classes.chat.rate_rp", None, "unknown key 'rate_rp' in classes.chat; did you mean 'rate_rps'?"),
        ("engin.name", "x", "unknown key 'engin'; did you mean 'engine'?"),
        ("fleet.gpus.h100.max_count", 3, "no GPU 'h100'; did you mean 'h100-sxm'?"),
        ("classes.chat.rate_rps.x", 3, "classes.chat.rate_rps has no keys below it (it is 4)"),
        ("profiles[0].alpha_s", 3, "no item [0] in profiles; it has no items; set the whole list"),
        ("profiles.x", 3, "no item 'x' in profiles; it has no items; set the whole list"),
        ("classes.chat.slo.ttft_p99_s", None,
         "no entry 'ttft_p99_s' in classes.chat.slo; did you mean 'ttft_p95_s'?"),
        ("variants.peak.title", 3, "'variants' cannot be overridden"),
        ("extends", "x.yaml", "'extends' cannot be overridden"),
    ],
)  # fmt: skip
def test_an_override_that_leads_nowhere_is_a_problem(key, value, expected):
    assert told(small(), overrides={key: value}) == [f"<--set>: {key}: {expected}"]


def test_a_name_with_dots_is_told_to_be_quoted_whatever_comes_below_it():
    data = small()
    chat = data["classes"]["chat"]
    chat["models"] = {chat.pop("model"): {}, "llama-3.1-8b": {}}
    (problem,) = check_scenario(data, overrides={"classes.chat.models.llama-3.1-8b.share": 0.5}).problems
    assert problem.hint == 'a name that has dots is quoted: classes.chat.models."llama-3.1-8b".share'


def test_a_malformed_override_key_is_told():
    (problem,) = check_scenario(small(), overrides={"classes..x": 1}).problems
    assert problem.file == "<--set>" and problem.what.startswith("not a key path: 'classes..x' at character 9")


def test_overrides_may_add_whole_entries_and_new_sections():
    scenario = read_scenario(
        small(),
        overrides={
            "fleet.gpus.b200-sxm": {},
            "classes.chat.slo.completion_p90_s": 30,
            "engine.max_num_seqs": 64,
            "policy.confidence": "p90",
        },
    )
    assert list(scenario.fleet.gpus) == ["h100-sxm", "b200-sxm"]
    assert scenario.engine.max_num_seqs == 64 and scenario.policy.confidence == "p90"
    assert [slo.key for slo in scenario.classes["chat"].slos] == ["ttft_p95_s", "completion_p90_s"]


def test_an_override_reaches_into_a_list():
    scenario = read_scenario(FULL_YAML, overrides={"profiles[0].kv_tokens": 7})
    assert scenario.profiles[0].kv_tokens == 7 and scenario.profiles[0].alpha_s == 0.0131
    assert told(FULL_YAML, overrides={"profiles[2].kv_tokens": 7}) == [
        "<--set>: profiles[2].kv_tokens: no item [2] in profiles; it has 2 items, counted from 0"
    ]


def test_bad_values_of_overrides_are_told_with_their_key():
    assert told(small(), overrides={"classes.chat.rate_rps": "12"}) == [
        "<--set>: classes.chat.rate_rps: must be a number (got '12', text); write 12 without quotes"
    ]
    assert told(small(), overrides={"engine.router": "prefix_aware", "classes.chat.slo": 3}) == [
        "<--set>: classes.chat.slo: must be a mapping of keys (got 3)",
        "<--set>: engine.router: not supported yet: requests sent where their prefix is (got 'prefix_aware');"
        " use random, round_robin or jsq",
    ]


def test_variants_are_checked_although_nobody_applies_them():
    text = (
        BASE
        + "variants:\n  v:\n    classes.chta.rate_rps: 3\n    engine: {watermrk: 1}\n  w: {classes.chat.rate_rps: 0}\n"
    )
    assert told(text) == [
        "<text>:13:5: variants.v.\"classes.chta.rate_rps\": no class 'chta'; did you mean 'chat'?",
        "<text>:14:14: engine: unknown key 'watermrk'; did you mean 'watermark'?",
        "<text>:15:7: classes.chat.rate_rps: must be greater than 0 (got 0)",
    ]
    assert told(BASE + "variants: {v: {classes.chat.rate_rps: ~}}\n") == [
        "<text>:4:3: classes.chat: with variant 'v': has no arrivals; "
        "add rate_rps: <requests per second>, a trace or a batch"
    ]


def test_an_unknown_variant_is_told():
    text = BASE + "variants: {peak: {title: x}}\n"
    assert told(text, apply=["paek"]) == ["<text>:11:1: variants: no variant 'paek'; did you mean 'peak'?"]
    assert told(BASE, apply=["peak"]) == ["<text>:1:1: variants: no variant 'peak'"]


def test_a_broken_derivation_raises_and_leaves_the_scenario_alone():
    scenario = read_scenario(small())
    with pytest.raises(ScenarioError, match="no class 'chta'"):
        scenario.with_(overrides={"classes.chta.rate_rps": 3})
    with pytest.raises(ScenarioError, match="no variant 'peak'"):
        scenario.with_(apply=["peak"])
    assert scenario.classes["chat"].rate == 4.0


def test_overrides_pile_up():
    scenario = read_scenario(small()).with_(overrides={"classes.chat.rate_rps": 5}).with_(overrides={"title": "x"})
    assert (scenario.classes["chat"].rate, scenario.title) == (5.0, "x")
    assert scenario.overrides == {"classes.chat.rate_rps": 5, "title": "x"}


def test_numpy_numbers_are_numbers_in_overrides():
    import numpy as np

    changes = {"classes.chat.rate_rps": np.float64(7.5), "engine.max_num_seqs": np.int64(9), "layouts.tp": (1, 2)}
    scenario = read_scenario(small(), overrides=changes)
    assert scenario.classes["chat"].rate == 7.5 and scenario.engine.max_num_seqs == 9 and scenario.layouts.tp == (1, 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("classes.chat.rate_rps=40", ("classes.chat.rate_rps", 40)),
        (" a.b = [1, 2]", ("a.b", [1, 2])),
        ("a={mean: 3, cv: 0.5}", ("a", {"mean": 3, "cv": 0.5})),
        ("a=~", ("a", None)),
        ("a=", ("a", None)),
        ("title=x=y", ("title", "x=y")),
        ("a='12'", ("a", "12")),
        ('models."llama-3.3-70b".quality=0.8', ('models."llama-3.3-70b".quality', 0.8)),
    ],
)
def test_set_arguments_are_yaml(text, expected):
    assert parse_set(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("classes.chat", "<--set>: has no '=' (got 'classes.chat'); write KEY=VALUE"),
        ("=3", "<--set>: not a key path: '' ends where a name was expected"),
        ("a=.nan", "<--set>: a: must be a finite number (got .nan)"),
    ],
)
def test_set_arguments_that_are_broken_are_told(text, expected):
    with pytest.raises(ScenarioError) as caught:
        parse_set(text)
    assert str(caught.value) == expected


def test_a_set_value_with_broken_yaml_names_the_key():
    with pytest.raises(ScenarioError) as caught:
        parse_set("layouts.tp=[1, 2")
    assert str(caught.value).startswith("<--set>: layouts.tp: is not valid YAML: expected ',' or ']'")


def test_a_resolved_scenario_can_be_read_again():
    scenario = read_scenario(FULL_YAML, apply=["peak"])
    again = read_scenario(scenario.resolved(), base_dir=scenario.base_dir)
    assert again.resolved() == scenario.resolved()
    assert again.classes == scenario.classes and again.fleet == scenario.fleet and again.variants == {}


def test_differences_are_the_leaves_that_differ():
    base, peak = read_scenario(FULL_YAML).resolved(), read_scenario(FULL_YAML, apply=["peak", "small"]).resolved()
    assert diff_scenarios(base, base) == []
    found = {key: (left, right) for key, left, right in diff_scenarios(base, peak)}
    assert found["classes.chat.rate_rps"] == (12, 40)
    assert found["classes.logs.trace.rate_scale"] == (0.5, None)
    assert found["fleet.gpus.h200-sxm.price.usd_per_gpu_hour"] == (3.8, None)
    assert [(key, right, left) for key, left, right in diff_scenarios(base, peak)] != []
    assert {(key, right, left) for key, left, right in diff_scenarios(base, peak) if not isinstance(left, list)} == {
        (key, left, right) for key, left, right in diff_scenarios(peak, base) if not isinstance(right, list)
    }


def test_differences_in_lists_and_types():
    assert diff_scenarios({"a": 1}, {"a": 1.0}) == []
    assert diff_scenarios({"a": True}, {"a": 1}) == [("a", True, 1)]
    assert diff_scenarios({"p": [{"x": 1}, {"x": 2}]}, {"p": [{"x": 1}, {"x": 3}]}) == [("p[1].x", 2, 3)]
    assert diff_scenarios({"tp": [1, 2]}, {"tp": [1, 4]}) == [("tp", [1, 2], [1, 4])]
    assert diff_scenarios({"a": {}}, {}) == [("a", {}, None)]
