"""Simulated pools of tests/data/queueing_llm/fresh_cells.csv.gz: slots, step budget or KV memory, one row per class."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np

from qmodel.queueing import pool
from qmodel.types import FloatArray, Replica
from tests.queueing.memory_cells import Cell

__all__ = ["FRESH", "STATS", "FreshCell", "FreshRun", "fresh_runs"]

FRESH = Path(__file__).parents[1] / "data" / "queueing_llm" / "fresh_cells.csv.gz"
STATS = tuple(f"{metric}_{stat}" for metric in ("ttft", "tpot", "completion") for stat in ("mean", "p95", "p99"))
NO_LIMIT = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshCell(Cell):
    """One setting and load; ``kv_tokens`` is infinite where memory does not limit."""

    @property
    def aside(self) -> bool:
        """Whether the setting belongs to the third that is not looked at while models are built."""
        return int(hashlib.sha256(f"fresh {self.setting}".encode()).hexdigest(), 16) % 3 == 0

    @property
    def replica(self) -> Replica:
        found = Cell.replica.fget(self)  # type: ignore[attr-defined]
        return replace(found, kv_tokens=None) if self.kv_tokens == NO_LIMIT else found

    @property
    def group(self) -> str:
        if self.kv_tokens < NO_LIMIT:
            return "memory, reserving" if self.admission == "no_evict" else "memory, watermark"
        if self.router == "jsq":
            return "join-shortest-queue"
        return "mix, independent" if " " in self.classes else "one class, independent"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshRun:
    """A cell and what was measured, by class and statistic: seconds, and half widths of 95 % intervals; NaN: none."""

    cell: FreshCell
    stable: bool
    measured_s: dict[str, FloatArray]
    half_width_s: dict[str, FloatArray]

    def signed_errors(self) -> dict[str, FloatArray] | None:
        """Prediction over simulation less one in the order of STATS, by class; None where the pool is refused."""
        cell = self.cell
        found = pool(cell.replica, cell.streams, cell.replicas, cell.router)
        if not found.stable:
            return None
        errors = {}
        for name, measured in self.measured_s.items():
            one = found[name]
            laws = {"ttft": one.ttft, "tpot": one.tpot, "completion": one.completion}
            values = []
            for text in STATS:
                metric, stat = text.split("_")
                law = laws[metric]
                values.append(law.mean if stat == "mean" else law.quantile(float(stat[1:]) / 100.0))
            errors[name] = np.array(values) / measured - 1.0
        return errors


@cache
def fresh_runs() -> tuple[FreshRun, ...]:
    """All simulated cells."""
    with gzip.open(FRESH, "rt", newline="") as lines:
        return tuple(_runs(csv.DictReader(lines)))


def _runs(rows: Iterator[dict[str, str]]) -> Iterator[FreshRun]:
    kinds = {"int": int, "float": float}
    fields = FreshCell.__dataclass_fields__
    for _, group in groupby(rows, key=lambda row: (row["setting"], row["rho"])):
        mine = list(group)
        values = {name: kinds.get(str(item.type), str)(mine[0][name]) for name, item in fields.items()}
        yield FreshRun(
            cell=FreshCell(**values),
            stable=mine[0]["stable"] == "1",
            measured_s={row["class"]: _numbers(row, "s") for row in mine},
            half_width_s={row["class"]: _numbers(row, "ci95_s") for row in mine},
        )


def _numbers(row: dict[str, str], unit: str) -> FloatArray:
    values = np.array([float(row[f"{name}_{unit}"]) for name in STATS])
    return np.where(values > 0.0, values, np.nan)
