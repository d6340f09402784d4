"""Exit codes, and what a user reads when a verb cannot do its work."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from qmodel.errors import InfeasibleError, QmodelError, ScenarioError, SolverFailedError

__all__ = ["BAD_INPUT", "BUG", "DONE", "INFEASIBLE", "INTERRUPTED", "NO_PLAN", "guarded", "problem_lines", "say"]

DONE = 0
BUG = 1
BAD_INPUT = 2
INFEASIBLE = 3
NO_PLAN = 4
INTERRUPTED = 130  # what shells report for a process that Ctrl-C ended

P = ParamSpec("P")


def guarded(outcome: str) -> Callable[[Callable[P, int]], Callable[P, None]]:
    """Turn a verb that returns an exit code into one that exits with it, whatever happens on the way.

    Bad input and limits become one message on stderr and their code; anything else is a bug, and says so.
    A traceback is shown with ``--debug`` only.

    Args:
        outcome: what bad input leads to, such as ``Nothing was planned.``
    """

    def decorate(verb: Callable[P, int]) -> Callable[P, None]:
        @wraps(verb)
        def command(*args: P.args, **kwargs: P.kwargs) -> None:
            debug = bool(kwargs.get("debug"))
            try:
                code = verb(*args, **kwargs)
            except (typer.Exit, typer.Abort, typer.BadParameter):
                raise
            except BrokenPipeError:
                code = _reader_left()
            except KeyboardInterrupt:
                say("interrupted")
                code = INTERRUPTED
            except QmodelError as error:
                code = _expected(error, outcome, debug)
            except Exception as error:
                code = _bug(error, debug)
            raise typer.Exit(code)

        return command

    return decorate


def say(text: str) -> None:
    """One message for people, on stderr."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # stderr is closed: there is nobody to tell
        return


def problem_lines(error: ScenarioError, *, outcome: str = "") -> str:
    """Every problem on its line, then how many there are and what came of it."""
    count = len(error.problems)
    total = "1 problem." if count == 1 else f"{count} problems."
    return "\n".join([*map(str, error.problems), f"{total} {outcome}".rstrip()])


def _expected(error: QmodelError, outcome: str, debug: bool) -> int:
    if debug:
        _traceback()
    if isinstance(error, ScenarioError):
        say(problem_lines(error, outcome=outcome))
        return BAD_INPUT
    say(f"qmodel: {error}")
    if isinstance(error, InfeasibleError):
        return INFEASIBLE
    return NO_PLAN if isinstance(error, SolverFailedError) else BAD_INPUT


def _bug(error: Exception, debug: bool) -> int:
    if debug:
        _traceback()
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    say(f"qmodel: this is a bug, please report it with your input files ({what})")
    if not debug:
        say("qmodel: --debug shows where it happened")
    return BUG


def _traceback() -> None:
    import traceback

    say(traceback.format_exc().rstrip())


def _reader_left() -> int:
    """The reader of stdout closed it early, as ``head`` does: not an error, but nothing more may be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
