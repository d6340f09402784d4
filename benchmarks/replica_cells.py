"""Replicas limited by KV memory: random settings, what the simulator measures there, and how far predictions are off.

Run from the checkout: ``.venv/bin/python -m benchmarks.replica_cells`` compares with the stored cells (development
ones; ``--aside`` the third that is kept aside, ``--rows`` every cell). ``--simulate`` draws and simulates all cells
anew and writes the table (about 20 CPU minutes); same seeds, same digits.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np

from qmodel.queueing import pool
from qmodel.queueing.replica.work import pooled_work
from qmodel.simulation import draw_requests, simulate_pool
from qmodel.types import FloatArray, Replica, Stream
from tests.queueing.memory_cells import CELLS, STATS, Cell, MemoryRun, memory_runs

SETTINGS = 60
REQUESTS = 60_000  # of one run
RUNS = {"low": 2, "middle": 4, "high": 6}  # seeds of each cell
LOADS = {"low": (0.4, 0.55, 0.7), "middle": (0.75, 0.8, 0.85), "high": (0.88, 0.92, 0.95)}
BATCHES = 5  # of each run
WARM, END = 0.1, 0.97  # the share of the requests before which, and from which, none is measured
GREW = 2.0  # mean wait of the second half over that of the first, from which a cell counts as not stable


def main() -> None:
    """Compare, or simulate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulate", action="store_true", help="simulate all cells and write the table")
    parser.add_argument("--aside", action="store_true", help="the cells kept aside")
    parser.add_argument("--rows", action="store_true", help="print the signed error of every cell")
    arguments = parser.parse_args()
    if arguments.simulate:
        write()
    else:
        compare([run for run in memory_runs() if run.cell.aside == arguments.aside], rows=arguments.rows)


def compare(found: list[MemoryRun], *, rows: bool) -> None:
    """Print the mean absolute error in per cent by group, with the half width of the simulations' intervals."""
    groups: dict[str, list[FloatArray]] = defaultdict(list)
    for run in found:
        errors = signed_errors(run)
        cell = run.cell
        if rows:
            numbers = "     refused" if errors is None else " ".join(f"{100 * error:7.1f}" for error in errors)
            print(f"{cell.setting:4d} {cell.admission:11s} {cell.watermark:4.2f} {cell.rho:4.2f} {numbers}")
        if errors is not None and run.stable:
            width = [run.half_width_s[name] / run.measured_s[name] for name in ("ttft_mean", "ttft_p99")]
            for group in group_names(run):
                groups[group].append(np.abs(np.concatenate([errors, width])))
    print(f"{'group':44s} cells " + " ".join(f"{name:>15s}" for name in (*STATS, "+- ttft_mean", "+- ttft_p99")))
    for group, errors_of in sorted(groups.items()):
        numbers = " ".join(f"{100 * value:15.1f}" for value in np.mean(errors_of, axis=0))
        print(f"{group:44s} {len(errors_of):5d} {numbers}")


def group_names(run: MemoryRun) -> tuple[str, ...]:
    """The groups a cell counts in."""
    cell = run.cell
    if cell.admission == "no_evict":
        rule = "reserving"
    else:
        rule = "watermark" if cell.watermark > 0.0 else "no watermark"
    load = "<= 0.85" if cell.rho <= 0.85 else "> 0.85"
    return (f"{rule}, load {load}", f"{rule}, {cell.router}, load {load}")


def signed_errors(run: MemoryRun) -> FloatArray | None:
    """Prediction over simulation less one for every statistic of class a; None where the pool is refused."""
    found = pool(run.cell.replica, run.cell.streams, run.cell.replicas, run.cell.router)
    if not found.stable:
        return None
    predicted = []
    for name in STATS:
        metric, stat = name.split("_")
        law = found["a"].metric("ttft" if metric == "ttft" else "tpot" if metric == "tpot" else "completion")
        predicted.append(law.mean if stat == "mean" else law.quantile(float(stat[1:]) / 100.0))
    measured = np.array([run.measured_s[name] for name in STATS])
    errors: FloatArray = np.array(predicted) / measured - 1.0
    return errors


