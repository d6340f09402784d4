"""``trace describe``, ``trace fit`` and ``trace convert``: what recorded requests are, as laws, and as our CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from qmodel.cli import options
from qmodel.cli.failures import DONE, guarded, say
from qmodel.cli.options import OutputFormat
from qmodel.cli.output import Answer, check_target, deliver, print_text, written
from qmodel.cli.simulating import token_edges
from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.report import Block
    from qmodel.report.trace_pages import FittedClass
    from qmodel.trace import Trace
    from qmodel.types import Law
    from qmodel.workload import TraceSummary

__all__ = ["trace_app"]

Result = TypeVar("Result")

SUMMARY_TABLES = ("lengths", "observed", "burstiness", "rejected", "sizes", "rates")
FIT_TABLES = ("fits",)
MOST_CLASSES = 12
OTHER = "other"

trace_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look at recorded requests, and bring them in."
)

TraceFile = Annotated[Path, typer.Argument(metavar="FILE", help="CSV, JSON or JSON Lines of requests; may be gzipped.")]
From = Annotated[
    str | None, typer.Option("--from", metavar="FORMAT", help="Format of FILE, instead of telling it by its names.")
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="COLUMN", help="Classes by this column or key; 'class' is the format's own."),
]
Split = Annotated[
    str | None,
    typer.Option("--split", metavar="TOKENS", help="Classes by output length: the largest of each, e.g. 500,5000."),
]
Spread = Annotated[bool, typer.Option("--spread", help="Spread the rows of a coarse clock at random over its steps.")]


@trace_app.command("describe")
@guarded(outcome="")
def describe_command(
    file: TraceFile,
    from_: From = None,
    by: By = None,
    decode_ms: Annotated[
        float, typer.Option("--decode-ms", help="Time per output token that a request is held, for the peakedness.")
    ] = 20.0,
    prefill_ms: Annotated[float, typer.Option("--prefill-ms", help="The same per prompt token.")] = 0.1,
    out: options.Out = None,
    format_: options.Format = OutputFormat.TABLE,
    table: options.Table = None,
    debug: options.Debug = False,
) -> int:
    """Count the requests, their lengths and how bursty they come."""
    from qmodel.trace import is_histogram_file, read_histograms
    from qmodel.workload import summarise_trace

    check_target(out, table, format_, SUMMARY_TABLES)
    if is_histogram_file(file):
        answer = _law_answer(file, read_histograms(file))
    else:
        trace = _read(file, from_, by)
        summary = _checked(lambda: summarise_trace(trace, decode_s=decode_ms / 1e3, prefill_s=prefill_ms / 1e3))
        answer = _summary_answer(summary)
    deliver(answer, fmt=format_, out=out, table=table)
    return DONE


@trace_app.command("fit")
@guarded(outcome="Nothing was fitted.")
def fit_command(
    file: TraceFile,
    from_: From = None,
    by: By = None,
    split: Split = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Also write the answer to FILE: JSON, .csv, or .yaml (the fragment)."
        ),
    ] = None,
    format_: options.Format = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> int:
    """Find the laws nearest to the lengths, and write them as a part of a scenario file."""
    from qmodel.files import write_text
    from qmodel.report.trace_pages import fragment_text

    check_target(out, None, format_, FIT_TABLES)
    classes, notes = _fitted(file, from_, by, split)
    answer = _fit_answer(str(file), classes, notes)
    if out is not None and out.suffix.lower() in (".yaml", ".yml"):
        target, text = out, fragment_text(str(file), classes)
        written(target, lambda: write_text(target, text))
        out = None
    deliver(answer, fmt=format_, out=out)
    return DONE


@trace_app.command("convert")
@guarded(outcome="Nothing was written.")
def convert_command(
    file: TraceFile,
    from_: From = None,
    by: By = None,
    split: Split = None,
    spread: Spread = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write to FILE (.csv or .csv.gz), whole or not at all; else stdout."
        ),
    ] = None,
    debug: options.Debug = False,
) -> int:
    """Write the requests as CSV with the columns that scenarios and simulations read."""
    from qmodel.trace import spread_clock, trace_csv, write_trace

    check_target(out, None, OutputFormat.CSV, ())
    if out is not None and not out.name.lower().endswith((".csv", ".csv.gz")):
        raise ScenarioError([Problem(what="must end in .csv or .csv.gz", file=str(out))])
    trace = _read(file, from_, by)
    if split is not None:
        trace = _classed_by_output(trace, token_edges(split))
    if spread:
        trace = spread_clock(trace)
    for note in trace.notes:
        say(f"{file}: {note}")
    if trace.unused:
        say(f"{file}: nothing was taken from: {', '.join(trace.unused[:20])}")
    if out is None:
        for text in trace_csv(trace):
            print_text(text)
    else:
        written(out, lambda: write_trace(trace, out))
        say(f"{len(trace):,} requests, read as {trace.format}")
    return DONE


def _read(file: Path, from_: str | None, by: str | None) -> Trace:
    from qmodel.trace import read_trace

    if by == "class":
        trace = read_trace(file, format=from_)
        return trace if trace.cls is not None else read_trace(file, format=from_, by=by)
    return read_trace(file, format=from_, by=by)


def _fitted(
    file: Path, from_: str | None, by: str | None, split: str | None
) -> tuple[dict[str, FittedClass], tuple[str, ...]]:
    """Fits by class, and what a reader should know."""
    from qmodel.report.trace_pages import FittedClass
    from qmodel.trace import is_histogram_file, read_histograms, split_by_output
    from qmodel.workload import fit_law

    if by is not None and split is not None:
        raise ScenarioError([Problem(what="--by and --split each say what the classes are; give one", file="--split")])
    stem = file.name.split(".")[0]
    if is_histogram_file(file):
        models: dict[str, dict[str, Law]] = {}
        for name, law in read_histograms(file).items():
            length, _, model = name.partition("[")
            models.setdefault(model.rstrip("]") or stem, {})[length] = law
        classes = {
            model: FittedClass(requests=0, rate_rps=None, lengths={name: fit_law(law) for name, law in laws.items()})
            for model, laws in models.items()
        }
        return classes, ("distances are to the law that the histogram was taken for",)
    trace = _read(file, from_, by)
    notes = trace.notes
    if split is not None:
        edges = token_edges(split)
        parts = _checked(lambda: split_by_output(trace, edges))
    elif by is not None:
        parts = _most(trace)
        if OTHER in parts and len(trace.classes) > len(parts):
            notes = (*notes, f"{len(trace.classes)} classes; all but the {MOST_CLASSES - 1} largest are in {OTHER!r}")
    else:
        parts = {stem: trace}
    return {name: _fit_class(part) for name, part in parts.items()}, notes


def _fit_class(trace: Trace) -> FittedClass:
    from qmodel.report.trace_pages import FittedClass
    from qmodel.workload import fit

    found = fit(trace)
    lengths = {
        "prompt_tokens": found.prompt,
        "output_tokens": found.output,
        "reasoning_tokens": found.reasoning,
        "answer_tokens": found.answer,
    }
    return FittedClass(
        requests=found.requests,
        rate_rps=found.rate_rps,
        lengths={name: item for name, item in lengths.items() if item is not None},
    )


def _most(trace: Trace) -> dict[str, Trace]:
    """The largest classes, the others together."""
    import numpy as np

    from qmodel.trace import split_by_class

    parts = split_by_class(trace)
    if len(parts) <= MOST_CLASSES:
        return parts
    large = dict(list(parts.items())[: MOST_CLASSES - 1])
    assert trace.cls is not None
    return {**large, OTHER: trace.where(~np.isin(trace.cls, list(large)))}


def _classed_by_output(trace: Trace, edges: list[int]) -> Trace:
    """The trace with its ranges of output as classes."""
    from dataclasses import replace

    import numpy as np

    from qmodel.trace import split_by_output

    names = list(_checked(lambda: split_by_output(trace, edges)))  # of the ranges that hold a request, in order
    ranges = np.searchsorted(np.asarray(edges), trace.output_tokens, side="left")
    return replace(trace, cls=np.array(names)[np.unique(ranges, return_inverse=True)[1]])


def _checked(call: Callable[[], Result]) -> Result:
    """The result; a number out of range is bad input here."""
    try:
        return call()
    except ScenarioError:
        raise
    except ValueError as cause:
        raise ScenarioError([Problem(what=str(cause), file="<command line>")]) from cause


def _summary_answer(summary: TraceSummary) -> Answer:
    from functools import partial

    from qmodel.report import trace_pages

    def rows(name: str) -> tuple[list[dict[str, object]], tuple[str, ...]]:
        return trace_pages.summary_rows(summary, name), trace_pages.SUMMARY_TABLES[name]

    return Answer(
        data=summary.to_dict,
        page=lambda: trace_pages.summary_page(summary),
        tables={name: partial(rows, name) for name in SUMMARY_TABLES},
    )


def _law_answer(file: Path, laws: Mapping[str, Law]) -> Answer:
    from dataclasses import asdict

    from qmodel.report import trace_pages
    from qmodel.workload import summarise_law

    lengths = [summarise_law(law, name) for name, law in laws.items()]
    labels = [f"{name}: {law.label}" for name, law in laws.items()]

    def page() -> list[Block]:
        return trace_pages.law_page(str(file), lengths, labels)

    def rows() -> tuple[list[dict[str, object]], tuple[str, ...]]:
        found = [{**asdict(item), **item.quantiles} for item in lengths]
        return found, trace_pages.SUMMARY_TABLES["lengths"]

    return Answer(
        data=lambda: {"source": str(file), "lengths": [asdict(item) for item in lengths], "notes": labels},
        page=page,
        tables={"lengths": rows, **{name: lambda: ([], ()) for name in SUMMARY_TABLES[1:]}},
    )


def _fit_answer(source: str, classes: Mapping[str, FittedClass], notes: tuple[str, ...]) -> Answer:
    from dataclasses import asdict

    from qmodel.report import trace_pages

    return Answer(
        data=lambda: {
            "source": source,
            "classes": {name: asdict(item) for name, item in classes.items()},
            "scenario": trace_pages.fragment(classes),
            "notes": list(notes),
        },
        page=lambda: trace_pages.fit_page(source, classes, notes),
        tables={"fits": lambda: (trace_pages.fit_rows(classes), trace_pages.FIT_TABLES["fits"])},
    )
