"""Where a target must hold: in every pool that serves a class, or for all of its requests together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol, TypeVar

__all__ = ["SloScope", "decisive"]

SloScope = Literal["pool", "fleet"]


class _TargetRow(Protocol):
    @property
    def cls(self) -> str: ...

    @property
    def path(self) -> str: ...


_Row = TypeVar("_Row", bound=_TargetRow)


def decisive(rows: Iterable[_Row], scope: SloScope) -> list[_Row]:
    """The rows of a table of targets that decide whether these are met.

    With scope ``pool`` those of every path, with ``fleet`` those of the mixture where a class has several paths.

    Args:
        rows: one per target and path, ``fleet`` being the path of the mixture.
        scope: in force.

    Example:
        >>> from types import SimpleNamespace as Row
        >>> rows = [Row(cls="chat", path=path) for path in ("a", "b", "fleet")] + [Row(cls="code", path="a")]
        >>> [row.path for row in decisive(rows, "pool")], [row.path for row in decisive(rows, "fleet")]
        (['a', 'b', 'a'], ['fleet', 'a'])
    """
    found = list(rows)
    mixed = {row.cls for row in found if row.path == "fleet"} if scope == "fleet" else set()
    return [row for row in found if (row.path == "fleet") == (row.cls in mixed)]
