"""Length laws from histograms: Prometheus metrics of serving engines, and ServeGen's dataset files."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import numpy as np

from qmodel.errors import ScenarioError
from qmodel.trace.bucket_laws import law_of_buckets
from qmodel.trace.opening import file_error, opened
from qmodel.types import Law

__all__ = ["is_histogram_file", "looks_like_metrics", "looks_like_windows", "read_histograms"]

# Metric without engine prefix and ``_bucket``, and the length it measures; OpenTelemetry tells that by a label.
_METRICS: Mapping[str, str] = {
    "request_prompt_tokens": "prompt_tokens",  # vLLM, older SGLang
    "request_generation_tokens": "output_tokens",
    "request_params_max_tokens": "max_tokens",
    "prompt_tokens_histogram": "prompt_tokens",  # SGLang with --collect-tokens-histogram
    "generation_tokens_histogram": "output_tokens",
    "request_input_length": "prompt_tokens",  # TGI
    "request_generated_tokens": "output_tokens",
    "gen_ai_client_token_usage": "",
}
_TOKEN_TYPES = {
    "input": "prompt_tokens",
    "prompt": "prompt_tokens",
    "output": "output_tokens",
    "completion": "output_tokens",
}
_MODEL_LABELS = ("model_name", "name", "gen_ai_request_model", "model")
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'\s*([\w.]+)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_SERVEGEN = {"input_tokens": "prompt_tokens", "output_tokens": "output_tokens"}
_LARGEST_DATASET = 1 << 28


@dataclass(slots=True, kw_only=True)
class _Histogram:
    """Cumulative counts by upper bound, and the sum of all values (0 where it is not stated)."""

    below: dict[float, float] = field(default_factory=dict)
    total: float = 0.0


def read_histograms(path: str | Path) -> dict[str, Law]:
    """Laws of prompt and output tokens from a scrape of Prometheus metrics, or from a ServeGen dataset file.

    Metrics are told by name: those of vLLM, SGLang, TGI and OpenTelemetry (``gen_ai_client_token_usage``). Counts of
    several engines or replicas are added up; several models are kept apart. Inside a bucket nothing is known; see
    :func:`qmodel.trace.bucket_laws.law_of_buckets` for what is assumed there and above the last finite bound. The mean
    is the stated ``_sum`` over ``_count`` where the buckets allow it. ServeGen files hold exact counts by window;
    windows weigh the same.

    Args:
        path: metrics in the text format, plain or gzipped, or ``dataset.json``.

    Returns:
        Laws by ``prompt_tokens``, ``output_tokens`` (and ``max_tokens`` where requested limits are recorded); with
        several models, by ``prompt_tokens[model]`` and so on.

    Raises:
        ScenarioError: if the file cannot be read or has no histogram of lengths with a value in it.

    Example:
        >>> import tempfile
        >>> text = '''vllm:request_prompt_tokens_bucket{le="100",model_name="m"} 50
        ... vllm:request_prompt_tokens_bucket{le="200",model_name="m"} 100
        ... vllm:request_prompt_tokens_bucket{le="+Inf",model_name="m"} 100
        ... vllm:request_prompt_tokens_sum{model_name="m"} 9000
        ... '''
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "metrics.txt"
        ...     _ = file.write_text(text)
        ...     law = read_histograms(file)["prompt_tokens"]
        >>> round(law.mean, 6), law.survival(100)
        (90.0, 0.5)
    """
    file = Path(path)
    with opened(file) as text:
        start = text.readline(1 << 16)
        if start.lstrip().startswith("{"):
            laws = _servegen(start + text.read(_LARGEST_DATASET), file)
        else:
            laws = _prometheus(_lines(start, text), file)
    if not laws:
        raise file_error(
            file,
            "has no histogram of prompt or output tokens with a value in it",
            hint="vllm:request_prompt_tokens_bucket, vllm:request_generation_tokens_bucket, or those of SGLang or TGI",
        )
    return laws


def is_histogram_file(path: str | Path) -> bool:
    """Whether :func:`read_histograms` is the reader for this file, by its beginning.

    Raises:
        ScenarioError: if the file cannot be read.
    """
    with opened(Path(path)) as text:
        start = text.read(4096)
    return looks_like_metrics(start.lstrip()) or looks_like_windows(start)


def looks_like_metrics(start: str) -> bool:
    """Whether a text begins as the Prometheus text format does.

    Example:
        >>> looks_like_metrics("# TYPE up gauge"), looks_like_metrics("arrival_s,prompt_tokens")
        (True, False)
    """
    line = start.splitlines()[0] if start else ""
    return line.startswith(("# HELP ", "# TYPE ")) or ("{" in line and bool(_SAMPLE.match(line)))


def looks_like_windows(start: str) -> bool:
    """Whether a text begins as a ServeGen dataset file does: histograms by the second at which a window starts.

    Example:
        >>> looks_like_windows('{"0": {"input_tokens": "{39: 0.5, 41: 0.5}"}}')
        True
    """
    return bool(re.match(r'\s*\{\s*"\d+"\s*:\s*\{\s*"(?:input|output)_tokens"\s*:\s*"', start))


def _lines(start: str, text: TextIO) -> Iterator[str]:
    yield start
    yield from text


def _prometheus(lines: Iterable[str], file: Path) -> dict[str, Law]:
    histograms: dict[tuple[str, str], _Histogram] = {}
    for line in lines:
        sample = None if line.startswith("#") else _SAMPLE.match(line)
        if sample is None:
            continue
        metric, part = _metric_of(sample[1])
        if metric is None:
            continue
        labels: dict[str, str] = dict(_LABEL.findall(sample[2] or ""))
        length = _METRICS[metric] or _TOKEN_TYPES.get(labels.get("gen_ai_token_type", ""), "")
        if not length:
            continue
        model = next((labels[name] for name in _MODEL_LABELS if name in labels), "")
        try:
            value = float(sample[3])
            bound = float(labels["le"]) if part == "bucket" else 0.0
        except (KeyError, ValueError) as cause:
            raise file_error(file, f"has a line that is no sample of a histogram: {line.strip()[:120]!r}") from cause
        histogram = histograms.setdefault((length, model), _Histogram())
        if part == "bucket":
            histogram.below[bound] = histogram.below.get(bound, 0.0) + value
        else:
            histogram.total += value
    filled = {key: item for key, item in histograms.items() if max(item.below.values(), default=0.0) > 0.0}
    models = {model for _, model in filled}
    try:
        return {
            length if len(models) == 1 else f"{length}[{model}]": _law(item, length)
            for (length, model), item in filled.items()
        }
    except ValueError as cause:
        raise file_error(file, str(cause)) from cause


def _metric_of(name: str) -> tuple[str | None, str]:
    """Which metric of interest a sample belongs to, and whether it is a bucket or the sum."""
    for part in ("bucket", "sum"):
        stem = name.removesuffix(f"_{part}")
        if stem != name:
            found = next((metric for metric in _METRICS if re.search(rf"(^|[:_]){metric}$", stem)), None)
            return found, part
    return None, ""


def _law(histogram: _Histogram, length: str) -> Law:
    bounds = np.array(sorted(histogram.below))
    below = np.array([histogram.below[bound] for bound in bounds])
    requests = float(below[-1])
    mean = histogram.total / requests if histogram.total > 0.0 < requests else None
    try:
        return law_of_buckets(bounds, below, mean=mean, label=f"histogram of {requests:,.0f} requests")
    except ValueError as cause:
        raise ValueError(f"{length}: {cause}") from cause


def _servegen(text: str, file: Path) -> dict[str, Law]:
    """Histograms by window, written as Python mappings inside strings."""
    try:
        windows = json.loads(text)
        sums: dict[str, dict[float, float]] = {}
        for window in windows.values():
            for key, length in _SERVEGEN.items():
                shares = ast.literal_eval(window.get(key) or "{}")
                for tokens, share in shares.items():
                    known = sums.setdefault(length, {})
                    known[float(tokens)] = known.get(float(tokens), 0.0) + float(share)
    except (ValueError, SyntaxError, AttributeError, TypeError) as cause:
        raise _not_servegen(file) from cause
    laws = {}
    for length, shares in sums.items():
        tokens, share = np.array(list(shares)), np.array(list(shares.values()))
        keep = (tokens >= 1.0) & (share > 0.0)
        if keep.any():
            laws[length] = Law.from_atoms(tokens[keep], share[keep], label=f"histograms of {len(windows)} windows")
    return laws


def _not_servegen(file: Path) -> ScenarioError:
    return file_error(file, "is neither a scrape of Prometheus metrics nor a ServeGen dataset file")
