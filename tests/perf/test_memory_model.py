"""Properties of the memory plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.catalog import load_catalog
from qmodel.perf import memory, tokens_in_room
from qmodel.perf.memory_rules import memory_rule
from qmodel.perf.precision import precision_of
from qmodel.perf.weights import shard_weights, weight_bytes_per_gpu
from qmodel.types import Engine, Gpu, Layout, Model
from tests.perf.architectures import dense_model

ENGINE = Engine(max_num_seqs=256)


def test_llama_8b_has_its_published_parameters() -> None:
    shard = shard_weights(load_catalog().model("llama-3.1-8b"), Layout())
    total = shard.attention + shard.dense + 2 * shard.head
    assert total == pytest.approx(8.03e9, rel=1e-3)


@pytest.mark.parametrize("name", load_catalog().model_names())
def test_weights_match_the_size_of_the_checkpoint(name: str) -> None:
    model, gpu = load_catalog().model(name), load_catalog().gpu("h100-sxm")
    size = weight_bytes_per_gpu(model, Layout(), precision_of(model, gpu)) / 1e9
    # Files also hold multi-token-prediction layers, which are not loaded; MXFP4 is padded by 6 %.
    assert model.checkpoint_gb is not None
    assert 0.965 < size / model.checkpoint_gb < (1.08 if model.native_dtype == "mxfp4" else 1.025)


@pytest.mark.parametrize("name", ["llama-3.3-70b", "qwen3-32b", "mixtral-8x22b", "gemma-3-27b", "gpt-oss-120b"])
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_more_tensor_parallelism_never_shrinks_the_kv_pool_of_grouped_query_models(name: str, tp: int) -> None:
    model = load_catalog().model(name)
    narrow = memory(model, "h200-sxm", Layout(tp=tp), ENGINE)
    wide = memory(model, "h200-sxm", Layout(tp=2 * tp), ENGINE)
    assert wide.kv_tokens >= narrow.kv_tokens


def test_fp8_kv_doubles_the_tokens(llama_70b: Model, h100: Gpu) -> None:
    wide = memory(llama_70b, h100, Layout(tp=4), replace(ENGINE, kv_dtype="bf16"))
    narrow = memory(llama_70b, h100, Layout(tp=4), replace(ENGINE, kv_dtype="fp8"))
    assert narrow.kv_tokens == pytest.approx(2 * wide.kv_tokens, abs=2 * ENGINE.block_tokens)


def test_half_the_memory_holds_fewer_tokens_or_nothing(llama_70b: Model, h200: Gpu) -> None:
    half = replace(h200, usable_gib=h200.usable_gib / 2)
    whole = memory(llama_70b, h200, Layout(tp=4), ENGINE)
    assert memory(llama_70b, half, Layout(tp=4), ENGINE).kv_tokens < 0.5 * whole.kv_tokens
    assert not memory(llama_70b, half, Layout(tp=2), ENGINE).fits


def test_attention_ranks_multiply_the_latent_pool(r1: Model, b200: Gpu) -> None:
    tensor = memory(r1, b200, Layout(tp=8), ENGINE)
    ranks = memory(r1, b200, Layout(dp=8, ep=8), ENGINE)
    assert 6.0 < ranks.kv_tokens / tensor.kv_tokens < 8.0  # eight pools, less the copies of attention and head
    assert ranks.max_context_tokens < tensor.max_context_tokens


def test_windowed_layers_hold_half_and_a_window(gpt_oss: Model, h100: Gpu) -> None:
    plan = memory(gpt_oss, h100, Layout(tp=4), ENGINE, max_tokens=16384)
    assert (plan.kv_slope, plan.kv_fixed_tokens) == (0.5, 64.0)
    assert plan.concurrency(16384) == int(plan.kv_tokens / (0.5 * 16384 + 64))
    assert memory(gpt_oss, h100, Layout(tp=4), ENGINE, context_tokens=100).kv_slope == 1.0


def test_recurrent_state_is_held_per_sequence(h200: Gpu) -> None:
    hybrid = load_catalog().model("qwen3-next-80b-a3b-thinking")
    plan = memory(hybrid, h200, Layout(tp=2), ENGINE)
    assert plan.kv_fixed_tokens > 100
    held = -(-1000 // plan.page_tokens) * plan.page_tokens + plan.kv_fixed_tokens
    assert plan.concurrency(1000) == int(plan.kv_tokens / held)
    other = memory(hybrid, h200, Layout(tp=2), replace(ENGINE, name="sglang", block_tokens=1))
    assert other.page_tokens == 1  # a pool of its own for states: pages stay as they are
    assert other.state_tokens < plan.state_tokens


def test_concurrency_counts_requests_by_what_they_hold(llama_8b: Model, h100: Gpu) -> None:
    plan = replace(memory(llama_8b, h100, Layout(), ENGINE), kv_tokens=37765.0)
    assert (plan.concurrency(800), plan.concurrency(8192)) == (47, 4)
    with pytest.raises(ValueError, match="tokens: must be greater than 0"):
        plan.concurrency(0)


def test_uneven_stages_are_sized_by_the_largest(h100: Gpu) -> None:
    model = dense_model(layers=3)
    shard = shard_weights(model, Layout())
    expected = 2 / 3 * 2 * (shard.attention + shard.dense) + 2 * shard.head
    assert weight_bytes_per_gpu(model, Layout(pp=2), precision_of(model, h100)) == pytest.approx(expected)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_each_engine_has_its_own_room_rule(engine: str, h100: Gpu) -> None:
    model = load_catalog().model("qwen3-32b")
    asked = Engine(name=engine, max_num_seqs=1024, gpu_memory_utilization=0.93 if engine == "sglang" else 0.9)
    plan = memory(model, h100, Layout(), asked)
    usable, weights = h100.usable_gib, plan.weights_gib
    rule = {
        "vllm": 0.9 * usable - weights - 0.15 - 0.5 - 38.5 * 1024 * model.vocab / 2**30,
        "sglang": 0.93 * usable - weights - 0.15,
        "tensorrt-llm": 0.9 * (usable - weights - 0.3 - 3.0),
    }[engine]
    assert plan.kv_room_gib == pytest.approx(rule)


def test_an_older_release_leaves_graphs_outside_the_utilisation(h100: Gpu) -> None:
    old = replace(ENGINE, version="0.11.2")
    new = replace(ENGINE, version="0.14.1")
    plans = [memory("qwen3-8b", h100, Layout(), engine) for engine in (old, new)]
    assert plans[0].kv_room_gib - plans[1].kv_room_gib == pytest.approx(0.5)
    assert [plan.rule for plan in plans] == ["vllm 0.11", "vllm 0.12 to 0.33"]
    full = memory("qwen3-8b", h100, Layout(), replace(old, gpu_memory_utilization=1.0))
    assert not full.fits
    assert "CUDA graphs" in full.reason and "raising it cannot help" in full.reason


def test_an_unknown_engine_or_release_takes_the_newest_rule_there_is() -> None:
    rules = [
        memory_rule(Engine(name=name, version=version)).label
        for name, version in (("vllm", "9.9"), ("vllm", "nightly"), ("other", "1.0"), ("sglang", "0.5.23"))
    ]
    assert rules == ["vllm 0.12 to 0.33", "vllm 0.12 to 0.33", "vllm 0.12 to 0.33", "sglang 0.4 to 0.5"]
    assert memory_rule(Engine(version="0.6.6")).versions == "0.8 to 0.10"
    assert memory_rule(Engine(version="0.8 to 0.11")).versions == "0.11"


def test_a_margin_below_three_per_cent_is_tight(gpt_oss: Model, h100: Gpu) -> None:
    engine = Engine(version="0.11.2", max_num_seqs=1024, gpu_memory_utilization=0.95)
    plan = memory(gpt_oss, h100, Layout(), engine, max_tokens=60000)
    assert plan.fits and plan.tight
    assert 0 <= plan.margin_gib < 0.03 * h100.usable_gib
    assert not memory(gpt_oss, h100, Layout(tp=2), engine, max_tokens=60000).tight


def test_every_change_that_is_named_makes_it_fit(h100: Gpu) -> None:
    engine = Engine(version="0.11.0", max_num_seqs=1024)
    ask = {"max_tokens": 32000.0}
    plan = memory("qwen3-32b", h100, Layout(), engine, **ask)
    assert plan.changes[1:] == (
        "gpu_memory_utilization 0.95",
        "max_num_seqs 256",
        "kv_dtype fp8",
        "precision fp8",
        "tp 2",
        "pp 2",
    )
    assert memory("qwen3-32b", h100, Layout(), engine, max_tokens=float(plan.max_context_tokens)).fits
    changed = [
        (Layout(), replace(engine, gpu_memory_utilization=0.95), None),
        (Layout(), replace(engine, max_num_seqs=256), None),
        (Layout(), replace(engine, kv_dtype="fp8"), None),
        (Layout(), engine, "fp8"),
        (Layout(tp=2), engine, None),
        (Layout(pp=2), engine, None),
    ]
    assert all(memory("qwen3-32b", h100, to, using, precision=kind, **ask).fits for to, using, kind in changed)
    less = replace(engine, gpu_memory_utilization=0.94)
    assert not memory("qwen3-32b", h100, Layout(), less, **ask).fits  # the smallest step that does


def test_two_changes_are_named_where_no_single_one_fits(h100: Gpu) -> None:
    small = replace(h100, usable_gib=3.4)
    engine = Engine(max_num_seqs=64)
    plan = memory("qwen2.5-32b", small, Layout(tp=8), engine)  # 40 heads: no wider tensor parallelism
    assert plan.changes == ("precision fp8 with pp 4",)
    assert memory("qwen2.5-32b", small, Layout(tp=8, pp=4), engine, precision="fp8").fits


def test_parts_that_a_checkpoint_keeps_at_16_bit_weigh_double(h100: Gpu) -> None:
    whole = load_catalog().model("llama-3.1-405b")
    kept = load_catalog().model("meta-llama/Llama-3.1-405B-Instruct-FP8")
    eight = memory(whole, h100, Layout(tp=8), ENGINE, precision="fp8")
    plan = memory(kept, h100, Layout(tp=8), ENGINE)
    attention_gib = shard_weights(whole, Layout(tp=8)).attention / 2**30
    assert plan.weights_gib - eight.weights_gib == pytest.approx(attention_gib)
    assert plan.weights_gib == pytest.approx(57.75, rel=0.03)  # as logged; first and last layers are not told apart
    assert memory(kept, h100, Layout(tp=16), ENGINE, precision="bf16").weights_gib == pytest.approx(
        memory(whole, h100, Layout(tp=16), ENGINE).weights_gib
    )


def test_redundant_experts_are_weights(r1: Model, h200: Gpu) -> None:
    plain = memory(r1, h200, Layout(dp=8, ep=8), ENGINE)
    copies = memory(r1, h200, Layout(dp=8, ep=8), replace(ENGINE, redundant_experts=32))
    expert_gib = shard_weights(r1, Layout(dp=8, ep=8)).expert / 2**30  # one byte each
    assert copies.weights_gib - plain.weights_gib == pytest.approx(32 * expert_gib)
    assert copies.kv_tokens < plain.kv_tokens


@given(room=st.floats(0, 1e12), per_token=st.floats(1e3, 1e6), block=st.sampled_from([1, 16, 64, 128]))
@settings(max_examples=50, deadline=None)
def test_a_pool_is_whole_pages_that_fit(room: float, per_token: float, block: int) -> None:
    tokens = tokens_in_room(room, per_token, block)
    assert tokens % block == 0
    assert tokens * per_token <= room * (1 + 1e-6)
    assert (tokens + block) * per_token > room * (1 - 1e-6)


def test_no_room_is_no_tokens() -> None:
    assert tokens_in_room(-1e9, 131072.0) == 0


def test_limits_must_be_positive(llama_8b: Model, h100: Gpu) -> None:
    with pytest.raises(ValueError, match=r"max_tokens: must be greater than 0 \(got -5\)"):
        memory(llama_8b, h100, Layout(), ENGINE, max_tokens=-5)
