"""JSON read into a document; positions are known for syntax errors only."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from qmodel.errors import Problem, ScenarioError
from qmodel.files.documents import Document
from qmodel.files.raw_text import MAX_TEXT_BYTES, read_raw

__all__ = ["read_json"]


class _Refused(Exception):
    """A value that JSON text may hold and a document may not."""


def read_json(path: str | os.PathLike[str], *, max_bytes: int = MAX_TEXT_BYTES) -> Document:
    """Read a JSON file whose top level is an object.

    Args:
        path: the file.
        max_bytes: larger files are refused.

    Returns:
        The document; its positions are empty.

    Raises:
        ScenarioError: the file cannot be read, is not JSON, repeats a key, or holds NaN or infinity.
    """
    name = os.fspath(path)
    text = read_raw(path, max_bytes=max_bytes)
    try:
        data = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except json.JSONDecodeError as error:
        what = f"is not valid JSON: {error.msg.lower()}" if text.strip() else "is empty"
        raise ScenarioError([Problem(what=what, file=name, line=error.lineno, column=error.colno)]) from None
    except RecursionError:
        raise ScenarioError([Problem(what="is nested too deeply", file=name)]) from None
    except _Refused as error:
        raise ScenarioError([Problem(what=str(error), file=name)]) from None
    if not isinstance(data, dict):
        raise ScenarioError([Problem(what="must be an object with keys at the top level", file=name)])
    return Document(data=data, file=name, positions={})


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for index, key in enumerate(names) if key in names[:index])
        raise _Refused(f"key {twice!r} is given twice in one object")
    return found


def _no_constant(word: str) -> float:
    raise _Refused(f"numbers must be finite (got {word})")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Refused(f"numbers must be finite (got {text[:40]})")
    return number


def _bounded(text: str) -> int:
    if len(text) > 19:
        raise _Refused(f"a number is too large (got {text[:40]})")
    return int(text)
