"""Histograms of serving engines become laws that keep every bucket and the mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qmodel.errors import ScenarioError
from qmodel.trace import is_histogram_file, read_histograms
from qmodel.workload import fit_law

SAMPLES = Path(__file__).parents[1] / "data" / "trace"


def test_counts_of_two_engines_add_up_and_the_mean_is_the_stated_one() -> None:
    laws = read_histograms(SAMPLES / "vllm-metrics.txt")
    assert set(laws) == {"prompt_tokens", "output_tokens"}
    prompt, output = laws["prompt_tokens"], laws["output_tokens"]
    assert (prompt.mean, output.mean) == pytest.approx((300.0, 450.0))
    assert [prompt.survival(bound) for bound in (1, 10, 100, 1000)] == pytest.approx([1.0, 0.9, 0.4, 0.05])
    assert "200 requests" in prompt.label


def test_values_above_the_last_bound_reach_twice_as_far() -> None:
    assert read_histograms(SAMPLES / "vllm-metrics.txt")["output_tokens"].maximum == 2000.0


def test_models_are_kept_apart() -> None:
    laws = read_histograms(SAMPLES / "sglang-metrics.txt")
    assert laws["prompt_tokens[a]"].mean == pytest.approx(300.0)
    assert len(laws) == 4


def test_windows_of_a_servegen_file_weigh_the_same() -> None:
    laws = read_histograms(SAMPLES / "servegen-dataset.json")
    assert (laws["prompt_tokens"].mean, laws["output_tokens"].mean) == pytest.approx((40.0, 200.0))


def test_a_lognormal_seen_through_buckets_is_found_again(tmp_path: Path) -> None:
    sample = np.rint(np.random.default_rng(1).lognormal(6.0, 0.9, 100_000))
    bounds = [base * 10**power for power in range(5) for base in (1, 2, 5)]

    def le(bound: float) -> str:
        return "+Inf" if np.isinf(bound) else str(bound)

    lines = [
        f'vllm:request_generation_tokens_bucket{{le="{le(bound)}"}} {(sample <= bound).sum()}'
        for bound in [*bounds, np.inf]
    ]
    file = tmp_path / "metrics"
    file.write_text("\n".join([*lines, f"vllm:request_generation_tokens_sum {sample.sum()}"]) + "\n")
    law = read_histograms(file)["output_tokens"]
    assert law.mean == pytest.approx(sample.mean())
    for p in (0.1, 0.5, 0.9, 0.99):
        assert law.quantile(p) == pytest.approx(np.quantile(sample, p), rel=0.12)
    assert law.scv == pytest.approx(sample.var() / sample.mean() ** 2, rel=0.1)
    assert min(item.ks for item in fit_law(law).families) < 0.05


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# TYPE up gauge\nup 1\n", "has no histogram of prompt or output tokens"),
        (
            'vllm:request_prompt_tokens_bucket{le="1"} 0\nvllm:request_prompt_tokens_bucket{le="+Inf"} 0\n',
            "with a value",
        ),
        (
            'vllm:request_prompt_tokens_bucket{le="9"} 5\nvllm:request_prompt_tokens_bucket{le="+Inf"} 3\n',
            "counts .* fall",
        ),
        ('vllm:request_prompt_tokens_bucket{le="+Inf"} 3\n', "at least two buckets"),
        ('vllm:request_prompt_tokens_bucket{le="x"} 3\n', "a line that is no sample of a histogram"),
        ('{"0": {"input_tokens": "{1: oops"}}', "neither a scrape of Prometheus metrics nor"),
        ("", "is empty"),
    ],
)
def test_what_holds_no_lengths_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "metrics"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=message):
        read_histograms(file)


def test_metrics_are_told_from_requests_by_their_beginning() -> None:
    assert is_histogram_file(SAMPLES / "vllm-metrics.txt")
    assert is_histogram_file(SAMPLES / "servegen-dataset.json")
    assert not is_histogram_file(SAMPLES / "azure.csv")
    assert not is_histogram_file(SAMPLES / "mooncake.jsonl")
