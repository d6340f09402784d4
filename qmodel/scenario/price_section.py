"""Prices of GPUs, and limits of those who sell them, as a scenario file writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from qmodel.scenario.sections import Complaint, Positive, Section, Stock, Text, as_tuple, refusal

__all__ = ["PriceBook", "PriceSpec", "QuotaSpec", "Term", "TierSpec", "no_term_twice"]

Term = Literal["on_demand", "reserved_1y", "reserved_3y", "spot"]


class PriceSpec(Section):
    """What one GPU costs per hour."""

    term: Term | None = Field(default=None, description="on_demand, reserved_1y, reserved_3y or spot.")
    usd_per_gpu_hour: Positive | None = Field(
        default=None, description="US dollars per GPU and hour, above 0; from the price book if left out."
    )

    def complaints(self) -> Iterator[Complaint]:
        if self.term is None and self.usd_per_gpu_hour is None:
            yield Complaint("is empty", hint="write price: {usd_per_gpu_hour: 3.8}, or leave it out")


class TierSpec(PriceSpec):
    """One of several prices of a GPU, and how many can be had at it."""

    max_count: Stock | None = Field(
        default=None, description="GPUs that can be had at this price; no limit if left out."
    )

    def complaints(self) -> Iterator[Complaint]:
        if self.term is None:
            yield Complaint("needs a term", hint="on_demand, reserved_1y or reserved_3y")
        elif self.term == "spot":
            yield Complaint(
                "spot GPUs may be taken away, so they cannot stand in for others",
                ("term",),
                "give them an entry of their own in fleet.gpus",
            )


def no_term_twice(tiers: tuple[TierSpec, ...]) -> tuple[TierSpec, ...]:
    """Tiers of which each has a term of its own."""
    terms = [tier.term for tier in tiers]
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
    term: Term = Field(default="on_demand", description="on_demand, reserved_1y, reserved_3y or spot.")
    market: Literal["default", "any"] = Field(
        default="default", description="default leaves serverless and marketplace offers out; any takes all."
    )
    choose: Literal["median", "min", "max"] = Field(
        default="median", description="Which of the prices found is used: median, min or max."
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
