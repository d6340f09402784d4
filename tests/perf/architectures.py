"""Models built from a line of architecture facts, for rows whose model the catalog does not have."""

from __future__ import annotations

import re
from dataclasses import replace

from qmodel.types import Mla, Model, Moe

__all__ = ["dense_model", "from_facts"]


def dense_model(
    *,
    layers: int = 32,
    hidden: int = 4096,
    heads: int = 32,
    kv_heads: int = 8,
    head_dim: int = 128,
    ffn_width: float = 14336,
    vocab: int = 128256,
    tied: bool = False,
) -> Model:
    """A dense bf16 model with grouped-query attention; the defaults are those of an 8B Llama."""
    return Model(
        name="dense",
        hf_id="test/dense",
        family="test",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        attention="gqa",
        kv_layers=layers,
        ffn_width=ffn_width,
        vocab=vocab,
        tied_embeddings=tied,
        native_dtype="bf16",
        weight_family="bf16",
        max_context=131072,
        total_params=8e9,
    )


def from_facts(facts: str) -> Model:
    """The KV shape that a facts column states, e.g. ``layers=32;heads=32;kv_heads=8;head_dim=128``."""
    number = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", facts)}
    model = dense_model(
        layers=number["layers"],
        heads=number.get("heads", 128),
        kv_heads=number.get("kv_heads", 128),
        head_dim=number.get("head_dim", 192),
    )
    if "MLA" in facts:
        latent = Mla(kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, q_lora_rank=1536)
        model = replace(model, attention="mla", mla=latent)
    if "indexer" in facts and "left out" not in facts:
        model = replace(model, attention="sparse-indexer", indexer_bytes_per_token=132.0, indexer_topk=2048)
    if "experts" in number:
        experts = Moe(experts=number["experts"], experts_per_token=8, expert_width=1536, shared_width=0, layers=1)
        model = replace(model, moe=experts)
    return model
