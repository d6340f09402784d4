"""Dotted key paths: ``classes.chat.rate_rps``, ``profiles[0].gpu``, ``models."llama-3.3-70b".quality``."""

from __future__ import annotations

import re

__all__ = ["join_key", "parent_key", "split_key"]

_PLAIN = re.compile(r"""[^.\[\]"'\s\\]+""")
_SEGMENT = re.compile(
    r"""
    "(?P<double>(?:[^"\\]|\\.)*)"
  | '(?P<single>[^']*)'
  | \[(?P<index>\d{1,9})\]
  | (?P<plain>[^.\[\]"'\s\\]+)
    """,
    re.VERBOSE,
)


def join_key(parent: str, segment: str | int) -> str:
    """The dotted path of an entry of ``parent``; a segment with dots, brackets or spaces is quoted.

    Args:
        parent: dotted path, empty for the top of a file.
        segment: a mapping's key, or a list's index from 0.

    Example:
        >>> join_key("models", "llama-3.3-70b"), join_key("profiles", 0)
        ('models."llama-3.3-70b"', 'profiles[0]')
    """
    if isinstance(segment, int):
        return f"{parent}[{segment}]"
    if not _PLAIN.fullmatch(segment):
        segment = '"' + segment.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{parent}.{segment}" if parent else segment


def split_key(key: str) -> tuple[str | int, ...]:
    """The segments of a dotted path; the inverse of :func:`join_key`.

    Raises:
        ValueError: the path is empty, has an empty segment, or a quote or bracket that does not close.

    Example:
        >>> split_key('models."llama-3.3-70b".quality')
        ('models', 'llama-3.3-70b', 'quality')
        >>> split_key("profiles[0].gpu")
        ('profiles', 0, 'gpu')
    """
    segments: list[str | int] = []
    position = 0
    while True:
        match = _SEGMENT.match(key, position)
        if match is None:
            raise ValueError(_complaint(key, position))
        if match["index"] is not None:
            segments.append(int(match["index"]))
        elif match["double"] is not None:
            segments.append(re.sub(r"\\(.)", r"\1", match["double"]))
        else:
            segments.append(match["plain"] if match["single"] is None else match["single"])
        position = match.end()
        if position == len(key):
            return tuple(segments)
        if key[position] == ".":
            position += 1
        elif key[position] != "[":
            raise ValueError(_complaint(key, position))


def parent_key(key: str) -> str:
    """The path one level up, empty at the top.

    Example:
        >>> parent_key("profiles[0].gpu"), parent_key("profiles[0]"), parent_key("title")
        ('profiles[0]', 'profiles', '')
    """
    parent = ""
    for segment in split_key(key)[:-1]:
        parent = join_key(parent, segment)
    return parent


def _complaint(key: str, position: int) -> str:
    if position >= len(key):
        return f"not a key path: {key!r} ends where a name was expected"
    return (
        f"not a key path: {key!r} at character {position + 1}; write names joined by dots, "
        'quote a name that has dots ("llama-3.3-70b"), and use [0] for list items'
    )
