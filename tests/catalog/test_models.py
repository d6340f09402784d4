"""Model records against what is known of the architectures."""

from __future__ import annotations

import pytest

from qmodel.catalog import load_catalog, parameter_count
from qmodel.catalog.architectures import linear_state, windowed_layers
from qmodel.catalog.dtypes import weight_format

CATALOG = load_catalog()


def test_there_are_64_models() -> None:
    assert len(set(CATALOG.model_names())) == 64


@pytest.mark.parametrize("name", CATALOG.model_names())
def test_the_parameter_sum_is_within_two_per_cent_of_the_published_total(name: str) -> None:
    model = CATALOG.model(name)
    assert parameter_count(model) == pytest.approx(model.total_params, rel=0.02)


@pytest.mark.parametrize("name", CATALOG.model_names())
def test_records_are_consistent(name: str) -> None:
    model = CATALOG.model(name)
    assert 0 < model.kv_layers <= model.layers
    assert 0 <= model.windowed_layers <= model.kv_layers
    assert (model.windowed_layers > 0) == (model.window_tokens > 0) == (model.attention == "sliding")
    assert (model.linear is not None) == (model.attention == "hybrid")
    assert (model.mla is not None) == (model.attention in ("mla", "sparse-indexer"))
    assert (model.indexer_bytes_per_token > 0) == (model.attention == "sparse-indexer")
    assert model.heads % model.kv_heads == 0
    if model.moe is not None:
        assert model.moe.experts_per_token <= model.moe.experts
        assert model.moe.layers <= model.layers
    assert model.source
    assert model.as_of


def test_gpt_oss_windows_every_second_layer() -> None:
    model = CATALOG.model("gpt-oss-120b")
    assert (model.kv_layers, model.windowed_layers, model.window_tokens) == (36, 18, 128)
    assert (model.weight_family, model.expert_bits) == ("fp4", 4.25)


def test_gemma_3_has_five_windowed_layers_to_a_full_one() -> None:
    # 34 layers: the 6th, 12th, ... 30th see everything
    assert CATALOG.model("gemma-3-4b").windowed_layers == 29
    assert windowed_layers(62, windowed=5, full=1) == 52
    assert windowed_layers(1, windowed=1, full=1) == 1


def test_llama_4_maverick_has_dense_layers_of_16384_and_chunks_of_8192() -> None:
    model = CATALOG.model("llama-4-maverick")
    assert model.moe is not None
    assert (model.moe.layers, model.ffn_width, model.moe.shared_width) == (24, 16384.0, 8192)
    assert (model.windowed_layers, model.window_tokens) == (36, 8192)


def test_deepseek_r1_keeps_a_latent_of_576() -> None:
    model = CATALOG.model("deepseek-r1")
    assert model.mla is not None
    assert model.mla.kv_lora_rank + model.mla.qk_rope_head_dim == 576
    assert (model.head_dim, model.kv_heads, model.fp8_block, model.weight_family) == (192, 128, 128, "fp8")
    assert model.moe is not None
    assert (model.moe.layers, model.moe.groups, model.moe.groups_per_token) == (58, 8, 4)


def test_deepseek_v3_2_adds_132_indexer_bytes_per_token_and_layer() -> None:
    model = CATALOG.model("deepseek-v3.2")
    assert (model.indexer_bytes_per_token, model.indexer_topk) == (132.0, 2048)


def test_qwen3_next_keeps_kv_in_a_quarter_of_its_layers() -> None:
    model = CATALOG.model("qwen3-next-80b-a3b-thinking")
    assert (model.kv_layers, model.output_gate) == (12, True)
    assert model.linear is not None
    # 32 heads of 128 x 128 in FP32, and 3 columns of 8192 convolved channels at 16 bit
    assert model.linear.bytes_per_layer == 32 * 128 * 128 * 4 + 8192 * 3 * 2


def test_mamba_2_state_counts_heads_times_width_times_state() -> None:
    layer = {"type": "mamba2", "layers": 1, "heads": 64, "head_dim": 64, "groups": 8, "state_size": 128}
    assert linear_state(layer, hidden=2688).bytes_per_layer == 64 * 64 * 128 * 4
    assert linear_state({**layer, "conv_kernel": 4}, hidden=2688).bytes_per_layer == 64 * 64 * 128 * 4 + 6144 * 3 * 2


def test_nemotron_super_49b_takes_the_mean_width_and_49_attention_layers() -> None:
    model = CATALOG.model("llama-3.3-nemotron-super-49b")
    assert model.kv_layers == 49
    widths = 49 * 28672 + 17920 + 6 * 14336 + 10 * 7168 + 8 * 5632 + 6 * 2816
    assert model.ffn_width == pytest.approx(widths / 80)


def test_nemotron_3_has_two_matrices_and_a_latent() -> None:
    model = CATALOG.model("nemotron-3-super-120b-a12b")
    assert model.moe is not None
    assert (model.ffn_matrices, model.moe.latent_width, model.ffn_width) == (2, 1024, 0.0)


def test_other_checkpoints_of_an_architecture_are_found_by_their_own_id() -> None:
    base, quantised = CATALOG.model("qwen3-32b"), CATALOG.model("qwen/qwen3-32b-fp8")
    assert (quantised.layers, quantised.hidden) == (base.layers, base.hidden)
    assert (base.native_dtype, quantised.native_dtype) == ("bf16", "fp8-block128")
    assert quantised.checkpoint_gb is None
    assert CATALOG.model("Qwen/Qwen3-30B-A3B-Thinking-2507").max_context == 262144
    assert not CATALOG.model("Qwen/Qwen3-Next-80B-A3B-Instruct").reasoning


@pytest.mark.parametrize(
    ("dtype", "family", "bits"),
    [
        ("bf16", "bf16", 16),
        ("fp8", "fp8", 8),
        ("mxfp4", "fp4", 4.25),
        ("nvfp4", "fp4", 4.5),
        ("int4-g128", "fp4", 4.125),
    ],
)
def test_bits_per_weight_include_the_scales(dtype: str, family: str, bits: float) -> None:
    assert (weight_format(dtype).family, weight_format(dtype).bits) == (family, bits)


def test_an_unknown_weight_type_is_refused() -> None:
    with pytest.raises(ValueError, match="weight type 'int3' is not known"):
        weight_format("int3")
