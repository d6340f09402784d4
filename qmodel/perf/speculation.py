"""Speculative decoding: tokens per step, what drafting costs in memory and time, and its draft's architecture."""

from __future__ import annotations

import math
from dataclasses import replace

from qmodel.perf.lookup import model_of
from qmodel.types.hardware import Model
from qmodel.types.layouts import Engine, Layout, Speculation

__all__ = [
    "accepted_spread",
    "draft_model",
    "is_head",
    "prompt_budget",
    "speculation_problem",
    "tokens_per_step",
]

HEADS = ("mtp", "eagle")


def tokens_per_step(acceptance: float, tokens: int) -> float:
    """Mean tokens that one verified step gives a sequence: (1 - a^(k+1)) / (1 - a).

    Args:
        acceptance: probability that a drafted token is accepted, given that those before it were; 0 to 1.
        tokens: drafted tokens per step, at least 0.

    Raises:
        ValueError: if a value is out of its range.

    Example:
        >>> round(tokens_per_step(0.8, 4), 4), tokens_per_step(0.0, 4), tokens_per_step(1.0, 4)
        (3.3616, 1.0, 5.0)

    Reference: Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding (ICML 2023),
    equation 1.
    """
    if not 0.0 <= acceptance <= 1.0:
        raise ValueError(f"acceptance: must be 0 to 1 (got {acceptance:g})")
    if tokens < 0:
        raise ValueError(f"tokens: must be at least 0 (got {tokens})")
    return math.fsum(acceptance**power for power in range(tokens + 1))


def accepted_spread(speculation: Speculation, output_tokens: float) -> float:
    """Relative standard deviation that the luck of the draft adds to the time per token of one request.

    A request of N tokens takes about N/m steps, m tokens a step in the mean with standard deviation s; by renewal
    theory the count of steps spreads by s / sqrt(m N). It is left out of predicted percentiles.

    Args:
        speculation: drafted tokens and acceptance.
        output_tokens: N.

    Example:
        >>> from qmodel.types import Speculation
        >>> round(accepted_spread(Speculation(draft="mtp", tokens=3, acceptance=0.7), 300), 3)
        0.045

    Reference: own construction; Cox, Renewal Theory (1962), section 3.3.
    """
    a, k = speculation.acceptance, speculation.tokens
    mean = tokens_per_step(a, k)
    # E[X^2] of X = 1 + min(G, k): sum over j of (2 j + 1) P(X > j).
    square = math.fsum((2 * j + 1) * a**j for j in range(k + 1))
    return math.sqrt(max(square - mean * mean, 0.0) / (mean * output_tokens))


def is_head(speculation: Speculation) -> bool:
    """Whether the draft is a head on the model itself, which shares embedding and output head."""
    return speculation.draft in HEADS


def draft_model(model: Model, speculation: Speculation) -> Model:
    """Architecture of the draft.

    ``mtp`` is one layer of the model as its multi-token-prediction layers are, ``eagle`` one dense layer; both with
    a projection of two hidden states, counted as feed-forward width. Anything else is a model of its own.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> from qmodel.types import Speculation
        >>> model = load_catalog().model("llama-3.3-70b")
        >>> head = draft_model(model, Speculation(draft="eagle", tokens=3, acceptance=0.7))
        >>> head.layers, head.kv_layers
        (1, 1)
    """
    if not is_head(speculation):
        return speculation.draft_model or model_of(speculation.draft)
    projection = 2.0 * model.hidden / model.ffn_matrices  # 2 h x h weights
    moe = model.moe
    if moe is not None:
        moe = replace(moe, layers=1, shared_width=moe.shared_width + round(projection))
    return replace(
        model,
        layers=1,
        kv_layers=1,
        windowed_layers=0,
        linear=None,
        moe=moe,
        ffn_width=model.ffn_width + projection if moe is None else 0.0,
        extra_params=0.0,
        mtp_layers=0,
    )


def speculation_problem(model: Model, layout: Layout, engine: Engine) -> tuple[str, str] | None:
    """Why a model cannot be served with this draft in this layout, and the nearest change; None where it can.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> from qmodel.types import Engine, Layout, Speculation
        >>> draft = Speculation(draft="mtp", tokens=1, acceptance=0.8)
        >>> speculation_problem(load_catalog().model("llama-3.3-70b"), Layout(tp=4), Engine(speculation=draft))
        ('speculative: llama-3.3-70b has no multi-token-prediction layers', 'draft eagle, or a model as draft')
    """
    speculation = engine.drafting
    if speculation is None:
        return None
    if speculation.draft == "mtp" and model.mtp_layers == 0:
        what = f"speculative: {model.name} has no multi-token-prediction layers"
        return what, "draft eagle, or a model as draft" if model.moe is None else "a model as draft"
    if speculation.draft == "eagle" and model.moe is not None:
        return f"speculative: the width of an eagle head for the mixture {model.name} is not known", "a model as draft"
    draft = draft_model(model, speculation)
    if draft.vocab != model.vocab:
        what = f"speculative: {draft.name} has {draft.vocab:,} tokens in its vocabulary, {model.name} {model.vocab:,}"
        return what, "a draft of the same family"
    if draft.heads % (layout.tp * layout.cp):
        what = f"speculative: {draft.heads} heads of {draft.name} do not split over tp {layout.tp * layout.cp}"
        return what, "a narrower tp"
    needed = engine.max_num_seqs * (1 + speculation.tokens)
    if needed >= engine.max_batched_tokens:
        what = (
            f"speculative: {engine.max_num_seqs} sequences of {1 + speculation.tokens} tokens leave prompts no room in "
            f"max_batched_tokens {engine.max_batched_tokens}"
        )
        fewer = (engine.max_batched_tokens - 1) // (1 + speculation.tokens)
        return what, f"max_num_seqs {fewer} or max_batched_tokens above {needed}"
    if layout.pp > 1:
        return f"speculative: drafts do not combine with pp {layout.pp} in general", "pp 1"
    return None


def prompt_budget(engine: Engine, batch: float) -> int:
    """Token budget of a step in which every sequence takes one token, that gives prompts the same rate.

    A verified step takes k + 1 tokens of the budget B for each of b sequences and lasts m of the steps that bring one
    token: prompts get (B - b (k + 1)) / m tokens in each of them.

    Args:
        engine: its budget and speculation; without one its budget is returned as it is.
        batch: sequences that decode, per attention rank.

    Example:
        >>> from qmodel.types import Engine, Speculation
        >>> prompt_budget(Engine(speculation=Speculation(draft="mtp", tokens=1, acceptance=1.0)), 64)
        4096
    """
    if engine.drafting is None:
        return engine.max_batched_tokens
    tokens = engine.drafting.tokens + 1
    mean = tokens_per_step(engine.drafting.acceptance, engine.drafting.tokens)
    return max(int((engine.max_batched_tokens - batch * tokens) / mean + batch), 1)
