"""Layouts, what their collectives cost, engine settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, overload

import numpy as np

from qmodel.types.hardware import Model
from qmodel.types.laws import FloatArray
from qmodel.types.replica import Admission, Preemption, Router

__all__ = ["Collective", "Engine", "Layout", "LinkCosts", "Refusal", "Speculation"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Layout:
    """How one replica of a model is spread over GPUs.

    A pipeline stage is a group of ``tp * dp`` GPUs: ``dp`` attention ranks of ``tp`` GPUs each.
    Experts are sharded over the whole group, by slicing each expert (``ep = 1``), by
    placing whole experts (``ep`` = GPUs of the stage), or by slicing them over groups in between.

    Attributes:
        tp: tensor-parallel degree of attention.
        pp: pipeline stages.
        ep: expert-parallel ranks, a divisor of the GPUs of a stage.
        dp: attention data-parallel ranks inside the replica, 1 without.
        cp: context-parallel ranks, 1 without.

    Example:
        >>> Layout(tp=8, pp=2).gpus
        16
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    cp: int = 1

    @property
    def stage_gpus(self) -> int:
        """GPUs of one pipeline stage."""
        return self.tp * self.dp * self.cp

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.stage_gpus * self.pp

    def __str__(self) -> str:
        parts = [f"tp{self.tp}"]
        parts += [f"{name}{value}" for name in ("pp", "ep", "dp", "cp") if (value := getattr(self, name)) > 1]
        return "-".join(parts)

    def to_dict(self) -> dict[str, int]:
        """Degrees by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A layout that cannot be used, and why.

    Attributes:
        kind: which rule refused it.
        reason: one sentence with the numbers that broke.
        change: the nearest change that would make it legal, empty where none is known.
    """

    layout: Layout
    kind: Literal[
        "heads",
        "kv_heads",
        "experts",
        "fp8_block",
        "layers",
        "memory",
        "gpus",
        "engine",
        "context",
        "network",
        "forbidden",
    ]
    reason: str
    change: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Alpha-beta cost of one collective on the path it takes, with one line for small messages and one for large.

    A library changes its protocol with the size of the message: the first is started sooner, the second carries more.
    time = min(latency_s + bytes / small_bytes_per_s, large_latency_s + bytes / bytes_per_s), where ``bytes`` is the
    payload one GPU contributes.

    Attributes:
        latency_s: fixed time of one call with a small message, s.
        bytes_per_s: payload bytes per GPU and second of a large message; infinite where the group has one member.
        path: slowest medium on the way: ``none``, ``nvlink``, ``xgmi``, ``pcie``, ``infiniband``,
            ``rocev2``, ``srd``, ``tcp``, ...
        small_bytes_per_s: payload bytes per GPU and second of a small message, None: as of a large one.
        large_latency_s: fixed time of one call with a large message, s, None: as with a small one.

    Example:
        >>> cost = Collective(latency_s=1e-5, small_bytes_per_s=1e10, large_latency_s=3e-5, bytes_per_s=1e11)
        >>> [round(cost.seconds(payload) * 1e6, 1) for payload in (0, 1e5, 1e6)]
        [10.0, 20.0, 40.0]
    """

    latency_s: float = 0.0
    bytes_per_s: float = float("inf")
    path: str = "none"
    small_bytes_per_s: float | None = None
    large_latency_s: float | None = None

    @overload
    def seconds(self, payload_bytes: float) -> float: ...
    @overload
    def seconds(self, payload_bytes: FloatArray) -> FloatArray: ...
    def seconds(self, payload_bytes: float | FloatArray) -> float | FloatArray:
        """Time of one call with ``payload_bytes`` per GPU, s; broadcasts."""
        small = self.latency_s + payload_bytes / (self.small_bytes_per_s or self.bytes_per_s)
        if self.small_bytes_per_s is None and self.large_latency_s is None:
            return small
        large_latency_s = self.latency_s if self.large_latency_s is None else self.large_latency_s
        large = large_latency_s + payload_bytes / self.bytes_per_s
        return np.minimum(small, large) if isinstance(payload_bytes, np.ndarray) else min(float(small), float(large))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCosts:
    """What the collectives of one placed layout cost.

    Attributes:
        stage_in_island: whether one pipeline stage lies inside one scale-up domain; the fitted
            all-reduce constants then apply, else the alpha-beta costs below.
        tp_all_reduce: all-reduce over the tensor-parallel group.
        stage_all_gather: all-gather (or reduce-scatter) over a whole stage.
        stage_all_to_all: expert all-to-all over a whole stage.
        stage_send: point-to-point send between neighbouring pipeline stages.
        stage_islands: scale-up domains one pipeline stage spans.
        nodes: nodes one replica touches.
        bottleneck: slowest medium any group crosses.
    """

    stage_in_island: bool = True
    tp_all_reduce: Collective = Collective()
    stage_all_gather: Collective = Collective()
    stage_all_to_all: Collective = Collective()
    stage_send: Collective = Collective()
    stage_islands: int = 1
    nodes: int = 1
    bottleneck: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding: a draft proposes tokens, one step of the model checks them all.

    Attributes:
        draft: ``mtp`` (the model's own multi-token-prediction layers), ``eagle`` (a head of one layer), or the name of
            a model.
        tokens: tokens drafted per step.
        acceptance: probability that a drafted token is accepted, given that those before it were; measured, never
            predicted.
        draft_model: record of a draft that is a model; None: the catalog's of that name.
    """

    draft: str
    tokens: int
    acceptance: float
    draft_model: Model | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Settings of the serving engine of one pool.

    Attributes:
        name: ``vllm``, ``sglang`` or ``tensorrt-llm``.
        constants: family of the fitted constants: ``vLLM``, ``SGLang``, ``TRT``, ``TRTcpp``.
        max_num_seqs: most running sequences per attention rank.
        max_batched_tokens: token budget of one step.
        gpu_memory_utilization: fraction of usable memory the engine may take.
        watermark: fraction of the KV pool kept free at admission.
        admission: ``full_prompt``, ``no_evict`` or ``first_chunk``.
        recompute_factor: measured tokens that evictions lose per output token, None: not measured.
        preemption: what evicted sequences pay: ``recompute`` or ``swap``.
        swap_gbps: rate at which one GPU copies KV to host memory and back, 1e9 bytes/s each way; None: it does not.
        kv_dtype: ``auto``, ``bf16`` or ``fp8``.
        block_tokens: tokens of one KV page.
        router: how requests are spread over replicas.
        step_times: ``fitted`` constants, or ``aic``: an installed aiconfigurator.
        defaults_of: release whose defaults were taken, where the catalog does not have this one.
        speculation: speculative decoding; None: one token per step.
        redundant_experts: copies of routed experts that each mixture layer holds beside the experts, over one stage.
    """

    name: str = "vllm"
    version: str = ""
    constants: str = "vLLM"
    max_num_seqs: int = 256
    max_batched_tokens: int = 8192
    gpu_memory_utilization: float = 0.9
    watermark: float = 0.03
    admission: Admission = "full_prompt"
    recompute_factor: float | None = None
    preemption: Preemption = "recompute"
    swap_gbps: float | None = None
    kv_dtype: Literal["auto", "bf16", "fp8"] = "auto"
    block_tokens: int = 16
    router: Router = "jsq"
    step_times: Literal["fitted", "aic"] = "fitted"
    defaults_of: str = ""
    speculation: Speculation | None = None
    redundant_experts: int = 0

    @property
    def drafting(self) -> Speculation | None:
        """Speculative decoding where any token is drafted, else None."""
        return self.speculation if self.speculation is not None and self.speculation.tokens > 0 else None
