"""What is written is read back without loss, and nothing is left behind where writing fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qmodel.errors import ScenarioError
from qmodel.trace import Trace, read_trace, write_trace

SAMPLES = Path(__file__).parents[1] / "data" / "trace"
COLUMNS = ("prompt_tokens", "output_tokens", "reasoning_tokens", "cached_prefix_tokens")


def same(first: Trace, second: Trace) -> None:
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    if first.arrival_s is None or second.arrival_s is None:
        assert first.arrival_s is second.arrival_s
    else:
        np.testing.assert_allclose(first.arrival_s, second.arrival_s, atol=1e-6)
    for name in ("ttft_s", "completion_s"):
        one, two = getattr(first, name), getattr(second, name)
        assert (one is None) == (two is None)
        if one is not None:
            np.testing.assert_allclose(one, two, atol=1e-6)
    assert (first.cls is None) == (second.cls is None)
    if first.cls is not None and second.cls is not None:
        assert first.cls.tolist() == second.cls.tolist()


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize(
    "name", ["otlp.jsonl", "qwen-bailian.jsonl", "openai-chat.jsonl", "weka.json", "azure.csv", "guidellm.json"]
)
def test_a_converted_trace_is_the_same_trace(tmp_path: Path, name: str, ending: str) -> None:
    trace = read_trace(SAMPLES / name)
    target = tmp_path / f"out.{ending}"
    write_trace(trace, target)
    same(trace, read_trace(target))
    first = target.read_bytes()
    write_trace(trace, target)
    assert target.read_bytes() == first
    assert [file.name for file in tmp_path.iterdir()] == [target.name]


def test_class_names_with_commas_and_quotes_survive(tmp_path: Path) -> None:
    tokens = np.array([1, 2, 3])
    names = np.array(["a,b", 'say "x"', "two\nlines"])
    trace = Trace(arrival_s=None, prompt_tokens=tokens, output_tokens=tokens, cls=names, source="x")
    write_trace(trace, tmp_path / "a.csv")
    same(trace, read_trace(tmp_path / "a.csv"))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.csv"
    target.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ScenarioError, match="cannot be written: No space left on device"):
        write_trace(read_trace(SAMPLES / "azure.csv"), target)
    assert target.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]


def test_a_folder_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    trace = read_trace(SAMPLES / "azure.csv")
    with pytest.raises(ScenarioError, match="is a folder"):
        write_trace(trace, tmp_path)
    with pytest.raises(ScenarioError, match="cannot be written"):
        write_trace(trace, tmp_path / "none" / "a.csv")
