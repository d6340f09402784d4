"""The stored runs of an independent step-level simulator, and the same settings simulated here."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qmodel.simulation import EnginePolicy, SimRouter, simulate_pool, table_from_arrays
from qmodel.simulation.policies import AdmissionRule
from qmodel.types import FloatArray, IntArray, Replica, StepLaw

CELLS = Path(__file__).parents[1] / "data" / "simulation" / "llm_engine_cells.csv"
METRICS = {"ttft": "ttft", "tpot": "tpot", "e2e": "completion"}
STATS = ("mean", "p50", "p90", "p95", "p99")
BATCHES = 20
T_95 = 2.093  # Student's t of 19 degrees of freedom, two-sided 95 %
WARM_UP = 0.1  # of the requests come before those that count


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value of one run: stored and simulated, with half widths of 95 % intervals, s."""

    config: str
    rho: float
    quantity: str
    stored_s: float
    stored_ci_s: float
    found_s: float
    found_ci_s: float

    @property
    def agrees(self) -> bool:
        """Whether the difference lies within its 95 % interval."""
        return abs(self.found_s - self.stored_s) <= math.hypot(self.stored_ci_s, self.found_ci_s)


def stored_runs() -> list[dict[str, str]]:
    """The rows of the file."""
    with CELLS.open(newline="") as lines:
        return list(csv.DictReader(lines))


def compare(row: dict[str, str], *, seed: int, requests: int | None = None) -> Iterator[Cell]:
    """Simulate the setting of ``row`` and put both results side by side.

    Args:
        row: of :func:`stored_runs`.
        seed: of all draws.
        requests: that count; as many as the stored run had by default.
    """
    counted = requests or int(row["requests"])
    first = int(counted * WARM_UP)
    number = counted + first + counted // 20  # arrivals go on while the last ones that count are served
    rng = np.random.default_rng(seed)
    table = table_from_arrays(
        np.cumsum(rng.exponential(1.0 / float(row["rate_rps"]), number)),
        prompt=_lengths(row, "prompt", number, rng),
        output=_lengths(row, "output", number, rng),
    )
    replica = Replica(
        step=StepLaw.linear(
            **{f"{name}_s": float(row[f"{name}_ms"]) / 1e3 for name in ("alpha", "beta", "gamma", "delta")}
        ),
        max_num_seqs=int(row["max_num_seqs"]),
        kv_tokens=float(row["kv_tokens"]) if row["kv_tokens"] else None,
        max_batched_tokens=int(row["max_batched_tokens"]),
        watermark=float(row["watermark"]),
    )
    rule: dict[str, AdmissionRule] = {"full_prompt": "full_prompt", "first_chunk": "first_chunk"}
    routers: dict[str, SimRouter] = {"random": "random", "jsq": "jsq"}
    run = simulate_pool(
        table,
        replica,
        replicas=int(row["replicas"]),
        router=routers[row["router"]],
        policy=EnginePolicy(admission=rule[row["admission"]]),
        rng=rng,
    )
    for metric, name in METRICS.items():
        values = run.log.metric(name)[first : first + counted]
        for stat in STATS:
            found_s, found_ci_s = _with_interval(values, stat)
            yield Cell(
                config=row["config"],
                rho=float(row["rho_nominal"]),
                quantity=f"{metric}_{stat}",
                stored_s=float(row[f"{metric}_{stat}_ms"]) / 1e3,
                stored_ci_s=float(row[f"{metric}_{stat}_ci95_ms"]) / 1e3,
                found_s=found_s,
                found_ci_s=found_ci_s,
            )


def _lengths(row: dict[str, str], name: str, number: int, rng: np.random.Generator) -> IntArray:
    """Lognormal lengths, rounded and cut to [1, largest]."""
    mean, scv, largest = (float(row[f"{name}_{part}"]) for part in ("mean", "scv", "max"))
    sigma = math.sqrt(math.log1p(scv))
    drawn = rng.lognormal(math.log(mean) - sigma * sigma / 2, sigma, number)
    return np.clip(np.rint(drawn), 1, largest).astype(np.int64)


def _with_interval(values: FloatArray, stat: str) -> tuple[float, float]:
    """A mean or a quantile, and the half width of its interval from means or quantiles of batches.

    At high load batches are not independent; where neighbours correlate by r > 0 the variance of their mean is that of
    an autoregressive series, (1 + r) / (1 - r) times as large.
    """

    def measure(sample: FloatArray) -> float:
        present = sample[~np.isnan(sample)]
        return float(present.mean() if stat == "mean" else np.quantile(present, float(stat[1:]) / 100.0))

    batches = np.array([measure(batch) for batch in np.array_split(values, BATCHES)])
    rest = batches - batches.mean()
    together = float(np.clip(rest[1:] @ rest[:-1] / max(float(rest @ rest), 1e-300), 0.0, 0.9))
    spread = float(np.std(batches, ddof=1)) * math.sqrt((1.0 + together) / (1.0 - together))
    return measure(values), T_95 * spread / math.sqrt(BATCHES)
