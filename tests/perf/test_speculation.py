"""Speculative decoding: tokens per step, the law of its steps, and the memory of drafts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.catalog import load_catalog
from qmodel.perf import (
    accepted_spread,
    decode_step_s,
    layouts,
    memory,
    prefill_s,
    prompt_budget,
    step_law,
    tokens_per_step,
)
from qmodel.types import Engine, Gpu, Layout, Model, Speculation

PLAIN = Engine(max_num_seqs=256)


def drafting(draft: str = "eagle", tokens: int = 3, acceptance: float = 0.75) -> Engine:
    return replace(PLAIN, speculation=Speculation(draft=draft, tokens=tokens, acceptance=acceptance))


def test_tokens_per_step_are_those_of_the_paper() -> None:
    # Leviathan et al. (2023), equation 1, at gamma = 5 and alpha = 0.8: (1 - 0.8^6) / 0.2.
    assert tokens_per_step(0.8, 5) == pytest.approx(3.68928)
    assert tokens_per_step(0.0, 5) == 1.0
    assert tokens_per_step(1.0, 5) == 6.0
    assert tokens_per_step(0.5, 0) == 1.0


@given(acceptance=st.floats(0, 1), tokens=st.integers(0, 20))
def test_more_drafted_tokens_never_bring_fewer(acceptance: float, tokens: int) -> None:
    few, many = tokens_per_step(acceptance, tokens), tokens_per_step(acceptance, tokens + 1)
    assert 1.0 <= few <= many <= tokens + 2


@pytest.mark.parametrize(("acceptance", "tokens"), [(0.7, 3), (0.3, 1), (0.9, 6)])
def test_tokens_and_their_spread_are_those_of_drawn_drafts(acceptance: float, tokens: int) -> None:
    rng = np.random.default_rng(7)
    # Accepted tokens of each step: drafts up to the first refusal, and one of the model's own.
    kept = np.cumprod(rng.random((200_000, tokens)) < acceptance, axis=1).sum(axis=1) + 1.0
    assert tokens_per_step(acceptance, tokens) == pytest.approx(kept.mean(), rel=5e-3)
    wanted = 400
    steps = np.array([np.searchsorted(np.cumsum(rng.choice(kept, wanted)), wanted) + 1 for _ in range(4000)])
    speculation = Speculation(draft="mtp", tokens=tokens, acceptance=acceptance)
    assert accepted_spread(speculation, wanted) == pytest.approx(steps.std() / steps.mean(), rel=0.08)


def test_a_step_without_drafts_is_the_plain_step(llama_70b: Model, h100: Gpu) -> None:
    work = {"context_tokens": 2000.0, "prompt_tokens": 1000.0, "batch": 32.0}
    plain = step_law(llama_70b, h100, Layout(tp=4), PLAIN, **work)
    none = step_law(llama_70b, h100, Layout(tp=4), drafting(tokens=0), **work)
    assert none.to_dict() == plain.to_dict()


def test_refused_drafts_only_cost(llama_70b: Model, h100: Gpu) -> None:
    plain = decode_step_s(llama_70b, h100, Layout(tp=4), PLAIN, batch=[1, 16, 64], context_tokens=2000)
    wasted = decode_step_s(
        llama_70b, h100, Layout(tp=4), drafting(acceptance=0.0), batch=[1, 16, 64], context_tokens=2000
    )
    assert (wasted > plain).all()


def test_drafts_pay_at_small_batches_and_less_at_large_ones(llama_70b: Model, h100: Gpu) -> None:
    batch = np.array([1.0, 16.0, 256.0])
    plain = decode_step_s(llama_70b, h100, Layout(tp=4), PLAIN, batch=batch, context_tokens=500)
    drafted = decode_step_s(llama_70b, h100, Layout(tp=4), drafting(), batch=batch, context_tokens=500)
    gain = plain / drafted
    assert 1.5 < gain[0] < tokens_per_step(0.75, 3)
    assert (np.diff(gain) < 0).all()


@given(acceptance=st.floats(0.0, 0.95), tokens=st.integers(1, 6), batch=st.floats(1, 200))
@settings(max_examples=30, deadline=None)
def test_a_better_draft_never_slows_a_token(acceptance: float, tokens: int, batch: float) -> None:
    model, gpu = load_catalog().model("llama-3.3-70b"), load_catalog().gpu("h100-sxm")
    worse, better = (
        decode_step_s(model, gpu, Layout(tp=4), drafting(tokens=tokens, acceptance=a), batch=batch, context_tokens=1000)
        for a in (acceptance, acceptance + 0.05)
    )
    assert better <= worse


def test_the_time_of_a_prompt_is_not_divided(llama_70b: Model, h100: Gpu) -> None:
    work = {"context_tokens": 2000.0, "prompt_tokens": 4000.0, "batch": 32.0}
    plain = step_law(llama_70b, h100, Layout(tp=4), PLAIN, **work)
    drafted = step_law(llama_70b, h100, Layout(tp=4), drafting(), **work)
    assert 1.0 < drafted.delta_s / plain.delta_s < 1.1  # the head reads the prompt too
    assert drafted.band.confidence == "low" and "speculative decoding" in drafted.band.level
    assert "2.73 tokens a step" in drafted.provenance
    alone = prefill_s(llama_70b, h100, Layout(tp=4), drafting(), prompt_tokens=4000)
    assert alone > prefill_s(llama_70b, h100, Layout(tp=4), PLAIN, prompt_tokens=4000)


def test_prompts_get_the_same_share_of_a_long_step_as_of_its_short_parts() -> None:
    engine = drafting(tokens=3, acceptance=0.75)
    mean = tokens_per_step(0.75, 3)
    assert prompt_budget(PLAIN, 64) == PLAIN.max_batched_tokens
    per_real_step = engine.max_batched_tokens - 4 * 64
    assert mean * (prompt_budget(engine, 64) - 64) == pytest.approx(per_real_step, abs=2 * mean)
    assert prompt_budget(engine, 256) > 256


def test_a_draft_layer_takes_its_part_of_the_pool(llama_8b: Model, h100: Gpu) -> None:
    plain, drafted = (memory(llama_8b, h100, Layout(), engine) for engine in (PLAIN, drafting()))
    assert drafted.kv_bytes_per_token == 135168.0  # 33 layers, as a start-up log of this pair counts
    assert plain.kv_bytes_per_token == 131072.0
    assert 0.3 < drafted.weights_gib - plain.weights_gib < 0.6  # one layer and a projection
    assert drafted.kv_tokens < plain.kv_tokens


def test_a_draft_model_brings_weights_and_cache_of_its_own(llama_70b: Model, llama_8b: Model, h100: Gpu) -> None:
    plain, drafted = (memory(llama_70b, h100, Layout(tp=4), engine) for engine in (PLAIN, drafting("llama-3.1-8b")))
    alone = memory(llama_8b, h100, Layout(tp=4), PLAIN)
    assert drafted.weights_gib == pytest.approx(plain.weights_gib + alone.weights_gib)
    assert drafted.kv_bytes_per_token == plain.kv_bytes_per_token + alone.kv_bytes_per_token


def test_multi_token_prediction_layers_are_loaded_where_they_draft(r1: Model, h200: Gpu) -> None:
    plain, drafted = (memory(r1, h200, Layout(tp=8), engine) for engine in (PLAIN, drafting("mtp", 1)))
    assert 8 * (drafted.weights_gib - plain.weights_gib) == pytest.approx(
        11.5e9 / 2**30, rel=0.15
    )  # of 14B with tables
    assert drafted.kv_bytes_per_token == pytest.approx(62 / 61 * plain.kv_bytes_per_token)


def test_hybrids_keep_a_state_for_each_drafted_token(h200: Gpu) -> None:
    model = load_catalog().model("qwen3.5-27b")
    plain, drafted = (memory(model, h200, Layout(), engine) for engine in (PLAIN, drafting("mtp", 3)))
    assert drafted.state_tokens / drafted.page_tokens == 3 * 5  # three groups, two states and three drafted ones
    assert plain.state_tokens / plain.page_tokens == 3 * 2


@pytest.mark.parametrize(
    ("model", "layout", "engine", "reason", "change"),
    [
        ("llama-3.3-70b", Layout(tp=4), drafting("mtp"), "has no multi-token-prediction layers", "draft eagle"),
        ("gpt-oss-120b", Layout(tp=4), drafting("eagle"), "the width of an eagle head", "a model as draft"),
        ("llama-3.3-70b", Layout(tp=4), drafting("qwen3-8b"), "has 151,936 tokens in its vocabulary", "same family"),
        ("llama-3.3-70b", Layout(tp=4, pp=2), drafting(), "do not combine with pp 2", "pp 1"),
        (
            "llama-3.3-70b",
            Layout(tp=4),
            replace(drafting(), max_num_seqs=2048),
            "leave prompts no room",
            "max_num_seqs 2047",
        ),
    ],
)
def test_drafts_that_cannot_be_are_refused_with_a_way_out(
    model: str, layout: Layout, engine: Engine, reason: str, change: str, h100: Gpu
) -> None:
    found = layouts(model, h100, tp=[layout.tp], pp=[layout.pp], dp=[1], ep=[1], engine=engine)
    (refusal,) = found.refused
    assert refusal.kind == "engine"
    assert reason in refusal.reason and change in refusal.change


def test_rates_out_of_range_are_named() -> None:
    with pytest.raises(ValueError, match=r"acceptance: must be 0 to 1 \(got 1.2\)"):
        tokens_per_step(1.2, 3)
    with pytest.raises(ValueError, match=r"tokens: must be at least 0 \(got -1\)"):
        tokens_per_step(0.5, -1)
