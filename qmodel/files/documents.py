"""What a file said, as plain Python data, and where it said it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qmodel.errors import Problem
from qmodel.files.key_paths import parent_key

__all__ = ["Document"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file's content.

    Attributes:
        data: dict, list, str, int, float, bool and None only; keys are always text, as written.
        file: the name messages give, as the caller wrote it.
        positions: dotted key path to (line, column) of the key, both from 1; list items have the
            position of their value. Content reached through an alias has the position of the alias.

    Example:
        >>> from qmodel.files import read_yaml_text
        >>> document = read_yaml_text("a: {b: [1, 2]}", "x.yaml")
        >>> document.data, document.position("a.b[1]")
        ({'a': {'b': [1, 2]}}, (1, 12))
    """

    data: dict[str, Any]
    file: str
    positions: Mapping[str, tuple[int, int]]

    def position(self, key: str) -> tuple[int, int]:
        """Line and column of ``key``, or of the nearest key above it that the file has; (0, 0) if none."""
        while key:
            found = self.positions.get(key)
            if found is not None:
                return found
            key = parent_key(key)
        return self.positions.get("", (0, 0))

    def problem(self, key: str, what: str, hint: str = "") -> Problem:
        """A problem about ``key`` that carries its position."""
        line, column = self.position(key)
        return Problem(what=what, key=key, file=self.file, line=line, column=column, hint=hint)
