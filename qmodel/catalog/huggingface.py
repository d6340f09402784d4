"""A Hugging Face ``config.json`` as a model record, or refused with the field that stands in the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from qmodel.catalog.architectures import windowed_layers
from qmodel.catalog.checkpoint_dtypes import checkpoint_dtype, sixteen_bit_parts
from qmodel.catalog.config_fields import ConfigFields
from qmodel.catalog.dtypes import weight_format
from qmodel.catalog.parameters import parameter_count
from qmodel.errors import ScenarioError
from qmodel.files import Document, read_json
from qmodel.types import Mla, Model, Moe
from qmodel.types.hardware import AttentionKind

__all__ = ["KNOWN_ARCHITECTURES", "read_model_config"]

# Fields that mean a recurrent state next to, or instead of, a KV cache.
_LINEAR_FIELDS = (
    "linear_num_value_heads",
    "linear_num_key_heads",
    "full_attention_interval",
    "mamba_num_heads",
    "mamba_d_state",
    "ssm_state_size",
    "hybrid_override_pattern",
    "attn_type_list",
    "attn_layer_period",
    "lru_width",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """How one architecture spells what matters.

    Attributes:
        tied: ``tie_word_embeddings`` where the file leaves it out, the default of the configuration class.
        head_dim: ``stated`` where the class has a default of its own; ``derived`` where it is hidden / heads.
        window: pattern of windowed layers where ``layer_types`` is absent: ``none``, ``all``, ``from``
            (``use_sliding_window`` and ``max_window_layers``), ``alternate``, ``pattern``, ``chunked``.
        moe: reads the experts, None for a dense model.
        mla: latent attention.
    """

    tied: bool = False
    head_dim: str = "derived"
    window: str = "none"
    moe: Callable[[ConfigFields, int], tuple[Moe, float]] | None = None
    mla: bool = False


def read_model_config(path: str | Path, *, name: str = "") -> Model:
    """Read the configuration file of a checkpoint.

    Dense models (multi-head, grouped-query, multi-query), latent attention, mixtures of experts and sliding
    windows are understood. Parameters are summed from the fields; nothing that decides memory is guessed.

    Args:
        path: the file.
        name: name of the record, the path where empty.

    Raises:
        ScenarioError: the file cannot be read, a field is missing, or the architecture, its layers or its
            quantisation are not known; each problem names the field.
    """
    document = read_json(path)
    fields = ConfigFields(document, text=_text_part(document))
    family = _family(fields)
    if family is None:
        raise ScenarioError(fields.problems)
    model = _model(fields, family, name=name or str(path), path=str(path))
    if fields.problems:
        raise ScenarioError(fields.problems)
    return replace(model, total_params=parameter_count(model))


def _text_part(document: Document) -> str:
    """Key of the language model inside a multimodal configuration, empty where the file is one."""
    return "text_config" if isinstance(document.data.get("text_config"), Mapping) else ""


def _family(fields: ConfigFields) -> _Family | None:
    for key in _LINEAR_FIELDS:
        if fields.get(key) is not None:
            fields.refuse(
                key,
                "describes linear-attention or state-space layers, which a config file cannot bring in",
                "use a model of the catalog, or add an entry with attention.linear to a catalog file",
            )
            return None
    names = fields.root.get("architectures")
    known = ", ".join(sorted(_FAMILIES))
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        fields.refuse_root("architectures", "is missing or is not a list of names", f"known: {known}")
        return None
    if names[0] not in _FAMILIES:
        fields.refuse_root("architectures", f"architecture {names[0]!r} is not known", f"known: {known}")
        return None
    return _FAMILIES[names[0]]


def _model(fields: ConfigFields, family: _Family, *, name: str, path: str) -> Model:
    layers = fields.count("num_hidden_layers")
    hidden = fields.count("hidden_size")
    heads = fields.count("num_attention_heads")
    mla = _mla(fields) if family.mla else None
    kv_heads = heads if mla else fields.count("num_key_value_heads")
    windowed, window = _window(fields, family, layers)
    moe, ffn_width = family.moe(fields, layers) if family.moe else (None, float(fields.count("intermediate_size")))
    _check_together(fields, heads, kv_heads, moe)
    dtype = checkpoint_dtype(fields)
    form = weight_format(dtype)
    sixteen_bit = sixteen_bit_parts(fields, layers, shared_experts=moe is not None and moe.shared_width > 0)
    indexer = fields.get("index_head_dim")
    tied = fields.get("tie_word_embeddings")
    return Model(
        name=name,
        hf_id=str(fields.root.get("_name_or_path") or name),
        family=str(fields.root.get("model_type") or ""),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else _head_dim(fields, family, hidden, heads),
        attention=_kind(heads, kv_heads, mla=mla is not None, windowed=windowed > 0, indexer=indexer is not None),
        kv_layers=layers,
        windowed_layers=windowed,
        window_tokens=window,
        ffn_width=ffn_width,
        vocab=fields.count("vocab_size"),
        tied_embeddings=bool(family.tied if tied is None else tied),
        native_dtype=dtype,
        weight_family=form.family,
        fp8_block=form.fp8_block,
        attention_16_bit="attention" in sixteen_bit,
        dense_16_bit="dense" in sixteen_bit,
        expert_bits=form.bits,
        max_context=fields.count("max_position_embeddings"),
        total_params=0.0,
        mla=mla,
        moe=moe,
        indexer_bytes_per_token=float(indexer) + 4.0 if indexer is not None else 0.0,
        indexer_topk=fields.count("index_topk") if indexer is not None else 0,
        mtp_layers=fields.count("num_nextn_predict_layers", default=0),
        confidence="high",
        source=f"configuration file {path}",
        as_of="",
    )


def _check_together(fields: ConfigFields, heads: int, kv_heads: int, moe: Moe | None) -> None:
    """Counts that are right alone and impossible together."""
    if fields.problems:
        return
    if heads % kv_heads:
        fields.refuse("num_key_value_heads", f"must divide the {heads} attention heads (got {kv_heads})")
    if moe is not None and moe.experts_per_token > moe.experts:
        what = f"{moe.experts_per_token} experts per token of {moe.experts} in all"
        fields.refuse("num_experts_per_tok", what, "a token cannot visit more experts than there are")


def _kind(heads: int, kv_heads: int, *, mla: bool, windowed: bool, indexer: bool) -> AttentionKind:
    if mla:
        return "sparse-indexer" if indexer else "mla"
    if windowed:
        return "sliding"
    if kv_heads == heads:
        return "mha"
    return "mqa" if kv_heads == 1 else "gqa"


def _head_dim(fields: ConfigFields, family: _Family, hidden: int, heads: int) -> int:
    if fields.get("head_dim") is not None or family.head_dim == "stated":
        return fields.count("head_dim")
    if hidden % heads and not fields.problems:  # else one of the two stands in for a count that is missing
        fields.refuse("head_dim", f"is missing, and hidden_size {hidden} is not a multiple of {heads} heads")
    return hidden // heads


def _mla(fields: ConfigFields) -> Mla:
    return Mla(
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        v_head_dim=fields.count("v_head_dim"),
        q_lora_rank=fields.count("q_lora_rank", default=0) or None,
    )


def _window(fields: ConfigFields, family: _Family, layers: int) -> tuple[int, int]:
    """Windowed layers and their window in tokens; a window as long as the context is none."""
    chunked = family.window == "chunked"
    size_key = "attention_chunk_size" if chunked else "sliding_window"
    kinds = fields.get("layer_types")
    if kinds is not None:
        windowed = _counted_windows(fields, kinds, layers)
    elif family.window == "none" or (family.window in ("all", "from") and fields.get(size_key) is None):
        return 0, 0
    elif family.window == "all":
        windowed = layers
    elif family.window == "from":
        used = fields.get("use_sliding_window")
        windowed = max(layers - fields.count("max_window_layers"), 0) if used else 0
    elif family.window == "alternate":
        windowed = windowed_layers(layers, windowed=1, full=1)
    else:
        every = fields.count("no_rope_layer_interval", default=4) if chunked else fields.count("sliding_window_pattern")
        windowed = windowed_layers(layers, windowed=max(every - 1, 0), full=1)
    if not windowed:
        return 0, 0
    size = fields.count(size_key)
    return (0, 0) if size >= fields.count("max_position_embeddings") else (windowed, size)


def _counted_windows(fields: ConfigFields, kinds: object, layers: int) -> int:
    if not isinstance(kinds, list) or len(kinds) != layers:
        fields.refuse("layer_types", f"must list the kind of each of {layers} layers")
        return 0
    windows = {"sliding_attention", "chunked_attention"}
    unknown = sorted({str(kind) for kind in kinds} - windows - {"full_attention"})
    if unknown:
        fields.refuse("layer_types", f"layers of kind {unknown[0]!r} are not known", "known: full, sliding, chunked")
    return sum(kind in windows for kind in kinds)


def _all_experts(count: str, width: str) -> Callable[[ConfigFields, int], tuple[Moe, float]]:
    """Experts in every layer and nothing shared."""

    def read(fields: ConfigFields, layers: int) -> tuple[Moe, float]:
        per_token = "num_experts_per_tok" if fields.get("num_experts_per_tok") is not None else "experts_per_token"
        moe = Moe(
            experts=fields.count(count),
            experts_per_token=fields.count(per_token),
            expert_width=fields.count(width),
            shared_width=0,
            layers=layers,
        )
        return moe, 0.0

    return read


def _stepped_experts(fields: ConfigFields, layers: int) -> tuple[Moe, float]:
    """Qwen3: experts on every ``decoder_sparse_step``-th layer but those of ``mlp_only_layers``."""
    step = fields.count("decoder_sparse_step", default=1)
    only = fields.get("mlp_only_layers") or []
    dense = set(only) if isinstance(only, list) else set()
    sparse = sum(layer not in dense and (layer + 1) % max(step, 1) == 0 for layer in range(layers))
    moe = Moe(
        experts=fields.count("num_experts"),
        experts_per_token=fields.count("num_experts_per_tok"),
        expert_width=fields.count("moe_intermediate_size"),
        shared_width=0,
        layers=sparse,
    )
    return moe, float(fields.count("intermediate_size")) if sparse < layers else 0.0


def _shared_experts(fields: ConfigFields, layers: int) -> tuple[Moe, float]:
    """DeepSeek and GLM: dense layers first, then routed and shared experts of one width."""
    dense = fields.count("first_k_dense_replace", default=0)
    frequency = fields.count("moe_layer_freq", default=1)
    width = fields.count("moe_intermediate_size")
    moe = Moe(
        experts=fields.count("n_routed_experts"),
        experts_per_token=fields.count("num_experts_per_tok"),
        expert_width=width,
        shared_width=fields.count("n_shared_experts", default=0) * width,
        layers=sum(layer >= dense and layer % max(frequency, 1) == 0 for layer in range(layers)),
        groups=fields.count("n_group", default=1),
        groups_per_token=fields.count("topk_group", default=1),
    )
    return moe, float(fields.count("intermediate_size")) if moe.layers < layers else 0.0


def _interleaved_experts(fields: ConfigFields, layers: int) -> tuple[Moe, float]:
    """Llama 4: experts on every ``interleave_moe_layer_step``-th layer, with one shared expert of the same width."""
    step = fields.count("interleave_moe_layer_step")
    width = fields.count("intermediate_size")
    moe = Moe(
        experts=fields.count("num_local_experts"),
        experts_per_token=fields.count("num_experts_per_tok"),
        expert_width=width,
        shared_width=width,
        layers=layers // max(step, 1),
    )
    return moe, float(fields.count("intermediate_size_mlp")) if moe.layers < layers else 0.0


_FAMILIES: Mapping[str, _Family] = {
    "LlamaForCausalLM": _Family(),
    "MistralForCausalLM": _Family(window="all"),
    "Qwen2ForCausalLM": _Family(window="from"),
    "Qwen3ForCausalLM": _Family(window="from", head_dim="stated"),
    "Phi3ForCausalLM": _Family(window="all"),
    "Olmo2ForCausalLM": _Family(),
    "CohereForCausalLM": _Family(tied=True),
    "GemmaForCausalLM": _Family(tied=True, head_dim="stated"),
    "Gemma2ForCausalLM": _Family(tied=True, head_dim="stated", window="alternate"),
    "Gemma3ForCausalLM": _Family(tied=True, head_dim="stated", window="pattern"),
    "Gemma3ForConditionalGeneration": _Family(tied=True, head_dim="stated", window="pattern"),
    "MixtralForCausalLM": _Family(window="all", moe=_all_experts("num_local_experts", "intermediate_size")),
    "MiniMaxM2ForCausalLM": _Family(head_dim="stated", moe=_all_experts("num_local_experts", "intermediate_size")),
    "GptOssForCausalLM": _Family(
        head_dim="stated", window="alternate", moe=_all_experts("num_local_experts", "intermediate_size")
    ),
    "Qwen3MoeForCausalLM": _Family(window="from", head_dim="stated", moe=_stepped_experts),
    "Glm4MoeForCausalLM": _Family(head_dim="stated", moe=_shared_experts),
    "DeepseekV2ForCausalLM": _Family(mla=True, moe=_shared_experts),
    "DeepseekV3ForCausalLM": _Family(mla=True, moe=_shared_experts),
    "DeepseekV32ForCausalLM": _Family(mla=True, moe=_shared_experts),
    "Llama4ForConditionalGeneration": _Family(head_dim="stated", window="chunked", moe=_interleaved_experts),
}
KNOWN_ARCHITECTURES: tuple[str, ...] = tuple(sorted(_FAMILIES))
