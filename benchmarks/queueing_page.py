"""Print docs/accuracy-queues.md: how far the queueing models are from exact solutions and simulations.

Run from the checkout: ``python -m benchmarks.queueing_page > docs/accuracy-queues.md`` (about a minute).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from unittest import mock

from benchmarks import (
    bursty_accuracy,
    bursty_pools,
    fresh_cells,
    priority_accuracy,
    queueing_accuracy,
    queueing_bands,
    replica_accuracy,
    replica_cells,
    slot_accuracy,
)

_HEAD = """# Accuracy of the queueing models

Printed by `benchmarks/queueing_page.py`; do not edit. Times of calls depend on the machine.

Errors are per cent of an exact solution or of a simulation. *Development* rows were looked at while the models were
built; rows *set aside* were not, except where the theory page of the model says so. High loads compare with
simulations whose own intervals are wide; tables give them where they matter. The theory pages say what each row is, and
what is weak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One section: what a benchmark prints with some arguments."""

    title: str
    words: str
    run: Callable[[], object]
    arguments: tuple[str, ...] = ()


_SLOTS = "[theory/replica.md](theory/replica.md). Mean absolute and signed errors by load"
_FRESH = (
    "[theory/replica.md](theory/replica.md). Mean absolute and signed errors by load, and half widths of the"
    " simulations' own intervals of mean TTFT"
)
_MEMORY = (
    "[theory/replica.md](theory/replica.md). Mean absolute errors, and half widths of the simulations' own intervals"
)
_PARTS = (
    Part(
        title="M/G/c",
        words="[theory/queueing.md](theory/queueing.md). Exact cells are solved, the others simulated.",
        run=queueing_accuracy.main,
    ),
    Part(
        title="Bursty arrivals",
        words="[theory/bursty.md](theory/bursty.md). The last tables serve recorded traces by c slots, each request for"
        " 20 ms per output and 0.1 ms per prompt token.",
        run=bursty_accuracy.main,
    ),
    Part(
        title="Priorities, shortest first, reserved servers",
        words="[theory/priority.md](theory/priority.md). Mean / nine in ten / largest.",
        run=lambda: priority_accuracy.main([]),
    ),
    Part(title="Replica limited by slots, development", words=f"{_SLOTS}.", run=slot_accuracy.main),
    Part(
        title="Replica limited by slots, set aside", words=f"{_SLOTS}.", run=slot_accuracy.main, arguments=("--aside",)
    ),
    Part(title="Replicas, fresh cells, development", words=f"{_FRESH}.", run=fresh_cells.main),
    Part(title="Replicas, fresh cells, set aside", words=f"{_FRESH}.", run=fresh_cells.main, arguments=("--aside",)),
    Part(title="Replica limited by KV memory, development", words=f"{_MEMORY}.", run=replica_cells.main),
    Part(
        title="Replica limited by KV memory, set aside",
        words=f"{_MEMORY}.",
        run=replica_cells.main,
        arguments=("--aside",),
    ),
    Part(
        title="Replica, older runs",
        words="[theory/replica.md](theory/replica.md). Mean absolute errors; the models were built with these in view.",
        run=replica_accuracy.main,
    ),
    Part(
        title="Replica under bursty arrivals",
        words="[theory/bursty-replica.md](theory/bursty-replica.md). Median absolute errors; simulated after the model"
        " was built, and looked at for the bands below.",
        run=bursty_pools.main,
    ),
    Part(
        title="Bands of pool predictions",
        words="[theory/replica.md](theory/replica.md#bands). First what the tables are made of; then the share of"
        " simulated values between prediction / (1 + band) and prediction x (1 + band), in brackets the share below the"
        " upper end: of the cells that were set aside with a table of the others, of each third of the settings with"
        " tables of the other two, and of all cells, of older runs and of fresh cells set aside with the table of the"
        " package.",
        run=queueing_bands.main,
    ),
)


def main() -> None:
    """Print the page."""
    print(_HEAD)
    for part in _PARTS:
        print(f"\n## {part.title}\n\n{part.words}\n\n```text\n{_printed(part)}\n```")


def _printed(part: Part) -> str:
    """What a benchmark prints, without blanks at the ends of lines."""
    text = io.StringIO()
    with redirect_stdout(text), mock.patch.object(sys, "argv", [sys.argv[0], *part.arguments]):
        part.run()
    return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").splitlines())


if __name__ == "__main__":
    main()
