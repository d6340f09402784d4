"""The tree of errors that qmodel raises for reasons a caller can act on.

Everything else that escapes is a bug. ``plan`` returns infeasibility, overload
and time limits as typed results; only ``raise_for_status`` turns them into errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "CatalogError",
    "InfeasibleError",
    "Problem",
    "QmodelError",
    "ScenarioError",
    "SolverFailedError",
    "SolverUnavailableError",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an input: where it stands, what is wrong, what would work.

    Attributes:
        what: the problem, with the value that was given.
        key: dotted key the problem is about, empty for a whole file.
        file: the file, or a name such as ``<dict>`` for input that is not a file.
        line: 1-based line, 0 where there is none.
        column: 1-based column, 0 where there is none.
        hint: a way out, empty where there is none.
    """

    what: str
    key: str = ""
    file: str = "<input>"
    line: int = 0
    column: int = 0
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        key = f" {self.key}:" if self.key else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{place}:{key} {self.what}{hint}"


class QmodelError(Exception):
    """Root of the errors that qmodel raises on purpose."""


class ScenarioError(QmodelError, ValueError):
    """A scenario, fleet, plan or trace file that cannot be used, with all problems found at once.

    Example:
        >>> error = ScenarioError([Problem(what="must be greater than 0 (got -3)", key="classes.chat.rate_rps",
        ...                                file="a.yaml", line=11, column=5)])
        >>> str(error)
        'a.yaml:11:5: classes.chat.rate_rps: must be greater than 0 (got -3)'
    """

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        if isinstance(problems, str):
            problems = [Problem(what=problems)]
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class CatalogError(QmodelError, KeyError):
    """A name that the catalog does not have, or a catalog file that breaks its schema."""

    def __str__(self) -> str:  # KeyError would print the repr, with quotes and escapes
        return str(self.args[0]) if self.args else ""


class InfeasibleError(QmodelError):
    """No fleet within the scenario's limits meets every target; raised by ``raise_for_status`` only."""


class SolverUnavailableError(QmodelError, ValueError):
    """A solver was named that is not installed; the text has the install command."""


class SolverFailedError(QmodelError, RuntimeError):
    """The solver stopped for a reason of its own and left no plan; raised by ``raise_for_status`` only."""
