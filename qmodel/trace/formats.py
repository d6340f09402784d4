"""The formats of traces as data: which names tell a format, and what each of its columns or keys means.

A name is a column of a CSV file, or the path of a key in a JSON row with ``/`` between the levels. Names are compared
without case, spaces and signs, so that ``Request tokens`` and ``request_tokens`` are one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "FORMATS",
    "NOT_REQUESTS",
    "Container",
    "NotRequests",
    "Skip",
    "TimeUnit",
    "TraceFormat",
    "plain_name",
    "sniff",
]

Container = Literal["csv", "json"]
TimeUnit = Literal["auto", "s", "ms", "ns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Rows that are no request to an engine: those where ``name`` has one of ``values`` (in lower case)."""

    name: str
    values: frozenset[str]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """One way in which requests are recorded.

    Attributes:
        name: what ``format=`` takes.
        title: for people.
        marks: names that must all be there; ``a|b`` means either.
        absent: names that must not be there.
        containers: kinds of file in which it occurs.
        fields: names that hold each field, the first that is there wins. Besides counts and arrivals these are
            durations that the source measured (``ttft``, ``completion``, ``after_first`` from the first token to the
            last), or the instants they end at (``first_token_at``, ``done_at``), which count from the arrival, or from
            ``origin_at`` where another clock stamped them.
        time: unit of numeric arrivals; ``auto`` goes by the name (``_ms``, ``_ns``, ``UnixNano``) and the size.
        durations: unit of measured durations whose name does not end in ``_ms``.
        block_tokens: tokens per entry of ``hash_ids``, 0 where there are none.
        skip: rows that are no request.
        note: what a reader of results should know.
    """

    name: str
    title: str
    marks: tuple[str, ...]
    absent: tuple[str, ...] = ()
    containers: tuple[Container, ...] = ("csv", "json")
    fields: Mapping[str, tuple[str, ...]]
    time: TimeUnit = "auto"
    durations: TimeUnit = "s"
    block_tokens: int = 0
    skip: tuple[Skip, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRequests:
    """A file that is known, but has no row per request."""

    marks: tuple[str, ...]
    what: str
    hint: str
    absent: tuple[str, ...] = field(default=())


_ARRIVAL = ("arrival_s", "arrival_ms", "timestamp", "timestamp_s", "timestamp_ms", "arrived_at", "arrival_time")
_PROMPT = ("prompt_tokens", "context_tokens", "num_prefill_tokens", "request_tokens", "input_tokens", "input_length")
_OUTPUT = ("output_tokens", "generated_tokens", "num_decode_tokens", "response_tokens", "completion_tokens")
_CHAT, _RESPONSES = ("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")
_USAGE = ("usage", "response/body/usage", "response/usage", "body/usage")


def _usage(*names: str) -> tuple[str, ...]:
    return tuple(f"{place}/{name}" for place in _USAGE for name in names)


def _spans(*names: str) -> tuple[str, ...]:
    return tuple(f"{place}{name}" for name in names for place in ("attributes/", ""))


# More telling formats stand before less telling ones; the last takes any file that names prompt and output tokens.
FORMATS: tuple[TraceFormat, ...] = (
    TraceFormat(
        name="azure",
        title="Azure LLM inference traces 2023, 2024 and multimodal 2025",
        marks=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        fields={"arrival": ("TIMESTAMP",), "prompt": ("ContextTokens",), "output": ("GeneratedTokens",)},
    ),
    TraceFormat(
        name="vidur",
        title="Vidur and Splitwise processed traces",
        marks=("num_prefill_tokens", "num_decode_tokens"),
        fields={"arrival": ("arrived_at",), "prompt": ("num_prefill_tokens",), "output": ("num_decode_tokens",)},
    ),
    TraceFormat(
        name="burstgpt",
        title="BurstGPT 1, 2 and 3",
        marks=("Timestamp", "Request tokens", "Response tokens", "Log Type"),
        fields={
            "arrival": ("Timestamp",),
            "prompt": ("Request tokens",),
            "output": ("Response tokens",),
            "class": ("Log Type",),
            "completion": ("Elapsed time",),
        },
        time="s",
        note="a response of 0 tokens marks a failed request; such rows are left out",
    ),
    TraceFormat(
        name="qwen-bailian",
        title="Qwen-Bailian anonymous usage traces",
        marks=("chat_id", "timestamp", "input_length", "output_length"),
        fields={
            "arrival": ("timestamp",),
            "prompt": ("input_length",),
            "output": ("output_length",),
            "class": ("type",),
            "hashes": ("hash_ids",),
        },
        time="s",
        block_tokens=16,
    ),
    TraceFormat(
        name="mooncake",
        title="Mooncake traces, and aiperf input in that shape",
        marks=("timestamp", "input_length", "output_length"),
        absent=("chat_id",),
        containers=("json",),
        fields={
            "arrival": ("timestamp",),
            "prompt": ("input_length",),
            "output": ("output_length",),
            "hashes": ("hash_ids",),
        },
        time="ms",
        block_tokens=512,
    ),
    TraceFormat(
        name="servegen-offline",
        title="ServeGen offline (batch) trace",
        marks=("request_id", "input_length", "output_length", "duration"),
        absent=("timestamp",),
        fields={"prompt": ("input_length",), "output": ("output_length",), "class": ("type",)},
        note="an offline trace has no arrivals",
    ),
    TraceFormat(
        name="vllm-bench",
        title="vLLM bench serve, with --save-detailed",
        marks=("input_lens", "output_lens"),
        containers=("json",),
        fields={
            "arrival": ("start_times",),
            "prompt": ("input_lens",),
            "output": ("output_lens",),
            "ttft": ("ttfts",),
            "after_first": ("itls",),
            "completion": ("latencies",),
        },
        time="s",
    ),
    TraceFormat(
        name="guidellm",
        title="GuideLLM report",
        marks=("prompt_tokens", "output_tokens", "request_start_time|info/timings/request_start"),
        containers=("json",),
        fields={
            "arrival": ("info/timings/targeted_start", "info/timings/request_start", "request_start_time"),
            "prompt": ("prompt_tokens",),
            "output": ("output_tokens",),
            "ttft": ("time_to_first_token_ms",),
            "completion": ("request_latency",),
        },
        time="s",
    ),
    TraceFormat(
        name="inference-perf",
        title="inference-perf per-request report",
        marks=("start_time", "end_time", "info/input_tokens|info/request_metrics/text/input_tokens"),
        containers=("json",),
        fields={
            "arrival": ("start_time",),
            "prompt": ("info/input_tokens", "info/request_metrics/text/input_tokens"),
            "output": ("info/response_metrics/output_tokens", "info/output_tokens"),
            "reasoning": (
                "info/response_metrics/server_usage/completion_tokens_details/reasoning_tokens",
                "info/response_metrics/server_usage/output_tokens_details/reasoning_tokens",
            ),
            "cached": ("info/response_metrics/server_usage/prompt_tokens_details/cached_tokens",),
            "class": ("info/lora_adapter",),
            "done_at": ("end_time",),
        },
        time="s",
    ),
    TraceFormat(
        name="aiperf",
        title="aiperf profile_export.jsonl",
        marks=("metrics/input_sequence_length/value",),
        containers=("json",),
        fields={
            "arrival": ("metadata/credit_issued_ns", "metadata/request_start_ns"),
            "prompt": ("metrics/input_sequence_length/value",),
            "output": ("metrics/output_sequence_length/value", "metrics/output_token_count/value"),
            "reasoning": ("metrics/reasoning_token_count/value", "metrics/usage_reasoning_tokens/value"),
            "ttft": ("metrics/time_to_first_token/value",),
            "completion": ("metrics/request_latency/value",),
        },
        time="ns",
        durations="ms",
        skip=(
            Skip(name="metadata/benchmark_phase", values=frozenset({"warmup"}), reason="request of the warm-up phase"),
        ),
    ),
    TraceFormat(
        name="sagemaker",
        title="SageMaker data capture",
        marks=(
            "captureData/endpointOutput/data/usage/prompt_tokens|captureData/endpointOutput/data/usage/input_tokens",
        ),
        containers=("json",),
        fields={
            "arrival": ("eventMetadata/inferenceTime",),
            "prompt": tuple(
                f"captureData/endpointOutput/data/usage/{name}" for name in ("prompt_tokens", "input_tokens")
            ),
            "output": tuple(
                f"captureData/endpointOutput/data/usage/{name}" for name in ("completion_tokens", "output_tokens")
            ),
            "reasoning": ("captureData/endpointOutput/data/usage/completion_tokens_details/reasoning_tokens",),
        },
        note="the stamp is the time of inference, not of arrival",
    ),
    TraceFormat(
        name="weka",
        title="WEKA agentic conversations",
        marks=("t", "in", "out", "hash_ids"),
        containers=("json",),
        fields={"prompt": ("in",), "output": ("out",), "class": ("model",)},
        note="times are counted from the start of each conversation: lengths only",
    ),
    TraceFormat(
        name="litellm",
        title="LiteLLM spend logs and standard logging payloads",
        marks=("startTime", "prompt_tokens", "completion_tokens"),
        fields={
            "arrival": ("startTime",),
            "prompt": ("prompt_tokens",),
            "output": ("completion_tokens",),
            "reasoning": ("response/usage/completion_tokens_details/reasoning_tokens",),
            "class": ("model_group", "model"),
            "first_token_at": ("completionStartTime",),
            "done_at": ("endTime",),
        },
        skip=(
            Skip(name="cache_hit", values=frozenset({"true", "1"}), reason="answered from the proxy's cache"),
            Skip(name="status", values=frozenset({"failure"}), reason="failed in the proxy"),
        ),
    ),
    TraceFormat(
        name="opentelemetry",
        title="OpenTelemetry spans with gen_ai attributes",
        marks=("|".join(_spans("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")),),
        fields={
            "arrival": ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime", "timestamp"),
            "prompt": _spans("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
            "output": _spans("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
            "reasoning": _spans("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"),
            "cached": _spans("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens"),
            "class": _spans("gen_ai.request.model", "gen_ai.response.model"),
            "done_at": ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"),
        },
        skip=tuple(
            Skip(
                name=name,
                values=frozenset({"invoke_agent", "create_agent", "invoke_workflow", "execute_tool", "embeddings"}),
                reason="span of an agent, a tool or an embedding, not of a generation",
            )
            for name in _spans("gen_ai.operation.name")
        ),
    ),
    TraceFormat(
        name="openai",
        title="OpenAI responses with usage (chat, responses, batch output), vLLM responses",
        marks=("|".join(_usage("prompt_tokens", "input_tokens")),),
        containers=("json",),
        fields={
            "arrival": ("created", "created_at", "response/body/created", "response/body/created_at", "timestamp"),
            "prompt": _usage("prompt_tokens", "input_tokens"),
            "output": _usage("completion_tokens", "output_tokens"),
            "reasoning": _usage("completion_tokens_details/reasoning_tokens", "output_tokens_details/reasoning_tokens"),
            "cached": _usage("prompt_tokens_details/cached_tokens", "input_tokens_details/cached_tokens"),
            "class": ("model", "response/body/model"),
        },
    ),
    TraceFormat(
        name="llmservingsim",
        title="LLMServingSim requests",
        marks=("input_toks", "output_toks"),
        fields={
            "arrival": ("arrival_time", "queued_ts"),
            "prompt": ("input_toks",),
            "output": ("output_toks",),
            "origin_at": ("queued_ts",),
            "first_token_at": ("first_token_ts",),
            "done_at": ("last_token_ts",),
        },
    ),
    TraceFormat(
        name="generic",
        title="any file that names prompt and output tokens",
        marks=(),
        fields={
            "arrival": (*_ARRIVAL, "arrival_times"),
            "prompt": (*_PROMPT, "input_toks", "prompt_len"),
            "output": (*_OUTPUT, "output_length", "output_toks", "output_len"),
            "reasoning": (
                "reasoning_tokens",
                "thinking_tokens",
                "completion_tokens_details/reasoning_tokens",
                "output_tokens_details/reasoning_tokens",
            ),
            "answer": ("answer_tokens",),
            "cached": (
                "cached_prefix_tokens",
                "cached_tokens",
                "prompt_tokens_details/cached_tokens",
                "input_tokens_details/cached_tokens",
            ),
            "class": ("class", "cls", "request_class"),
            "ttft": ("ttft_s", "ttft_ms", "ttft", "time_to_first_token_s", "time_to_first_token_ms"),
            "completion": ("completion_s", "completion_ms", "e2e_s", "e2e_ms", "latency_s", "latency_ms"),
        },
    ),
)

NOT_REQUESTS: tuple[NotRequests, ...] = (
    NotRequests(
        marks=("total_input_tokens", "total_output_tokens", "request_throughput"),
        absent=("input_lens",),
        what="is a vLLM bench result without its requests",
        hint="run the bench again with --save-result --save-detailed",
    ),
    NotRequests(
        marks=("object", "start_time", "end_time", "results"),
        what="has usage summed over time (OpenAI organisation usage), not requests",
        hint="state rate_rps from it, and a shape for the lengths",
    ),
)


def plain_name(name: str) -> str:
    """A name without case, spaces and signs; the levels of a path stay apart.

    Example:
        >>> plain_name(" Request tokens"), plain_name("usage/prompt_tokens")
        ('requesttokens', 'usage/prompttokens')
    """
    return re.sub(r"[^a-z0-9/]", "", name.lower())


def sniff(names: Collection[str], container: Container) -> TraceFormat:
    """The first format whose marks are all among ``names``; the last format takes anything.

    Example:
        >>> sniff(["TIMESTAMP", "ContextTokens", "GeneratedTokens"], "csv").name
        'azure'
        >>> sniff(["timestamp", "input_length", "output_length", "hash_ids"], "json").name
        'mooncake'
    """
    plain = {plain_name(name) for name in names}
    return next(item for item in FORMATS if container in item.containers and matches(plain, item.marks, item.absent))


def matches(plain: Collection[str], marks: tuple[str, ...], absent: tuple[str, ...]) -> bool:
    """Whether every mark, and nothing that must be absent, is among names that are plain already."""
    return all(any(plain_name(name) in plain for name in mark.split("|")) for mark in marks) and not any(
        plain_name(name) in plain for name in absent
    )
