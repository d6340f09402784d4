"""What a calibration found: factors, constants, errors before and after, and the band that predictions carry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from qmodel.calibration.files import calibration_text
from qmodel.calibration.forward import Quantity
from qmodel.calibration.measurements import LeftOut, SourceFile
from qmodel.calibration.validation import ErrorSummary
from qmodel.files import write_text
from qmodel.types import Band

__all__ = ["Calibration", "ErrorRow", "ParameterRow", "PointRow", "Standing"]

Standing = Literal["identified", "weak", "together", "left alone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRow:
    """One factor on the time of a part of the step.

    Attributes:
        parameter: its name.
        about: what it scales.
        standing: ``identified``: the points alone tell it; ``weak``: points and prior; ``together``: moved by what all
            measured parts have in common; ``left alone``.
        factor: on the time of the defaults; 1 where left alone.
        low: lower end of its 90 % interval; of the prior where left alone.
        high: upper end.
        before: constants that it scales, before.
        after: the same, after.
        reason: why it has no factor of its own, or which limit it ran into; else empty.
    """

    parameter: str
    about: str
    standing: Standing
    factor: float
    low: float
    high: float
    before: Mapping[str, float]
    after: Mapping[str, float]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """Errors of one measured quantity.

    Attributes:
        quantity: ``step``, ``tpot``, ``throughput`` or ``ttft``.
        before: with the defaults.
        left_out: with constants that were fitted without the point predicted.
        fitted: with the constants that were fitted to all points.
    """

    quantity: Quantity
    before: ErrorSummary
    left_out: ErrorSummary
    fitted: ErrorSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRow:
    """One measured number and its predictions, s; for throughput, seconds per token."""

    place: str
    layout: str
    quantity: Quantity
    batch: float
    measured_s: float
    before_s: float
    left_out_s: float
    fitted_s: float
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """Constants of one model, GPU, engine and weight type that measurements moved.

    Attributes:
        model, gpu, engine, precision: catalog names of what was measured, and the kind of weights.
        layouts: layouts that were measured.
        as_of: date of the calibration.
        points: measurements used.
        largest_batch: most sequences at once among them.
        largest_context_tokens: longest mean context among them.
        parameters: what was moved, and what was not.
        constants: constants after the calibration.
        noise: relative deviation of a measured time from the fitted model.
        errors: by quantity.
        rows: measured numbers with their predictions.
        left_out: measurements not used, and why.
        band_before: relative error of the defaults.
        band: relative error from now on.
        provenance: where the defaults come from.
        files: what was read.
    """

    model: str
    gpu: str
    engine: str
    precision: str
    layouts: tuple[str, ...]
    as_of: str
    points: int
    largest_batch: float
    largest_context_tokens: float
    parameters: tuple[ParameterRow, ...]
    constants: Mapping[str, float]
    noise: float
    errors: tuple[ErrorRow, ...]
    rows: tuple[PointRow, ...]
    left_out: tuple[LeftOut, ...] = ()
    band_before: Band
    band: Band
    provenance: str
    files: tuple[SourceFile, ...] = field(default=())

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            name: [asdict(item) for item in value] if name in _LISTS else asdict(value) if name in _BANDS else value
            for name in self.__slots__
            for value in [getattr(self, name)]
        } | {"layouts": list(self.layouts), "constants": dict(self.constants)}

    def catalog_entry(self) -> dict[str, object]:
        """The item of a catalog file's ``calibrations`` that makes predictions use these constants."""
        return {
            "model": self.model,
            "gpu": self.gpu,
            "engine": self.engine,
            "precision": self.precision,
            "layouts": list(self.layouts),
            "points": self.points,
            "largest_batch": self.largest_batch,
            "largest_context_tokens": self.largest_context_tokens,
            "band": {"p50": self.band.p50, "p90": self.band.p90},
            "constants": dict(self.constants),
            "factors": {
                item.parameter: {
                    "standing": item.standing,
                    "factor": item.factor,
                    "low": item.low,
                    "high": item.high,
                }
                for item in self.parameters
            },
            "errors": {
                item.quantity: {which: asdict(getattr(item, which)) for which in ("before", "left_out", "fitted")}
                for item in self.errors
            },
            "defaults": {
                "provenance": self.provenance,
                "band": {"p50": self.band_before.p50, "p90": self.band_before.p90},
            },
            "files": [asdict(item) for item in self.files],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a catalog file that holds this calibration, whole or not at all.

        Raises:
            ScenarioError: the folder is missing or not writable.
        """
        write_text(path, calibration_text(self.catalog_entry(), self.as_of, [item.file for item in self.files]))


_LISTS = ("parameters", "errors", "rows", "left_out", "files")
_BANDS = ("band_before", "band")
