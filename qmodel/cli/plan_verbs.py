"""``plan`` and ``explain``."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qmodel.cli import options
from qmodel.cli.failures import BAD_INPUT, DONE, INFEASIBLE, NO_PLAN, guarded, say
from qmodel.cli.inputs import open_scenario, planned, solver_options
from qmodel.cli.options import OutputFormat
from qmodel.cli.output import Answer, Rows, check_target, deliver
from qmodel.cli.progress import progress_line
from qmodel.cli.simulating import Requests, Seed, simulation_rows
from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.planning import Plan, PlanCheck

__all__ = ["explain_command", "plan_code", "plan_command"]

PLAN_TABLES = (
    "pools",
    "slo",
    "latency",
    "routing",
    "links",
    "purchases",
    "prices",
    "served",
    "quality",
    "leaving",
    "changes",
    "periods",
    "base",
)
CHECK_TABLES = {"simulated_slo": "slo", "simulated_pools": "pools", "simulated_latency": "latency"}


@guarded(outcome="Nothing was planned.")
def plan_command(
    scenario: options.ScenarioFile,
    apply: options.Apply = None,
    set_: options.Set = None,
    catalog: options.CatalogFiles = None,
    out: options.Out = None,
    format_: options.Format = OutputFormat.TABLE,
    table: options.Table = None,
    existing: Annotated[
        Path | None,
        typer.Option(metavar="FLEET", help="Fleet that runs already: a fleet file, or a saved plan."),
    ] = None,
    require_slo: options.RequireSlo = False,
    reproducible: options.Reproducible = False,
    check: Annotated[
        bool, typer.Option("--check", help="Simulate the plan, and grow it where a target is missed.")
    ] = False,
    seed: Seed = 1,
    requests: Requests = None,
    solver: options.SolverName = "highs",
    mip_gap: options.MipGap = 0.005,
    time_limit: options.TimeLimit = 30.0,
    debug: options.Debug = False,
) -> int:
    """Find the cheapest fleet that meets every target."""
    import qmodel

    check_target(out, table, format_, (*PLAN_TABLES, *(CHECK_TABLES if check else ())))
    if requests is not None and not check:
        what = "--requests is how many requests a check simulates; add --check"
        raise ScenarioError([Problem(what=what, file="<command line>")])
    choice = solver_options(solver, mip_gap, time_limit)
    loaded = open_scenario(scenario, apply=apply, settings=set_, catalog=catalog)
    plan = planned(loaded, choice, doing="planning", existing=existing)
    checked = None
    if check and plan.fleet is not None:
        with progress_line("simulating the plan"):
            checked = qmodel.check_plan(loaded, plan, seed=seed, requests=requests)
        plan = checked.plan
    answer = _plan_answer(plan, reproducible, checked)
    if plan.fleet is None:
        _tell_no_plan(plan, format_, out)
        out = None
    deliver(answer, fmt=format_, out=out, table=table)
    if require_slo and checked is not None and checked.verdict == "missed":
        return INFEASIBLE
    return plan_code(plan, require_slo)


@guarded(outcome="Nothing was explained.")
def explain_command(
    source: Annotated[Path, typer.Argument(metavar="PLAN|SCENARIO", help="A saved plan, or a scenario to plan first.")],
    apply: options.Apply = None,
    set_: options.Set = None,
    catalog: options.CatalogFiles = None,
    out: options.Out = None,
    format_: options.Format = OutputFormat.TABLE,
    solver: options.SolverName = "highs",
    mip_gap: options.MipGap = 0.005,
    time_limit: options.TimeLimit = 30.0,
    debug: options.Debug = False,
) -> int:
    """Say why a plan is what it is.

    What binds in each pool, what was nearly chosen, what one more unit of a limit is worth, what was assumed.
    """
    import qmodel
    from qmodel.planning import is_saved_plan

    check_target(out, None, format_, ("alternatives",))
    if is_saved_plan(source):
        if apply or set_ or catalog:
            say(f"{source}: a saved plan takes no --apply, --set or --catalog; plan its scenario again")
            return BAD_INPUT
        plan = qmodel.load_plan(source)
    else:
        choice = solver_options(solver, mip_gap, time_limit)
        plan = planned(open_scenario(source, apply=apply, settings=set_, catalog=catalog), choice, doing="planning")
    deliver(_explanation_answer(plan), fmt=format_, out=out)
    return plan_code(plan, False)


def plan_code(plan: Plan, require_slo: bool) -> int:
    """The exit code that says what kind of answer a plan is."""
    if plan.status == "infeasible":
        return INFEASIBLE
    if plan.fleet is None:
        return NO_PLAN
    return INFEASIBLE if require_slo and not all(row.met for row in plan.slo) else DONE


def _tell_no_plan(plan: Plan, fmt: OutputFormat, out: Path | None) -> None:
    from qmodel.report import no_plan_lines

    if fmt is not OutputFormat.TABLE:  # a table says it on stdout
        say("\n".join(no_plan_lines(plan)))
    if out is not None:
        say(f"no plan, so {out} was not written")


def _plan_answer(plan: Plan, reproducible: bool, checked: PlanCheck | None) -> Answer:
    from qmodel.report import TABLE_COLUMNS, check_blocks, plan_page

    def rows(name: str) -> Rows:
        if name == "periods":
            return [row for item in plan.periods for row in item.table()], TABLE_COLUMNS[name]
        plain = name in ("prices", "changes")
        records = [asdict(row) if plain else row.to_dict() for row in getattr(plan, name)]
        return records, TABLE_COLUMNS[name]

    tables = {name: partial(rows, name) for name in PLAN_TABLES}
    if checked is None:
        return Answer(data=lambda: plan.to_dict(reproducible=reproducible), page=lambda: plan_page(plan), tables=tables)
    return Answer(
        data=lambda: {**plan.to_dict(reproducible=reproducible), "check": checked.to_dict()},
        page=lambda: (*plan_page(plan), *check_blocks(checked)),
        tables=tables
        | {name: partial(simulation_rows, checked.simulation, table) for name, table in CHECK_TABLES.items()},
    )


def _explanation_answer(plan: Plan) -> Answer:
    from qmodel.report import Lines

    text = plan.explain().rstrip("\n")
    return Answer(
        data=lambda: {"status": plan.status, "why": asdict(plan.why), "explanation": text},
        page=lambda: (Lines(lines=tuple(text.split("\n"))),),
        tables={"alternatives": lambda: _alternative_rows(plan)},
    )


def _alternative_rows(plan: Plan) -> Rows:
    rows = [{"class": item.cls, **asdict(item)} for item in plan.why.alternatives]
    return rows, ("class", "candidate", "cost_usd_per_hour", "limit")
