"""How requests arrive, as a scenario file writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from qmodel.scenario.sections import MOST_RPS, Complaint, Positive, Rate, Section, as_tuple, refusal
from qmodel.types import HOURS

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


def _whole_day(factors: tuple[float, ...]) -> tuple[float, ...]:
    if len(factors) != HOURS:
        raise refusal(
            f"must have {HOURS} factors, one for each hour of the day (got {len(factors)})",
            "the first is for the hour that starts at midnight",
        )
    if not any(factors):
        raise refusal("is 0 in every hour", "leave the class out, or give it a rate in some hour")
    return factors


Factor = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class Arrivals(Section):
    """How requests arrive: at a mean rate, and in which shape; Poisson where none is stated."""

    rate_rps: Rate = Field(description="Mean arrival rate, requests per second; with a profile, where its factor is 1.")
    profile: Annotated[tuple[Factor, ...], BeforeValidator(as_tuple), AfterValidator(_whole_day)] | None = Field(
        default=None, description="24 factors on rate_rps, one for each hour of the day from midnight on."
    )
    hours: bool = Field(
        default=False,
        description="With a profile: the fleet may change by the hour; else one fleet serves every hour.",
    )
    scv: Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Squared coefficient of variation of independent gamma gaps; 0: evenly spaced, 1: Poisson.",
    )
    peakedness: PeakednessSpec | None = Field(default=None, description="Burstiness at one time scale.")
    mmpp: RateSwings | None = Field(default=None, description="A rate that jumps between a peak and a base.")
    batch_size: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] | None = Field(
        default=None, description="Mean requests of a batch that comes at one instant; sizes are geometric."
    )

    @property
    def shape(self) -> str:
        """The key that states a shape other than Poisson; empty where none does."""
        return next((name for name in _SHAPES if getattr(self, name) is not None), "")

    @property
    def busiest_rps(self) -> float:
        """Mean rate in the busiest hour, requests per second."""
        return self.rate_rps * max(self.profile or (1.0,))

    def complaints(self) -> Iterator[Complaint]:
        if self.hours and self.profile is None:
            yield Complaint("hours: true has no profile to follow", ("hours",), "add profile: [24 factors on rate_rps]")
        if self.busiest_rps > MOST_RPS:
            what = (
                f"makes {self.busiest_rps:g} requests per second of the busiest hour, at most {MOST_RPS:g} make sense"
            )
            yield Complaint(what, ("profile",), "lower the factors or rate_rps")
        stated = tuple(name for name in _SHAPES if getattr(self, name) is not None)
        if len(stated) > 1:
            yield Complaint(
                f"states {' and '.join(stated)}, which exclude each other", hint="keep one of them", about=stated
            )
