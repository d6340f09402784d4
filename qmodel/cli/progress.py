"""A line on stderr that tells that a long plan is alive."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status

    from qmodel.planning import Progress

__all__ = ["progress_line"]

QUIET_S = 1.0  # what ends sooner shows nothing


@contextmanager
def progress_line(doing: str) -> Iterator[Callable[[Progress], None]]:
    """Show what is being done, from one second on, where stderr is a terminal.

    Args:
        doing: what to say before the first report, such as ``planning``.

    Yields:
        A callback that takes reports of progress.
    """
    if not sys.stderr.isatty():
        yield lambda report: None
        return
    line = _Line(doing)
    timer = threading.Timer(QUIET_S, line.start)
    timer.daemon = True
    timer.start()
    try:
        yield line.update
    finally:
        timer.cancel()
        line.stop()


class _Line:
    """A spinner that starts late and may be told what to say before it does."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._text = doing
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._stopped = False

    def start(self) -> None:
        from rich.console import Console
        from rich.markup import escape

        with self._lock:
            if not self._stopped:
                self._status = Console(stderr=True).status(escape(self._text))
                self._status.start()

    def update(self, report: Progress) -> None:
        from rich.markup import escape

        with self._lock:
            self._text = f"{self._doing}: {_words(report)}"
            if self._status is not None:
                self._status.update(escape(self._text))

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._status is not None:
                self._status.stop()


def _words(report: Progress) -> str:
    words = report.stage
    if report.total:
        words += f" {report.done}/{report.total}"
    if report.incumbent_usd_per_hour is not None:
        words += f", best {report.incumbent_usd_per_hour:,.2f} USD/h"
    if report.bound_usd_per_hour is not None:
        words += f", bound {report.bound_usd_per_hour:,.2f} USD/h"
    return words
