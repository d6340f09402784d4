"""What the verbs that simulate share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from qmodel.cli.output import Rows

if TYPE_CHECKING:
    from qmodel.simulation import Simulation

__all__ = ["Requests", "Seed", "simulation_rows"]

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
