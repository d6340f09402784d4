"""Step time of one replica: decoding steps and prompts, whole and by component."""

from __future__ import annotations

import numpy as np

from qmodel.perf.components import Pass
from qmodel.perf.lookup import constants_or_default
from qmodel.perf.replica_steps import check_values, passes_of, point_of, steps_of
from qmodel.types.constants import EngineConstants
from qmodel.types.hardware import Gpu, Model
from qmodel.types.laws import FloatArray
from qmodel.types.layouts import Engine, Layout, LinkCosts

__all__ = ["decode_step_s", "prefill_s", "step_components"]


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
    check_values("batch", batch)
    check_values("context_tokens", context_tokens)
    point = point_of(model, gpu, layout, engine, links, precision)
    return steps_of(point, constants_or_default(constants)).token_s(batch, context_tokens)


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
    check_values("prompt_tokens", prompt_tokens, above_zero=True)
    check_values("batch", batch)
    point = point_of(model, gpu, layout, engine, links, precision)
    prompt = np.asarray(prompt_tokens, dtype=float)
    chunk = np.minimum(prompt, point.engine.max_batched_tokens)
    steps = steps_of(point, constants_or_default(constants))
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
    check_values("batch", batch)
    check_values("context_tokens", context_tokens)
    check_values("prefill_tokens", prefill_tokens)
    passes = passes_of(point_of(model, gpu, layout, engine, links, precision), constants_or_default(constants))
    return passes.components_s(Pass.of(batch, context_tokens, prefill_tokens, prompt_tokens))