def write() -> None:
    """Simulate every cell and write the table."""
    with CELLS.open("w", newline="") as lines:
        table = None
        for cell in cells():
            row = {name: _short(value) for name, value in {**asdict(cell), **simulated(cell)}.items()}
            if table is None:
                table = csv.DictWriter(lines, fieldnames=list(row), lineterminator="\n")
                table.writeheader()
            table.writerow(row)
            lines.flush()


def cells() -> Iterator[Cell]:
    """All cells: three loads of every setting."""
    for setting in range(SETTINGS):
        rng = np.random.default_rng([20261201, setting])
        base = drawn_setting(setting, rng)
        for loads in LOADS.values():
            rho = float(rng.choice(loads))
            yield _loaded(base, rho)


def drawn_setting(setting: int, rng: np.random.Generator) -> Cell:
    """A random setting, at load 1; drawn again where prefill takes over half of the time."""
    while True:
        fits = float(rng.choice([8, 16, 32, 64, 120, 200]))
        texts = [_drawn_class(rng) for _ in range(2 if rng.random() < 0.2 else 1)]
        share = 1.0 if len(texts) == 1 else round(float(rng.uniform(0.3, 0.7)), 2)
        shares = [share, round(1.0 - share, 2)]
        slope, fixed = (0.5, 200.0) if rng.random() < 0.1 else (1.0, 0.0)
        admission = "no_evict" if rng.random() < 0.3 else "full_prompt"
        replicas, router = (
            (1, "random")
            if rng.random() < 0.6
            else (int(rng.choice([4, 8])), str(rng.choice(["random", "jsq", "jsq"])))
        )
        cell = Cell(
            setting=setting,
            rho=1.0,
            rate_rps=1.0,
            replicas=replicas,
            router="jsq" if router == "jsq" else "random",
            admission=admission,
            watermark=float(rng.choice([0.0, 0.02, 0.05, 0.1], p=[0.1, 0.3, 0.4, 0.2])),
            kv_tokens=1e12,
            kv_slope=slope,
            kv_fixed_tokens=fixed,
            max_num_seqs=1024,
            max_batched_tokens=int(rng.choice([4096, 8192])),
            alpha_ms=round(float(rng.uniform(6, 20)), 2),
            beta_ms=round(float(rng.uniform(0.02, 0.1)), 3),
            gamma_ms=round(float(rng.uniform(1e-5, 6e-5)), 7),
            delta_ms=round(float(rng.uniform(0.01, 0.06)), 3),
            classes=" ".join(f"{part}:{text}" for part, text in zip(shares, texts, strict=False)),
        )
        held = pooled_work(cell.replica, cell.streams).held
        kv_tokens = round(fits * held)
        capped = " ".join(_capped(text, round(0.45 * kv_tokens / slope)) for text in cell.classes.split(" "))
        cell = _changed(cell, kv_tokens=float(kv_tokens), classes=capped)
        if rng.random() < 0.2:
            cell = _changed(
                cell, max_num_seqs=max(round(_fits(cell.replica, cell.streams) * float(rng.uniform(0.8, 1.2))), 2)
            )
        prefill_s = cell.delta_ms / 1e3 * pooled_work(cell.replica, cell.streams).lengths.prompt.mean
        if _nominal_rps(cell) * prefill_s < 0.5:
            return cell


