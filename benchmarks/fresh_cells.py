"""Replicas of every kind at length laws of their own: what the simulator measures, and how far predictions are off.

Run from the checkout: ``.venv/bin/python -m benchmarks.fresh_cells`` compares with the stored cells (development ones;
``--aside`` the third that was kept aside, ``--rows`` every class). ``--simulate`` draws and simulates all cells anew
and writes the table (about ten CPU minutes); same seeds, same digits.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict

import numpy as np

from benchmarks.replica_cells import drawn_setting
from qmodel.queueing.replica.chain import top_rate_rps
from qmodel.queueing.replica.kv_limited import memory_limit
from qmodel.queueing.replica.work import pooled_work
from qmodel.simulation import draw_requests, simulate_pool
from qmodel.types import FloatArray
from tests.queueing.fresh_cells import FRESH, NO_LIMIT, STATS, FreshCell, FreshRun, fresh_runs

SLOT_SETTINGS, MEMORY_SETTINGS = 75, 27
LOADS = (((0.5, 0.65, 0.75), 0.5), ((0.8, 0.85), 1.0), ((0.9, 0.92), 0.4))  # and how often a setting has one of them
REQUESTS = 50_000  # of one run
MOST_RUNS = 6
ENOUGH = 0.02  # half width of the mean time to the first token, relative, at which no further run is made
BATCHES = 5  # of each run
WARM, END = 0.1, 0.97  # the share of the requests before which, and from which, none is measured
GREW = 2.0  # mean wait of the second half over that of the first, from which a cell counts as not stable
BANDS = (("<= 0.75", 0.0, 0.77), ("0.8, 0.85", 0.77, 0.87), ("0.9, 0.92", 0.87, 1.0))
# prompt means, output means and share of the draws of each kind of request
KINDS = {
    "chat": ((150.0, 1500.0), (80.0, 600.0), 0.4),
    "documents": ((2000.0, 6000.0), (80.0, 400.0), 0.25),
    "code": ((400.0, 3000.0), (8.0, 40.0), 0.15),
    "thinking": ((200.0, 1500.0), (1500.0, 8000.0), 0.12),
    "classify": ((200.0, 2000.0), (1.0, 5.0), 0.08),
}


def main() -> None:
    """Compare, or simulate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulate", action="store_true", help="simulate all cells and write the table")
    parser.add_argument("--aside", action="store_true", help="the cells kept aside")
    parser.add_argument("--rows", action="store_true", help="print the signed error of every class")
    arguments = parser.parse_args()
    if arguments.simulate:
        write()
    else:
        compare([run for run in fresh_runs() if run.cell.aside == arguments.aside], rows=arguments.rows)


def compare(found: list[FreshRun], *, rows: bool) -> None:
    """Print mean absolute and mean signed errors in per cent by group and load; rows are the classes of the pools."""
    groups: dict[tuple[str, str], list[FloatArray]] = defaultdict(list)
    widths: dict[tuple[str, str], list[float]] = defaultdict(list)
    refused = unstable = 0
    for run in found:
        errors = run.signed_errors()
        refused, unstable = refused + (errors is None), unstable + (not run.stable)
        if errors is None or not run.stable:
            continue
        band = next(name for name, low, high in BANDS if low <= run.cell.rho < high)
        for name, numbers in errors.items():
            groups[run.cell.group, band].append(numbers)
            widths[run.cell.group, band].append(float(run.half_width_s[name][0] / run.measured_s[name][0]))
            if rows:
                cell = run.cell
                print(f"{cell.setting:4d} {cell.rho:4.2f} {cell.replicas:3d} {cell.group:24s} {name} {text(numbers)}")
    print(f"{'group':24s} {'load':12s} rows  " + " ".join(f"{name:>10.10s}" for name in STATS) + "   +- ttft")
    for group in sorted({key[0] for key in groups}):
        for band, _, _ in BANDS:
            numbers = np.array(groups.get((group, band), []))
            if numbers.size:
                width = 100.0 * float(np.mean(widths[group, band]))
                size = text(np.nanmean(np.abs(numbers), axis=0))
                print(f"{group:24s} {band:12s} {len(numbers):4d}  {size} {width:9.1f}")
                print(f"{'':24s} {'  signed':12s}       {text(np.nanmean(numbers, axis=0))}")
    print(f"{refused} cells refused, {unstable} not stable in simulation")


