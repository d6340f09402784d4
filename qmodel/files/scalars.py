"""Plain scalars of YAML 1.2's core schema: ``on``, ``no``, dates and ``1_000`` stay text.

Source: YAML 1.2.2 specification, section 10.3.2.
"""

from __future__ import annotations

import math
import re

__all__ = ["resolve_plain"]

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_INT = 2**63
_MAX_DIGITS = 40


def resolve_plain(text: str) -> Scalar:
    """The value of an unquoted scalar.

    Raises:
        ValueError: a number that is not finite, or an integer beyond 64 bits; the text says which.

    Example:
        >>> [resolve_plain(word) for word in ("no", "12", "1e-3", "~", "0x10", "true")]
        ['no', 12, 0.001, None, 16, True]
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INT.fullmatch(text):
        return _bounded(text, 10)
    if _OCTAL.fullmatch(text):
        return _bounded(text[2:], 8)
    if _HEX.fullmatch(text):
        return _bounded(text[2:], 16)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"must be a finite number (got {text[:_MAX_DIGITS]})")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"must be a finite number (got {text})")
    return text


def _bounded(digits: str, base: int) -> int:
    number = int(digits, base) if len(digits) <= _MAX_DIGITS else _MAX_INT
    if abs(number) >= _MAX_INT:
        shown = digits if len(digits) <= _MAX_DIGITS else digits[:_MAX_DIGITS] + "..."
        raise ValueError(f"number is too large (got {shown})")
    return number
