"""One replica and the time of its steps, alone or with a draft model beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from qmodel.perf.components import Pass, PassModel, pass_model
from qmodel.perf.lookup import engine_of, gpu_of, model_of
from qmodel.perf.speculation import draft_model, is_head, tokens_per_step
from qmodel.types.constants import EngineConstants
from qmodel.types.hardware import Gpu, Model
from qmodel.types.laws import FloatArray
from qmodel.types.layouts import Engine, Layout, LinkCosts

__all__ = ["LawPoint", "ReplicaSteps", "check_values", "passes_of", "point_of", "steps_of"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSteps:
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


def steps_of(point: LawPoint, constants: EngineConstants, model: PassModel | None = None) -> ReplicaSteps:
    """Steps of a replica; ``model`` where its passes are there already."""
    passes = model or passes_of(point, constants)
    speculation = point.engine.drafting
    if speculation is None:
        return ReplicaSteps(model=passes)
    tokens, head = tokens_per_step(speculation.acceptance, speculation.tokens), is_head(speculation)
    draft = passes_of(
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
    return ReplicaSteps(model=passes, draft=draft, drafted=speculation.tokens, tokens=tokens, note=note)


def point_of(
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


def passes_of(point: LawPoint, constants: EngineConstants) -> PassModel:
    """Passes of the model of a replica, without a draft."""
    return pass_model(
        point.model,
        point.gpu,
        point.layout,
        point.engine,
        constants=constants,
        links=point.links,
        precision=point.precision,
    )


def check_values(name: str, value: FloatArray | float, *, above_zero: bool = False) -> None:
    """Refuse what is not finite or below zero (``above_zero``: or zero) with a ValueError that begins with ``name``."""
    array = np.asarray(value, dtype=float)
    bad = ~(array > 0) if above_zero else ~(array >= 0)
    bad |= ~np.isfinite(array)
    if bad.any():
        worst = array[bad].flat[0]
        raise ValueError(f"{name}: must be {'greater than 0' if above_zero else 'at least 0'} (got {worst:g})")
