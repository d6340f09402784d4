"""Step time of one replica: the component model, and its reduction to the law that queues read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qmodel.perf.components import Pass, PassModel, pass_model
from qmodel.perf.lookup import constants_or_default, engine_of, gpu_of, model_of
from qmodel.perf.releases import unfitted_release
from qmodel.perf.speculation import draft_model, is_head, tokens_per_step
from qmodel.perf.step_constants import layout_band, unseen_band
from qmodel.types.constants import EngineConstants
from qmodel.types.hardware import Gpu, Model
from qmodel.types.laws import FloatArray
from qmodel.types.layouts import Engine, Layout, LinkCosts
from qmodel.types.replica import StepLaw

__all__ = ["batch_knots", "decode_step_s", "prefill_s", "step_components", "step_law"]

KNOTS_PER_OCTAVE = 4
CONTEXT_SECANT = 0.02  # relative step of the context in the slope per KV token


def decode_step_s(
    model: Model | str,
    gpu: Gpu | str,
    layout: Layout,
    engine: Engine | str | None = None,
    *,
    batch: FloatArray | float,
    context_tokens: FloatArray | float,
    constants: EngineConstants | None = None,
    links: LinkCosts | None = None,
    precision: str | None = None,
) -> FloatArray:
    """Time in which every decoding sequence of a replica gains one token, s; arrays broadcast.

    Args:
        model: record or catalog name.
        gpu: record or catalog name.
        layout: how the replica is spread.
        engine: record, catalog name, or None for vLLM defaults.
        batch: sequences that decode in the whole replica, any shape.
        context_tokens: their mean context, any shape.
        constants: fitted constants, None for the catalog's.
        links: cost of the collectives, None for a stage inside one scale-up island.
        precision: ``auto`` or None for the checkpoint's own type.

    Returns:
        Seconds, of the broadcast shape.

    Raises:
        ValueError: for a negative batch or context, or a layout without a step-time model.

    Example:
        >>> import qmodel.perf as perf
        >>> from qmodel.types import Layout
        >>> step = perf.decode_step_s("llama-3.3-70b", "h100-sxm", Layout(tp=4), batch=[1, 64], context_tokens=2000)
        >>> bool(step[0] < step[1])
        True

    Reference: docs/theory/step-time.md.
    """
    _check("batch", batch)
    _check("context_tokens", context_tokens)
    passes = _passes(model, gpu, layout, engine, constants, links, precision)
    return _steps(passes, engine_of(engine, passes.gpu), constants).token_s(batch, context_tokens)


def prefill_s(
    model: Model | str,
    gpu: Gpu | str,
    layout: Layout,
    engine: Engine | str | None = None,
    *,
    prompt_tokens: FloatArray | float,
    batch: FloatArray | float = 0.0,
    context_tokens: FloatArray | float = 0.0,
    constants: EngineConstants | None = None,
    links: LinkCosts | None = None,
    precision: str | None = None,
) -> FloatArray:
    """Time to work off one prompt in chunks of the engine's token budget, s; arrays broadcast.

    Args:
        model: record or catalog name.
        gpu: record or catalog name.
        layout: how the replica is spread.
        engine: its ``max_batched_tokens`` is the chunk.
        prompt_tokens: length of the prompt, above 0, any shape.
        batch: sequences that decode in the same steps; their time is included.
        context_tokens: mean context of those sequences.
        constants: fitted constants, None for the catalog's.
        links: cost of the collectives, None for a stage inside one scale-up island.
        precision: ``auto`` or None for the checkpoint's own type.

    Raises:
        ValueError: for a prompt that is not positive, or a layout without a step-time model.

    Example:
        >>> import qmodel.perf as perf
        >>> from qmodel.types import Layout
        >>> seconds = perf.prefill_s("llama-3.1-8b", "h100-sxm", Layout(), prompt_tokens=[1000, 2000])
        >>> bool(1.5 < seconds[1] / seconds[0] < 2.5)
        True

    Reference: docs/theory/step-time.md.
    """
    _check("prompt_tokens", prompt_tokens, above_zero=True)
    _check("batch", batch)
    passes = _passes(model, gpu, layout, engine, constants, links, precision)
    prompt = np.asarray(prompt_tokens, dtype=float)
    chunk = np.minimum(prompt, engine_of(engine, passes.gpu).max_batched_tokens)
    steps = _steps(passes, engine_of(engine, passes.gpu), constants)
    return np.asarray(steps.chunk_step_s(batch, context_tokens, chunk, prompt) * prompt / chunk)


def step_components(
    model: Model | str,
    gpu: Gpu | str,
    layout: Layout,
    engine: Engine | str | None = None,
    *,
    batch: FloatArray | float,
    context_tokens: FloatArray | float,
    prefill_tokens: FloatArray | float = 0.0,
    prompt_tokens: FloatArray | float | None = None,
    constants: EngineConstants | None = None,
    links: LinkCosts | None = None,
    precision: str | None = None,
) -> dict[str, FloatArray]:
    """Seconds of one pass by component: ``gemm moe kv attention fixed collectives host``.

    The components add up to the step, except that expert parallelism across nodes overlaps its
    ``collectives`` with the rest, and that pipeline hand-overs come on top.

    Args:
        model: record or catalog name.
        gpu: record or catalog name.
        layout: how the replica is spread.
        engine: record, catalog name, or None for vLLM defaults.
        batch: sequences that decode in the whole replica.
        context_tokens: their mean context.
        prefill_tokens: prompt tokens in the pass.
        prompt_tokens: length of the prompt they belong to, None: the chunk itself.
        constants: fitted constants, None for the catalog's.
        links: cost of the collectives, None for a stage inside one scale-up island.
        precision: ``auto`` or None for the checkpoint's own type.

    Raises:
        ValueError: for a negative batch, context or prefill.

    Example:
        >>> import qmodel.perf as perf
        >>> from qmodel.types import Layout
        >>> parts = perf.step_components("llama-3.1-8b", "h100-sxm", Layout(), batch=8, context_tokens=1000)
        >>> float(parts["moe"]), float(parts["collectives"])
        (0.0, 0.0)

    Reference: docs/theory/step-time.md.
    """
    _check("batch", batch)
    _check("context_tokens", context_tokens)
    _check("prefill_tokens", prefill_tokens)
    passes = _passes(model, gpu, layout, engine, constants, links, precision)
    return passes.components_s(Pass.of(batch, context_tokens, prefill_tokens, prompt_tokens))


def step_law(
    model: Model | str,
    gpu: Gpu | str,
    layout: Layout,
    engine: Engine | str | None = None,
    *,
    context_tokens: float,
    prompt_tokens: float,
    batch: float,
    constants: EngineConstants | None = None,
    links: LinkCosts | None = None,
    precision: str | None = None,
) -> StepLaw:
    """The step as tau(b) + gamma * KV tokens + delta * prefill tokens, tabulated over the batch.

    tau is exact at the knots and the KV term everywhere, because the time to read the KV cache is
    linear in batch times context; delta is the secant of one prefill chunk at ``batch``.

    Args:
        model: record or catalog name.
        gpu: record or catalog name.
        layout: how the replica is spread; the law is of the whole replica, all ranks and stages.
        engine: its ``max_num_seqs`` per attention rank bounds the table. With a ``speculation`` the law is the time in
            which every sequence gains one token: steps of k + 1 tokens per sequence and k passes of the draft, over
            the tokens that such a step gives; the time of a prompt token is not divided.
        context_tokens: context per sequence around which windowed and sparse attention is linearised.
        prompt_tokens: prompt whose chunk (at most ``max_batched_tokens``) delta is taken over.
        batch: operating point of delta, sequences of the replica.
        constants: fitted constants, None for the catalog's.
        links: cost of the collectives, None for a stage inside one scale-up island.
        precision: ``auto`` or None for the checkpoint's own type.

    Raises:
        ValueError: for arguments that are not positive, or a layout without a step-time model.

    Example:
        >>> import qmodel.perf as perf
        >>> from qmodel.types import Layout
        >>> law = perf.step_law("llama-3.3-70b", "h100-sxm", Layout(tp=4), context_tokens=2000, prompt_tokens=1200,
        ...                     batch=32)
        >>> exact = perf.decode_step_s("llama-3.3-70b", "h100-sxm", Layout(tp=4), batch=32, context_tokens=3000)
        >>> bool(abs(law.tau_s(32.0, 3000.0) / exact - 1) < 1e-9)
        True

    Reference: docs/theory/step-time.md, "The law that queues read".
    """
    _check("context_tokens", context_tokens, above_zero=True)
    _check("prompt_tokens", prompt_tokens, above_zero=True)
    _check("batch", batch)
    passes = _passes(model, gpu, layout, engine, constants, links, precision)
    settings = engine_of(engine, passes.gpu)
    steps = _steps(passes, settings, constants)
    point = max(batch, 1.0)
    low, high = context_tokens * (1 - CONTEXT_SECANT), context_tokens * (1 + CONTEXT_SECANT)
    at_point = steps.token_s(point, np.array([low, high]))
    gamma_s = float(at_point[1] - at_point[0]) / (point * (high - low))
    chunk = min(prompt_tokens, float(settings.max_batched_tokens))
    with_chunk = steps.chunk_step_s(batch, context_tokens, np.array([0.0, chunk]), prompt_tokens)
    knots = batch_knots(max(settings.max_num_seqs * layout.dp, batch, 2.0))
    base_s = steps.token_s(knots, context_tokens) - gamma_s * knots * context_tokens
    band = layout_band(passes.constants, layout, 1 if links is None else links.nodes, constants_or_default(constants))
    unseen = [name for name in (settings.drafting and "speculative decoding", unfitted_release(settings)) if name]
    if unseen:
        band = unseen_band(band, " and ".join(unseen), constants_or_default(constants))
    return StepLaw(
        batch=knots,
        base_s=base_s,
        gamma_s=gamma_s,
        delta_s=float(with_chunk[1] - with_chunk[0]) / chunk,
        band=band,
        provenance=passes.constants.provenance + steps.note,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """Steps of a model, alone or checking what a draft proposes.

    Attributes:
        model: the model's passes.
        draft: the draft's, None without.
        drafted: tokens drafted per step.
        tokens: mean tokens that a step gives a sequence.
        note: appended to the provenance.
    """

    model: PassModel
    draft: PassModel | None = None
    drafted: int = 0
    tokens: float = 1.0
    note: str = ""

    def token_s(self, batch: FloatArray | float, context_tokens: FloatArray | float) -> FloatArray:
        """Time in which every sequence gains one token, s."""
        step_s = self.model.step_s(Pass.of(batch, context_tokens, query_tokens=1.0 + self.drafted))
        if self.draft is not None:
            step_s = step_s + self.drafted * self.draft.draft_s(Pass.of(batch, context_tokens))
        return np.asarray(step_s / self.tokens)

    def chunk_step_s(
        self,
        batch: FloatArray | float,
        context_tokens: FloatArray | float,
        chunk: FloatArray | float,
        prompt_tokens: FloatArray | float,
    ) -> FloatArray:
        """Time of one step with a chunk of prefill, of the model and of its draft, s; drafts wait for sequences."""
        step_s = self.model.step_s(Pass.of(batch, context_tokens, chunk, prompt_tokens, 1.0 + self.drafted))
        if self.draft is not None:
            decoding = np.where(np.asarray(batch) > 0, self.draft.draft_s(Pass.of(batch, context_tokens)), 0.0)
            with_chunk = self.draft.draft_s(Pass.of(batch, context_tokens, chunk, prompt_tokens))
            step_s = step_s + np.where(np.asarray(chunk) > 0, with_chunk, decoding) + (self.drafted - 1) * decoding
        return np.asarray(step_s)


def _steps(passes: PassModel, engine: Engine, constants: EngineConstants | None) -> _Steps:
    speculation = engine.drafting
    if speculation is None:
        return _Steps(model=passes)
    tokens = tokens_per_step(speculation.acceptance, speculation.tokens)
    draft = pass_model(
        draft_model(passes.model, speculation),
        passes.gpu,
        passes.layout if passes.model.moe and is_head(speculation) else replace(passes.layout, ep=1),
        engine,
        constants=constants_or_default(constants),
        links=passes.links,
        precision=passes.wanted_precision if is_head(speculation) else None,
    )
    note = (
        f"; speculative: {speculation.tokens} tokens by {speculation.draft}, acceptance {speculation.acceptance:g} as "
        f"stated, {tokens:.2f} tokens a step"
    )
    return _Steps(model=passes, draft=draft, drafted=speculation.tokens, tokens=tokens, note=note)


def batch_knots(largest: float) -> FloatArray:
    """0, the small integers, then geometric steps up to ``largest``.

    Example:
        >>> batch_knots(16.0).tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 11.0, 13.0, 16.0]
    """
    top = int(np.ceil(largest))
    octaves = np.arange(np.ceil(np.log2(max(top, 2)) * KNOTS_PER_OCTAVE) + 1) / KNOTS_PER_OCTAVE
    geometric = np.round(2.0**octaves)
    knots = np.unique(np.concatenate([[0.0, 1.0, 2.0], geometric, [float(top)]]))
    return np.asarray(knots[knots <= max(top, 2)], dtype=float)


def _passes(
    model: Model | str,
    gpu: Gpu | str,
    layout: Layout,
    engine: Engine | str | None,
    constants: EngineConstants | None,
    links: LinkCosts | None,
    precision: str | None,
) -> PassModel:
    accelerator = gpu_of(gpu)
    return pass_model(
        model_of(model),
        accelerator,
        layout,
        engine_of(engine, accelerator),
        constants=constants_or_default(constants),
        links=links or LinkCosts(),
        precision=precision,
    )


def _check(name: str, value: FloatArray | float, *, above_zero: bool = False) -> None:
    array = np.asarray(value, dtype=float)
    bad = ~(array > 0) if above_zero else ~(array >= 0)
    bad |= ~np.isfinite(array)
    if bad.any():
        worst = array[bad].flat[0]
        raise ValueError(f"{name}: must be {'greater than 0' if above_zero else 'at least 0'} (got {worst:g})")
