"""What one GPU's memory holds: weights, workspace, and room for KV cache in tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from qmodel.perf.kv_cache import kv_bytes_per_token, state_page_tokens, window_share
from qmodel.perf.lookup import engine_of, gpu_of, model_of
from qmodel.perf.memory_changes import nearest_changes
from qmodel.perf.memory_rules import MemoryRule, memory_rule
from qmodel.perf.precision import BYTES_16_BIT, kv_element_bytes, precision_of
from qmodel.perf.speculation import draft_model, is_head
from qmodel.perf.weights import layer_share, shard_weights, weight_bytes_per_gpu
from qmodel.types.hardware import Gpu, Model
from qmodel.types.layouts import Engine, Layout
from qmodel.units import GIB

__all__ = ["MemoryPlan", "memory", "tokens_in_room"]

TIGHT_SHARE = 0.03  # of the usable memory: releases of one engine have differed by as much in what they take


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Memory of the fullest GPU of a replica, and the replica's KV pool.

    Attributes:
        weights_gib: weights of the fullest pipeline stage.
        activation_gib: workspace the engine profiles or sets aside.
        other_gib: CUDA context and communicators.
        graphs_gib: CUDA graphs; inside the engine's share of the GPU or beyond it, as the rule says.
        kv_room_gib: what is left for KV cache within the engine's share of the GPU; negative where
            nothing is.
        margin_gib: room beyond one request of ``max_tokens``; negative where it does not fit.
        kv_bytes_per_token: KV bytes of one token on that GPU.
        kv_tokens: tokens of the whole replica's pool, whole pages, over all attention ranks.
        kv_slope: pool tokens that one more token of context takes (below 1 with windowed layers).
        kv_fixed_tokens: pool tokens a sequence takes whatever its context (windows, recurrent state).
        fits: whether the weights fit and one request of ``max_tokens`` has room.
        tight: it fits with a margin below 3 % of the usable memory: an upgrade of the engine may break it.
        reason: why it does not fit, with the numbers; empty where it does.
        changes: changes that would each make it fit, nearest first; empty where it fits or none is known.
        max_context_tokens: longest single request an attention rank's pool holds.
        ranks: attention ranks, each with a pool of its own.
        page_tokens: tokens of one KV page.
        window_share: share of the KV layers that stop growing at ``window_tokens``.
        window_tokens: attention window, 0 without.
        state_tokens: recurrent state per sequence, in pool tokens.
        rule: engine and releases whose rule was applied.
    """

    weights_gib: float
    activation_gib: float
    other_gib: float
    graphs_gib: float
    kv_room_gib: float
    margin_gib: float
    kv_bytes_per_token: float
    kv_tokens: float
    kv_slope: float
    kv_fixed_tokens: float
    fits: bool
    tight: bool
    reason: str
    changes: tuple[str, ...]
    max_context_tokens: int
    ranks: int
    page_tokens: int
    window_share: float
    window_tokens: int
    state_tokens: float
    rule: str

    @property
    def change(self) -> str:
        """The changes in one phrase, empty where there are none."""
        return " or ".join(self.changes)

    def concurrency(self, tokens: float, chunk_tokens: float = 0.0) -> int:
        """Sequences of ``tokens`` context each that the pool holds at once, in whole pages.

        Args:
            tokens: context of each sequence, prompt and output.
            chunk_tokens: prompt tokens in flight that windowed layers hold beside their window; vLLM's start-up line
                takes ``max_batched_tokens``, decoding sequences hold none.

        Raises:
            ValueError: if ``tokens`` is not positive.
        """
        if not tokens > 0:
            raise ValueError(f"tokens: must be greater than 0 (got {tokens:g})")
        return self.ranks * int(self.kv_tokens / self.ranks / self.held_tokens(tokens, chunk_tokens) + 1e-9)

    def held_tokens(self, tokens: float, chunk_tokens: float = 0.0) -> float:
        """Pool tokens that one sequence of ``tokens`` context holds, in whole pages."""
        windowed = min(tokens, self.window_tokens + chunk_tokens)
        return (
            (1.0 - self.window_share) * self._whole_pages(tokens)
            + self.window_share * self._whole_pages(windowed)
            + self.state_tokens
        )

    def _whole_pages(self, tokens: float) -> float:
        return math.ceil(tokens / self.page_tokens - 1e-9) * float(self.page_tokens)


