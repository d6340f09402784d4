"""The schema: what is accepted, and the words for what is not."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from pydantic import ValidationError

from qmodel.scenario import check_scenario, read_scenario
from tests.scenario.examples import FULL_YAML, small

OWNED = {"capex_usd_per_gpu": 30000, "years": 5, "pue": 1.2, "usd_per_kwh": 0.1}


def told(tree) -> list[str]:
    """Problems without the name of the source."""
    return [str(problem).removeprefix("<dict>: ") for problem in check_scenario(tree).problems]


def test_every_documented_key_is_accepted():
    scenario = read_scenario(FULL_YAML)
    chat, reasoning, logs = (scenario.classes[name] for name in ("chat", "reasoning", "logs"))
    assert (chat.rate, reasoning.rate, logs.rate) == (12.0, 0.8, None)
    assert [slo.key for slo in reasoning.slos] == ["answer_start_p90_s", "tpot_mean_s", "completion_p99.9_s"]
    assert reasoning.slos[2].p == 0.999 and reasoning.slos[2].target_s == 600
    assert logs.trace is not None and logs.trace.cls == "conv" and logs.trace.rate_scale == 0.5
    assert scenario.fleet.gpus["h100-sxm"].price is None
    assert scenario.fleet.price_book.providers == ("aws", "lambda")
    assert scenario.layouts.tp == (1, 2, 4, 8) and scenario.layouts.ep == "auto"
    assert scenario.layouts.precision == ("auto", "fp8")
    assert scenario.profiles[0].layout.layout.gpus == 4 and scenario.profiles[1].kv_tokens is None
    assert scenario.engine_settings("h200-sxm")["max_num_seqs"] == 512
    assert scenario.engine_settings("h100-sxm")["max_num_seqs"] == 256
    assert scenario.file == "<text>" and scenario.base_dir == "."


def test_left_out_keys_have_the_documented_defaults():
    scenario = read_scenario(small())
    assert scenario.engine.settings() == {} and scenario.profiles == ()
    assert scenario.layouts.tp == (1, 2, 4, 8) and scenario.layouts.pp == (1, 2) and scenario.layouts.cp == (1,)
    assert scenario.layouts.precision == "auto" and scenario.layouts.disaggregate == "auto"
    book = scenario.fleet.price_book
    assert (book.providers, book.term, book.market, book.choose) == (None, "on_demand", "default", "median")
    assert (scenario.policy.confidence, scenario.policy.slo_scope, scenario.policy.spare_replicas) == (
        "nominal",
        "pool",
        0,
    )


def test_a_scenario_is_frozen_and_travels_between_processes():
    scenario = read_scenario(FULL_YAML)
    with pytest.raises(ValidationError):
        scenario.title = "other"
    twin = pickle.loads(pickle.dumps(scenario))
    assert twin == scenario and copy.deepcopy(scenario) == scenario
    assert twin.where("classes.chat.rate_rps") == ("<text>", 6, 5)
    assert twin.with_(apply=["peak"]).classes["chat"].rate == 40.0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"qmodel": None}, "'qmodel' is missing; add 'qmodel: 1' at the top"),
        ({"qmodel": 2}, "qmodel: must be 1 (got 2)"),
        ({"classes": None}, "'classes' is missing; add at least one class"),
        ({"classes": {}}, "classes: must not be empty"),
        ({"classes": ["chat"]}, "classes: must be a mapping of keys (got a list); write {chat: {}, ...}"),
        ({"fleet__gpus": {}}, "fleet.gpus: must not be empty"),
        ({"fleet__gpus": ["h100"]}, "fleet.gpus: must be a mapping of keys (got a list); write {h100: {}, ...}"),
        ({"clases": {}}, "unknown key 'clases'; did you mean 'classes'?"),
        ({"classes__chat__rate_rps": "12"},
         "classes.chat.rate_rps: must be a number (got '12', text); write 12 without quotes"),
        ({"classes__chat__rate_rps": "fast"}, "classes.chat.rate_rps: must be a number (got 'fast', text)"),
        ({"classes__chat__rate_rps": True}, "classes.chat.rate_rps: must be a number (got true)"),
        ({"classes__chat__rate_rps": -3}, "classes.chat.rate_rps: must be greater than 0 (got -3)"),
        ({"classes__chat__rate_rps": 0}, "classes.chat.rate_rps: must be greater than 0 (got 0)"),
        ({"classes__chat__rate_rps": float("nan")}, "classes.chat.rate_rps: must be a finite number (got nan)"),
        ({"classes__chat__rate_rps": float("inf")}, "classes.chat.rate_rps: must be a finite number (got inf)"),
        ({"classes__chat__rate_rps": [1]}, "classes.chat.rate_rps: must be a number (got a list)"),
        ({"classes__chat__rate_rps": None},
         "classes.chat: has no arrivals; add rate_rps: <requests per second>, a trace or a batch"),
        ({"classes__chat__model": None},
         "classes.chat: 'model' is missing; write model: <name>, or models: {<name>: {quality: 0.8}}"),
        ({"classes__chat__models": {"a": {"quality": 0.8}}},
         "classes.chat: states model and models, which exclude each other; leave one side out; "
         "in a variant or override 'model: ~' removes what the file states"),
        ({"classes__chat__model": None, "classes__chat__models": {}}, "classes.chat.models: must not be empty"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"quality": 0.8}, "b": {}}},
         "classes.chat.models.b: 'quality' is missing: other models of the class have one; write quality: <score>"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {}, "b": {}}, "classes__chat__min_quality": 0.8},
         "classes.chat.models.a: 'quality' is missing: min_quality asks for it; write quality: <score>"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"share": 0.8}, "b": {"share": 0.3}}},
         "classes.chat.models.b.share: shares of the models must add up to 1 (got 1.1)"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"share": {"min": 0.8}}, "b": {"share": 0.3}}},
         "classes.chat.models.b.share: the models are to get 1.1 of the requests at least, more than all; "
         "lower a share or a min"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"share": {"max": 0.5}}, "b": {"share": 0.3}}},
         "classes.chat.models.b.share: the models may get 0.8 of the requests at most, less than all; "
         "raise a share or a max, or leave it out"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"share": {"min": 0.5, "max": 0.2}}, "b": {}}},
         "classes.chat.models.a.share.max: must not be less than min (got min 0.5, max 0.2)"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"share": 1.2}, "b": {}}},
         "classes.chat.models.a.share: must be at most 1 (got 1.2)"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"share": "most"}, "b": {}}},
         "classes.chat.models.a.share: must be a number (got 'most', text)"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"share": {"least": 0.1}}, "b": {}}},
         "classes.chat.models.a.share: unknown key 'least'; known keys: min, max"),
        ({"classes__chat__model": None,
          "classes__chat__models": {"a": {"quality": 0.8, "share": 0.3}, "b": {"quality": 0.6}},
          "classes__chat__min_quality": 0.7},
         "classes.chat.min_quality: 0.7 is more than the shares of the models allow; "
         "at most 0.66, or give better models more"),
        ({"classes__chat__model": None,
          "classes__chat__models": {"a": {"quality": 0.8}, "b": {"quality": 0.6, "share": 0.1}},
          "classes__chat__floor": 0.7},
         "classes.chat.models.b.share: is to get 0.1 of the requests at least, but floor 0.7 leaves it out; "
         "lower floor to 0.6"),
        ({"classes__chat__model": None,
          "classes__chat__models": {"a": {"quality": 0.8, "share": {"max": 0.4}}, "b": {"quality": 0.6}},
          "classes__chat__floor": 0.7},
         "classes.chat.floor: 0.7 leaves models that may get 0.4 of the requests at most, less than all; "
         "lower it, or raise a share or a max"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"reasoning_tokens": {"constant": 9}}}},
         "classes.chat.models.a: states reasoning_tokens without answer_tokens; give both, or output_tokens alone"),
        ({"classes__chat__model": None, "classes__chat__rate_rps": None, "classes__chat__prompt_tokens": None,
          "classes__chat__output_tokens": None, "classes__chat__trace": {"file": "t.csv"},
          "classes__chat__models": {"a": {"max_tokens": 9}, "b": {}}},
         "classes.chat.models.a: states lengths of its own, but trace gives the lengths; "
         "leave them out, or state laws instead of the trace"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"slo": {"ttft_p95_ms": 9}}}},
         "classes.chat.models.a.slo.ttft_p95_ms: unknown target 'ttft_p95_ms'; did you mean 'ttft_p95_s'? "
         "(targets are in seconds)"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"quality": 0}}},
         "classes.chat.models.a.quality: must be greater than 0 (got 0)"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"quality": 0.8}},
          "classes__chat__min_quality": 0.9},
         "classes.chat.min_quality: 0.9 is more than any model has; at most 0.8, the quality of a"),
        ({"classes__chat__model": None, "classes__chat__models": {"a": {"quality": 0.8}}, "classes__chat__floor": 0.81},
         "classes.chat.floor: 0.81 is more than any model has; at most 0.8, the quality of a"),
        ({"classes__chat__min_quality": 0.9},
         "classes.chat.min_quality: needs the quality of each model; "
         "state models: {<name>: {quality: 0.8}} instead of model, or leave it out"),
        ({"classes__chat__floor": 0.9},
         "classes.chat.floor: needs the quality of each model; "
         "state models: {<name>: {quality: 0.8}} instead of model, or leave it out"),
        ({"classes__chat__patience_s": 5},
         "classes.chat.patience_s: does not say which share of the requests may leave, so a plan might lose nearly all "
         "of them; add slo: {abandoned_share: 0.01}"),
        ({"classes__chat__slo": {"abandoned_share": 0.01}},
         "classes.chat.slo.abandoned_share: means nothing without patience_s: nobody leaves; add patience_s: <s>"),
        ({"classes__chat__retries": 2},
         "classes.chat.retries: means nothing without patience_s; add patience_s, or leave it out"),
        ({"classes__chat__patience_s": 5, "classes__chat__slo": {"abandoned_share": 1}},
         "classes.chat.slo.abandoned_share: must be less than 1 (got 1)"),
        ({"classes__chat__patience_s": 5, "classes__chat__slo": {"abandoned_share": 0.1}, "classes__chat__retries": 2,
          "classes__chat__backoff_s": 0},
         "classes.chat.backoff_s: must be greater than 0 where requests come again (got 0)"),
        ({"classes__chat__patience_s": 5, "classes__chat__slo": {"abandoned_share": 0.1},
          "classes__chat__rate_rps": None, "classes__chat__arrivals": {"rate_rps": 2, "scv": 4}},
         "classes.chat.patience_s: requests that leave are predicted for Poisson arrivals only, and arrivals states "
         "scv; leave arrivals.scv out"),
        ({"classes__chat__patience_s": 0}, "classes.chat.patience_s: must be greater than 0 (got 0)"),
        ({"objective": {"minimize": "abandoned_share", "class": "chat"}},
         "objective.minimize: must be cost_usd_per_hour or a target in seconds (got 'abandoned_share'); "
         "state it as a target: slo: {abandoned_share: 0.01}"),
        ({"classes__chat__model": " "}, "classes.chat.model: is empty text"),
        ({"classes__chat__slo": None}, "classes.chat: 'slo' is missing; add slo: {ttft_p95_s: 0.5}"),
        ({"classes__chat__slo": {}}, "classes.chat.slo: must not be empty"),
        ({"classes__chat__slo": {"ttft_p95_ms": 500}},
         "classes.chat.slo.ttft_p95_ms: unknown target 'ttft_p95_ms'; did you mean 'ttft_p95_s'? "
         "(targets are in seconds)"),
        ({"classes__chat__slo": {"ttft_p95": 1}},
         "classes.chat.slo.ttft_p95: unknown target 'ttft_p95'; did you mean 'ttft_p95_s'?"),
        ({"classes__chat__slo": {"itl_mean_s": 1}},
         "classes.chat.slo.itl_mean_s: unknown target 'itl_mean_s'; did you mean 'tpot_mean_s'?"),
        ({"classes__chat__slo": {"zzz": 1}},
         "classes.chat.slo.zzz: unknown target 'zzz'; write <metric>_<mean|pNN>_s with metric ttft, answer_start, "
         "tpot or completion"),
        ({"classes__chat__slo": {"ttft_p0_s": 1}},
         "classes.chat.slo.ttft_p0_s: unknown target 'ttft_p0_s'; percentiles go from p1 to p99.9"),
        ({"classes__chat__slo": {"ttft_p100_s": 1}},
         "classes.chat.slo.ttft_p100_s: unknown target 'ttft_p100_s'; percentiles go from p1 to p99.9"),
        ({"classes__chat__slo": {"ttft_p05_s": 1}},
         "classes.chat.slo.ttft_p05_s: unknown target 'ttft_p05_s'; did you mean 'ttft_p5_s'?"),
        ({"classes__chat__slo": {"ttft_p95.0_s": 1}},
         "classes.chat.slo.\"ttft_p95.0_s\": unknown target 'ttft_p95.0_s'; did you mean 'ttft_p95_s'?"),
        ({"classes__chat__slo": {"ttft_p95_s": 0}}, "classes.chat.slo.ttft_p95_s: must be greater than 0 (got 0)"),
        ({"classes__chat__max_tokens": 10.5}, "classes.chat.max_tokens: must be a whole number (got 10.5)"),
        ({"classes__chat__output_tokens": 300},
         "classes.chat.output_tokens: must be a mapping of keys (got 300); write {constant: 300}"),
        ({"engine__version": 0.11}, "engine.version: must be text (got 0.11); quote it: '0.11'"),
        ({"engine__gpu_memory_utilization": 1.2}, "engine.gpu_memory_utilization: must be at most 1 (got 1.2)"),
        ({"engine__gpu_memory_utilization": 0}, "engine.gpu_memory_utilization: must be greater than 0 (got 0)"),
        ({"engine__watermark": 1}, "engine.watermark: must be less than 1 (got 1)"),
        ({"engine__max_num_seqs": 0}, "engine.max_num_seqs: must be at least 1 (got 0)"),
        (
            {"engine__router": "jqs"},
            "engine.router: must be random, round_robin or jsq (got 'jqs'); did you mean 'jsq'?",
        ),
        ({"layouts__tp": 8}, "layouts.tp: must be auto or a list (got 8); write [8]"),
        ({"layouts__tp": [2, 2]}, "layouts.tp: lists 2 twice"),
        ({"layouts__tp": [0]}, "layouts.tp[0]: must be at least 1 (got 0)"),
        ({"layouts__ep": []}, "layouts.ep: must not be empty"),
        ({"layouts__precision": ["fp16"]},
         "layouts.precision[0]: must be auto, bf16, fp8, fp4 or w4 (got 'fp16'); did you mean 'bf16'?"),
        ({"layouts__disaggregate": "yes"}, "layouts.disaggregate: must be auto, true or false (got 'yes')"),
        ({"fleet__price_book": {"providers": "aws"}},
         "fleet.price_book.providers: must be all or a list of providers (got 'aws'); write [aws]"),
        ({"fleet__gpus": {"h100-sxm": {"price": 3}}},
         "fleet.gpus.h100-sxm.price: must be a mapping of keys (got 3); write {usd_per_gpu_hour: 3}"),
        ({"fleet__gpus": {"h100-sxm": {"price": {}}}},
         "fleet.gpus.h100-sxm.price: is empty; write price: {usd_per_gpu_hour: 3.8}, or leave it out"),
        ({"fleet__gpus": {"h100-sxm": {"max_count": -1}}},
         "fleet.gpus.h100-sxm.max_count: must be at least 0 (got -1)"),
        ({"objective": {"minimize": "cost"}},
         "objective.minimize: must be cost_usd_per_hour or a target such as ttft_p95_s (got 'cost');"
         " write <metric>_<mean|pNN>_s with metric ttft, answer_start, tpot or completion"),
        ({"objective": {"minimize": "ttft_p95_s"}},
         "objective: minimize: ttft_p95_s does not say whose;"
         " write objective: {minimize: ttft_p95_s, class: <name of the class>}"),
        ({"objective": {"minimize": "ttft_p95_s", "maximize": "served_rps"}},
         "objective: states minimize and maximize, which exclude each other; keep one of them"),
        ({"objective": {"maximize": "served_rps", "class": "chat"}},
         "objective.class: belongs to a target; cost and served requests are those of all classes; leave class out"),
        ({"fleet__gpus": {"h100-sxm": {"tiers": []}}}, "fleet.gpus.h100-sxm.tiers: must not be empty"),
        ({"fleet__gpus": {"h100-sxm": {"tiers": {"term": "on_demand"}}}},
         "fleet.gpus.h100-sxm.tiers: must be a list (got a mapping)"),
        ({"fleet__gpus": {"h100-sxm": {"tiers": [{"usd_per_gpu_hour": 3}]}}},
         "fleet.gpus.h100-sxm.tiers[0]: needs a term; on_demand, reserved_1y, reserved_3y or owned"),
        ({"fleet__gpus": {"h100-sxm": {"tiers": [{"term": "reserved_2y"}]}}},
         "fleet.gpus.h100-sxm.tiers[0].term: must be on_demand, reserved_1y, reserved_3y, spot or owned "
         "(got 'reserved_2y'); did you mean 'reserved_3y'?"),
        ({"fleet__gpus": {"h100-sxm": {"tiers": [{"term": "spot"}]}}},
         "fleet.gpus.h100-sxm.tiers[0].term: spot GPUs may be taken away, so they cannot stand in for others; "
         "give them an entry of their own in fleet.gpus, with spot: {preemptions_per_hour: ..., restart_s: ...}"),
        ({"fleet__gpus": {"h100-sxm": {"tiers": [{"term": "on_demand", "max_count": 2}, {"term": "on_demand"}]}}},
         "fleet.gpus.h100-sxm.tiers: states the term on_demand twice; "
         "add up their max_count, or use another entry of fleet.gpus"),
        ({"fleet__gpus": {"h100-sxm": {"tiers": [{"term": "on_demand", "max_count": -2}]}}},
         "fleet.gpus.h100-sxm.tiers[0].max_count: must be at least 0 (got -2)"),
        ({"fleet__gpus": {"h100-sxm": {"tiers": [{"term": "on_demand", "usd_per_gpu_hour": -2}]}}},
         "fleet.gpus.h100-sxm.tiers[0].usd_per_gpu_hour: must be greater than 0 (got -2)"),
        ({"fleet__gpus": {"h100-sxm": {"tiers": [{"term": "on_demand"}], "price": {"term": "on_demand"}}}},
         "fleet.gpus.h100-sxm: states price and tiers, which exclude each other; keep one of them; "
         "in a variant or override '~' removes what the file states"),
        ({"fleet__gpus": {"h100-sxm": {"price": {"owned": {"years": 5}}}}},
         "fleet.gpus.h100-sxm.price.owned: 'capex_usd_per_gpu' is missing\n"
         "fleet.gpus.h100-sxm.price.owned: 'pue' is missing\n"
         "fleet.gpus.h100-sxm.price.owned: 'usd_per_kwh' is missing"),
        ({"fleet__gpus": {"h100-sxm": {"price": {"owned": OWNED | {"salvage_share": 1}}}}},
         "fleet.gpus.h100-sxm.price.owned.salvage_share: must be less than 1 (got 1)"),
        ({"fleet__gpus": {"h100-sxm": {"price": {"owned": OWNED | {"pue": 0.9}}}}},
         "fleet.gpus.h100-sxm.price.owned.pue: must be at least 1 (got 0.9)"),
        ({"fleet__gpus": {"h100-sxm": {"price": {"owned": OWNED | {"capex_usd_per_gpu": -1}}}}},
         "fleet.gpus.h100-sxm.price.owned.capex_usd_per_gpu: must be greater than 0 (got -1)"),
        ({"fleet__gpus": {"h100-sxm": {"price": {"owned": OWNED, "usd_per_gpu_hour": 2}}}},
         "fleet.gpus.h100-sxm.price: states owned and usd_per_gpu_hour, which exclude each other; keep one of them; "
         "in a variant or override '~' removes what the file states"),
        ({"fleet__gpus": {"h100-sxm": {"price": {"owned": OWNED, "term": "spot"}}}},
         "fleet.gpus.h100-sxm.price.term: is spot, and owned is stated beside it; leave term out, or use owned"),
        ({"fleet__gpus": {"h100-sxm": {"price": {"term": "owned"}}}},
         "fleet.gpus.h100-sxm.price.term: has no price: no price book knows what your own GPUs cost; "
         "add usd_per_gpu_hour, or owned: {capex_usd_per_gpu: ..., years: ..., pue: ..., usd_per_kwh: ...}"),
        ({"fleet__price_book": {"term": "owned"}},
         "fleet.price_book.term: must be on_demand, reserved_1y, reserved_3y or spot (got 'owned')"),
        ({"fleet__gpus": {"h100-sxm": {"provider": " "}}}, "fleet.gpus.h100-sxm.provider: is empty text"),
        ({"policy": {"confidence": "p95"}},
         "policy.confidence: must be nominal or p90 (got 'p95'); did you mean 'p90'?"),
        ({"comparisons": {"week": ["base", "peek"]}, "variants": {"peak": {"classes.chat.rate_rps": 9}}},
         "comparisons.week[1]: no variant 'peek'; did you mean 'peak'?"),
        ({"variants": {"base": {}}}, "variants.base: 'base' means the file without variants; choose another name"),
        ({"extends": 3}, "extends: must be a file name or a list of them (got 3)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_plain_words(changes, expected):
    assert told(small(**changes)) == expected.splitlines()


def test_names_have_no_dots_or_spaces():
    rule = "is not a name; use letters, digits, '_' and '-', without dots or spaces"
    chat = small()["classes"]["chat"]
    assert told(small(classes={"a b": chat, "c.d": chat})) == [
        f"classes.\"a b\": 'a b' {rule}",
        f"classes.\"c.d\": 'c.d' {rule}",
    ]


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ({"mean": -5, "cv": 1}, ".mean: must be at least 1 (got -5)"),
        ({"mean": 5}, ": needs mean and cv together (cv is missing)"),
        ({"cv": 5}, ": needs mean and cv together (mean is missing)"),
        ({"mean": 5, "cv": -1}, ".cv: must be at least 0 (got -1)"),
        ({}, ": names no law; write {mean: 300, cv: 0.9}, or one of constant, normal, quantiles, mixture"),
        ({"constant": 0}, ".constant: must be at least 1 (got 0)"),
        ({"constant": 5, "mean": 5, "cv": 1},
         ": states mean and constant, which exclude each other; keep one of them; "
         "in a variant or override '~' removes what the file states"),
        ({"normal": {"mean": 5, "sd": 1, "min": 10, "max": 5}},
         ".normal.max: must be greater than min (got min 10, max 5)"),
        ({"normal": {"mean": 5}}, ".normal: 'sd' is missing"),
        ({"quantiles": {"p50": 5}}, ".quantiles: needs at least two percentiles; write {p50: 220, p90: 900}"),
        ({"quantiles": {"p50": 5, "p90": 5}}, ".quantiles.p90: must be greater than p50 (got p90 5, p50 5)"),
        ({"quantiles": {"p50": 5, "q90": 9}},
         ".quantiles.q90: 'q90' is not a percentile; write p50, p90 or p99.9"),
        ({"mixture": []}, ".mixture: must not be empty"),
        ({"mixture": [{"weight": 0.5, "mu": 5, "sigma": 1}]}, ".mixture: weights must add up to 1 (got 0.5)"),
        ({"mixture": [{"weight": 1, "mu": 5}]},
         ".mixture[0]: needs either mu and sigma, or mean and cv (got mu)"),
        ({"mixture": [{"weight": 1, "mean": 5, "sigma": 1}]},
         ".mixture[0]: needs either mu and sigma, or mean and cv (got sigma, mean)"),
        ({"mean": 5, "cv": 1, "at_cap": "atom"}, ".at_cap: means nothing without max or budget"),
        ({"mean": 5, "cv": 1, "budget": 9, "max": 9},
         ": states budget and max, which exclude each other; keep one"),
        ({"mean": 5, "cv": 1, "budget": 9, "at_cap": "cut"}, ".at_cap: must be atom or truncate (got 'cut')"),
    ],
)  # fmt: skip
def test_length_laws_are_checked(law, expected):
    assert told(small(classes__chat__output_tokens=law)) == [f"classes.chat.output_tokens{expected}"]


def test_exclusive_keys_of_a_class_name_the_way_out():
    remove = "leave one side out; in a variant or override {} removes what the file states"
    assert told(small(classes__chat__trace={"file": "x.csv"})) == [
        "classes.chat: states rate_rps and trace, which exclude each other; " + remove.format("'rate_rps: ~'"),
        "classes.chat: states prompt_tokens and output_tokens, but trace gives the lengths; "
        + remove.format("'prompt_tokens: ~', 'output_tokens: ~'"),
    ]
    assert told(small(classes__chat__answer_tokens={"constant": 5})) == [
        "classes.chat: states output_tokens and answer_tokens, which exclude each other; "
        + remove.format("'output_tokens: ~'")
    ]
    assert told(small(classes__chat__output_tokens=None, classes__chat__answer_tokens={"constant": 5})) == [
        "classes.chat: states answer_tokens without reasoning_tokens; give both, or output_tokens alone"
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"alpha_s": None}, ["profiles[0]: needs alpha_s and beta_s, or a step_table"]),
        ({"delta_s": None}, ["profiles[0]: 'delta_s' is missing"]),
        ({"alpha_s": 0, "beta_s": 0},
         ["profiles[0].alpha_s: must not be 0 together with beta_s: steps would take no time"]),
        ({"step_table": {"batch": [0, 1], "step_s": [1, 2]}},
         ["profiles[0]: states step_table and alpha_s and beta_s, which exclude each other; keep one of them; "
          "in a variant or override '~' removes what the file states"]),
        ({"alpha_s": None, "beta_s": None, "step_table": {"batch": [1, 3, 2], "step_s": [1, 2, 1.5]}},
         ["profiles[0].step_table.batch: must start at 0 (got 1)",
          "profiles[0].step_table.batch[2]: must ascend (got 2 after 3)",
          "profiles[0].step_table.step_s[2]: must not fall (got 1.5 after 2)"]),
        ({"kv_tokens": 0}, ["profiles[0].kv_tokens: must be greater than 0 (got 0)"]),
        ({"layout": {"tp": 2.5}}, ["profiles[0].layout.tp: must be a whole number (got 2.5)"]),
        ({"max_rate_rps": {"chat": 3.1}},
         ["profiles[0]: states max_rate_rps and alpha_s, beta_s, delta_s, gamma_s, which exclude each other; "
          "keep the rates or the step times; in a variant or override '~' removes what the file states"]),
        ({"alpha_s": None, "beta_s": None, "gamma_s": None, "delta_s": None},
         ["profiles[0]: needs alpha_s, beta_s, gamma_s and delta_s, or max_rate_rps"]),
    ],
)  # fmt: skip
def test_profiles_are_checked(changes, expected):
    profile = {"model": "m", "gpu": "g", "alpha_s": 0.01, "beta_s": 1e-4, "gamma_s": 0.0, "delta_s": 1e-4, **changes}
    profile = {key: value for key, value in profile.items() if value is not None}
    assert told(small(profiles=[profile])) == expected


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({"chat": 3.1, "other": 0.4}, []),
        ({}, ["profiles[0].max_rate_rps: must not be empty"]),
        ({"chat": 0}, ["profiles[0].max_rate_rps.chat: must be greater than 0 (got 0)"]),
        ({"chat": "fast"}, ["profiles[0].max_rate_rps.chat: must be a number (got 'fast', text)"]),
    ],
)
def test_measured_capacities_are_checked(rates, expected):
    assert told(small(profiles=[{"model": "m", "gpu": "g", "max_rate_rps": rates}])) == expected


def test_all_problems_come_at_once_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "qmodel: 1\n"
        "classes:\n"
        "  chat:\n"
        "    modle: llama\n"
        "    rate_rps: -3\n"
        "    prompt_tokens: {mean: 10, cv: 1}\n"
        "    output_token: {mean: 10, cv: 1}\n"
        "    slo: {ttft_p95_s: 1}\n"
        "fleet: {gpus: {h100-sxm: {max_cuont: 3}}}\n"
        "engine:\n"
        "  watermark: 2\n"
    )
    assert [str(problem).removeprefix(f"{path}:") for problem in check_scenario(path).problems] == [
        "4:5: classes.chat: unknown key 'modle'; did you mean 'model'?",
        "5:5: classes.chat.rate_rps: must be greater than 0 (got -3)",
        "7:5: classes.chat: unknown key 'output_token'; did you mean 'output_tokens'?",
        "9:27: fleet.gpus.h100-sxm: unknown key 'max_cuont'; did you mean 'max_count'?",
        "11:3: engine.watermark: must be less than 1 (got 2)",
    ]


def test_json_files_are_scenarios_too(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(small()))
    assert read_scenario(path).classes["chat"].rate == 4.0
    path.write_text(json.dumps(small(qmodel=2)))
    assert [str(problem) for problem in check_scenario(path).problems] == [f"{path}: qmodel: must be 1 (got 2)"]


def test_a_scenario_builds_positioned_problems_of_its_own():
    scenario = read_scenario(FULL_YAML)
    problem = scenario.problem("classes.chat.model", "no model 'x' in the catalog", "nearest: 'y'")
    assert str(problem) == "<text>:5:5: classes.chat.model: no model 'x' in the catalog; nearest: 'y'"


def test_a_dict_with_odd_content_is_refused_and_never_a_traceback():
    assert told({1: 2}) == ["keys must be text (got 1)"]
    circle: dict = {}
    circle["a"] = circle
    assert check_scenario(circle).problems[0].what == "is nested more than 100 levels deep"
    assert check_scenario(small(title=object())).problems[0].what.startswith("must be text (got <object")
