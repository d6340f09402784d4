"""The bands of pool predictions: their table from simulated cells, and how many cells lie within them.

Run from the checkout: ``python -m benchmarks.queueing_bands``. For each limit, metric and statistic the ninth decile
of |measured / predicted - 1| over the cells of a range of loads is taken; ranges whose deciles fall with the load are
pooled. The module ``qmodel.queueing.replica.error_bands`` holds the result, rounded. Coverage is counted three times:
on the cells set aside with a table made of the others; with tables made of two thirds of the settings on the third; and
of the shipped table on older runs and on fresh cells that were set aside, which none of them is made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pandas as pd

from qmodel.queueing import PoolPrediction, pool
from qmodel.queueing.replica.chain import top_rate_rps
from qmodel.queueing.replica.error_bands import KNOTS, interpolated, queueing_band
from qmodel.queueing.replica.kv_limited import memory_limit
from qmodel.queueing.replica.work import pooled_work
from qmodel.types import FloatArray, Metric, Replica, Stream
from tests.queueing.bursty_pools import STATS as BURSTY_STATS
from tests.queueing.bursty_pools import bursty_runs
from tests.queueing.fresh_cells import STATS as FRESH_STATS
from tests.queueing.fresh_cells import fresh_runs
from tests.queueing.llm_cases import METRICS as OLD_METRICS
from tests.queueing.llm_cases import STATS as OLD_STATS
from tests.queueing.llm_cases import runs
from tests.queueing.memory_cells import STATS as MEMORY_STATS
from tests.queueing.memory_cells import memory_runs
from tests.queueing.priority_pools import RUNS as PRIORITY_RUNS
from tests.queueing.priority_pools import predicted as predicted_ranked
from tests.queueing.slot_cells import COLUMNS, cells

__all__ = ["LOADS", "Row", "covered", "fitted", "measured_rows", "older_rows", "unseen_rows"]

LOADS = (0.0, 0.5, 0.775, 0.86, 1.0)  # utilisations that part the ranges; each has a knot of the table
COVER = 0.9
FOLDS = 3
STATISTICS = ("mean", "p95", "p99")
METRIC_NAMES: tuple[Metric, ...] = ("ttft", "tpot", "completion")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One statistic of one class in one simulated pool.

    Attributes:
        kind: limit and traffic.
        setting: cells of one setting are kept together where coverage is counted.
        aside: set aside while the model was built.
        stat: ``mean``, ``p95``, ...
    """

    kind: str
    setting: str
    aside: bool
    utilisation: float
    metric: Metric
    stat: str
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """|measured / predicted - 1|."""
        return abs(self.measured_s / self.predicted_s - 1.0)

    @property
    def table(self) -> str:
        """The table that the row counts in: one for bursts, whatever limits the pool."""
        return "bursty" if self.kind.endswith("bursty") else self.kind

    @property
    def fold(self) -> int:
        """Third that the setting belongs to."""
        return int(hashlib.sha256(f"{self.table} {self.setting}".encode()).hexdigest(), 16) % FOLDS

    def within(self, band: float) -> bool:
        """Whether what was measured lies between the ends of the band."""
        return self.predicted_s / (1.0 + band) <= self.measured_s <= self.predicted_s * (1.0 + band)

    def below(self, band: float) -> bool:
        """Whether it lies below the upper end."""
        return self.measured_s <= self.predicted_s * (1.0 + band)


@cache
def measured_rows() -> tuple[Row, ...]:
    """Every row that the tables are made of."""
    fresh = (row for row in _fresh_rows() if not row.aside)
    return (*_slot_rows(), *_memory_rows(), *_bursty_rows(), *_ranked_rows(), *fresh)


@cache
def unseen_rows() -> tuple[Row, ...]:
    """Rows of the fresh cells set aside, which neither models nor tables are made of."""
    return tuple(row for row in _fresh_rows() if row.aside)


@cache
def older_rows() -> tuple[Row, ...]:
    """Rows of older runs, which the tables are not made of."""
    found = []
    for run in runs():
        prediction = pool(run.replica, [run.stream], run.replicas, run.router)
        kind = "kv" if limited_by_memory(run.replica, [run.stream]) else "slots"
        measured = {
            f"{'completion' if metric == 'e2e' else metric}_{stat}": run.measured_s[metric, stat]
            for metric in OLD_METRICS
            for stat in OLD_STATS
        }
        found += _rows(kind, run.config, True, prediction, run.stream.name, measured)
    return tuple(found)


