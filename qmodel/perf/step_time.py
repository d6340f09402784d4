"""Step time of one replica: the component model, and its reduction to the law that queues read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qmodel.perf.components import Pass, PassModel, pass_model, stack_passes
from qmodel.perf.lookup import constants_or_default, engine_of, gpu_of, model_of
from qmodel.perf.pass_shapes import pass_shape
from qmodel.perf.releases import unfitted_release
from qmodel.perf.speculation import draft_model, is_head, tokens_per_step
from qmodel.perf.step_constants import StepConstants, layout_band, resolve_constants, unseen_band
from qmodel.types.constants import EngineConstants
from qmodel.types.hardware import Gpu, Model
from qmodel.types.laws import FloatArray
from qmodel.types.layouts import Engine, Layout, LinkCosts
from qmodel.types.replica import Band, StepLaw

__all__ = ["LawPoint", "batch_knots", "decode_step_s", "prefill_s", "step_components", "step_law", "step_laws"]

KNOTS_PER_OCTAVE = 4
CONTEXT_SECANT = 0.02  # relative step of the context in the slope per KV token


@dataclass(frozen=True, slots=True, kw_only=True)
class LawPoint:
    """One replica, and where its step law is taken.

    Attributes:
        model: architecture.
        gpu: accelerator.
        layout: how the replica is spread; the law is of the whole replica, all ranks and stages.
        engine: its ``max_num_seqs`` per attention rank bounds the table.
        context_tokens: context per sequence around which windowed and sparse attention is linearised.
        prompt_tokens: prompt whose chunk (at most ``max_batched_tokens``) delta is taken over.
        batch: sequences of the replica at which ``delta_s`` is taken.
        links: cost of the collectives.
        precision: ``auto`` or None for the checkpoint's own type.
    """

    model: Model
    gpu: Gpu
    layout: Layout
    engine: Engine
    context_tokens: float
    prompt_tokens: float
    batch: float
    links: LinkCosts = field(default_factory=LinkCosts)
    precision: str | None = None


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
    point = _point(model, gpu, layout, engine, links, precision)
    return _steps(point, constants_or_default(constants)).token_s(batch, context_tokens)


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
    point = _point(model, gpu, layout, engine, links, precision)
    prompt = np.asarray(prompt_tokens, dtype=float)
    chunk = np.minimum(prompt, point.engine.max_batched_tokens)
    steps = _steps(point, constants_or_default(constants))
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
    passes = _passes(_point(model, gpu, layout, engine, links, precision), constants_or_default(constants))
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

    tau is exact at the knots. So is the KV term everywhere, because the time to read the KV cache is linear in batch
    times context; with pipeline stages it is exact at the context asked for. delta is the secant of one prefill chunk
    at ``batch``.

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
    point = replace(
        _point(model, gpu, layout, engine, links, precision),
        context_tokens=context_tokens,
        prompt_tokens=prompt_tokens,
        batch=batch,
    )
    return step_laws((point,), constants=constants)[0]


def step_laws(points: Sequence[LawPoint], *, constants: EngineConstants | None = None) -> tuple[StepLaw, ...]:
    """The laws of many replicas at once, of any models, GPUs and layouts; see :func:`step_law`.

    Args:
        points: n replicas and where their laws are taken.
        constants: fitted constants, None for the catalog's.

    Raises:
        ValueError: for arguments that are not positive, or a layout without a step-time model.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> from qmodel.types import Engine, Layout
        >>> catalog = load_catalog()
        >>> points = [LawPoint(model=catalog.model("llama-3.3-70b"), gpu=catalog.gpu("h100-sxm"), layout=Layout(tp=tp),
        ...                    engine=Engine(), context_tokens=2000, prompt_tokens=1200, batch=32) for tp in (4, 8)]
        >>> four, eight = step_laws(points)
        >>> bool(eight.tau_s(32.0, 2000.0) < four.tau_s(32.0, 2000.0))
        True

    Reference: docs/theory/step-time.md, "The law that queues read".
    """
    _check("context_tokens", _column([point.context_tokens for point in points]), above_zero=True)
    _check("prompt_tokens", _column([point.prompt_tokens for point in points]), above_zero=True)
    _check("batch", _column([point.batch for point in points]))
    known = constants_or_default(constants)
    found: dict[tuple[int, int, Engine, str | None], StepConstants] = {}
    groups: dict[tuple[float, int], list[int]] = {}
    models = []
    for index, point in enumerate(points):
        key = (id(point.model), id(point.gpu), replace(point.engine, speculation=None), point.precision)
        if key not in found:
            found[key] = resolve_constants(
                point.model, point.gpu, point.engine, constants=known, precision=point.precision
            )
        shape = pass_shape(
            point.model, point.gpu, point.layout, point.engine, links=point.links, precision=point.precision
        )
        models.append(PassModel(shape=shape, constants=found[key]))
        largest = max(point.engine.max_num_seqs * point.layout.dp, point.batch, 2.0)
        groups.setdefault((largest, index if point.engine.drafting else -1), []).append(index)
    laws: dict[int, StepLaw] = {}
    for (largest, alone), indices in groups.items():
        stack = stack_passes([models[index] for index in indices])
        steps = _Steps(model=stack) if alone < 0 else _steps(points[alone], known, stack)
        tables = _tables(steps, [points[index] for index in indices], largest)
        for index, table in zip(indices, tables, strict=True):
            used = models[index].constants
            laws[index] = replace(
                table, band=_band(used, points[index], known), provenance=used.provenance + steps.note
            )
    return tuple(laws[index] for index in range(len(points)))


def _band(used: StepConstants, point: LawPoint, constants: EngineConstants) -> Band:
    band = layout_band(used, point.layout, point.links.nodes, constants)
    engine = point.engine
    unseen = [name for name in (engine.drafting and "speculative decoding", unfitted_release(engine)) if name]
    return unseen_band(band, " and ".join(unseen), constants) if unseen else band


def _tables(steps: _Steps, points: Sequence[LawPoint], largest: float) -> list[StepLaw]:
    """Laws without band and provenance, all tabulated up to the same batch."""
    batch = _column([point.batch for point in points])
    context = _column([point.context_tokens for point in points])
    prompt = _column([point.prompt_tokens for point in points])
    budget = _column([float(point.engine.max_batched_tokens) for point in points])
    chunk = np.minimum(prompt, budget)
    knots = batch_knots(largest)
    at_batch = np.concatenate([np.broadcast_to(knots, (len(points), knots.size)), batch], axis=1)
    # The largest micro-batch of a pipeline grows more slowly than the batch: the slope of full ones, the rest in tau.
    busy = np.where(np.asarray(steps.model.shape.pp) > 1, knots[-1], np.maximum(batch, 1.0))
    either_side = context * np.array([1 - CONTEXT_SECANT, 1 + CONTEXT_SECANT])
    count, idle = at_batch.shape[1], np.zeros(at_batch.shape)
    # One call for all: alone, with a chunk, and on both sides of the context.
    all_batch = np.concatenate([at_batch, at_batch, busy, busy], axis=1)
    all_context = np.concatenate([idle + context, idle + context, either_side], axis=1)
    all_chunk = np.concatenate([idle, idle + chunk, idle[:, :1], idle[:, :1]], axis=1)
    step_s = steps.chunk_step_s(all_batch, all_context, all_chunk, prompt)
    delta_s = (step_s[:, count : 2 * count] - step_s[:, :count]) / chunk
    alone_s, sides_s = step_s[:, :count], step_s[:, 2 * count :]
    if steps.draft is not None:  # drafts run beside the table's empty batch too, and steps give several tokens
        alone_s, sides_s = steps.token_s(at_batch, context), steps.token_s(busy, either_side)
    gamma_s = (sides_s[:, 1:] - sides_s[:, :1]) / (busy * (either_side[:, 1:] - either_side[:, :1]))
    base_s = alone_s[:, :-1] - gamma_s * knots * context
    return [
        StepLaw(
            batch=knots,
            base_s=base_s[row],
            gamma_s=float(gamma_s[row, 0]),
            delta_s=float(delta_s[row, -1]),
            delta_by_batch_s=delta_s[row, :-1],
        )
        for row in range(len(points))
    ]


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


def _steps(point: LawPoint, constants: EngineConstants, model: PassModel | None = None) -> _Steps:
    """Steps of a replica; ``model`` where its passes are there already."""
    passes = model or _passes(point, constants)
    speculation = point.engine.drafting
    if speculation is None:
        return _Steps(model=passes)
    tokens, head = tokens_per_step(speculation.acceptance, speculation.tokens), is_head(speculation)
    draft = _passes(
        replace(
            point,
            model=draft_model(point.model, speculation),
            layout=point.layout if point.model.moe and head else replace(point.layout, ep=1),
            precision=point.precision if head else None,
        ),
        constants,
    )
    note = (
        f"; speculative: {speculation.tokens} tokens by {speculation.draft}, acceptance {speculation.acceptance:g} as "
        f"stated, {tokens:.2f} tokens a step"
    )
    return _Steps(model=passes, draft=draft, drafted=speculation.tokens, tokens=tokens, note=note)


def _column(values: Sequence[float]) -> FloatArray:
    return np.asarray(values, dtype=float)[:, None]


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


def _point(
    model: Model | str,
    gpu: Gpu | str,
    layout: Layout,
    engine: Engine | str | None,
    links: LinkCosts | None,
    precision: str | None,
) -> LawPoint:
    """A replica from records or names."""
    accelerator = gpu_of(gpu)
    return LawPoint(
        model=model_of(model),
        gpu=accelerator,
        layout=layout,
        engine=engine_of(engine, accelerator),
        context_tokens=1.0,
        prompt_tokens=1.0,
        batch=1.0,
        links=links or LinkCosts(),
        precision=precision,
    )


def _passes(point: LawPoint, constants: EngineConstants) -> PassModel:
    return pass_model(
        point.model,
        point.gpu,
        point.layout,
        point.engine,
        constants=constants,
        links=point.links,
        precision=point.precision,
    )


def _check(name: str, value: FloatArray | float, *, above_zero: bool = False) -> None:
    array = np.asarray(value, dtype=float)
    bad = ~(array > 0) if above_zero else ~(array >= 0)
    bad |= ~np.isfinite(array)
    if bad.any():
        worst = array[bad].flat[0]
        raise ValueError(f"{name}: must be {'greater than 0' if above_zero else 'at least 0'} (got {worst:g})")
