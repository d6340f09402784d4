"""What one GPU's memory holds: weights, workspace, and room for KV cache in tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from qmodel.perf.kv_cache import kv_bytes_per_token, window_share
from qmodel.perf.lookup import engine_of, gpu_of, model_of
from qmodel.perf.precision import kv_element_bytes, precision_of
from qmodel.perf.weights import layer_share, weight_bytes_per_gpu
from qmodel.types.hardware import Gpu, Model
from qmodel.types.layouts import Engine, Layout
from qmodel.units import GIB

__all__ = ["MemoryPlan", "memory", "tokens_in_room"]

# vLLM profiles its sampler with a full batch: bytes per sequence and vocabulary entry, one constant for all
# start-up logs (0.6B to 120B models) of vLLM 0.11 on H100.
SAMPLER_BYTES = 38.5
CONTEXT_GIB = {"single": 0.15, "group": 0.6}  # CUDA context and communicators
TRT_CONTEXT_GIB = {"single": 0.3, "group": 0.6}
TRT_WORKSPACE_GIB = 3.0
HIGH_UTILISATION = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Memory of the fullest GPU of a replica, and the replica's KV pool.

    Attributes:
        weights_gib: weights of the fullest pipeline stage.
        activation_gib: workspace the engine profiles or sets aside.
        other_gib: CUDA context and communicators.
        kv_room_gib: what is left for KV cache within the engine's share of the GPU; negative where
            nothing is.
        kv_bytes_per_token: KV bytes of one token on that GPU.
        kv_tokens: tokens of the whole replica's pool, whole pages, over all attention ranks.
        kv_slope: pool tokens that one more token of context takes (below 1 with windowed layers).
        kv_fixed_tokens: pool tokens a sequence takes whatever its context (windows, recurrent state).
        fits: whether the weights fit and one request of ``max_tokens`` has room.
        reason: why it does not fit, with the numbers; empty where it does.
        change: changes that would each make it fit, nearest first; empty where it fits or none is known.
        max_context_tokens: longest single request an attention rank's pool holds.
        ranks: attention ranks, each with a pool of its own.
        window_share: share of the KV layers that stop growing at ``window_tokens``.
        window_tokens: attention window, 0 without.
        state_tokens: recurrent state per sequence, in pool tokens.
    """

    weights_gib: float
    activation_gib: float
    other_gib: float
    kv_room_gib: float
    kv_bytes_per_token: float
    kv_tokens: float
    kv_slope: float
    kv_fixed_tokens: float
    fits: bool
    reason: str
    change: str
    max_context_tokens: int
    ranks: int
    window_share: float
    window_tokens: int
    state_tokens: float

    def concurrency(self, tokens: float) -> int:
        """Sequences of ``tokens`` context each that the pool holds at once.

        Raises:
            ValueError: if ``tokens`` is not positive.
        """
        if not tokens > 0:
            raise ValueError(f"tokens: must be greater than 0 (got {tokens:g})")
        grown = (1.0 - self.window_share) * tokens + self.window_share * min(tokens, self.window_tokens)
        return self.ranks * int(self.kv_tokens / self.ranks / (grown + self.state_tokens) + 1e-9)


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
        engine: record, catalog name, or None for vLLM defaults; its name decides the room rule.
        precision: ``auto`` or None for the checkpoint's own type.
        max_tokens: longest request, prompt and output, that must fit; None: one page.
        context_tokens: typical context, around which windowed layers are linearised; default ``max_tokens``.
        extra_kv_layers: KV layers of a draft model.

    Raises:
        ValueError: for an unknown precision, or limits that are not positive.

    Example:
        >>> import qmodel.perf as perf
        >>> from qmodel.types import Engine, Layout
        >>> plan = perf.memory("qwen3-32b", "h100-sxm", Layout(), Engine(max_num_seqs=1024), max_tokens=32000)
        >>> plan.fits, plan.reason.split(":")[0]
        (False, 'memory')

    Reference: docs/theory/step-time.md, "Memory".
    """
    architecture, accelerator = model_of(model), gpu_of(gpu)
    settings = engine_of(engine, accelerator)
    for name, value in (("max_tokens", max_tokens), ("context_tokens", context_tokens)):
        if value is not None and not value > 0:
            raise ValueError(f"{name}: must be greater than 0 (got {value:g})")
    request = _Request(
        model=architecture,
        gpu=accelerator,
        layout=layout,
        engine=settings,
        precision=precision,
        max_tokens=max_tokens,
        context_tokens=context_tokens,
        extra_kv_layers=extra_kv_layers,
    )
    plan = _lay_out(request)
    return plan if plan.fits else replace(plan, change=_changes(request, plan))


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


def _lay_out(ask: _Request) -> MemoryPlan:
    model, layout, engine = ask.model, ask.layout, ask.engine
    weights_gib = weight_bytes_per_gpu(model, layout, precision_of(model, ask.gpu, ask.precision)) / GIB
    activation_gib, other_gib, room_gib = _room(ask, weights_gib)
    kv_dtype = "fp8" if kv_element_bytes(model, engine, ask.precision) == 1.0 else "bf16"
    whole_stack = kv_bytes_per_token(model, layout, kv_dtype, ask.extra_kv_layers)
    bytes_per_token = whole_stack * layer_share(model, layout.pp)
    rank_tokens = tokens_in_room(room_gib * GIB, bytes_per_token, engine.block_tokens)
    share, state_tokens = window_share(model), _state_tokens(model, layout, whole_stack)
    reference = ask.context_tokens or ask.max_tokens or math.inf
    windowed = share > 0 and reference > model.window_tokens
    longest = _longest_context(rank_tokens - state_tokens, share, model.window_tokens)
    fits = longest >= (ask.max_tokens or 1.0)
    return MemoryPlan(
        weights_gib=weights_gib,
        activation_gib=activation_gib,
        other_gib=other_gib,
        kv_room_gib=room_gib,
        kv_bytes_per_token=bytes_per_token,
        kv_tokens=float(rank_tokens * layout.dp),
        kv_slope=1.0 - share if windowed else 1.0,
        kv_fixed_tokens=(share * model.window_tokens if windowed else 0.0) + state_tokens,
        fits=fits,
        reason="" if fits else _reason(ask, weights_gib, activation_gib + other_gib, room_gib, longest),
        change="",
        max_context_tokens=longest,
        ranks=layout.dp,
        window_share=share,
        window_tokens=model.window_tokens,
        state_tokens=state_tokens,
    )


def _room(ask: _Request, weights_gib: float) -> tuple[float, float, float]:
    """Workspace, context and KV room in GiB, by the rule of the engine."""
    usable, engine = ask.gpu.usable_gib, ask.engine
    size = "single" if ask.layout.gpus == 1 else "group"
    if engine.name == "tensorrt-llm":
        free = usable - weights_gib - TRT_CONTEXT_GIB[size] - TRT_WORKSPACE_GIB
        return TRT_WORKSPACE_GIB, TRT_CONTEXT_GIB[size], engine.gpu_memory_utilization * free
    budget = engine.gpu_memory_utilization * usable - weights_gib - CONTEXT_GIB[size]
    if engine.name == "sglang":
        # The static fraction covers weights and KV alone; activations live in the rest of the GPU.
        return (1.0 - engine.gpu_memory_utilization) * usable, CONTEXT_GIB[size], budget
    sampler_gib = SAMPLER_BYTES * engine.max_num_seqs * ask.model.vocab / GIB
    return sampler_gib, CONTEXT_GIB[size], budget - sampler_gib


def _state_tokens(model: Model, layout: Layout, whole_stack_bytes: float) -> float:
    """Recurrent state of linear layers, per sequence, in tokens of KV."""
    if model.linear is None or whole_stack_bytes <= 0:
        return 0.0
    return model.linear.layers * model.linear.bytes_per_layer / (layout.tp * layout.cp) / whole_stack_bytes


def _longest_context(tokens: float, share: float, window: int) -> int:
    if tokens <= 0:
        return 0
    if share <= 0 or tokens <= window:
        return int(tokens)
    return int((tokens - share * window) / (1.0 - share)) if share < 1 else int(tokens)


def _reason(ask: _Request, weights_gib: float, overhead_gib: float, room_gib: float, longest: int) -> str:
    name = f"{ask.model.name} as {ask.layout} on {ask.gpu.name}"
    if room_gib <= 0 or ask.max_tokens is None:
        return (
            f"memory: {name} leaves {room_gib:.2f} GiB for KV cache: {weights_gib:.2f} GiB weights and "
            f"{overhead_gib:.2f} GiB workspace of {ask.gpu.usable_gib:.2f} GiB at "
            f"{ask.engine.gpu_memory_utilization:.0%}"
        )
    return (
        f"memory: {name} holds one request of at most {longest:,} tokens in {room_gib:.2f} GiB of KV room, "
        f"{ask.max_tokens:,.0f} are asked"
    )


def _changes(ask: _Request, plan: MemoryPlan) -> str:
    """Each single change that makes the request fit, nearest first."""
    options = []
    if plan.max_context_tokens > 0:
        options.append(f"requests of at most {plan.max_context_tokens:,} tokens")
    for text, changed in _alternatives(ask):
        if _lay_out(changed).fits:
            options.append(text)
    return " or ".join(options)


def _alternatives(ask: _Request) -> list[tuple[str, _Request]]:
    layout, engine = ask.layout, ask.engine
    found: list[tuple[str, _Request]] = []
    if engine.gpu_memory_utilization < HIGH_UTILISATION and engine.name != "tensorrt-llm":
        higher = replace(engine, gpu_memory_utilization=HIGH_UTILISATION)
        found.append((f"gpu_memory_utilization {HIGH_UTILISATION:g}", replace(ask, engine=higher)))
    if kv_element_bytes(ask.model, engine, ask.precision) > 1.0:
        found.append(("kv_dtype fp8", replace(ask, engine=replace(engine, kv_dtype="fp8"))))
    if layout.dp > 1:
        wider = replace(layout, dp=2 * layout.dp, ep=2 * layout.ep if layout.ep > 1 else 1)
        found.append((f"dp {wider.dp}", replace(ask, layout=wider)))
        return found
    tp = layout.tp
    while (tp := 2 * tp) <= ask.model.heads and ask.model.heads % tp == 0:
        wider = replace(layout, tp=tp, ep=tp if layout.ep > 1 else 1)
        if _lay_out(replace(ask, layout=wider)).fits:
            found.append((f"tp {tp}", replace(ask, layout=wider)))
            break
    return found
