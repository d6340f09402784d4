"""The simulated waits of tests/data/queueing/bursty_wait.csv, what they were made with, and errors against them."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from qmodel.queueing import Moments, QueueResult, ggc
from qmodel.types import Burst, Law
from qmodel.workload.arrival_processes import (
    ArrivalProcess,
    Batches,
    GammaRenewal,
    HyperexponentialRenewal,
    Regular,
    TwoRates,
)
from tests.queueing.reference_queues import service_of

CELLS = Path(__file__).parents[1] / "data" / "queueing" / "bursty_wait.csv"
_SHAPES = {"exp": "exponential", "e2": "erlang2", "det": "constant", "ln": "lognormal", "h2": "hyperexponential"}
_LEVELS = {"p90": 0.90, "p95": 0.95, "p99": 0.99}


def bursty_cells(least_p_wait: float = 1e-4, widest_ci: float = 0.07) -> pd.DataFrame:
    """Queues whose mean wait is known well enough to measure an error against."""
    cells = pd.read_csv(CELLS)
    known = (cells["p_wait"] >= least_p_wait) & (cells["mean_wait_ci95"] <= widest_ci * cells["mean_wait"])
    return cells[known].reset_index(drop=True)


def process_of(arrivals: str, a: float, b: float, rate: float) -> ArrivalProcess:
    """The arrival process of a cell."""
    if arrivals == "gamma":
        return GammaRenewal(scv=a) if a > 0.0 else Regular()
    if arrivals == "h2":
        return HyperexponentialRenewal(scv=a)
    if arrivals == "geom":
        return Batches.geometric(a)
    if arrivals == "cbatch":
        return Batches(sizes=Law.constant(a))
    variance = a * b / (2.0 * rate)  # of the rate, relative to its square
    if arrivals == "mmpp":
        return TwoRates(rates=(1.0 - math.sqrt(variance), 1.0 + math.sqrt(variance)), mean_stay_s=(2.0 / b, 2.0 / b))
    on = 1.0 / (1.0 + variance)
    return TwoRates.on_off(mean_on_s=1.0 / (b * (1.0 - on)), mean_off_s=1.0 / (b * on))


@cache
def service(shape: str, scv: float) -> Law | Moments:
    """The service time of a cell, mean 1 s."""
    return service_of(_SHAPES[shape], scv)


def predicted(cell: pd.Series, *, with_skew: bool = True) -> QueueResult:
    """``ggc`` for one cell, with the burst of its process, or that without its skewness."""
    rate = float(cell["servers"] * cell["utilisation"])
    burst = process_of(cell["arrivals"], cell["a"], cell["b"], rate).burst(rate)
    if burst is not None and not with_skew:
        burst = Burst(excess=burst.excess, decay_per_s=burst.decay_per_s)
    return ggc(rate, service(cell["service"], cell["scv"]), int(cell["servers"]), burst=burst)


def relative_errors(cells: pd.DataFrame, *, with_skew: bool = True) -> pd.DataFrame:
    """The cells with predicted over simulated, minus 1; percentiles where twice as many wait as exceed them."""
    rows = []
    for _, cell in cells.iterrows():
        queue = predicted(cell, with_skew=with_skew)
        row = {
            "p_wait": float(queue.p_wait) / cell["p_wait"] - 1.0,
            "mean_wait": float(queue.mean_wait_s) / cell["mean_wait"] - 1.0,
        }
        for column, level in _LEVELS.items():
            resolved = cell["p_wait"] > 2.0 * (1.0 - level)
            row[column] = float(queue.wait_quantile_s(level)) / cell[column] - 1.0 if resolved else np.nan
        rows.append(row)
    kept = cells[["set", "group", "arrivals", "a", "b", "service", "scv", "servers", "utilisation"]]
    return pd.concat([kept.reset_index(drop=True), pd.DataFrame(rows)], axis=1)
