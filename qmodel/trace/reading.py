"""Traces of any known format: sniffed by names, read in parts, bad rows counted by reason."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TextIO, TypeVar

from qmodel.trace.clock import spread_clock
from qmodel.trace.columns import CsvPart, JsonPart, Part
from qmodel.trace.formats import FORMATS, NOT_REQUESTS, Container, TraceFormat, matches, plain_name, sniff
from qmodel.trace.gathering import Gathering
from qmodel.trace.histograms import looks_like_metrics, looks_like_windows
from qmodel.trace.json_stream import BROKEN, JsonError, json_rows
from qmodel.trace.opening import file_error, opened
from qmodel.trace.records import Trace

__all__ = ["read_trace"]

Item = TypeVar("Item")
_PART_ROWS = 8192
_PART_CHARACTERS = 1 << 22
_LONGEST_LINE = 1 << 20
_LISTED = 30
_FAMILIES = ("gamma", "weibull", "exponential")


def read_trace(path: str | Path, *, format: str | None = None, by: str | None = None, spread: bool = False) -> Trace:
    """Read recorded requests from CSV, JSON or JSON Lines, plain or gzipped.

    The format is told by the names of columns or keys (see docs/workload.md for the list); columns may stand in any
    order. A file is read in parts: memory grows with the numbers kept per request (some tens of bytes), not with the
    file. Rows that cannot be used are left out and counted by reason; arrivals are sorted and counted from the first.
    A coarse clock is noticed and noted.

    Args:
        path: the file.
        format: name of a format instead of sniffing.
        by: column or key path that names the classes, instead of the one that the format has.
        spread: spread the rows of a coarse clock at random over its steps (fixed seed), see :func:`spread_clock`.

    Raises:
        ScenarioError: if the file is missing, broken, empty or of no known format, or has no usable row.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "two.csv"
        ...     _ = file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\\n"
        ...                         "2023-11-16 18:17:03.9799600,4808,10\\n2023-11-16 18:17:04.0319600,3180,8\\n")
        ...     trace = read_trace(file)
        >>> trace.format, trace.arrival_s.round(3).tolist(), trace.prompt_tokens.tolist()
        ('azure', [0.0, 0.052], [4808, 3180])
    """
    file = Path(path)
    known = {item.name: item for item in FORMATS}
    if format is not None and format not in known:
        raise file_error(file, f"no trace format {format!r}", hint=_did_you_mean(format, known))
    with opened(file) as text:
        try:
            trace = _gathered(_table(text, file), file, None if format is None else known[format], by)
        except JsonError as cause:
            raise file_error(file, f"cannot be read: is not valid JSON: {cause}") from cause
    return spread_clock(trace) if spread else trace


@dataclass(slots=True, kw_only=True)
class _Table:
    """Rows of a file in parts, and the rows that fell out before they had columns."""

    container: Container
    parts: Iterator[Part]
    rejected: dict[str, int] = field(default_factory=dict)
    header: tuple[str, ...] = ()


def _gathered(table: _Table, file: Path, chosen: TraceFormat | None, by: str | None) -> Trace:
    first = next(table.parts, None)
    if first is None:
        reasons = ", ".join(f"{count} {reason}" for reason, count in table.rejected.items()) or "it has no rows"
        raise file_error(file, f"no usable request ({reasons})")
    found = first.names
    listed = table.header or tuple(found.values())
    kind = chosen or sniff(found, table.container)
    if chosen is None:
        _refuse_aggregates(found, file)
    fields = dict(kind.fields)
    if by is not None:
        if plain_name(by) not in found:
            raise file_error(file, f"has no column {by!r} to tell classes by", hint=_did_you_mean(by, listed))
        fields["class"] = (by,)
    _check_fields(fields, found, listed, file)
    gathering = Gathering(kind, fields)
    for part in chain([first], table.parts):
        gathering.add(part)
    used = {plain_name(name) for names in fields.values() for name in names} | {
        plain_name(skip.name) for skip in kind.skip
    }
    unused = tuple(name for name in listed if plain_name(name) not in used)
    return gathering.trace(source=str(file), rejected=table.rejected, unused=unused)


def _table(text: TextIO, file: Path) -> _Table:
    start = text.readline(_LONGEST_LINE)
    while start and not start.strip():
        start = text.readline(_LONGEST_LINE)
    if looks_like_metrics(start) or looks_like_windows(start):
        raise file_error(
            file,
            "has histograms of lengths, not requests",
            hint="qmodel trace describe and fit read it, read_histograms gives its laws",
        )
    if start.lstrip()[:1] in "{[":
        return _json_table(text, start)
    return _csv_table(_Counted(chain([start], _csv_lines(text, file))), start, file)


def _csv_lines(text: TextIO, file: Path) -> Iterator[str]:
    while line := text.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise file_error(file, f"cannot be read: a line is longer than {_LONGEST_LINE:,} characters")
        yield line


def _csv_table(lines: _Counted, start: str, file: Path) -> _Table:
    delimiter = max(",;\t", key=start.count)
    rows = (row for row in csv.reader(lines, delimiter=delimiter) if row)
    header = next(rows, [])
    names = [plain_name(name) for name in header]
    cells = [cell.strip().lower() for cell in header]
    if len(cells) == 6 and cells[3] in _FAMILIES:
        raise file_error(
            file,
            "is a ServeGen rate file: rates and fits of gaps per window, no requests",
            hint="its lengths are in dataset.json, which read_histograms and qmodel trace fit read",
        )
    where = {name: names.index(name) for name in reversed(names) if name}
    table = _Table(container="csv", parts=iter(()), header=tuple(name.strip() for name in header))
    table.parts = _csv_parts(rows, where, lines, table.rejected)
    return table


def _csv_parts(
    rows: Iterator[list[str]], where: Mapping[str, int], lines: _Counted, rejected: dict[str, int]
) -> Iterator[Part]:
    width = max(where.values(), default=0) + 1
    empty = True
    for batch in _batches(rows, lines):
        full = [row for row in batch if len(row) >= width]
        if len(full) < len(batch):
            reason = "too few columns"
            rejected[reason] = rejected.get(reason, 0) + len(batch) - len(full)
        if full or empty:
            empty = False
            yield CsvPart(full, where)
    if empty:
        yield CsvPart([], where)


def _json_table(text: TextIO, start: str) -> _Table:
    table = _Table(container="json", parts=iter(()))
    counted = _CountedText(text, start)
    table.parts = _json_parts(json_rows(counted), counted, table.rejected)
    return table


def _json_parts(rows: Iterator[dict[str, object]], counted: _CountedText, rejected: dict[str, int]) -> Iterator[Part]:
    for batch in _batches(rows, counted):
        whole = [row for row in batch if row is not BROKEN]
        if len(whole) < len(batch):
            reason = "not a JSON object"
            rejected[reason] = rejected.get(reason, 0) + len(batch) - len(whole)
        if whole:
            yield JsonPart(whole)


class _Counted:
    """Lines, and how many characters went through."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines, self.characters = lines, 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.characters += len(line)
            yield line