def limited_by_memory(replica: Replica, streams: Sequence[Stream]) -> bool:
    """Whether memory sets the largest stable load."""
    work = pooled_work(replica, streams)
    return top_rate_rps(replica, work, memory_limit(replica, work))[1]


def _slot_rows() -> Iterator[Row]:
    for cell in cells():
        prediction = pool(cell.replica, cell.streams, cell.replicas, cell.router)
        for stream in cell.streams:
            measured = {name: cell.measured_s[stream.name][name] for name in COLUMNS}
            measured |= {f"answer_start_{stat}": value for stat, value in cell.answer_s[stream.name].items()}
            yield from _rows("slots", cell.config, cell.aside, prediction, stream.name, measured)


def _memory_rows() -> Iterator[Row]:
    for run in memory_runs():
        cell = run.cell
        prediction = pool(cell.replica, cell.streams, cell.replicas, cell.router)
        if run.stable:
            measured = {name: run.measured_s[name] for name in MEMORY_STATS}
            yield from _rows("kv", str(cell.setting), cell.aside, prediction, "a", measured)


def _fresh_rows() -> Iterator[Row]:
    for run in fresh_runs():
        cell = run.cell
        prediction = pool(cell.replica, cell.streams, cell.replicas, cell.router)
        kind = "kv" if limited_by_memory(cell.replica, cell.streams) else "slots"
        for name, values in run.measured_s.items() if run.stable else ():
            measured = dict(zip(FRESH_STATS, values.tolist(), strict=True))
            yield from _rows(kind, f"fresh {cell.setting}", cell.aside, prediction, name, measured)


def _bursty_rows() -> Iterator[Row]:
    for run in bursty_runs():
        cell = run.cell
        prediction = pool(cell.replica, [cell.stream], cell.replicas, cell.router)
        kind = "kv bursty" if limited_by_memory(cell.replica, [cell.stream]) else "slots bursty"
        measured = {name: run.measured_s[name] for name in BURSTY_STATS}
        yield from _rows(kind, str(cell.setting), False, prediction, "a", measured)


def _ranked_rows() -> Iterator[Row]:
    table = pd.read_csv(PRIORITY_RUNS)
    for (name, _), run in table.groupby(["pool", "load"], sort=False):
        prediction = predicted_ranked(run)
        kind = "kv ranked" if str(name).startswith("kv") else "slots ranked"
        for _, row in run.iterrows():
            measured = {
                f"{metric}_{stat}": float(row[f"{metric}_{stat}_s"]) for metric in METRIC_NAMES for stat in STATISTICS
            }
            yield from _rows(kind, str(name), row["set"] == "aside", prediction, row["class"], measured)


def _rows(
    kind: str, setting: str, aside: bool, prediction: PoolPrediction, cls: str, measured_s: dict[str, float]
) -> Iterator[Row]:
    """Rows of one class; none where the pool is refused or nothing was measured."""
    for name, value in measured_s.items() if prediction.stable else ():
        metric, stat = name.rsplit("_", 1)
        law = prediction[cls].metric(metric)  # type: ignore[arg-type]
        if value > 0.0:
            yield Row(
                kind=kind,
                setting=setting,
                aside=aside,
                utilisation=prediction.utilisation,
                metric=metric,  # type: ignore[arg-type]
                stat=stat,
                predicted_s=law.mean if stat == "mean" else law.quantile(level_of(stat)),
                measured_s=value,
            )


def level_of(stat: str) -> float | None:
    """0.95 of ``p95``; None of ``mean``."""
    return None if stat == "mean" else float(stat[1:]) / 100.0


def fitted(rows: Sequence[Row]) -> FloatArray:
    """Ninth deciles of the errors by range of load, shape (4,); ranges are pooled where they would fall.

    Args:
        rows: of one kind, metric and statistic.
    """
    used, errors = np.array([row.utilisation for row in rows]), np.array([row.error for row in rows])
    parts = [errors[(used >= low) & (used < high)] for low, high in pairwise(LOADS)]
    pooled = [[place] for place, part in enumerate(parts)]

    def decile(places: Sequence[int]) -> float:
        found = np.concatenate([parts[place] for place in places])
        return float(np.quantile(found, COVER)) if found.size else 0.0

    place = 0
    while place < len(pooled) - 1:
        if decile(pooled[place]) > decile(pooled[place + 1]):
            pooled[place] += pooled.pop(place + 1)
            place = max(place - 1, 0)
        else:
            place += 1
    return np.array([decile(places) for places in pooled for _ in places])


