"""Keys and values of the format whose meaning is not built yet: refused, never ignored.

Removing a line here is the last step of building one of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from qmodel.files import split_key
from qmodel.scenario.layering import key_of

__all__ = ["FLEET_FILE_UNSUPPORTED", "SCENARIO_UNSUPPORTED", "Unsupported", "known_keys", "strip_unsupported"]


def _anything(_: object) -> bool:
    return True


def _one_of(*values: object) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, dict | list) and value in values


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One key, or some values of one key.

    Attributes:
        key: dotted key; ``*`` stands for any name or list item.
        meaning: what it would do.
        hint: what can be written instead.
        refused: which values are not supported; all if left out.
        values: those values, as the reference page shows them.
    """

    key: str
    meaning: str
    hint: str = ""
    refused: Callable[[object], bool] = _anything
    values: str = ""


_ROUTERS = _one_of("prefix_aware")
_USE_ROUTER = "use random, round_robin or jsq"

SCENARIO_UNSUPPORTED: tuple[Unsupported, ...] = (
    Unsupported("classes.*.session", "sessions of several turns"),
    Unsupported("classes.*.samples", "several outputs for one prompt", "multiply the rate"),
    Unsupported("fleet.nodes", "a stock of nodes by their names", "set fleet.gpus.<gpu>.max_nodes"),
    Unsupported("engine.router", "requests sent where their prefix is", _USE_ROUTER, _ROUTERS, "prefix_aware"),
    Unsupported(
        "fleet.gpus.*.engine.router",
        "requests sent where their prefix is",
        _USE_ROUTER,
        _ROUTERS,
        "prefix_aware",
    ),
    Unsupported(
        "classes.*.engine.router", "requests sent where their prefix is", _USE_ROUTER, _ROUTERS, "prefix_aware"
    ),
)

FLEET_FILE_UNSUPPORTED: tuple[Unsupported, ...] = (
    Unsupported(
        "pools.*.engine.router",
        "requests sent where their prefix is",
        _USE_ROUTER,
        _ROUTERS,
        "prefix_aware",
    ),
)


def strip_unsupported(
    tree: dict[str, Any], table: tuple[Unsupported, ...]
) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    """The tree without what is not supported yet, and (key, what, hint) of each such thing."""
    stripped = copy.deepcopy(tree)
    found: list[tuple[str, str, str]] = []
    for entry in table:
        pattern = split_key(entry.key)
        for holder, path in _matches(stripped, pattern, ()):
            name = path[-1]
            if entry.refused(holder[name]):
                shown = "" if entry.refused is _anything else f" (got {_shown(holder[name])})"
                found.append((key_of(path), f"not supported yet: {entry.meaning}{shown}", entry.hint))
                del holder[name]
    return stripped, found


def known_keys(path: tuple[str | int, ...], table: tuple[Unsupported, ...]) -> list[str]:
    """Names in the table that may stand below a path."""
    names = []
    for entry in table:
        *above, name = split_key(entry.key)
        if len(above) == len(path) and all(left in ("*", right) for left, right in zip(above, path, strict=True)):
            names.append(str(name))
    return names


def _matches(
    value: Any, pattern: tuple[str | int, ...], path: tuple[str | int, ...]
) -> Iterator[tuple[Any, tuple[str | int, ...]]]:
    first, rest = pattern[0], pattern[1:]
    if isinstance(value, dict):
        names: list[str | int] = list(value) if first == "*" else [first] if first in value else []
    else:
        names = list(range(len(value))) if isinstance(value, list) and first == "*" else []
    for name in names:
        if not rest:
            yield value, (*path, name)
        else:
            yield from _matches(value[name], rest, (*path, name))


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
