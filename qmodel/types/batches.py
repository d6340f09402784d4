"""A batch of requests that are there at once and are to be done by a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil

__all__ = ["Batch"]

_ROUNDING = 1e-9  # of a request


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests that all arrive at one instant.

    Attributes:
        requests: how many.
        deadline_s: the last of them is to be done so long after they came, s,
        deadline_p: with at least this probability.
        every_s: a batch comes every so many seconds, and GPUs are held for it from then to its deadline; None: they
            are held all the time.

    Example:
        >>> nightly = Batch(requests=2000, deadline_s=1800.0, every_s=86400.0)
        >>> nightly.part(0.5).requests, round(nightly.held_share, 4)
        (1000, 0.0208)
    """

    requests: int
    deadline_s: float
    deadline_p: float = 0.95
    every_s: float | None = None

    @property
    def rate_rps(self) -> float:
        """Requests per second that meet the deadline at an even pace."""
        return self.requests / self.deadline_s

    @property
    def held_share(self) -> float:
        """Share of the time in which GPUs are held for it."""
        return 1.0 if self.every_s is None else min(self.deadline_s / self.every_s, 1.0)

    def part(self, share: float) -> Batch:
        """``share`` of its requests, rounded up to whole ones."""
        return replace(self, requests=max(ceil(self.requests * share - _ROUNDING), 1))

    def to_dict(self) -> dict[str, object]:
        """Plain data; the inverse of :meth:`from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Batch:
        """The inverse of :meth:`to_dict`."""
        return cls(**data)  # type: ignore[arg-type]