def text(errors: FloatArray) -> str:
    """Errors in per cent, in columns."""
    return " ".join(f"{100.0 * error:10.1f}" for error in errors)


def write() -> None:
    """Simulate every cell and write the table."""
    lines = io.StringIO()
    table = None
    with ProcessPoolExecutor(2) as workers:
        for rows in workers.map(measured_rows, list(cells()), chunksize=1):
            for row in rows:
                if table is None:
                    table = csv.DictWriter(lines, fieldnames=list(row), lineterminator="\n")
                    table.writeheader()
                table.writerow(row)
    FRESH.write_bytes(gzip.compress(lines.getvalue().encode(), mtime=0))


def cells() -> Iterator[FreshCell]:
    """All cells: one to three loads of every setting."""
    for setting in range(SLOT_SETTINGS + MEMORY_SETTINGS):
        rng = np.random.default_rng([20261210, setting])
        base = _slot_setting(setting, rng) if setting < SLOT_SETTINGS else _memory_setting(setting, rng)
        work = pooled_work(base.replica, base.streams)
        top_rps, _ = top_rate_rps(base.replica, work, memory_limit(base.replica, work))
        for loads, share in LOADS:
            rho = float(rng.choice(loads))
            if rng.random() < share:
                yield _changed(base, rho=rho, rate_rps=float(f"{rho * base.replicas * top_rps:.6g}"))


def _slot_setting(setting: int, rng: np.random.Generator) -> FreshCell:
    """A replica without a memory limit; drawn again where prompts need over 0.85 of the time at capacity."""
    kind = ("one", "mix", "jsq")[setting % 3]
    while True:
        count = 1 if kind == "one" else int(rng.choice([2, 3])) if kind == "mix" else int(rng.choice([1, 1, 2]))
        shares = np.round(rng.dirichlet(np.full(count, 3.0)), 2) if count > 1 else np.ones(1)
        if shares.min() < 0.1:
            continue
        names = list(KINDS)
        weights = np.array([KINDS[name][2] for name in names])
        chosen = rng.choice(len(names), size=count, replace=False, p=weights)
        cell = FreshCell(
            setting=setting,
            rho=1.0,
            rate_rps=1.0,
            replicas=int(rng.choice([2, 4, 8, 16, 32])) if kind == "jsq" else 1,
            router="jsq" if kind == "jsq" else "random",
            admission="full_prompt",
            watermark=0.0,
            kv_tokens=NO_LIMIT,
            kv_slope=1.0,
            kv_fixed_tokens=0.0,
            max_num_seqs=int(rng.choice([16, 32, 64, 128, 256, 512])),
            max_batched_tokens=int(rng.choice([1024, 2048, 4096, 8192, 16384])),
            alpha_ms=round(float(rng.uniform(6, 20)), 2),
            beta_ms=round(float(rng.uniform(0.02, 0.2)), 3),
            gamma_ms=round(float(rng.uniform(1e-5, 6e-5)), 7),
            delta_ms=round(float(rng.uniform(0.01, 0.08)), 3),
            classes=" ".join(
                f"{share:g}:{_drawn_class(names[index], rng)}" for share, index in zip(shares, chosen, strict=True)
            ),
        )
        if cell.max_batched_tokens < 2 * cell.max_num_seqs:
            continue
        work = pooled_work(cell.replica, cell.streams)
        top_rps, _ = top_rate_rps(cell.replica, work, None)
        if top_rps * cell.delta_ms / 1e3 * work.lengths.prompt.mean < 0.85:
            return cell


