"""What each engine and version sets aside before KV cache, and where those numbers come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from qmodel.perf.releases import release_numbers
from qmodel.types.layouts import Engine

__all__ = ["MemoryRule", "memory_rule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRule:
    """How one engine shares out a GPU.

    Attributes:
        engine: name of the engine.
        versions: releases that it was read from or logged on.
        first: first release it holds for, as numbers; empty: every release.
        fraction_of: ``total``: the utilisation is a share of the usable memory; ``free``: of what weights, context and
            workspace leave.
        context_gib: CUDA context and communicators of one GPU alone, and of one in a group.
        workspace_gib: fixed workspace inside the share.
        sampler_bytes: workspace per running sequence and vocabulary entry.
        sampler_bytes_by_architecture: the same on GPUs whose logs differ.
        activations_outside: activations live in the memory beyond the share.
        graphs_gib: CUDA graphs of one GPU alone, and of one in a group.
        graphs_counted: graphs come out of the share; else they must find room beyond it.
        state_blocks: pages of recurrent state that a sequence holds per group of linear layers.
        stretches_pages: KV pages grow until one holds a layer's recurrent state.
        padded_width: multiple that the width of an MXFP4 expert's slice is filled up to, elements.
        source: where this was read.
    """

    engine: str
    versions: str
    first: tuple[int, ...] = ()
    fraction_of: Literal["total", "free"] = "total"
    context_gib: tuple[float, float] = (0.15, 0.6)
    workspace_gib: float = 0.0
    sampler_bytes: float = 0.0
    sampler_bytes_by_architecture: Mapping[str, float] = field(default_factory=dict)
    activations_outside: bool = False
    graphs_gib: tuple[float, float] = (0.0, 0.0)
    graphs_counted: bool = False
    state_blocks: int = 1
    stretches_pages: bool = False
    padded_width: int = 64
    source: str = ""

    def sampler_bytes_on(self, architecture: str) -> float:
        """Workspace per running sequence and vocabulary entry on one GPU architecture, bytes."""
        return self.sampler_bytes_by_architecture.get(architecture, self.sampler_bytes)

    @property
    def label(self) -> str:
        """The engine and the releases it speaks for, e.g. ``vllm 0.8 to 0.10``."""
        return f"{self.engine} {self.versions}"


# vLLM profiles its sampler with a full batch. 38.5 bytes reproduce all start-up logs of 0.10 and 0.11 on H100 with
# 1,024 sequences (0.6B to 120B models); five logs of 0.10 on A100 with 256 sequences leave 2 to 11, 6.2 in the mean.
_SAMPLER_BYTES = 38.5
_SAMPLER_BYTES_AMPERE = {"ampere": 6.2}
# Start-up logs: 0.50 GiB on one A100, 0.65 on each of two; H100 logs scatter from -0.9 to 1.0.
_GRAPHS_GIB = (0.5, 0.65)
_VLLM_LOGS = "start-up logs of 0.10 and 0.11, tests/data/perf/kv_memory.csv"

# Newest first: an engine without a version, or of a later one, takes the first row with its name.
RULES: tuple[MemoryRule, ...] = (
    MemoryRule(
        engine="vllm",
        versions="0.12 to 0.33",
        first=(0, 12),
        sampler_bytes=_SAMPLER_BYTES,
        sampler_bytes_by_architecture=_SAMPLER_BYTES_AMPERE,
        graphs_gib=_GRAPHS_GIB,
        graphs_counted=True,
        state_blocks=2,
        stretches_pages=True,
        source=f"vLLM 0.33.0 source (graphs are estimated inside the utilisation); sizes from {_VLLM_LOGS}",
    ),
    MemoryRule(
        engine="vllm",
        versions="0.11",
        first=(0, 11),
        sampler_bytes=_SAMPLER_BYTES,
        sampler_bytes_by_architecture=_SAMPLER_BYTES_AMPERE,
        graphs_gib=_GRAPHS_GIB,
        state_blocks=2,
        stretches_pages=True,
        source=_VLLM_LOGS,
    ),
    MemoryRule(
        engine="vllm",
        versions="0.8 to 0.10",
        padded_width=128,
        sampler_bytes=_SAMPLER_BYTES,
        sampler_bytes_by_architecture=_SAMPLER_BYTES_AMPERE,
        graphs_gib=_GRAPHS_GIB,
        state_blocks=2,
        stretches_pages=True,
        source=_VLLM_LOGS,
    ),
    MemoryRule(
        engine="sglang",
        versions="0.4 to 0.5",
        activations_outside=True,
        source="SGLang 0.5.23 source (static fraction: weights and KV pool); one logged row of 2025",
    ),
    MemoryRule(
        engine="tensorrt-llm",
        versions="0.14 to 1.x",
        fraction_of="free",
        context_gib=(0.3, 0.6),
        workspace_gib=3.0,
        source="TensorRT-LLM 1.x llm_args (fraction of what is free); workspace fitted to its performance pages",
    ),
)


def memory_rule(engine: Engine) -> MemoryRule:
    """The rule of an engine's release; the newest of the engine where the release is unknown, vLLM's for others.

    Example:
        >>> from qmodel.types import Engine
        >>> [memory_rule(Engine(version=version)).versions for version in ("0.11.0", "0.33.0", "")]
        ['0.11', '0.12 to 0.33', '0.12 to 0.33']
    """
    rows = [rule for rule in RULES if rule.engine == engine.name] or [rule for rule in RULES if rule.engine == "vllm"]
    asked = release_numbers(engine.version)
    if not asked:
        return rows[0]
    return next((rule for rule in rows if asked >= rule.first), rows[-1])
