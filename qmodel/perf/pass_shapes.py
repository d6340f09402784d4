"""What a pass through a model costs at data-sheet speed: numbers of one layout, or arrays of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from qmodel.perf.kv_cache import kv_bytes_per_token, window_share
from qmodel.perf.precision import BYTES_16_BIT, Precision, kv_element_bytes, precision_of
from qmodel.perf.weights import shard_weights
from qmodel.topology.spread import parts_reached
from qmodel.types.hardware import Gpu, Model
from qmodel.types.laws import FloatArray
from qmodel.types.layouts import Collective, Engine, Layout, LinkCosts

__all__ = ["PassShape", "TokenCost", "pass_shape", "stack_shapes"]

ACTIVATION_BYTES = 2.0
DISPATCH_BYTES, COMBINE_BYTES = 1.0, 2.0  # FP8 towards the experts, bf16 back
SOFTMAX_SUM_BYTES = 4.0  # of each head, to weigh partial outputs
UNLIMITED = float("inf")

Number = float | FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCost:
    """Seconds of the calls of one collective in a pass: the cheaper of a line for small and one for large messages."""

    small_s: Number = 0.0
    small_token_s: Number = 0.0
    large_s: Number = 0.0
    large_token_s: Number = 0.0

    @classmethod
    def of(cls, link: Collective, calls: float, token_bytes: float) -> TokenCost:
        """``calls`` calls with ``token_bytes`` of payload for each token."""
        large_latency_s = link.latency_s if link.large_latency_s is None else link.large_latency_s
        return cls(
            small_s=calls * link.latency_s,
            small_token_s=calls * token_bytes / (link.small_bytes_per_s or link.bytes_per_s),
            large_s=calls * large_latency_s,
            large_token_s=calls * token_bytes / link.bytes_per_s,
        )

    def seconds(self, tokens: FloatArray) -> FloatArray:
        """Time for ``tokens`` tokens, s."""
        small = self.small_s + self.small_token_s * tokens
        return np.asarray(np.minimum(small, self.large_s + self.large_token_s * tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassShape:
    """Seconds of each part of a pass at full bandwidth and full peak, before any fitted constant.

    All numbers are of one GPU of a stage that holds all layers. Every field is a number, or, for n layouts at once, an
    array of shape (n, 1) that broadcasts against passes of shape (k,) or (n, k).

    Attributes:
        pp: pipeline stages.
        dp: attention ranks.
        layers: layers.
        expert_layers: mixture layers.
        weights_s: reading the dense weights once.
        gemm_token_s: dense arithmetic of one token of the pass.
        gemm_sample_s: output head of one sampled token.
        experts: experts of a layer, 1 without a mixture.
        experts_per_token: experts that see a token, 0 without a mixture.
        expert_weights_s: reading one expert's share, over all mixture layers.
        expert_width: columns of one expert's share on a GPU.
        expert_row_s: arithmetic of one token in one expert's share, over all mixture layers.
        kv_token_s: reading one attended token of KV cache.
        indexer_token_s: reading one token of indexer keys.
        kv_flops_s: decode attention over one token.
        state_s: reading and writing the recurrent state of a sequence.
        window_share: share of KV layers with a window.
        window_tokens: the window, 0 without.
        attended_tokens: most tokens that sparse attention reads, infinite without.
        prompt_attention_s: attention of one prompt token over one token before it.
        island_calls: collectives of a pass inside one scale-up island.
        island_token_s: bytes of one token over all of these, at full scale-up bandwidth.
        network: collectives of a stage over a network.
        rank_network: all-reduces inside an attention rank over a network.
        exchange_s: latency of expert all-to-alls in a pass that decodes.
        exchange_decode_token_s: all-to-all bytes of one decoding token.
        exchange_prefill_token_s: all-to-all bytes of one prompt token.
        overlapped: 1 where the all-to-all hides behind the rest of the pass, else 0.
        send: hand-overs between stages.
        context_calls: attention layers whose contexts are split over ranks of one island.
        context_decode_token_s: queries and partial outputs of one decoding token, at full scale-up bandwidth.
        context_prefill_token_s: keys and values of one token of context that a pass with a prompt gathers, likewise.
        context_queries: the queries and partial outputs over a network, one call.
        context_keys: the keys and values over a network.
    """

    pp: Number
    dp: Number
    layers: Number
    expert_layers: Number
    weights_s: Number
    gemm_token_s: Number
    gemm_sample_s: Number
    experts: Number
    experts_per_token: Number
    expert_weights_s: Number
    expert_row_s: Number
    expert_width: Number
    kv_token_s: Number
    indexer_token_s: Number
    kv_flops_s: Number
    state_s: Number
    window_share: Number
    window_tokens: Number
    attended_tokens: Number
    prompt_attention_s: Number
    island_calls: Number
    island_token_s: Number
    network: TokenCost
    rank_network: TokenCost
    exchange_s: Number
    exchange_decode_token_s: Number
    exchange_prefill_token_s: Number
    overlapped: Number
    send: TokenCost
    context_calls: Number
    context_decode_token_s: Number
    context_prefill_token_s: Number
    context_queries: TokenCost
    context_keys: TokenCost

    def attended(self, context_tokens: FloatArray) -> FloatArray:
        """Tokens that a sequence attends to in a mean layer."""
        share = self.window_share
        held = (1.0 - share) * context_tokens + share * np.minimum(context_tokens, self.window_tokens)
        return np.asarray(np.minimum(held, self.attended_tokens))

    def take(self, mask: FloatArray) -> PassShape:
        """Some of many layouts."""
        return _each(self, lambda values: values[0][mask], [self])


def pass_shape(
    model: Model, gpu: Gpu, layout: Layout, engine: Engine, *, links: LinkCosts, precision: str | None = None
) -> PassShape:
    """Count what one GPU reads, computes and sends in a pass.

    Raises:
        ValueError: if the precision is unknown.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> catalog = load_catalog()
        >>> model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm")
        >>> shape = pass_shape(model, gpu, Layout(), Engine(), links=LinkCosts())
        >>> round(1e3 * shape.weights_s, 2)  # 15 GB without the input table, at 3.35 TB/s
        4.48

    Reference: docs/theory/step-time.md, "One pass".
    """
    rates = precision_of(model, gpu, precision)
    kv_dtype = "fp8" if kv_element_bytes(model, engine, precision) == 1.0 else "bf16"
    shard = shard_weights(model, layout)
    bandwidth = gpu.hbm_bandwidth_gbps * 1e9
    head = shard.head / layout.dp  # the constants were fitted with the head split over the whole stage
    weight_bytes = (
        shard.attention * rates.attention_bytes + shard.dense * rates.dense_bytes + (shard.router + head) * BYTES_16_BIT
    )
    indexer_bytes = model.kv_layers * model.indexer_bytes_per_token / layout.cp
    kv_bytes = kv_bytes_per_token(model, layout, kv_dtype)
    state_bytes = 2 * model.linear.layers * model.linear.bytes_per_layer / layout.tp if model.linear else 0.0
    moe = model.moe
    return PassShape(
        pp=layout.pp,
        dp=layout.dp,
        layers=model.layers,
        expert_layers=moe.layers if moe else 0,
        weights_s=weight_bytes / bandwidth,
        gemm_token_s=2
        * (shard.attention / rates.attention_flops + (shard.dense + shard.router) / rates.dense_flops)
        / layout.dp,
        gemm_sample_s=2 * head / rates.bf16_flops,
        experts=moe.experts if moe else 1,
        experts_per_token=moe.experts_per_token if moe else 0,
        expert_weights_s=shard.expert * rates.expert_bytes / bandwidth,
        expert_width=moe.expert_width * layout.ep / layout.stage_gpus if moe else 1.0,
        expert_row_s=2 * shard.expert / rates.ffn_flops,
        kv_token_s=(kv_bytes - indexer_bytes) / bandwidth,
        indexer_token_s=indexer_bytes / bandwidth,
        kv_flops_s=_decode_flops(model, layout) / layout.cp * model.kv_layers / rates.bf16_flops,
        state_s=state_bytes / bandwidth,
        window_share=window_share(model),
        window_tokens=model.window_tokens,
        attended_tokens=model.indexer_topk or UNLIMITED,
        prompt_attention_s=_prompt_attention_s(model, layout, rates),
        **_collectives(model, gpu, layout, links),  # type: ignore[arg-type]
        **_context_exchange(model, gpu, layout, links, kv_bytes),  # type: ignore[arg-type]
    )


def stack_shapes(shapes: Sequence[PassShape]) -> PassShape:
    """Many shapes as one whose numbers are arrays of shape (n, 1)."""
    return _each(shapes[0], lambda values: np.array(values, dtype=float)[:, None], shapes)


_Record = TypeVar("_Record", PassShape, TokenCost)


def _each(of: _Record, join: Callable[[list[Any]], FloatArray], records: Sequence[_Record]) -> _Record:
    """A record of the same kind whose numbers are joined over ``records``, field by field."""
    found: dict[str, Any] = {}
    for item in fields(of):
        values = [getattr(record, item.name) for record in records]
        found[item.name] = _each(values[0], join, values) if isinstance(values[0], TokenCost) else join(values)
    return type(of)(**found)


def _decode_flops(model: Model, layout: Layout) -> float:
    """FLOPs of one decoding sequence per layer and attended token."""
    heads = model.heads / layout.tp
    if model.mla:
        latent = model.mla.kv_lora_rank
        return 2 * heads * (latent + model.mla.qk_rope_head_dim + latent)
    return 4 * heads * model.head_dim


def _prompt_attention_s(model: Model, layout: Layout, rates: Precision) -> float:
    if model.mla:
        width = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim + model.mla.v_head_dim
    else:
        width = 2 * model.head_dim
    return 2 / layout.dp * model.heads / (layout.tp * layout.cp) * width * model.kv_layers / rates.bf16_flops


def _collectives(model: Model, gpu: Gpu, layout: Layout, links: LinkCosts) -> dict[str, float | TokenCost]:
    """Calls, latencies and bytes of the collectives, by where they run."""
    payload = ACTIVATION_BYTES * model.hidden
    nothing = TokenCost()
    names = ("island_calls", "island_token_s", "exchange_s", "exchange_decode_token_s", "exchange_prefill_token_s")
    costs: dict[str, float | TokenCost] = {**dict.fromkeys((*names, "overlapped"), 0.0)}
    costs |= {"network": nothing, "rank_network": nothing}
    costs["send"] = TokenCost.of(links.stage_send, layout.pp - 1, payload / layout.stage_gpus)
    group, expert_layers = layout.stage_gpus, model.moe.layers if model.moe else 0
    if group == 1:
        return costs
    within_rank = model.layers if layout.dp > 1 and layout.tp > 1 else 0
    if links.stage_in_island:
        # Two all-reduces a layer, or gather and scatter around the experts.
        split, ring = (2 * expert_layers, 1.0) if layout.dp > 1 else (2 * model.layers, 2.0)
        passes = split * ring * (group - 1) / group + within_rank * 2 * (layout.tp - 1) / layout.tp / layout.dp
        costs["island_calls"] = split + within_rank
        costs["island_token_s"] = passes * payload / (gpu.scale_up_gbps * 1e9)
        return costs
    costs["rank_network"] = TokenCost.of(links.tp_all_reduce, within_rank, payload / layout.dp)
    if layout.ep > 1 and layout.dp > 1:
        return costs | _all_to_all(model, layout, links)
    if layout.cp > 1:  # the group is the whole stage: reduce-scatter and all-gather
        costs["network"] = TokenCost.of(links.stage_all_gather, 4 * model.layers, payload)
    elif layout.dp == 1:
        costs["network"] = TokenCost.of(links.tp_all_reduce, 2 * model.layers, payload)
    else:
        costs["network"] = TokenCost.of(links.stage_all_gather, 2 * expert_layers, payload)
    return costs


def _all_to_all(model: Model, layout: Layout, links: LinkCosts) -> dict[str, float | TokenCost]:
    """Dispatch to whole experts on other nodes and combine."""
    moe, link = model.moe, links.stage_all_to_all
    if moe is None:
        return {"overlapped": 1.0}
    width = moe.latent_width or model.hidden
    copy_s = moe.layers * (DISPATCH_BYTES + COMBINE_BYTES) / layout.stage_gpus * width / link.bytes_per_s
    # Kernels for prompts send one copy to each island a token visits, kernels for decoding one to each expert.
    reached = parts_reached(moe.experts, moe.experts_per_token, links.stage_islands, moe.groups, moe.groups_per_token)
    return {
        "exchange_s": 2 * moe.layers * link.latency_s,
        "exchange_decode_token_s": copy_s * moe.experts_per_token,
        "exchange_prefill_token_s": copy_s * reached,
        "overlapped": 1.0,
    }


def _context_exchange(
    model: Model, gpu: Gpu, layout: Layout, links: LinkCosts, kv_bytes: float
) -> dict[str, float | TokenCost]:
    """What ranks that hold parts of each context tell each other, per attention layer.

    Decode gathers the queries of all ranks and reduce-scatters their partial outputs; prefill keeps its heads split
    and gathers the keys and values of the context so far. No measured row has it.
    """
    names = ("context_calls", "context_decode_token_s", "context_prefill_token_s")
    costs: dict[str, float | TokenCost] = {**dict.fromkeys(names, 0.0)}
    costs |= {"context_queries": TokenCost(), "context_keys": TokenCost()}
    if layout.cp == 1:
        return costs
    heads = model.heads / layout.tp
    if model.mla:
        width = 2 * model.mla.kv_lora_rank + model.mla.qk_rope_head_dim  # latent query and latent output
    else:
        width = 2 * model.head_dim
    decode_bytes = ACTIVATION_BYTES * heads * width + SOFTMAX_SUM_BYTES * heads
    key_bytes = kv_bytes * layout.cp / model.kv_layers
    if not links.stage_in_island:
        gather = links.stage_all_gather
        costs["context_queries"] = TokenCost.of(gather, model.kv_layers, decode_bytes / 2.0)
        costs["context_keys"] = TokenCost.of(gather, model.kv_layers, key_bytes)
        return costs
    passed_s = model.kv_layers * (layout.cp - 1) / layout.cp / (gpu.scale_up_gbps * 1e9)
    costs["context_calls"] = float(model.kv_layers)
    costs["context_decode_token_s"] = passed_s * decode_bytes
    costs["context_prefill_token_s"] = passed_s * key_bytes
    return costs
