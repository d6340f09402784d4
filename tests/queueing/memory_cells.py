"""Simulated pools of tests/data/queueing_llm/memory_cells.csv: KV memory, reserved or grown, with slots beside it."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qmodel.types import Law, Lengths, Replica, Router, StepLaw, Stream
from qmodel.workload import gamma_law, lognormal_law, mixture_law

__all__ = ["CELLS", "Cell", "MemoryRun", "length_law", "memory_runs"]

CELLS = Path(__file__).parents[1] / "data" / "queueing_llm" / "memory_cells.csv"
STATS = ("ttft_mean", "ttft_p95", "ttft_p99", "tpot_mean", "tpot_p95", "completion_mean", "completion_p95")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One setting and load; ``classes`` are written share:prompt:output, lengths as family/mean/cv/largest."""

    setting: int
    rho: float
    rate_rps: float
    replicas: int
    router: Router
    admission: str
    watermark: float
    kv_tokens: float
    kv_slope: float
    kv_fixed_tokens: float
    max_num_seqs: int
    max_batched_tokens: int
    alpha_ms: float
    beta_ms: float
    gamma_ms: float
    delta_ms: float
    classes: str

    @property
    def aside(self) -> bool:
        """Whether the setting belongs to the third that is not looked at while models are built."""
        return int(hashlib.sha256(f"setting {self.setting}".encode()).hexdigest(), 16) % 3 == 0

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
            kv_tokens=self.kv_tokens,
            watermark=self.watermark,
            admission="no_evict" if self.admission == "no_evict" else "full_prompt",
            kv_slope=self.kv_slope,
            kv_fixed_tokens=self.kv_fixed_tokens,
        )

    @property
    def streams(self) -> list[Stream]:
        parts = [part.split(":") for part in self.classes.split(" ")]
        return [
            Stream(
                name=name,
                rate_rps=float(share) * self.rate_rps,
                lengths=Lengths.independent(length_law(prompt), length_law(output)),
            )
            for name, (share, prompt, output) in zip("abc", parts, strict=False)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRun:
    """A cell and what was measured: seconds by metric and statistic, and half widths of 95 % intervals."""

    cell: Cell
    stable: bool
    measured_s: dict[str, float]
    half_width_s: dict[str, float]
    preemptions: float
    recomputed_tokens: float


@cache
def length_law(text: str) -> Law:
    """The law written as family/mean/cv/largest."""
    family, *numbers = text.split("/")
    mean, cv, largest = (float(number) for number in numbers)
    if family == "constant":
        return Law.constant(mean)
    if family == "gamma":
        return gamma_law(mean, cv, maximum=int(largest))
    if family == "mixture":  # four short answers to one long one, many of which are cut at the cap
        parts = [
            {"weight": 0.8, "mean": max(0.4 * mean, 1.0), "cv": cv},
            {"weight": 0.2, "mean": 3.4 * mean, "cv": cv},
        ]
        return mixture_law(parts, maximum=int(largest))
    return lognormal_law(mean, cv, maximum=int(largest))


@cache
def memory_runs() -> tuple[MemoryRun, ...]:
    """All simulated cells."""
    with CELLS.open(newline="") as lines:
        return tuple(_run(row) for row in csv.DictReader(lines))


def _run(row: dict[str, str]) -> MemoryRun:
    fields = Cell.__dataclass_fields__
    kinds = {"int": int, "float": float}
    values = {name: kinds.get(str(item.type), str)(row[name]) for name, item in fields.items()}
    return MemoryRun(
        cell=Cell(**values),
        stable=row["stable"] == "1",
        measured_s={name: float(row[f"{name}_s"]) for name in STATS},
        half_width_s={name: float(row[f"{name}_ci95_s"]) for name in STATS},
        preemptions=float(row["preemptions"]),
        recomputed_tokens=float(row["recomputed_tokens"]),
    )
