"""Simulated pools under bursty arrivals, tests/data/queueing_llm/bursty_pools.csv."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qmodel.types import Law, Lengths, Replica, Router, StepLaw, Stream
from qmodel.workload import lognormal_law
from qmodel.workload.arrival_processes import ArrivalProcess, Batches, HyperexponentialRenewal, TwoRates

__all__ = ["CELLS", "STATS", "BurstyCell", "BurstyRun", "bursty_runs"]

CELLS = Path(__file__).parents[1] / "data" / "queueing_llm" / "bursty_pools.csv"
STATS = tuple(f"{metric}_{stat}" for metric in ("ttft", "tpot", "completion") for stat in ("mean", "p95", "p99"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstyCell:
    """One setting and load.

    Attributes:
        kv_tokens: of one replica; 0: memory is no limit.
        prompt, output: lognormal lengths as mean/cv/largest.
        process: ``gaps/scv``, ``batches/mean size`` or ``rates/peak over mean/share of time at the peak/memory s``.
    """

    setting: int
    rho: float
    rate_rps: float
    replicas: int
    max_num_seqs: int
    max_batched_tokens: int
    kv_tokens: float
    watermark: float
    alpha_ms: float
    beta_ms: float
    gamma_ms: float
    delta_ms: float
    prompt: str
    output: str
    process: str

    @property
    def router(self) -> Router:
        return "random" if self.replicas == 1 else "jsq"

    @property
    def replica(self) -> Replica:
        return Replica(
            step=StepLaw.linear(
                alpha_s=self.alpha_ms / 1e3,
                beta_s=self.beta_ms / 1e3,
                gamma_s=self.gamma_ms / 1e3,
                delta_s=self.delta_ms / 1e3,
            ),
            max_num_seqs=self.max_num_seqs,
            max_batched_tokens=self.max_batched_tokens,
            kv_tokens=self.kv_tokens or None,
            watermark=self.watermark,
        )

    @property
    def arrivals(self) -> ArrivalProcess:
        kind, *numbers = self.process.split("/")
        values = [float(number) for number in numbers]
        if kind == "gaps":
            return HyperexponentialRenewal(scv=values[0])
        if kind == "batches":
            return Batches.geometric(values[0])
        peak, share, memory_s = values
        low = (1.0 - share * peak) / (1.0 - share)
        return TwoRates(rates=(peak, low), mean_stay_s=(memory_s / (1.0 - share), memory_s / share))

    @property
    def stream(self) -> Stream:
        return Stream(
            name="a",
            rate_rps=self.rate_rps,
            lengths=Lengths.independent(_law(self.prompt), _law(self.output)),
            burst=self.arrivals.burst(self.rate_rps),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstyRun:
    """A cell and what was measured, s by statistic, with the half width of the 95 % interval of the mean TTFT."""

    cell: BurstyCell
    measured_s: dict[str, float]
    ttft_half_width_s: float


@cache
def _law(text: str) -> Law:
    mean, cv, largest = (float(number) for number in text.split("/"))
    return lognormal_law(mean, cv, maximum=int(largest))


@cache
def bursty_runs() -> tuple[BurstyRun, ...]:
    """All simulated cells."""
    with CELLS.open(newline="") as lines:
        return tuple(_run(row) for row in csv.DictReader(lines))


def _run(row: dict[str, str]) -> BurstyRun:
    kinds = {"int": int, "float": float}
    fields = BurstyCell.__dataclass_fields__
    values = {name: kinds.get(str(item.type), str)(row[name]) for name, item in fields.items()}
    return BurstyRun(
        cell=BurstyCell(**values),
        measured_s={name: float(row[f"{name}_s"]) for name in STATS},
        ttft_half_width_s=float(row["ttft_mean_ci95_s"]),
    )
