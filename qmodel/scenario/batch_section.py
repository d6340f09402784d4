"""A batch of requests with a deadline, as a scenario file writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from qmodel.scenario.sections import Complaint, Count, Positive, Section

__all__ = ["BatchSpec"]


class BatchSpec(Section):
    """Requests that all come at once and are to be done by a deadline."""

    requests: Count = Field(description="Requests of one batch.")
    deadline_s: Positive = Field(description="The last request is to be done so long after the batch came, s.")
    deadline_p: Annotated[float, Field(ge=0.5, le=0.999)] = Field(
        default=0.95, description="Probability with which the whole batch is done by its deadline."
    )
    every_s: Positive | None = Field(
        default=None,
        description="A batch comes every so many seconds; its GPUs are held, and paid, until its deadline only.",
    )

    def complaints(self) -> Iterator[Complaint]:
        if self.every_s is not None and self.every_s < self.deadline_s:
            what = f"every_s {self.every_s:g} is less than deadline_s {self.deadline_s:g}: batches would overlap"
            yield Complaint(what, hint="shorten the deadline, or leave every_s out", about=("deadline_s", "every_s"))
