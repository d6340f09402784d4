"""Every known format is told by its names and read with its own units and meanings."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmodel.errors import ScenarioError
from qmodel.trace import FORMATS, Trace, read_trace

SAMPLES = Path(__file__).parents[1] / "data" / "trace"

# file: format, arrivals, prompts, outputs
READ: dict[str, tuple[str, list[float] | None, list[int], list[int]]] = {
    "azure.csv": ("azure", [0.0, 0.052, 1.5], [4808, 3180, 110], [10, 8, 27]),
    "azure-multimodal.csv": ("azure", [0.0, 0.25], [900, 31], [10, 80]),
    "vidur.csv": ("vidur", [0.0, 0.25], [4808, 31], [10, 80]),
    "burstgpt.csv": ("burstgpt", [0.0, 40.0, 113.0], [472, 1087, 417], [18, 230, 276]),
    "burstgpt-3.csv": ("burstgpt", [0.0, 40.0], [472, 1087], [18, 230]),
    "mooncake.jsonl": ("mooncake", [0.0, 0.0, 3.0, 6.0], [1000, 1500, 700, 600], [500, 490, 10, 30]),
    "qwen-bailian.jsonl": ("qwen-bailian", [0.0, 2.0], [40, 50], [132, 900]),
    "servegen-offline.jsonl": ("servegen-offline", None, [61, 80], [2370, 170]),
    "vllm-bench.json": ("vllm-bench", [0.0, 0.5], [10, 20], [5, 7]),
    "vllm-bench-appended.json": ("vllm-bench", [0.0, 0.5, 1000.0, 1000.5], [10, 20, 10, 20], [5, 7, 5, 7]),
    "guidellm.json": ("guidellm", [0.0, 1.5, 3.0, 10.0], [128, 256, 64, 11], [64, 32, 5, 12]),
    "inference-perf.json": ("inference-perf", [0.0, 1.5], [20, 40], [30, 50]),
    "aiperf.jsonl": ("aiperf", [0.0, 1.5], [550, 600], [9, 20]),
    "openai-chat.jsonl": ("openai", [0.0, 2.0], [120, 19], [80, 10]),
    "openai-responses.jsonl": ("openai", [0.0, 1.0], [36, 16], [87, 8]),
    "openai-batch.jsonl": ("openai", [0.0], [22], [2]),
    "litellm.csv": ("litellm", [0.0, 1.0], [10, 40], [20, 4]),
    "litellm.jsonl": ("litellm", [0.0], [10], [20]),
    "otlp.jsonl": ("opentelemetry", [0.0, 1.5], [100, 10], [50, 5]),
    "otel-console.json": ("opentelemetry", [0.0, 2.5], [7, 70], [8, 80]),
    "sagemaker.jsonl": ("sagemaker", [0.0, 2.0], [12, 13], [8, 9]),
    "weka.json": ("weka", None, [500, 900], [50, 60]),
    "llmservingsim.jsonl": ("llmservingsim", [0.0, 1.5], [2361, 23], [532, 32]),
}
NO_REQUESTS = {
    "servegen-rates.csv": "is a ServeGen rate file",
    "servegen-dataset.json": "has histograms of lengths, not requests",
    "vllm-metrics.txt": "has histograms of lengths, not requests",
    "sglang-metrics.txt": "has histograms of lengths, not requests",
    "vllm-bench-aggregates.json": "without its requests; run the bench again with --save-result --save-detailed",
    "openai-organisation.json": "usage summed over time",
}


def sample(name: str) -> Trace:
    return read_trace(SAMPLES / name)


def classes_of(trace: Trace) -> list[str]:
    assert trace.cls is not None
    return trace.cls.tolist()


def counts(column: object) -> list[int]:
    assert column is not None
    return list(column)  # type: ignore[call-overload]


def test_every_sample_is_read_or_refused_in_a_test() -> None:
    assert {file.name for file in SAMPLES.iterdir()} == {*READ, *NO_REQUESTS, "README.md"}


def test_every_format_has_a_sample() -> None:
    assert {item.name for item in FORMATS} == {row[0] for row in READ.values()} | {"generic"}


@pytest.mark.parametrize("name", READ)
def test_a_sample_is_read_as_its_format(name: str) -> None:
    kind, arrivals, prompts, outputs = READ[name]
    trace = sample(name)
    assert trace.format == kind
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == (prompts, outputs)
    if arrivals is None:
        assert trace.arrival_s is None
        assert any("lengths only" in note for note in trace.notes)
    else:
        assert trace.arrival_s is not None
        assert trace.arrival_s.tolist() == pytest.approx(arrivals, abs=1e-6)


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_a_file_without_requests_is_refused_with_a_way_out(name: str) -> None:
    with pytest.raises(ScenarioError, match=NO_REQUESTS[name]) as caught:
        sample(name)
    assert caught.value.problems[0].hint


@pytest.mark.parametrize("name", READ)
def test_a_format_can_be_named_instead_of_sniffed(name: str) -> None:
    trace = read_trace(SAMPLES / name, format=READ[name][0])
    assert trace.prompt_tokens.tolist() == READ[name][2]


def test_rows_that_are_no_request_are_counted_by_reason() -> None:
    assert sample("burstgpt.csv").rejected == {"output tokens below 1": 1}
    assert sample("guidellm.json").rejected == {"output tokens below 1": 1}
    assert sample("aiperf.jsonl").rejected == {
        "request of the warm-up phase": 1,
        "output tokens are missing": 1,
    }
    assert sample("litellm.csv").rejected == {"answered from the proxy's cache": 1}
    assert sample("litellm.jsonl").rejected == {"failed in the proxy": 1}
    assert sample("otlp.jsonl").rejected == {
        "span of an agent, a tool or an embedding, not of a generation": 1,
        "prompt tokens are missing": 1,
    }


# file: time to first token, completion
MEASURED: dict[str, tuple[list[float] | None, list[float] | None]] = {
    "vllm-bench.json": ([0.1, 0.2], [0.12, 0.22]),
    "guidellm.json": ([0.08] * 4, [1.0] * 4),
    "inference-perf.json": (None, [2.0, 2.0]),
    "litellm.jsonl": ([0.25], [0.75]),
    "litellm.csv": (None, [0.75, 0.75]),
    "llmservingsim.jsonl": ([0.2, 0.2], [4.0, 2.5]),
    "burstgpt-3.csv": (None, [1.5, 0.2]),
    "otlp.jsonl": (None, [1.0, 1.0]),
    "azure.csv": (None, None),
}


@pytest.mark.parametrize("name", MEASURED)
def test_latencies_that_a_source_measured_are_kept(name: str) -> None:
    trace = sample(name)
    for found, expected in zip((trace.ttft_s, trace.completion_s), MEASURED[name], strict=True):
        assert (found is None) == (expected is None)
        if found is not None:
            assert found.tolist() == pytest.approx(expected)


def test_a_latency_that_makes_no_sense_is_blank_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "odd.csv"
    rows = ["0,5,5,0.2,1.0", "1,6,6,-1,1.0", "2,7,7,3.0,1.0", "0.5,8,8,,x"]
    file.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,ttft_s,completion_s", *rows]) + "\n")
    trace = read_trace(file)
    assert trace.prompt_tokens.tolist() == [5, 8, 6, 7]
    assert trace.ttft_s is not None and trace.completion_s is not None
    assert trace.ttft_s[0] == 0.2 and all(value != value for value in trace.ttft_s[1:])
    assert trace.completion_s[[0, 2, 3]].tolist() == [1.0, 1.0, 1.0]
    assert "3 rows state no ttft time that makes sense" in trace.notes
    assert "1 rows state no completion time that makes sense" in trace.notes


def test_the_blocks_of_a_prompt_give_the_prefix_that_an_endless_cache_holds() -> None:
    # 512 tokens a block: 2 of 3 blocks known, then 1 of 2, then none because the first block is new
    assert counts(sample("mooncake.jsonl").cached_prefix_tokens) == [0, 1024, 512, 0]
    assert counts(sample("qwen-bailian.jsonl").cached_prefix_tokens) == [0, 32]


def test_a_cached_prefix_is_never_longer_than_its_prompt(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    row = '{"timestamp": %d, "input_length": 600, "output_length": 1, "hash_ids": [4000000000, "x"]}\n'
    file.write_text(row % 0 + row % 5)
    assert counts(read_trace(file).cached_prefix_tokens) == [0, 600]


def test_thinking_and_cached_tokens_are_found() -> None:
    assert counts(sample("openai-chat.jsonl").reasoning_tokens) == [30, 0]
    assert counts(sample("openai-chat.jsonl").cached_prefix_tokens) == [70, 0]
    assert counts(sample("inference-perf.json").reasoning_tokens) == [10, 0]
    assert counts(sample("aiperf.jsonl").reasoning_tokens) == [4, 10]
    assert counts(sample("otlp.jsonl").cached_prefix_tokens) == [64, 0]
    assert "1 rows state no reasoning tokens; taken as 0" in sample("openai-responses.jsonl").notes


def test_classes_come_from_the_format_or_from_a_named_column() -> None:
    assert classes_of(sample("litellm.csv")) == ["chat", "code"]
    assert classes_of(sample("qwen-bailian.jsonl")) == ["text", "thinking"]
    assert classes_of(sample("burstgpt.csv")) == ["Conversation log", "Conversation log", "API log"]
    assert classes_of(read_trace(SAMPLES / "burstgpt.csv", by="model")) == ["ChatGPT", "ChatGPT", "GPT-4"]
    assert classes_of(read_trace(SAMPLES / "otlp.jsonl", by="attributes/gen_ai.operation.name")) == ["chat", "chat"]


def test_what_nothing_was_taken_from_is_listed() -> None:
    assert sample("azure-multimodal.csv").unused == ("NumImages",)
    assert sample("azure.csv").unused == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"format": "azur"}, "no trace format 'azur'; did you mean 'azure'?"),
        ({"by": "Modell"}, "has no column 'Modell' to tell classes by; did you mean 'Model'?"),
        ({"format": "mooncake"}, r"has no column prompt_tokens and output_tokens \(found: Timestamp, Model"),
    ],
)
def test_a_wrong_name_is_refused_with_the_right_ones(words: dict[str, str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read_trace(SAMPLES / "burstgpt.csv", **words)  # type: ignore[arg-type]


def test_an_unknown_file_lists_what_was_found_and_what_is_known(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("when,how_much\n1,2\n")
    with pytest.raises(ScenarioError) as caught:
        read_trace(file)
    text = str(caught.value)
    assert "(found: when, how_much)" in text
    assert all(item.name in text for item in FORMATS)


def test_semicolons_and_tabs_separate_columns_too(tmp_path: Path) -> None:
    for mark in ";\t":
        file = tmp_path / "a.csv"
        file.write_text(f"arrival_s{mark}prompt_tokens{mark}output_tokens\n0{mark}5{mark}6\n")
        assert read_trace(file).output_tokens.tolist() == [6]


def test_times_in_milliseconds_or_nanoseconds_since_1970_are_told_by_their_size(tmp_path: Path) -> None:
    for scale in (1, 10**3, 10**6, 10**9):
        file = tmp_path / "a.csv"
        rows = "".join(f"{(1_700_000_000 + second) * scale},1,1\n" for second in (0, 2, 5))
        file.write_text("timestamp,prompt_tokens,output_tokens\n" + rows)
        trace = read_trace(file)
        assert trace.arrival_s is not None
        assert trace.arrival_s.tolist() == pytest.approx([0.0, 2.0, 5.0], abs=1e-5)


def test_distances_from_utc_are_taken_into_account(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    stamps = ["2024-03-01T12:00:00+02:00", "2024-03-01T10:00:01Z", "2024-03-01 05:00:02-0500", "2024-03-01 10:00:03+00"]
    file.write_text("timestamp,prompt_tokens,output_tokens\n" + "".join(f"{stamp},1,1\n" for stamp in stamps))
    trace = read_trace(file)
    assert trace.arrival_s is not None
    assert trace.arrival_s.tolist() == [0.0, 1.0, 2.0, 3.0]