def _memory_setting(setting: int, rng: np.random.Generator) -> FreshCell:
    """A replica limited by memory, with a watermark or reserving."""
    while True:
        cell = FreshCell(**asdict(drawn_setting(setting, rng)))
        if cell.watermark > 0.0:
            return cell


def _drawn_class(kind: str, rng: np.random.Generator) -> str:
    (low, high), (least, most), _ = KINDS[kind]
    return f"{_law(_between(low, high, rng), rng)}:{_law(_between(least, most, rng), rng)}"


def _law(mean: float, rng: np.random.Generator) -> str:
    family, cvs = (
        ("gamma", (0.3, 0.6, 0.9)),
        ("mixture", (0.3, 0.6)),
        ("lognormal", (0.6, 1.2)),
        ("constant", (0.0,)),
    )[int(rng.choice(4, p=[0.4, 0.2, 0.25, 0.15]))]
    if mean < 8.0 and family == "mixture":
        family, cvs = "gamma", (0.6,)
    return f"{family}/{mean:.4g}/{float(rng.choice(cvs)):g}/{min(int(12 * mean) + 2, 24_000)}"


def _between(low: float, high: float, rng: np.random.Generator) -> float:
    return float(round(np.exp(rng.uniform(np.log(low), np.log(high)))))


def measured_rows(cell: FreshCell) -> list[dict[str, object]]:
    """One row for every class: the cell, statistics over all runs, half widths of 95 % intervals from batches."""
    streams = cell.streams
    parts: dict[str, list[dict[str, FloatArray]]] = {stream.name: [] for stream in streams}
    waits: list[list[float]] = []
    rows: list[dict[str, object]] = []
    for seed in range(MOST_RUNS):
        rng = np.random.default_rng([20261211, cell.setting, round(100 * cell.rho), seed])
        table = draw_requests(streams, rng=rng, count=REQUESTS)
        first, last = (float(table.arrival_s[int(share * REQUESTS)]) for share in (WARM, END))
        log = simulate_pool(table, cell.replica, replicas=cell.replicas, router=cell.router, rng=rng).log
        counted = (table.arrival_s >= first) & (table.arrival_s < last) & log.done
        waits.append([float(half.mean()) for half in np.array_split(log.wait_s[counted], 2)])
        times = {"ttft": log.ttft_s, "tpot": log.tpot_s, "completion": log.completion_after_s}
        for place, stream in enumerate(streams):
            mine = np.flatnonzero(counted & (table.cls == place))
            parts[stream.name] += [
                {name: item[batch] for name, item in times.items()} for batch in np.array_split(mine, BATCHES)
            ]
        early, late = np.mean(waits, axis=0)
        stable = int(late < GREW * early or late < 0.1)
        rows = []
        widths = []
        for stream in streams:
            row: dict[str, object] = {**asdict(cell), "class": stream.name, "runs": seed + 1, "stable": stable}
            for name in STATS:
                metric, stat = name.split("_")
                row[f"{name}_s"] = _statistic(np.concatenate([part[metric] for part in parts[stream.name]]), stat)
                batches = np.array([_statistic(part[metric], stat) for part in parts[stream.name]])
                row[f"{name}_ci95_s"] = 2.0 * float(batches.std(ddof=1)) / batches.size**0.5
            rows.append({name: _short(value) for name, value in row.items()})
            widths.append(float(row["ttft_mean_ci95_s"]) / float(row["ttft_mean_s"]))  # type: ignore[arg-type]
        if seed and max(widths) < ENOUGH:
            break
    return rows


def _statistic(values: FloatArray, stat: str) -> float:
    known = values[np.isfinite(values)]
    if not known.size:
        return 0.0
    return float(known.mean() if stat == "mean" else np.quantile(known, float(stat[1:]) / 100.0))


def _changed(cell: FreshCell, **fields: object) -> FreshCell:
    return FreshCell(**{**asdict(cell), **fields})  # type: ignore[arg-type]


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
