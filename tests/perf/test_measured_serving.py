"""Public closed-loop benchmarks through the whole catalog path; in-sample, as docs/accuracy.md says."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.accuracy import drawn_rows, predict, read_rows

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


@pytest.fixture(scope="module")
def sample() -> pd.DataFrame:
    return predict(drawn_rows(read_rows()))


def test_the_sample_has_the_promised_rows(sample: pd.DataFrame) -> None:
    counts = sample.groupby(["trust", "model"]).size().to_dict()
    assert counts == {
        ("A", "DeepSeek-R1"): 10,
        ("A", "gpt-oss-120b"): 10,
        ("B", "Llama-3.1-8B"): 5,
        ("B", "Qwen3-32B"): 5,
    }
    assert sample["id"].is_unique


def test_mean_tpot_is_within_a_tenth_in_the_median(sample: pd.DataFrame) -> None:
    assert sample["error"].abs().median() <= 0.10
    assert (sample.groupby("trust")["error"].agg(lambda errors: errors.abs().median()) <= 0.10).all()


@pytest.mark.slow
def test_all_rows_reproduce_the_accuracy_of_the_fit() -> None:
    rows = predict(read_rows())
    size = rows.loc[rows["trust"] == "A", "error"].abs()
    assert size.median() == pytest.approx(0.023, abs=0.005)
    assert size.mean() == pytest.approx(0.035, abs=0.005)
    assert size.quantile(0.9) == pytest.approx(0.083, abs=0.01)


def test_the_accuracy_page_shows_these_rows_and_says_in_sample(sample: pd.DataFrame) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "**In-sample**" in text
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    printed = {row[0]: float(row[-1]) for row in cells if row[0] in set(sample["id"])}
    assert printed == pytest.approx(dict(zip(sample["id"], 100 * sample["error"], strict=True)), abs=1.0)
