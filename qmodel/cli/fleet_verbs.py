"""``evaluate`` and ``capacity``: what a given fleet does and how much it carries."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qmodel.cli import options
from qmodel.cli.failures import DONE, INFEASIBLE, guarded, say
from qmodel.cli.inputs import open_scenario, planned, solver_options
from qmodel.cli.options import OutputFormat
from qmodel.cli.output import Answer, check_target, deliver
from qmodel.cli.plan_verbs import plan_code
from qmodel.cli.progress import progress_line

if TYPE_CHECKING:
    from qmodel.evaluation import CapacityResult, Evaluation, MarginalValues
    from qmodel.planning import Plan
    from qmodel.types import Fleet

__all__ = ["capacity_command", "evaluate_command"]

CAPACITY_TABLES = ("curve", "marginal")
EVALUATION_TABLES = ("slo", "pools", "latency", "routing", "links", "purchases", "quality", "leaving")


@guarded(outcome="Nothing was evaluated.")
def evaluate_command(
    scenario: options.ScenarioFile,
    fleet: options.FleetFile,
    apply: options.Apply = None,
    set_: options.Set = None,
    catalog: options.CatalogFiles = None,
    out: options.Out = None,
    format_: options.Format = OutputFormat.TABLE,
    table: options.Table = None,
    require_slo: options.RequireSlo = False,
    debug: options.Debug = False,
) -> int:
    """Predict what a given fleet does under a demand."""
    import qmodel

    check_target(out, table, format_, EVALUATION_TABLES)
    loaded = open_scenario(scenario, apply=apply, settings=set_, catalog=catalog)
    result = qmodel.evaluate(loaded, fleet)
    deliver(_evaluation_answer(result, f"{fleet} under {scenario}"), fmt=format_, out=out, table=table)
    return INFEASIBLE if require_slo and not result.feasible else DONE


@guarded(outcome="Nothing was evaluated.")
def capacity_command(
    scenario: options.ScenarioFile,
    fleet: Annotated[
        Path | None,
        typer.Option("--fleet", metavar="FLEET", help="Fleet file (YAML) or saved plan; without it, plan one first."),
    ] = None,
    apply: options.Apply = None,
    set_: options.Set = None,
    catalog: options.CatalogFiles = None,
    out: options.Out = None,
    format_: options.Format = OutputFormat.TABLE,
    table: options.Table = None,
    marginal: Annotated[
        bool,
        typer.Option("--marginal", help="Also what a little more of each resource or target is worth in each pool."),
    ] = False,
    require_slo: options.RequireSlo = False,
    solver: options.SolverName = "highs",
    mip_gap: options.MipGap = 0.005,
    time_limit: options.TimeLimit = 30.0,
    debug: options.Debug = False,
) -> int:
    """Find how much more demand a fleet carries.

    The answer is the largest multiple of the demand within every target, and the service curve up to there.
    """
    import qmodel

    check_target(out, table, format_, CAPACITY_TABLES if marginal else CAPACITY_TABLES[:1])
    loaded = open_scenario(scenario, apply=apply, settings=set_, catalog=catalog)
    pools: Fleet | Path
    if fleet is not None:
        pools = fleet
        title = f"{fleet} under {scenario}"
    else:
        say("no --fleet: planning one for this scenario first")
        plan = planned(loaded, solver_options(solver, mip_gap, time_limit), doing="planning")
        if plan.fleet is None:
            deliver(_no_capacity_answer(plan), fmt=format_, table=table)
            return plan_code(plan, False)
        pools = plan.fleet
        title = f"The planned fleet of {scenario}"
    result = qmodel.capacity(loaded, pools)
    values = None
    if marginal:
        with progress_line("moving each figure"):
            values = qmodel.marginal_values(loaded, pools)
    deliver(_capacity_answer(result, values, title), fmt=format_, out=out, table=table)
    return INFEASIBLE if require_slo and result.factor < 1.0 else DONE


def _evaluation_answer(result: Evaluation, title: str) -> Answer:
    from qmodel.report import TABLE_COLUMNS, evaluation_page

    def rows(name: str) -> tuple[list[dict[str, object]], tuple[str, ...]]:
        return [row.to_dict() for row in getattr(result, name)], TABLE_COLUMNS[name]

    return Answer(
        data=result.to_dict,
        page=lambda: evaluation_page(result, title=title),
        tables={name: partial(rows, name) for name in EVALUATION_TABLES},
    )


def _capacity_answer(result: CapacityResult, values: MarginalValues | None, title: str) -> Answer:
    from qmodel.report import TABLE_COLUMNS, capacity_page, marginal_table

    curve = {"curve": lambda: ([asdict(row) for row in result.curve], TABLE_COLUMNS["curve"])}
    if values is None:
        return Answer(data=result.to_dict, page=lambda: capacity_page(result, title=title), tables=curve)
    rows = [asdict(row) for row in values.rows]
    return Answer(
        data=lambda: {**result.to_dict(), "marginal": rows},
        page=lambda: (*capacity_page(result, title=title), marginal_table(values.rows)),
        tables=curve | {"marginal": lambda: (rows, TABLE_COLUMNS["marginal"])},
    )


def _no_capacity_answer(plan: Plan) -> Answer:
    from qmodel.report import TABLE_COLUMNS, Lines, no_plan_lines

    return Answer(
        data=lambda: {"factor": None, "rate_rps": None, "binding": plan.why.text, "curve": [], "why": asdict(plan.why)},
        page=lambda: (Lines(lines=no_plan_lines(plan)),),
        tables={name: partial(_no_rows, TABLE_COLUMNS[name]) for name in CAPACITY_TABLES},
    )


def _no_rows(columns: tuple[str, ...]) -> tuple[list[dict[str, object]], tuple[str, ...]]:
    return [], columns
