"""Requests that leave when they have waited too long, as a scenario file writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from qmodel.scenario.sections import Complaint

if TYPE_CHECKING:
    from qmodel.scenario.class_section import ClassSpec

__all__ = ["ABANDONED", "Retries", "patience_complaints"]

ABANDONED: Final = "abandoned_share"  # target on the share of the requests that leave for good

Retries = Annotated[int, Field(ge=0, le=100)]


def patience_complaints(spec: ClassSpec) -> Iterator[Complaint]:
    """What is wrong with the patience of a class beside its other keys."""
    places: list[tuple[str, ...]] = [("slo",), *(("models", name, "slo") for name in spec.tiers)]
    stated = [(*place, ABANDONED) for place, slo in zip(places, _targets(spec), strict=True) if ABANDONED in slo]
    if spec.patience_s is None:
        for name in ("retries", "backoff_s"):
            if name in spec.model_fields_set:
                yield Complaint("means nothing without patience_s", (name,), "add patience_s, or leave it out")
        for key in stated:
            yield Complaint("means nothing without patience_s: nobody leaves", key, "add patience_s: <s>")
        return
    if spec.batch is not None:
        yield Complaint("requests of a batch are there at once, and wait", ("patience_s",), "leave it out")
        return
    for key, slo in zip(stated, (slo for slo in _targets(spec) if ABANDONED in slo), strict=True):
        if slo[ABANDONED] >= 1.0:
            yield Complaint(f"must be less than 1 (got {slo[ABANDONED]:g})", key)
    common, *own = _targets(spec)
    if ABANDONED not in common and not (own and all(ABANDONED in slo for slo in own)):
        what = "does not say which share of the requests may leave, so a plan might lose nearly all of them"
        yield Complaint(what, ("patience_s",), f"add slo: {{{ABANDONED}: 0.01}}")
    if spec.retries and spec.backoff_s == 0.0:
        yield Complaint("must be greater than 0 where requests come again (got 0)", ("backoff_s",))
    shape = "" if spec.arrivals is None else spec.arrivals.shape
    if spec.trace is not None and spec.trace.arrivals == "measured":
        yield Complaint(f"{_POISSON}, those of a trace are measured", ("patience_s",), "add trace.arrivals: poisson")
    elif shape:
        yield Complaint(f"{_POISSON}, and arrivals states {shape}", ("patience_s",), f"leave arrivals.{shape} out")


_POISSON = "requests that leave are predicted for Poisson arrivals only"


def _targets(spec: ClassSpec) -> list[dict[str, float]]:
    """Targets of the class, then those of each of its models."""
    return [spec.slo or {}, *(item.slo or {} for item in spec.tiers.values())]