def memory(
    model: Model | str,
    gpu: Gpu | str,
    layout: Layout,
    engine: Engine | str | None = None,
    *,
    precision: str | None = None,
    max_tokens: float | None = None,
    context_tokens: float | None = None,
    extra_kv_layers: int = 0,
) -> MemoryPlan:
    """Lay out the memory of one replica.

    Args:
        model: record or catalog name.
        gpu: record or catalog name; ``usable_gib`` is what the engine sees.
        layout: how the replica is spread.
        engine: record, catalog name, or None for vLLM defaults; its name and version decide the room rule.
        precision: ``auto`` or None for the checkpoint's own type.
        max_tokens: longest request, prompt and output, that must fit; None: one page.
        context_tokens: typical context, around which windowed layers are linearised; default ``max_tokens``.
        extra_kv_layers: KV layers beside the model's own, of the same shape; those of ``engine.speculation`` are
            counted without it.

    Raises:
        ValueError: for an unknown precision, or limits that are not positive.

    Example:
        >>> import qmodel.perf as perf
        >>> from qmodel.types import Engine, Layout
        >>> settings = Engine(version="0.11.0", max_num_seqs=1024)
        >>> plan = perf.memory("qwen3-32b", "h100-sxm", Layout(), settings, max_tokens=32000)
        >>> plan.fits, plan.reason.split(":")[0], plan.changes[1]
        (False, 'memory', 'gpu_memory_utilization 0.95')

    Reference: docs/theory/step-time.md, "Memory".
    """
    architecture, accelerator = model_of(model), gpu_of(gpu)
    settings = engine_of(engine, accelerator)
    for name, value in (("max_tokens", max_tokens), ("context_tokens", context_tokens)):
        if value is not None and not value > 0:
            raise ValueError(f"{name}: must be greater than 0 (got {value:g})")

    def lay_out(wanted: Layout, with_engine: Engine, weights: str | None) -> MemoryPlan:
        request = _Request(
            model=architecture,
            gpu=accelerator,
            layout=wanted,
            engine=with_engine,
            precision=weights,
            max_tokens=max_tokens,
            context_tokens=context_tokens,
            extra_kv_layers=extra_kv_layers,
        )
        return _lay_out(request, memory_rule(with_engine))

    plan = lay_out(layout, settings, precision)
    if plan.fits:
        return plan
    shorter = (f"requests of at most {plan.max_context_tokens:,} tokens",) if plan.max_context_tokens > 0 else ()
    others = nearest_changes(
        architecture,
        accelerator,
        layout,
        settings,
        precision,
        fits=lambda *ask: lay_out(*ask).fits,
    )
    return replace(plan, changes=shorter + others)


def tokens_in_room(room_bytes: float, bytes_per_token: float, block_tokens: int = 16) -> int:
    """Tokens that fit in a KV pool, in whole pages; 0 where there is no room.

    Example:
        >>> tokens_in_room(2.0 * 2**30, 131072)
        16384
    """
    if room_bytes <= 0:
        return 0
    return int(room_bytes / bytes_per_token / block_tokens + 1e-9) * block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    model: Model
    gpu: Gpu
    layout: Layout
    engine: Engine
    precision: str | None
    max_tokens: float | None
    context_tokens: float | None
    extra_kv_layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    """GiB of one GPU by use."""

    weights: float
    workspace: float
    context: float
    graphs: float
    graphs_short: float  # of the memory beyond the engine's share, by which graphs do not find room
    room: float


def _lay_out(ask: _Request, rule: MemoryRule) -> MemoryPlan:
    model, layout, engine = ask.model, ask.layout, ask.engine
    shares = _shares(ask, rule)
    kv_dtype = "fp8" if kv_element_bytes(model, engine, ask.precision) == 1.0 else "bf16"
    draft_layers, drafted = _draft_kv(ask, kv_dtype)
    extra_layers = ask.extra_kv_layers + draft_layers
    whole_stack = kv_bytes_per_token(model, layout, kv_dtype, extra_layers)
    bytes_per_token = whole_stack * layer_share(model, layout.pp) + drafted
    page_tokens, state_tokens = engine.block_tokens, 0.0
    if model.linear is not None:
        page_tokens, state_tokens = state_page_tokens(
            model,
            layout,
            whole_stack / (model.kv_layers + extra_layers),
            engine.block_tokens,
            rule.stretches_pages,
            extra_layers,
        )
        ahead = engine.drafting.tokens if engine.drafting and rule.stretches_pages else 0
        state_tokens *= rule.state_blocks + ahead  # a state for each drafted token that may be taken back
    rank_tokens = tokens_in_room(shares.room * GIB, bytes_per_token, page_tokens)
    share = window_share(model)
    reference = ask.context_tokens or ask.max_tokens or math.inf
    windowed = share > 0 and reference > model.window_tokens
    longest = _longest_context(rank_tokens - state_tokens, share, model.window_tokens)
    needed = (1.0 - share) * (ask.max_tokens or 1.0) + share * min(ask.max_tokens or 1.0, model.window_tokens)
    margin_gib = shares.room - (needed + state_tokens) * bytes_per_token / GIB
    enough = longest >= (ask.max_tokens or 1.0)
    fits = enough and shares.graphs_short <= 0
    return MemoryPlan(
        weights_gib=shares.weights,
        activation_gib=shares.workspace,
        other_gib=shares.context,
        graphs_gib=shares.graphs,
        kv_room_gib=shares.room,
        margin_gib=margin_gib,
        kv_bytes_per_token=bytes_per_token,
        kv_tokens=float(rank_tokens * layout.dp),
        kv_slope=1.0 - share if windowed else 1.0,
        kv_fixed_tokens=(share * model.window_tokens if windowed else 0.0) + state_tokens,
        fits=fits,
        tight=fits and margin_gib < TIGHT_SHARE * ask.gpu.usable_gib,
        reason="" if fits else _graphs_reason(ask, shares) if enough else _reason(ask, shares, longest),
        changes=(),
        max_context_tokens=longest,
        ranks=layout.dp,
        page_tokens=page_tokens,
        window_share=share,
        window_tokens=model.window_tokens,
        state_tokens=state_tokens,
        rule=rule.label,
    )


