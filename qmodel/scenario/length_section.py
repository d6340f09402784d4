"""Length laws as a scenario file writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from qmodel.scenario.sections import Complaint, NonNegative, Positive, Section, Tokens, as_tuple, refusal

__all__ = ["Component", "LengthSpec", "NormalSpec"]

_LAWS = ("mean", "constant", "normal", "quantiles", "mixture")
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
_WEIGHT_TOLERANCE = 2e-3  # three weights of 0.333 are meant to be one

Cv = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
MeanTokens = Annotated[float, Field(ge=1, le=1e8, allow_inf_nan=False)]
LogTokens = Annotated[float, Field(ge=-5, le=20, allow_inf_nan=False)]
LogSpread = Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)]
Weight = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


def _percentile(key: str) -> str:
    match = _QUANTILE.fullmatch(key)
    if match is None or not 0 < float(match[1]) < 100:
        raise refusal(f"{key!r} is not a percentile", "write p50, p90 or p99.9")
    return key


class NormalSpec(Section):
    """A normal law, rounded to whole tokens and clipped: what lies outside sits on the limits."""

    mean: MeanTokens = Field(description="Mean of the law before it is clipped, tokens.")
    sd: NonNegative = Field(description="Standard deviation of the law before it is clipped, tokens.")
    min: Tokens = Field(default=1, description="Smallest length, tokens.")
    max: Tokens | None = Field(default=None, description="Largest length, tokens.")

    def complaints(self) -> Iterator[Complaint]:
        if self.max is not None and self.min >= self.max:
            yield Complaint(f"must be greater than min (got min {self.min}, max {self.max})", ("max",))


class Component(Section):
    """One lognormal part of a mixture."""

    weight: Weight = Field(description="Share of the requests; the weights of a mixture add up to 1.")
    mu: LogTokens | None = Field(default=None, description="Mean of the natural logarithm of the tokens.")
    sigma: LogSpread | None = Field(
        default=None, description="Standard deviation of the natural logarithm of the tokens."
    )
    mean: MeanTokens | None = Field(default=None, description="Mean, tokens; with cv instead of mu and sigma.")
    cv: Cv | None = Field(default=None, description="Coefficient of variation (standard deviation over mean).")

    def complaints(self) -> Iterator[Complaint]:
        given = tuple(name for name in ("mu", "sigma", "mean", "cv") if getattr(self, name) is not None)
        if given not in (("mu", "sigma"), ("mean", "cv")):
            yield Complaint("needs either mu and sigma, or mean and cv" + (f" (got {', '.join(given)})" * bool(given)))


class LengthSpec(Section):
    """A law of prompt or output lengths: exactly one of mean (lognormal), constant, normal, quantiles, mixture."""

    mean: MeanTokens | None = Field(default=None, description="Mean of a lognormal law, tokens; needs cv.")
    cv: Cv | None = Field(
        default=None, description="Coefficient of variation of the lognormal law (standard deviation over mean)."
    )
    constant: Tokens | None = Field(default=None, description="Every request has exactly this many tokens.")
    normal: NormalSpec | None = Field(default=None, description="A clipped normal law.")
    quantiles: dict[Annotated[str, AfterValidator(_percentile)], Positive] | None = Field(
        default=None, description="Percentiles of the length, tokens: {p50: 220, p90: 900}; at least two."
    )
    mixture: Annotated[tuple[Component, ...], Field(min_length=1), BeforeValidator(as_tuple)] | None = Field(
        default=None, description="Lognormal parts with weights that add up to 1."
    )
    max: Tokens | None = Field(
        default=None, description="No request is longer, tokens; at_cap tells what happens to those that would be."
    )
    budget: Tokens | None = Field(
        default=None, description="The same as max, for thinking tokens: the budget of the request."
    )
    at_cap: Literal["atom", "truncate"] | None = Field(
        default=None,
        description="What would exceed max or budget: atom (default) stops there, as engines do; truncate is left out.",
    )

    def complaints(self) -> Iterator[Complaint]:
        given = [name for name in _LAWS if getattr(self, name) is not None]
        if not given and self.cv is None:
            yield Complaint("names no law", hint="write {mean: 300, cv: 0.9}, or one of " + ", ".join(_LAWS[1:]))
        if len(given) > 1:
            hint = "keep one of them; in a variant or override '~' removes what the file states"
            yield Complaint(f"states {' and '.join(given)}, which exclude each other", hint=hint, about=tuple(given))
        elif (self.mean is None) != (self.cv is None):
            missing = "cv" if self.cv is None else "mean"
            yield Complaint(f"needs mean and cv together ({missing} is missing)")
        if self.at_cap is not None and self.budget is None and self.max is None:
            yield Complaint("means nothing without max or budget", ("at_cap",))
        if self.at_cap == "truncate" and self.normal is not None:
            yield Complaint("must be atom: a normal law is clipped at its ends (got 'truncate')", ("at_cap",))
        if self.budget is not None and self.max is not None:
            yield Complaint("states budget and max, which exclude each other", hint="keep one", about=("budget", "max"))
        yield from self._mixture_complaints()
        yield from self._quantile_complaints()

    def _mixture_complaints(self) -> Iterator[Complaint]:
        if self.mixture is not None:
            total = math.fsum(component.weight for component in self.mixture)
            if abs(total - 1.0) > _WEIGHT_TOLERANCE:
                yield Complaint(f"weights must add up to 1 (got {total:.6g})", ("mixture",))

    def _quantile_complaints(self) -> Iterator[Complaint]:
        if self.quantiles is None:
            return
        if len(self.quantiles) < 2:
            yield Complaint("needs at least two percentiles", ("quantiles",), "write {p50: 220, p90: 900}")
        ordered = sorted((float(key[1:]), tokens, key) for key, tokens in self.quantiles.items())
        for (_, low, low_key), (_, high, high_key) in pairwise(ordered):
            if high <= low:
                what = f"must be greater than {low_key} (got {high_key} {high:g}, {low_key} {low:g})"
                yield Complaint(what, ("quantiles", high_key))
