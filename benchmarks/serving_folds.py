"""Predictions of rows by constants that were fitted without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from fit_constants import Evidence, Fit, fit
from serving_rows import Rows, loop_times, offline_rate

from qmodel.types import EngineConstants, FloatArray

__all__ = ["FOLDS", "Predictions", "pair_order", "predict", "predict_unseen"]

REFIT_ITERATIONS = 6  # from the fit to all rows; more change nothing in the digits shown

Drop = Callable[[pd.DataFrame], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Predicted values, NaN where a row was in no fold.

    Attributes:
        loop: the closed-loop rows with columns ``tpot_p ttft_p rate_p band``.
        offline: the offline rows with columns ``rate_p band``.
    """

    loop: pd.DataFrame
    offline: pd.DataFrame


def _half(table: pd.DataFrame, seed: int) -> FloatArray:
    """Whether a row is in the first half; drawn by its id, so that further rows change nothing."""
    hashed = pd.util.hash_pandas_object(table["id"] + f"/{seed}", index=False)
    return np.asarray(hashed % 2 == 0)


def _halves(evidence: Evidence) -> Iterator[Drop]:
    yield lambda table: _half(table, 0)
    yield lambda table: ~_half(table, 0)


def _groups(columns: list[str], loops_only: bool) -> Callable[[Evidence], Iterator[Drop]]:
    def folds(evidence: Evidence) -> Iterator[Drop]:
        tables = [evidence.parts[0].rows.table] + ([] if loops_only else [evidence.parts[1].rows.table])
        keys: dict[tuple[object, ...], None] = {}
        for table in tables:
            keys |= dict.fromkeys(map(tuple, table[columns].drop_duplicates().to_numpy().tolist()))
        for key in sorted(keys, key=str):
            yield lambda table, key=key: (table[columns] == list(key)).all(axis=1).to_numpy()

    return folds


FOLDS: dict[str, Callable[[Evidence], Iterator[Drop]]] = {
    "random half": _halves,
    "unseen (GPU, engine, model)": _groups(["gpu_row", "engine_family", "model"], loops_only=True),
    "unseen model": _groups(["model"], loops_only=False),
    "unseen GPU": _groups(["gpu_row"], loops_only=False),
}


def predict(evidence: Evidence, constants: EngineConstants) -> Predictions:
    """All rows by one set of constants."""
    loop, offline = (evidence.parts[index].rows for index in (0, 1))
    everything = np.ones(len(loop), dtype=bool), np.ones(len(offline), dtype=bool)
    return Predictions(loop=_loop(loop, everything[0], constants), offline=_offline(offline, everything[1], constants))


def predict_unseen(evidence: Evidence, folds: str, base: EngineConstants, full: Fit) -> Predictions:
    """Each fold by a fit without it.

    Args:
        evidence: all rows.
        folds: a key of ``FOLDS``.
        base: what is not fitted.
        full: fit to all rows, where the refits start.
    """
    loops, offlines = [], []
    for drop in FOLDS[folds](evidence):
        constants = fit(evidence.without(drop), start=full, iterations=REFIT_ITERATIONS).constants(base)
        loop, offline = (evidence.parts[index].rows for index in (0, 1))
        for rows, store, tables in ((loop, _loop, loops), (offline, _offline, offlines)):
            gone = np.asarray(drop(rows.table), dtype=bool)
            if gone.any():
                tables.append(store(rows, gone, constants))
    empty = predict(evidence, base)
    return Predictions(
        loop=pd.concat(loops, ignore_index=True) if loops else empty.loop.iloc[:0],
        offline=pd.concat(offlines, ignore_index=True) if offlines else empty.offline.iloc[:0],
    )


def _bands(rows: Rows, constants: EngineConstants) -> FloatArray:
    found = rows.resolved(constants)
    return np.array([found[index].band.p90 for index in rows.owner])


def _loop(rows: Rows, mask: FloatArray, constants: EngineConstants) -> pd.DataFrame:
    part = rows.take(mask)
    times = loop_times(part, part.passes(constants))
    named = {f"{name}_p": values for name, values in times.items()}
    return part.table.assign(**named, band=_bands(part, constants))


def _offline(rows: Rows, mask: FloatArray, constants: EngineConstants) -> pd.DataFrame:
    part = rows.take(mask)
    rate = offline_rate(part, part.passes(constants))
    return part.table.assign(rate_p=rate, band=_bands(part, constants))


def pair_order(
    table: pd.DataFrame, same: list[str], differ: str, measured: FloatArray, predicted: FloatArray
) -> tuple[int, int]:
    """Pairs of rows that differ by more than a tenth, and how many of them are predicted in the measured order.

    Args:
        table: rows.
        same: columns in which the rows of a pair agree.
        differ: column in which they do not.
        measured: values, one per row.
        predicted: likewise.
    """
    right = pairs = 0
    for _, index in table.groupby(same).indices.items():
        first, second = np.triu_indices(len(index), 1)
        one, other = index[first], index[second]
        apart = table[differ].to_numpy()[one] != table[differ].to_numpy()[other]
        true = np.log(measured[one] / measured[other])
        guess = np.log(predicted[one] / predicted[other])
        counted = apart & (np.abs(true) > np.log(1.1))
        pairs += int(counted.sum())
        right += int((counted & (np.sign(true) == np.sign(guess))).sum())
    return right, pairs