def _shares(ask: _Request, rule: MemoryRule) -> _Shares:
    """The GPU's memory by use, as the engine's rule has it."""
    usable, engine, model = ask.gpu.usable_gib, ask.engine, ask.model
    precision = precision_of(model, ask.gpu, ask.precision)
    weights = weight_bytes_per_gpu(model, ask.layout, precision, engine.redundant_experts, rule.padded_width) / GIB
    weights += _draft_weight_bytes(ask) / GIB
    group = 0 if ask.layout.gpus == 1 else 1
    context, graphs = rule.context_gib[group], rule.graphs_gib[group]
    used = engine.gpu_memory_utilization
    if rule.fraction_of == "free":
        room = used * (usable - weights - context - rule.workspace_gib)
        return _Shares(
            weights=weights, workspace=rule.workspace_gib, context=context, graphs=graphs, graphs_short=0.0, room=room
        )
    beyond = (1.0 - used) * usable
    sampler = rule.sampler_bytes_on(ask.gpu.architecture) * engine.max_num_seqs * model.vocab / GIB
    workspace = beyond if rule.activations_outside else rule.workspace_gib + sampler
    inside = weights + context + (0.0 if rule.activations_outside else workspace)
    inside += graphs if rule.graphs_counted else 0.0
    return _Shares(
        weights=weights,
        workspace=workspace,
        context=context,
        graphs=graphs,
        graphs_short=0.0 if rule.graphs_counted else graphs - beyond,
        room=used * usable - inside,
    )


def _draft_kv(ask: _Request, kv_dtype: str) -> tuple[int, float]:
    """KV layers of the model's own shape that a draft adds, and bytes per token of a draft of another shape."""
    speculation = ask.engine.drafting
    if speculation is None:
        return 0, 0.0
    draft = draft_model(ask.model, speculation)
    if is_head(speculation):
        return draft.kv_layers, 0.0
    return 0, kv_bytes_per_token(draft, ask.layout, kv_dtype)


def _draft_weight_bytes(ask: _Request) -> float:
    """Weights of the draft on one GPU; a head on the model shares its embedding and output tables."""
    speculation = ask.engine.drafting
    if speculation is None:
        return 0.0
    head, draft = is_head(speculation), draft_model(ask.model, speculation)
    layout = ask.layout if head and draft.moe else replace(ask.layout, ep=1)
    total = weight_bytes_per_gpu(draft, layout, precision_of(draft, ask.gpu, ask.precision if head else None))
    if not head:
        return total
    tables = 1 if draft.tied_embeddings or layout.pp > 1 else 2
    return total - tables * shard_weights(draft, layout).head * BYTES_16_BIT


def _longest_context(tokens: float, share: float, window: int) -> int:
    if tokens <= 0:
        return 0
    if share <= 0 or tokens <= window:
        return int(tokens)
    return int((tokens - share * window) / (1.0 - share)) if share < 1 else int(tokens)


def _name(ask: _Request) -> str:
    return f"{ask.model.name} as {ask.layout} on {ask.gpu.name}"


def _reason(ask: _Request, shares: _Shares, longest: int) -> str:
    if shares.room <= 0 or ask.max_tokens is None:
        return (
            f"memory: {_name(ask)} leaves {shares.room:.2f} GiB for KV cache: {shares.weights:.2f} GiB weights and "
            f"{shares.workspace + shares.context + shares.graphs:.2f} GiB workspace of {ask.gpu.usable_gib:.2f} GiB at "
            f"{ask.engine.gpu_memory_utilization:.0%}"
        )
    return (
        f"memory: {_name(ask)} holds one request of at most {longest:,} tokens in {shares.room:.2f} GiB of KV room, "
        f"{ask.max_tokens:,.0f} are asked"
    )


def _graphs_reason(ask: _Request, shares: _Shares) -> str:
    left = (1.0 - ask.engine.gpu_memory_utilization) * ask.gpu.usable_gib
    return (
        f"memory: {_name(ask)} needs {shares.graphs:.2f} GiB for CUDA graphs beyond gpu_memory_utilization "
        f"{ask.engine.gpu_memory_utilization:g}, which leaves {left:.2f} GiB; raising it cannot help"
    )
