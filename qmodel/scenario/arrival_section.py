"""How requests arrive, as a scenario file writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from qmodel.scenario.sections import Complaint, Positive, Rate, Section

__all__ = ["Arrivals", "PeakednessSpec", "RateSwings"]

_SHAPES = ("scv", "peakedness", "mmpp", "batch_size")


class PeakednessSpec(Section):
    """Burstiness as the spread of the number of requests in progress."""

    z: Annotated[float, Field(ge=1, le=1e4, allow_inf_nan=False)] = Field(
        description="Variance over mean of the number in progress if each request stayed at_s on average; 1 is Poisson."
    )
    at_s: Positive = Field(description="Mean stay that z was measured for, s; bursts are taken to last about as long.")


class RateSwings(Section):
    """A Poisson process whose rate jumps between a peak and a base rate (MMPP)."""

    peak_to_mean: Annotated[float, Field(ge=1, le=1e4, allow_inf_nan=False)] = Field(
        description="Peak rate over the mean rate."
    )
    mean_peak_s: Positive = Field(description="Mean time that the peak rate lasts, s.")
    mean_base_s: Positive = Field(description="Mean time that the base rate lasts, s.")

    @property
    def most(self) -> float:
        """Peak rate over mean rate where nothing arrives at the base rate."""
        return (self.mean_peak_s + self.mean_base_s) / self.mean_peak_s

    def complaints(self) -> Iterator[Complaint]:
        if self.peak_to_mean > self.most * (1.0 + 1e-9):
            what = (
                f"must be at most {self.most:.4g}, where nothing arrives outside the peaks (got {self.peak_to_mean:g})"
            )
            yield Complaint(what, key=("peak_to_mean",), hint="lower it, or make mean_base_s longer")


class Arrivals(Section):
    """How requests arrive: at a mean rate, and in which shape; Poisson where none is stated."""

    rate_rps: Rate = Field(description="Mean arrival rate, requests per second.")
    scv: Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Squared coefficient of variation of independent gamma gaps; 0: evenly spaced, 1: Poisson.",
    )
    peakedness: PeakednessSpec | None = Field(default=None, description="Burstiness at one time scale.")
    mmpp: RateSwings | None = Field(default=None, description="A rate that jumps between a peak and a base.")
    batch_size: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] | None = Field(
        default=None, description="Mean requests of a batch that comes at one instant; sizes are geometric."
    )

    def complaints(self) -> Iterator[Complaint]:
        stated = tuple(name for name in _SHAPES if getattr(self, name) is not None)
        if len(stated) > 1:
            yield Complaint(
                f"states {' and '.join(stated)}, which exclude each other", hint="keep one of them", about=stated
            )
