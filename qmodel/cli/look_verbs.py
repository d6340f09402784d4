"""``validate``, ``catalog`` and ``schema``: look at what goes into a plan."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from qmodel.cli import options
from qmodel.cli.catalog_answers import entry_answer, kinds_answer, list_answer
from qmodel.cli.failures import BAD_INPUT, DONE, guarded, problem_lines, say
from qmodel.cli.inputs import overrides, refuse_saved_plan
from qmodel.cli.memory_answers import memory_answer
from qmodel.cli.options import OutputFormat
from qmodel.cli.output import Answer, check_target, deliver, print_text
from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["catalog_command", "schema_command", "validate_command"]

PROBLEM_COLUMNS = ("file", "line", "column", "key", "what", "hint")


class SchemaOf(StrEnum):
    """Files that have a schema."""

    SCENARIO = "scenario"
    FLEET = "fleet"


@guarded(outcome="")
def validate_command(
    scenario: options.ScenarioFile,
    apply: options.Apply = None,
    set_: options.Set = None,
    catalog: options.CatalogFiles = None,
    format_: options.Format = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> int:
    """Check a scenario file; all problems at once."""
    import qmodel

    refuse_saved_plan(scenario)
    problems = qmodel.validate(scenario, apply=tuple(apply or ()), set=overrides(set_), catalog=tuple(catalog or ()))
    if problems and format_ is OutputFormat.TABLE:
        say(problem_lines(ScenarioError(problems)))
        return BAD_INPUT
    deliver(_validation_answer(scenario, problems), fmt=format_)
    return BAD_INPUT if problems else DONE


@guarded(outcome="")
def catalog_command(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[KIND]", help="gpus, nodes, fabrics, topologies, models, engines or prices."),
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One entry of that kind, in full.")] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="GPU", help="For a model: what of it fits on this GPU, layout by layout."),
    ] = None,
    engine: Annotated[str | None, typer.Option("--engine", metavar="NAME", help="With --on; default vllm.")] = None,
    engine_version: Annotated[
        str | None, typer.Option("--engine-version", metavar="VERSION", help="With --on: release of the engine.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", metavar="TYPE", help="With --on: bf16, fp8, fp4 or w4; default auto.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, metavar="N", help="With --on: longest request; default: the context."),
    ] = None,
    catalog: options.CatalogFiles = None,
    out: options.Out = None,
    format_: options.Format = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> int:
    """List what the catalog knows, with sources and dates; with --on, what of a model fits on a GPU."""
    from qmodel.catalog import load_catalog

    check_target(out, None, format_, ())
    with_on = {
        "--engine": engine,
        "--engine-version": engine_version,
        "--precision": precision,
        "--max-tokens": max_tokens,
    }
    if (on is not None and (name is None or kind not in ("model", "models"))) or (
        on is None and any(value is not None for value in with_on.values())
    ):
        flag = "--on" if on is not None else next(flag for flag, value in with_on.items() if value is not None)
        hint = "write qmodel catalog models NAME --on GPU"
        raise ScenarioError([Problem(what="asks what of a model fits on a GPU", file=flag, hint=hint)])
    loaded = load_catalog(tuple(catalog or ()))
    if on is not None and name is not None:
        answer = memory_answer(
            loaded,
            name,
            on,
            engine_name=engine or "vllm",
            version=engine_version,
            precision=precision,
            max_tokens=max_tokens,
        )
    elif kind is None:
        answer = kinds_answer(loaded)
    elif name is None:
        answer = list_answer(loaded, kind)
    else:
        answer = entry_answer(loaded, kind, name)
    deliver(answer, fmt=format_, out=out)
    return DONE


@guarded(outcome="")
def schema_command(
    of: Annotated[SchemaOf, typer.Argument(metavar="[scenario|fleet]", help="Which file.")] = SchemaOf.SCENARIO,
    debug: options.Debug = False,
) -> int:
    """Print the JSON Schema of scenario or fleet files, for editors."""
    from qmodel.report import json_text
    from qmodel.scenario import fleet_json_schema, scenario_json_schema

    print_text(json_text(scenario_json_schema() if of is SchemaOf.SCENARIO else fleet_json_schema()))
    return DONE


def _validation_answer(scenario: Path, problems: list[Problem]) -> Answer:
    from qmodel.report import Lines

    rows = [asdict(problem) for problem in problems]
    return Answer(
        data=lambda: {"file": str(scenario), "valid": not problems, "problems": rows},
        page=lambda: (Lines(lines=(f"{scenario}: valid",)),),
        tables={"problems": lambda: (rows, PROBLEM_COLUMNS)},
    )
