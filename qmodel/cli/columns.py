"""Which variants of a scenario file become columns of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.scenario import Scenario

__all__ = ["BASE", "Selection", "variant_columns"]

BASE = "base"  # the file as it stands, unless it has a variant of this name
TOGETHER = "+"  # joins variants that one column applies together


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the command line says about columns; at most one of the three is given.

    Attributes:
        apply: variants beside the file as it stands.
        variants: all columns, separated by commas.
        comparison: name of an entry of ``comparisons:``.
    """

    apply: tuple[str, ...] = ()
    variants: str | None = None
    comparison: str | None = None

    @property
    def given(self) -> bool:
        """Whether anything was selected."""
        return bool(self.apply) or self.variants is not None or self.comparison is not None


def variant_columns(scenario: Scenario, selection: Selection, *, file: str, alone: bool) -> dict[str, tuple[str, ...]]:
    """Columns by name, each with the variants to apply, left to right.

    Args:
        scenario: the file as it stands.
        selection: what the command line asked for.
        file: name for messages.
        alone: whether this is the only file; without a selection it is then held against all its variants.

    Raises:
        ScenarioError: for names that the file does not have, or a selection of two kinds.
    """
    if sum((bool(selection.apply), selection.variants is not None, selection.comparison is not None)) > 1:
        what = "--apply, --variants and --comparison each say what the columns are; give one of them"
        raise ScenarioError([Problem(what=what, file="<command line>")])
    known = list(scenario.variants)
    columns = {name: _parts(name, known) for name in _names(scenario, selection, file, alone)}
    unknown = [part for parts in columns.values() for part in parts if part not in known]
    if unknown:
        raise ScenarioError([_unknown("variant", name, known, file) for name in dict.fromkeys(unknown)])
    return columns


def _names(scenario: Scenario, selection: Selection, file: str, alone: bool) -> list[str]:
    if selection.variants is not None:
        return [name.strip() for name in selection.variants.split(",") if name.strip()]
    if selection.comparison is not None:
        comparisons = scenario.comparisons
        if selection.comparison not in comparisons:
            raise ScenarioError([_unknown("comparison", selection.comparison, list(comparisons), file)])
        return list(comparisons[selection.comparison])
    if selection.apply or not alone:
        return [BASE, *selection.apply]
    return [BASE, *(name for name in scenario.variants if name != BASE)]


def _parts(name: str, known: list[str]) -> tuple[str, ...]:
    if name in known:
        return (name,)
    return tuple(part for part in name.split(TOGETHER) if part != BASE)


def _unknown(kind: str, name: str, known: list[str], file: str) -> Problem:
    near = get_close_matches(name, known, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"it has: {', '.join(known)}" if known else f"it has no {kind}s"
    return Problem(what=f"no {kind} {name!r}", file=file, hint=hint)
