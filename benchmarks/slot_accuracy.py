"""Accuracy of replicas limited by slots and step budget against simulated cells.

Prints the mean absolute and the mean signed error in per cent by group and load, each row the classes of several pools.
Run from the checkout: ``.venv/bin/python -m benchmarks.slot_accuracy``; ``--aside`` shows the third that was kept
aside, ``--rows`` every class.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np

from qmodel.types import FloatArray
from tests.queueing.slot_cells import COLUMNS, cells

BANDS = (("<= 0.5", 0.0, 0.55), ("0.6 to 0.75", 0.55, 0.78), ("0.8 to 0.85", 0.78, 0.87), ("> 0.85", 0.87, 1.0))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aside", action="store_true", help="the cells kept aside")
    parser.add_argument("--rows", action="store_true", help="print the signed error of every class")
    arguments = parser.parse_args()
    found: dict[tuple[str, str], list[FloatArray]] = defaultdict(list)
    for cell in cells():
        if cell.aside != arguments.aside:
            continue
        band = next(name for name, low, high in BANDS if low <= cell.load < high)
        for stream, errors in zip(cell.streams, cell.signed_errors(), strict=True):
            found[cell.group, band].append(errors)
            if arguments.rows:
                print(f"{cell.config} {cell.load:.2f} {cell.replicas:3d} {stream.name:10s}", text(errors))
    print(f"{'group':24s} {'load':12s} rows  " + " ".join(f"{column:>10.10s}" for column in COLUMNS))
    for group in sorted({key[0] for key in found}):
        for band, _, _ in BANDS:
            rows = np.array(found.get((group, band), []))
            if rows.size:
                print(f"{group:24s} {band:12s} {len(rows):4d}  {text(np.nanmean(np.abs(rows), axis=0))}")
                print(f"{'':24s} {'  signed':12s}       {text(np.nanmean(rows, axis=0))}")


def text(errors: FloatArray) -> str:
    """Errors in per cent, in columns."""
    return " ".join(f"{100.0 * error:10.1f}" for error in errors)


if __name__ == "__main__":
    main()
