"""Usable requests gathered part by part into arrays, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qmodel.trace.clock import clock_step
from qmodel.trace.columns import MISSING, ClassCodes, Part, PrefixCache, TimeColumn, numbers
from qmodel.trace.formats import TraceFormat
from qmodel.trace.observed import OBSERVED, ObservedTimes
from qmodel.trace.opening import file_error
from qmodel.trace.records import Trace
from qmodel.types import FloatArray, IntArray

__all__ = ["Gathering"]

Mask = npt.NDArray[np.bool_]

_MOST_TOKENS = 1e9
_MOST_SECONDS = 1e12
_COUNTS = ("prompt", "output", "reasoning", "answer", "cached")
_OPTIONAL = ("reasoning", "cached")  # a row that states none of these has none
_NO_TIME = "arrival is not a time"
_LONGEST_SPAN_S = 10 * 366 * 86_400.0


class Gathering:
    """Kept rows as arrays; each part of a file is added in its order."""

    def __init__(self, kind: TraceFormat, fields: Mapping[str, Sequence[str]]) -> None:
        self._kind, self._fields = kind, fields
        self._parts: list[dict[str, npt.NDArray[np.generic]]] = []
        self._sizes: list[int] = []
        self._rejected: dict[str, int] = {}
        self._blank: dict[str, int] = {}
        self._classes = ClassCodes()
        self._times: TimeColumn | None = None
        self._prefixes = PrefixCache(kind.block_tokens)
        self._observed = ObservedTimes(fields, kind.durations)

    def add(self, part: Part) -> None:
        """Keep the usable rows of a part."""
        keep = np.ones(len(part), dtype=np.bool_)
        for skip in self._kind.skip:
            values = part.column((skip.name,))
            if values is not None:
                hit = np.array([str(value).lower() in skip.values for value in values], dtype=np.bool_)
                self._drop(keep, hit, skip.reason)
        kept: dict[str, npt.NDArray[np.generic]] = {}
        arrival_s = self._arrivals(part)
        if arrival_s is not None:
            self._drop(keep, ~(np.abs(arrival_s) < _MOST_SECONDS), _NO_TIME)
            kept["arrival"] = arrival_s
        names = part.column(self._fields.get("class", ()))
        if names is not None:
            codes = self._classes.codes(names)
            self._drop(keep, codes < 0, "class name of more than 200 characters")
            kept["class"] = codes
        tokens = self._tokens(part)
        self._drop_unusable(keep, tokens)
        self._count_blanks(keep, tokens)
        rows = {name: values[keep] for name, values in kept.items()}
        for name in ("prompt", "output", *_OPTIONAL):
            if name in tokens:
                rows[name] = tokens[name][keep].astype(np.int64)
        for name, seconds in self._observed.seconds(part, arrival_s, self._times).items():
            rows[name] = seconds[keep]
        self._parts.append(rows)
        self._sizes.append(int(keep.sum()))

    def trace(self, *, source: str, rejected: Mapping[str, int], unused: Sequence[str]) -> Trace:
        """All kept rows in order of arrival.

        Args:
            source: the file.
            rejected: rows that fell out before they had columns.
            unused: columns that nothing was taken from.

        Raises:
            ScenarioError: if no row is usable.
        """
        self._drop_untimed()
        lost = {**rejected, **self._rejected}
        if not sum(self._sizes):
            reasons = ", ".join(f"{count} {reason}" for reason, count in lost.items()) or "it has no rows"
            raise file_error(Path(source), f"no usable request ({reasons})")
        notes = [f"{count} rows left out: {reason}" for reason, count in lost.items()]
        notes += [self._kind.note] if self._kind.note else []
        arrival_s, order = self._in_order(notes)

        def sorted_column(name: str) -> IntArray | None:
            column = self._column(name)
            return None if column is None else np.asarray(column if order is None else column[order], dtype=np.int64)

        codes, prompt, output = sorted_column("class"), sorted_column("prompt"), sorted_column("output")
        assert prompt is not None and output is not None
        reasoning, cached = sorted_column("reasoning"), sorted_column("cached")
        notes += [f"{count} rows state no {name} tokens; taken as 0" for name, count in self._blank.items() if count]
        ttft_s, completion_s = (self._measured(name, order, notes) for name in OBSERVED)
        step_s = None if arrival_s is None else clock_step(arrival_s)
        notes += _time_notes(arrival_s, step_s)
        return Trace(
            arrival_s=arrival_s,
            prompt_tokens=prompt,
            output_tokens=output,
            reasoning_tokens=reasoning,
            cached_prefix_tokens=None if cached is None else np.minimum(cached, prompt),
            ttft_s=ttft_s,
            completion_s=completion_s,
            cls=None if codes is None else self._classes.names(codes),
            source=source,
            format=self._kind.name,
            rejected=lost,
            notes=tuple(notes),
            unused=tuple(unused),
            clock_step_s=step_s,
            span_s=None if arrival_s is None else float(arrival_s[-1]),
        )

    def _arrivals(self, part: Part) -> FloatArray | None:
        names = self._fields.get("arrival", ())
        values = part.column(names)
        if values is None:
            return None
        if self._times is None:
            self._times = TimeColumn(next(name for name in names if part.column((name,)) is not None), self._kind.time)
        return self._times.seconds(values)

    def _tokens(self, part: Part) -> dict[str, FloatArray]:
        """Token counts of each row; prompt and output always, the others where this part states them."""
        columns = {name: part.column(self._fields.get(name, ())) for name in _COUNTS}
        tokens = {name: numbers(column) for name, column in columns.items() if column is not None}
        if "output" not in tokens and {"reasoning", "answer"} <= tokens.keys():
            tokens["output"] = tokens["reasoning"] + tokens["answer"]
        for name in ("prompt", "output"):
            tokens.setdefault(name, np.full(len(part), MISSING))
        hashes = part.column(self._fields.get("hashes", ()))
        if hashes is not None:
            tokens["cached"] = self._prefixes.hits(hashes)
        return tokens

    def _drop_unusable(self, keep: Mask, tokens: Mapping[str, FloatArray]) -> None:
        """Rows whose counts make no sense; each is counted under the first reason that applies."""
        for name in ("prompt", "output", *_OPTIONAL):
            if name not in tokens:
                continue
            value = tokens[name]
            missing = value == MISSING
            if name in _OPTIONAL:
                value = np.where(missing, 0.0, value)
            else:
                self._drop(keep, missing, f"{name} tokens are missing")
            sound = np.isfinite(value) & (np.abs(value) < _MOST_TOKENS)
            self._drop(keep, ~sound, f"{name} tokens are not a number")
            value = np.where(sound, value, 0.0)
            self._drop(keep, value != np.floor(value), f"{name} tokens are not whole")
            least = 0 if name in _OPTIONAL else 1
            self._drop(keep, value < least, f"{name} tokens below {least}")
        if "reasoning" in tokens:
            self._drop(keep, tokens["reasoning"] > tokens["output"], "reasoning tokens above output tokens")

    def _drop(self, keep: Mask, bad: Mask, reason: str) -> None:
        count = int((keep & bad).sum())
        if count:
            self._rejected[reason] = self._rejected.get(reason, 0) + count
            keep[bad] = False

    def _count_blanks(self, keep: Mask, tokens: Mapping[str, FloatArray]) -> None:
        for name in _OPTIONAL:
            if name in tokens:
                blank = tokens[name] == MISSING
                self._blank[name] = self._blank.get(name, 0) + int((blank & keep).sum())
                tokens[name][blank] = 0.0

    def _drop_untimed(self) -> None:
        """Parts without any time in a file that has times elsewhere."""
        if self._times is None:
            return
        for index, rows in enumerate(self._parts):
            if "arrival" not in rows and self._sizes[index]:
                self._rejected[_NO_TIME] = self._rejected.get(_NO_TIME, 0) + self._sizes[index]
                self._parts[index], self._sizes[index] = {}, 0

    def _in_order(self, notes: list[str]) -> tuple[FloatArray | None, npt.NDArray[np.intp] | None]:
        """Arrivals from the first one, and the order that sorts the other columns; None where they are sorted."""
        column = self._column("arrival")
        if column is None:
            return None, None
        times = np.asarray(column, dtype=np.float64)
        moved = int((times < np.maximum.accumulate(times)).sum())
        order = None
        if moved:
            notes.append(f"arrivals were not in order: {moved} rows came earlier than a row before them; sorted")
            order = np.argsort(times, kind="stable")
            times = times[order]
        return times - times[0], order

    def _column(self, name: str) -> npt.NDArray[np.generic] | None:
        """One column of all parts; what the parts held of it is let go."""
        if not any(name in rows for rows in self._parts):
            return None
        pieces = []
        for rows, size in zip(self._parts, self._sizes, strict=True):
            piece = rows.pop(name, None)
            if piece is None:
                piece = self._filler(name, size)
            pieces.append(piece)
        return np.concatenate(pieces)

    def _measured(self, name: str, order: npt.NDArray[np.intp] | None, notes: list[str]) -> FloatArray | None:
        """Durations that the source measured; None where no row states one."""
        column = self._column(name)
        if column is None or np.all(np.isnan(seconds := np.asarray(column, dtype=np.float64))):
            return None
        missing = int(np.isnan(seconds).sum())
        if missing:
            notes.append(f"{missing} rows state no {name} time that makes sense")
        return seconds if order is None else seconds[order]

    def _filler(self, name: str, size: int) -> npt.NDArray[np.generic]:
        if name == "class":
            return self._classes.codes([None] * size)
        if name in OBSERVED:
            return np.full(size, np.nan)
        self._blank[name] = self._blank.get(name, 0) + size
        return np.zeros(size, dtype=np.int64)


def _time_notes(arrival_s: FloatArray | None, step_s: float | None) -> list[str]:
    if arrival_s is None:
        return ["no arrival times: lengths only"]
    notes = []
    if step_s is not None:
        notes.append(
            f"arrivals are stamped in steps of about {step_s:g} s; gaps shorter than that mean nothing, "
            "so spread the rows over the step before measuring burstiness"
        )
    if arrival_s[-1] > _LONGEST_SPAN_S:
        notes.append(f"the file spans {arrival_s[-1] / (366 * 86_400):.0f} years; are its times in another unit?")
    return notes
