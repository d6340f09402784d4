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

if TYPE_CHECKING:
    from qmodel.evaluation import CapacityResult, Evaluation
    from qmodel.planning import Plan
    from qmodel.types import Fleet

__all__ = ["capacity_command", "evaluate_command"]

EVALUATION_TABLES = ("slo", "pools", "latency", "routing", "links")


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

    check_target(out, None, format_, ("curve",))
    loaded = open_scenario(scenario, apply=apply, settings=set_, catalog=catalog)
    pools: Fleet | Path
    if fleet is not None:
        pools = fleet
        title = f"{fleet} under {scenario}"
    else:
        say("no --fleet: planning one for this scenario first")
        plan = planned(loaded, solver_options(solver, mip_gap, time_limit), doing="planning")
        if plan.fleet is None:
            deliver(_no_capacity_answer(plan), fmt=format_)
            return plan_code(plan, False)
        pools = plan.fleet
        title = f"The planned fleet of {scenario}"
    result = qmodel.capacity(loaded, pools)
    deliver(_capacity_answer(result, title), fmt=format_, out=out)
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


def _capacity_answer(result: CapacityResult, title: str) -> Answer:
    from qmodel.report import TABLE_COLUMNS, capacity_page

    return Answer(
        data=result.to_dict,
        page=lambda: capacity_page(result, title=title),
        tables={"curve": lambda: ([asdict(row) for row in result.curve], TABLE_COLUMNS["curve"])},
    )


def _no_capacity_answer(plan: Plan) -> Answer:
    from qmodel.report import TABLE_COLUMNS, Lines, no_plan_lines

    return Answer(
        data=lambda: {"factor": None, "rate_rps": None, "binding": plan.why.text, "curve": [], "why": asdict(plan.why)},
        page=lambda: (Lines(lines=no_plan_lines(plan)),),
        tables={"curve": lambda: ([], TABLE_COLUMNS["curve"])},
    )
