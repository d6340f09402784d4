"""What engines can do, by release: layouts and weight types that they refuse whatever the hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qmodel.perf.precision import has_fp4_units, has_fp8_units, quant_family
from qmodel.perf.releases import release_numbers
from qmodel.types.hardware import Gpu, Model
from qmodel.types.layouts import Engine, Layout

__all__ = ["EngineLimits", "capability_problem", "engine_limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What one engine cannot do.

    Attributes:
        attention_ranks_since: first release with attention data parallelism.
        latent_stages_since: first release with pipeline stages for latent attention.
        context_since: first release that splits the KV cache of a request over GPUs; None: no release does.
        copies_only: it splits only what tensor parallelism would copy: KV heads fewer than its degree, and latents.
        mixed_experts: whole experts may be placed on groups that slice them.
        unpacks_fp8: FP8 weights run on GPUs without FP8 units.
        unpacks_fp4: NVFP4 weights run on NVIDIA GPUs without FP4 units.
        source: where this was read.
    """

    attention_ranks_since: tuple[int, ...] = ()
    latent_stages_since: tuple[int, ...] = ()
    context_since: tuple[int, ...] | None = None
    copies_only: bool = True
    mixed_experts: bool = False
    unpacks_fp8: bool = True
    unpacks_fp4: bool = True
    source: str = ""


LIMITS: Mapping[str, EngineLimits] = {
    "vllm": EngineLimits(
        attention_ranks_since=(0, 8),
        latent_stages_since=(0, 7),
        context_since=(0, 11),
        source="vLLM 0.33.0 source (config/parallel.py); https://github.com/vllm-project/vllm/issues/11539; "
        "start-up line of 0.11 with decode context parallelism",
    ),
    "sglang": EngineLimits(
        context_since=(0, 5),
        mixed_experts=True,
        unpacks_fp4=False,
        source="SGLang 0.5.23 source (srt/arg_groups)",
    ),
    "tensorrt-llm": EngineLimits(
        mixed_experts=True,
        unpacks_fp8=False,
        unpacks_fp4=False,
        source="TensorRT-LLM 1.x llm_args (moe_tp x moe_ep = tp; Helix context parallelism is a prototype) and its "
        "table of numeric precisions",
    ),
}


def engine_limits(engine: Engine) -> EngineLimits:
    """What an engine cannot do; an engine that is not listed is taken as vLLM."""
    return LIMITS.get(engine.name, LIMITS["vllm"])


def capability_problem(
    model: Model, gpu: Gpu, layout: Layout, engine: Engine, precision: str | None = None
) -> tuple[str, str] | None:
    """Why the engine cannot run the layout or the weights, and the nearest change; None where it can.

    An engine without a version is taken as new enough.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> from qmodel.types import Engine, Layout
        >>> catalog = load_catalog()
        >>> model, gpu = catalog.model("deepseek-v3"), catalog.gpu("h200-sxm")
        >>> capability_problem(model, gpu, Layout(tp=8, pp=2), Engine(version="0.6.6"))[1]
        'vllm 0.7 or later, or pp 1'
    """
    return _layout_problem(model, layout, engine) or _weights_problem(model, gpu, engine, precision)


def _layout_problem(model: Model, layout: Layout, engine: Engine) -> tuple[str, str] | None:
    limits = engine_limits(engine)
    if layout.dp > 1 and model.moe is None:
        what = f"dp {layout.dp}: engines offer attention data parallelism for mixture-of-experts models only"
        return what, f"{layout.dp} replicas of dp 1"
    if layout.dp > 1 and _older(engine, limits.attention_ranks_since):
        return _too_old(engine, f"dp {layout.dp}", limits.attention_ranks_since, "dp 1")
    if layout.pp > 1 and model.mla and _older(engine, limits.latent_stages_since):
        return _too_old(engine, f"pp {layout.pp} of latent attention", limits.latent_stages_since, "pp 1")
    return _context_problem(model, layout, engine, limits) if layout.cp > 1 else None


def _context_problem(model: Model, layout: Layout, engine: Engine, limits: EngineLimits) -> tuple[str, str] | None:
    if limits.context_since is None:
        return f"cp {layout.cp}: {engine.name} has context parallelism as a prototype only", "cp 1"
    if _older(engine, limits.context_since):
        return _too_old(engine, f"cp {layout.cp}", limits.context_since, "cp 1")
    if layout.dp > 1:
        return f"cp {layout.cp} with dp {layout.dp}: attention ranks split requests already", "cp 1 or dp 1"
    if model.linear is not None:
        return f"cp {layout.cp}: the recurrent state of {model.name} does not split over tokens", "cp 1"
    if limits.copies_only and not model.mla and layout.tp % model.kv_heads:
        what = f"cp {layout.cp} at tp {layout.tp}: {engine.name} splits tokens only where {model.kv_heads} KV heads"
        return f"{what} are split first", f"tp {model.kv_heads} with cp {layout.cp}, or cp 1"
    return None


def _weights_problem(model: Model, gpu: Gpu, engine: Engine, precision: str | None) -> tuple[str, str] | None:
    limits, family = engine_limits(engine), quant_family(model, gpu, precision)
    if family == "fp8" and not has_fp8_units(gpu) and not limits.unpacks_fp8:
        return f"{gpu.name} has no FP8 units, and {engine.name} does not unpack FP8 weights", _other(model, "fp8")
    if (precision or "").lower() == "fp4" and model.weight_family != "fp4" and not has_fp4_units(gpu):
        return f"precision: {gpu.name} has no FP4 units", "precision w4 (4-bit weights, 16-bit arithmetic)"
    native = (precision or "auto").lower() in ("auto", "fp4") and model.native_dtype.startswith("nvfp4")
    if native and not has_fp4_units(gpu):
        if gpu.vendor.lower() != "nvidia":
            return f"{gpu.name} runs no NVFP4 weights", "a checkpoint in another type"
        if not limits.unpacks_fp4:
            return f"{gpu.name} has no FP4 units, and {engine.name} does not unpack NVFP4 weights", "engine vllm"
    return None


def _other(model: Model, lacking: str) -> str:
    return "precision bf16" if model.weight_family != lacking else "engine vllm, or a checkpoint in bf16"


def _older(engine: Engine, first: tuple[int, ...]) -> bool:
    numbers = release_numbers(engine.version)
    return bool(numbers) and numbers < first


def _too_old(engine: Engine, what: str, first: tuple[int, ...], instead: str) -> tuple[str, str]:
    since = ".".join(map(str, first))
    return f"{what}: {engine.name} {engine.version} does not have it", f"{engine.name} {since} or later, or {instead}"
