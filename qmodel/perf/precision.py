"""Which kind of arithmetic a checkpoint runs on a GPU, and how many bytes its numbers take."""

from __future__ import annotations

from dataclasses import dataclass

from qmodel.types.hardware import Gpu, Model, WeightFamily
from qmodel.types.layouts import Engine

__all__ = ["Precision", "kv_element_bytes", "precision_of", "precision_problem", "quant_family"]

BYTES_16_BIT = 2.0
BYTES_FP8 = 1.0
BYTES_NVFP4 = 4.5 / 8  # 4 bit and one FP8 scale per 16 weights
BYTES_INT4 = 4.25 / 8  # 4 bit and one 8-bit scale per 32 weights
PRECISION_NAMES = ("auto", "bf16", "fp8", "fp4", "w4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes per weight of each tensor class, and the peaks its GEMMs run at.

    Attributes:
        family: row of the fitted constants: ``bf16``, ``fp8``, ``fp4`` (native FP4 units) or ``w4``
            (4-bit weights, 16-bit arithmetic).
        attention_bytes: per attention weight.
        dense_bytes: per weight of dense layers and shared experts.
        expert_bytes: per routed-expert weight as it is read.
        padded_experts: whether kernels store the expert matrices padded.
        attention_flops: dense peak of the attention GEMMs, FLOP/s.
        dense_flops: dense peak of the GEMMs of dense layers and shared experts, FLOP/s.
        ffn_flops: dense peak of the expert GEMMs, FLOP/s.
        bf16_flops: dense 16-bit peak, FLOP/s.
    """

    family: WeightFamily
    attention_bytes: float
    dense_bytes: float
    expert_bytes: float
    padded_experts: bool
    attention_flops: float
    dense_flops: float
    ffn_flops: float
    bf16_flops: float


def quant_family(model: Model, gpu: Gpu, precision: str | None = None) -> WeightFamily:
    """Kind of weights and GEMMs: ``bf16``, ``fp8``, ``fp4`` or ``w4``.

    4-bit weights run native FP4 GEMMs only on GPUs with FP4 units; elsewhere they are unpacked
    and multiplied at 16 bit (``w4``), and so are INT4 weights everywhere. FP8 weights on GPUs without FP8
    units (A100) stay ``fp8``: they are stored in 8 bits and multiplied at the 16-bit peak.

    Args:
        model: architecture with the checkpoint's own family.
        gpu: accelerator with its dense peaks.
        precision: ``auto`` or None for the checkpoint's own type, or ``bf16``, ``fp8``, ``fp4``, ``w4``.

    Raises:
        ValueError: if the precision is unknown or finer than the checkpoint.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> catalog = load_catalog()
        >>> [quant_family(catalog.model("gpt-oss-120b"), catalog.gpu(name)) for name in ("h100-sxm", "b200-sxm")]
        ['w4', 'fp4']
    """
    if problem := precision_problem(model, precision):
        raise ValueError(problem)
    own, wanted = _own_family(model), (precision or "auto").lower()
    chosen = own if wanted == "auto" else wanted
    if chosen == "fp4":
        return "fp4" if has_fp4_units(gpu) else "w4"
    return "bf16" if chosen == "bf16" else "fp8" if chosen == "fp8" else "w4"


def precision_problem(model: Model, precision: str | None) -> str:
    """Why a checkpoint cannot be served at a precision, empty where it can; an unknown one raises ValueError."""
    own, wanted = _own_family(model), (precision or "auto").lower()
    if wanted not in PRECISION_NAMES:
        raise ValueError(f"precision: unknown {precision!r}; use one of {', '.join(PRECISION_NAMES)}")
    if wanted in ("auto", own) or own not in ("fp4", "w4"):
        return ""
    return f"precision: {wanted!r} needs more bits than the 4-bit checkpoint of {model.name} has; use 'auto'"


def precision_of(model: Model, gpu: Gpu, precision: str | None = None) -> Precision:
    """Bytes per weight and GEMM peaks of ``model`` on ``gpu``; see :class:`Precision`.

    Raises:
        ValueError: if the precision does not exist or the GPU's 16-bit peak is unknown.
    """
    family = quant_family(model, gpu, precision)
    bf16_flops = gpu.dense_tflops.get("bf16", 0.0) * 1e12
    if bf16_flops <= 0:
        raise ValueError(f"gpu: {gpu.name} has no dense bf16 peak in the catalog; state dense_tflops.bf16 for it")
    native_4_bit = model.weight_family in ("fp4", "w4")
    if family == "bf16":
        ffn_bytes = BYTES_16_BIT
    elif family == "fp8":
        ffn_bytes = BYTES_FP8
    elif family == "fp4":
        ffn_bytes = BYTES_NVFP4  # what native kernels were fitted with, whatever 4-bit format the checkpoint has
    else:
        ffn_bytes = model.expert_bits / 8 if native_4_bit else BYTES_INT4
    # Quantisers leave the attention of 4-bit mixture-of-experts checkpoints at 16 bit (gpt-oss, R1 FP4), and
    # int4 ones (Kimi K2 Thinking) everything but the routed experts.
    four_bit_moe = family in ("fp4", "w4") and model.moe is not None
    int4_experts_only = four_bit_moe and model.native_dtype.startswith("int4")
    as_shipped = (precision or "auto").lower() in ("auto", _own_family(model))
    wide_attention = four_bit_moe or (as_shipped and model.attention_16_bit)
    wide_dense = int4_experts_only or (as_shipped and model.dense_16_bit)
    # MXFP4 weights meet 8-bit activations: the units run at the FP8 rate.
    mixed = family == "fp4" and model.native_dtype.startswith("mxfp4")
    ffn_flops = _peak(gpu, "fp8" if mixed else family, bf16_flops)
    return Precision(
        family=family,
        attention_bytes=BYTES_16_BIT if wide_attention else ffn_bytes,
        dense_bytes=BYTES_16_BIT if wide_dense else ffn_bytes,
        expert_bytes=ffn_bytes,
        # The kernels that unpack MXFP4 where there are no FP4 units.
        padded_experts=family == "w4" and model.native_dtype.startswith("mxfp4"),
        attention_flops=bf16_flops if wide_attention else ffn_flops,
        dense_flops=bf16_flops if wide_dense else ffn_flops,
        ffn_flops=ffn_flops,
        bf16_flops=bf16_flops,
    )


def kv_element_bytes(model: Model, engine: Engine, precision: str | None = None) -> float:
    """Bytes of one KV element: 2 at 16 bit, 1 at FP8.

    ``auto`` is 16 bit, except under TensorRT-LLM, whose FP8 and FP4 checkpoints come with scales for an FP8
    cache; MXFP4 and INT4 checkpoints have none.
    """
    if engine.kv_dtype == "auto":
        as_shipped = (precision or "auto").lower() in ("auto", model.weight_family)
        quantised = model.weight_family != "bf16" if as_shipped else precision != "bf16"
        scaled = quantised and not (as_shipped and model.native_dtype.startswith(("mxfp4", "int4")))
        return BYTES_FP8 if engine.name == "tensorrt-llm" and scaled else BYTES_16_BIT
    return BYTES_FP8 if engine.kv_dtype == "fp8" else BYTES_16_BIT


def has_fp4_units(gpu: Gpu) -> bool:
    """Whether FP4 GEMMs run faster than FP8 ones."""
    slower = max(gpu.dense_tflops.get("fp8", 0.0), gpu.dense_tflops.get("bf16", 0.0))
    return gpu.dense_tflops.get("fp4", 0.0) > slower


def has_fp8_units(gpu: Gpu) -> bool:
    """Whether FP8 GEMMs run faster than 16-bit ones."""
    return gpu.dense_tflops.get("fp8", 0.0) > gpu.dense_tflops.get("bf16", 0.0)


def _own_family(model: Model) -> WeightFamily:
    return "w4" if model.native_dtype.startswith("int4") else model.weight_family


def _peak(gpu: Gpu, family: WeightFamily, bf16_flops: float) -> float:
    if family in ("fp8", "fp4"):
        return max(gpu.dense_tflops.get(family, 0.0) * 1e12, bf16_flops)
    return bf16_flops
