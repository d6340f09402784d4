"""Memory grows with the numbers kept for each request, not with the file."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from qmodel.trace import read_trace

MB = 1 << 20


def csv_of_dates(file: Path) -> int:
    """55 MB, 1.5 million rows."""
    rows = 1_500_000
    with file.open("w") as stream:
        stream.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for i in range(rows):
            second = i // 1000
            stream.write(
                f"2024-05-10 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{i % 1000:03},{i},7\n"
            )
    return rows - 1  # the first prompt has no token


def json_with_texts(file: Path) -> int:
    """60 MB, one list of 20,000 rows with long texts beside the numbers."""
    rows = 20_000
    with file.open("w") as stream:
        stream.write("[")
        for i in range(rows):
            row = {"timestamp": i, "input_length": 5, "output_length": 6, "text": "x" * 3000}
            stream.write((", " if i else "") + json.dumps(row))
        stream.write("]")
    return rows


def bench_with_gaps(file: Path) -> int:
    """50 MB in one object on one line, most of it gaps between tokens that are not needed."""
    rows = 20_000
    gaps = [[0.0123456789] * 200]
    with file.open("w") as stream:
        numbers = json.dumps([5] * rows)
        stream.write('{"itls": [' + ", ".join(json.dumps(gaps[0]) for _ in range(rows)) + "], ")
        stream.write(f'"input_lens": {numbers}, "output_lens": {numbers}, "start_times": {numbers}}}')
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "bytes_per_row", "floor_mb"), [(csv_of_dates, 90, 8), (json_with_texts, 90, 24), (bench_with_gaps, 90, 8)]
)
def test_a_long_file_is_read_in_little_memory(
    tmp_path: Path, write: Callable[[Path], int], bytes_per_row: int, floor_mb: int
) -> None:
    file = tmp_path / "long"
    rows = write(file)
    assert file.stat().st_size > 45 * MB
    tracemalloc.start()
    try:
        trace = read_trace(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(trace) == rows
    assert peak < bytes_per_row * rows + floor_mb * MB
