"""Print how far the formulas for several classes are from simulated queues and simulated engines.

Run from the checkout: ``python benchmarks/priority_accuracy.py``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qmodel.queueing import Moments, mgc, pool, priority, reserved, shortest_first
from qmodel.types import Lengths, Replica, StepLaw, Stream
from qmodel.workload import lognormal_law
from tests.queueing.priority_cells import atoms, class_cells, moments, size_cells
from tests.queueing.priority_pools import pool_errors


def class_table(discipline: str) -> pd.DataFrame:
    """|relative error| in per cent by kind of queue: mean / ninth decile / largest."""
    cells = class_cells(discipline)
    kind = np.where(cells["servers"] == 1, "one server", np.where(cells["alike"], "equal sizes", "sizes differ"))
    baseline = _scaled_errors(cells) if discipline == "non_preemptive" else None
    rows = []
    for (group, which), part in cells.groupby([kind, "set"]):
        row: dict[str, object] = {
            "kind": group,
            "set": which,
            "classes": len(part),
            "mean wait": _spread(part["error"]),
        }
        row["P(wait)"] = _spread(part["p_wait_error"])
        row["completion"] = _spread(part["completion_error"])
        for level in ("p90", "p95", "p99"):
            row[level] = _spread(part[f"{level}_error"])
        row["in band"] = (
            f"{100.0 * (part['error'].abs() <= part['band'] + part['ci95_s'] / part['mean_wait_s']).mean():.0f}"
        )
        if baseline is not None:
            row["M/G/c times M/G/1 ratio"] = _spread(baseline[part.index])
        rows.append(row)
    return pd.DataFrame(rows)


def _scaled_errors(cells: pd.DataFrame) -> pd.Series:
    """Bondi and Buzen's scaling: the wait of M/G/c times what priorities do at one server."""
    found = pd.Series(np.nan, index=cells.index)
    for name in cells["cell"].unique():
        rows = _whole_cell(name)
        services = [moments(row.law, row.mean_s, row.scv) for row in rows.itertuples()]
        rates, servers = rows["rate_rps"].to_numpy(), int(rows["servers"].iloc[0])
        one = priority((rates / servers).tolist(), services, 1).mean_wait_s
        means = np.array([float(np.asarray(item.mean_s)) for item in services])
        powers = [
            means,
            means**2 * (1.0 + rows["scv"].to_numpy()),
            np.array([float(np.asarray(item.third)) for item in services]),
        ]
        first, second, third = (float(rates @ power / rates.sum()) for power in powers)
        pooled = Moments(mean_s=first, scv=max(second / first**2 - 1.0, 0.0), third=third)
        ratio = float(mgc(rates.sum(), pooled, servers).mean_wait_s) / float(
            mgc(rates.sum() / servers, pooled, 1).mean_wait_s
        )
        mine = cells.index[cells["cell"] == name]
        predicted = dict(zip(rows["class"], one * ratio, strict=True))
        found[mine] = [predicted[cells.at[row, "class"]] / cells.at[row, "mean_wait_s"] - 1.0 for row in mine]
    return found


def _whole_cell(name: str) -> pd.DataFrame:
    table = pd.read_csv(Path(__file__).parents[1] / "tests" / "data" / "queueing" / "priority_waits.csv")
    return table[table["cell"] == name]


def size_table() -> pd.DataFrame:
    """Shortest job first, more than one server: all jobs, and by size."""
    cells = size_cells()
    cells = cells[cells["servers"] > 1]
    rows = []
    for which, part in cells.groupby("set"):
        once = part.groupby("cell").first()
        row: dict[str, object] = {"set": which, "queues": len(once), "all jobs": _spread(once["overall_error"])}
        row["M/G/c times M/G/1 ratio"] = _spread(part.groupby("cell").apply(_size_ratio_error, include_groups=False))
        for (low, high), band in part.groupby(["from_share", "to_share"]):
            row[f"{low:g} to {high:g}"] = _spread(band["error"])
        rows.append(row)
    return pd.DataFrame(rows)


