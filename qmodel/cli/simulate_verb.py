"""``simulate``: serve requests one by one, as a check on the predictions."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qmodel.cli import options
from qmodel.cli.failures import DONE, INFEASIBLE, guarded, say
from qmodel.cli.inputs import open_scenario, planned, solver_options
from qmodel.cli.options import OutputFormat
from qmodel.cli.output import Answer, Rows, check_target, deliver
from qmodel.cli.plan_verbs import plan_code
from qmodel.cli.progress import progress_line
from qmodel.cli.simulating import Requests, Seed, opened_recording, simulation_rows, token_edges

if TYPE_CHECKING:
    from qmodel.planning import Plan
    from qmodel.simulation import Simulation
    from qmodel.types import Fleet

__all__ = ["simulate_command"]


class ArrivalTimes(StrEnum):
    """When requests of a recording come."""

    RECORDED = "recorded"
    POISSON = "poisson"


@guarded(outcome="Nothing was simulated.")
def simulate_command(
    scenario: options.ScenarioFile,
    fleet: Annotated[
        Path | None,
        typer.Option("--fleet", metavar="FLEET", help="Fleet file (YAML) or saved plan; without it, plan one first."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Replay this trace at the mean rates of the classes."),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COLUMN", help="Column or key of the trace that names the classes.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split", metavar="TOKENS", help="Classes of the trace by output length: the largest of each but the last."
        ),
    ] = None,
    arrivals: Annotated[
        ArrivalTimes, typer.Option("--arrivals", help="When requests of a trace come: as recorded, or at random.")
    ] = ArrivalTimes.RECORDED,
    seed: Seed = 1,
    requests: Requests = None,
    replications: Annotated[
        int, typer.Option("--replications", metavar="N", min=1, help="Independent runs, each so long.")
    ] = 1,
    apply: options.Apply = None,
    set_: options.Set = None,
    catalog: options.CatalogFiles = None,
    out: options.Out = None,
    format_: options.Format = OutputFormat.TABLE,
    table: options.Table = None,
    require_slo: options.RequireSlo = False,
    solver: options.SolverName = "highs",
    mip_gap: options.MipGap = 0.005,
    time_limit: options.TimeLimit = 30.0,
    debug: options.Debug = False,
) -> int:
    """Serve requests one by one by a fleet, and compare with the predictions.

    Every number comes with its prediction and its 95 % confidence interval. Without --fleet one is planned first.
    """
    import qmodel
    from qmodel.simulation import SIMULATION_TABLES

    check_target(out, table, format_, SIMULATION_TABLES)
    recording = opened_recording(trace, by, split)
    loaded = open_scenario(scenario, apply=apply, settings=set_, catalog=catalog)
    pools: Fleet | Path
    if fleet is not None:
        pools, title = fleet, f"{fleet} under {scenario}, simulated"
    else:
        say("no --fleet: planning one for this scenario first")
        plan = planned(loaded, solver_options(solver, mip_gap, time_limit), doing="planning")
        if plan.fleet is None:
            deliver(_no_fleet_answer(plan), fmt=format_, table=table)
            return plan_code(plan, False)
        pools, title = plan.fleet, f"The planned fleet of {scenario}, simulated"
    with progress_line("simulating"):
        found = qmodel.simulate(
            loaded,
            pools,
            seed=seed,
            requests=requests,
            replications=replications,
            trace=recording,
            split=None if split is None else token_edges(split),
            arrivals=arrivals.value,
        )
    deliver(_answer(found, title), fmt=format_, out=out, table=table)
    return INFEASIBLE if require_slo and found.missed else DONE


def _answer(found: Simulation, title: str) -> Answer:
    from qmodel.report import simulation_page
    from qmodel.simulation import SIMULATION_TABLES

    return Answer(
        data=found.to_dict,
        page=lambda: simulation_page(found, title=title),
        tables={name: partial(simulation_rows, found, name) for name in SIMULATION_TABLES},
    )


def _no_fleet_answer(plan: Plan) -> Answer:
    from qmodel.report import Lines, no_plan_lines, simulation_columns
    from qmodel.simulation import SIMULATION_TABLES

    return Answer(
        data=lambda: {"requests": 0, **{name: [] for name in SIMULATION_TABLES}, "why": asdict(plan.why)},
        page=lambda: (Lines(lines=no_plan_lines(plan)),),
        tables={name: partial(_no_rows, simulation_columns(name)) for name in SIMULATION_TABLES},
    )


def _no_rows(columns: tuple[str, ...]) -> Rows:
    return [], columns
