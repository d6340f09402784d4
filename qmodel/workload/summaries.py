"""A trace in numbers: how many requests, how long, how bursty, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from qmodel.trace import Trace, spread_clock
from qmodel.types import FloatArray, IntArray, Law
from qmodel.workload.burstiness import Burstiness, measure_burstiness

__all__ = [
    "DECODE_S",
    "PREFILL_S",
    "LatencySummary",
    "LengthSummary",
    "TraceSummary",
    "summarise_law",
    "summarise_trace",
]

# What a request holds a slot for in the peakedness, unless told otherwise: 50 tokens/s out, 10,000 tokens/s in.
DECODE_S = 0.020
PREFILL_S = 0.0001
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
LATENCY_LEVELS = (0.5, 0.9, 0.95, 0.99)
_BARS = 32
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSummary:
    """One length of the requests.

    Attributes:
        length: ``prompt_tokens``, ``output_tokens``, ...
        mean, scv: tokens, and squared coefficient of variation.
        quantiles: tokens by ``p10`` ... ``p99.9``.
        largest: tokens.
        edges: bounds of the bars, tokens, evenly spaced in logarithm, shape (bars + 1,).
        bars: share of the requests in each.
    """

    length: str
    mean: float
    scv: float
    quantiles: dict[str, float]
    largest: float
    edges: tuple[float, ...]
    bars: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """One metric as the source of the trace measured it.

    Attributes:
        metric: ``ttft``, ``tpot`` or ``completion``.
        requests: that have it.
        mean_s: s; per token for ``tpot``.
        quantiles: s by ``p50`` ... ``p99``.
    """

    metric: str
    requests: int
    mean_s: float
    quantiles: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """A trace in numbers.

    Attributes:
        source, format: the file, and what it was read as.
        requests: usable rows; ``rejected`` counts the others by reason.
        span_s, rate_rps: None without arrivals.
        clock_step_s: of a coarse clock.
        lengths: prompt, output, then what else is recorded.
        observed: what the source measured of its own requests.
        cached_share: share of all prompt tokens that a prefix cache held, None where not recorded.
        prompt_output_correlation: Pearson's, of prompt and output tokens.
        burstiness: with a coarse clock, after its rows were spread; None without arrivals.
        as_stamped: with a coarse clock, the same for the stamps as they are.
        hold: what the peakedness takes as holding time.
        minute_rates: requests/s of each minute (or longer, for at most 120 numbers).
        minute_s: how long each of those is.
        classes: requests by class.
        notes, unused: of the trace.
    """

    source: str
    format: str
    requests: int
    rejected: Mapping[str, int]
    span_s: float | None
    rate_rps: float | None
    clock_step_s: float | None
    lengths: tuple[LengthSummary, ...]
    observed: tuple[LatencySummary, ...]
    cached_share: float | None
    prompt_output_correlation: float | None
    burstiness: Burstiness | None
    as_stamped: Burstiness | None
    hold: str
    minute_rates: tuple[float, ...]
    minute_s: float
    classes: Mapping[str, int]
    notes: tuple[str, ...]
    unused: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain data; windows are keys such as ``60 s``."""
        data = asdict(self)
        for name in ("burstiness", "as_stamped"):
            if data[name] is not None:
                data[name]["dispersion"] = {f"{window:g} s": x for window, x in data[name]["dispersion"].items()}
        return data


def summarise_trace(
    trace: Trace,
    *,
    decode_s: float = DECODE_S,
    prefill_s: float = PREFILL_S,
    windows_s: Sequence[float] = (1.0, 10.0, 60.0, 600.0),
) -> TraceSummary:
    """Count, measure and describe the requests of a trace.

    Args:
        trace: as read; a coarse clock is spread here, so that both views are shown.
        decode_s: s per output token that a request is held, for the peakedness.
        prefill_s: s per prompt token.
        windows_s: windows of the index of dispersion, s.

    Raises:
        ValueError: if a time per token is negative, or both are 0.

    Example:
        >>> tokens = np.array([10, 20, 40])
        >>> trace = Trace(arrival_s=np.array([0.0, 1.0, 4.0]), prompt_tokens=tokens, output_tokens=tokens, source="x")
        >>> found = summarise_trace(trace)
        >>> found.rate_rps, found.lengths[0].mean
        (0.75, 23.333333333333332)
    """
    if decode_s < 0.0 or prefill_s < 0.0 or decode_s + prefill_s == 0.0:
        raise ValueError(
            f"decode_s, prefill_s: must be at least 0, one of them above (got {decode_s:g}, {prefill_s:g})"
        )
    columns = {
        "prompt_tokens": trace.prompt_tokens,
        "output_tokens": trace.output_tokens,
        "reasoning_tokens": trace.reasoning_tokens,
        "answer_tokens": None if trace.reasoning_tokens is None else trace.output_tokens - trace.reasoning_tokens,
        "cached_prefix_tokens": trace.cached_prefix_tokens,
    }
    smooth = spread_clock(trace)
    stamped = trace.clock_step_s is not None
    cached = trace.cached_prefix_tokens
    rates, minute_s = _rates(smooth.arrival_s)
    return TraceSummary(
        source=trace.source,
        format=trace.format,
        requests=len(trace),
        rejected=dict(trace.rejected),
        span_s=trace.span_s,
        rate_rps=trace.rate_rps,
        clock_step_s=trace.clock_step_s,
        lengths=tuple(_length(name, column) for name, column in columns.items() if column is not None),
        observed=tuple(_latency(trace)),
        cached_share=None if cached is None else float(cached.sum() / trace.prompt_tokens.sum()),
        prompt_output_correlation=_correlation(trace.prompt_tokens, trace.output_tokens),
        burstiness=_burstiness(smooth, decode_s, prefill_s, windows_s),
        as_stamped=_burstiness(trace, decode_s, prefill_s, windows_s) if stamped else None,
        hold=f"{1e3 * decode_s:g} ms per output token and {1e3 * prefill_s:g} ms per prompt token",
        minute_rates=rates,
        minute_s=minute_s,
        classes={} if trace.cls is None else _class_counts(trace.cls),
        notes=trace.notes,
        unused=trace.unused,
    )


