"""``compare``: variants of a file, several files, saved plans, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qmodel.cli import options
from qmodel.cli.columns import BASE, Selection, variant_columns
from qmodel.cli.failures import DONE, INFEASIBLE, guarded
from qmodel.cli.inputs import open_scenario, planned, solver_options
from qmodel.cli.options import OutputFormat
from qmodel.cli.output import Answer, check_target, deliver, written
from qmodel.cli.plan_verbs import plan_code
from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.comparison import Comparison
    from qmodel.optimize import SolverOptions
    from qmodel.planning import Plan

__all__ = ["compare_command"]

_POINTS = 8  # of a front


@guarded(outcome="Nothing was compared.")
def compare_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenario files and saved plans.")],
    apply: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A column for this variant, beside the file as it stands; repeatable."),
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Exactly these columns: 'base' is the file as it stands, A+B applies both."),
    ] = None,
    comparison: Annotated[
        str | None, typer.Option(metavar="NAME", help="The columns of this entry of 'comparisons:' in the file.")
    ] = None,
    pareto: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS.TARGET", help="Columns along the front of cost against this target, such as chat.ttft_p95_s."
        ),
    ] = None,
    points: Annotated[
        int | None, typer.Option(metavar="N", min=2, max=100, help="Most columns of the front, 8 if left out.")
    ] = None,
    set_: options.Set = None,
    catalog: options.CatalogFiles = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write the answer to FILE: JSON, or CSV or HTML by the end of its name."
        ),
    ] = None,
    format_: options.Format = OutputFormat.TABLE,
    require_slo: options.RequireSlo = False,
    solver: options.SolverName = "highs",
    mip_gap: options.MipGap = 0.005,
    time_limit: options.TimeLimit = 30.0,
    debug: options.Debug = False,
) -> int:
    """Put plans side by side: inputs, cost, GPUs, slack.

    Give several files, or variants of one file; without a selection one file is held against all its variants.
    """
    import qmodel

    check_target(out, None, format_, ("metrics",))
    choice = solver_options(solver, mip_gap, time_limit)
    selection = Selection(apply=tuple(apply or ()), variants=variants, comparison=comparison)
    if pareto is None and points is not None:
        what = "--points is how many columns a front has; add --pareto CLASS.TARGET"
        raise ScenarioError([Problem(what=what, file="<command line>")])
    if pareto is not None:
        front = _front(files, selection, pareto, points or _POINTS, set_, catalog, choice)
        _deliver(qmodel.compare(front), format_, out)
        return next((code for plan in front.values() if (code := plan_code(plan, require_slo)) != DONE), DONE)
    columns = _columns(files, selection, set_, catalog)
    plans = {}
    for column in columns:
        if column.variants is None:
            plans[column.name] = qmodel.load_plan(column.file)
        else:
            scenario = open_scenario(column.file, apply=column.variants, settings=set_, catalog=catalog)
            plans[column.name] = planned(scenario, choice, doing=f"planning {column.name}")
    _deliver(qmodel.compare(plans), format_, out)
    return INFEASIBLE if require_slo and any(plan_code(plan, True) != DONE for plan in plans.values()) else DONE


def _front(
    files: Sequence[Path],
    selection: Selection,
    pareto: str,
    points: int,
    settings: Sequence[str] | None,
    catalog: Sequence[Path] | None,
    solver: SolverOptions,
) -> dict[str, Plan]:
    """The plans of a front.

    Raises:
        ScenarioError: for a target that the file does not have, more than one file, or columns of another kind.
    """
    import qmodel
    from qmodel.cli.progress import progress_line

    if len(files) > 1 or selection.given:
        what = "--pareto makes the columns itself; give it one scenario, without --apply, --variants or --comparison"
        raise ScenarioError([Problem(what=what, file="<command line>")])
    scenario = open_scenario(files[0], apply=None, settings=settings, catalog=catalog)
    cls, _, target = pareto.partition(".")  # names of classes have no dots
    if cls not in scenario.classes:
        hint = f"write <class>.<target>, the class one of {', '.join(scenario.classes)}"
        raise ScenarioError([Problem(what=f"--pareto {pareto}: no class '{cls}'", file=str(files[0]), hint=hint)])
    if not target:
        what = f"--pareto {pareto}: says no target of class '{cls}'"
        raise ScenarioError([Problem(what=what, file="<command line>", hint=f"write {cls}.ttft_p95_s, for example")])
    try:
        with progress_line(f"planning the front of {pareto}") as report:
            return qmodel.pareto(scenario, cls, target, points=points, solver=solver, on_progress=report)
    except ScenarioError:
        raise
    except ValueError as error:
        raise ScenarioError([Problem(what=f"--pareto: {error}", file="<command line>")]) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One plan to show: a saved one, or a file with the variants to apply."""

    name: str
    file: Path
    variants: tuple[str, ...] | None


def _columns(
    files: Sequence[Path], selection: Selection, settings: Sequence[str] | None, catalog: Sequence[Path] | None
) -> list[_Column]:
    """The columns in order, each with a name of its own.

    Raises:
        ScenarioError: if a name is unknown, an option has nothing to act on, or fewer than two columns result.
    """
    from qmodel.planning import is_saved_plan

    labels = _labels(files)
    columns = []
    for label, file in zip(labels, files, strict=True):
        if is_saved_plan(file):
            columns.append(_Column(name=label, file=file, variants=None))
            continue
        scenario = open_scenario(file, apply=None, settings=None, catalog=catalog)
        for name, variants in variant_columns(scenario, selection, file=str(file), alone=len(files) == 1).items():
            columns.append(
                _Column(name=name if len(files) == 1 else _joined(label, name), file=file, variants=variants)
            )
    if all(column.variants is None for column in columns) and (settings or catalog or selection.given):
        what = "saved plans take no --apply, --variants, --comparison, --set or --catalog; give their scenarios"
        raise ScenarioError([Problem(what=what, file="<command line>")])
    if len(columns) < 2:
        hint = "name another file, or variants of this one"
        raise ScenarioError([Problem(what="is one plan, and compare needs two", file=str(files[0]), hint=hint)])
    return columns


def _labels(files: Sequence[Path]) -> list[str]:
    """Short names of files: the stem, or the whole path where two stems are the same.

    Raises:
        ScenarioError: if a file is named twice.
    """
    if len(set(files)) < len(files):
        twice = next(file for file in files if files.count(file) > 1)
        raise ScenarioError([Problem(what="is named twice", file=str(twice))])
    stems = [file.stem for file in files]
    return stems if len(set(stems)) == len(stems) else [str(file) for file in files]


def _joined(label: str, variant: str) -> str:
    return label if variant == BASE else f"{label}:{variant}"


def _deliver(comparison: Comparison, fmt: OutputFormat, out: Path | None) -> None:
    from qmodel.comparison import comparison_page

    if out is not None and out.suffix.lower() in (".html", ".htm"):
        written(out, partial(comparison.to_html, out))
        out = None
    answer = Answer(
        data=comparison.to_dict,
        page=lambda: comparison_page(comparison),
        tables={"metrics": lambda: (comparison.to_rows(), comparison.row_columns)},
    )
    deliver(answer, fmt=fmt, out=out)
