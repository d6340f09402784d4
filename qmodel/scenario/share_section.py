"""Shares of a class that its models get, as a scenario file writes them: a number, or least and most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Discriminator, Field, Tag

from qmodel.scenario.sections import SHARE_BRANCHES, Complaint, Section
from qmodel.types import settled_bounds

__all__ = ["Share", "ShareBounds", "bounds_of", "share_complaints"]

_NUMBER, _BOUNDS = SHARE_BRANCHES

Part = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class ShareBounds(Section):
    """Least and most that a model gets of the requests of a class."""

    min: Part = Field(default=0.0, description="Least share of the requests of the class.")
    max: Part = Field(default=1.0, description="Most of the requests of the class, as a share.")

    def complaints(self) -> Iterator[Complaint]:
        if self.min > self.max:
            yield Complaint(f"must not be less than min (got min {self.min:g}, max {self.max:g})", ("max",))


def _branch(value: object) -> str:
    return _BOUNDS if isinstance(value, Mapping | ShareBounds) else _NUMBER


Share = Annotated[
    Annotated[Part, Tag(_NUMBER)] | Annotated[ShareBounds, Tag(_BOUNDS)],
    Discriminator(_branch),
]


def bounds_of(share: float | ShareBounds | None) -> tuple[float, float]:
    """Least and most share; any where nothing is stated."""
    if share is None:
        return 0.0, 1.0
    return (share, share) if isinstance(share, float) else (share.min, share.max)


def share_complaints(shares: Mapping[str, float | ShareBounds | None]) -> Iterator[Complaint]:
    """What is wrong with the shares of the models of a class taken together: they cannot sum to 1."""
    bounds = [bounds_of(share) for share in shares.values()]
    if settled_bounds(bounds) is not None:
        return
    least, most = math.fsum(low for low, _ in bounds), math.fsum(high for _, high in bounds)
    stated = [name for name, share in shares.items() if share is not None]
    key = ("models", stated[-1], "share")
    if all(isinstance(share, float) for share in shares.values()):
        yield Complaint(f"shares of the models must add up to 1 (got {least:.6g})", key)
    elif least > 1.0:
        what = f"the models are to get {least:.6g} of the requests at least, more than all"
        yield Complaint(what, key, "lower a share or a min")
    else:
        what = f"the models may get {most:.6g} of the requests at most, less than all"
        yield Complaint(what, key, "raise a share or a max, or leave it out")
