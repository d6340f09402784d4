"""Simulated queues with classes, from tests/data/queueing, and what the formulas say of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from qmodel.queueing import Moments, priority, reserved, shortest_first
from qmodel.types import Law

DATA = Path(__file__).parents[1] / "data" / "queueing"
_LEAST_P_WAIT = 1e-3
_MOST_INTERVAL = 0.06  # of the mean wait; noisier values say nothing about a formula


def moments(law: str, mean_s: float, scv: float) -> Moments:
    """The service time of a cell with its third moment."""
    if law == "lognormal":
        third = (1.0 + scv) ** 3
    elif law == "hyperexponential":
        light = 0.5 * (1.0 + np.sqrt((scv - 1.0) / (scv + 1.0)))
        third = 6.0 * (light / (2.0 * light) ** 3 + (1.0 - light) / (2.0 * (1.0 - light)) ** 3)
    else:
        third = {"constant": 1.0, "exponential": 6.0, "erlang2": 3.0}[law]
    return Moments(mean_s=mean_s, scv=scv, third=third * mean_s**3)


@cache
def class_cells(discipline: str) -> pd.DataFrame:
    """Rows of priority_waits.csv that are certain enough, with predictions and relative errors."""
    table = pd.read_csv(DATA / "priority_waits.csv")
    table = table[table["discipline"] == discipline]
    parts = [_predicted(group) for _, group in table.groupby("cell", sort=False)]
    found = pd.concat(parts, ignore_index=True)
    sure = (found["p_wait"] >= _LEAST_P_WAIT) & (found["ci95_s"] <= _MOST_INTERVAL * found["mean_wait_s"])
    return found[sure].reset_index(drop=True)


def _predicted(cell: pd.DataFrame) -> pd.DataFrame:
    first = cell.iloc[0]
    services = [moments(row.law, row.mean_s, row.scv) for row in cell.itertuples()]
    rates, servers = cell["rate_rps"].tolist(), int(first["servers"])
    if first["discipline"] == "reserved":
        own = cell["own"].astype(int).tolist()
        queue = reserved(rates, services, own, servers - sum(own))
        band: Sequence[float] = [queue.band] * len(rates)
    else:
        queue = priority(rates, services, servers, discipline=first["discipline"])
        band = queue.band.tolist()
    level = {
        name: np.asarray(queue.wait_quantile_s(p)) for name, p in (("p90_s", 0.9), ("p95_s", 0.95), ("p99_s", 0.99))
    }
    errors = {
        "error": queue.mean_wait_s / cell["mean_wait_s"] - 1.0,
        "p_wait_error": queue.p_wait / cell["p_wait"] - 1.0,
        "completion_error": queue.mean_completion_s / cell["mean_completion_s"] - 1.0,
    }
    for name, p in (("p90_s", 0.9), ("p95_s", 0.95), ("p99_s", 0.99)):
        resolved = cell["p_wait"] > 2.0 * (1.0 - p)
        errors[f"{name[:3]}_error"] = (level[name] / cell[name].where(cell[name] > 0.0) - 1.0).where(resolved)
    return cell.assign(alike=cell["mean_s"].nunique() == 1, classes=len(cell), band=band, **errors)


@cache
def size_cells() -> pd.DataFrame:
    """Rows of shortest_first_waits.csv that are certain enough, with predictions and relative errors."""
    table = pd.read_csv(DATA / "shortest_first_waits.csv")
    parts = [_by_size(group) for _, group in table.groupby("cell", sort=False)]
    found = pd.concat(parts, ignore_index=True)
    sure = (found["p_wait"] >= _LEAST_P_WAIT) & (found["ci95_s"] <= 0.1 * found["mean_wait_s"])
    return found[sure].reset_index(drop=True)


def _by_size(cell: pd.DataFrame) -> pd.DataFrame:
    first = cell.iloc[0]
    law = atoms(first["law"], float(first["scv"]))
    queue = shortest_first([float(first["rate_rps"])], [law], int(first["servers"]))
    reached = np.cumsum(law.weights)
    waits = queue.wait_s_at(law.values)
    rows = []
    for row in cell.itertuples():
        inside = (reached > row.from_share) & (reached <= row.to_share + 1e-12)
        rows.append(float(law.weights[inside] @ waits[inside] / law.weights[inside].sum()))
    mean = float(cell["requests"] @ cell["mean_wait_s"] / cell["requests"].sum())
    return cell.assign(
        error=np.array(rows) / cell["mean_wait_s"] - 1.0,
        overall_error=float(queue.mean_wait_s[0]) / mean - 1.0,
        p_wait_error=queue.p_wait / float(cell["requests"] @ cell["p_wait"] / cell["requests"].sum()) - 1.0,
    )


@cache
def atoms(law: str, scv: float, count: int = 1500) -> Law:
    """A law of mean 1 as atoms, fine in its tail."""
    edges = np.concatenate([np.linspace(0.0, 0.9, count // 2), 1.0 - np.logspace(-1.0, -7.0, count // 2)[1:]])
    middle, weight = (edges[1:] + edges[:-1]) / 2.0, np.diff(edges)
    if law == "lognormal":
        sigma = np.sqrt(np.log1p(scv))
        values = np.exp(-(sigma**2) / 2.0 + sigma * stats.norm.ppf(middle))
    elif law == "hyperexponential":
        light = 0.5 * (1.0 + np.sqrt((scv - 1.0) / (scv + 1.0)))
        grid = np.logspace(-6.0, 3.0, 40_000)
        below = 1.0 - light * np.exp(-2.0 * light * grid) - (1.0 - light) * np.exp(-2.0 * (1.0 - light) * grid)
        values = np.interp(middle, below, grid)
    else:
        values = {"exponential": stats.expon.ppf(middle), "erlang2": stats.gamma.ppf(middle, 2.0) / 2.0}[law]
    return Law.from_atoms(values / (values @ weight) * weight.sum(), weight)
