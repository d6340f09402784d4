"""Traces as tables: columns found by name, bad rows counted by reason."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qmodel.errors import Problem, ScenarioError
from qmodel.trace.records import Trace
from qmodel.types import FloatArray

__all__ = ["read_trace"]

# Names as they occur in the wild, without case, spaces and signs.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "arrival": ("arrivals", "arrivalms", "timestamp", "timestampms", "arrivedat", "arrivaltime", "arrivaltimes"),
    "prompt": (
        "prompttokens",
        "contexttokens",
        "numprefilltokens",
        "requesttokens",
        "inputtokens",
        "inputlength",
        "inputtoks",
        "promptlen",
    ),
    "output": (
        "outputtokens",
        "generatedtokens",
        "numdecodetokens",
        "responsetokens",
        "completiontokens",
        "outputlength",
        "outputtoks",
        "outputlen",
    ),
    "reasoning": ("reasoningtokens", "thinkingtokens"),
    "answer": ("answertokens",),
    "class": ("class", "cls", "requestclass"),
}
_MOST_TOKENS = 1e9


def read_trace(path: str | Path) -> Trace:
    """Read recorded requests from a ``.csv`` or ``.csv.gz`` file with a header.

    Columns are found by name: ``arrival_s``, ``prompt_tokens``, ``output_tokens``, ``reasoning_tokens``,
    ``answer_tokens`` and ``class``, or what Azure, BurstGPT, Vidur and others call them. Arrivals are seconds
    (milliseconds where the name ends with ``ms``) or dates; they are sorted and counted from the first one.
    A coarse clock is detected and noted, not repaired.

    Args:
        path: the file.

    Raises:
        ScenarioError: if the file is missing, broken or empty, lacks prompt or output tokens, or has no usable row.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "two.csv"
        ...     _ = file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\\n"
        ...                         "2023-11-16 18:17:03.9799600,4808,10\\n2023-11-16 18:17:04.0319600,3180,8\\n")
        ...     trace = read_trace(file)
        >>> trace.arrival_s.round(3).tolist(), trace.prompt_tokens.tolist()
        ([0.0, 0.052], [4808, 3180])
    """
    file = Path(path)
    header, rows = _table(file)
    where = _found(header, file)
    width = max(where.values()) + 1
    full = [row for row in rows if len(row) >= width]
    rejected: dict[str, int] = {}
    _count(rejected, "too few columns", len(rows) - len(full))
    columns = {name: [row[index].strip() for row in full] for name, index in where.items()}
    tokens: dict[str, FloatArray] = {
        name: _numbers(columns[name]) for name in ("prompt", "output", "reasoning", "answer") if name in columns
    }
    if "output" not in tokens:
        tokens["output"] = tokens["reasoning"] + tokens["answer"]
    arrival_s = _seconds(columns["arrival"], header[where["arrival"]]) if "arrival" in columns else None
    keep = _usable(tokens, arrival_s, rejected)
    if not keep.any():
        reasons = ", ".join(f"{count} {reason}" for reason, count in rejected.items()) or "it has no rows"
        raise _error(file, f"no usable request ({reasons})")
    notes = [f"{count} rows left out: {reason}" for reason, count in rejected.items()]
    order = np.flatnonzero(keep)
    step_s = span_s = None
    if arrival_s is not None:
        order, arrival_s, moved = _in_order(arrival_s, order)
        if moved:
            notes.append(f"arrivals were not in order: {moved} rows came earlier than a row before them; sorted")
        span_s = float(arrival_s[-1])
        step_s = _clock_step(arrival_s)
        if step_s is not None:
            notes.append(
                f"arrivals are stamped in steps of about {step_s:g} s; gaps shorter than that mean nothing, "
                "so spread the rows over the step before measuring burstiness"
            )
    else:
        notes.append("no arrival times: lengths only")
    return Trace(
        arrival_s=arrival_s,
        prompt_tokens=tokens["prompt"][order].astype(np.int64),
        output_tokens=tokens["output"][order].astype(np.int64),
        reasoning_tokens=tokens["reasoning"][order].astype(np.int64) if "reasoning" in tokens else None,
        cls=np.array(columns["class"])[order] if "class" in columns else None,
        source=str(path),
        rejected=rejected,
        notes=tuple(notes),
        clock_step_s=step_s,
        span_s=span_s,
    )


def _table(file: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows; blank lines are skipped."""
    name = file.name.lower()
    if not name.endswith((".csv", ".csv.gz")):
        raise _error(file, "this trace format is not supported yet", hint="use .csv or .csv.gz")
    if not file.is_file():
        raise _error(file, "no such file")
    try:
        if name.endswith(".gz"):
            with gzip.open(file, "rt", encoding="utf-8-sig", newline="") as stream:
                lines = [row for row in csv.reader(stream) if row]
        else:
            with file.open(encoding="utf-8-sig", newline="") as stream:
                lines = [row for row in csv.reader(stream) if row]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as cause:
        raise _error(file, f"cannot be read: {cause}") from cause
    if not lines:
        raise _error(file, "is empty")
    return lines[0], lines[1:]


