"""Traces written as the project's own CSV."""

from __future__ import annotations

import gzip
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO, cast

import numpy as np

from qmodel.trace.opening import file_error
from qmodel.trace.records import Trace

__all__ = ["trace_csv", "write_trace"]

_PART_ROWS = 8192


def trace_csv(trace: Trace) -> Iterator[str]:
    """The trace as pieces of CSV text, header first: what :func:`qmodel.trace.read_trace` reads without loss.

    Columns are ``arrival_s`` (microseconds), ``prompt_tokens``, ``output_tokens``, ``reasoning_tokens``,
    ``cached_prefix_tokens``, ``ttft_s``, ``completion_s`` and ``class``, as far as they are known.

    Example:
        >>> tokens = np.array([4, 7])
        >>> trace = Trace(arrival_s=np.array([0.0, 1.5]), prompt_tokens=tokens, output_tokens=tokens - 2, source="two")
        >>> print("".join(trace_csv(trace)), end="")
        arrival_s,prompt_tokens,output_tokens
        0,4,2
        1.5,7,5
    """
    columns = {
        "arrival_s": None if trace.arrival_s is None else np.round(trace.arrival_s, 6),
        "prompt_tokens": trace.prompt_tokens,
        "output_tokens": trace.output_tokens,
        "reasoning_tokens": trace.reasoning_tokens,
        "cached_prefix_tokens": trace.cached_prefix_tokens,
        "ttft_s": trace.ttft_s,
        "completion_s": trace.completion_s,
        "class": trace.cls,
    }
    present = {name: column for name, column in columns.items() if column is not None}
    yield ",".join(present) + "\n"
    for start in range(0, len(trace), _PART_ROWS):
        cells = [map(_cell, column[start : start + _PART_ROWS].tolist()) for column in present.values()]
        yield "".join(",".join(row) + "\n" for row in zip(*cells, strict=True))


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write the trace as CSV, gzipped where the name ends in ``.gz``; whole or not at all.

    The same trace gives the same bytes.

    Args:
        trace: any.
        path: file to write; its folder must exist.

    Raises:
        ScenarioError: if it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise file_error(Path(path), "is a folder; name a file")
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8", newline="") as stream:
                stream.writelines(trace_csv(trace))
            return
        _replace(trace, target)
    except OSError as cause:
        raise file_error(Path(path), f"cannot be written: {cause.strerror or cause}") from cause


def _replace(trace: Trace, target: Path) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as raw:
            with _packed(raw, packed=target.name.lower().endswith(".gz")) as stream:
                stream.writelines(trace_csv(trace))
            raw.flush()
            os.fsync(raw.fileno())
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _packed(raw: IO[bytes], *, packed: bool) -> Iterator[TextIO]:
    # without name and time in its header the same content gives the same bytes
    inner = cast("IO[bytes]", gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)) if packed else raw
    text = io.TextIOWrapper(inner, encoding="utf-8", newline="")
    yield text
    text.flush()
    text.detach()
    if packed:
        inner.close()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cell(value: object) -> str:
    if isinstance(value, float):
        if value != value:
            return ""  # a row without this time
        return f"{value:.6f}".rstrip("0").rstrip(".")
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(letter in text for letter in ',"\n\r') else text
