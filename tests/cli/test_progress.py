"""The sign of life of a long plan."""

from __future__ import annotations

import io
import re
import time

import pytest

from qmodel.cli import progress
from qmodel.planning import Progress

REPORT = Progress(stage="solve", done=1, total=3, incumbent_usd_per_hour=50.0, bound_usd_per_hour=49.5)


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_pipe_sees_no_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    with progress.progress_line("planning") as report:
        report(REPORT)
    assert capsys.readouterr() == ("", "")


def test_a_short_plan_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress.progress_line("planning") as report:
        report(REPORT)
    assert terminal.getvalue() == ""


def test_a_long_plan_tells_stage_cost_and_bound_and_leaves_no_line_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress.progress_line("planning peak") as report:
        report(REPORT)
        deadline = time.monotonic() + 10.0
        while "bound" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "planning peak: solve 1/3, best 50.00 USD/h, bound 49.50 USD/h" in text
    assert terminal.getvalue().rstrip().endswith("\x1b[2K")


def test_an_error_ends_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    with pytest.raises(ZeroDivisionError), progress.progress_line("planning"):
        time.sleep(0.05)
        raise ZeroDivisionError
    before = terminal.getvalue()
    time.sleep(0.2)
    assert terminal.getvalue() == before
