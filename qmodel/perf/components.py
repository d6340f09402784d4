"""One pass of an engine through the model, component by component."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.perf.kv_cache import held_context, kv_bytes_per_token
from qmodel.perf.precision import BYTES_16_BIT, Precision, kv_element_bytes, precision_of
from qmodel.perf.step_constants import StepConstants, resolve_constants
from qmodel.perf.weights import WeightShard, shard_weights
from qmodel.topology.spread import parts_reached
from qmodel.types.constants import EngineConstants
from qmodel.types.hardware import Gpu, Model
from qmodel.types.laws import FloatArray
from qmodel.types.layouts import Engine, Layout, LinkCosts
from qmodel.units import MICROSECOND, MILLISECOND

__all__ = ["Pass", "PassModel", "pass_model"]

# Exponents of the p-norm that joins a memory and a compute time inside one component.
GEMM_NORM, EXPERT_NORM, KV_NORM = 2.5, 1.5, 2.0
ACTIVATION_BYTES = 2.0
SOFTMAX_SUM_BYTES = 4.0  # of each head, to weigh partial outputs
DISPATCH_BYTES, COMBINE_BYTES = 1.0, 2.0  # FP8 towards the experts, bf16 back


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

    @property
    def decode_tokens(self) -> FloatArray:
        """Tokens of all decoding sequences."""
        return self.batch * self.query_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PassModel:
    """Everything about model, GPU, layout and engine that the time of a pass depends on."""

    model: Model
    gpu: Gpu
    layout: Layout
    links: LinkCosts
    precision: Precision
    constants: StepConstants
    shard: WeightShard
    kv_bytes: float
    wanted_precision: str | None = None

    def components_s(self, work: Pass) -> dict[str, FloatArray]:
        """Seconds by component: ``gemm moe kv attention fixed collectives host``; they add up to the step."""
        return {
            "gemm": self._gemm_s(work),
            "moe": self._moe_s(work),
            "kv": self._kv_s(work),
            "attention": self._prefill_attention_s(work),
            "fixed": self._fixed_s(work),
            "collectives": self._collectives_s(work),
            "host": self._host_s(work),
        }

    def draft_s(self, work: Pass) -> FloatArray:
        """A pass of a draft, which the same host loop starts: the step without host time."""
        return np.asarray(self.step_s(work) - self._host_s(work))

    def step_s(self, work: Pass) -> FloatArray:
        """Time in which every sequence of the replica gains one token, s.

        With several pipeline stages each re-reads its weights once per micro-batch; the pipeline is
        taken as free of bubbles.
        """
        parts = self.components_s(work)
        if self._wide_experts:
            # Wide expert parallelism overlaps its all-to-all with everything else.
            transfer = parts.pop("collectives")
            return np.maximum(_total(parts), transfer) + self._pipeline_send_s(work)
        return _total(parts) + self._pipeline_send_s(work)

    @property
    def _bandwidth(self) -> float:
        return self.gpu.hbm_bandwidth_gbps * 1e9

    @property
    def _wide_experts(self) -> bool:
        """Whether tokens travel to whole experts on other islands."""
        return self.layout.ep > 1 and self.layout.dp > 1 and not self.links.stage_in_island

    def _tokens(self, work: Pass) -> FloatArray:
        return work.decode_tokens / self.layout.pp + work.prefill_tokens

    def _gemm_s(self, work: Pass) -> FloatArray:
        c, p, w = self.constants, self.precision, self.shard
        tokens = self._tokens(work)
        rank_tokens = tokens / self.layout.dp
        head = w.head / self.layout.dp  # the constants were fitted with the head split over the whole stage
        weight_bytes = w.attention * p.attention_bytes + w.dense * p.dense_bytes + (w.router + head) * BYTES_16_BIT
        sampled = work.decode_tokens / self.layout.pp + 1.0
        flops_s = (
            2 * w.attention * rank_tokens / p.attention_flops
            + 2 * (w.dense + w.router) * rank_tokens / p.dense_flops
            + 2 * head * sampled / p.bf16_flops
        ) / c.e_f
        return _norm(weight_bytes / (self._bandwidth * c.e_w), flops_s, GEMM_NORM)

    def _moe_s(self, work: Pass) -> FloatArray:
        moe = self.model.moe
        tokens = self._tokens(work)
        if moe is None:
            return np.zeros_like(tokens)
        c, p = self.constants, self.precision
        spread = np.maximum(tokens, 1.0) ** c.eta
        active = moe.experts * (1.0 - (1.0 - moe.experts_per_token / moe.experts) ** spread)
        visits = moe.experts_per_token * tokens
        weights_s = self.shard.expert * active * p.expert_bytes / (self._bandwidth * c.e_mw)
        rows = visits + c.m0 * np.minimum(active, visits)
        flops_s = 2 * self.shard.expert * rows / (p.ffn_flops * c.e_mf)
        return _norm(weights_s, flops_s, EXPERT_NORM) + moe.layers * c.c_m * MICROSECOND

    def _kv_s(self, work: Pass) -> FloatArray:
        """KV reads and attention of the decoding sequences; linear in batch times context."""
        c, model, layout = self.constants, self.model, self.layout
        sequences = work.batch / (layout.pp * layout.dp)
        attended = self._attended(work.context_tokens)
        indexer_bytes = model.kv_layers * model.indexer_bytes_per_token / layout.cp
        bytes_read = attended * (self.kv_bytes - indexer_bytes) + work.context_tokens * indexer_bytes
        flops = self._decode_flops_per_token * work.query_tokens * attended / layout.cp * model.kv_layers
        per_sequence = _norm(
            bytes_read / (self._bandwidth * c.e_kv), flops / (self.precision.bf16_flops * c.e_fa), KV_NORM
        )
        state_bytes = (
            2 * model.linear.layers * model.linear.bytes_per_layer / layout.tp if model.linear else 0.0
        )  # a recurrent state is read and written once per token
        return sequences * (per_sequence + state_bytes / (self._bandwidth * c.e_kv))

    @property
    def _decode_flops_per_token(self) -> float:
        heads = self.model.heads / self.layout.tp
        if self.model.mla:
            latent = self.model.mla.kv_lora_rank
            return 2 * heads * (latent + self.model.mla.qk_rope_head_dim + latent)
        return 4 * heads * self.model.head_dim

    def _attended(self, context_tokens: FloatArray) -> FloatArray:
        """Tokens a decoding sequence attends to in a mean layer."""
        held = held_context(self.model, context_tokens)
        return np.minimum(held, self.model.indexer_topk) if self.model.indexer_topk else held

    def _prefill_attention_s(self, work: Pass) -> FloatArray:
        model, layout = self.model, self.layout
        heads = model.heads / (layout.tp * layout.cp)
        if model.mla:
            width = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim + model.mla.v_head_dim
        else:
            width = 2 * model.head_dim
        span = self._attended(work.prompt_tokens) / 2.0
        flops = 2 * work.prefill_tokens / layout.dp * heads * width * span * model.kv_layers
        return np.asarray(flops / (self.precision.bf16_flops * self.constants.e_ap))

    def _fixed_s(self, work: Pass) -> FloatArray:
        c = self.constants
        per_layer = c.c_l + np.where(work.prefill_tokens > 0, c.c_pl, 0.0)
        return np.asarray(self.model.layers * per_layer * MICROSECOND)

    def _host_s(self, work: Pass) -> FloatArray:
        c, layout = self.constants, self.layout
        return np.asarray(
            c.h0 * MILLISECOND * max(1.0, (layout.pp + 1) / 2) + c.h1 * MICROSECOND * work.batch / layout.dp
        )

    def _collectives_s(self, work: Pass) -> FloatArray:
        tokens = self._tokens(work)
        if self.layout.stage_gpus == 1:
            return np.zeros_like(tokens)
        if self._wide_experts:
            return self._all_to_all_s(work) + self._within_rank_s(tokens)
        exchange_s = self._context_exchange_s(work) if self.layout.cp > 1 else np.zeros_like(tokens)
        if not self.links.stage_in_island:
            return self._routed_collectives_s(tokens) + exchange_s
        return self._island_collectives_s(work, tokens) + exchange_s

    def _island_collectives_s(self, work: Pass, tokens: FloatArray) -> FloatArray:
        """Fitted collectives: two all-reduces a layer, or gather and scatter around the experts.

        Each token travels at its own rate: were all of a step to take the faster rate of prompts once there is
        one, a chunk would make the step of a large batch shorter.
        """
        c, layout = self.constants, self.layout
        latency = c.ar_a * MICROSECOND
        group = layout.stage_gpus
        full_rate = self.gpu.scale_up_gbps * 1e9
        weighted = work.decode_tokens / layout.pp / c.ar_f + work.prefill_tokens / c.ar_fp
        transfer_s = ACTIVATION_BYTES * weighted * self.model.hidden / full_rate
        if layout.dp == 1:
            return 2 * self.model.layers * (latency + 2 * (group - 1) / group * transfer_s)
        around_experts = 2 * self._expert_layers * (latency + (group - 1) / group * transfer_s)
        if layout.tp == 1:
            return around_experts
        within_rank = latency + 2 * (layout.tp - 1) / layout.tp * transfer_s / layout.dp
        return around_experts + self.model.layers * within_rank

    def _routed_collectives_s(self, tokens: FloatArray) -> FloatArray:
        """The same collectives at the alpha-beta costs of the path they take."""
        payload = ACTIVATION_BYTES * tokens * self.model.hidden
        gather = self.links.stage_all_gather
        if self.layout.cp > 1:  # the group is the whole stage: reduce-scatter and all-gather
            return 4 * self.model.layers * gather.seconds(payload)
        if self.layout.dp == 1:
            return 2 * self.model.layers * self.links.tp_all_reduce.seconds(payload)
        around_experts = 2 * self._expert_layers * gather.seconds(payload)
        return around_experts + self._within_rank_s(tokens)

    def _context_exchange_s(self, work: Pass) -> FloatArray:
        """What ranks that hold parts of each context tell each other, per attention layer.

        Decode gathers the queries of all ranks and reduce-scatters their partial outputs; prefill keeps its heads split
        and gathers the keys and values of the context so far, half of the rest of the prompt in the mean. No
        measured row has it.
        """
        c, model, layout = self.constants, self.model, self.layout
        heads = model.heads / layout.tp
        if model.mla:
            width = 2 * model.mla.kv_lora_rank + model.mla.qk_rope_head_dim  # latent query and latent output
        else:
            width = 2 * model.head_dim
        queries = work.decode_tokens / layout.pp
        decode_bytes = queries * (ACTIVATION_BYTES * heads * width + SOFTMAX_SUM_BYTES * heads)
        held = self._attended((work.prompt_tokens + work.prefill_tokens) / 2.0)
        prompts = np.maximum(work.prefill_tokens / np.maximum(work.prompt_tokens, 1.0), 1.0)
        whole_bytes = self.kv_bytes * layout.cp / model.kv_layers
        prefill_bytes = np.where(work.prefill_tokens > 0, prompts * held * whole_bytes, 0.0)
        calls = np.where(work.batch > 0, 2.0, 0.0), np.where(work.prefill_tokens > 0, 1.0, 0.0)
        if not self.links.stage_in_island:
            gather = self.links.stage_all_gather
            each_s = calls[0] * gather.seconds(decode_bytes / 2.0) + calls[1] * gather.seconds(prefill_bytes)
            return np.asarray(model.kv_layers * each_s)
        passed = (layout.cp - 1) / layout.cp / (self.gpu.scale_up_gbps * 1e9)
        transfer_s = passed * (decode_bytes / c.ar_f + prefill_bytes / c.ar_fp)
        return np.asarray(model.kv_layers * ((calls[0] + calls[1]) * c.ar_a * MICROSECOND + transfer_s))

    def _within_rank_s(self, tokens: FloatArray) -> FloatArray:
        """The all-reduce after attention inside each attention rank of several GPUs."""
        if self.layout.tp == 1:
            return np.zeros_like(tokens)
        payload = ACTIVATION_BYTES * tokens / self.layout.dp * self.model.hidden
        return self.model.layers * self.links.tp_all_reduce.seconds(payload)

    def _all_to_all_s(self, work: Pass) -> FloatArray:
        """Dispatch to whole experts on other nodes and combine; decode sends one copy per expert."""
        moe = self.model.moe
        if moe is None:
            return np.zeros_like(work.batch)
        link = self.links.stage_all_to_all
        # Kernels for prompts send one copy to each island a token visits, kernels for decoding one to each expert.
        prefill_copies = parts_reached(
            moe.experts, moe.experts_per_token, self.links.stage_islands, moe.groups, moe.groups_per_token
        )
        copies = work.decode_tokens / self.layout.pp * moe.experts_per_token + work.prefill_tokens * prefill_copies
        width = moe.latent_width or self.model.hidden
        payload = (DISPATCH_BYTES + COMBINE_BYTES) * copies / self.layout.stage_gpus * width
        calls = np.where(work.batch > 0, 2.0, 0.0)  # pure prefill hides the latency behind its other half batch
        return moe.layers * (calls * link.latency_s + payload / link.bytes_per_s)

    def _pipeline_send_s(self, work: Pass) -> FloatArray:
        """Hand-over between stages, once per stage boundary and micro-batch pass."""
        boundaries = self.layout.pp - 1
        send = self.links.stage_send
        payload = ACTIVATION_BYTES * self._tokens(work) * self.model.hidden / self.layout.stage_gpus
        return np.asarray(boundaries * send.seconds(payload))

    @property
    def _expert_layers(self) -> int:
        return self.model.moe.layers if self.model.moe else 0


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
    precision_row = precision_of(model, gpu, precision)
    kv_dtype = "fp8" if kv_element_bytes(model, engine, precision) == 1.0 else "bf16"
    return PassModel(
        model=model,
        gpu=gpu,
        layout=layout,
        links=links,
        precision=precision_row,
        constants=resolve_constants(model, gpu, engine, constants=constants, precision=precision),
        shard=shard_weights(model, layout),
        kv_bytes=kv_bytes_per_token(model, layout, kv_dtype),
        wanted_precision=precision,
    )


def _norm(first: FloatArray | float, second: FloatArray, p: float) -> FloatArray:
    """(x^p + y^p)^(1/p): the sum at p = 1, the larger of the two as p grows."""
    return np.asarray((np.asarray(first) ** p + second**p) ** (1.0 / p))


def _total(parts: dict[str, FloatArray]) -> FloatArray:
    return np.asarray(sum(parts.values(), start=np.zeros(())))
