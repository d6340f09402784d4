"""A file that cannot be read says why; a broken row is counted, never dropped in silence."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
from pathlib import Path

import pytest

from qmodel.errors import ScenarioError
from qmodel.trace import read_histograms, read_trace

SAMPLES = Path(__file__).parents[1] / "data" / "trace"
CSV = "arrival_s,prompt_tokens,output_tokens\n" + "1,2,3\n" * 5000
ROW = {"timestamp": 5, "input_length": 3, "output_length": 4}


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "a.csv", "is empty"),
        (b" \n\n", "a.jsonl", "is empty"),
        (gzip.compress(b"", mtime=0), "a.csv.gz", "is empty"),
        (gzip.compress(CSV.encode(), mtime=0)[:100], "a.csv.gz", "the gzip data ends early, the file is cut off"),
        (gzip.compress(CSV.encode(), mtime=0)[:5], "a.csv.gz", "cannot be read: the gzip data ends early"),
        (CSV.encode(), "a.csv.gz", "Not a gzipped file"),
        (CSV.encode("utf-16"), "a.csv", "is UTF-16 text or binary; save it as UTF-8"),
        ("arrival_s,prompt_tokens,output_tokens,classé\n1,2,3,ä\n".encode("latin-1"), "a.csv", "not UTF-8 text.*0xe9"),
        (b"PAR1\x15\x04", "a.parquet", "is a Parquet file; write it as CSV first"),
        (b"PK\x03\x04rest", "a.xlsx", "is a zip archive or a spreadsheet"),
        (b"\x28\xb5\x2f\xfd\x00", "a.csv.zst", "compressed with zstd"),
        (b"\x89bin\x00\x01\x02", "a.csv", "is binary"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a.jsonl", "Git LFS pointer"),
        (b'[{"input_length": 3, "output_length": 4}, {"input', "a.json", "is not valid JSON: is cut off"),
        (b'[{"input_length": 3 "output_length": 4}]', "a.json", r"is not valid JSON: .* \(near character 21\)"),
        (b'{"input_lens": [1, 2], "output_lens": [1]}', "a.json", "is not valid JSON: lists that belong together"),
        (b'{"data": []}', "a.json", r"no usable request \(it has no rows\)"),
        (b'{"x": {"input', "a.json", "is cut off"),
        (b"[" * 100_000, "a.json", "nested too deeply|cut off"),
        (b"[1, 2]", "a.json", r"no usable request \(2 not a JSON object\)"),
        (b'prompt_tokens,output_tokens\n"1,' + b"9" * 200_000, "a.csv", "cannot be read: field larger"),
        (b"prompt_tokens,output_tokens\n" + b"9" * 2_000_000, "a.csv", "a line is longer than"),
    ],
)
def test_an_unreadable_file_says_why(tmp_path: Path, content: bytes, name: str, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ScenarioError, match=message) as caught:
        read_trace(file)
    assert caught.value.problems[0].file == str(file)


def test_a_flipped_byte_in_a_gzipped_trace_is_an_error_and_not_a_shorter_trace(tmp_path: Path) -> None:
    packed = bytearray(
        gzip.compress(
            b"arrival_s,prompt_tokens,output_tokens\n" + b"".join(b"%d,5,3\n" % i for i in range(20_000)), mtime=0
        )
    )
    packed[len(packed) // 2] ^= 0xFF
    file = tmp_path / "a.csv.gz"
    file.write_bytes(bytes(packed))
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_trace(file)


def test_lines_that_are_no_json_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(ROW) + "\nnonsense\n\n[1]\n" + json.dumps(ROW) + '\n{"timestamp": 9, "inp')
    trace = read_trace(file)
    assert len(trace) == 2
    assert trace.rejected == {"not a JSON object": 3}


def test_strange_values_are_counted_and_never_crash(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    values: list[object] = [None, "", "x", [1], {"a": 1}, True, 1e300, 10**400, -1, 2.5, "7"]
    rows = [{**ROW, "input_length": value} for value in values]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read_trace(file)
    assert trace.prompt_tokens.tolist() == [1, 7]
    assert sum(trace.rejected.values()) == len(values) - 2
    assert set(trace.rejected) <= {f"prompt tokens {why}" for why in ("are missing", "are not a number", "below 1")} | {
        "prompt tokens are not whole"
    }


def test_unsorted_rows_of_every_kind_of_file_are_sorted_together(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    rows = [{**ROW, "timestamp": stamp, "input_length": stamp, "chat_id": 1, "type": str(stamp)} for stamp in (9, 3, 6)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read_trace(file)
    assert trace.arrival_s is not None
    assert trace.cls is not None
    assert trace.arrival_s.tolist() == [0.0, 3.0, 6.0]
    assert trace.prompt_tokens.tolist() == [3, 6, 9]
    assert trace.cls.tolist() == ["3", "6", "9"]
    assert any("not in order: 2 rows" in note for note in trace.notes)


def test_nothing_is_lost_between_parts_of_a_long_file(tmp_path: Path) -> None:
    rows = 30_000
    file = tmp_path / "a.csv"
    lines = "".join(f"{i},{i + 1 if i % 7 else 'x'},3\n" for i in range(rows))
    file.write_text("arrival_s,prompt_tokens,output_tokens\n" + lines)
    trace = read_trace(file)
    assert len(trace) + sum(trace.rejected.values()) == rows
    assert int(trace.prompt_tokens.sum()) == sum(i + 1 for i in range(rows) if i % 7)


def test_columns_that_appear_late_are_kept_and_the_rows_before_are_said_to_lack_them(tmp_path: Path) -> None:
    early = {"usage": {"prompt_tokens": 4, "completion_tokens": 5}, "created": 1}
    late = {"usage": {**early["usage"], "completion_tokens_details": {"reasoning_tokens": 2}}, "created": 2}  # type: ignore[dict-item]
    file = tmp_path / "a.jsonl"
    file.write_text((json.dumps(early) + "\n") * 9000 + json.dumps(late) + "\n")
    trace = read_trace(file)
    assert trace.reasoning_tokens is not None
    assert trace.reasoning_tokens.sum() == 2
    assert "9000 rows state no reasoning tokens; taken as 0" in trace.notes


@pytest.mark.filterwarnings("error")
def test_damaged_files_of_every_format_are_read_or_refused_but_never_crash(tmp_path: Path) -> None:
    rng = random.Random(1)
    samples = sorted(file for file in SAMPLES.iterdir() if file.suffix != ".md")
    splinters = [b"null", b"-1", b"1e400", b"9" * 30, b"[", b"{", b'"', b",", b"\n", b"NaN", b"true", b"\xff"]
    file = tmp_path / "a"
    for _ in range(600):
        content = bytearray(rng.choice(samples).read_bytes())
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(content))
            content[at : at + rng.choice([0, 0, 1, 20])] = rng.choice(splinters)
        file.write_bytes(content)
        for read in (read_trace, read_histograms):
            with contextlib.suppress(ScenarioError):
                read(file)


def test_rows_without_a_time_in_a_file_with_times_are_left_out(tmp_path: Path) -> None:
    untimed = {"usage": {"prompt_tokens": 4, "completion_tokens": 5}}
    file = tmp_path / "a.jsonl"
    file.write_text((json.dumps(untimed) + "\n") * 9000 + json.dumps({**untimed, "created": 2}) + "\n")
    trace = read_trace(file)
    assert len(trace) == 1
    assert trace.rejected == {"arrival is not a time": 9000}
