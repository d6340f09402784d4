"""Traces are read by column name; what cannot be used is counted or refused with a reason."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from qmodel.errors import ScenarioError
from qmodel.trace import Trace, read_trace

DATA = Path(__file__).parents[2] / "scenarios" / "data"


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    file = folder / name
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("name", "rows", "prompt_mean", "output_mean", "rate_rps"),
    [
        ("azure_2023_conv", 19366, 1154.7, 211.1, 5.53),
        ("azure_2023_code", 8819, 2047.8, 27.9, 2.57),
        ("mooncake_fast25_conversation", 12031, 12035.1, 342.6, 3.40),
        ("mlperf_deepseek_r1_lengths", 4388, 803.8, 4043.4, None),
    ],
)
def test_shipped_traces_have_the_published_means(
    name: str, rows: int, prompt_mean: float, output_mean: float, rate_rps: float | None
) -> None:
    trace = read_trace(DATA / f"{name}.csv.gz")
    assert len(trace) == rows
    assert not trace.rejected
    assert trace.prompt_tokens.mean() == pytest.approx(prompt_mean, abs=0.06)
    assert trace.output_tokens.mean() == pytest.approx(output_mean, abs=0.06)
    assert trace.rate_rps == (None if rate_rps is None else pytest.approx(rate_rps, abs=0.01))


def test_a_clock_of_three_seconds_is_noticed_and_a_fine_one_is_not() -> None:
    coarse = read_trace(DATA / "mooncake_fast25_conversation.csv.gz")
    assert coarse.clock_step_s == pytest.approx(3.0)
    assert any("steps of about 3 s" in note for note in coarse.notes)
    assert read_trace(DATA / "azure_2023_conv.csv.gz").clock_step_s is None


@pytest.mark.parametrize(
    "header",
    [
        "arrival_s,prompt_tokens,output_tokens",
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "arrived_at,num_prefill_tokens,num_decode_tokens",
        "timestamp,input_length,output_length",
        "Timestamp,Request tokens,Response tokens",
        "\ufeffArrival_S , Prompt Tokens , Output Tokens",
    ],
)
def test_columns_are_found_by_the_names_others_use(tmp_path: Path, header: str) -> None:
    trace = read_trace(written(tmp_path, f"{header}\n1.5,10,20\n2.5,30,40\n"))
    assert trace.arrival_s is not None
    assert trace.arrival_s.tolist() == [0.0, 1.0]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([10, 30], [20, 40])


def test_column_order_and_further_columns_do_not_matter(tmp_path: Path) -> None:
    text = "TIMESTAMP,NumImages,GeneratedTokens,ContextTokens\n2023-11-16 18:17:03.9799600,2,10,4808\n"
    trace = read_trace(written(tmp_path, text))
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([4808], [10])


def test_dates_and_milliseconds_become_seconds(tmp_path: Path) -> None:
    dates = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10T23:59:59.5Z,1,1\n2024-05-11T00:00:01Z,1,1\n"
    trace = read_trace(written(tmp_path, dates))
    assert trace.arrival_s is not None
    np.testing.assert_allclose(trace.arrival_s, [0.0, 1.5])
    trace = read_trace(written(tmp_path, "timestamp_ms,input_length,output_length\n0,1,1\n27482,1,1\n"))
    assert trace.arrival_s is not None
    np.testing.assert_allclose(trace.arrival_s, [0.0, 27.482])


def test_bad_rows_are_left_out_and_counted_by_reason(tmp_path: Path) -> None:
    rows = [
        "0,10,5,2", "1,x,5,2", "2,0,5,2", "3,10,0,0", "4,10", "later,10,5,2", "6,10,5,9", "7,10.5,5,2", "8,nan,5,2",
        "", "9,11,6,3",
    ]  # fmt: skip
    text = "arrival_s,prompt_tokens,output_tokens,reasoning_tokens\n" + "\n".join(rows) + "\n"
    trace = read_trace(written(tmp_path, text))
    assert trace.prompt_tokens.tolist() == [10, 11]
    assert trace.reasoning_tokens is not None
    assert trace.reasoning_tokens.tolist() == [2, 3]
    assert dict(trace.rejected) == {
        "too few columns": 1,
        "arrival is not a time": 1,
        "prompt tokens are not a number": 2,
        "prompt tokens are not whole": 1,
        "prompt tokens below 1": 1,
        "output tokens below 1": 1,
        "reasoning tokens above output tokens": 1,
    }
    assert "1 rows left out: too few columns" in trace.notes


def test_unsorted_arrivals_are_sorted_and_said(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "arrival_s,prompt_tokens,output_tokens\n5,1,1\n2,2,2\n9,3,3\n"))
    assert trace.arrival_s is not None
    assert trace.arrival_s.tolist() == [0.0, 3.0, 7.0]
    assert trace.prompt_tokens.tolist() == [2, 1, 3]
    assert any("not in order: 1 rows" in note for note in trace.notes)


def test_thinking_and_answer_make_the_output(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "prompt_tokens,reasoning_tokens,answer_tokens,class\n9,70,30,a\n9,5,5,b\n"))
    assert trace.output_tokens.tolist() == [100, 10]
    assert trace.arrival_s is None
    assert trace.classes == ("a", "b")


def test_one_class_keeps_the_span_of_the_file(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,class\n0,1,1,a\n1,1,1,b\n2,1,1,b\n10,1,1,a\n"
    trace = read_trace(written(tmp_path, text))
    assert trace.only("b").rate_rps == pytest.approx(0.2)
    assert trace.only("b").only("b").rate_rps == pytest.approx(0.2)
    with pytest.raises(ValueError, match=r"class: 'c' is not in .*it has a, b"):
        trace.only("c")


def test_a_single_instant_has_no_rate() -> None:
    one = np.array([5])
    assert Trace(arrival_s=np.zeros(1), prompt_tokens=one, output_tokens=one, source="x").rate_rps is None


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [
        ("", "a.csv", "a.csv: is empty"),
        ("prompt_tokens,output_tokens\n", "a.csv", r"no usable request \(it has no rows\)"),
        ("prompt_tokens,output_tokens\n0,0\n", "a.csv", r"no usable request \(1 prompt tokens below 1\)"),
        ("time,prompt_tokens\n1,2\n", "a.csv", r"has no column output_tokens \(found: time, prompt_tokens\)"),
        ("1,2,3\n", "a.csv", r"no column prompt_tokens and output_tokens \(found: 1, 2, 3\)"),
        ("{}", "a.jsonl", r"no column prompt_tokens and output_tokens \(found: \)"),
        ("no gzip", "a.csv.gz", "cannot be read: Not a gzipped file"),
    ],
)
def test_an_unusable_file_is_refused_with_its_name(tmp_path: Path, content: str, name: str, text: str) -> None:
    with pytest.raises(ScenarioError, match=text):
        read_trace(written(tmp_path, content, name))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for file in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(ScenarioError, match=r"no such file|is a folder"):
            read_trace(file)


def test_a_cut_off_or_binary_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"prompt_tokens,output_tokens\n" + b"1,2\n" * 5000, mtime=0)
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81" * 50)
    for name in ("cut.csv.gz", "binary.csv"):
        with pytest.raises(ScenarioError, match="cannot be read"):
            read_trace(tmp_path / name)
