"""Layers of plain data merged over each other, with the place each key came from.

Mappings merge, everything else replaces, and null removes what lies below.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qmodel.errors import Problem
from qmodel.files import Document, join_key, parent_key, split_key

__all__ = ["Layered", "Place", "key_of", "layer_of", "merge_layers", "put_key"]

Place = tuple[str, int, int]  # file, line, column


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered:
    """Merged data.

    Attributes:
        tree: plain data.
        places: dotted key to where it was last written, in the order of writing.
    """

    tree: dict[str, Any] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)

    def where(self, key: str, file: str = "<input>") -> Place:
        """Where ``key`` was written, or the nearest key above it; line 0 if nothing is known."""
        while key:
            if key in self.places:
                return self.places[key]
            key = parent_key(key)
        return self.places.get("", (file, 0, 0))

    def problem(self, key: str, what: str, hint: str = "", *, file: str = "<input>", at: Sequence[str] = ()) -> Problem:
        """A problem about ``key`` at its place, or where the last of the keys ``at`` was written."""
        last = [other for other in self.places if other in at][-1:]
        name, line, column = self.where(last[0] if last else key, file)
        return Problem(what=what, key=key, file=name, line=line, column=column, hint=hint)


def key_of(segments: Sequence[str | int]) -> str:
    """The dotted key of a path given as segments.

    Example:
        >>> key_of(("profiles", 0, "gpu"))
        'profiles[0].gpu'
    """
    key = ""
    for segment in segments:
        key = join_key(key, segment)
    return key


def layer_of(document: Document) -> Layered:
    """A document as the lowest layer."""
    places = {key: (document.file, line, column) for key, (line, column) in document.positions.items()}
    places.setdefault("", (document.file, 0, 0))
    return Layered(tree=copy.deepcopy(document.data), places=places)


def merge_layers(lower: Layered, upper: Layered) -> Layered:
    """``upper`` over ``lower``; neither is changed.

    Nulls inside ``variants.<name>`` are kept: there they say what the variant removes.
    """
    tree, places = copy.deepcopy(lower.tree), dict(lower.places)
    if "" in upper.places:
        places[""] = upper.places[""]
    for name, value in upper.tree.items():
        _lay(tree, name, value, join_key("", name), places, lambda key: upper.where(key))
    return Layered(tree=tree, places=places)


def put_key(layered: Layered, segments: Sequence[str | int], value: Any, place_of: Callable[[str], Place]) -> Layered:
    """``value`` merged in at a path whose mappings are made where they are missing.

    Args:
        layered: what lies below; not changed.
        segments: the path; list indices must exist.
        value: plain data; None removes the key.
        place_of: the place of a dotted key at or below the path.
    """
    tree, places = copy.deepcopy(layered.tree), dict(layered.places)
    holder: Any = tree
    key = ""
    for segment in segments[:-1]:
        key = join_key(key, segment)
        inner = holder.get(segment) if isinstance(holder, dict) else holder[segment]
        if not isinstance(inner, dict | list):
            inner = {}
            holder[segment] = inner
            places[key] = place_of(key_of(segments))
        holder = inner
    _lay(holder, segments[-1], value, key_of(segments), places, place_of)
    return Layered(tree=tree, places=places)


def _lay(
    holder: Any, name: str | int, value: Any, key: str, places: dict[str, Place], place_of: Callable[[str], Place]
) -> None:
    """Merge one value into a mapping or list."""
    below = holder.get(name) if isinstance(holder, dict) else holder[name]
    if value is None and isinstance(holder, dict) and name in holder and not _in_variant(key):
        del holder[name]
        places[key] = place_of(key)
    elif isinstance(value, dict) and isinstance(below, dict):
        for inner, item in value.items():
            _lay(below, inner, item, join_key(key, inner), places, place_of)
    else:
        for stale in [other for other in places if other.startswith((f"{key}.", f"{key}["))]:
            del places[stale]
        holder[name] = copy.deepcopy(value)
        _record(value, key, places, place_of)


def _record(value: Any, key: str, places: dict[str, Place], place_of: Callable[[str], Place]) -> None:
    places.pop(key, None)  # written anew, so it moves to the end
    places[key] = place_of(key)
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for inner, item in items:
        _record(item, join_key(key, inner), places, place_of)


def _in_variant(key: str) -> bool:
    return key.startswith("variants.") and len(split_key(key)) > 2
