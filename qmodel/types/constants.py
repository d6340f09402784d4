"""Step-time constants as a record: what was fitted, on which points, and how far it may be off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

__all__ = ["BandLevel", "CalibratedConstants", "ConstantsOverride", "EngineConstants", "GpuSpec"]


class GpuSpec(TypedDict):
    """Hardware figures the constants were fitted with; FLOP/s and bytes/s, memory in GiB."""

    constants_row: str
    hbm_bw_Bps: float
    dense_bf16_flops: float
    dense_fp8_flops: float
    dense_fp4_flops: float
    hbm_usable_GiB: float
    scaleup_uni_Bps: float


class ConstantsOverride(TypedDict):
    """Constants fitted on one GPU, engine and weight type, with the models they were fitted on."""

    gpu: str
    engine: str
    quant: str
    n_points: int
    n_by_quantity: dict[str, int]
    models: list[str]
    classes: list[str]
    constants: dict[str, float]
    at_bound: list[str]
    not_identified_here: list[str]
    band: dict[str, float | None]


class CalibratedConstants(TypedDict):
    """Constants that a user's own measurements moved, of one model, GPU, engine and weight type.

    ``layouts`` are those that were measured, written as ``tp4`` or ``tp8-dp8``; ``band`` holds relative errors
    (``p50``, ``p90``) of predictions on points that were left out of the fit.
    """

    model: str
    gpu: str
    engine: str
    precision: str
    layouts: list[str]
    points: int
    largest_batch: float
    largest_context_tokens: float
    constants: dict[str, float]
    band: dict[str, float]
    as_of: str


class BandLevel(TypedDict, total=False):
    """Absolute percentage error of one level of evidence: half, and nine in ten, lie within; per cent."""

    p50: float
    p90: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineConstants:
    """The constants of the step-time model, level by level.

    A constant of a GPU row is multiplied by the factors of engine, weight type and model class, then
    capped; an override replaces the first three. Names and units of the constants: see ``units``.

    Attributes:
        gpus: specifications the constants were fitted with, by the name used there.
        gpu_defaults: constants by row (``H100``, ``B200``, ...).
        gpu_default_evidence: development points and status (``fitted``, ``thin``, ``guess: ...``) by row.
        engine_factors: factors by engine family (``vLLM``, ``SGLang``, ``TRT``, ``TRTcpp``, ``legacy``).
        quant_factors: factors by weight type (``bf16``, ``fp8``, ``fp4``, ``w4``).
        class_factors: factors by model class (``dense``, ``moe``, ``mla``).
        caps: upper limits of efficiencies.
        overrides: fits of one GPU row, engine and weight type.
        calibrations: the user's own fits of one model, GPU, engine and weight type; they win over all else.
        bands: error of the time per output token by level of evidence, per cent.
        bands_offline: error of offline throughput by level of evidence, per cent.
        bytes_per_weight: bytes by weight type, scales included.
        memory: what each engine family leaves for KV, as it was fitted.
        units: unit of each constant.
        source: where the numbers come from.
        as_of: date of the fit.

    Example:
        >>> constants = EngineConstants.from_dict({"caps": {"e_w": 0.97}, "as_of": "2026-11-29"})
        >>> constants.caps["e_w"], constants.override("H100", "vLLM", "bf16")
        (0.97, None)
    """

    gpus: Mapping[str, GpuSpec] = field(default_factory=dict)
    gpu_defaults: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    gpu_default_evidence: Mapping[str, Mapping[str, int | str]] = field(default_factory=dict)
    engine_factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    quant_factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    class_factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    caps: Mapping[str, float] = field(default_factory=dict)
    overrides: tuple[ConstantsOverride, ...] = ()
    calibrations: tuple[CalibratedConstants, ...] = ()
    bands: Mapping[str, BandLevel] = field(default_factory=dict)
    bands_offline: Mapping[str, BandLevel] = field(default_factory=dict)
    bytes_per_weight: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    as_of: str = ""

    def override(self, row: str, engine: str, quant: str) -> ConstantsOverride | None:
        """The fit of this GPU row, engine family and weight type, None where there is none."""
        for item in self.overrides:
            if (item["gpu"], item["engine"], item["quant"]) == (row, engine, quant):
                return item
        return None

    def calibration(self, model: str, gpu: str, engine: str, precision: str) -> CalibratedConstants | None:
        """The user's fit of this model, GPU, engine (by its catalog name) and weight type, None without one."""
        for item in self.calibrations:
            if (item["model"], item["gpu"], item["engine"], item["precision"]) == (model, gpu, engine, precision):
                return item
        return None

    def to_dict(self) -> dict[str, object]:
        """Plain data; the inverse of :meth:`from_dict`."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        bands, offline = plain.pop("bands"), plain.pop("bands_offline")
        return {
            **plain,
            "overrides": list(self.overrides),
            "calibrations": list(self.calibrations),
            "fallback": {"bands_tpot_ape_pct": bands, "bands_offline_ape_pct": offline},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> EngineConstants:
        """The record of a constants file read as plain data; keys that are not constants are left out."""
        known = {name: data[name] for name in cls.__slots__ if name in data}
        fallback = data.get("fallback")
        if isinstance(fallback, Mapping):
            known["bands"] = fallback.get("bands_tpot_ape_pct", {})
            known["bands_offline"] = fallback.get("bands_offline_ape_pct", {})
        for name in ("overrides", "calibrations"):
            listed = known.get(name, ())
            assert isinstance(listed, list | tuple)
            known[name] = tuple(listed)
        return cls(**known)  # type: ignore[arg-type]  # the catalog's schema has checked the shape
