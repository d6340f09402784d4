"""YAML 1.2 read from parser events in one pass: plain data, and the position of every key."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

from qmodel.errors import Problem, ScenarioError
from qmodel.files.documents import Document
from qmodel.files.key_paths import join_key
from qmodel.files.raw_text import read_raw
from qmodel.files.scalars import resolve_plain

__all__ = ["parse_value", "read_yaml", "read_yaml_text"]

_MAX_DEPTH = 100
_MAX_NODES = 500_000  # values after aliases are expanded; a few nested aliases could ask for billions

_TAGS = {
    "tag:yaml.org,2002:str": "str",
    "tag:yaml.org,2002:int": "int",
    "tag:yaml.org,2002:float": "float",
    "tag:yaml.org,2002:bool": "bool",
    "tag:yaml.org,2002:null": "null",
    "tag:yaml.org,2002:map": "map",
    "tag:yaml.org,2002:seq": "seq",
}
_MERGE = "<<"

# What ruamel.yaml says, and what to tell somebody who has never met a YAML grammar.
_HINTS = (
    ("'\\t'", "indent with spaces, not tabs"),
    ("mapping values are not allowed", "a space, quote or line break may be missing before this ':'"),
    ("could not find expected ':'", "write 'key: value'"),
    ("expected <block end>", "check the indentation"),
    ("did not find expected <document start>", "check the indentation"),
    ("unexpected end of stream", "a quote or bracket is not closed"),
    ("found unexpected ':'", "put a space after the ':' or quote the text"),
    ("cannot start any token", "quote the text"),
    ("expected ',' or", "a ',' or closing bracket is missing"),
)


def read_yaml(path: str | os.PathLike[str]) -> Document:
    """Read a YAML file whose top level is a mapping.

    YAML 1.2 rules: ``on``, ``no`` and dates stay text. Aliases and merge keys (``<<``) are expanded,
    within bounds. Keys are always text, as written.

    Args:
        path: the file; messages name it as it is written here.

    Raises:
        ScenarioError: the file cannot be read; its YAML is broken; a key is repeated; a number is not
            finite; the top level is not a mapping. All repeated keys and bad numbers are told at once.
    """
    return read_yaml_text(read_raw(path), os.fspath(path))


def read_yaml_text(text: str, name: str) -> Document:
    """Read YAML text as :func:`read_yaml` reads a file.

    Args:
        text: the content.
        name: what messages call it.

    Raises:
        ScenarioError: as :func:`read_yaml`.

    Example:
        >>> read_yaml_text("rate_rps: 12\\non: yes", "x.yaml").data
        {'rate_rps': 12, 'on': 'yes'}
    """
    reader = _Reader(text, name)
    data = reader.document()
    if data is None and not text.strip():
        raise ScenarioError([Problem(what="is empty", file=name)])
    if not isinstance(data, dict):
        what = "has no content" if data is None else f"must be a mapping of keys at the top level (got {_kind(data)})"
        raise ScenarioError([Problem(what=what, file=name, line=1, column=1)])
    return Document(data=data, file=name, positions=reader.positions)


def parse_value(text: str, name: str) -> Any:
    """The value of YAML text that may be a scalar, a list or a mapping.

    Args:
        text: for example ``12``, ``[1, 2]``, ``{mean: 300, cv: 0.9}`` or ``~``.
        name: what messages call it.

    Raises:
        ScenarioError: as :func:`read_yaml`.

    Example:
        >>> parse_value("{mean: 300, cv: 0.9}", "<--set>")
        {'mean': 300, 'cv': 0.9}
    """
    return _Reader(text, name).document()


class _Reader:
    """Builds one document from ruamel's events; its round-trip objects are never made."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.positions: dict[str, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.open_anchors: set[str] = set()
        self.nodes = 0
        self.events = _events(text, name)

    def document(self) -> Any:
        next(self.events)  # stream start
        event = next(self.events)
        if type(event).__name__ == "StreamEndEvent":
            return None
        data = self._node(next(self.events), "", 0)
        next(self.events)  # document end
        event = next(self.events)
        if type(event).__name__ == "DocumentStartEvent":
            raise self._fatal(event, "has a second document ('---')", "one file holds one document")
        if self.problems:
            raise ScenarioError(self.problems)
        return data

    def _node(self, event: Any, path: str, depth: int) -> Any:
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._alias(event)
        self.nodes += 1
        if depth > _MAX_DEPTH:
            raise self._fatal(event, f"is nested more than {_MAX_DEPTH} levels deep")
        anchor = event.anchor
        if anchor:
            self.open_anchors.add(anchor)
        before = self.nodes
        if kind == "ScalarEvent":
            value = self._scalar(event, path)
        elif kind == "MappingStartEvent":
            self._check_tag(event, path, "map")
            value = self._mapping(event, path, depth)
        else:
            self._check_tag(event, path, "seq")
            value = self._sequence(path, depth)
        if anchor:
            self.open_anchors.discard(anchor)
            self.anchors[anchor] = (value, self.nodes - before + 1)
        return value

    def _mapping(self, start: Any, path: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merges: list[tuple[Any, Any]] = []
        while type(event := next(self.events)).__name__ != "MappingEndEvent":
            if type(event).__name__ != "ScalarEvent":
                raise self._fatal(event, "a key must be text", "quote a key that begins with a bracket, '*' or '&'")
            key = str(event.value)
            self.nodes += 1
            line, column = _position(event)
            if key == _MERGE and event.implicit[0]:
                merges.append((event, self._node(next(self.events), join_key(path, key), depth + 1)))
                continue
            inner = join_key(path, key)
            if key in lines:
                what = f"key {key!r} is given twice (first on line {lines[key]})"
                self.problems.append(self._problem(path, what, line, column, "keep one of the two"))
            else:
                lines[key] = line
                self.positions[inner] = (line, column)
            found[key] = self._node(next(self.events), inner, depth + 1)
        if not path:
            self.positions.setdefault("", _position(start))
        for event, value in merges:
            self._merge(found, value, event, path)
        return found

    def _merge(self, found: dict[str, Any], value: Any, event: Any, path: str) -> None:
        """Add the keys of ``<<`` that the mapping does not state itself; of several, the first wins."""
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                line, column = _position(event)
                self.problems.append(self._problem(path, "'<<' must name a mapping or a list of them", line, column))
                return
            for key, inner in source.items():
                if key not in found:
                    found[key] = inner
                    self.positions[join_key(path, key)] = _position(event)

    def _sequence(self, path: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while type(event := next(self.events)).__name__ != "SequenceEndEvent":
            inner = join_key(path, len(found))
            self.positions[inner] = _position(event)
            found.append(self._node(event, inner, depth + 1))
        return found

    def _alias(self, event: Any) -> Any:
        name = event.anchor
        if name in self.open_anchors:
            raise self._fatal(event, f"alias '*{name}' stands inside what it names")
        if name not in self.anchors:
            hint = "quote text that begins with '*'"
            raise self._fatal(event, f"alias '*{name}' names no '&{name}' above it", hint)
        value, size = self.anchors[name]
        self.nodes += size
        if self.nodes > _MAX_NODES:
            raise self._fatal(event, f"aliases expand to more than {_MAX_NODES} values")
        return copy.deepcopy(value)

    def _scalar(self, event: Any, path: str) -> Any:
        text = str(event.value)
        tag = event.tag
        kind = None if tag is None else _TAGS.get(str(tag))
        if tag is not None and str(tag) != "!" and kind is None:
            self._check_tag(event, path, "str")
            return text
        if kind == "str" or str(tag) == "!" or (kind is None and not event.implicit[0]):
            return text
        try:
            value = resolve_plain(text)
        except ValueError as error:
            self.problems.append(self._problem(path, str(error), *_position(event)))
            return 0
        if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if kind is not None and kind != _kind_tag(value):
            self.problems.append(self._problem(path, f"{text!r} is not of type '!!{kind}'", *_position(event)))
        return value

    def _check_tag(self, event: Any, path: str, kind: str) -> None:
        tag = event.tag
        if tag is not None and str(tag) != "!" and _TAGS.get(str(tag)) != kind:
            shown = str(tag).replace("tag:yaml.org,2002:", "!!")
            self.problems.append(self._problem(path, f"tag {shown!r} is not allowed here", *_position(event)))

    def _problem(self, path: str, what: str, line: int, column: int, hint: str = "") -> Problem:
        return Problem(what=what, key=path, file=self.name, line=line, column=column, hint=hint)

    def _fatal(self, event: Any, what: str, hint: str = "") -> ScenarioError:
        return ScenarioError([*self.problems, self._problem("", what, *_position(event), hint)])


def _events(text: str, name: str) -> Iterator[Any]:
    """ruamel's parser events; what its scanner raises becomes a problem with a position."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLStreamError

    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        raise ScenarioError([_broken(error, name)]) from None
    except (YAMLError, YAMLStreamError) as error:
        raise ScenarioError([Problem(what=f"is not valid YAML: {_first_line(error)}", file=name)]) from None
    except (ValueError, ArithmeticError, LookupError, AttributeError, AssertionError, TypeError) as error:
        # ruamel's scanner lets these out on some malformed directives, tags and escapes
        what = "is not valid YAML: a directive, tag or escape is malformed"
        raise ScenarioError([Problem(what=what, file=name)]) from error


def _broken(error: Any, name: str) -> Problem:
    said = " ".join(str(error.problem or error.context or "cannot be parsed").split())
    for theirs in ("'\\x00'", "'<stream end>'"):
        said = said.replace(theirs, "the end of the file")
    hint = next((ours for theirs, ours in _HINTS if theirs in said), "")
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
    opened = error.context_mark
    if error.context and opened is not None and mark is not None and opened.line != mark.line:
        said += f" ({' '.join(str(error.context).split())} from line {opened.line + 1})"
    return Problem(what=f"is not valid YAML: {said}", file=name, line=line, column=column, hint=hint)


def _position(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return "text" if isinstance(value, str) else repr(value)


def _kind_tag(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
