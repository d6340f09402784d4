"""pydantic's errors in the user's words; none of pydantic's own reach them."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qmodel.scenario.layering import key_of
from qmodel.scenario.sections import BRANCHES, CROSS_CHECK, REFUSED
from qmodel.scenario.shapes import Shape

__all__ = ["Finding", "did_you_mean", "find_all", "got"]

_CHOICE = re.compile(r"'([^']*)'")
_NUMBER_KINDS = {"float_type": "a number", "int_type": "a whole number", "int_from_float": "a whole number"}
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_MISSING_HINTS = {
    "qmodel": "add 'qmodel: 1' at the top",
    "classes": "add at least one class",
    "fleet": "add fleet: {gpus: {h100-sxm: {}}}",
    "gpus": "add gpus: {h100-sxm: {}}",
    "model": "add the model this is about",
    "slo": "add slo: {ttft_p95_s: 0.5}",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem before its position is known.

    Attributes:
        key: dotted key.
        what: the problem.
        hint: a way out.
        kind: ``missing``, ``unknown``, ``cross``, ``short`` or ``value``.
        name: the key that is missing or was suggested, for dropping what follows from something else.
        at: dotted keys of which the one written last has the position, where that is not ``key``.
    """

    key: str
    what: str
    hint: str = ""
    kind: str = "value"
    name: str = ""
    at: tuple[str, ...] = ()


def find_all(
    errors: Iterable[Mapping[str, Any]], shape: Shape, also_known: Callable[[tuple[str | int, ...]], Sequence[str]]
) -> list[Finding]:
    """All errors of a validation, without those that follow from a misspelt key.

    Args:
        errors: what ``ValidationError.errors()`` gives.
        shape: of the whole file.
        also_known: keys at a path that the schema lacks but suggestions may name.
    """
    findings = [_finding(error, shape, also_known) for error in errors]
    suggested = {(finding.key, finding.name) for finding in findings if finding.kind == "unknown"}
    keys = [finding.key for finding in findings]

    def follows(finding: Finding) -> bool:
        if finding.kind == "missing":
            return (finding.key, finding.name) in suggested
        # an item that is wrong is not counted, so its list looks too short
        return finding.kind == "short" and any(key.startswith((f"{finding.key}.", f"{finding.key}[")) for key in keys)

    return [finding for finding in findings if not follows(finding)]


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """``did you mean 'x'?``, or empty where nothing is close."""
    close = _closest(word, known, cutoff)
    return f"did you mean {close!r}?" if close else ""


def got(value: object) -> str:
    """A value as messages show it, with its kind where that is what is wrong."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"{_shortened(repr(value))}, text"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return repr(value)
    return _shortened(repr(value))


def _finding(
    error: Mapping[str, Any], shape: Shape, also_known: Callable[[tuple[str | int, ...]], Sequence[str]]
) -> Finding:
    kind, value, context = str(error["type"]), error.get("input"), error.get("ctx") or {}
    path = _path(kind, tuple(error["loc"]))
    key = key_of(path)
    if kind == "missing":
        name = str(path[-1])
        hint = _MISSING_HINTS.get(name, "")
        return Finding(key_of(path[:-1]), f"{name!r} is missing", hint, "missing", name)
    if kind == "extra_forbidden":
        return _unknown_key(path, shape, also_known)
    if kind in (CROSS_CHECK, REFUSED):
        at = tuple(key_of((*path, name)) for name in context["about"])
        return Finding(key, context["what"], context["hint"], "cross" if kind == CROSS_CHECK else "value", at=at)
    what, hint = _value_words(kind, value, context, str(path[-1]) if path else "")
    return Finding(key, what, hint, "short" if kind == "too_short" else "value")


def _path(kind: str, location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The path of an error in the file: without the marks that pydantic adds for union branches and for names."""
    above, last = location[:-1], location[-1:]
    if kind != "extra_forbidden" and last and last[0] in (*BRANCHES, "[key]"):
        last = ()
    return (*(segment for segment in above if segment not in BRANCHES), *last)


def _unknown_key(
    path: tuple[str | int, ...], shape: Shape, also_known: Callable[[tuple[str | int, ...]], Sequence[str]]
) -> Finding:
    parent, name = path[:-1], str(path[-1])
    inner = shape.at(parent)
    known = list(inner.keys) if inner is not None else []
    suggestion = _closest(name, [*known, *also_known(parent)], 0.6)
    if suggestion:
        hint = f"did you mean {suggestion!r}?"
    else:
        hint = f"known keys: {', '.join(known)}" if 0 < len(known) <= 12 else ""
    return Finding(key_of(parent), f"unknown key {name!r}", hint, "unknown", suggestion, (key_of(path),))


def _value_words(kind: str, value: object, context: Mapping[str, Any], name: str) -> tuple[str, str]:
    if kind in _NUMBER_KINDS:
        return f"must be {_NUMBER_KINDS[kind]} (got {got(value)})", _number_hint(value)
    if kind == "string_type":
        plain = isinstance(value, int | float)
        return f"must be text (got {got(value)})", f"quote it: '{got(value)}'" if plain else ""
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return f"must be {words} {context[name]:.12g} (got {got(value)})", ""
    if kind == "literal_error":
        expected = str(context["expected"]).replace("False", "false").replace("True", "true").replace("'", "")
        shown = repr(value) if isinstance(value, str) else got(value)
        choices = _CHOICE.findall(str(context["expected"]))
        return f"must be {expected} (got {shown})", did_you_mean(str(value), choices) if isinstance(value, str) else ""
    if kind == "finite_number":
        return f"must be a finite number (got {got(value)})", ""
    if kind in ("dict_type", "mapping_type", "model_type", "model_attributes_type"):
        return f"must be a mapping of keys (got {got(value)})", _mapping_hint(value, name)
    if kind in ("tuple_type", "list_type"):
        hint = f"write [{value}]" if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
        return f"must be a list (got {got(value)})", hint
    if kind == "too_short":
        least = int(context["min_length"])
        return ("must not be empty" if least == 1 else f"needs at least {least} entries"), ""
    if kind == "bool_type":
        return f"must be true or false (got {got(value)})", ""
    return f"is not allowed here (got {got(value)})", ""


def _number_hint(value: object) -> str:
    if isinstance(value, str):
        try:
            number = float(value.replace("_", "").replace(",", ""))
        except ValueError:
            return ""
        return f"write {number:.12g} without quotes" if math.isfinite(number) else ""
    return ""


def _mapping_hint(value: object, name: str) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if name.endswith("_tokens"):
            return f"write {{constant: {got(value)}}}"
        return f"write {{usd_per_gpu_hour: {got(value)}}}" if name == "price" else ""
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return f"write {{{value[0]}: {{}}, ...}}"
    return ""


def _closest(word: str, known: Iterable[str], cutoff: float) -> str:
    close = difflib.get_close_matches(word.lower(), sorted(set(known)), n=1, cutoff=cutoff)
    return close[0] if close else ""


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
