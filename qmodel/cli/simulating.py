"""What the verbs that simulate share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qmodel.cli.output import Rows
from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.simulation import Simulation
    from qmodel.trace import Trace

__all__ = ["Requests", "Seed", "opened_recording", "simulation_rows", "token_edges"]

Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the simulation: same seed, same digits.")]
Requests = Annotated[
    int | None,
    typer.Option(
        "--requests", metavar="N", min=100, help="Requests to measure over all pools; without it, enough to decide."
    ),
]


def simulation_rows(found: Simulation, table: str) -> Rows:
    """One table of a simulation with its columns."""
    from qmodel.report import simulation_columns

    return [row.to_dict() for row in getattr(found, table)], simulation_columns(table)


def opened_recording(file: Path | None, by: str | None, split: str | None) -> Trace | None:
    """The trace to replay, None without one.

    Args:
        file: the trace.
        by: column that names its classes.
        split: whether its classes go by output length, which excludes a column.
    """
    for option, value in (("--by", by), ("--split", split)):
        if value is not None and file is None:
            raise ScenarioError([Problem(what="says what the classes of a trace are; add --trace FILE", file=option)])
    if file is None:
        return None
    if by is not None and split is not None:
        raise ScenarioError([Problem(what="--by and --split each say what the classes are; give one", file="--split")])
    from qmodel.trace import read_trace

    return read_trace(file, by=by)


def token_edges(text: str) -> list[int]:
    """The lengths that ``--split`` names."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError as cause:
        what = f"must be whole numbers of tokens, such as 5000 or 500,5000 (got {text!r})"
        raise ScenarioError([Problem(what=what, file="--split")]) from cause