def _size_ratio_error(cell: pd.DataFrame) -> float:
    """Error for all jobs of the wait of M/G/c times what shortest first does at one server."""
    first = cell.iloc[0]
    law, servers, rate = atoms(str(first["law"]), float(first["scv"])), int(first["servers"]), float(first["rate_rps"])
    one = float(shortest_first([rate / servers], [law], 1).mean_wait_s[0]) / float(
        mgc(rate / servers, law, 1).mean_wait_s
    )
    right = float(shortest_first([rate], [law], servers).mean_wait_s[0]) / (1.0 + float(first["overall_error"]))
    return one * float(mgc(rate, law, servers).mean_wait_s) / right - 1.0


def pool_table() -> pd.DataFrame:
    """Priorities inside the batch: |relative error| in per cent, mean over classes."""
    errors = pool_errors()
    errors["loads"] = np.where(errors["load"] <= 0.85, "to 0.85", "0.9 to 0.95")
    columns = [f"{metric}_{stat}" for metric in ("ttft", "tpot", "completion") for stat in ("mean", "p95", "p99")]
    rows = []
    for (limit, which, loads), part in errors.groupby(["limit", "set", "loads"]):
        row: dict[str, object] = {"limit": limit, "set": which, "load": loads, "classes": len(part)}
        row |= {column: round(100.0 * part[column].abs().mean(), 1) for column in columns}
        row["interval"] = round(100.0 * part["interval"].mean(), 1)
        row["ttft_mean without priorities"] = round(100.0 * part["plain_ttft_mean"].abs().mean(), 1)
        rows.append(row)
    return pd.DataFrame(rows)


def speed_table() -> pd.DataFrame:
    """Wall-clock of single calls, ms, best of five."""
    service = Moments(mean_s=1.0, scv=4.0)
    law = atoms("lognormal", 1.5)
    replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, gamma_s=8e-8, delta_s=1e-4), max_num_seqs=64)
    lengths = Lengths.independent(lognormal_law(800, 1.0), lognormal_law(200, 0.9))
    streams = [Stream(name=name, rate_rps=2.5, lengths=lengths, priority=level) for name, level in (("a", 1), ("b", 0))]
    plain = [Stream(name=item.name, rate_rps=item.rate_rps, lengths=lengths) for item in streams]
    calls: dict[str, Callable[[], object]] = {
        "mgc, 1,000 loads": lambda: mgc(np.linspace(1.0, 15.0, 1_000), service, 16),
        "priority, 3 classes": lambda: priority([4.0, 4.0, 4.0], [service] * 3, 16),
        "priority, 3 classes, 1,000 loads": lambda: priority([np.linspace(0.3, 5.0, 1_000)] * 3, [service] * 3, 16),
        "shortest_first": lambda: shortest_first([13.0], [law], 16),
        "reserved, 3 classes, 16 servers": lambda: reserved([4.0] * 3, [service] * 3, [3, 3, 3], 7),
        "pool, two classes": lambda: pool(replica, plain, 1),
        "pool, two priorities": lambda: pool(replica, streams, 1),
    }
    return pd.DataFrame({"call": list(calls), "ms": [_best_ms(call) for call in calls.values()]})


def _best_ms(call: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return round(1e3 * min(times), 2)


def _spread(errors: pd.Series) -> str:
    values = 100.0 * errors.dropna().abs()
    if not len(values):
        return "-"
    return f"{values.mean():.1f} / {np.percentile(values, 90):.1f} / {values.max():.0f}"


def main(arguments: Sequence[str]) -> None:
    """Print all tables, or with ``--speed`` the times alone."""
    tables: dict[str, Callable[[], pd.DataFrame]] = {
        "non-preemptive": lambda: class_table("non_preemptive"),
        "preemptive-resume": lambda: class_table("preemptive_resume"),
        "reserved": lambda: class_table("reserved"),
        "shortest first": size_table,
        "inside the batch": pool_table,
        "speed": speed_table,
    }
    for title, table in tables.items():
        if "--speed" not in arguments or title == "speed":
            print(f"\n{title}\n{table().to_string(index=False)}")


if __name__ == "__main__":
    main(sys.argv[1:])
