"""Scenarios checked as a whole: every problem of a file, its variants and overrides at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from qmodel.errors import Problem, ScenarioError
from qmodel.files import parent_key
from qmodel.scenario.inheritance import (
    DICT_NAME,
    TEXT_NAME,
    FileSource,
    plain_data,
    read_document,
    source_name,
    stack_files,
)
from qmodel.scenario.layering import Layered, Place, key_of
from qmodel.scenario.overriding import SET_NAME, apply_overrides, apply_variant
from qmodel.scenario.schema import Scenario, Source
from qmodel.scenario.shapes import prune_nulls, shape_of
from qmodel.scenario.unsupported import SCENARIO_UNSUPPORTED, known_keys, strip_unsupported
from qmodel.scenario.wording import did_you_mean, find_all

__all__ = ["Checked", "check_scenario", "derive", "read_scenario"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A scenario, or what keeps the source from being one.

    Attributes:
        scenario: None where there are problems of the schema.
        problems: sorted by file and line.
        tree: merged plain data, also where there are problems; empty if nothing could be read.
        file: the source as the user named it.
        merged: the same data with the place of every key.
    """

    scenario: Scenario | None
    problems: tuple[Problem, ...]
    tree: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    merged: Layered = field(default_factory=Layered)

    def where(self, key: str) -> Place:
        """File, line and column of a dotted key, or of the nearest key above it."""
        return self.merged.where(key, self.file)

    def problem(self, key: str, what: str, hint: str = "") -> Problem:
        """A problem about ``key`` that carries its position."""
        return self.merged.problem(key, what, hint, file=self.file)


def check_scenario(
    source: FileSource,
    *,
    apply: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    catalog: Sequence[str | os.PathLike[str]] = (),
    base_dir: str | os.PathLike[str] | None = None,
) -> Checked:
    """Read a scenario and collect everything that is wrong with it; content never raises.

    Precedence: overrides over variants (left to right) over the file over what it extends. Variants
    that are not applied are checked too, each alone.

    Args:
        source: path of a YAML or JSON file, YAML text (a str with a line break), or a dict.
        apply: names of variants.
        overrides: dotted key to value; None removes.
        catalog: the user's catalog files, kept for those who bind the scenario.
        base_dir: where relative paths start; the file's folder, or the current one.

    Example:
        >>> checked = check_scenario({"qmodel": 1, "clases": {}, "fleet": {"gpus": {"h100-sxm": {}}}})
        >>> [str(problem) for problem in checked.problems]
        ["<dict>: unknown key 'clases'; did you mean 'classes'?"]
    """
    name = source_name(source)
    try:
        document = read_document(source)
        changes = {key: plain_data(value, SET_NAME, key) for key, value in (overrides or {}).items()}
    except ScenarioError as error:
        return Checked(scenario=None, problems=error.problems, file=name)
    in_file = name not in (DICT_NAME, TEXT_NAME)
    folder = os.fspath(base_dir) if base_dir is not None else str(Path(name).parent) if in_file else "."
    stated, problems = stack_files(document, folder)
    if problems:
        return Checked(scenario=None, problems=_ordered(problems), tree=stated.tree, file=name, merged=stated)
    origin = Source(
        file=name,
        base_dir=folder,
        stated=stated,
        applied=tuple(apply),
        overrides=changes,
        catalog_files=tuple(os.fspath(path) for path in catalog),
    )
    checked = _assess(origin)
    return Checked(
        scenario=checked.scenario if not (more := _check_variants(origin, checked)) else None,
        problems=_ordered([*checked.problems, *more]),
        tree=checked.tree,
        file=name,
        merged=checked.merged,
    )


def read_scenario(
    source: FileSource,
    *,
    apply: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    catalog: Sequence[str | os.PathLike[str]] = (),
    base_dir: str | os.PathLike[str] | None = None,
) -> Scenario:
    """Read a scenario; arguments as for :func:`check_scenario`.

    Raises:
        ScenarioError: all problems at once.
    """
    checked = check_scenario(source, apply=apply, overrides=overrides, catalog=catalog, base_dir=base_dir)
    if checked.scenario is None:
        raise ScenarioError(checked.problems)
    return checked.scenario


def derive(source: Source, *, apply: Sequence[str], overrides: Mapping[str, Any]) -> Scenario:
    """The scenario of ``source`` with further variants and overrides.

    Raises:
        ScenarioError: the result is not a scenario.
    """
    changes = {key: plain_data(value, SET_NAME, key) for key, value in overrides.items()}
    merged = {**source.overrides, **changes}
    checked = _assess(replace(source, applied=(*source.applied, *apply), overrides=merged))
    if checked.scenario is None:
        raise ScenarioError(_ordered(checked.problems))
    return checked.scenario


