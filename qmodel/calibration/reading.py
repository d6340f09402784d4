"""Measurements from files: tables of our own, results of benchmark tools, recorded requests."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from qmodel.calibration.columns import ROW_KINDS, Mismatch, Row, RowKind, missing_names, read_rows, row_kind
from qmodel.calibration.measurements import LeftOut, Measurements, ServingPoint, SourceFile, StepTime
from qmodel.calibration.requests import points_of_requests
from qmodel.errors import Problem, ScenarioError
from qmodel.files import Document, read_yaml
from qmodel.trace import read_trace
from qmodel.trace.formats import plain_name
from qmodel.trace.opening import file_error, opened
from qmodel.types import Layout

__all__ = ["read_measurements"]

MOST_PROBLEMS = 20
MOST_CHARACTERS = 64 << 20
_LAYOUT = ("tp", "pp", "ep", "dp")
_NAMED = ("model", "gpu", "engine", "precision")
_HEAD = ("layout", "title", "description", "note", "source", "as_of")
_WAYS = "give columns batch and step_ms, or users, prompt_tokens, output_tokens and tpot_ms, or a benchmark's requests"


def read_measurements(
    path: str | Path, *, layout: Layout | None = None, mismatch: Mismatch | None = None
) -> Measurements:
    """Read step times, benchmark summaries or recorded requests from CSV, JSON, JSON Lines or YAML.

    What a file holds is told by its names: rows of step times, rows of benchmarks at a fixed concurrency (results of
    ``vllm bench serve`` without details and of InferenceMAX among them), else a trace in any format that
    :func:`qmodel.read_trace` knows, with the times that it measured.

    Args:
        path: the file.
        layout: of measurements that state none.
        mismatch: says of a row's cells, by name without signs, why it is left out; empty where it is wanted.

    Raises:
        ScenarioError: the file cannot be read, lacks a column, or has numbers that cannot be; every problem at once.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "few.csv"
        ...     _ = file.write_text("users,isl,osl,tpot_ms\\n1,1000,200,8.1\\n32,1000,200,12.4\\n")
        ...     found = read_measurements(file)
        >>> [round(point.tpot_s, 6) for point in found.points]
        [0.0081, 0.0124]
    """
    file = Path(path)
    if file.name.lower().endswith((".yaml", ".yml")):
        found, kind = _from_yaml(read_yaml(file), layout, mismatch), "YAML"
    else:
        found, kind = _from_text(file, layout, mismatch)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return found.joined(Measurements(files=(SourceFile(file=str(path), sha256=digest, kind=kind),)))


def _from_text(file: Path, layout: Layout | None, mismatch: Mismatch | None) -> tuple[Measurements, str]:
    with opened(file) as text:
        content = text.read(MOST_CHARACTERS + 1)
    if len(content) <= MOST_CHARACTERS:  # a longer file holds requests, which a trace reads in parts
        start = content.lstrip()[:1]
        rows = _json_rows(content, file) if start in ("{", "[") else _csv_rows(content, file)
        kind = row_kind({name for row in rows for name in row.values}) if rows else None
        if kind is not None:
            return _measured(kind, rows, layout, str(file), mismatch), kind.title
    else:
        rows = []
    try:
        trace = read_trace(file)
    except ScenarioError as error:
        problems = [*error.problems, Problem(what="and it holds no rows of measurements", file=str(file), hint=_WAYS)]
        raise ScenarioError(problems) from error
    try:
        found = points_of_requests(trace, layout)
    except ScenarioError:
        summary = row_kind({name for row in rows for name in row.values}, details=True)
        if summary is None:
            raise
        return _measured(summary, rows, layout, str(file), mismatch), summary.title
    rejected = [LeftOut(place=str(file), reason=f"{count} rows: {reason}") for reason, count in trace.rejected.items()]
    return found.joined(Measurements(left_out=tuple(rejected))), f"requests ({trace.format})"


def _measured(
    kind: RowKind, rows: Sequence[Row], layout: Layout | None, file: str, mismatch: Mismatch | None
) -> Measurements:
    missing = missing_names(kind, {name for row in rows for name in row.values})
    if missing:
        raise ScenarioError(
            Problem(what=f"{kind.title}: nothing states {what}", file=file, line=1, column=1, hint=f"name it {names}")
            for what, names in missing
        )
    found, left_out, problems = read_rows(kind, rows, layout, mismatch)
    if problems:
        raise ScenarioError(problems[:MOST_PROBLEMS])
    return Measurements(
        steps=tuple(item for item in found if isinstance(item, StepTime)),
        points=tuple(item for item in found if isinstance(item, ServingPoint)),
        left_out=tuple(left_out),
    )


def _csv_rows(content: str, file: Path) -> list[Row]:
    first = content.split("\n", 1)[0]
    reader = csv.reader(content.splitlines(), delimiter=max(",;\t", key=first.count))
    header = next(reader, [])
    names = [plain_name(name) for name in header]
    rows = []
    for cells in reader:
        if any(cell.strip() for cell in cells):
            values = dict(zip(names, (cell.strip() for cell in cells), strict=False))
            rows.append(_row(values, str(file), reader.line_num, names, cells))
    return rows


def _row(values: Mapping[str, object], file: str, line: int, names: Sequence[str], cells: Sequence[str]) -> Row:
    def problem(name: str, what: str, hint: str) -> Problem:
        index = names.index(plain_name(name)) if plain_name(name) in names else 0
        column = 1 + sum(len(cell) + 1 for cell in cells[:index])
        return Problem(what=what, key=name, file=file, line=line, column=column, hint=hint)

    return Row(values=values, label=f"{file}:{line}", problem=problem)


def _json_rows(content: str, file: Path) -> list[Row]:
    """Objects at the top level: one, a list, or one a line."""
    try:
        found = json.loads(content)
    except RecursionError as cause:
        raise file_error(file, "cannot be read: JSON nested too deeply") from cause
    except json.JSONDecodeError:
        lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
        try:
            objects = [(f"{file}:{number}", number, json.loads(line)) for number, line in lines]
        except (json.JSONDecodeError, RecursionError):
            return []  # the reader of traces says what is broken
    else:
        listed = found if isinstance(found, list) else [found]
        objects = [
            (f"{file} ({index})" if len(listed) > 1 else str(file), 0, item) for index, item in enumerate(listed, 1)
        ]
    return [_object_row(item, label, number) for label, number, item in objects if isinstance(item, dict)]


def _object_row(item: Mapping[str, Any], label: str, line: int) -> Row:
    def problem(name: str, what: str, hint: str) -> Problem:
        place = label.rsplit(":", 1)[0] if line else label
        return Problem(what=what, key=name, file=place, line=line, column=1 if line else 0, hint=hint)

    return Row(values={plain_name(name): value for name, value in item.items()}, label=label, problem=problem)


def _from_yaml(document: Document, layout: Layout | None, mismatch: Mismatch | None) -> Measurements:
    problems = [_unknown(document, name, name, [kind.name for kind in ROW_KINDS]) for name in _strange(document)]
    own = document.data.get("layout", {})
    if not isinstance(own, dict) or any(name not in _LAYOUT or not _is_degree(value) for name, value in own.items()):
        problems.append(document.problem("layout", f"must be degrees (got {own!r})", "write {tp: 4}"))
    elif own:
        layout = Layout(**own)
    found = Measurements()
    for kind in ROW_KINDS:
        listed = document.data.get(kind.name, [])
        if not isinstance(listed, list):
            problems.append(document.problem(kind.name, f"must be a list (got {listed!r})", "write '- {...}' items"))
            continue
        rows = list(_yaml_rows(document, kind, listed, problems))
        if rows and not problems:
            found = found.joined(_measured(kind, rows, layout, document.file, mismatch))
    if not problems and not len(found) and not found.left_out:
        problems.append(document.problem("", "holds no measurements", "write a list under points: or steps:"))
    if problems:
        raise ScenarioError(problems[:MOST_PROBLEMS])
    return found


def _strange(document: Document) -> list[str]:
    return [name for name in document.data if name not in _HEAD and name not in {kind.name for kind in ROW_KINDS}]


def _is_degree(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _yaml_rows(document: Document, kind: RowKind, listed: Sequence[object], problems: list[Problem]) -> Iterator[Row]:
    known = [name for number in kind.numbers.values() for name in number.names]
    for index, item in enumerate(listed):
        key = f"{kind.name}[{index}]"
        if not isinstance(item, dict):
            problems.append(document.problem(key, f"must be a mapping (got {item!r})"))
            continue
        plain = {plain_name(name) for name in (*known, *_LAYOUT, *_NAMED)}
        problems += [
            _unknown(document, f"{key}.{name}", name, [*known, *_LAYOUT])
            for name in item
            if plain_name(name) not in plain
        ]
        yield _yaml_row(document, key, item)


def _yaml_row(document: Document, key: str, item: Mapping[str, object]) -> Row:
    def problem(name: str, what: str, hint: str) -> Problem:
        return document.problem(f"{key}.{name}", what, hint)

    line = document.position(key)[0]
    values = {plain_name(name): value for name, value in item.items()}
    return Row(values=values, label=f"{document.file}:{line}", problem=problem)


def _unknown(document: Document, key: str, name: str, known: Sequence[str]) -> Problem:
    near = get_close_matches(name, known, n=1)
    return document.problem(key, f"unknown key {name!r}", f"did you mean {near[0]!r}?" if near else "")
