"""What a plan makes small or large, as a scenario file writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from qmodel.scenario.class_section import slo_from_key
from qmodel.scenario.patience_section import ABANDONED
from qmodel.scenario.sections import Complaint, Name, Section, refusal

__all__ = ["Objective"]

_COST = "cost_usd_per_hour"


def _known_objective(value: str) -> str:
    if value == _COST:
        return value
    if value == ABANDONED:
        raise refusal(
            f"must be {_COST} or a target in seconds (got {value!r})", f"state it as a target: slo: {{{value}: 0.01}}"
        )
    try:
        return slo_from_key(value, 1.0).key
    except ValueError as error:
        _, _, hint = str(error).partition("; ")
        raise refusal(f"must be {_COST} or a target such as ttft_p95_s (got {value!r})", hint) from None


class Objective(Section):
    """What a plan makes small, or large."""

    minimize: Annotated[str, AfterValidator(_known_objective)] | None = Field(
        default=None,
        description="cost_usd_per_hour (default), or a target such as ttft_p95_s: the least value of it that the "
        "limits of the fleet allow.",
    )
    maximize: Literal["served_rps"] | None = Field(
        default=None,
        description="served_rps: as many requests per second as the limits allow, important classes first.",
    )
    cls: Name | None = Field(default=None, alias="class", description="The class whose target is made small.")

    @property
    def target_key(self) -> str | None:
        """The key of the target that is made small; None for any other objective."""
        return None if self.minimize == _COST else self.minimize

    def complaints(self) -> Iterator[Complaint]:
        if self.minimize is not None and self.maximize is not None:
            what = "states minimize and maximize, which exclude each other"
            yield Complaint(what, hint="keep one of them", about=("minimize", "maximize"))
        elif self.target_key is not None and self.cls is None:
            hint = f"write objective: {{minimize: {self.target_key}, class: <name of the class>}}"
            yield Complaint(f"minimize: {self.target_key} does not say whose", hint=hint, about=("minimize",))
        elif self.target_key is None and self.cls is not None:
            yield Complaint(
                "belongs to a target; cost and served requests are those of all classes", ("class",), "leave class out"
            )
