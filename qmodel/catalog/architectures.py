"""Model entries as records: what of an architecture decides memory and step time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from qmodel.catalog.dtypes import weight_format
from qmodel.types import LinearState, Mla, Model, Moe

__all__ = ["expand_variants", "linear_state", "model_record", "source_text", "windowed_layers"]

_WINDOW_PATTERN = re.compile(r"(\d+) (?:sliding|chunked) : (\d+) full")
_STATE_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
_CONV_BYTES = 2.0  # the convolution's window is kept in the activations' type, 16 bit


def model_record(entry: Mapping[str, Any], *, name: str) -> Model:
    """The record of one checked entry of the ``models`` section.

    Args:
        entry: the entry, as the schema has checked it.
        name: the name the record carries.
    """
    attention = entry["attention"]
    layers = int(entry["layers"])
    mla = Mla(**attention["mla"]) if attention.get("mla") else None
    form = weight_format(entry["native_dtype"])
    moe = _moe(entry)
    indexer = attention.get("indexer")
    return Model(
        name=name,
        hf_id=entry["hf_id"],
        family=entry.get("family", ""),
        layers=layers,
        hidden=entry["hidden_size"],
        heads=attention["heads"],
        kv_heads=attention["kv_heads"],
        head_dim=mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else attention["head_dim"],
        attention=attention["type"],
        kv_layers=attention.get("softmax_layers") or layers,
        windowed_layers=_entry_windowed_layers(attention, layers),
        window_tokens=attention.get("sliding_window") or 0,
        ffn_width=_ffn_width(entry, layers),
        ffn_matrices=2 if entry.get("mlp_type") == "relu2" else 3,
        vocab=entry["vocab_size"],
        tied_embeddings=entry["tie_embeddings"],
        native_dtype=entry["native_dtype"],
        weight_family=form.family,
        fp8_block=form.fp8_block,
        attention_16_bit="attention" in (entry.get("sixteen_bit") or ()),
        dense_16_bit="dense" in (entry.get("sixteen_bit") or ()),
        expert_bits=form.bits,
        max_context=entry["native_max_context_tokens"],
        total_params=entry["total_params_b"] * 1e9,
        extra_params=(entry.get("extra_params_b") or 0.0) * 1e9,
        mla=mla,
        moe=moe,
        linear=linear_state(attention["linear"], hidden=entry["hidden_size"]) if attention.get("linear") else None,
        indexer_bytes_per_token=indexer["head_dim"] + 4.0 if indexer else 0.0,  # FP8 key and one FP32 scale
        indexer_topk=indexer["topk"] if indexer else 0,
        output_gate=bool(attention.get("output_gate", False)),
        mtp_layers=entry.get("mtp_layers") or 0,
        checkpoint_gb=entry.get("checkpoint_size_gb"),
        reasoning=entry.get("reasoning", False) in (True, "hybrid"),
        reasoning_parser=entry.get("reasoning_parser") or {},
        confidence=entry["confidence"],
        source=source_text(entry["source"]),
        as_of=entry["as_of"],
    )


def source_text(source: str | list[str]) -> str:
    """One line for one source or several."""
    return source if isinstance(source, str) else "; ".join(source)


def windowed_layers(layers: int, *, windowed: int, full: int) -> int:
    """Layers with a window where ``windowed`` of them and then ``full`` without repeat from the first layer on.

    Example:
        >>> windowed_layers(34, windowed=5, full=1)
        29
    """
    rounds, rest = divmod(layers, windowed + full)
    return rounds * windowed + min(rest, windowed)


def linear_state(linear: Mapping[str, Any], *, hidden: int) -> LinearState:
    """State and weights of the linear layers: the recurrent matrix of each head, and the convolution's window.

    Args:
        linear: ``attention.linear`` of an entry.
        hidden: hidden size of the model.

    Example:
        >>> state = linear_state({"type": "lightning", "layers": 70, "heads": 64, "head_dim": 128}, hidden=6144)
        >>> state.bytes_per_layer / 2**20
        4.0

    Reference: Yang et al., Gated Delta Networks (2024); Dao and Gu, Transformers are SSMs (2024);
    Qin et al., Lightning Attention-2 (2024).
    """
    kind, state_bytes = linear["type"], _STATE_BYTES[linear.get("state_dtype") or "float32"]
    if kind == "gated_deltanet":
        key = linear["key_heads"] * linear["key_head_dim"]
        value = linear["value_heads"] * linear["value_head_dim"]
        recurrent = linear["value_heads"] * linear["key_head_dim"] * linear["value_head_dim"]
        convolved = 2 * key + value
        params = hidden * (2 * key + 2 * value + 2 * linear["value_heads"]) + value * hidden
    elif kind == "mamba2":
        inner = linear["heads"] * linear["head_dim"]
        recurrent = inner * linear["state_size"]
        convolved = inner + 2 * linear["groups"] * linear["state_size"]
        params = hidden * (inner + convolved + linear["heads"]) + inner * hidden
    else:
        inner = linear["heads"] * linear["head_dim"]
        recurrent = inner * linear["head_dim"]
        convolved = 0
        params = 5 * hidden * inner  # query, key, value, output gate, output
    kernel = linear.get("conv_kernel") or 1
    return LinearState(
        layers=linear["layers"],
        bytes_per_layer=recurrent * state_bytes + convolved * (kernel - 1) * _CONV_BYTES,
        params_per_layer=float(params + convolved * kernel),
    )


def expand_variants(models: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Entries of the checkpoints that share an architecture, by Hugging Face id.

    Each takes its parent's entry with what it states itself on top; the size on disk is known for the
    parent's weight type only.
    """
    variants: dict[str, dict[str, Any]] = {}
    for parent in models.values():
        for variant in parent.get("same_architecture") or ():
            if variant["hf_id"] in models:
                continue
            entry = {**parent, **variant}
            del entry["same_architecture"]
            if entry["native_dtype"] != parent["native_dtype"]:
                entry["checkpoint_size_gb"] = None
            variants[variant["hf_id"]] = entry
    return variants


def _entry_windowed_layers(attention: Mapping[str, Any], layers: int) -> int:
    if not attention.get("sliding_window"):
        return 0
    match = _WINDOW_PATTERN.match(attention.get("window_pattern") or "")
    if match is None:
        return layers
    return windowed_layers(layers, windowed=int(match[1]), full=int(match[2]))


def _moe(entry: Mapping[str, Any]) -> Moe | None:
    moe = entry.get("moe")
    if not moe:
        return None
    shared_width = moe.get("shared_expert_intermediate_size") or moe["expert_intermediate_size"]
    return Moe(
        experts=moe["experts"],
        experts_per_token=moe["experts_per_token"],
        expert_width=moe["expert_intermediate_size"],
        shared_width=(moe.get("shared_experts") or 0) * shared_width,
        layers=moe["moe_layers"],
        latent_width=moe.get("latent_size"),
        groups=moe.get("expert_groups") or 1,
        groups_per_token=moe.get("groups_per_token") or 1,
    )


def _ffn_width(entry: Mapping[str, Any], layers: int) -> float:
    """Mean intermediate size of the layers without experts, 0 where there are none or they have no FFN."""
    runs = entry.get("ffn_intermediate_sizes_rle")
    if runs:
        return float(sum(count * width for count, width in runs) / layers)
    moe = entry.get("moe")
    return float((moe.get("dense_intermediate_size") if moe else entry.get("intermediate_size")) or 0)
