"""The component model reduced to the law that queues read, tabulated over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qmodel.perf.components import PassModel, stack_passes
from qmodel.perf.lookup import constants_or_default
from qmodel.perf.pass_shapes import pass_shape
from qmodel.perf.releases import unfitted_release
from qmodel.perf.replica_steps import LawPoint, ReplicaSteps, check_values, point_of, steps_of
from qmodel.perf.step_constants import StepConstants, layout_band, resolve_constants, unseen_band
from qmodel.types.constants import EngineConstants
from qmodel.types.hardware import Gpu, Model
from qmodel.types.laws import FloatArray
from qmodel.types.layouts import Engine, Layout, LinkCosts
from qmodel.types.replica import Band, StepLaw

__all__ = ["batch_knots", "step_law", "step_laws"]

KNOTS_PER_OCTAVE = 4
CONTEXT_SECANT = 0.02  # relative step of the context in the slope per KV token


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
        point_of(model, gpu, layout, engine, links, precision),
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
    check_values("context_tokens", _column([point.context_tokens for point in points]), above_zero=True)
    check_values("prompt_tokens", _column([point.prompt_tokens for point in points]), above_zero=True)
    check_values("batch", _column([point.batch for point in points]))
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
        steps = ReplicaSteps(model=stack) if alone < 0 else steps_of(points[alone], known, stack)
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


def _tables(steps: ReplicaSteps, points: Sequence[LawPoint], largest: float) -> list[StepLaw]:
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
