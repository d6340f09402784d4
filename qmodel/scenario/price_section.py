"""Prices of GPUs, and limits of those who sell them, as a scenario file writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from qmodel.scenario.sections import Complaint, NonNegative, Positive, Section, Stock, Text, as_tuple, refusal

__all__ = [
    "OwnedSpec",
    "PriceBook",
    "PriceSpec",
    "QuotaSpec",
    "SpotSpec",
    "StatedPriceSpec",
    "Term",
    "TierSpec",
    "no_term_twice",
]

BookTerm = Literal["on_demand", "reserved_1y", "reserved_3y", "spot"]
Term = Literal["on_demand", "reserved_1y", "reserved_3y", "spot", "owned"]


class StatedPriceSpec(Section):
    """What one GPU costs per hour, as stated or by its term."""

    term: Term | None = Field(default=None, description="on_demand, reserved_1y, reserved_3y, spot or owned.")
    usd_per_gpu_hour: Positive | None = Field(
        default=None, description="US dollars per GPU and hour, above 0; from the price book if left out."
    )

    def complaints(self) -> Iterator[Complaint]:
        if not self.model_fields_set:
            yield Complaint("is empty", hint="write price: {usd_per_gpu_hour: 3.8}, or leave it out")


class OwnedSpec(Section):
    """What a GPU of one's own costs: purchase, power, operation."""

    capex_usd_per_gpu: Positive = Field(description="Price of purchase of one GPU with its part of the rest, USD.")
    years: Annotated[float, Field(gt=0, le=100)] = Field(description="Years of use.")
    salvage_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Share of the price that is got back at the end."
    )
    interest: Annotated[float, Field(ge=0, le=1)] = Field(default=0.0, description="Yearly interest, 0.08 for 8 %.")
    power_w: Positive | None = Field(
        default=None,
        description="Power of one GPU with its part of the node, W; that of the entry if left out.",
    )
    pue: Annotated[float, Field(ge=1, le=10)] = Field(
        description="Power of the building over that of its machines, at least 1."
    )
    usd_per_kwh: NonNegative = Field(description="Price of electricity, USD per kWh.")
    opex_usd_per_gpu_hour: NonNegative = Field(
        default=0.0, description="Whatever else its operation takes, USD per GPU and hour."
    )


class PriceSpec(StatedPriceSpec):
    """What one GPU costs per hour: as stated, by its term, or as one's own."""

    owned: OwnedSpec | None = Field(default=None, description="A GPU of one's own: what it costs is worked out.")

    @property
    def tier(self) -> Term | None:
        """The term, which is owned where that is stated in full."""
        return "owned" if self.owned is not None else self.term

    def complaints(self) -> Iterator[Complaint]:
        yield from super().complaints()
        if self.owned is not None and self.usd_per_gpu_hour is not None:
            yield Complaint(
                "states owned and usd_per_gpu_hour, which exclude each other",
                hint="keep one of them; in a variant or override '~' removes what the file states",
                about=("owned", "usd_per_gpu_hour"),
            )
        if self.owned is not None and self.term not in (None, "owned"):
            yield Complaint(f"is {self.term}, and owned is stated beside it", ("term",), "leave term out, or use owned")
        if self.term == "owned" and self.owned is None and self.usd_per_gpu_hour is None:
            yield Complaint(
                "has no price: no price book knows what your own GPUs cost",
                ("term",),
                "add usd_per_gpu_hour, or owned: {capex_usd_per_gpu: ..., years: ..., pue: ..., usd_per_kwh: ...}",
            )


class TierSpec(PriceSpec):
    """One of several prices of a GPU, and how many can be had at it."""

    max_count: Stock | None = Field(default=None, description="GPUs to be had at this price; no limit if left out.")

    def complaints(self) -> Iterator[Complaint]:
        yield from super().complaints()
        if self.tier is None:
            yield Complaint("needs a term", hint="on_demand, reserved_1y, reserved_3y or owned")
        elif self.tier == "spot":
            yield Complaint(
                "spot GPUs may be taken away, so they cannot stand in for others",
                ("term",),
                "give them an entry of their own in fleet.gpus, with spot: {preemptions_per_hour: ..., restart_s: ...}",
            )


def no_term_twice(tiers: tuple[TierSpec, ...]) -> tuple[TierSpec, ...]:
    """Tiers of which each has a term of its own."""
    terms = [tier.tier for tier in tiers]
    twice = [term for place, term in enumerate(terms) if term in terms[:place]]
    if twice:
        raise refusal(f"states the term {twice[0]} twice", "add up their max_count, or use another entry of fleet.gpus")
    return tiers


def _all_or_list(value: object) -> object:
    if value == "all":
        return None
    if isinstance(value, str):
        raise refusal(f"must be all or a list of providers (got {value!r})", f"write [{value}]")
    return as_tuple(value)


class PriceBook(Section):
    """Rule that picks prices from the catalog where a GPU states none."""

    providers: Annotated[
        tuple[Text, ...] | None,
        BeforeValidator(_all_or_list, json_schema_input_type=Literal["all"] | list[str]),
    ] = Field(default=None, description="all (default), or a list of providers.")
    term: BookTerm = Field(default="on_demand", description="on_demand, reserved_1y, reserved_3y or spot.")
    market: Literal["default", "any"] = Field(
        default="default", description="default leaves serverless and marketplace offers out; any takes all."
    )
    choose: Literal["median", "min", "max"] = Field(
        default="median", description="Which of the prices found is used: median, min or max."
    )


class SpotSpec(Section):
    """How often spot GPUs are taken away, and what a pool must bear."""

    preemptions_per_hour: Annotated[float, Field(ge=0, le=3600)] = Field(
        description="How often one instance is taken away while it serves, per hour."
    )
    restart_s: Annotated[float, Field(gt=0, le=1e6)] = Field(
        description="Seconds from then until what it held serves again elsewhere: a new instance, boot, weights."
    )
    instance_gpus: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        default=None, description="GPUs that are lost together; those of the node if left out."
    )
    share_of_time: Annotated[float, Field(ge=0.5, lt=1)] = Field(
        default=0.99, description="Targets hold with the replicas that are up in this share of the time."
    )


class QuotaSpec(Section):
    """What may be had from one provider, or in one region."""

    max_gpus: Stock | None = Field(default=None, description="GPUs of all its entries; no limit if left out.")
    max_usd_per_hour: Positive | None = Field(
        default=None, description="What all its entries may cost, USD per hour; no limit if left out."
    )

    def complaints(self) -> Iterator[Complaint]:
        if self.max_gpus is None and self.max_usd_per_hour is None:
            yield Complaint("is empty", hint="state max_gpus or max_usd_per_hour, or leave it out")
