"""Variants and ``--set`` laid over a scenario; a key that leads nowhere is a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qmodel.errors import Problem, ScenarioError
from qmodel.files import join_key, parse_value, split_key
from qmodel.scenario.layering import Layered, Place, key_of, put_key
from qmodel.scenario.schema import Scenario
from qmodel.scenario.shapes import Shape, shape_of
from qmodel.scenario.unsupported import SCENARIO_UNSUPPORTED, known_keys
from qmodel.scenario.wording import did_you_mean

__all__ = ["SET_NAME", "apply_overrides", "apply_variant", "parse_set"]

SET_NAME = "<--set>"
_FIXED = ("variants", "comparisons", "extends")
_WORDS = {"classes": "class", "fleet.gpus": "GPU"}


def parse_set(text: str) -> tuple[str, Any]:
    """Key and value of a ``KEY=VALUE`` argument; the value is YAML.

    Args:
        text: for example ``classes.chat.rate_rps=40`` or ``layouts.tp=[1, 2]``; ``key=~`` removes.

    Raises:
        ScenarioError: there is no ``=``, the key is no key path, or the value is broken YAML.

    Example:
        >>> parse_set("classes.chat.rate_rps=40")
        ('classes.chat.rate_rps', 40)
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals:
        raise ScenarioError([Problem(what=f"has no '=' (got {text!r})", file=SET_NAME, hint="write KEY=VALUE")])
    try:
        split_key(key)
    except ValueError as error:
        raise ScenarioError([Problem(what=str(error), file=SET_NAME)]) from None
    try:
        return key, parse_value(value, SET_NAME)
    except ScenarioError as error:
        problems = [Problem(what=each.what, key=key, file=SET_NAME, hint=each.hint) for each in error.problems]
        raise ScenarioError(problems) from None


def apply_variant(below: Layered, name: str, definition: Mapping[str, Any]) -> tuple[Layered, list[Problem]]:
    """One variant over a scenario.

    Args:
        below: the scenario so far.
        name: of the variant; positions come from where the file defines it.
        definition: dotted key, or first key of a nested mapping, to the new value.
    """
    merged = below
    problems: list[Problem] = []
    root = join_key("variants", name)
    for key, value in definition.items():
        written = join_key(root, key)

        def complain(what: str, hint: str = "", written: str = written) -> Problem:
            return below.problem(written, what, hint)

        def place_of(target: str, written: str = written, key: str = key) -> Place:
            return below.where(written + target[len(_normal(key)) :])

        merged = _put(merged, key, value, place_of, complain, problems)
    return merged, problems


def apply_overrides(below: Layered, overrides: Mapping[str, Any]) -> tuple[Layered, list[Problem]]:
    """Overrides by dotted key over a scenario; problems carry the name ``<--set>``."""
    merged = below
    problems: list[Problem] = []
    for key, value in overrides.items():

        def complain(what: str, hint: str = "", key: str = key) -> Problem:
            return Problem(what=what, key=key, file=SET_NAME, hint=hint)

        merged = _put(merged, key, value, lambda _: (SET_NAME, 0, 0), complain, problems)
    return merged, problems


def _put(merged: Layered, key: str, value: Any, place_of: Any, complain: Any, problems: list[Problem]) -> Layered:
    try:
        segments = split_key(key)
    except ValueError as error:
        problems.append(complain(str(error)))
        return merged
    wrong = _leads_nowhere(merged.tree, segments, value)
    if wrong is not None:
        problems.append(complain(*wrong))
        return merged
    return put_key(merged, segments, value, place_of)


def _normal(key: str) -> str:
    return key_of(split_key(key))


def _dotted_name(here: Any, segments: Sequence[str | int]) -> int:
    """How many segments, joined by dots, are the name of an entry; 0: no number of them."""
    counts = range(len(segments), 0, -1)
    return next((count for count in counts if _below(here, ".".join(map(str, segments[:count]))) is not None), 0)


def _leads_nowhere(tree: Mapping[str, Any], segments: Sequence[str | int], value: Any) -> tuple[str, str] | None:
    """What is wrong with the path of an override, and a hint; None if it is fine."""
    if segments[0] in _FIXED:
        return f"{segments[0]!r} cannot be overridden", ""
    shape: Shape = shape_of(Scenario)
    here: Any = tree
    for index, segment in enumerate(segments):
        path = tuple(segments[:index])
        if here is not None and isinstance(here, list) is not shape.is_list:
            return f"{key_of(path)} has no keys below it", ""
        last = index == len(segments) - 1
        wrong = None
        if shape.keys:
            if segment not in shape.keys:
                also = known_keys(path, SCENARIO_UNSUPPORTED)
                return None if segment in also else _unknown(path, segment, [*shape.keys, *also])
        elif shape.entry is None:
            return f"{key_of(path)} has no keys below it", ""
        elif shape.is_list:
            wrong = _no_item(path, segment, here)
        else:
            wrong = _no_entry(path, segment, here, last and value is not None)
            meant = _dotted_name(here, segments[index:])
            if wrong is not None and not last and (path[-1:] == ("slo",) or meant > 1):
                name = ".".join(map(str, segments[index:][: meant if meant > 1 else None]))
                rest = segments[index + meant :] if meant > 1 else ()
                wrong = wrong[0], f"a name that has dots is quoted: {key_of((*path, name, *rest))}"
        if wrong is not None:
            return wrong
        inner = shape.keys.get(str(segment)) if shape.keys else shape.entry
        assert inner is not None
        shape, here = inner, _below(here, segment)
        if not last and here is not None and not isinstance(here, dict | list):
            return f"{key_of((*path, segment))} has no keys below it (it is {here!r})", ""
    return None


def _unknown(path: Sequence[str | int], segment: str | int, known: Sequence[str]) -> tuple[str, str]:
    place = f" in {key_of(path)}" if path else ""
    return f"unknown key {segment!r}{place}", did_you_mean(str(segment), known)


def _no_item(path: Sequence[str | int], segment: str | int, here: Any) -> tuple[str, str] | None:
    count = len(here) if isinstance(here, list) else 0
    if isinstance(segment, int) and segment < count:
        return None
    what = (
        f"no item {segment!r} in {key_of(path)}"
        if isinstance(segment, str)
        else f"no item [{segment}] in {key_of(path)}"
    )
    return what, f"it has {count} items, counted from 0" if count else "it has no items; set the whole list"


def _no_entry(path: Sequence[str | int], segment: str | int, here: Any, may_be_new: bool) -> tuple[str, str] | None:
    """A name below a mapping keyed by names must exist, unless a whole new entry is stated."""
    names = list(here) if isinstance(here, dict) else []
    if segment in names or (may_be_new and isinstance(segment, str)):
        return None
    word = _WORDS.get(key_of(path), "entry")
    where = "" if word != "entry" else f" in {key_of(path)}"
    hint = did_you_mean(str(segment), names) or (f"there are {', '.join(names)}" if names else "")
    return f"no {word} {segment!r}{where}", hint


def _below(here: Any, segment: str | int) -> Any:
    if isinstance(here, dict):
        return here.get(str(segment))
    return here[segment] if isinstance(here, list) and isinstance(segment, int) and segment < len(here) else None
