"""What a long search tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Cancel", "OnProgress", "Progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a search stands.

    Attributes:
        stage: ``layouts``, ``frontier``, ``solve``, ``verify`` or, where nothing is feasible, ``conflict``.
        done, total: steps of the stage; a total of 0 is not known.
        incumbent_usd_per_hour: cost of the best fleet so far.
        bound_usd_per_hour: proven so far.
    """

    stage: str
    done: int
    total: int
    incumbent_usd_per_hour: float | None = None
    bound_usd_per_hour: float | None = None


OnProgress = Callable[[Progress], None]
Cancel = Callable[[], bool]
