"""Traces for people: lengths, burstiness, what was left out, fitted laws, and small plots in letters."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qmodel.report.blocks import Block, Bullets, Column, Facts, Heading, Lines, TextTable
from qmodel.report.number_text import NONE_TEXT, decimal_text, percent_text, seconds_text

if TYPE_CHECKING:
    from qmodel.workload import Burstiness, LengthFit, LengthSummary, TraceSummary

__all__ = [
    "FIT_TABLES",
    "SUMMARY_TABLES",
    "FittedClass",
    "fit_page",
    "fit_rows",
    "fragment",
    "fragment_text",
    "law_page",
    "sparkline",
    "summary_page",
    "summary_rows",
]

SUMMARY_TABLES: Mapping[str, tuple[str, ...]] = {
    "lengths": ("length", "mean", "scv", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9", "largest"),
    "observed": ("metric", "requests", "mean_s", "p50_s", "p90_s", "p95_s", "p99_s"),
    "burstiness": ("statistic", "value", "as_stamped"),
    "rejected": ("reason", "rows"),
    "sizes": ("class", "requests", "share"),
    "rates": ("start_s", "rate_rps"),
}
FIT_TABLES: Mapping[str, tuple[str, ...]] = {
    "fits": ("class", "length", "family", "ks", "mean_ratio", "spec_ks", "spec"),
}
_BARS = "▁▂▃▄▅▆▇█"
_NOTHING = "·"
_SHOWN_CLASSES = 12
_YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedClass:
    """Laws fitted to the requests of one class.

    Attributes:
        requests: rows of the class, 0 where they are not known.
        rate_rps: mean rate, None where the source has none.
        lengths: fits by the key that a scenario file gives the length.
    """

    requests: int
    rate_rps: float | None
    lengths: Mapping[str, LengthFit]


def summary_page(summary: TraceSummary) -> list[Block]:
    """A trace on one page."""
    blocks: list[Block] = [
        Heading(text=f"{summary.source}: {summary.requests:,} requests, read as {summary.format}"),
        Facts(rows=_facts(summary)),
        *_length_blocks(summary.lengths),
        *_latency_blocks(summary),
    ]
    rows = summary_rows(summary, "burstiness")
    stamped = summary.as_stamped is not None
    if rows:
        columns = [Column(header="statistic"), Column(header="value" if not stamped else "spread", numeric=True)]
        columns += [Column(header="as stamped", numeric=True)] if stamped else []
        cells = tuple(
            tuple(
                [str(row["statistic"]), _statistic(row["value"])] + ([_statistic(row["as_stamped"])] if stamped else [])
            )
            for row in rows
        )
        title = "Burstiness (Poisson arrivals: 1, correlations 0)"
        blocks.append(TextTable(title=title, columns=tuple(columns), rows=cells))
    if summary.minute_rates:
        low, high = min(summary.minute_rates), max(summary.minute_rates)
        what = f"Requests/s by {seconds_text(summary.minute_s)}, from {decimal_text(low)} to {decimal_text(high)}"
        blocks.append(Lines(lines=(what, f"  {sparkline(summary.minute_rates)}")))
    if summary.classes:
        shown = list(summary.classes.items())[:_SHOWN_CLASSES]
        title = "Classes" if len(shown) == len(summary.classes) else f"Classes (the largest of {len(summary.classes)})"
        blocks.append(
            TextTable(
                title=title,
                columns=(
                    Column(header="class"),
                    Column(header="requests", numeric=True),
                    Column(header="share %", numeric=True),
                ),
                rows=tuple(
                    (name or "(none)", f"{count:,}", percent_text(count / summary.requests)) for name, count in shown
                ),
            )
        )
    blocks.append(Bullets(title="Rows left out", items=tuple(f"{n:,}: {why}" for why, n in summary.rejected.items())))
    notes = tuple(note for note in summary.notes if " rows left out: " not in note)
    unused = (f"nothing was taken from: {', '.join(summary.unused[:20])}",) if summary.unused else ()
    blocks.append(Bullets(title="Notes", items=notes + unused))
    return blocks


def law_page(source: str, lengths: Sequence[LengthSummary], labels: Sequence[str]) -> list[Block]:
    """Laws from histograms on one page."""
    return [
        Heading(text=f"{source}: laws from histograms"),
        *_length_blocks(lengths),
        Bullets(
            title="Notes",
            items=(
                *labels,
                "a histogram says only how many values lie between two bounds; quantiles inside a bucket are estimates",
                "no arrivals: state rate_rps",
            ),
        ),
    ]


def summary_rows(summary: TraceSummary, table: str) -> list[dict[str, object]]:
    """Rows of one of :data:`SUMMARY_TABLES`."""
    match table:
        case "lengths":
            return [_length_row(item) for item in summary.lengths]
        case "observed":
            return [
                {
                    "metric": item.metric,
                    "requests": item.requests,
                    "mean_s": item.mean_s,
                    **{f"{name}_s": value for name, value in item.quantiles.items()},
                }
                for item in summary.observed
            ]
        case "burstiness":
            if summary.burstiness is None:
                return []
            stamped = {} if summary.as_stamped is None else _statistics(summary.as_stamped, summary.hold)
            return [
                {"statistic": name, "value": value, "as_stamped": stamped.get(name)}
                for name, value in _statistics(summary.burstiness, summary.hold).items()
            ]
        case "rejected":
            return [{"reason": reason, "rows": count} for reason, count in summary.rejected.items()]
        case "sizes":
            return [
                {"class": name, "requests": count, "share": count / summary.requests}
                for name, count in summary.classes.items()
            ]
        case _:
            return [
                {"start_s": index * summary.minute_s, "rate_rps": rate}
                for index, rate in enumerate(summary.minute_rates)
            ]


def fit_rows(classes: Mapping[str, FittedClass]) -> list[dict[str, object]]:
    """Rows of the table of fits; the best of each length first."""
    return [
        {
            "class": name,
            "length": length,
            "family": law.family,
            "ks": law.ks,
            "mean_ratio": law.mean_ratio,
            "spec_ks": law.spec_ks,
            "spec": _flow(law.spec),
        }
        for name, item in classes.items()
        for length, fit in item.lengths.items()
        for law in fit.families
    ]


def fit_page(source: str, classes: Mapping[str, FittedClass], notes: Sequence[str]) -> list[Block]:
    """Distances of all fits, and a fragment of a scenario file with the best ones."""
    rows = tuple(
        (
            str(row["class"]),
            str(row["length"]),
            str(row["family"]),
            f"{row['ks']:.3f}",
            f"{row['mean_ratio']:.2f}",
            f"{row['spec_ks']:.3f}",
        )
        for row in fit_rows(classes)
    )
    columns = (
        Column(header="class"),
        Column(header="length"),
        Column(header="family"),
        Column(header="KS", numeric=True),
        Column(header="mean / sample mean", numeric=True),
        Column(header="KS as written", numeric=True),
    )
    return [
        Heading(text=f"Laws fitted to {source}"),
        TextTable(title="Fits (KS: largest distance of the distribution functions)", columns=columns, rows=rows),
        Lines(lines=tuple(fragment_text(source, classes).splitlines())),
        Bullets(
            title="Notes",
            items=(
                "the fragment has the laws with the smallest distance as written; where that is above 0.05, prefer"
                " trace: {file: ...} in the scenario",
                *notes,
            ),
        ),
    ]


def fragment(classes: Mapping[str, FittedClass]) -> dict[str, object]:
    """The classes of a scenario file with the best laws, as plain data; model and targets are still to be added."""
    keys = class_keys(classes)
    return {
        "classes": {
            keys[name]: {
                "rate_rps": _rounded(item.rate_rps or 1.0),
                **{length: _rounded(fit.written.spec) for length, fit in _written(item).items()},
            }
            for name, item in classes.items()
        }
    }


def fragment_text(source: str, classes: Mapping[str, FittedClass]) -> str:
    """The same as YAML, ready to paste.

    Example:
        >>> from qmodel.workload import fit_lengths
        >>> item = FittedClass(requests=3, rate_rps=2.0, lengths={"prompt_tokens": fit_lengths([7, 7, 7])})
        >>> print(fragment_text("a.csv", {"chat": item}), end="")
        # fitted to a.csv; add model and slo to each class
        classes:
          chat:  # 3 requests
            rate_rps: 2
            prompt_tokens: {constant: 7}
    """
    lines = [f"# fitted to {re.sub(r'[^ -~]', '?', source)}; add model and slo to each class", "classes:"]
    keys = class_keys(classes)
    for name, item in classes.items():
        lines.append(f"  {_yaml_key(keys[name])}:" + (f"  # {item.requests:,} requests" if item.requests else ""))
        unknown = "" if item.rate_rps else "  # not in the source: state it"
        lines.append(f"    rate_rps: {_flow(_rounded(item.rate_rps or 1.0))}{unknown}")
        lines += [f"    {length}: {_flow(_rounded(fit.written.spec))}" for length, fit in _written(item).items()]
    return "\n".join(lines) + "\n"


def class_keys(names: Sequence[str] | Mapping[str, object]) -> dict[str, str]:
    """Names that a scenario file accepts, each another.

    Example:
        >>> class_keys(["Conversation log", "conversation-log", ""])
        {'Conversation log': 'conversation-log', 'conversation-log': 'conversation-log-2', '': 'none'}
    """
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "none"
        key, number = stem, 2
        while key in taken:
            key, number = f"{stem}-{number}", number + 1
        taken.add(key)
        keys[name] = key
    return keys


def sparkline(values: Sequence[float]) -> str:
    """Values as bars of one letter, the largest the highest; a dot is nothing.

    Example:
        >>> sparkline([0.0, 1.0, 4.0, 8.0])
        '·▁▄█'
    """
    top = max(values, default=0.0)
    if top <= 0.0:
        return _NOTHING * len(values)
    steps = len(_BARS)
    return "".join(
        _BARS[min(max(int(value / top * steps + 0.5), 1), steps) - 1] if value > 0.0 else _NOTHING for value in values
    )


def _facts(summary: TraceSummary) -> tuple[tuple[str, str], ...]:
    left_out = sum(summary.rejected.values())
    rows = [("rows left out", f"{left_out:,} ({percent_text(left_out / (left_out + summary.requests))} %)")]
    if summary.span_s is not None:
        rows.append(("span", seconds_text(summary.span_s, digits=4)))
        rows.append(("rate", f"{decimal_text(summary.rate_rps)} requests/s"))
        step = "none seen" if summary.clock_step_s is None else f"{seconds_text(summary.clock_step_s)} steps"
        rows.append(("clock", step))
    if summary.cached_share is not None:
        rows.append(("cached prefix", f"{percent_text(summary.cached_share)} % of the prompt tokens"))
    correlation = summary.prompt_output_correlation
    rows.append(("correlation", NONE_TEXT if correlation is None else f"{correlation:+.2f} between prompt and output"))
    return tuple(rows)


def _length_blocks(lengths: Sequence[LengthSummary]) -> list[Block]:
    names = ("mean", "scv", "p10", "p50", "p90", "p95", "p99", "p99.9", "largest")
    quantiles = TextTable(
        title="Lengths (tokens)",
        columns=(Column(header=""), *(Column(header=name, numeric=True) for name in names)),
        rows=tuple((item.length, *(_length_cell(name, _length_row(item)[name]) for name in names)) for item in lengths),
    )
    shapes = TextTable(
        title="Shapes (share of requests, tokens on a logarithmic scale)",
        columns=(Column(header=""), Column(header="from", numeric=True), Column(header=""), Column(header="to")),
        rows=tuple(
            (item.length, f"{item.edges[0]:,.0f}", sparkline(item.bars), f"{item.largest:,.0f}") for item in lengths
        ),
    )
    return [quantiles, shapes]


def _latency_blocks(summary: TraceSummary) -> list[Block]:
    rows = summary_rows(summary, "observed")
    if not rows:
        return []
    times = SUMMARY_TABLES["observed"][2:]
    cells = tuple(
        (str(row["metric"]), f"{row['requests']:,}", *(seconds_text(float(str(row[name]))) for name in times))
        for row in rows
    )
    columns = (
        Column(header="metric"),
        Column(header="requests", numeric=True),
        *(Column(header=name.removesuffix("_s"), numeric=True) for name in times),
    )
    return [TextTable(title="Latency as the source measured it", columns=columns, rows=cells)]


def _length_row(item: LengthSummary) -> dict[str, object]:
    return {"length": item.length, "mean": item.mean, "scv": item.scv, **item.quantiles, "largest": item.largest}


def _length_cell(name: str, value: object) -> str:
    assert isinstance(value, (int, float))
    return f"{value:.2f}" if name == "scv" else f"{value:,.1f}" if name == "mean" else f"{value:,.0f}"


def _statistics(found: Burstiness, hold: str) -> dict[str, float | None]:
    return {
        "squared coefficient of variation of gaps": found.interarrival_scv,
        **{f"index of dispersion, {window:g} s": value for window, value in found.dispersion.items()},
        f"peakedness, {hold}": found.peakedness,
        "busiest minute over mean minute": found.peak_to_mean_minute,
        "correlation of successive gaps": found.gap_correlation,
        "correlation of successive outputs": found.output_correlation,
        "correlation of a minute's rate and its mean output": found.rate_output_correlation,
    }


def _statistic(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else NONE_TEXT


def _written(item: FittedClass) -> dict[str, LengthFit]:
    """Lengths as a scenario takes them: thinking and answer instead of output where both are there."""
    both = {"reasoning_tokens", "answer_tokens"} <= item.lengths.keys()
    left_out = {"output_tokens"} if both else {"reasoning_tokens", "answer_tokens"}
    return {name: fit for name, fit in item.lengths.items() if name not in left_out and name != "max_tokens"}


def _rounded(value: object) -> object:
    """Numbers to six digits, which moves no mean by more than a hundred-thousandth."""
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        short = float(f"{value:.6g}")
        return int(short) if short.is_integer() else short
    return value


def _flow(value: object) -> str:
    """Plain data in YAML's flow style."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_yaml_key(str(key))}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return json.dumps(value)


def _yaml_key(key: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", key) and key.lower() not in _YAML_WORDS
    return key if plain else json.dumps(key)
