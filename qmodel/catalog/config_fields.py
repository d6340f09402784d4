"""Fields of a checkpoint's configuration, read with every problem noted instead of raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qmodel.errors import Problem
from qmodel.files import Document, join_key

__all__ = ["ConfigFields"]

_STAND_IN = 1  # takes the place of a count that is missing, so that reading goes on to the other problems


class ConfigFields:
    """The language model's fields of one configuration file.

    Args:
        document: the file.
        text: key of the mapping that holds the fields, empty for the top of the file.
    """

    def __init__(self, document: Document, *, text: str = "") -> None:
        self.document = document
        self.root: Mapping[str, Any] = document.data
        self.problems: list[Problem] = []
        self._prefix = text
        self._fields: Mapping[str, Any] = document.data[text] if text else document.data

    def get(self, key: str) -> Any:
        """The value of a field, None where it is absent or null."""
        return self._fields.get(key)

    def count(self, key: str, *, default: int | None = None) -> int:
        """A whole number: at least 1, or at least 0 where a default says that the field may be absent."""
        value = self.get(key)
        if value is None:
            if default is not None:
                return default
            self.refuse(key, "is missing")
            return _STAND_IN
        lowest = 1 if default is None else 0
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            self.refuse(key, f"must be a whole number of at least {lowest} (got {value!r})")
            return _STAND_IN
        return value

    def refuse(self, key: str, what: str, hint: str = "") -> None:
        """Note a problem of a field."""
        self.problems.append(self.document.problem(join_key(self._prefix, key), what, hint))

    def refuse_root(self, key: str, what: str, hint: str = "") -> None:
        """Note a problem of a field at the top of the file; ``key`` may be a dotted path."""
        self.problems.append(self.document.problem(key, what, hint))
