"""Demand that is uncertain, as a scenario file writes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from qmodel.scenario.sections import Complaint, Name, Positive, Section

__all__ = ["DemandScenario", "DemandSpec"]

_ROUNDING = 1e-6  # of weights that add up to 1


class DemandScenario(Section):
    """One way in which the demand may turn out."""

    weight: Positive = Field(description="Its probability; those of all scenarios add up to 1.")
    factors: dict[Name, Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]] = Field(
        default_factory=dict, description="Factors on the rates of classes; 1 for those left out."
    )


class DemandSpec(Section):
    """Demand as scenarios with weights, and which of them the plan is for."""

    scenarios: Annotated[dict[Name, DemandScenario], Field(min_length=1)] = Field(
        description="Scenarios of the demand by name."
    )
    plan_for: Literal["all", "quantile", "mean"] = Field(
        default="all",
        description="all: one fleet serves every scenario; quantile: one fleet serves scenarios of at least the weight "
        "in quantile; mean: GPUs that are paid anyway are chosen first, others by scenario, at the least mean cost.",
    )
    quantile: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="With plan_for: quantile, the least weight of the scenarios that are served."
    )

    def complaints(self) -> Iterator[Complaint]:
        total = sum(item.weight for item in self.scenarios.values())
        if not math.isclose(total, 1.0, rel_tol=_ROUNDING):
            yield Complaint(f"weights must add up to 1 (got {total:g})", ("scenarios",), "they are probabilities")
        if self.plan_for == "quantile" and self.quantile is None:
            yield Complaint("plan_for: quantile needs quantile", ("plan_for",), "add quantile: 0.9")
        if self.plan_for != "quantile" and self.quantile is not None:
            yield Complaint(f"belongs to plan_for: quantile (got {self.plan_for})", ("quantile",), "leave it out")
