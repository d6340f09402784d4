"""Pools under bursty arrivals: random settings, what the simulator measures there, and how far predictions are off.

Run from the checkout: ``python -m benchmarks.bursty_pools`` compares with the stored cells (``--rows`` every cell);
``--simulate`` draws and simulates all cells anew and writes the table (about 10 CPU minutes); same seeds, same digits.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np

from qmodel.queueing import pool, utilisation
from qmodel.queueing.replica.work import pooled_work
from qmodel.simulation import draw_requests, simulate_pool
from qmodel.types import FloatArray
from tests.queueing.bursty_pools import CELLS, STATS, BurstyCell, BurstyRun, bursty_runs

SETTINGS = 50
LOADS = (0.45, 0.7, 0.82, 0.92)
REQUESTS = 100_000  # of one run, twice as many from the third load on
WARM, END = 0.1, 0.97  # the share of the requests before which, and from which, none is measured
BATCHES = 15
UNSURE = 0.25  # half width over mean TTFT from which a cell says nothing
KINDS = ("1000/1.0/8000:250/1.0/2000", "6000/0.8/20000:200/0.8/1500", "400/1.0/4000:3000/0.8/16000")


def main() -> None:
    """Compare, or simulate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulate", action="store_true", help="simulate all cells and write the table")
    parser.add_argument("--rows", action="store_true", help="print the signed error of every cell")
    arguments = parser.parse_args()
    if arguments.simulate:
        write()
    else:
        compare(bursty_runs(), rows=arguments.rows)


def compare(found: tuple[BurstyRun, ...], *, rows: bool) -> None:
    """Print the median absolute error in per cent by limit, process and load."""
    groups: dict[str, list[FloatArray]] = defaultdict(list)
    for run in found:
        errors, cell = signed_errors(run), run.cell
        if errors is None:
            continue
        if rows:
            print(f"{cell.setting:3d} {cell.rho:4.2f} {cell.process:24s}", text(errors))
        limit, process = "memory" if cell.kv_tokens else "slots", cell.process.split("/")[0]
        for group in (f"{limit}, load {cell.rho:.2f}", f"{process}, load {cell.rho:.2f}"):
            groups[group].append(np.abs(errors))
    print(f"{'group':24s} cells " + " ".join(f"{name:>15s}" for name in STATS))
    for group, errors_of in sorted(groups.items()):
        print(f"{group:24s} {len(errors_of):5d} {text(np.median(errors_of, axis=0))}")


def text(errors: FloatArray) -> str:
    """Errors in per cent, in columns."""
    return " ".join(f"{100.0 * error:15.1f}" for error in errors)


def signed_errors(run: BurstyRun) -> FloatArray | None:
    """Prediction over simulation less one for every statistic; None where the pool is refused."""
    found = pool(run.cell.replica, [run.cell.stream], run.cell.replicas, run.cell.router)
    if not found.stable:
        return None
    values = []
    for name in STATS:
        metric, stat = name.split("_")
        law = found["a"].metric("ttft" if metric == "ttft" else "tpot" if metric == "tpot" else "completion")
        values.append(law.mean if stat == "mean" else law.quantile(float(stat[1:]) / 100.0))
    return np.asarray(np.array(values) / np.array([run.measured_s[name] for name in STATS]) - 1.0)


def write() -> None:
    """Simulate every cell and write those that tell their mean TTFT."""
    with CELLS.open("w", newline="") as lines:
        table = None
        for cell in cells():
            measured = simulated(cell)
            if measured["ttft_mean_ci95_s"] > UNSURE * measured["ttft_mean_s"]:
                continue
            row = {name: _short(value) for name, value in {**asdict(cell), **measured}.items()}
            if table is None:
                table = csv.DictWriter(lines, fieldnames=list(row), lineterminator="\n")
                table.writeheader()
            table.writerow(row)
            lines.flush()


