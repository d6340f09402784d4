"""Constants of the step-time model for one model, GPU, engine and weight type, with their error band."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from qmodel.perf.precision import quant_family
from qmodel.types.constants import CalibratedConstants, ConstantsOverride, EngineConstants
from qmodel.types.hardware import Confidence, Gpu, Model
from qmodel.types.layouts import Engine, Layout
from qmodel.types.replica import Band

__all__ = ["StepConstants", "layout_band", "model_class", "resolve_constants", "unseen_band"]

BAND_EXACT = "exact override"
BAND_SLICE = "GPU x engine x model slice never seen"
BAND_GPU = "GPU never seen"
BAND_ARCHITECTURE = "MoE/MLA architecture never seen"
BAND_NOTHING = "nothing fitted (start values, final structure)"

# Engines of 2023-24: their overheads describe no engine that one would deploy.
NEVER_A_FALLBACK = ("legacy", "TRTcpp")
# Later checkpoints of the same shape as one that was fitted: new weights, same arithmetic.
SAME_SHAPE: Mapping[str, str] = {"deepseek-v3": "deepseek-r1", "deepseek-v3.1": "deepseek-r1"}
POINTS_OF_CONFIDENCE = 8  # below it the band of a calibration rests mostly on the band it started from
SAME_SPEED = 0.01  # relative: data sheets round peaks by less
SOFTWARE_CONSTANTS = ("c_l", "c_m", "h0", "ar_a")  # belong to the serving stack, not to the GPU
GENERATIONS: Mapping[str, tuple[str, ...]] = {
    "nvidia": ("volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-ultra"),
    "amd": ("cdna2", "cdna3", "cdna4"),
}
ROW_ARCHITECTURE: Mapping[str, str] = {
    "A100": "ampere",
    "L40S": "ada",
    "H100": "hopper",
    "H200": "hopper",
    "B200": "blackwell",
    "GB200": "blackwell",
    "MI300X": "cdna3",
    "MI355X": "cdna4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstants:
    """Efficiencies (fractions of a peak), fixed times (us, ms) and exponents of one step; see the theory page.

    Attributes:
        e_w: dense weight stream, fraction of HBM bandwidth.
        e_f: dense GEMM, fraction of the peak of its precision.
        e_kv: KV stream, fraction of HBM bandwidth.
        e_fa: decode attention, fraction of the bf16 peak.
        e_ap: prefill attention, fraction of the bf16 peak.
        e_mw: expert weight stream, fraction of HBM bandwidth.
        e_mf: grouped expert GEMM, fraction of the peak.
        m0: padding rows per active expert.
        eta: exponent on tokens in the law of distinct experts.
        w_h: columns of an expert on a GPU at which its GEMM reaches half of its rate.
        c_l: us per layer and pass.
        c_m: us per mixture layer and pass, added to ``c_l``.
        c_pl: us per layer, added where a pass has prefill tokens.
        ar_a: us per collective.
        ar_f: fraction of scale-up bandwidth that decoding tokens travel at.
        ar_fp: the same for prompt tokens.
        h0: ms of host time per pass.
        h1: us of host time per sequence, pass and attention rank.
        t_fe: ms before the first token in the front end; not part of a step.
        band: relative error of predicted times per output token.
        provenance: which level of evidence the constants come from.
        elsewhere: band in layouts other than ``measured_layouts``; None: ``band`` holds in every layout.
        measured_layouts: layouts that the user's own measurements cover, such as ``tp4``.
    """

    e_w: float
    e_f: float
    e_kv: float
    e_fa: float
    e_ap: float
    e_mw: float
    e_mf: float
    m0: float
    eta: float
    w_h: float
    c_l: float
    c_m: float
    c_pl: float
    ar_a: float
    ar_f: float
    ar_fp: float
    h0: float
    h1: float
    t_fe: float
    band: Band
    provenance: str
    elsewhere: Band | None = None
    measured_layouts: tuple[str, ...] = ()


def model_class(model: Model) -> str:
    """``mla``, ``moe`` or ``dense``: the class whose factors apply."""
    if model.mla:
        return "mla"
    return "moe" if model.moe else "dense"


def resolve_constants(
    model: Model, gpu: Gpu, engine: Engine, *, constants: EngineConstants, precision: str | None = None
) -> StepConstants:
    """The constants that apply, from the most specific evidence there is.

    1. The user's own calibration of this model, GPU, engine and weight type, as it stands.
    2. A fit of this GPU, engine and weight type, times the factors of the model class.
    3. The GPU's row times the factors of engine, weight type and model class, capped.
    4. An engine family without factors takes those of vLLM.
    5. A GPU without a row takes efficiencies from the nearest generation of its vendor, and fixed times
       from the median of the fits of current engines: overheads belong to software.

    Args:
        model: architecture; its name decides whether a fit counts as exact.
        gpu: accelerator.
        engine: its ``constants`` names the engine family.
        constants: the catalog's fitted constants.
        precision: as in :func:`quant_family`.

    Raises:
        ValueError: if the precision is unknown, or the constants lack a band that is needed.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> catalog = load_catalog()
        >>> found = resolve_constants(catalog.model("qwen3-32b"), catalog.gpu("h100-sxm"), Engine(),
        ...                           constants=catalog.constants)
        >>> found.band.level, found.band.p90
        ('exact override', 0.13)

    Reference: docs/theory/step-time.md, "Constants and bands".
    """
    family = quant_family(model, gpu, precision)
    own = constants.calibration(model.name, gpu.name, engine.name, family)
    if own is not None:
        usual = replace(constants, calibrations=())
        return _calibrated(own, resolve_constants(model, gpu, engine, constants=usual, precision=precision))
    kind = model_class(model)
    known_engine = engine.constants in constants.engine_factors
    engine_family = engine.constants if known_engine else "vLLM"
    row = gpu.constants_row if gpu.constants_row in constants.gpu_defaults else None
    own_row = row is not None and _row_is_own(gpu, row, constants)
    fit = constants.override(row, engine_family, family) if row else None
    if fit:
        values, source = dict(fit["constants"]), f"fit of {row} x {engine_family} x {family}"
    else:
        base = row or _nearest_row(gpu, constants)
        values = dict(constants.gpu_defaults[base])
        _multiply(values, constants.engine_factors.get(engine_family, {}))
        _multiply(values, constants.quant_factors.get(family, {}))
        source = f"row {base} x factors of {engine_family} x {family}"
        if row is None:
            values |= _median_overheads(constants)
            source += ", overheads: median of fitted engines"
    _multiply(values, constants.class_factors.get(kind, {}))
    values = {name: min(value, constants.caps.get(name, math.inf)) for name, value in values.items()}
    band = _band(model, gpu, fit if known_engine else None, own_row=own_row, constants=constants)
    numbers = {item.name: values[item.name] for item in fields(StepConstants) if item.name in values}
    return StepConstants(
        **numbers,
        band=band,
        provenance=f"{source} x class {kind} ({constants.as_of}); band: {band.level}",
        elsewhere=None,
        measured_layouts=(),
    )


def layout_band(found: StepConstants, layout: Layout, nodes: int, constants: EngineConstants) -> Band:
    """The band of a layout: next to no fitted row has attention ranks, stages, split contexts or several nodes.

    A calibration speaks for the layouts it was measured in; in others the band stays what it was without it.
    Few measured rows have attention ranks, real pipelines lose time to idle stages that the model leaves out, and only
    four published passes have collectives across nodes.
    """
    if nodes == 1 and found.measured_layouts and str(layout) in found.measured_layouts:
        return found.band
    band = found.elsewhere or found.band
    unseen = [
        name
        for name, present in (
            ("attention ranks", layout.dp > 1),
            ("pipeline stages", layout.pp > 1),
            ("context parallelism", layout.cp > 1),
            ("experts sliced over groups", 1 < layout.ep < layout.stage_gpus),
            ("several nodes", nodes > 1),
        )
        if present
    ]
    if not unseen:
        return band
    return unseen_band(band, " and ".join(unseen), constants)


def unseen_band(band: Band, what: str, constants: EngineConstants) -> Band:
    """The band of something that no fitted row has: at least that of a slice never seen."""
    floor = _level(BAND_SLICE, "low", constants)
    level = f"{what} never fitted; {band.level}"
    return Band(p50=max(band.p50, floor.p50), p90=max(band.p90, floor.p90), level=level, confidence="low")


def _calibrated(own: CalibratedConstants, usual: StepConstants) -> StepConstants:
    layouts = tuple(own["layouts"])
    many = own["points"] >= POINTS_OF_CONFIDENCE
    band = Band(
        p50=own["band"]["p50"],
        p90=own["band"]["p90"],
        level=f"calibrated on {own['points']} points in {', '.join(layouts)}",
        confidence="high" if many else "medium",
    )
    floor = Band(
        p50=max(band.p50, usual.band.p50),
        p90=max(band.p90, usual.band.p90),
        level=f"calibrated in {', '.join(layouts)} only; {usual.band.level}",
        confidence=usual.band.confidence,
    )
    provenance = (
        f"calibrated on {own['points']} measured points ({own['as_of']}), up to {own['largest_batch']:.0f} sequences"
        f" and {own['largest_context_tokens']:.0f} tokens of context, from: {usual.provenance}"
    )
    return replace(
        usual,
        **own["constants"],
        band=band,
        provenance=provenance,
        elsewhere=floor,
        measured_layouts=layouts,
    )


def _multiply(values: dict[str, float], factors: Mapping[str, float]) -> None:
    for name, factor in factors.items():
        values[name] = values[name] * factor


def _row_is_own(gpu: Gpu, row: str, constants: EngineConstants) -> bool:
    """Whether the row was fitted on this GPU, not borrowed from a sibling or filled with guesses.

    Of the GPUs that share a row the first is the one it was fitted on; a GPU with other speeds is another GPU.
    """
    if gpu.constants_status not in ("fitted", "thin"):
        return False
    spec = next((item for item in constants.gpus.values() if item["constants_row"] == row), None)
    if spec is None:
        return False
    fitted = {"bf16": spec["dense_bf16_flops"], "fp8": spec["dense_fp8_flops"], "fp4": spec["dense_fp4_flops"]}
    pairs = [(gpu.hbm_bandwidth_gbps * 1e9, spec["hbm_bw_Bps"]), (gpu.scale_up_gbps * 1e9, spec["scaleup_uni_Bps"])]
    pairs += [(gpu.dense_tflops[kind] * 1e12, peak) for kind, peak in fitted.items() if kind in gpu.dense_tflops]
    return all(math.isclose(mine, theirs, rel_tol=SAME_SPEED) for mine, theirs in pairs)


def _nearest_row(gpu: Gpu, constants: EngineConstants) -> str:
    """Row of the same vendor and nearest generation; among equals the nearest memory bandwidth."""
    order = GENERATIONS.get(gpu.vendor.lower(), ())
    rows = [row for row in constants.gpu_defaults if ROW_ARCHITECTURE.get(row) in order] or list(constants.gpu_defaults)
    own = order.index(gpu.architecture) if gpu.architecture in order else None
    bandwidth = {spec["constants_row"]: spec["hbm_bw_Bps"] for spec in reversed(list(constants.gpus.values()))}

    def distance(row: str) -> tuple[float, float, str]:
        steps = 0 if own is None else abs(order.index(ROW_ARCHITECTURE[row]) - own)
        gap = abs(math.log(bandwidth.get(row, 1e12) / (gpu.hbm_bandwidth_gbps * 1e9)))
        return (steps, gap, row)

    return min(rows, key=distance)


def _median_overheads(constants: EngineConstants) -> dict[str, float]:
    medians = {}
    for name in SOFTWARE_CONSTANTS:
        fitted = sorted(
            item["constants"][name] for item in constants.overrides if item["engine"] not in NEVER_A_FALLBACK
        )
        middle = len(fitted) // 2
        medians[name] = fitted[middle] if len(fitted) % 2 else (fitted[middle - 1] + fitted[middle]) / 2
    return medians


def _band(model: Model, gpu: Gpu, fit: ConstantsOverride | None, *, own_row: bool, constants: EngineConstants) -> Band:
    """The band of the gravest reason to doubt; an exact fit needs the very model it was made on."""
    name = model.name.lower()
    if fit and own_row and name in _names(fit):
        return _level(BAND_EXACT, "high", constants)
    seen = {other for item in constants.overrides for other in _names(item)}
    if model_class(model) != "dense" and SAME_SHAPE.get(name, name) not in seen:
        return _level(BAND_ARCHITECTURE, "low", constants)
    if not own_row:
        guessed = gpu.constants_status == "guess" or gpu.vendor.lower() not in GENERATIONS
        return _level(BAND_NOTHING if guessed else BAND_GPU, "low", constants)
    return _level(BAND_SLICE, "medium", constants)


def _names(fit: ConstantsOverride) -> set[str]:
    return {name.lower() for name in fit["models"]}


def _level(level: str, confidence: Confidence, constants: EngineConstants) -> Band:
    row = constants.bands.get(level)
    if row is None:
        raise ValueError(f"constants: no error band {level!r}; the file has {', '.join(constants.bands) or 'none'}")
    return Band(p50=row["p50"] / 100, p90=row["p90"] / 100, level=level, confidence=confidence)
