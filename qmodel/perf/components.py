"""One pass of an engine through the model, component by component."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from qmodel.perf.pass_shapes import PassShape, pass_shape, stack_shapes
from qmodel.perf.step_constants import StepConstants, resolve_constants
from qmodel.types.constants import EngineConstants
from qmodel.types.hardware import Gpu, Model
from qmodel.types.laws import FloatArray
from qmodel.types.layouts import Engine, Layout, LinkCosts
from qmodel.units import MICROSECOND, MILLISECOND

__all__ = ["Pass", "PassModel", "pass_model", "stack_constants", "stack_passes"]

# Exponents of the p-norm that joins a memory and a compute time inside one component.
GEMM_NORM, EXPERT_NORM, KV_NORM, LAUNCH_NORM = 2.5, 1.5, 2.0, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass computes; arrays broadcast together.

    Attributes:
        batch: sequences that decode in the replica, over all ranks and pipeline micro-batches.
        context_tokens: mean context of a decoding sequence.
        prefill_tokens: prompt tokens in the pass, over the replica.
        prompt_tokens: length of the prompt they belong to, which sets their attention span.
        query_tokens: tokens of each decoding sequence, above 1 where drafted tokens are checked.
    """

    batch: FloatArray
    context_tokens: FloatArray
    prefill_tokens: FloatArray
    prompt_tokens: FloatArray
    query_tokens: float = 1.0

    @classmethod
    def of(
        cls,
        batch: FloatArray | float,
        context_tokens: FloatArray | float,
        prefill_tokens: FloatArray | float = 0.0,
        prompt_tokens: FloatArray | float | None = None,
        query_tokens: float = 1.0,
    ) -> Pass:
        """A pass from numbers or arrays; the prompt defaults to the chunk itself."""
        prompt = prefill_tokens if prompt_tokens is None else prompt_tokens
        arrays = np.broadcast_arrays(
            *(np.asarray(value, dtype=float) for value in (batch, context_tokens, prefill_tokens, prompt))
        )
        return cls(
            batch=arrays[0],
            context_tokens=arrays[1],
            prefill_tokens=arrays[2],
            prompt_tokens=arrays[3],
            query_tokens=query_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassModel:
    """Everything about model, GPU, layout and engine that the time of a pass depends on.

    Attributes:
        shape: what a pass costs at data-sheet speed.
        constants: the shares of it that are reached, and the fixed times.
    """

    shape: PassShape
    constants: StepConstants

    def components_s(self, work: Pass) -> dict[str, FloatArray]:
        """Seconds by component: ``gemm moe kv attention fixed collectives host``; they add up to the step."""
        sequences = self._decoding(work)
        decoding = sequences * work.query_tokens
        tokens = decoding + work.prefill_tokens
        parts = {
            "gemm": self._gemm_s(decoding, tokens),
            "moe": self._moe_s(tokens),
            "kv": self._kv_s(sequences, work),
            "attention": self._prefill_attention_s(work),
            "collectives": self._collectives_s(decoding, work),
        }
        parts["fixed"] = self._fixed_s(work, _total(parts))
        return parts | {"host": self._host_s(work)}

    def step_s(self, work: Pass) -> FloatArray:
        """Time in which every sequence of the replica gains one token, s.

        With several pipeline stages each re-reads its weights once per micro-batch, and the largest micro-batch, which
        must pass all stages before its next token, sets the pace.
        """
        parts = self.components_s(work)
        transfer, shape = parts.pop("collectives"), self.shape
        rest = _total(parts)
        # Wide expert parallelism overlaps its all-to-all with everything else.
        joined = np.where(shape.overlapped, np.maximum(rest, transfer), rest + transfer)
        return joined + shape.send.seconds(self._decoding(work) * work.query_tokens + work.prefill_tokens)

    def draft_s(self, work: Pass) -> FloatArray:
        """A pass of a draft, which the same host loop starts: the step without host time."""
        return np.asarray(self.step_s(work) - self._host_s(work))

    def _decoding(self, work: Pass) -> FloatArray:
        """Sequences of the largest micro-batch.

        A sequence joins the micro-batch that is being formed when it is admitted and stays in it: sizes are those of
        balls thrown into ``pp`` bins, whose largest has about m + sqrt(2 m ln pp) of a mean of m.
        """
        stages = np.asarray(self.shape.pp, dtype=float)
        if (stages == 1.0).all():
            return work.batch
        mean = work.batch / stages
        return np.where(stages > 1, np.minimum(mean + np.sqrt(2.0 * mean * np.log(stages)), work.batch), work.batch)

    def _gemm_s(self, decoding: FloatArray, tokens: FloatArray) -> FloatArray:
        c, shape = self.constants, self.shape
        flops_s = (shape.gemm_token_s * tokens + shape.gemm_sample_s * (decoding + 1.0)) / c.e_f
        return _norm(shape.weights_s / c.e_w, flops_s, GEMM_NORM)

    def _moe_s(self, tokens: FloatArray) -> FloatArray:
        c, shape = self.constants, self.shape
        spread = np.maximum(tokens, 1.0) ** c.eta
        active = shape.experts * (1.0 - (1.0 - shape.experts_per_token / shape.experts) ** spread)
        visits = shape.experts_per_token * tokens
        rows = visits + c.m0 * np.minimum(active, visits)
        narrow = 1.0 + c.w_h / shape.expert_width  # thin slices of an expert fill few tiles
        times = _norm(
            shape.expert_weights_s * active / c.e_mw, shape.expert_row_s * rows * narrow / c.e_mf, EXPERT_NORM
        )
        return times + shape.expert_layers * c.c_m * MICROSECOND

    def _kv_s(self, sequences: FloatArray, work: Pass) -> FloatArray:
        """KV reads and attention of the decoding sequences; linear in context, and in the batch without a pipeline."""
        c, shape = self.constants, self.shape
        attended = shape.attended(work.context_tokens)
        read_s = attended * shape.kv_token_s + work.context_tokens * shape.indexer_token_s
        per_sequence = _norm(read_s / c.e_kv, work.query_tokens * attended * shape.kv_flops_s / c.e_fa, KV_NORM)
        return sequences / shape.dp * (per_sequence + shape.state_s / c.e_kv)

    def _prefill_attention_s(self, work: Pass) -> FloatArray:
        span = self.shape.attended(work.prompt_tokens) / 2.0
        return np.asarray(self.shape.prompt_attention_s * work.prefill_tokens * span / self.constants.e_ap)

    def _fixed_s(self, work: Pass, kernels_s: FloatArray) -> FloatArray:
        """Gaps between kernels; in a pass with a prompt, what launching them takes beyond running them.

        Decode passes replay a recorded graph. A pass with a prompt is launched kernel by kernel: the GPU waits for
        the host when kernels are short, and hides it when they are long.
        """
        c, shape = self.constants, self.shape
        gaps_s = shape.layers * c.c_l * MICROSECOND
        running_s = kernels_s + gaps_s
        launched_s = _norm(running_s, shape.layers * c.c_pl * MICROSECOND, LAUNCH_NORM)
        return np.asarray(np.where(work.prefill_tokens > 0, launched_s - kernels_s, gaps_s))

    def _host_s(self, work: Pass) -> FloatArray:
        c, shape = self.constants, self.shape
        per_pass = c.h0 * MILLISECOND * np.maximum(1.0, (shape.pp + 1) / 2)
        return np.asarray(per_pass + c.h1 * MICROSECOND * work.batch / shape.dp)

    def _collectives_s(self, decoding: FloatArray, work: Pass) -> FloatArray:
        """Fitted collectives inside an island, those of a network at the costs of its path, expert exchanges.

        Inside an island each token travels at its own rate: were all of a step to take the faster rate of prompts
        once there is one, a chunk would make the step of a large batch shorter.
        """
        c, shape = self.constants, self.shape
        inside = shape.island_calls * c.ar_a * MICROSECOND
        inside = inside + shape.island_token_s * (decoding / c.ar_f + work.prefill_tokens / c.ar_fp)
        tokens = decoding + work.prefill_tokens
        network = shape.network.seconds(tokens) + shape.rank_network.seconds(tokens)
        # Pure prefill hides the latency of the exchange behind its other half batch.
        exchange = np.where(work.batch > 0, shape.exchange_s, 0.0) + shape.exchange_decode_token_s * decoding
        exchange = exchange + shape.exchange_prefill_token_s * work.prefill_tokens
        return np.asarray(inside + network + exchange + self._context_exchange_s(decoding, work))

    def _context_exchange_s(self, decoding: FloatArray, work: Pass) -> FloatArray:
        """Between ranks that hold parts of each context; prompts gather half of the rest of theirs in the mean."""
        c, shape = self.constants, self.shape
        if not np.any(shape.context_calls) and not np.any(shape.context_keys.large_token_s):
            return np.zeros_like(decoding)
        held = shape.attended((work.prompt_tokens + work.prefill_tokens) / 2.0)
        prompts = np.maximum(work.prefill_tokens / np.maximum(work.prompt_tokens, 1.0), 1.0)
        gathered = np.where(work.prefill_tokens > 0, prompts * held, 0.0)
        calls = np.where(work.batch > 0, 2.0, 0.0), np.where(work.prefill_tokens > 0, 1.0, 0.0)
        inside = shape.context_calls * (calls[0] + calls[1]) * c.ar_a * MICROSECOND
        inside = inside + shape.context_decode_token_s * decoding / c.ar_f
        inside = inside + shape.context_prefill_token_s * gathered / c.ar_fp
        queries, keys = shape.context_queries.seconds(decoding), shape.context_keys.seconds(gathered)
        return np.asarray(inside + calls[0] * queries + calls[1] * keys)


def pass_model(
    model: Model,
    gpu: Gpu,
    layout: Layout,
    engine: Engine,
    *,
    constants: EngineConstants,
    links: LinkCosts,
    precision: str | None = None,
) -> PassModel:
    """Resolve constants, precision and shards once, so that passes are pure arithmetic."""
    return PassModel(
        shape=pass_shape(model, gpu, layout, engine, links=links, precision=precision),
        constants=resolve_constants(model, gpu, engine, constants=constants, precision=precision),
    )


def stack_passes(models: Sequence[PassModel]) -> PassModel:
    """Many models as one: passes of shape (k,) or (n, k) give steps of shape (n, k)."""
    return PassModel(
        shape=stack_shapes([model.shape for model in models]),
        constants=stack_constants([model.constants for model in models]),
    )


def stack_constants(found: Sequence[StepConstants]) -> StepConstants:
    """Constants as arrays of shape (n, 1); band and provenance stay those of the first."""
    stacked: dict[str, FloatArray] = {
        item.name: np.array([getattr(each, item.name) for each in found], dtype=float)[:, None]
        for item in fields(StepConstants)
        if item.type == "float"
    }
    return replace(found[0], **stacked)  # type: ignore[arg-type]  # arrays stand for numbers


def _total(parts: dict[str, FloatArray]) -> FloatArray:
    return np.asarray(sum(parts.values(), start=np.zeros(())))


def _norm(first: FloatArray | float, second: FloatArray | float, p: float) -> FloatArray:
    """(x^p + y^p)^(1/p): the sum at p = 1, the larger of the two as p grows."""
    return np.asarray((np.asarray(first) ** p + np.asarray(second) ** p) ** (1.0 / p))