def cells() -> Iterator[BurstyCell]:
    """All cells: every load of every setting."""
    for setting in range(SETTINGS):
        base = drawn_setting(setting)
        at_one = float(utilisation(base.replica, [replace(base.stream, burst=None)], base.replicas, 1.0)[0])
        residence_s = pool(base.replica, [replace(base.stream, burst=None)], base.replicas, base.router)["a"]
        for rho in LOADS:
            cell = replace(base, rho=rho, rate_rps=float(f"{rho * base.rate_rps / at_one:.6g}"))
            if cell.process.startswith("rates"):
                kind, peak, share, memory = cell.process.split("/")
                memory_s = float(memory) * residence_s.completion.mean
                cell = replace(cell, process=f"{kind}/{peak}/{share}/{memory_s:.4g}")
            yield cell


def drawn_setting(setting: int) -> BurstyCell:
    """A random setting at half of its capacity; memories of bursts are in completion times there."""
    rng = np.random.default_rng([20261203, setting])
    prompt, output = str(rng.choice(KINDS, p=[0.5, 0.25, 0.25])).split(":")
    gaps, batches = rng.choice([2.0, 4.0, 8.0]), rng.choice([2.0, 4.0])
    peak, share = rng.choice([1.5, 2.0, 3.0]), rng.choice([0.1, 0.25])
    memory = np.exp(rng.uniform(np.log(0.1), np.log(10.0)))
    process = (
        f"gaps/{gaps}",
        f"batches/{batches}",
        f"rates/{peak}/{share}/{memory:.3g}",
    )[int(rng.choice(3, p=[0.25, 0.15, 0.6]))]
    cell = BurstyCell(
        setting=setting,
        rho=0.5,
        rate_rps=1.0,
        replicas=int(rng.choice([1, 1, 4])),
        max_num_seqs=int(rng.choice([32, 64, 128, 256])),
        max_batched_tokens=int(rng.choice([4096, 8192])),
        kv_tokens=0.0,
        watermark=0.05,
        alpha_ms=round(float(rng.uniform(6, 20)), 2),
        beta_ms=round(float(rng.uniform(0.02, 0.1)), 3),
        gamma_ms=round(float(rng.uniform(1e-5, 6e-5)), 7),
        delta_ms=round(float(rng.uniform(0.01, 0.06)), 3),
        prompt=prompt,
        output=output,
        process=process,
    )
    if rng.random() < 0.4:
        held = pooled_work(cell.replica, [replace(cell.stream, burst=None)]).held
        fits = float(rng.choice([32, 64, 120]))
        cell = replace(cell, max_num_seqs=1024, kv_tokens=float(round(fits * held)))
    at_one = float(utilisation(cell.replica, [replace(cell.stream, burst=None)], cell.replicas, 1.0)[0])
    return replace(cell, rate_rps=float(f"{0.5 / at_one:.6g}"))


def simulated(cell: BurstyCell) -> dict[str, float]:
    """Statistics of one run, and the half width of the 95 % interval of its mean TTFT."""
    count = REQUESTS * (2 if cell.rho >= LOADS[2] else 1)
    rng = np.random.default_rng([20261204, cell.setting, round(100 * cell.rho)])
    table = draw_requests([cell.stream], rng=rng, count=count)
    table = replace(table, arrival_s=cell.arrivals.draw(rng, count, cell.rate_rps))
    log = simulate_pool(table, cell.replica, replicas=cell.replicas, router=cell.router, rng=rng).log
    first, last = (float(table.arrival_s[int(share * count)]) for share in (WARM, END))
    counted = np.flatnonzero((table.arrival_s >= first) & (table.arrival_s < last) & log.done)
    times = {"ttft": log.ttft_s, "tpot": log.tpot_s, "completion": log.completion_after_s}
    means = np.array([times["ttft"][batch].mean() for batch in np.array_split(counted, BATCHES)])
    row = {}
    for name in STATS:
        metric, stat = name.split("_")
        values = times[metric][counted]
        row[f"{name}_s"] = float(
            np.nanmean(values) if stat == "mean" else np.nanquantile(values, float(stat[1:]) / 100)
        )
    return {**row, "ttft_mean_ci95_s": 2.0 * float(means.std(ddof=1)) / BATCHES**0.5}


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
