"""The reference waits of tests/data/queueing, the service laws they were made with, and errors against them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import optimize, special

from qmodel.queueing.servers.multiserver import Moments, mgc
from qmodel.types import Law
from tests.queueing.service_laws import service_law

SIMULATED = Path(__file__).parents[1] / "data" / "queueing" / "simulated_wait.csv"
REFERENCE = Path(__file__).parents[1] / "data" / "queueing" / "multiserver_wait.csv"
_PARETO_RANGE = 1000.0
_LEVELS = {"wait_p90": 0.90, "wait_p95": 0.95, "wait_p99": 0.99}


def reference_cells(least_p_wait: float = 1e-4, widest_ci: float = 0.08) -> pd.DataFrame:
    """Queues whose mean wait is known well enough to measure an error against."""
    cells = pd.read_csv(REFERENCE)
    known = (cells["p_wait"] >= least_p_wait) & (cells["mean_wait_ci95"] <= widest_ci * cells["mean_wait"])
    return cells[known].reset_index(drop=True)


@cache
def service_of(shape: str, scv: float) -> Law | Moments:
    """The service law of a reference queue, mean 1 s."""
    if shape in ("constant", "erlang2", "exponential", "hyperexponential"):
        return Moments(mean_s=1.0, scv=scv)
    edges = np.unique(
        np.concatenate([np.linspace(0.0, 1.0, 801), np.geomspace(1e-9, 0.1, 200), 1.0 - np.geomspace(1e-9, 0.1, 200)])
    )
    if shape == "lognormal":
        return _lognormal(scv, edges)
    return _bounded_pareto(scv, edges)


def _lognormal(scv: float, edges: np.ndarray) -> Law:
    sigma = np.sqrt(np.log1p(scv))
    partial = special.ndtr(special.ndtri(edges) - sigma)  # E[S; S below the quantile] / E[S]
    return _law(np.diff(partial) / np.diff(edges), np.diff(edges), [1.0, 1.0 + scv, (1.0 + scv) ** 3])


def _pareto_moment(alpha: float, k: int) -> float:
    """E[S^k] with the smallest value at 1."""
    norm = alpha / (1.0 - _PARETO_RANGE**-alpha)
    return norm * np.log(_PARETO_RANGE) if k == alpha else norm * (_PARETO_RANGE ** (k - alpha) - 1.0) / (k - alpha)


def _bounded_pareto(scv: float, edges: np.ndarray) -> Law:
    def excess(alpha: float) -> float:
        return _pareto_moment(alpha, 2) / _pareto_moment(alpha, 1) ** 2 - 1.0 - scv

    alpha = optimize.brentq(excess, 1.05, 4.0)  # the heavy-tailed branch
    mean = _pareto_moment(alpha, 1)
    quantile = (1.0 - edges * (1.0 - _PARETO_RANGE**-alpha)) ** (-1.0 / alpha)
    partial = alpha / (1.0 - _PARETO_RANGE**-alpha) * (1.0 - quantile ** (1.0 - alpha)) / (alpha - 1.0)
    moments = [_pareto_moment(alpha, k) / mean**k for k in (1, 2, 3)]
    return _law(np.diff(partial) / np.diff(edges) / mean, np.diff(edges), moments)


def _law(values: np.ndarray, weights: np.ndarray, moments: list[float]) -> Law:
    return Law(values=values, weights=weights, moments=(moments[0], moments[1], moments[2]), label="reference service")


def simulated_cells(part: str, widest_ci: float = 0.04) -> pd.DataFrame:
    """Simulated queues of the ``development`` or the ``set_aside`` part whose mean wait is known well enough."""
    cells = pd.read_csv(SIMULATED)
    known = (cells["set"] == part) & (cells["mean_wait_ci95"] <= widest_ci * cells["mean_wait"])
    return cells[known].reset_index(drop=True)


def simulated_errors(cells: pd.DataFrame) -> pd.DataFrame:
    """Signed relative errors of mgc against simulated queues, with its bands; one row per cell."""
    parts = [_errors(group, service_law(str(law))).assign(law=law) for law, group in cells.groupby("law", sort=True)]
    return pd.concat(parts, ignore_index=True)


def relative_errors(cells: pd.DataFrame) -> pd.DataFrame:
    """Signed relative errors of mgc: one row per cell; a percentile counts where it lies well inside the waits."""
    parts = []
    for _, group in cells.groupby(["shape", "scv"], sort=True):
        shape, scv = str(group["shape"].iloc[0]), float(group["scv"].iloc[0])
        part = _errors(group, service_of(shape, scv)).assign(shape=shape, scv=scv)
        part["nu"] = _nu(service_of(shape, scv))
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _errors(group: pd.DataFrame, service: Law | Moments) -> pd.DataFrame:
    servers, rho = group["servers"].to_numpy(float), group["rho"].to_numpy(float)
    queue = mgc(rho * servers, service, servers)
    part = group[["servers", "rho"]].copy()
    part["band"], part["percentile_band"] = queue.band, queue.percentile_band
    part["p_wait"] = queue.p_wait / group["p_wait"].to_numpy() - 1.0
    part["mean_wait"] = queue.mean_wait_s / group["mean_wait"].to_numpy() - 1.0
    for name, level in _LEVELS.items():
        inside = (group["p_wait"] > 2.0 * (1.0 - level)).to_numpy()
        part[name] = np.where(inside, queue.wait_quantile_s(level) / group[name].to_numpy() - 1.0, np.nan)
    return part


def _nu(service: Law | Moments) -> float:
    if isinstance(service, Moments):
        return float(service.nu)
    first, second, third = service.moments
    return 4.0 * first * third / (3.0 * second**2)