def covered(rows: Sequence[Row], bands: FloatArray) -> tuple[float, float]:
    """Shares of the rows within their bands, and below the upper end."""
    pairs = list(zip(rows, bands.tolist(), strict=True))
    return float(np.mean([row.within(band) for row, band in pairs])), float(
        np.mean([row.below(band) for row, band in pairs])
    )


def shipped(rows: Sequence[Row]) -> FloatArray:
    """The band that the package gives each row, shape (N,)."""
    return np.array(
        [
            float(
                queueing_band(
                    row.metric,
                    level_of(row.stat),
                    row.utilisation,
                    row.kind.startswith("kv"),
                    bursty=row.kind.endswith("bursty"),
                    ranked=row.kind.endswith("ranked"),
                )
            )
            for row in rows
        ]
    )


def main() -> None:
    """Print the tables and their coverage."""
    rows = measured_rows()
    tables = list(dict.fromkeys(row.table for row in rows))
    print(f"{'ninth decile of |error|, %':36s} rows by range    " + " ".join(f"{f'at {knot}':>9s}" for knot in KNOTS))
    for table in tables:
        for mine in _groups([row for row in rows if row.table == table]):
            counts = np.histogram([row.utilisation for row in mine], LOADS)[0]
            deciles = " ".join(f"{100.0 * value:9.1f}" for value in fitted(mine))
            print(f"{_name(mine):36s} {' '.join(f'{count:3d}' for count in counts):16s} {deciles}")
    print(f"\n{'coverage, % within (below the upper end)':44s} {'set aside':>14s} {'by thirds':>14s} {'shipped':>14s}")
    for table in tables:
        members = [row for row in rows if row.table == table]
        for mine in [*_groups(members), members]:
            name = f"{table:13s} all" if mine is members else _name(mine)
            print(f"{name:44s} {_aside(mine)} {_by_thirds(mine)} {_shares(covered(mine, shipped(mine)))}")
    for title, others in (("older runs", older_rows()), ("fresh cells set aside", unseen_rows())):
        print(f"\n{f'{title}, shipped table':44s} {'rows':>14s} {'covered':>14s}")
        for kind in ("slots", "kv"):
            for mine in _groups([row for row in others if row.kind == kind]):
                print(f"{_name(mine):44s} {len(mine):14d} {_shares(covered(mine, shipped(mine)))}")


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by metric and statistic."""
    keys = list(dict.fromkeys((row.metric, row.stat) for row in rows))
    return [[row for row in rows if (row.metric, row.stat) == key] for key in keys]


def _name(rows: Sequence[Row]) -> str:
    return f"{rows[0].table:13s} {rows[0].metric} {rows[0].stat}"


def _aside(rows: Sequence[Row]) -> str:
    """Coverage of the rows set aside by a table of the others; empty where either are missing."""
    return _unseen(rows, [lambda row: row.aside])


def _by_thirds(rows: Sequence[Row]) -> str:
    """Coverage of each third of the settings by tables of the other two."""
    return _unseen(rows, [partial(_in_fold, fold=fold) for fold in range(FOLDS)])


def _in_fold(row: Row, fold: int) -> bool:
    return row.fold == fold


def _unseen(rows: Sequence[Row], parts: Sequence[Callable[[Row], bool]]) -> str:
    seen: list[Row] = []
    bands: list[float] = []
    for left_out in parts:
        for mine in _groups(rows):
            rest, part = [row for row in mine if not left_out(row)], [row for row in mine if left_out(row)]
            if rest and part:
                seen += part
                bands += interpolated(fitted(rest), [row.utilisation for row in part]).tolist()
    return _shares(covered(seen, np.array(bands))) if seen else f"{'':>14s}"


def _shares(found: tuple[float, float]) -> str:
    return f"{f'{100.0 * found[0]:.0f} ({100.0 * found[1]:.0f})':>14s}"


if __name__ == "__main__":
    main()
