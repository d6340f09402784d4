"""Which inputs of two scenarios differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qmodel.files import join_key

__all__ = ["Difference", "diff_scenarios"]

Difference = tuple[str, Any, Any]

_ABSENT = object()


def diff_scenarios(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    """The keys whose values differ, in the order of the files.

    Args:
        left: plain data, as ``Scenario.resolved`` gives it.
        right: the other one.

    Returns:
        (dotted key, left value, right value); None where a side lacks the key. Numbers of equal value are
        equal whether written 1 or 1.0. Lists of mappings are compared item by item, other lists whole.

    Example:
        >>> diff_scenarios({"classes": {"chat": {"rate_rps": 12}}}, {"classes": {"chat": {"rate_rps": 40}}})
        [('classes.chat.rate_rps', 12, 40)]
    """
    return list(_differences(left, right, ""))


def _differences(left: Any, right: Any, key: str) -> Iterator[Difference]:
    if (isinstance(left, Mapping) and isinstance(right, Mapping)) or _one_side(left, right, Mapping):
        mapping_left = left if isinstance(left, Mapping) else {}
        mapping_right = right if isinstance(right, Mapping) else {}
        for name in dict.fromkeys((*mapping_left, *mapping_right)):
            inner_left, inner_right = mapping_left.get(name, _ABSENT), mapping_right.get(name, _ABSENT)
            yield from _differences(inner_left, inner_right, join_key(key, name))
    elif _mappings(left) and _mappings(right) and len(left) == len(right):
        for index, (inner_left, inner_right) in enumerate(zip(left, right, strict=True)):
            yield from _differences(inner_left, inner_right, join_key(key, index))
    elif not _same(left, right):
        yield key, None if left is _ABSENT else left, None if right is _ABSENT else right


def _one_side(left: Any, right: Any, kind: type) -> bool:
    """One side lacks the key and the other has a mapping that is not empty."""
    present = right if left is _ABSENT else left if right is _ABSENT else None
    return isinstance(present, kind) and bool(present)


def _mappings(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    return bool(left == right)
