"""Scenarios and fleets read from files, each problem with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmodel.errors import CatalogError, Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.scenario import Scenario
    from qmodel.types import Fleet

__all__ = ["Source", "load_fleet", "load_scenario", "loaded_fleet", "loaded_scenario", "placed_in", "validate"]

Source = str | Path | Mapping[str, Any]


def load_scenario(
    source: Source,
    *,
    apply: Sequence[str] = (),
    set: Mapping[str, Any] | None = None,  # the public name, as the command line has it
    catalog: Sequence[str | Path] = (),
) -> Scenario:
    """Read a scenario and check it: schema, names, prices, traces.

    Args:
        source: path of a YAML file, or the same content as a mapping.
        apply: names of variants, left to right.
        set: dotted key to value; wins over variants and file.
        catalog: the user's catalog files, laid over the shipped one in order.

    Returns:
        The scenario, frozen; ``scenario.with_(...)`` derives another.

    Raises:
        ScenarioError: every problem found, each with file, line and column.

    Example:
        >>> import qmodel as qm
        >>> scenario = qm.load_scenario({
        ...     "qmodel": 1,
        ...     "classes": {"chat": {"model": "llama-3.1-8b", "rate_rps": 4, "slo": {"tpot_mean_s": 0.05},
        ...                          "prompt_tokens": {"mean": 800, "cv": 1}, "output_tokens": {"mean": 200, "cv": 1}}},
        ...     "fleet": {"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 3.0}}}},
        ... })
        >>> list(scenario.classes)
        ['chat']
    """
    scenario, problems = _checked(source, apply, set, catalog)
    if scenario is None or problems:
        raise ScenarioError(problems)
    return scenario


def validate(
    source: Source,
    *,
    apply: Sequence[str] = (),
    set: Mapping[str, Any] | None = None,  # the public name, as the command line has it
    catalog: Sequence[str | Path] = (),
) -> list[Problem]:
    """Every problem of a scenario, in the order of the file; empty for one that can be planned.

    Args:
        source, apply, set, catalog: as for :func:`load_scenario`.
    """
    return _checked(source, apply, set, catalog)[1]


def load_fleet(source: Source) -> Fleet:
    """Read a fleet file, or the fleet of a saved plan.

    Args:
        source: path of a fleet file or of a saved plan, or the fleet file's content as a mapping.

    Raises:
        ScenarioError: every problem found, each with its position.
    """
    from qmodel.planning.storage import is_saved_plan, load_plan

    if not isinstance(source, Mapping) and is_saved_plan(source):
        fleet = load_plan(source).fleet
        if fleet is None:
            raise ScenarioError([Problem(what="this plan has no fleet", file=str(source), hint="its status says why")])
        return fleet
    from qmodel.problem import fleet_from_file
    from qmodel.scenario import read_fleet

    return fleet_from_file(read_fleet(source))


def loaded_scenario(scenario: Scenario | Source) -> Scenario:
    from qmodel.scenario import Scenario

    return scenario if isinstance(scenario, Scenario) else load_scenario(scenario)


def loaded_fleet(fleet: object) -> Fleet:
    from qmodel.types import Fleet

    if isinstance(fleet, Fleet):
        return fleet
    if isinstance(fleet, str | Path | Mapping):
        return load_fleet(fleet)
    what = f"fleet must be a Fleet, or the path of a fleet file or saved plan (got {type(fleet).__name__})"
    raise TypeError(f"{what}; a plan has it as plan.fleet, None where there is none")


@contextmanager
def placed_in(fleet: Fleet | str | Path) -> Iterator[None]:
    """Give problems of a fleet the position they have in its file, where it came from one."""
    try:
        yield
    except ScenarioError as error:
        if not isinstance(fleet, str | Path) or any(problem.file != "<fleet>" for problem in error.problems):
            raise
        from qmodel.scenario import check_fleet

        checked = check_fleet(fleet)
        if checked.fleet is None:  # a saved plan: it has keys but no lines
            raise ScenarioError(replace(problem, file=str(fleet)) for problem in error.problems) from error
        found = [checked.fleet.problem(problem.key, problem.what, problem.hint) for problem in error.problems]
        raise ScenarioError(found) from error


def _checked(
    source: Source, apply: Sequence[str], set_: Mapping[str, Any] | None, catalog: Sequence[str | Path]
) -> tuple[Scenario | None, list[Problem]]:
    from qmodel.catalog import load_catalog
    from qmodel.problem import name_problems, unknown_names
    from qmodel.scenario import check_scenario

    checked = check_scenario(source, apply=apply, overrides=set_ or {}, catalog=catalog)
    if checked.scenario is not None:
        return checked.scenario, name_problems(checked.scenario)
    try:
        found = unknown_names(checked.tree, load_catalog(catalog), checked.problem)
    except (CatalogError, ScenarioError) as error:  # a broken catalog file: said once, beside the schema's problems
        found = list(error.problems) if isinstance(error, ScenarioError) else [Problem(what=str(error))]
    problems = {str(item): item for item in (*checked.problems, *found)}
    return None, sorted(problems.values(), key=lambda item: (item.file, item.line, item.column, item.key))
