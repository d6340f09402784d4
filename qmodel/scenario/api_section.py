"""Models that somebody else serves, priced by the token, as a scenario file writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from qmodel.scenario.class_section import known_target
from qmodel.scenario.sections import Complaint, Name, NonNegative, Positive, Rate, Section, Text, as_tuple

__all__ = ["ApiModelSpec", "ApiSpec"]


class ApiModelSpec(Section):
    """One model of one provider: its prices and what is said of its latency."""

    usd_per_million_input: NonNegative = Field(description="USD per million prompt tokens.")
    usd_per_million_output: NonNegative = Field(description="USD per million output tokens, thinking included.")
    max_rate_rps: Rate | None = Field(
        default=None, description="Most requests per second of all classes together; no limit if left out."
    )
    latency: dict[Annotated[str, AfterValidator(known_target)], Positive] = Field(
        default_factory=dict, description="What is promised or was measured, as targets are written: {ttft_p95_s: 0.8}."
    )
    meets: Annotated[tuple[Name, ...], BeforeValidator(as_tuple)] = Field(
        default=(), description="Instead of latency: the classes whose targets it meets; others are not sent there."
    )

    def complaints(self) -> Iterator[Complaint]:
        if self.latency and self.meets:
            yield Complaint(
                "states latency and meets, which exclude each other",
                hint="keep one of them; in a variant or override '~' removes what the file states",
                about=("latency", "meets"),
            )
        if not self.latency and not self.meets:
            yield Complaint(
                "does not say how fast it is",
                hint="state latency: {ttft_p95_s: ...}, or under meets the classes whose targets it meets",
            )
        if self.usd_per_million_input == 0.0 and self.usd_per_million_output == 0.0:
            yield Complaint("costs nothing", ("usd_per_million_output",), "state a price above 0 of input or output")


class ApiSpec(Section):
    """One provider of an API."""

    models: Annotated[dict[Text, ApiModelSpec], Field(min_length=1)] = Field(
        description="Its models, by the names that classes use."
    )
