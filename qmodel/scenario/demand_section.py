"""Demand that is uncertain, as a scenario file writes it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from qmodel.scenario.length_section import LengthSpec
from qmodel.scenario.sections import PART_BRANCHES, Complaint, Name, Positive, Section, Tokens, refusal
from qmodel.types import Risk

__all__ = ["DemandScenario", "DemandSpec", "LengthChange", "Part"]

_ROUNDING = 1e-6  # of weights that add up to 1
_WORD, _SECTION = PART_BRANCHES


Factor = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]


class LengthChange(Section):
    """How long the requests of a class are in a scenario, where that differs."""

    prompt_factor: Factor | None = Field(
        default=None, description="Factor on every prompt length; excludes prompt_tokens."
    )
    output_factor: Factor | None = Field(
        default=None,
        description="Factor on every output length, before any cap (max_tokens, budget); excludes laws of outputs.",
    )
    prompt_tokens: LengthSpec | None = Field(default=None, description="Law of the prompt length instead.")
    output_tokens: LengthSpec | None = Field(default=None, description="Law of the output length instead.")
    reasoning_tokens: LengthSpec | None = Field(default=None, description="Law of the thinking tokens instead.")
    answer_tokens: LengthSpec | None = Field(default=None, description="Law of the visible answer instead.")
    max_tokens: Tokens | None = Field(default=None, description="Most output tokens of a request instead.")

    def complaints(self) -> Iterator[Complaint]:
        if not self.model_fields_set or all(getattr(self, name) is None for name in self.model_fields_set):
            yield Complaint("changes nothing", hint="write {output_factor: 1.3}, or leave it out")
        pairs = [("prompt_factor", "prompt_tokens")]
        pairs += [("output_factor", law) for law in ("output_tokens", "reasoning_tokens", "answer_tokens")]
        for factor, law in pairs:
            if getattr(self, factor) is not None and getattr(self, law) is not None:
                yield Complaint(f"states {factor} and {law}, which exclude each other", hint="keep one of them")


class DemandScenario(Section):
    """One way in which the demand may turn out."""

    weight: Positive = Field(description="Its probability; those of all scenarios add up to 1.")
    factors: dict[Name, Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]] = Field(
        default_factory=dict, description="Factors on the rates of classes; 1 for those left out."
    )
    lengths: dict[Name, LengthChange] = Field(
        default_factory=dict, description="Lengths of classes in this scenario, where they are not those of the class."
    )


class Part(Section):
    """The part of the scenarios that counts: those that are served, or the dearest."""

    quantile: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Least weight of the scenarios that one fleet serves; the plan chooses which."
    )
    cvar: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="Level a: the cost is the mean of the dearest 1 - a of what may come (conditional value at risk).",
    )
    weight: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="With cvar, its weight beside that of the mean cost of all scenarios; 1 if left out."
    )

    def complaints(self) -> Iterator[Complaint]:
        if (self.quantile is None) == (self.cvar is None):
            stated = "neither" if self.cvar is None else "both"
            yield Complaint(f"states {stated} of quantile and cvar", hint="write {quantile: 0.9} or {cvar: 0.9}")
        elif self.weight is not None and self.cvar is None:
            yield Complaint("belongs to cvar", ("weight",), "leave it out")


def _word_or_part(value: object) -> object:
    if value in ("all", "mean") or isinstance(value, Mapping | Part):
        return value
    hint = f"write {{{value}: 0.9}}" if value in ("quantile", "cvar") else ""
    raise refusal(f"must be all, mean, {{quantile: 0.9}} or {{cvar: 0.9}} (got {value!r})", hint)


def _branch(value: object) -> str:
    return _WORD if isinstance(value, str) else _SECTION


PlanFor = Annotated[
    Annotated[Literal["all", "mean"], Tag(_WORD)] | Annotated[Part, Tag(_SECTION)],
    Discriminator(_branch),
    BeforeValidator(_word_or_part),
]


class DemandSpec(Section):
    """Demand as scenarios with weights, and which of them the plan is for."""

    scenarios: Annotated[dict[Name, DemandScenario], Field(min_length=1)] = Field(
        description="Scenarios of the demand by name."
    )
    plan_for: PlanFor = Field(
        default="all",
        description="all: one fleet serves every scenario; {quantile: 0.9}: one fleet serves scenarios of at least "
        "that weight; mean: GPUs that are paid anyway are chosen first, others by scenario, at the least mean cost; "
        "{cvar: 0.9}: likewise, at the least mean cost of the dearest tenth of what may come.",
    )

    @property
    def fleet_changes(self) -> bool:
        """Whether a part of the fleet is bought after it is known which scenario comes."""
        return self.plan_for == "mean" or self.risk is not None

    @property
    def least_weight(self) -> float:
        """Of the scenarios that are served."""
        return self.plan_for.quantile or 1.0 if isinstance(self.plan_for, Part) else 1.0

    @property
    def risk(self) -> Risk | None:
        """The dearest part that counts; None: it does not."""
        if isinstance(self.plan_for, Part) and self.plan_for.cvar is not None:
            return Risk(level=self.plan_for.cvar, weight=self.plan_for.weight or 1.0)
        return None

    def complaints(self) -> Iterator[Complaint]:
        total = sum(item.weight for item in self.scenarios.values())
        if not math.isclose(total, 1.0, rel_tol=_ROUNDING):
            yield Complaint(f"weights must add up to 1 (got {total:g})", ("scenarios",), "they are probabilities")
