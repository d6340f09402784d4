"""From words on the command line to scenarios and plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.optimize import SolverOptions
    from qmodel.planning import Plan
    from qmodel.scenario import Scenario

__all__ = ["open_scenario", "overrides", "planned", "refuse_saved_plan", "solver_options"]


def open_scenario(
    path: Path, *, apply: Sequence[str] | None, settings: Sequence[str] | None, catalog: Sequence[Path] | None
) -> Scenario:
    """Load a scenario with variants and overrides.

    Raises:
        ScenarioError: with every problem of the file and of the overrides.
    """
    import qmodel

    refuse_saved_plan(path)
    return qmodel.load_scenario(path, apply=tuple(apply or ()), set=overrides(settings), catalog=tuple(catalog or ()))


def refuse_saved_plan(path: Path) -> None:
    """Stop where a saved plan is given for a scenario: its keys would all be unknown.

    Raises:
        ScenarioError: with what can be done.
    """
    from qmodel.planning import is_saved_plan

    if is_saved_plan(path):
        hint = f"give the scenario file; 'qmodel explain {path}' shows the plan"
        raise ScenarioError([Problem(what="is a saved plan, not a scenario", file=str(path), hint=hint)])


def planned(scenario: Scenario, solver: SolverOptions, *, doing: str, existing: Path | None = None) -> Plan:
    """Plan with a sign of life on stderr."""
    import qmodel
    from qmodel.cli.progress import progress_line

    with progress_line(doing) as report:
        return qmodel.plan(scenario, solver=solver, existing=existing, on_progress=report)


def overrides(settings: Sequence[str] | None) -> dict[str, object]:
    """``KEY=VALUE`` words as a mapping; values are read as YAML reads them, a later word wins.

    Raises:
        ScenarioError: for every word that is not ``KEY=VALUE``.
    """
    from qmodel.scenario import parse_set

    values: dict[str, object] = {}
    problems: list[Problem] = []
    for word in settings or ():
        try:
            key, value = parse_set(word)
        except ScenarioError as error:
            problems += error.problems
        else:
            values[key] = value
    if problems:
        raise ScenarioError(problems)
    return values


def solver_options(name: str, mip_gap: float, time_limit_s: float) -> SolverOptions:
    """Options of the solver.

    Raises:
        ScenarioError: for a gap or a time that makes no sense.
    """
    import qmodel

    try:
        return qmodel.SolverOptions(name=name, mip_gap=mip_gap, time_limit_s=time_limit_s)
    except ValueError as error:
        raise ScenarioError([Problem(what=str(error), file="<command line>")]) from error
