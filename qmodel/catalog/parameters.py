"""How many weights an architecture has."""

from __future__ import annotations

from qmodel.types import Model, Moe

__all__ = ["parameter_count"]


def parameter_count(model: Model) -> float:
    """Weights of the model, summed over its matrices; biases and norms, well under 0.1 %, are left out.

    Multi-token-prediction layers are not counted; vision towers and the like (``extra_params``) are.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> round(parameter_count(load_catalog().model("llama-3.1-8b")) / 1e9, 2)
        8.03

    Reference: Vaswani et al., Attention Is All You Need (2017), sec. 3; DeepSeek-AI, DeepSeek-V2 (2024), sec. 2.1.
    """
    moe_layers = model.moe.layers if model.moe else 0
    experts = moe_layers * _experts(model, model.moe) if model.moe else 0.0
    linear = model.linear.layers * model.linear.params_per_layer if model.linear else 0.0
    return (
        model.kv_layers * _attention(model)
        + linear
        + experts
        + (model.layers - moe_layers) * model.ffn_matrices * model.hidden * model.ffn_width
        + model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
        + model.extra_params
    )


def _attention(model: Model) -> float:
    """Projections of one softmax-attention layer."""
    hidden, heads = model.hidden, model.heads
    if model.mla is None:
        query = hidden * heads * model.head_dim
        gate = query if model.output_gate else 0
        return 2 * query + gate + 2 * hidden * model.kv_heads * model.head_dim
    mla = model.mla
    query_width = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    if mla.q_lora_rank is None:
        query = hidden * query_width
    else:
        query = mla.q_lora_rank * (hidden + query_width)
    down = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    up = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return query + down + up + heads * mla.v_head_dim * hidden


def _experts(model: Model, moe: Moe) -> float:
    """Routed and shared experts of one mixture-of-experts layer, with the router."""
    width = moe.latent_width or model.hidden
    latent = 2 * model.hidden * moe.latent_width if moe.latent_width else 0
    routed = moe.experts * model.ffn_matrices * width * moe.expert_width
    shared = model.ffn_matrices * model.hidden * moe.shared_width
    return routed + shared + latent + model.hidden * moe.experts