class _CountedText:
    """A text stream with its first line put back, and how many characters went through."""

    def __init__(self, stream: TextIO, start: str) -> None:
        self._stream, self._start, self.characters = stream, start, 0

    def readline(self, size: int) -> str:
        start, self._start = self._start, ""
        return self._through(start or self._stream.readline(size))

    def read(self, size: int) -> str:
        start, self._start = self._start, ""
        return self._through(start or self._stream.read(size))

    def _through(self, text: str) -> str:
        self.characters += len(text)
        return text


def _batches(rows: Iterator[Item], counted: _Counted | _CountedText) -> Iterator[list[Item]]:
    """Rows in lists that stay small in rows and in characters."""
    batch: list[Item] = []
    limit = counted.characters + _PART_CHARACTERS
    for row in rows:
        batch.append(row)
        if len(batch) >= _PART_ROWS or counted.characters > limit:
            yield batch
            batch = []
            limit = counted.characters + _PART_CHARACTERS
    if batch:
        yield batch


def _check_fields(
    fields: Mapping[str, Sequence[str]], found: Collection[str], listed: Sequence[str], file: Path
) -> None:
    """Complain where prompt or output tokens are in no column."""
    there = {name for name, names in fields.items() if any(plain_name(option) in found for option in names)}
    missing = [name for name in ("prompt", "output") if name not in there]
    if "output" in missing and {"reasoning", "answer"} <= there:
        missing.remove("output")
    if not missing:
        return
    shown = ", ".join(listed[:_LISTED]) + (f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else "")
    wanted = " and ".join(f"{name}_tokens" for name in missing)
    raise file_error(
        file,
        f"has no column {wanted} (found: {shown})",
        hint="name the columns arrival_s, prompt_tokens and output_tokens, or use one of the known formats: "
        + ", ".join(item.name for item in FORMATS),
    )


def _refuse_aggregates(found: Collection[str], file: Path) -> None:
    for item in NOT_REQUESTS:
        if matches(found, item.marks, item.absent):
            raise file_error(file, item.what, hint=item.hint)


def _did_you_mean(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(list(known)[:_LISTED])}"
