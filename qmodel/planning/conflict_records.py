"""Limits that no fleet keeps together, as a plan without a fleet lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

__all__ = ["Conflict", "ConflictingLimit", "Help"]

Help = Literal["value", "lifted", "nothing", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictingLimit:
    """One limit of a conflict.

    Attributes:
        limit: the key of the scenario that states it.
        value: its value; None where it is no number.
        unit: of ``value`` and ``enough``; what the limit asks for where it is no number.
        enough: the nearest value with which there is a fleet while all other limits of the scenario hold, but for
            those of other conflicts; None where there is none or none was found.
        help: ``value``: ``enough`` is one; ``lifted``: without the limit there is a fleet, but it is no number, or its
            value was not narrowed down in time; ``nothing``: not even without it; ``unknown``: that was not settled.
        needed: it was shown that without it a fleet keeps the others of the conflict.

    Example:
        >>> limit = ConflictingLimit(
        ...     limit="fleet.power_kw", value=8.0, unit="kW", enough=10.0, help="value", needed=True
        ... )
        >>> limit.distance, limit.change
        (0.25, 'raise fleet.power_kw to 10')
    """

    limit: str
    value: float | None
    unit: str
    enough: float | None
    help: Help
    needed: bool

    @property
    def distance(self) -> float:
        """How far off the value that is enough is, relative to the value stated; infinite where there is none."""
        if self.enough is None or self.value is None:
            return inf
        return abs(self.enough - self.value) / abs(self.value) if self.value else inf

    @property
    def change(self) -> str:
        """The change that makes a plan possible, in words; empty where none is known."""
        if self.help == "lifted":
            return f"take out {self.limit}"
        if self.help != "value" or self.enough is None or self.value is None:
            return ""
        return f"{'raise' if self.enough > self.value else 'lower'} {self.limit} to {self.enough:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Limits that no fleet keeps together, whatever the others are; without any one of them some fleet keeps the rest.

    Attributes:
        limits: those of the fleet first.
        irreducible: every one of them was shown to be needed; else the search ended before that.
        nearest: key of the limit that has to move least, relative to its value, for a plan to be possible; empty where
            no change of one of them alone is known to be enough.
        unified_only: all this is about fleets of unified pools; separate prefill and decode pools are allowed too, and
            nothing is said of what those would take.
    """

    limits: tuple[ConflictingLimit, ...]
    irreducible: bool
    nearest: str
    unified_only: bool

    @classmethod
    def of(cls, limits: Sequence[ConflictingLimit], *, unified_only: bool) -> Conflict:
        """A conflict of these limits."""
        helpful = [item for item in limits if item.change]
        nearest = min(helpful, key=lambda item: item.distance, default=None)
        return cls(
            limits=tuple(limits),
            irreducible=all(item.needed for item in limits),
            nearest="" if nearest is None else nearest.limit,
            unified_only=unified_only,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Conflict:
        """The inverse of ``dataclasses.asdict``."""
        rows = data["limits"]
        assert isinstance(rows, Sequence)
        return cls(
            limits=tuple(ConflictingLimit(**row) for row in rows),
            irreducible=bool(data["irreducible"]),
            nearest=str(data["nearest"]),
            unified_only=bool(data["unified_only"]),
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """The conflict in words, one line a limit."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        pools = " of unified pools" if self.unified_only else ""
        if len(self.limits) == 1:
            yield f"no fleet{pools} keeps this limit, whatever the others are:"
        else:
            yield f"no fleet{pools} keeps these {len(self.limits)} limits together, whatever the others are:"
        for item in self.limits:
            stated = item.unit if item.value is None else f"{item.value:g} {item.unit}".rstrip()
            yield f"  {item.limit}, {stated}: {_help_words(item)}"
        nearest = next((item for item in self.limits if item.limit == self.nearest), None)
        if nearest is not None and len(self.limits) > 1:
            yield f"  the nearest change: {nearest.change}"
        if not self.irreducible:
            yield "  some of them may not be needed for the conflict: the search ended before that was settled"


def _help_words(item: ConflictingLimit) -> str:
    match item.help:
        case "value":
            return f"{item.enough:g} is enough while the others hold"
        case "lifted":
            return "without it there is a fleet"
        case "nothing":
            return "no other value is enough"
        case _:
            return "what would be enough was not settled"
