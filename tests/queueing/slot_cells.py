"""Replicas limited by slots and step budget as simulated for tests/data/queueing_llm/slot_cells.csv."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np

from qmodel.queueing import pool
from qmodel.types import FloatArray, Law, Lengths, Replica, Router, StepLaw, Stream
from qmodel.workload import combine_reasoning, lognormal_law

CELLS = Path(__file__).parents[1] / "data" / "queueing_llm" / "slot_cells.csv"
METRICS = ("ttft", "tpot", "completion")
STATS = ("mean", "p95", "p99")
COLUMNS = tuple(f"{metric}_{stat}" for metric in METRICS for stat in STATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One simulated pool.

    Attributes:
        config: name of the setting.
        aside: whether it belongs to the third that models are not built with.
        load: offered load over capacity.
        share_full: of arrivals that meet as many requests in their replica as it has slots, or more.
        measured_s: by class and column, s; zero where a class has none.
        answer_s: the time to the first answer token, by class and statistic, s; none for classes that do not think.
    """

    config: str
    aside: bool
    load: float
    share_full: float
    replica: Replica
    streams: tuple[Stream, ...]
    replicas: int
    measured_s: dict[str, dict[str, float]]
    answer_s: dict[str, dict[str, float]]

    @property
    def router(self) -> Router:
        return "random" if self.replicas == 1 else "jsq"

    @property
    def group(self) -> str:
        if self.replicas > 1:
            return "join-shortest-queue"
        return "one class, independent" if len(self.streams) == 1 else "mix, independent"

    def signed_errors(self) -> Iterator[FloatArray]:
        """Prediction over simulation less one in the order of COLUMNS, class by class; NaN where none is measured."""
        prediction = pool(self.replica, self.streams, self.replicas, self.router)
        for stream in self.streams:
            found = prediction[stream.name]
            laws = {"ttft": found.ttft, "tpot": found.tpot, "completion": found.completion}
            errors = []
            for column in COLUMNS:
                metric, stat = column.split("_")
                measured, law = self.measured_s[stream.name][column], laws[metric]
                if measured <= 0.0:
                    errors.append(np.nan)
                    continue
                value = law.mean if stat == "mean" else law.quantile(float(stat[1:]) / 100.0)
                errors.append(value / measured - 1.0)
            yield np.array(errors)


@cache
def cells() -> tuple[Cell, ...]:
    """All simulated pools."""
    with CELLS.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return tuple(_cell(list(group)) for _, group in groupby(rows, key=lambda row: (row["config"], row["load"])))


def _cell(rows: list[dict[str, str]]) -> Cell:
    first = rows[0]
    knots = [item.split(":") for item in first["step_knots_ms"].split()]
    step = StepLaw.table(
        batch=[float(batch) for batch, _ in knots],
        step_s=[float(value) / 1e3 for _, value in knots],
        gamma_s=float(first["gamma_us"]) / 1e6,
        delta_s=float(first["delta_us"]) / 1e6,
    )
    return Cell(
        config=first["config"],
        aside=first["set"] == "aside",
        load=float(first["load"]),
        share_full=float(first["share_meeting_full"]),
        replica=Replica(
            step=step,
            max_num_seqs=int(first["max_num_seqs"]),
            max_batched_tokens=int(first["max_batched_tokens"]),
        ),
        streams=tuple(
            Stream(
                name=row["class"],
                rate_rps=float(row["rate_rps"]),
                lengths=_lengths(row["prompt"], row["output"], row["thinking"]),
            )
            for row in rows
        ),
        replicas=int(first["replicas"]),
        measured_s={row["class"]: {column: float(row[f"{column}_ms"]) / 1e3 for column in COLUMNS} for row in rows},
        answer_s={
            row["class"]: {stat: float(row[f"answer_{stat}_ms"]) / 1e3 for stat in STATS if row[f"answer_{stat}_ms"]}
            for row in rows
        },
    )


@cache
def _lengths(prompt: str, output: str, thinking: str) -> Lengths:
    answer = _law(output)
    if not thinking:
        return Lengths.independent(_law(prompt), answer)
    total, thought = combine_reasoning(_law(thinking), answer)
    return Lengths.independent(_law(prompt), total, thought)


@cache
def _law(text: str) -> Law:
    mean, cv, maximum = (float(part) for part in text.split())
    return Law.constant(mean) if cv == 0.0 else lognormal_law(mean, cv, maximum=int(maximum))
