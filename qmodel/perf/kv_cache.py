"""Bytes of KV cache per token, and how many pool tokens a sequence really holds."""

from __future__ import annotations

import math

import numpy as np

from qmodel.types.hardware import Model
from qmodel.types.laws import FloatArray
from qmodel.types.layouts import Layout

__all__ = ["held_context", "kv_bytes_per_token", "state_page_tokens", "window_share"]

FP8_SCALE_GROUP = 128  # latent elements per 4-byte scale in the FP8 cache of sparse-attention MLA
BYTES_PER_SCALE = 4.0


def kv_bytes_per_token(model: Model, layout: Layout, kv_dtype: str = "bf16", extra_layers: int = 0) -> float:
    """Bytes that one token of context takes on one GPU of a stage that holds all layers.

    Grouped-query caches are split over tensor-parallel GPUs until each has one KV head; latent caches
    (MLA) are whole on every GPU of an attention rank. Context parallelism splits the tokens
    themselves, so it divides both. Windowed layers count in full: they share the pages of the others.

    Args:
        model: architecture.
        layout: only ``tp`` and ``cp`` matter here; a pipeline stage holds its share of the layers.
        kv_dtype: ``bf16`` or ``fp8``.
        extra_layers: layers beyond the model's own with the same KV shape, such as those of a draft model.

    Raises:
        ValueError: if ``kv_dtype`` is unknown.

    Example:
        >>> from qmodel.perf import kv_bytes_per_token
        >>> from qmodel.types import Layout, Model
        >>> llama = Model(name="llama-3.1-8b", hf_id="", family="llama", layers=32, hidden=4096, heads=32, kv_heads=8,
        ...               head_dim=128, attention="gqa", kv_layers=32, ffn_width=14336, vocab=128256,
        ...               tied_embeddings=False, native_dtype="bf16", weight_family="bf16", max_context=131072,
        ...               total_params=8.03e9)
        >>> kv_bytes_per_token(llama, Layout(tp=2))
        65536.0

    Reference: docs/theory/step-time.md, "KV cache".
    """
    if kv_dtype not in ("bf16", "fp8"):
        raise ValueError(f"kv_dtype: unknown {kv_dtype!r}; use 'bf16' or 'fp8'")
    element = 1.0 if kv_dtype == "fp8" else 2.0
    layers = model.kv_layers + extra_layers
    if model.mla:
        latent, rope = model.mla.kv_lora_rank, model.mla.qk_rope_head_dim
        per_layer = (latent + rope) * element
        if model.indexer_bytes_per_token and kv_dtype == "fp8":
            # Sparse-attention kernels keep the rotary part at 16 bit and a scale per group of the latent.
            per_layer = latent + latent / FP8_SCALE_GROUP * BYTES_PER_SCALE + rope * 2.0
        per_layer += model.indexer_bytes_per_token
    else:
        per_layer = 2 * max(model.kv_heads / layout.tp, 1.0) * model.head_dim * element
    return layers * per_layer / layout.cp


def window_share(model: Model) -> float:
    """Share of the KV layers whose cache stops growing at the attention window."""
    return model.windowed_layers / model.kv_layers if model.kv_layers and model.window_tokens else 0.0


def held_context(model: Model, context_tokens: FloatArray | float) -> FloatArray:
    """Tokens of context that a mean KV layer holds, and reads in decode; broadcasts.

    Args:
        model: architecture; its windowed layers stop growing at the window.
        context_tokens: context per sequence, tokens, any shape.

    Example:
        >>> import qmodel.perf as perf
        >>> from qmodel.catalog import load_catalog
        >>> float(perf.held_context(load_catalog().model("gpt-oss-120b"), 1000))  # half of the layers stop at 128
        564.0
    """
    context = np.asarray(context_tokens, dtype=float)
    share = window_share(model)
    return np.asarray((1.0 - share) * context + share * np.minimum(context, model.window_tokens))


def state_page_tokens(
    model: Model, layout: Layout, layer_token_bytes: float, block_tokens: int, stretched: bool, extra_layers: int = 0
) -> tuple[int, float]:
    """Tokens of one KV page, and pool tokens of one copy of a sequence's recurrent state.

    Engines with one pool for both kinds of layer stretch the KV page until a layer's state fits in it, and then hold
    the state of each group of linear layers, as many as there are attention layers, in a page of its own. Others keep
    the state as it is: in tokens, its bytes over those of a token.

    Args:
        model: architecture; a model without linear layers has no state.
        layout: heads of the state are split over ``tp * cp`` GPUs.
        layer_token_bytes: KV bytes of a token in one attention layer on one GPU.
        block_tokens: tokens of an unstretched page.
        stretched: whether the engine has one pool for both.
        extra_layers: attention layers of a draft model, which share the pool.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> from qmodel.types import Layout
        >>> model = load_catalog().model("qwen3.5-35b-a3b")
        >>> layer_bytes = kv_bytes_per_token(model, Layout(), "fp8") / model.kv_layers
        >>> state_page_tokens(model, Layout(), layer_bytes, 16, True)
        (2096, 6288.0)

    Reference: own construction from start-up logs, docs/theory/step-time.md, "KV cache".
    """
    if model.linear is None or layer_token_bytes <= 0:
        return block_tokens, 0.0
    attention_layers = model.kv_layers + extra_layers
    layer_tokens = model.linear.bytes_per_layer / (layout.tp * layout.cp) / layer_token_bytes
    if not stretched:
        return block_tokens, model.linear.layers * layer_tokens / attention_layers
    page = max(math.ceil(layer_tokens / block_tokens - 1e-9), 1) * block_tokens
    return page, float(math.ceil(model.linear.layers / attention_layers) * page)
