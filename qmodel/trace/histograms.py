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
from qmodel.trace.opening import file_error, opened
from qmodel.types import FloatArray, Law

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
_POINTS = 24  # atoms in a bucket
_BEYOND = 2.0  # how many times the last finite bound the values above it reach
_STEEPEST = 12.0
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
    several engines or replicas are added up; several models are kept apart. A histogram gives only how many values lie
    in each bucket: inside a bucket the density is taken as a power of the length, the same power in all, chosen so that
    the mean is the stated ``_sum`` over ``_count`` where buckets allow it. Values above the last finite bound are taken
    to reach twice that bound. ServeGen files hold exact counts by window; windows weigh the same.

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

    Reference: own construction (exponential tilting to the mean), see docs/workload.md.
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
    counts = np.diff(below, prepend=0.0)
    if np.any(counts < 0.0):
        raise ValueError(f"{length}: counts of the histogram fall as the bound rises")
    if bounds.size < 2:
        raise ValueError(f"{length}: a histogram needs at least two buckets (got {bounds.size})")
    if np.isinf(bounds[-1]):
        bounds[-1] = max(_BEYOND * bounds[-2], 2.0)
    keep = (counts > 0.0) & (bounds >= 1.0)
    values, shares = [], []
    for low, high, count in zip(np.append(0.0, bounds[:-1])[keep], bounds[keep], counts[keep], strict=True):
        points = _points(max(low + 1.0, 1.0), max(high, 1.0))
        values.append(points)
        shares.append(np.full(points.size, count / points.size))
    if not values:
        raise ValueError(f"{length}: all values of the histogram are below 1 token")
    atoms, share = np.concatenate(values), np.concatenate(shares)
    requests = float(share.sum())
    if histogram.total > 0.0:
        share = _tilted(values, [float(item.sum()) for item in shares], histogram.total / requests)
    return Law.from_atoms(atoms, share, label=f"histogram of {requests:,.0f} requests")


def _points(first: float, last: float) -> FloatArray:
    """Whole lengths from the first to the last of a bucket, evenly spaced in logarithm."""
    if last - first < _POINTS:
        return np.arange(np.ceil(first), np.floor(last) + 1.0)
    edges = np.geomspace(first, last, _POINTS)
    return np.unique(np.round(edges))


def _tilted(values: list[FloatArray], counts: list[float], mean: float) -> FloatArray:
    """Shares of the atoms, proportional to a power of the length in each bucket, whose mean is the one stated.

    The power stops at 12 either way, where all of a bucket sits at one of its ends.
    """

    def shares(power: float) -> FloatArray:
        parts = []
        for points, count in zip(values, counts, strict=True):
            weight = (points / points[-1 if power > 0 else 0]) ** power
            parts.append(count * weight / weight.sum())
        return np.concatenate(parts)

    atoms, total = np.concatenate(values), sum(counts)
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(60):
        middle = (low + high) / 2.0
        if float(atoms @ shares(middle)) / total < mean:
            low = middle
        else:
            high = middle
    return shares((low + high) / 2.0)


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