def summarise_law(law: Law, length: str) -> LengthSummary:
    """The same numbers for a law, such as one from a histogram.

    Example:
        >>> summarise_law(Law.constant(7), "prompt_tokens").quantiles["p50"]
        7.0
    """
    edges = _edges(float(law.values[0]), law.maximum)
    bars, _ = np.histogram(law.values, bins=edges, weights=law.weights)
    return LengthSummary(
        length=length,
        mean=law.mean,
        scv=law.scv,
        quantiles={f"p{100 * p:g}": law.quantile(p) for p in LEVELS},
        largest=law.maximum,
        edges=tuple(edges.tolist()),
        bars=tuple(bars.tolist()),
    )


def _length(name: str, tokens: IntArray) -> LengthSummary:
    sample = tokens.astype(np.float64)
    mean = float(sample.mean())
    levels = np.quantile(sample, LEVELS, method="inverted_cdf")
    edges = _edges(max(float(sample.min()), 1.0), max(float(sample.max()), 1.0))
    bars, _ = np.histogram(np.maximum(sample, 1.0), bins=edges)
    return LengthSummary(
        length=name,
        mean=mean,
        scv=float(sample.var() / mean**2) if mean > 0.0 else 0.0,
        quantiles={f"p{100 * p:g}": float(x) for p, x in zip(LEVELS, levels, strict=True)},
        largest=float(sample.max()),
        edges=tuple(edges.tolist()),
        bars=tuple((bars / sample.size).tolist()),
    )


def _latency(trace: Trace) -> list[LatencySummary]:
    """TTFT, TPOT and completion where they were measured; TPOT of outputs of two tokens and more."""
    columns = {"ttft": trace.ttft_s, "tpot": None, "completion": trace.completion_s}
    if trace.ttft_s is not None and trace.completion_s is not None:
        after = trace.output_tokens - 1
        columns["tpot"] = np.where(after > 0, (trace.completion_s - trace.ttft_s) / np.maximum(after, 1), np.nan)
    rows = []
    for metric, column in columns.items():
        sample = np.zeros(0) if column is None else column[np.isfinite(column)]
        if sample.size:
            values = np.quantile(sample, LATENCY_LEVELS, method="inverted_cdf")
            quantiles = {f"p{100 * p:g}": float(x) for p, x in zip(LATENCY_LEVELS, values, strict=True)}
            rows.append(
                LatencySummary(
                    metric=metric, requests=int(sample.size), mean_s=float(sample.mean()), quantiles=quantiles
                )
            )
    return rows


def _edges(low: float, high: float) -> FloatArray:
    edges = np.geomspace(low, high + 1.0, _BARS + 1)
    edges[-1] = max(edges[-1], high + 0.5)  # the largest value lies inside, whatever the rounding
    edges[0] = low
    return edges


def _burstiness(trace: Trace, decode_s: float, prefill_s: float, windows_s: Sequence[float]) -> Burstiness | None:
    if trace.arrival_s is None or len(trace) < 3:
        return None
    hold_s = decode_s * trace.output_tokens + prefill_s * trace.prompt_tokens
    return measure_burstiness(trace.arrival_s, output_tokens=trace.output_tokens, hold_s=hold_s, windows_s=windows_s)


def _class_counts(cls: npt.NDArray[np.str_]) -> dict[str, int]:
    """Requests by class, most first."""
    names, counts = np.unique(cls, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(names[index]): int(counts[index]) for index in order}


def _correlation(first: IntArray, second: IntArray) -> float | None:
    if first.size < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _rates(arrival_s: FloatArray | None) -> tuple[tuple[float, ...], float]:
    """Requests/s of whole windows, of a minute or as long as 120 of them need."""
    if arrival_s is None or arrival_s.size < 2 or arrival_s[-1] < 2 * _MINUTE_S:
        return (), _MINUTE_S
    width_s = _MINUTE_S * max(np.ceil(arrival_s[-1] / _MINUTE_S / 120), 1.0)
    windows = int(arrival_s[-1] / width_s)
    index = (arrival_s / width_s).astype(np.int64)
    counts = np.bincount(index[index < windows], minlength=windows)
    return tuple((counts / width_s).tolist()), float(width_s)
