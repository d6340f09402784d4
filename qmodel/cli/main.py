"""The ``qmodel`` command: one verb per question, the answer alone on stdout."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from qmodel.cli.calibrate_verb import calibrate_command
from qmodel.cli.compare_verb import compare_command
from qmodel.cli.failures import INTERRUPTED, say
from qmodel.cli.fleet_verbs import capacity_command, evaluate_command
from qmodel.cli.look_verbs import catalog_command, schema_command, validate_command
from qmodel.cli.plan_verbs import explain_command, plan_command
from qmodel.cli.simulate_verb import simulate_command
from qmodel.cli.trace_verbs import trace_app

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: it starts faster and reads the same in a pipe
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("plan")(plan_command)
app.command("validate")(validate_command)
app.command("evaluate")(evaluate_command)
app.command("capacity")(capacity_command)
app.command("simulate")(simulate_command)
app.command("compare")(compare_command)
app.command("explain")(explain_command)
app.command("calibrate")(calibrate_command)
app.command("catalog")(catalog_command)
app.command("schema")(schema_command)
app.add_typer(trace_app, name="trace")


def main() -> None:
    """Run the command line; ends the process with the exit code of the verb."""
    _open_streams()
    try:
        app(prog_name="qmodel")
    except KeyboardInterrupt:
        say("interrupted")
        raise SystemExit(INTERRUPTED) from None


def _open_streams() -> None:
    """Give a process that was started with stdout or stderr closed a place to write to that keeps nothing."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"qmodel {_version()}")
        raise typer.Exit


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("qmodel")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which GPUs, how many, and in which layout serve your LLM requests at the least cost within their targets.

    Exit codes: 0 done, 1 a bug, 2 bad input, 3 infeasible (with --require-slo: a target is missed), 4 a limit was
    hit with no plan.
    """
