"""Which keys may stand where, read off the schema: for suggestions, overrides and nulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from qmodel.scenario.sections import Section

__all__ = ["Shape", "prune_nulls", "shape_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What may stand below a key.

    Attributes:
        keys: known keys of a section; empty for anything else.
        entry: shape of every entry of a mapping keyed by name, or of every item of a list.
        is_list: ``entry`` describes list items.
        empty_entry: an entry without content means one with defaults.
    """

    keys: dict[str, Shape] = field(default_factory=dict)
    entry: Shape | None = None
    is_list: bool = False
    empty_entry: bool = False

    def at(self, segments: Sequence[str | int]) -> Shape | None:
        """The shape at a path below this one, None where the schema knows nothing."""
        shape: Shape | None = self
        for segment in segments:
            if shape is None:
                return None
            shape = shape.keys.get(str(segment)) if shape.keys else shape.entry
        return shape


@cache
def shape_of(section: type[Section]) -> Shape:
    """The shape of a section of the schema."""
    keys = {info.alias or name: _shape_of_type(info.annotation) for name, info in section.model_fields.items()}
    return Shape(keys=keys)


def prune_nulls(value: Any, shape: Shape | None) -> Any:
    """A copy without the nulls that stand for a known key; an unknown key keeps its null and is told later."""
    if shape is None or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [prune_nulls(item, shape.entry if shape.is_list else None) for item in value]
    if shape.is_list or (not shape.keys and shape.entry is None):
        return value
    found: dict[str, Any] = {}
    for name, item in value.items():
        inner = shape.keys.get(name) if shape.keys else shape.entry
        if item is not None or (shape.keys and inner is None):
            found[name] = prune_nulls(item, inner)
        elif not shape.keys and inner is not None and inner.empty_entry:
            found[name] = {}
    return found


def _shape_of_type(annotation: Any) -> Shape:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        required = any(info.is_required() for info in annotation.model_fields.values())
        inner = shape_of(annotation)
        return Shape(keys=inner.keys, empty_entry=not required)
    if origin is Annotated:
        return _shape_of_type(arguments[0])
    if origin is dict:
        value = arguments[1]
        return Shape() if get_origin(value) is dict else Shape(entry=_shape_of_type(value))
    if origin is tuple:
        return Shape(entry=_shape_of_type(arguments[0]), is_list=True)
    shapes = [_shape_of_type(argument) for argument in arguments if isinstance(argument, type) or get_origin(argument)]
    return next((shape for shape in shapes if shape.keys or shape.entry), Shape())
