"""Rows of JSON files of any size: one object a line, a list, or a document with lists inside."""

from __future__ import annotations

import io
import json
from array import array
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final, Protocol

__all__ = ["BROKEN", "JsonError", "Readable", "json_rows"]

Row = dict[str, object]
Tree = Mapping[str, object]

BROKEN: Final[Row] = {"": "not valid JSON"}  # stands for a line that is no JSON object
_ROW: Final = "row"
_NUMBERS: Final = "numbers"
_ROWS: Tree = {"*": _ROW}
_SPANS: Tree = {"*": {"spans": _ROWS}}

# Where the rows of a document are: keys, and ``*`` for each item of a list. Parallel lists of numbers are columns.
_DOCUMENTS: Tree = {
    "benchmarks": {"*": {"requests": {"successful": _ROWS, "errored": _ROWS, "incomplete": _ROWS}}},  # GuideLLM
    "resourceSpans": {"*": {"scopeSpans": _SPANS, "instrumentationLibrarySpans": _SPANS}},  # OTLP
    "input_lens": _NUMBERS,  # vLLM bench
    "output_lens": _NUMBERS,
    "start_times": _NUMBERS,
    "ttfts": _NUMBERS,
    "latencies": _NUMBERS,
    "itls": _NUMBERS,
    "data": _ROWS,
    "requests": _ROWS,
    "records": _ROWS,
    "rows": _ROWS,
    "spans": _ROWS,
}
_BLOCK = 1 << 16  # characters read at a time
_LONGEST_START = 1 << 20  # characters of a first line that shows one object a line
_LONGEST = 1 << 26  # characters of one value
_KEPT_ITEMS = 65_536  # of a list beside the rows
_NEAR_END = 64


class JsonError(ValueError):
    """Text that is not JSON; says where."""


class Readable(Protocol):
    """A stream of text."""

    def readline(self, size: int, /) -> str:
        """The rest of a line, at most ``size`` characters; empty at the end."""
        ...

    def read(self, size: int, /) -> str:
        """At most ``size`` characters; empty at the end."""
        ...


def json_rows(stream: Readable) -> Iterator[Row]:
    """Every row of a JSON text, one after the other, without holding more than one value in memory.

    A first line that is an object in itself says that there is one object a line; a line that is none gives
    :data:`BROKEN`. Any other text is read as one value or several in a row.

    Raises:
        JsonError: if the text is cut off, or is not JSON and does not have one object a line.

    Example:
        >>> list(json_rows(io.StringIO('{"data": [{"a": 1}, {"a": 2}], "logs": [[0.1]]}')))
        [{'a': 1}, {'a': 2}]
        >>> list(json_rows(io.StringIO('{"a": 1}\\n{"a"')))[1] is BROKEN
        True
    """
    first = stream.readline(_LONGEST_START)
    while first and not first.strip():
        first = stream.readline(_LONGEST_START)
    if first.lstrip().startswith("{") and _object_in(first) is not None:
        for line in chain([first], _lines(stream)):
            if line.strip():
                yield from _line_rows(line)
        return
    yield from _value_rows(_Cursor(stream, first))


def _lines(stream: Readable) -> Iterator[str]:
    while line := stream.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise JsonError(f"a line is longer than {_LONGEST >> 20} million characters")
        yield line


def _line_rows(line: str) -> Iterator[Row]:
    row = _object_in(line)
    if row is None:
        yield BROKEN
    elif _is_document(row):
        yield from _value_rows(_Cursor(io.StringIO(line), ""))
    else:
        yield _reshaped(row)


def _object_in(line: str) -> Row | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_document(row: Row) -> bool:
    return not _DOCUMENTS.keys().isdisjoint(row) and any(isinstance(row.get(key), list) for key in _DOCUMENTS)


def _value_rows(cursor: _Cursor) -> Iterator[Row]:
    while mark := cursor.peek():
        if mark == "{":
            yield from _document_rows(cursor)
        elif mark == "[":
            for _ in cursor.items():
                yield from _item_rows(cursor.value())
        else:
            cursor.value()
            yield BROKEN


def _item_rows(value: object) -> Iterator[Row]:
    if not isinstance(value, dict):
        yield BROKEN
    elif _is_document(value):
        yield from _value_rows(_Cursor(io.StringIO(json.dumps(value)), ""))
    else:
        yield _reshaped(value)