def _found(header: Sequence[str], file: Path) -> Mapping[str, int]:
    """Position of each known column; complains when prompt or output tokens are not there."""
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in header]
    where = {
        column: plain.index(name)
        for column, names in _COLUMNS.items()
        for name in [next((name for name in names if name in plain), None)]
        if name is not None
    }
    missing = [name for name in ("prompt", "output") if name not in where]
    if "output" in missing and {"reasoning", "answer"} <= where.keys():
        missing.remove("output")
    if missing:
        wanted = " and ".join(f"{name}_tokens" for name in missing)
        raise _error(
            file,
            f"has no column {wanted} (found: {', '.join(name.strip() for name in header)})",
            hint="the first line must name the columns: arrival_s, prompt_tokens, output_tokens",
        )
    return where


def _usable(
    tokens: Mapping[str, FloatArray], arrival_s: FloatArray | None, rejected: dict[str, int]
) -> npt.NDArray[np.bool_]:
    """Rows that can be used; the others are counted under the first reason that applies."""
    keep = np.ones(tokens["prompt"].size, dtype=bool)

    def drop(bad: npt.NDArray[np.bool_], reason: str) -> None:
        _count(rejected, reason, int((keep & bad).sum()))
        keep[bad] = False

    if arrival_s is not None:
        drop(~np.isfinite(arrival_s), "arrival is not a time")
    for name in ("prompt", "output", "reasoning"):
        if name in tokens:
            value = tokens[name]
            drop(~(np.isfinite(value) & (np.abs(value) < _MOST_TOKENS)), f"{name} tokens are not a number")
            drop(value != np.floor(value), f"{name} tokens are not whole")
            least = 0 if name == "reasoning" else 1
            drop(value < least, f"{name} tokens below {least}")
    if "reasoning" in tokens:
        drop(tokens["reasoning"] > tokens["output"], "reasoning tokens above output tokens")
    return keep


def _in_order(arrival_s: FloatArray, kept: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], FloatArray, int]:
    """Kept rows in order of arrival, their times from the first one, and how many rows were out of order."""
    times = arrival_s[kept]
    moved = int((times < np.maximum.accumulate(times)).sum())
    order = kept[np.argsort(times, kind="stable")]
    times = arrival_s[order]
    return order, times - times[0], moved


def _clock_step(arrival_s: FloatArray) -> float | None:
    """Step of the clock when most requests share their stamp with another, in steps of one size; else None."""
    gaps = np.diff(arrival_s)
    positive = gaps[gaps > 1e-9]
    if positive.size < 10 or positive.size > 0.5 * gaps.size:
        return None
    step = float(np.median(positive))
    smallest = float(np.quantile(positive, 0.05))
    if smallest < 0.9 * step:  # the median may span several steps
        step = smallest
    multiple = positive / step
    whole = np.abs(multiple - np.round(multiple)) < 0.02 * np.maximum(np.round(multiple), 1.0)
    return float(f"{step:.3g}") if np.mean(whole) > 0.95 else None


def _numbers(column: Sequence[str]) -> FloatArray:
    """Numbers; NaN where the text is none."""
    try:
        return np.array(column, dtype=np.float64)
    except ValueError:
        return np.array([_number(text) for text in column])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _seconds(column: Sequence[str], name: str) -> FloatArray:
    """Arrivals in seconds, from numbers or from dates; NaN where the text is neither."""
    numbers = _numbers(column)
    if column and np.isnan(numbers).mean() < 0.5:
        milliseconds = re.sub(r"[^a-z]", "", name.lower()).endswith("ms")
        return numbers * 1e-3 if milliseconds else numbers
    dates = [re.sub(r"(Z|[+-]\d\d:?\d\d)$", "", text) for text in column]
    try:
        stamps = np.array(dates, dtype="datetime64[ns]")
    except ValueError:
        stamps = np.array([_date(text) for text in dates], dtype="datetime64[ns]")
    known = ~np.isnat(stamps)
    seconds = np.full(stamps.size, np.nan)
    if known.any():
        seconds[known] = (stamps[known] - stamps[known].min()).astype(np.int64) * 1e-9
    return seconds


def _date(text: str) -> np.datetime64:
    try:
        return np.datetime64(text, "ns")
    except ValueError:
        return np.datetime64("NaT", "ns")


def _count(rejected: dict[str, int], reason: str, rows: int) -> None:
    if rows:
        rejected[reason] = rows


def _error(file: Path, what: str, hint: str = "") -> ScenarioError:
    return ScenarioError([Problem(what=what, file=str(file), hint=hint)])
