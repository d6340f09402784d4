"""Arguments and options that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Apply",
    "CatalogFiles",
    "Debug",
    "FleetFile",
    "Format",
    "MipGap",
    "Out",
    "OutputFormat",
    "Reproducible",
    "RequireSlo",
    "ScenarioFile",
    "Set",
    "SolverName",
    "Table",
    "TimeLimit",
]


class OutputFormat(StrEnum):
    """What stdout holds."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file (YAML).")]
FleetFile = Annotated[Path, typer.Option("--fleet", metavar="FLEET", help="Fleet file (YAML), or a saved plan.")]
Apply = Annotated[
    list[str] | None,
    typer.Option("--apply", metavar="NAME", help="Apply this variant of the file; repeat to apply several in order."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key, e.g. classes.chat.rate_rps=40; repeatable."),
]
CatalogFiles = Annotated[
    list[Path] | None,
    typer.Option("--catalog", metavar="FILE", help="Lay your own catalog file over the built-in one; repeatable."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="Also write the answer to FILE: JSON, or CSV where the name ends in .csv."
    ),
]
Format = Annotated[OutputFormat, typer.Option("--format", help="What to print.")]
Table = Annotated[str | None, typer.Option("--table", metavar="NAME", help="Which table CSV output holds.")]
RequireSlo = Annotated[bool, typer.Option("--require-slo", help="Exit with 3 where a target is missed.")]
Reproducible = Annotated[bool, typer.Option("--reproducible", help="Leave times out: same input, same bytes.")]
SolverName = Annotated[str, typer.Option("--solver", metavar="NAME", help="Solver of the integer program.")]
MipGap = Annotated[float, typer.Option("--mip-gap", help="Stop at this relative gap to the lower bound.")]
TimeLimit = Annotated[float, typer.Option("--time-limit", metavar="SECONDS", help="Stop searching after this long.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