def _document_rows(cursor: _Cursor) -> Iterator[Row]:
    """Rows inside one object; the object itself is the row where it has none inside."""
    beside: Row = {}
    columns: dict[str, array[float]] = {}
    nested = False
    for key in cursor.members():
        tree = _DOCUMENTS.get(key)
        if cursor.peek() != "[":
            beside[key] = cursor.value()
        elif tree is None:
            items: list[object] = []
            room = _KEPT_ITEMS
            for _ in cursor.items():
                item = cursor.value()
                room -= 1 if isinstance(item, (int, float, str)) else _KEPT_ITEMS // 64
                if room >= 0:
                    items.append(item)
            if room >= 0:
                beside[key] = items
        elif tree is _NUMBERS:
            columns[key] = array("d", (_as_float(cursor.value()) for _ in cursor.items()))
        else:
            nested = True
            yield from _below(cursor, tree)
    if columns:
        if len({len(column) for column in columns.values()}) > 1:
            sizes = ", ".join(f"{key} {len(column)}" for key, column in columns.items())
            raise JsonError(f"lists that belong together differ in length ({sizes})")
        names = tuple(columns)
        for numbers in zip(*columns.values(), strict=True):
            yield dict(zip(names, numbers, strict=True))
    elif not nested:
        yield _reshaped(beside)


def _below(cursor: _Cursor, tree: object) -> Iterator[Row]:
    if tree is _ROW:
        yield from _item_rows(cursor.value())
    elif isinstance(tree, Mapping) and cursor.peek() == "[" and "*" in tree:
        for _ in cursor.items():
            yield from _below(cursor, tree["*"])
    elif isinstance(tree, Mapping) and cursor.peek() == "{":
        for key in cursor.members():
            yield from _below(cursor, tree.get(key))
    else:
        cursor.value()


def _as_float(value: object) -> float:
    """A number; a list of numbers (the gaps between the tokens of one request) is their sum."""
    if isinstance(value, list):
        return sum(map(_as_float, value))
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _reshaped(row: Row) -> Row:
    """OTLP attributes as a mapping, and payloads that are JSON in a string as objects."""
    attributes = row.get("attributes")
    if isinstance(attributes, list):
        row["attributes"] = {
            str(item.get("key")): next(iter(item["value"].values()), None)
            for item in attributes
            if isinstance(item, dict) and isinstance(item.get("value"), dict)
        }
    capture = row.get("captureData")
    if isinstance(capture, dict):
        for end in capture.values():
            if isinstance(end, dict) and isinstance(end.get("data"), str):
                end["data"] = _object_in(end["data"])
    return row


class _Cursor:
    """A place in a JSON text that is read as far as needed."""

    def __init__(self, stream: Readable, start: str) -> None:
        self._stream, self._text, self._at, self._ended, self._passed = stream, start, 0, False, 0
        self._decoder = json.JSONDecoder()

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            text, at = self._text, self._at
            while at < len(text) and text[at] in " \t\r\n":
                at += 1
            self._at = at
            if at < len(text):
                return text[at]
            if not self._more():
                return ""

    def value(self) -> object:
        """The value that starts here."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                unended = error.msg.startswith("Unterminated string")
                if not ((unended or error.pos > len(self._text) - _NEAR_END) and self._more()):
                    cut = self._ended and (unended or error.pos >= len(self._text.rstrip()))
                    raise self._error("is cut off" if cut else error.msg, error.pos) from error
            except ValueError as error:  # a number with thousands of digits
                raise self._error(str(error)) from error
            else:
                # a number may go on beyond the text read so far
                if end < len(self._text) or not self._more():
                    self._at = end
                    return value

    def items(self) -> Iterator[None]:
        """Stops at each item of the list that starts here; the item must be taken before going on."""
        self._take("[")
        if self.peek() != "]":
            yield
            while self.peek() == ",":
                self._take(",")
                yield
        self._take("]")

    def members(self) -> Iterator[str]:
        """Stops at each value of the object that starts here, with its key."""
        self._take("{")
        while self.peek() != "}":
            key = self.value()
            self._take(":")
            self.peek()
            yield str(key)
            if self.peek() != ",":
                break
            self._take(",")
        self._take("}")

    def _take(self, mark: str) -> None:
        found = self.peek()
        if found != mark:
            raise self._error(f"expected {mark!r}, found {found!r}" if found else "is cut off")
        self._at += 1

    def _more(self) -> bool:
        """Read on, at least as much as is waiting, so that long values are not decoded too often."""
        rest = self._text[self._at :]
        if len(rest) > _LONGEST:
            raise self._error(f"a value is longer than {_LONGEST >> 20} million characters")
        block = "" if self._ended else self._stream.read(max(_BLOCK, len(rest)))
        self._ended = not block
        self._passed += self._at
        self._text, self._at = rest + block, 0
        return bool(block)

    def _error(self, what: str, at: int | None = None) -> JsonError:
        return JsonError(f"{what} (near character {self._passed + (self._at if at is None else at):,})")