def simulated(cell: Cell) -> dict[str, float]:
    """Statistics of class a over all seeds, with half widths of 95 % intervals from batches."""
    seeds = RUNS[next(name for name, loads in LOADS.items() if cell.rho in loads)]
    parts: list[dict[str, FloatArray]] = []
    waits: list[list[float]] = []
    evicted = recomputed = 0.0
    for seed in range(seeds):
        rng = np.random.default_rng([20261202, cell.setting, round(100 * cell.rho), seed])
        table = draw_requests(cell.streams, rng=rng, count=REQUESTS)
        first, last = (float(table.arrival_s[int(share * REQUESTS)]) for share in (WARM, END))
        log = simulate_pool(table, cell.replica, replicas=cell.replicas, router=cell.router, rng=rng).log
        counted = (table.arrival_s >= first) & (table.arrival_s < last) & log.done
        waits.append([float(half.mean()) for half in np.array_split(log.wait_s[counted], 2)])
        mine = np.flatnonzero(counted & (table.cls == 0))
        times = {"ttft": log.ttft_s, "tpot": log.tpot_s, "completion": log.completion_after_s}
        parts += [{name: item[batch] for name, item in times.items()} for batch in np.array_split(mine, BATCHES)]
        evicted += float(log.preemptions[counted].mean()) / seeds
        recomputed += float(log.recomputed_tokens[counted].mean()) / seeds
    early, late = np.mean(waits, axis=0)
    row: dict[str, float] = {"stable": int(late < GREW * early or late < 0.1)}
    for name in STATS:
        metric, stat = name.split("_")
        row[f"{name}_s"] = _statistic(np.concatenate([part[metric] for part in parts]), stat)
        batches = np.array([_statistic(part[metric], stat) for part in parts])
        row[f"{name}_ci95_s"] = 2.0 * float(batches.std(ddof=1)) / batches.size**0.5
    return {**row, "preemptions": evicted, "recomputed_tokens": recomputed}


def _statistic(values: FloatArray, stat: str) -> float:
    return float(np.nanmean(values) if stat == "mean" else np.nanquantile(values, float(stat[1:]) / 100.0))


def _drawn_class(rng: np.random.Generator) -> str:
    family, cv = (
        ("lognormal", 0.5),
        ("lognormal", 1.0),
        ("lognormal", 1.5),
        ("mixture", 0.6),
        ("gamma", 0.4),
        ("constant", 0.0),
    )[int(rng.choice(6, p=[0.15, 0.3, 0.1, 0.2, 0.15, 0.1]))]
    output = int(rng.choice([200, 600, 2000, 6000], p=[0.3, 0.3, 0.25, 0.15]))
    prompt = int(rng.choice([50, 300, 1000, 4000], p=[0.2, 0.3, 0.3, 0.2]))
    prompt_cv = float(rng.choice([0.0, 0.5, 1.0]))
    law = "constant" if prompt_cv == 0.0 else "lognormal"
    return f"{law}/{prompt}/{prompt_cv}/{min(10 * prompt, 20_000)}:{family}/{output}/{cv}/{min(20 * output, 20_000)}"


def _capped(text: str, largest: int) -> str:
    """The class with both lengths capped at ``largest`` tokens, so that every request fits into an empty replica."""
    share, *laws = text.split(":")
    fields = [law.split("/") for law in laws]
    return ":".join([share, *("/".join([*law[:3], str(min(int(law[3]), largest))]) for law in fields)])


def _fits(replica: Replica, streams: list[Stream]) -> float:
    assert replica.kv_tokens is not None
    return (1.0 - replica.watermark) * replica.kv_tokens / pooled_work(replica, streams).held


def _nominal_rps(cell: Cell) -> float:
    """Rate of one replica whose memory is full and that recomputes nothing, or whose slots are."""
    work = pooled_work(cell.replica, cell.streams)
    full = min(_fits(cell.replica, cell.streams), cell.max_num_seqs)
    prefill_s = cell.replica.step.delta_s * work.lengths.prompt.mean
    return full / (work.lengths.output.mean * float(cell.replica.step.tau_s(full, work.context)) + full * prefill_s)


def _loaded(cell: Cell, rho: float) -> Cell:
    return _changed(cell, rho=rho, rate_rps=float(f"{rho * cell.replicas * _nominal_rps(cell):.6g}"))


def _changed(cell: Cell, **fields: object) -> Cell:
    return Cell(**{**asdict(cell), **fields})


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
