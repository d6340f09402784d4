"""Start-up logs of real engines: tokens in a logged room, rooms from defaults, refusals."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from qmodel.catalog import load_catalog
from qmodel.perf import MemoryPlan, kv_bytes_per_token, memory, tokens_in_room
from qmodel.types import Engine, Layout, Model
from qmodel.units import GIB
from tests.perf.architectures import dense_model, from_facts

CASES = Path(__file__).parents[1] / "data" / "perf" / "kv_memory.csv"
ROWS = {row["id"]: row for row in csv.DictReader(CASES.open(encoding="utf-8"))}
EXACT = [name for name, row in ROWS.items() if row["kind"] in ("bytes", "bytes+room")]
ROOM = [name for name, row in ROWS.items() if row["kind"] == "room"]
REFUSED = [name for name, row in ROWS.items() if row["kind"] == "refusal"]

DRAFT_LAYERS = {"KVD02": 1}  # the draft model's layer shares the pool
CONTEXT_PARALLEL = {"KVD27": 8}  # engine flag: tensor parallel 8, decode context parallel 8
WHOLE_KV_PER_RANK = ("KVD24", "KVD25")  # attention data parallel
QWEN2_7B = dense_model(
    layers=28, hidden=3584, heads=28, kv_heads=4, ffn_width=18944, vocab=152064
)  # Qwen/Qwen2-7B-Instruct config.json
A100_LOGS = ("KVD12", "KVD13", "KVD14", "KVD15", "KVD34")  # engine defaults there: 256 sequences
QWEN3_600M = dense_model(
    layers=28, hidden=1024, heads=16, kv_heads=8, ffn_width=3072, vocab=151936, tied=True
)  # Qwen/Qwen3-0.6B config.json
CATALOG_NAMES = {
    "Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Llama-3.3-70B-Instruct-FP8-dynamic": "llama-3.3-70b",
    "Qwen3-32B": "qwen3-32b",
    "gpt-oss-120b": "gpt-oss-120b",
    "gpt-oss-20b": "gpt-oss-20b",
}


def _model(row: dict[str, str]) -> Model:
    if row["model"] == "Qwen3-0.6B":
        return QWEN3_600M
    return load_catalog().model(CATALOG_NAMES[row["model"]])


def _layout(name: str) -> Layout:
    tp, cp = int(ROWS[name]["tp"]), CONTEXT_PARALLEL.get(name, 1)
    return Layout(tp=tp // cp, cp=cp)


def _plan(name: str) -> MemoryPlan:
    row = ROWS[name]
    engine = Engine(
        version=row["engine_version"].split()[0],
        max_num_seqs=1024,
        gpu_memory_utilization=float(row["gpu_memory_utilization"]),
    )
    precision = "fp8" if row["quant"] == "fp8" else "auto"
    return memory(
        _model(row), "h100-sxm", _layout(name), engine, precision=precision, max_tokens=float(row["max_model_len"])
    )


def test_every_kind_of_row_is_present() -> None:
    assert (len(EXACT), len(ROOM), len(REFUSED)) == (15, 7, 3)


@pytest.mark.parametrize("name", EXACT)
def test_tokens_in_the_logged_room_match_the_log(name: str) -> None:
    row = ROWS[name]
    model = from_facts(row["hf_arch_facts"])
    per_token = kv_bytes_per_token(model, _layout(name), row["kv_dtype"], DRAFT_LAYERS.get(name, 0))
    tokens = tokens_in_room(float(row["kv_cache_gib_per_gpu"]) * GIB, per_token)
    assert tokens == pytest.approx(float(row["kv_cache_tokens"]), rel=3e-3)


@pytest.mark.parametrize("name", ROOM)
def test_room_from_defaults_matches_the_log(name: str) -> None:
    logged = float(ROWS[name]["kv_cache_gib_per_gpu"])
    assert abs(_plan(name).kv_room_gib - logged) <= 0.3


@pytest.mark.parametrize("name", A100_LOGS)
def test_room_of_an_older_gpu_matches_the_log(name: str) -> None:
    row = ROWS[name]
    model = QWEN2_7B if row["model"].startswith("Qwen2") else load_catalog().model("gpt-oss-120b")
    engine = Engine(version="0.10.1.1", max_num_seqs=256, gpu_memory_utilization=float(row["gpu_memory_utilization"]))
    plan = memory(model, "a100-80-sxm", _layout(name), engine)
    assert plan.weights_gib == pytest.approx(float(row["model_loading_gib_per_gpu"]), rel=0.03)
    assert abs(plan.kv_room_gib - float(row["kv_cache_gib_per_gpu"])) <= 0.3


@pytest.mark.parametrize(
    ("name", "model", "tp", "draft_layers", "tolerance"),
    [
        ("KVD37", "qwen3.5-27b", 2, 1, 0.10),  # the draft head's own states are not stated: 8.8 % high
        ("KVD38", "qwen3.5-35b-a3b", 1, 0, 1e-4),
        ("KVD39", "qwen3.5-35b-a3b", 1, 0, 1e-4),
    ],
)
def test_hybrids_hold_as_many_requests_as_the_log_says(
    name: str, model: str, tp: int, draft_layers: int, tolerance: float
) -> None:
    row = ROWS[name]
    logged = float(row["kv_cache_gib_per_gpu"])
    engine = Engine(version="0.24.0", kv_dtype="fp8")
    longest = float(row["max_model_len"])
    plan = memory(model, "h200-sxm", Layout(tp=tp), engine, extra_kv_layers=draft_layers)
    pool = tokens_in_room(logged * GIB, plan.kv_bytes_per_token, plan.page_tokens)
    # These engines print concurrency times the longest request, not a quotient of bytes.
    printed = pool / plan.held_tokens(longest) * longest
    assert printed == pytest.approx(float(row["kv_cache_tokens"]), rel=tolerance)


def test_windowed_layers_hold_a_chunk_in_the_start_up_line() -> None:
    row = ROWS["KVD34"]
    plan = memory("gpt-oss-120b", "a100-80-sxm", Layout(tp=4), Engine(version="0.10.1.1", max_num_seqs=256))
    pool = replace(plan, kv_tokens=float(row["kv_cache_tokens"]))
    assert pool.concurrency(16384, chunk_tokens=2048) == pytest.approx(float(row["max_concurrency"]), abs=1.0)
    assert pool.concurrency(16384) > 310  # decoding sequences keep the window alone


@pytest.mark.parametrize("name", ROOM)
def test_weights_match_the_log(name: str) -> None:
    logged = float(ROWS[name]["model_loading_gib_per_gpu"])
    allowed = 0.01
    assert _plan(name).weights_gib == pytest.approx(logged, rel=allowed)


@pytest.mark.parametrize("name", REFUSED)
def test_engines_that_did_not_start_are_refused_for_memory(name: str) -> None:
    plan = _plan(name)
    assert abs(plan.kv_room_gib - float(ROWS[name]["kv_cache_gib_per_gpu"])) <= 0.3
    assert not plan.fits
    assert plan.reason.startswith("memory: ")
    assert "tp 2" in plan.change


def test_a_request_longer_than_the_pool_names_the_longest_that_fits() -> None:
    plan = _plan("KVD08")
    assert plan.max_context_tokens == pytest.approx(18_227, rel=0.02)  # as the log's own arithmetic
    assert f"{plan.max_context_tokens:,} tokens" in plan.reason
    assert plan.change.startswith(f"requests of at most {plan.max_context_tokens:,} tokens or ")


def test_latent_cache_is_not_divided_by_tensor_parallelism() -> None:
    kimi = from_facts(ROWS["KVD26"]["hf_arch_facts"])
    assert [kv_bytes_per_token(kimi, Layout(tp=tp)) for tp in (1, 2, 8)] == [70272.0] * 3
    assert kv_bytes_per_token(kimi, Layout(tp=1, cp=8)) == 70272.0 / 8


def test_attention_ranks_hold_whole_kv_heads() -> None:
    for name in WHOLE_KV_PER_RANK:
        per_token = kv_bytes_per_token(from_facts(ROWS[name]["hf_arch_facts"]), Layout(tp=1, dp=8, ep=8))
        assert per_token * 262144 / GIB == pytest.approx(62.0, abs=0.005)


def test_unknown_kv_type_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="kv_dtype: unknown 'int3'"):
        kv_bytes_per_token(QWEN3_600M, Layout(), "int3")
