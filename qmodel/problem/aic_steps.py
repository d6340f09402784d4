"""Step times from an installed aiconfigurator 0.12, reduced to the law that queues read.

The only module that knows this package. Of it are used ``aiconfigurator_core.sdk.engine.EngineHandle`` (``compile``,
``decode_step_latency``, ``mixed_step_latency``), which estimates one engine step from tables of measured operators in
milliseconds, and its two errors for what it does not cover.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module, metadata
from typing import Any

import numpy as np

from qmodel.perf import batch_knots
from qmodel.types import Band, Engine, EngineConstants, Gpu, Layout, LinkCosts, Model, Refusal, StepLaw
from qmodel.units import MILLISECOND

__all__ = ["aic_missing", "aic_step_law"]

RELEASE = "0.12"
PACKAGE = "aiconfigurator"
INSTALL = "pip install 'qmodel[aic]'"
# Names of its systems and backends, as its release 0.12.0 ships them.
SYSTEMS: Mapping[str, str] = {
    "a100-80-sxm": "a100_sxm",
    "a100-80-pcie": "a100_pcie",
    "a30": "a30",
    "b200-sxm": "b200_sxm",
    "b300-sxm": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "h100-pcie": "h100_pcie",
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "l4": "l4",
    "l40s": "l40s",
    "rtxpro6000": "rtx_pro_6000_server",
}
BACKENDS: Mapping[str, str] = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
CONTEXT_SECANT = 0.1  # relative step of the context in the slope per KV token; its tables take whole tokens
BAND = "GPU x engine x model slice never seen"
SHORTEST_OUTPUT = 2  # tokens; its contexts are prompt and half of the output


def aic_missing() -> tuple[str, str] | None:
    """What is missing for step times from aiconfigurator and the way out, None where it is installed."""
    try:
        found = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return f"step times of {PACKAGE} need the package, which is not installed", INSTALL
    if not found.startswith(f"{RELEASE}."):
        return f"step times of {PACKAGE} need its release {RELEASE} (got {found})", f"{INSTALL} --upgrade"
    return None


def aic_step_law(
    model: Model,
    gpu: Gpu,
    layout: Layout,
    engine: Engine,
    *,
    links: LinkCosts,
    constants: EngineConstants,
    context_tokens: float,
    prompt_tokens: float,
    batch: float,
    precision: str | None = None,
) -> StepLaw | Refusal:
    """The step law of a replica from aiconfigurator's tables, or why they do not cover it.

    tau goes through its decode steps at the knots, less gamma times the KV tokens; gamma is the secant of the context
    around ``context_tokens`` and delta that of one chunk of prefill, both at ``batch``. Its steps hold operators and no
    host time. Nothing of it was validated here: the band is that of a slice never seen.

    Args:
        model: its Hugging Face id must be one that the package knows.
        gpu: one of its systems.
        layout: one stage inside one scale-up island, without split contexts.
        engine: its name chooses the backend; ``max_num_seqs`` bounds the table.
        links: where the stage lies.
        constants: bands by level.
        context_tokens: context per sequence.
        prompt_tokens: prompt whose chunk delta is taken over.
        batch: operating point, sequences of the replica.
        precision: ``auto`` or None for the checkpoint's own type.
    """
    told = _not_covered(model, gpu, layout, engine, links, precision)
    if told is not None:
        return Refusal(layout=layout, kind="engine", reason=told[0], change=told[1])
    try:
        return _law(model, gpu, layout, engine, constants, context_tokens, prompt_tokens, max(batch, 1.0))
    except _gaps() as error:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        reason = f"{PACKAGE} has no step times for {model.name} as {layout} on {gpu.name} under {engine.name}: {said}"
        return Refusal(layout=layout, kind="engine", reason=reason, change="step_times fitted")


def _law(
    model: Model,
    gpu: Gpu,
    layout: Layout,
    engine: Engine,
    constants: EngineConstants,
    context_tokens: float,
    prompt_tokens: float,
    point: float,
) -> StepLaw:
    stated = {"auto": None, "bf16": "bfloat16", "fp8": "fp8"}[engine.kv_dtype]
    handle = _compiled(model.hf_id, SYSTEMS[gpu.name], BACKENDS[engine.name], layout, stated)
    ranks = layout.dp

    def each(sequences: float) -> int:
        return max(round(sequences / ranks), 1)

    def step_s(sequences: float, context: float) -> float:
        shorter = max(round(context) - SHORTEST_OUTPUT // 2, 1)
        return float(handle.decode_step_latency(each(sequences), shorter, SHORTEST_OUTPUT)) * MILLISECOND

    low, high = round(context_tokens * (1 - CONTEXT_SECANT)), round(context_tokens * (1 + CONTEXT_SECANT)) + 1
    gamma_s = max(step_s(point, high) - step_s(point, low), 0.0) / (each(point) * ranks * (high - low))
    chunk = max(round(min(prompt_tokens, float(engine.max_batched_tokens))), 1)
    prompt = max(round(min(prompt_tokens, context_tokens)), 1)
    output = max(2 * round(context_tokens - prompt), SHORTEST_OUTPUT)
    with_chunk_ms = float(handle.mixed_step_latency(chunk, each(point), prompt, output))
    alone_ms = float(handle.decode_step_latency(each(point), prompt, output))
    knots = batch_knots(max(engine.max_num_seqs * ranks, point, 2.0))
    whole = np.unique([each(count) for count in knots if count > 0]).astype(float) * ranks  # equal ranks
    base_s = np.array([step_s(count, context_tokens) for count in whole]) - gamma_s * whole * context_tokens
    base_s = np.maximum.accumulate(np.maximum(base_s, 0.0))  # tables are not smooth
    band = constants.bands[BAND]
    return StepLaw(
        batch=np.concatenate([[0.0], whole]),
        base_s=np.concatenate([base_s[:1], base_s]),
        gamma_s=gamma_s,
        delta_s=max(with_chunk_ms - alone_ms, 0.0) * MILLISECOND / (chunk * ranks),
        band=Band(
            p50=band["p50"] / 100,
            p90=band["p90"] / 100,
            level=f"operator tables of {PACKAGE}, not validated here; as {BAND}",
            confidence="low",
        ),
        provenance=f"{PACKAGE} {metadata.version(PACKAGE)}: {SYSTEMS[gpu.name]}, {BACKENDS[engine.name]}, without host "
        "time",
    )


def _not_covered(
    model: Model, gpu: Gpu, layout: Layout, engine: Engine, links: LinkCosts, precision: str | None
) -> tuple[str, str] | None:
    """Why its tables are not asked, and the nearest change."""
    fitted = "step_times fitted"
    if gpu.name not in SYSTEMS:
        return f"{PACKAGE} does not know {gpu.name}; it has {', '.join(SYSTEMS)}", fitted
    if engine.name not in BACKENDS:
        return f"{PACKAGE} does not know the engine {engine.name}", fitted
    if not model.hf_id:
        return f"{PACKAGE} finds models by their Hugging Face id, and {model.name} has none", fitted
    if (precision or "auto").lower() != "auto":
        return f"{PACKAGE} is asked for a checkpoint's own type only (got precision {precision})", "precision auto"
    if engine.drafting is not None:
        return f"speculative decoding is not combined with step times of {PACKAGE}", "no speculative"
    if layout.pp > 1 or layout.cp > 1:
        return f"{layout}: stages and split contexts are not combined with step times of {PACKAGE}", "pp 1 and cp 1"
    if not links.stage_in_island:
        return f"{layout}: step times of {PACKAGE} are taken inside one scale-up island", "fewer GPUs"
    return None


@lru_cache(maxsize=256)
def _compiled(hf_id: str, system: str, backend: str, layout: Layout, kv_type: str | None) -> Any:
    """Its engine for a layout; a KV type that is not stated is its own choice."""
    return import_module("aiconfigurator_core.sdk.engine").EngineHandle.compile(
        hf_id,
        system,
        backend,
        tp_size=layout.tp,
        attention_dp_size=layout.dp,
        moe_tp_size=layout.stage_gpus // layout.ep,
        moe_ep_size=layout.ep,
        kvcache_quant_mode=kv_type,
    )


def _gaps() -> tuple[type[Exception], ...]:
    """How it says that its tables, models or systems do not cover something."""
    own = (
        import_module("aiconfigurator_core.sdk.utils").HuggingFaceDownloadError,
        import_module("aiconfigurator_core.sdk.errors").PerfDataNotAvailableError,
    )
    return (ValueError, RuntimeError, LookupError, AssertionError, NotImplementedError, *own)
