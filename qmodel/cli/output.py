"""Where answers go: stdout, and a file where one is asked for."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from qmodel.cli.failures import BAD_INPUT, problem_lines, say
from qmodel.cli.options import OutputFormat
from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.report import Block

__all__ = ["Answer", "Rows", "check_target", "deliver", "print_text", "save", "written"]

Rows = tuple[Sequence[Mapping[str, object]], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer in each of its forms; a form is made only when it is asked for.

    Attributes:
        data: plain data for JSON.
        page: blocks for people.
        tables: rows and columns by name; the first is what CSV holds unless another is named.
    """

    data: Callable[[], object]
    page: Callable[[], Sequence[Block]]
    tables: Mapping[str, Callable[[], Rows]] = field(default_factory=dict)

    def rows(self, table: str | None) -> Rows:
        """The table of this name, or the first."""
        return self.tables[table or next(iter(self.tables))]()


def check_target(out: Path | None, table: str | None, fmt: OutputFormat, tables: Sequence[str]) -> None:
    """Refuse an output that cannot be made, before the work and not after it.

    Raises:
        ScenarioError: the folder of ``out`` is not there, ``out`` is a folder, or ``table`` cannot be printed.
    """
    problems = []
    if out is not None and out.is_dir():
        problems.append(Problem(what="is a folder; name a file", file=str(out)))
    elif out is not None and not out.resolve().parent.is_dir():
        problems.append(Problem(what=f"there is no folder {str(out.parent)!r}", file=str(out)))
    if table is not None and table not in tables:
        problems.append(Problem(what=f"no table {table!r}; there are: {', '.join(tables)}", file="--table"))
    elif table is not None and fmt is not OutputFormat.CSV and not _is_csv(out):
        problems.append(Problem(what="needs --format csv, or --out with a name that ends in .csv", file="--table"))
    if problems:
        raise ScenarioError(problems)


def deliver(answer: Answer, *, fmt: OutputFormat, out: Path | None = None, table: str | None = None) -> None:
    """Print the answer on stdout, and write it to ``out`` where one is named."""
    if out is not None:
        save(answer, out, table)
    print_text(_as_text(answer, fmt, table))


def save(answer: Answer, out: Path, table: str | None) -> None:
    """Write the answer whole or not at all: CSV where the name ends in ``.csv``, else JSON.

    Raises:
        typer.Exit: if the file cannot be written; stderr says why.
    """
    from qmodel.files import write_text

    text = _as_text(answer, OutputFormat.CSV if _is_csv(out) else OutputFormat.JSON, table)
    written(out, lambda: write_text(out, text))


def written(out: Path, write: Callable[[], None]) -> None:
    """Write a finished answer and say where.

    Raises:
        typer.Exit: if it cannot be written; stderr says why.
    """
    try:
        write()
    except ScenarioError as error:
        say(problem_lines(error, outcome="The answer was not written."))
        raise typer.Exit(BAD_INPUT) from error
    say(f"written to {out}")


def print_text(text: str) -> None:
    """Write to stdout; letters its encoding lacks are replaced.

    Raises:
        BrokenPipeError: if the reader has gone.
        typer.Exit: if stdout cannot be written, as on a full disk; stderr says why.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        say(f"qmodel: stdout cannot be written: {error.strerror}")
        raise typer.Exit(BAD_INPUT) from error


def _as_text(answer: Answer, fmt: OutputFormat, table: str | None) -> str:
    from qmodel.report import csv_text, json_text, render_text

    match fmt:
        case OutputFormat.JSON:
            return json_text(answer.data())
        case OutputFormat.CSV:
            return csv_text(*answer.rows(table))
        case OutputFormat.TABLE:
            terminal = sys.stdout.isatty()
            width = shutil.get_terminal_size().columns if terminal else None
            return render_text(answer.page(), width=width, color=terminal and "NO_COLOR" not in os.environ)


def _is_csv(out: Path | None) -> bool:
    return out is not None and out.suffix.lower() == ".csv"
