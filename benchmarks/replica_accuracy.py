"""Accuracy of the replica model against stored step-level simulations (development rows).

Prints the mean absolute error in per cent by group and by load. Run from the checkout:
``.venv/bin/python -m benchmarks.replica_accuracy``; with ``--rows`` every run is printed.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np

from qmodel.queueing import pool
from qmodel.types import FloatArray
from tests.queueing.llm_cases import METRICS, STATS, Run, runs


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", action="store_true", help="print the signed error of every run")
    show_rows = parser.parse_args().rows
    by_group: dict[tuple[str, str], list[FloatArray]] = defaultdict(list)
    noise: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs():
        errors = signed_errors(run)
        if show_rows:
            print(f"{run.config:24s} {run.rho:4.2f} ", " ".join(f"{100 * error:6.1f}" for error in errors))
        if errors is not None:
            for key in (
                (run.group, f"{run.rho:.2f}"),
                (run.group, "all"),
                (run.group, "<= 0.8" if run.rho <= 0.8 else "> 0.8"),
            ):
                by_group[key].append(np.abs(errors))
                noise[key].append(run.ttft_ci)
    head = " ".join(f"{metric} {stat}".rjust(10) for metric in METRICS for stat in STATS)
    print(f"{'group':28s} {'load':>6s} runs {head}  CI of TTFT mean")
    for (group, load), rows in sorted(by_group.items()):
        mean = np.mean(rows, axis=0)
        cells = " ".join(f"{100 * value:10.1f}" for value in mean)
        print(f"{group:28s} {load:>6s} {len(rows):4d} {cells}  {100 * float(np.mean(noise[group, load])):5.1f}")


def signed_errors(run: Run) -> FloatArray:
    """Prediction over simulation less one, for every metric and statistic."""
    found = pool(run.replica, [run.stream], run.replicas, run.router)["a"]
    laws = {"ttft": found.ttft, "tpot": found.tpot, "e2e": found.completion}
    predicted = [
        laws[metric].mean if stat == "mean" else laws[metric].quantile(float(stat[1:]) / 100.0)
        for metric in METRICS
        for stat in STATS
    ]
    measured = [run.measured_s[metric, stat] for metric in METRICS for stat in STATS]
    return np.asarray(predicted) / np.asarray(measured) - 1.0


if __name__ == "__main__":
    main()
