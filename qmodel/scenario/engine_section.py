"""Engine settings as a scenario file, a class or a pool of a fleet file writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from qmodel.scenario.sections import (
    Complaint,
    Count,
    Counts,
    KvType,
    KvTypes,
    NonNegative,
    Positive,
    Section,
    Stock,
    Text,
    TokenCounts,
    Tokens,
)

__all__ = ["ClassEngineSpec", "EngineSpec", "PoolEngineSpec", "SpeculativeSpec"]


class SpeculativeSpec(Section):
    """Speculative decoding: a draft proposes tokens, and one step of the model checks them."""

    draft: Text = Field(
        description="mtp: the model's own multi-token-prediction layers; eagle: a head of one dense layer; else the "
        "name of a model of the catalog with the same vocabulary."
    )
    tokens: Annotated[int, Field(ge=0, le=64)] = Field(description="Tokens drafted per step, 0 to 64; 0: none.")
    acceptance: Annotated[float, Field(ge=0, le=1)] = Field(
        description="Probability that a drafted token is accepted, given that those before it were, 0 to 1; measure "
        "it, no formula predicts it."
    )


class _EngineKeys(Section):
    """Keys that have one value each, wherever engine settings are stated."""

    name: Text | None = Field(default=None, description="Engine of the catalog: vllm (default), sglang, tensorrt-llm.")
    version: Text | None = Field(default=None, description="Version of the engine, as text.")
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Fraction of the usable GPU memory that the engine may take, 0 to 1."
    )
    watermark: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None, description="Fraction of the KV pool kept free when a request is admitted; 0.03 if left out."
    )
    admission: Literal["full_prompt", "no_evict", "first_chunk"] | None = Field(
        default=None,
        description="full_prompt admits when the whole prompt fits and evicts when memory runs out; "
        "no_evict reserves prompt and output; first_chunk admits when the first chunk fits.",
    )
    recompute_factor: NonNegative | None = Field(
        default=None,
        description="Measured tokens that evictions lose per output token when memory is saturated; needed with "
        "first_chunk, estimated otherwise.",
    )
    preemption: Literal["recompute", "swap"] | None = Field(
        default=None,
        description="What evicted sequences pay: recompute prefills them again (default), swap copies their KV to host "
        "memory and back and needs swap_gbps.",
    )
    swap_gbps: Positive | None = Field(
        default=None, description="Rate at which one GPU copies KV to host memory and back, 1e9 bytes/s each way."
    )
    block_tokens: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        default=None, description="Tokens of one KV page."
    )
    speculative: SpeculativeSpec | None = Field(
        default=None, description="Speculative decoding; one token per step if left out."
    )
    step_times: Literal["fitted", "aic"] | None = Field(
        default=None,
        description="Where step times come from: fitted constants (default), or aic, an installed aiconfigurator 0.12.",
    )
    redundant_experts: Stock | None = Field(
        default=None, description="Copies of routed experts in each mixture layer beside the experts, over one stage."
    )
    router: Literal["random", "round_robin", "jsq"] | None = Field(
        default=None,
        description="How requests are spread over replicas: random, round_robin (in turn), or jsq (fewest requests).",
    )

    def complaints(self) -> Iterator[Complaint]:
        if self.admission == "first_chunk" and self.recompute_factor is None:
            yield Complaint(
                "first_chunk needs recompute_factor: no formula predicts its evictions",
                ("admission",),
                "simulate the fleet in overload with recompute_factor: 0.5, "
                "and state the recomputed tokens per request over the mean output",
            )

        if self.preemption == "swap" and self.swap_gbps is None:
            hint = "time a pinned copy from one GPU to host memory while all of its node copy; state its 1e9 bytes/s"
            yield Complaint("swap needs swap_gbps, the rate of one GPU's copies", ("preemption",), hint)
        if self.swap_gbps is not None and self.preemption != "swap":
            what = "is of no use without preemption: swap"
            yield Complaint(what, ("swap_gbps",), "leave it out, or write preemption: swap", about=("swap_gbps",))

    def settings(self) -> dict[str, Any]:
        """The keys that are stated; a list of values is a tuple."""
        return self.model_dump(exclude_none=True)


class EngineSpec(_EngineKeys):
    """Settings of the serving engine; what is left out comes from the catalog's entry of the engine and the GPU.

    Of several values the plan chooses one for each pool.
    """

    max_num_seqs: Counts | None = Field(
        default=None,
        description="Most sequences running at once in a replica; a list to choose from, or auto: the engine's usual "
        "number, a quarter and a sixteenth of it.",
    )
    max_batched_tokens: TokenCounts | None = Field(
        default=None,
        description="Token budget of one step; a list to choose from, or auto: the engine's usual number, a quarter "
        "and a sixteenth of it.",
    )
    kv_dtype: KvTypes | None = Field(
        default=None,
        description="Type of the KV cache, or a list to choose from; auto is 16 bit, or FP8 for FP8/FP4 checkpoints "
        "under TensorRT-LLM.",
    )


class ClassEngineSpec(EngineSpec):
    """Engine settings of the pools that serve a class; they win over those of the GPU and of the scenario."""

    def complaints(self) -> Iterator[Complaint]:
        yield from super().complaints()
        for name, what in _NOT_BY_CLASS.items():
            if getattr(self, name) is not None:
                yield Complaint(what, (name,), "move it to engine or fleet.gpus.<gpu>.engine", about=(name,))


class PoolEngineSpec(_EngineKeys):
    """Engine settings of one pool of a fleet file, which has one value of each."""

    max_num_seqs: Count | None = Field(default=None, description="Most sequences running at once in a replica.")
    max_batched_tokens: Tokens | None = Field(default=None, description="Token budget of one step.")
    kv_dtype: KvType | None = Field(
        default=None,
        description="Type of the KV cache; auto is 16 bit, or FP8 for FP8/FP4 checkpoints under TensorRT-LLM.",
    )


_NOT_BY_CLASS = {
    "name": "is set for each GPU type, not by a class: constants and memory rules follow from it",
    "version": "is set for each GPU type, not by a class: constants and memory rules follow from it",
    "step_times": "says where step times come from, not how an engine runs: it is the same for all classes",
}
