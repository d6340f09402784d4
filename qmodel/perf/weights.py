"""Parameters of a model on one GPU of a layout, by tensor class."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qmodel.perf.precision import BYTES_16_BIT, Precision
from qmodel.types.hardware import Model
from qmodel.types.layouts import Layout

__all__ = ["WeightShard", "expert_padding", "layer_share", "shard_weights", "weight_bytes_per_gpu"]

PADDED_HIDDEN, PADDED_WIDTH = 256, 64  # elements


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightShard:
    """Parameters that one GPU of a pipeline stage would hold if the stage had all layers.

    Attributes:
        attention: projections of softmax and linear attention.
        dense: dense feed-forward layers, shared experts and latent projections.
        router: expert routers, whole on every GPU.
        expert: one routed expert's share of a GPU, over all mixture layers; times ``experts`` gives
            the GPU's expert weights whether experts are sliced or placed whole.
        head: output head; the input embedding is as large.
        extra: vision towers and the like.
    """

    attention: float
    dense: float
    router: float
    expert: float
    head: float
    extra: float


def shard_weights(model: Model, layout: Layout) -> WeightShard:
    """Count the parameters of one GPU.

    Attention, dense layers, shared experts and head are split over one attention rank (``tp * cp`` GPUs) and
    repeated on every rank; routed experts are split over the whole stage. KV projections are copied once
    tensor parallelism exceeds the KV heads, and the down-projections of multi-head latent
    attention are on every GPU.

    Reference: docs/theory/step-time.md, "Weights".
    """
    rank_gpus = layout.tp * layout.cp
    moe = model.moe
    expert_layers = moe.layers if moe else 0
    dense_layers = _dense_layers(model)
    dense = model.ffn_matrices * model.hidden * model.ffn_width * dense_layers
    router = expert = 0.0
    if moe:
        expert_hidden = moe.latent_width or model.hidden
        latent = 2 * model.hidden * moe.latent_width if moe.latent_width else 0.0
        dense += (model.ffn_matrices * model.hidden * moe.shared_width + latent) * expert_layers
        router = float(model.hidden * moe.experts * expert_layers)
        expert = model.ffn_matrices * expert_hidden * moe.expert_width * expert_layers / layout.stage_gpus
    return WeightShard(
        attention=_attention_params(model, layout),
        dense=dense / rank_gpus,
        router=router,
        expert=expert,
        head=model.hidden * model.vocab / rank_gpus,
        extra=model.extra_params / rank_gpus,
    )


def weight_bytes_per_gpu(
    model: Model, layout: Layout, precision: Precision, redundant_experts: int = 0, padded_width: int = PADDED_WIDTH
) -> float:
    """Bytes of weights on the fullest GPU of a replica.

    With several pipeline stages the fullest one has ``ceil(layers / pp)`` layers and either the embedding or
    the head.

    Args:
        model: architecture.
        layout: how the replica is spread.
        precision: bytes per weight of each tensor class.
        redundant_experts: copies of routed experts that each mixture layer holds beside the experts, over the stage.
        padded_width: multiple that the width of an MXFP4 expert's slice is filled up to, elements.
    """
    shard = shard_weights(model, layout)
    padding = expert_padding(model, layout, padded_width) if precision.padded_experts else 1.0
    experts = model.moe.experts if model.moe else 0
    layers = (
        shard.attention * precision.attention_bytes
        + shard.dense * precision.dense_bytes
        + shard.router * BYTES_16_BIT
        + shard.expert * (experts + redundant_experts) * precision.expert_bytes * padding
    )
    tables = 1 if model.tied_embeddings or layout.pp > 1 else 2
    return layers * layer_share(model, layout.pp) + (tables * shard.head + shard.extra) * BYTES_16_BIT


def layer_share(model: Model, pp: int) -> float:
    """Share of the layers in the largest of ``pp`` pipeline stages; uneven splits are allowed.

    Example:
        >>> from types import SimpleNamespace
        >>> round(layer_share(SimpleNamespace(layers=61), 2), 4)
        0.5082
    """
    return -(-model.layers // pp) / model.layers


def expert_padding(model: Model, layout: Layout, padded_width: int = PADDED_WIDTH) -> float:
    """Stored over plain bytes of MXFP4 experts: the hidden size and each slice's width are filled up.

    Start-up logs: 64.38 GiB of the 120B model on one H100 (hidden size 2880 stored as 3072), 17.22 on each of four
    A100 (and 720 as 768). Releases before 0.11 filled slices to 128: 65.97 GiB on one H100 with 0.10.1.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> from qmodel.types import Layout
        >>> model = load_catalog().model("gpt-oss-120b")
        >>> [round(expert_padding(model, Layout(tp=tp)), 3) for tp in (1, 4)]
        [1.067, 1.138]
    """
    if model.moe is None:
        return 1.0
    width = model.moe.expert_width if layout.ep > 1 else model.moe.expert_width / layout.stage_gpus
    return _filled(model.hidden, PADDED_HIDDEN) * _filled(width, padded_width)


def _filled(size: float, multiple: int) -> float:
    return math.ceil(size / multiple) * multiple / size


def _dense_layers(model: Model) -> int:
    if model.ffn_width <= 0:
        return 0
    return model.layers - (model.moe.layers if model.moe else 0)


def _attention_params(model: Model, layout: Layout) -> float:
    """Attention parameters on one GPU, over all layers."""
    rank_gpus = layout.tp * layout.cp
    linear = model.linear.layers * model.linear.params_per_layer if model.linear else 0.0
    return model.kv_layers * _softmax_layer_params(model, layout.tp, rank_gpus) + linear / rank_gpus


def _softmax_layer_params(model: Model, tp: int, rank_gpus: int) -> float:
    hidden, heads = model.hidden, model.heads
    if model.mla:
        mla = model.mla
        query_width = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        query_in = mla.q_lora_rank or 0
        replicated = hidden * (query_in + mla.kv_lora_rank + mla.qk_rope_head_dim)
        split = (
            (query_in or hidden) * query_width
            + mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
            + heads * mla.v_head_dim * hidden
        )
        return replicated + split / rank_gpus
    query_matrices = 3 if model.output_gate else 2  # query, output, and the gate of gated attention
    query = query_matrices * hidden * heads * model.head_dim
    kv = 2 * hidden * model.kv_heads * model.head_dim * max(1.0, tp / model.kv_heads)
    return (query + kv) / rank_gpus
