"""Hugging Face configuration files against the catalog's own entries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qmodel.catalog import load_catalog, parameter_count, read_model_config
from qmodel.catalog.huggingface import KNOWN_ARCHITECTURES
from qmodel.errors import ScenarioError
from qmodel.types import Model

CATALOG = load_catalog()
GEOMETRY = (
    *("layers", "hidden", "heads", "kv_heads", "head_dim", "attention", "kv_layers", "windowed_layers"),
    *("window_tokens", "ffn_width", "ffn_matrices", "vocab", "tied_embeddings", "native_dtype", "weight_family"),
    *("fp8_block", "expert_bits", "mla", "moe", "linear", "indexer_bytes_per_token", "indexer_topk"),
    *("output_gate", "max_context"),
)

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN3_30B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 48,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_R1: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}
GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "num_hidden_layers": 36,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_local_experts": 128,
    "experts_per_token": 4,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
}
MIXTRAL: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "sliding_window": None,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
GEMMA_3_27B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "torch_dtype": "bfloat16",
    "text_config": {
        "num_hidden_layers": 62,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
    },
}
MAVERICK: dict[str, Any] = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "text_config": {
        "num_hidden_layers": 48,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_local_experts": 128,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_chunk_size": 8192,
        "vocab_size": 202048,
        "max_position_embeddings": 1048576,
        "torch_dtype": "bfloat16",
    },
}


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def call(config: object) -> Model:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config, indent=1))
        return read_model_config(path)

    return call


def _messages(read: Any, config: object) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read(config)
    return [str(problem).split("config.json", 1)[1] for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA_8B, "llama-3.1-8b"),
        (QWEN3_30B, "qwen3-30b-a3b"),
        (DEEPSEEK_R1, "deepseek-r1"),
        (GPT_OSS, "gpt-oss-120b"),
        (MIXTRAL, "mixtral-8x7b"),
        (GEMMA_3_27B, "gemma-3-27b"),
        (MAVERICK, "llama-4-maverick"),
    ],
)
def test_a_config_file_gives_the_geometry_of_the_catalog(read: Any, config: dict[str, Any], name: str) -> None:
    model, known = read(config), CATALOG.model(name)
    assert {key: getattr(model, key) for key in GEOMETRY} == {key: getattr(known, key) for key in GEOMETRY}
    assert model.total_params == parameter_count(model)
    assert model.total_params + known.extra_params == pytest.approx(known.total_params, rel=0.01)


def test_the_path_of_a_config_file_is_taken_where_a_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(LLAMA_8B))
    model = CATALOG.model("mine/config.json", base_dir=tmp_path)
    assert (model.name, model.layers) == ("mine/config.json", 32)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ScenarioError, match="nowhere"):
        CATALOG.model("nowhere/config.json")


def test_a_missing_field_is_named(read: Any) -> None:
    config = {key: value for key, value in LLAMA_8B.items() if key != "num_key_value_heads"}
    assert _messages(read, config) == [": num_key_value_heads: is missing"]


def test_all_missing_fields_are_named_at_once(read: Any) -> None:
    config = {key: value for key, value in DEEPSEEK_R1.items() if key not in ("kv_lora_rank", "n_routed_experts")}
    assert {message.split(": ")[1] for message in _messages(read, config)} == {"kv_lora_rank", "n_routed_experts"}


def test_a_field_of_the_text_part_is_named_in_full(read: Any) -> None:
    text = {key: value for key, value in GEMMA_3_27B["text_config"].items() if key != "num_attention_heads"}
    (message,) = _messages(read, GEMMA_3_27B | {"text_config": text})
    assert "text_config.num_attention_heads: is missing" in message


def test_an_unknown_architecture_lists_the_known_ones(read: Any) -> None:
    (message,) = _messages(read, LLAMA_8B | {"architectures": ["BloomForCausalLM"]})
    assert "architecture 'BloomForCausalLM' is not known" in message
    assert "LlamaForCausalLM" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("linear_num_value_heads", 32),
        ("mamba_num_heads", 64),
        ("hybrid_override_pattern", "MEM*"),
        ("attn_type_list", [0, 1]),
    ],
)
def test_a_hybrid_is_refused_by_its_field(read: Any, field: str, value: object) -> None:
    (message,) = _messages(read, LLAMA_8B | {"architectures": ["Qwen3NextForCausalLM"], field: value})
    assert f"{field}: describes linear-attention or state-space layers" in message


def test_a_layer_kind_that_is_not_attention_is_refused(read: Any) -> None:
    kinds = ["linear_attention", "full_attention"] * 16
    (message,) = _messages(read, LLAMA_8B | {"layer_types": kinds})
    assert "layer_types: layers of kind 'linear_attention' are not known" in message


@pytest.mark.parametrize("value", ["32", 0, -1, 3.5, True, [32]])
def test_a_count_that_is_none_is_refused(read: Any, value: object) -> None:
    (message, *_) = _messages(read, LLAMA_8B | {"num_hidden_layers": value})
    assert f"num_hidden_layers: must be a whole number of at least 1 (got {value!r})" in message


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block128"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4-g128"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
            },
            "int4-g32",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
            },
            "fp8",
        ),
    ],
)
def test_quantisation_is_read(read: Any, quantization: dict[str, Any], dtype: str) -> None:
    assert read(LLAMA_8B | {"quantization_config": quantization}).native_dtype == dtype


@pytest.mark.parametrize(
    ("left_out", "parts"),
    [
        ({}, ()),
        ({"ignore": ["lm_head"]}, ()),
        ({"modules_to_not_convert": ["re:.*self_attn.*", "lm_head"]}, ("attention",)),
        ({"ignore": [f"model.layers.{layer}.self_attn.q_proj" for layer in range(20)]}, ("attention",)),
        ({"ignore": [f"model.layers.{layer}.mlp.down_proj" for layer in (0, 31)]}, ()),  # first and last alone
        ({"exclude_modules": ["*.mlp.gate_proj"]}, ("dense",)),
    ],
)
def test_parts_left_at_16_bit_are_read(read: Any, left_out: dict[str, Any], parts: tuple[str, ...]) -> None:
    model = read(LLAMA_8B | {"quantization_config": {"quant_method": "fp8", **left_out}})
    assert (model.attention_16_bit, model.dense_16_bit) == ("attention" in parts, "dense" in parts)


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quant_method": "gptq", "bits": 3, "group_size": 128},
        {"quant_method": "compressed-tensors", "config_groups": {}},
        {"quant_method": "fp8", "weight_block_size": [64, 128]},
    ],
)
def test_unknown_quantisation_is_refused_by_its_field(read: Any, quantization: dict[str, Any]) -> None:
    (message,) = _messages(read, LLAMA_8B | {"quantization_config": quantization})
    assert "quantization_config: quantisation" in message


def test_a_window_in_every_layer_is_read_and_one_as_long_as_the_context_is_none(read: Any) -> None:
    mistral = LLAMA_8B | {"architectures": ["MistralForCausalLM"], "sliding_window": 4096}
    assert (read(mistral).windowed_layers, read(mistral).window_tokens) == (32, 4096)
    assert read(mistral | {"sliding_window": 131072}).windowed_layers == 0


def test_latent_attention_without_a_query_rank_is_understood(read: Any) -> None:
    model = read(DEEPSEEK_R1 | {"q_lora_rank": None})
    assert model.mla.q_lora_rank is None
    assert model.total_params > read(DEEPSEEK_R1).total_params


def test_a_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": ')
    with pytest.raises(ScenarioError):
        read_model_config(tmp_path / "config.json")


def test_the_known_architectures_cover_the_common_families() -> None:
    assert {"LlamaForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM", "GptOssForCausalLM"} <= set(
        KNOWN_ARCHITECTURES
    )


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (LLAMA_8B | {"num_key_value_heads": 64}, "num_key_value_heads: must divide the 32 attention heads (got 64)"),
        (LLAMA_8B | {"num_key_value_heads": 7}, "num_key_value_heads: must divide the 32 attention heads (got 7)"),
        (QWEN3_30B | {"num_experts_per_tok": 200}, "num_experts_per_tok: 200 experts per token of 128 in all"),
    ],
)
def test_counts_that_are_impossible_together_are_refused(tmp_path: Path, config: dict[str, Any], problem: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(ScenarioError) as caught:
        read_model_config(path)
    assert problem in str(caught.value)


def test_a_missing_width_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({key: value for key, value in LLAMA_8B.items() if key != "hidden_size"}))
    with pytest.raises(ScenarioError) as caught:
        read_model_config(path)
    assert [problem.key for problem in caught.value.problems] == ["hidden_size"]
