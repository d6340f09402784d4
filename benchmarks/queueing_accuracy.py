"""Print how far the M/G/c formulas are from the reference queues, and what they cost.

Run from the checkout: ``python benchmarks/queueing_accuracy.py``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qmodel.queueing import Moments, StepLaw, closed_batch, closed_loop, erlang_c, mgc
from qmodel.types import Law, Lengths, Replica
from tests.queueing.reference_queues import reference_cells, relative_errors


def accuracy_table() -> pd.DataFrame:
    """|relative error| in per cent by shape of service, queues with more than one server; mean / largest."""
    cells = reference_cells()
    many = cells[cells["servers"] > 1].reset_index(drop=True)
    errors = relative_errors(many)
    lee_longton = _classical_errors(many)
    rows = []
    for (shape, scv), group in errors.groupby(["shape", "scv"], sort=True):
        row: dict[str, object] = {"service": shape, "scv": scv, "nu": group["nu"].iloc[0], "queues": len(group)}
        for column in ("p_wait", "mean_wait", "wait_p90", "wait_p95", "wait_p99"):
            row[column] = _mean_and_largest(group[column])
        row["classical mean_wait"] = _mean_and_largest(lee_longton[group.index])
        rows.append(row)
    return pd.DataFrame(rows).round(2)


def _classical_errors(cells: pd.DataFrame) -> pd.Series:
    """Lee-Longton (Allen-Cunneen with Poisson arrivals): the M/M/c wait times (1 + scv)/2."""
    offered = (cells["rho"] * cells["servers"]).to_numpy()
    wait = erlang_c(offered, cells["servers"]) / (cells["servers"] * (1.0 - cells["rho"])) * (1.0 + cells["scv"]) / 2.0
    order = relative_errors(cells)[["shape", "scv", "servers", "rho"]]
    keyed = (wait / cells["mean_wait"] - 1.0).set_axis(pd.MultiIndex.from_frame(cells[list(order.columns)]))
    return pd.Series(keyed.loc[pd.MultiIndex.from_frame(order)].to_numpy())


def _mean_and_largest(errors: pd.Series) -> str:
    values = 100.0 * errors.dropna().abs()
    return f"{values.mean():.1f} / {values.max():.1f}" if len(values) else "-"


def speed_table() -> pd.DataFrame:
    """Wall-clock of single calls, ms, best of five."""
    law = StepLaw.linear(alpha_s=0.0131, beta_s=7.1e-5, gamma_s=3.06e-8, delta_s=7.1e-5)
    replica = Replica(step=law, max_num_seqs=256, kv_tokens=519_500.0)
    values = np.exp(np.linspace(-2.0, 2.0, 400))
    lengths = Lengths.independent(Law.constant(1000.0), Law.from_atoms(300.0 * values, np.exp(-(np.log(values) ** 2))))
    service = Moments(mean_s=1.0, scv=4.0)
    calls: dict[str, Callable[[], object]] = {
        "erlang_c, 100,000 servers": lambda: erlang_c(99_000.0, 100_000),
        "mgc, one queue": lambda: mgc(80.0, service, 100),
        "mgc, 10,000 loads": lambda: mgc(np.linspace(1.0, 99.0, 10_000), service, 100),
        "mgc, 1,000 server counts": lambda: mgc(80.0, service, np.arange(100, 1100)),
        "closed_loop, one": lambda: closed_loop(law, 64, 1000, 200),
        "closed_loop, 10,000 user counts": lambda: closed_loop(law, np.arange(1, 10_001), 1000, 200, 256),
        "closed_batch, 2,000 requests": lambda: closed_batch(replica, 2_000, lengths),
        "closed_batch, 100,000 requests": lambda: closed_batch(replica, 100_000, lengths),
    }
    return pd.DataFrame({"call": list(calls), "ms": [_best_ms(call) for call in calls.values()]})


def _best_ms(call: Callable[[], object]) -> float:
    call()
    best = np.inf
    for _ in range(5):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        if best > 1.0:
            break
    return round(1e3 * best, 3)


if __name__ == "__main__":
    print("M/G/c against the reference queues, |error| in per cent, mean / largest")
    print(accuracy_table().to_string(index=False))
    print()
    print(speed_table().to_string(index=False))