def _assess(origin: Source) -> Checked:
    """Merge, refuse what is not built, validate, and put positions to what is wrong."""
    merged, problems = _merge(origin)
    tree = prune_nulls(merged.tree, shape_of(Scenario))
    merged = Layered(tree=_rebased(tree, merged, origin), places=merged.places)
    stripped, refused = strip_unsupported(merged.tree, SCENARIO_UNSUPPORTED)
    problems += [merged.problem(key, what, hint, file=origin.file) for key, what, hint in refused]
    problems += _comparison_problems(merged, origin.file)
    scenario = None
    try:
        scenario = Scenario.model_validate(stripped)
    except ValidationError as error:
        incomplete = {parent_key(key) for key, _, _ in refused}
        for found in find_all(error.errors(), shape_of(Scenario), lambda path: known_keys(path, SCENARIO_UNSUPPORTED)):
            if not (found.kind in ("missing", "cross") and found.key in incomplete):
                problems.append(merged.problem(found.key, found.what, found.hint, file=origin.file, at=found.at))
    if problems:
        scenario = None
    if scenario is not None:
        scenario._source = replace(origin, merged=merged)
    return Checked(scenario=scenario, problems=tuple(problems), tree=merged.tree, file=origin.file, merged=merged)


def _merge(origin: Source) -> tuple[Layered, list[Problem]]:
    merged, problems = origin.stated, []
    variants = merged.tree.get("variants")
    variants = variants if isinstance(variants, dict) else {}
    for name in origin.applied:
        definition = variants.get(name)
        if name not in variants:
            hint = did_you_mean(name, variants) or (f"there are {', '.join(variants)}" if variants else "")
            problems.append(merged.problem("variants", f"no variant {name!r}", hint, file=origin.file))
        elif isinstance(definition, dict):
            merged, found = apply_variant(merged, name, definition)
            problems += found
    merged, found = apply_overrides(merged, origin.overrides)
    return merged, problems + found


def _check_variants(origin: Source, base: Checked) -> list[Problem]:
    """Problems that arise only when a variant is applied that was not asked for."""
    variants = base.tree.get("variants")
    known = {str(problem) for problem in base.problems}
    found: list[Problem] = []
    for name, definition in variants.items() if isinstance(variants, dict) else ():
        if name in origin.applied or not isinstance(definition, dict):
            continue
        alone = _assess(replace(origin, applied=(name,)))
        for problem in alone.problems:
            if problem.file != SET_NAME and str(problem) not in known:
                known.add(str(problem))
                found.append(_naming(problem, name, base))
    return found


def _naming(problem: Problem, variant: str, base: Checked) -> Problem:
    """The problem with the variant's name, where its position does not already show it."""
    root = key_of(("variants", variant))
    written = {place for key, place in base.merged.places.items() if key.startswith(f"{root}.") and place[1]}
    if problem.key.startswith(f"{root}.") or (problem.file, problem.line, problem.column) in written:
        return problem
    return replace(problem, what=f"with variant {variant!r}: {problem.what}")


def _comparison_problems(merged: Layered, file: str) -> list[Problem]:
    variants, comparisons = merged.tree.get("variants") or {}, merged.tree.get("comparisons") or {}
    problems: list[Problem] = []
    if not isinstance(variants, dict) or not isinstance(comparisons, dict):
        return problems
    if "base" in variants:
        what = "'base' means the file without variants"
        problems.append(merged.problem("variants.base", what, "choose another name", file=file))
    names = ["base", *variants]
    for name, members in comparisons.items():
        for index, member in enumerate(members if isinstance(members, list) else ()):
            if isinstance(member, str) and member not in names:
                hint = did_you_mean(member, names) or f"there are {', '.join(names)}"
                key = key_of(("comparisons", name, index))
                problems.append(merged.problem(key, f"no variant {member!r}", hint, file=file))
    return problems


def _rebased(tree: dict[str, Any], merged: Layered, origin: Source) -> dict[str, Any]:
    """Relative file names that another file states, as seen from this scenario's folder."""
    classes = tree.get("classes")
    for name, spec in classes.items() if isinstance(classes, dict) else ():
        if isinstance(spec, dict):
            trace = spec.get("trace")
            if isinstance(trace, dict):
                _rebase(trace, "file", merged.where(key_of(("classes", name, "trace", "file")), origin.file)[0], origin)
            if _is_config_path(spec.get("model")):
                _rebase(spec, "model", merged.where(key_of(("classes", name, "model")), origin.file)[0], origin)
            if isinstance(spec.get("models"), dict):
                spec["models"] = _rebased_names(spec["models"], ("classes", name, "models"), merged, origin)
    return tree


def _rebase(holder: dict[str, Any], key: str, stated_in: str, origin: Source) -> None:
    value = holder.get(key)
    if not isinstance(value, str) or stated_in in (origin.file, SET_NAME) or Path(value).is_absolute():
        return
    holder[key] = os.path.relpath(Path(stated_in).parent / value, origin.base_dir)


def _rebased_names(
    models: dict[str, Any], path: tuple[str | int, ...], merged: Layered, origin: Source
) -> dict[str, Any]:
    """Models by name, those that are paths as seen from this scenario's folder."""
    found = {}
    for name, spec in models.items():
        holder = {"model": name}
        if _is_config_path(name):
            _rebase(holder, "model", merged.where(key_of((*path, name)), origin.file)[0], origin)
        found[holder["model"]] = spec
    return found


def _is_config_path(value: object) -> bool:
    return isinstance(value, str) and (value.endswith(".json") or value.startswith(("./", "../")))


def _ordered(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    unique = {str(problem): problem for problem in problems}
    return tuple(sorted(unique.values(), key=lambda problem: (problem.file, problem.line, problem.column, problem.key)))
