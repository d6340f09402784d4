"""The fit of the constants of the step-time model; ``refit.py`` runs it and writes the catalog's file.

The logarithm of a constant is a sum over levels: all, vendor, GPU, engine, weight type, model class, and the cell
GPU x engine x weight type. Each level has a normal prior around 0, the first around ``START``: values a reader of data
sheets and profiles would start from, so that no measurement enters twice. The sum of soft absolute log errors and
prior terms is minimised by Gauss-Newton steps with damping; see docs/theory/step-time.md, "The fit".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from serving_rows import (
    Rows,
    grid_rows,
    loop_rows,
    loop_times,
    offline_rate,
    offline_rows,
    read_measured,
    static_rows,
    static_times,
    step_times,
    wide_rows,
)

from qmodel.perf.components import PassModel
from qmodel.perf.step_constants import StepConstants
from qmodel.types import EngineConstants, FloatArray

__all__ = ["CONSTANTS", "Evidence", "Fit", "evidence", "fit"]

# Start values and the prior deviation of their logarithm, level by level:
# constant: (start, all, GPU, engine, weight type, class, cell)
START: dict[str, tuple[float, float, float, float, float, float, float]] = {
    "e_w": (0.80, 0.15, 0.08, 0.08, 0.15, 0.0, 0.06),
    "e_f": (0.60, 0.2, 0.12, 0.12, 0.2, 0.1, 0.08),
    "e_kv": (0.80, 0.15, 0.08, 0.1, 0.0, 0.1, 0.06),
    "e_fa": (0.30, 0.3, 0.1, 0.2, 0.0, 0.0, 0.1),
    "e_ap": (0.50, 0.3, 0.15, 0.15, 0.0, 0.2, 0.1),
    "e_mw": (0.75, 0.2, 0.1, 0.1, 0.2, 0.15, 0.06),
    "e_mf": (0.45, 0.4, 0.15, 0.2, 0.3, 0.3, 0.1),
    "m0": (8.0, 0.7, 0.0, 0.3, 0.0, 0.0, 0.0),
    "eta": (0.80, 0.15, 0.0, 0.0, 0.0, 0.05, 0.0),
    "w_h": (110.0, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0),
    "c_l": (45.0, 0.4, 0.2, 0.3, 0.1, 0.2, 0.12),
    "c_m": (30.0, 0.5, 0.2, 0.3, 0.1, 0.2, 0.12),
    "c_pl": (250.0, 0.5, 0.2, 0.4, 0.1, 0.3, 0.2),
    "ar_a": (6.0, 0.4, 0.2, 0.2, 0.0, 0.0, 0.1),
    "ar_f": (0.35, 0.4, 0.2, 0.2, 0.0, 0.0, 0.1),
    "ar_fp": (0.50, 0.3, 0.2, 0.2, 0.0, 0.0, 0.1),
    "h0": (0.6, 0.5, 0.2, 0.4, 0.0, 0.2, 0.15),
    "h1": (5.0, 0.5, 0.0, 0.4, 0.0, 0.0, 0.15),
    "t_fe": (40.0, 0.7, 0.3, 0.7, 0.0, 0.3, 0.3),
}
CONSTANTS = tuple(START)
LEVELS = ("all", "gpu_row", "engine_family", "quant", "model_class", "cell")
VENDOR_DEVIATION = 0.3  # of every constant: AMD's kernels and libraries are another stack
# Public measurements of CDNA3 stacks: about five sixths of the share of bandwidth and three quarters of the share of
# the peak that NVIDIA's reach, launches and collectives twice as slow; logarithms.
AMD_START = {
    "e_w": -0.15,
    "e_mw": -0.15,
    "e_kv": -0.15,
    "e_f": -0.25,
    "e_mf": -0.25,
    "c_l": 0.7,
    "c_m": 0.7,
    "c_pl": 0.4,
    "ar_a": 0.8,
    "ar_f": -0.4,
    "ar_fp": -0.4,
    "h0": 0.7,
}
AMD_ROWS = ("MI300X", "MI355X")
CAPS = {"e_w": 0.97, "e_kv": 0.97, "e_mw": 0.97, "e_f": 0.95, "e_ap": 0.95, "ar_f": 0.95, "ar_fp": 1.2, "eta": 1.0}
CELL_PARTS = ("loop", "offline", "static")  # whose rows make a cell
SOFT = 2.0  # errors beyond this many deviations count linearly
STEP = 1e-3  # of a logarithm, in finite differences
ITERATIONS = 14
GRID_POINTS = 3000

Predict = Callable[[PassModel], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of one kind, and what of them is fitted.

    Attributes:
        name: ``loop``, ``offline``, ``static``, ``wide`` or ``grid``.
        rows: measurements.
        predict: logarithms of the predictions, shape (n, quantities).
        measured: logarithms of what was measured, NaN where it was not.
        noise: deviation of the log error that is expected, same shape.
    """

    name: str
    rows: Rows
    predict: Predict
    measured: FloatArray
    noise: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All parts of the fit."""

    parts: tuple[Part, ...]

    def without(self, drop: Callable[[pd.DataFrame], FloatArray]) -> Evidence:
        """The same without the serving measurements of some rows; wide experts and the grid stay."""
        kept = []
        for part in self.parts:
            if part.name not in CELL_PARTS:
                kept.append(part)
                continue
            gone = np.asarray(drop(part.rows.table), dtype=bool)
            measured = np.where(gone[:, None], np.nan, part.measured)
            kept.append(replace(part, measured=measured))
        return Evidence(parts=tuple(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What was found.

    Attributes:
        names: level, key and constant of each number.
        values: logarithms, shape (p,).
        cells: rows fitted in each cell.
        models: models fitted in each cell.
        classes: their classes.
    """

    names: tuple[tuple[str, str, str], ...]
    values: FloatArray
    cells: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    models: Mapping[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    classes: Mapping[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)

    def constants(self, base: EngineConstants) -> EngineConstants:
        """The catalog's record of this fit; bands, memory and specifications stay those of ``base``."""
        found = {name: float(value) for name, value in zip(self.names, self.values, strict=True)}

        def level(kind: str, key: str) -> dict[str, float]:
            return {name: found[kind, key, name] for name in CONSTANTS if (kind, key, name) in found}

        def factors(kind: str, keys: list[str]) -> dict[str, dict[str, float]]:
            return {key: {name: float(np.exp(value)) for name, value in level(kind, key).items()} for key in keys}

        everywhere = level("all", "")
        rows = {}
        for row in base.gpu_defaults:
            amd, own = level("vendor", "amd") if row in AMD_ROWS else {}, level("gpu_row", row)
            rows[row] = {
                name: float(np.exp(value + amd.get(name, 0.0) + own.get(name, 0.0)))
                for name, value in everywhere.items()
            }
        engines = factors("engine_family", list(base.engine_factors))
        quants = factors("quant", list(base.quant_factors))
        overrides = []
        for cell, points in sorted(self.cells.items()):
            if not points:
                continue
            row, engine, quant = cell
            own = level("cell", "|".join(cell))
            values = {
                name: rows[row][name]
                * engines[engine].get(name, 1.0)
                * quants[quant].get(name, 1.0)
                * float(np.exp(own.get(name, 0.0)))
                for name in CONSTANTS
            }
            overrides.append(
                {
                    "gpu": row,
                    "engine": engine,
                    "quant": quant,
                    "n_points": points,
                    "models": list(self.models[cell]),
                    "classes": list(self.classes[cell]),
                    "constants": values,
                }
            )
        return replace(
            base,
            gpu_defaults=rows,
            engine_factors=engines,
            quant_factors=quants,
            class_factors=factors("model_class", list(base.class_factors)),
            caps=CAPS,
            overrides=tuple(overrides),  # type: ignore[arg-type]
        )


def evidence(folder: Path, grid_points: int = GRID_POINTS) -> Evidence:
    """Everything that the constants are fitted to."""
    measured = read_measured(folder)
    loops, offline, static = loop_rows(measured), offline_rows(measured), static_rows(measured)
    known = np.isin(offline.table["model"], ["llama-4-maverick", "qwen3-30b-a3b"], invert=True)
    parts = [_loop_part(loops), _offline_part(offline.take(known)), _static_part(static)]
    parts.append(_wide_part(wide_rows()))
    if grid_points:
        parts.append(_grid_part(grid_rows(folder, grid_points)))
    return Evidence(parts=tuple(parts))


def _loop_part(rows: Rows) -> Part:
    table = rows.table
    trusted = (table["trust"] == "A").to_numpy()
    below_knee = (~table["stalled"] & (table["users"] <= table["cap"])).to_numpy()
    measured = np.log(table[["tpot", "ttft"]].to_numpy(dtype=float))
    measured[~(trusted & below_knee), 1] = np.nan

    def predict(passes: PassModel) -> FloatArray:
        times = loop_times(rows, passes)
        return np.log(np.stack([times["tpot"], times["ttft"]], axis=1))

    noise = np.where(trusted[:, None], [0.05, 0.15], [0.10, 0.30])
    return Part(name="loop", rows=rows, predict=predict, measured=measured, noise=noise)


def _offline_part(rows: Rows) -> Part:
    def predict(passes: PassModel) -> FloatArray:
        return np.log(offline_rate(rows, passes))[:, None]

    measured = np.log(rows.table[["rate"]].to_numpy(dtype=float))
    return Part(name="offline", rows=rows, predict=predict, measured=measured, noise=np.full(measured.shape, 0.07))


def _static_part(rows: Rows) -> Part:
    def predict(passes: PassModel) -> FloatArray:
        return np.log(static_times(rows, passes))

    measured = np.log(rows.table[["tpot", "ttft"]].to_numpy(dtype=float))
    return Part(name="static", rows=rows, predict=predict, measured=measured, noise=np.full(measured.shape, 0.15))


def _wide_part(rows: Rows) -> Part:
    def predict(passes: PassModel) -> FloatArray:
        return np.log(step_times(rows, passes))[:, None]

    measured = np.log(rows.table[["measured"]].to_numpy(dtype=float))
    return Part(name="wide", rows=rows, predict=predict, measured=measured, noise=np.full(measured.shape, 0.07))


def _grid_part(rows: Rows) -> Part:
    def predict(passes: PassModel) -> FloatArray:
        bare = replace(passes, constants=replace(passes.constants, h0=0.0, h1=0.0))
        return np.log(step_times(rows, bare))[:, None]

    measured = np.log(rows.table[["measured"]].to_numpy(dtype=float))
    return Part(name="grid", rows=rows, predict=predict, measured=measured, noise=np.full(measured.shape, GRID_NOISE))


GRID_NOISE = 0.6  # a model of kernels, not a measurement: 3,000 points weigh like some hundred measured ones


def _keys(table: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str, str], FloatArray]]:
    columns = ["gpu_row", "engine_family", "quant", "model_class"]
    for key, index in table.groupby(columns, sort=True).indices.items():
        yield key, np.asarray(index)


def _terms(key: tuple[str, str, str, str]) -> list[tuple[str, str, str]]:
    """Every (level, key, constant) whose logarithms add up to the constants of this key."""
    row, engine, quant, kind = key
    found = []
    for position, level in enumerate(LEVELS):
        label = {"all": "", "gpu_row": row, "engine_family": engine, "quant": quant, "model_class": kind}.get(
            level, "|".join((row, engine, quant))
        )
        found += [(level, label, name) for name in CONSTANTS if START[name][1 + position] > 0]
    if row in AMD_ROWS:
        found += [("vendor", "amd", name) for name in CONSTANTS if START[name][2] > 0]
    return found


def _mean(term: tuple[str, str, str]) -> float:
    level, _, name = term
    return float(np.log(START[name][0])) if level == "all" else AMD_START.get(name, 0.0) if level == "vendor" else 0.0


def _deviation(term: tuple[str, str, str]) -> float:
    level, _, name = term
    return VENDOR_DEVIATION if level == "vendor" else START[name][1 + LEVELS.index(level)]


def fit(given: Evidence, start: Fit | None = None, iterations: int = ITERATIONS) -> Fit:
    """The most plausible constants.

    Args:
        given: measurements.
        start: where to begin, None: at the prior.
        iterations: Gauss-Newton steps.
    """
    keys = [[*_keys(part.rows.table)] for part in given.parts]
    terms = list(dict.fromkeys(term for part in keys for key, _ in part for term in _terms(key)))
    place = {term: index for index, term in enumerate(terms)}
    mean = np.array([_mean(term) for term in terms])
    weight = 1.0 / np.array([_deviation(term) for term in terms]) ** 2
    values = mean.copy()
    if start is not None:
        known = dict(zip(start.names, start.values, strict=True))
        values = np.array([known.get(term, value) for term, value in zip(terms, mean, strict=True)])
    spots = {key: [(place[term], CONSTANTS.index(term[2])) for term in _terms(key)] for part in keys for key, _ in part}
    caps = np.log([CAPS.get(name, np.inf) for name in CONSTANTS])

    def logs_of(point: FloatArray, part: int) -> FloatArray:
        logs = np.empty((len(given.parts[part].rows), len(CONSTANTS)))
        for key, index in keys[part]:
            own = np.zeros(len(CONSTANTS))
            np.add.at(own, [spot for _, spot in spots[key]], point[[where for where, _ in spots[key]]])
            logs[index] = own
        return logs

    def residuals(part: int, logs: FloatArray) -> FloatArray:
        piece = given.parts[part]
        error = (piece.predict(_passes(piece.rows, np.minimum(logs, caps))) - piece.measured) / piece.noise
        return np.where(np.isfinite(error), error, 0.0)

    def cost(point: FloatArray) -> float:
        total = float(np.sum(weight * (point - mean) ** 2))
        for part in range(len(given.parts)):
            error = residuals(part, logs_of(point, part))
            total += float(np.sum(2 * SOFT**2 * (np.sqrt(1 + (error / SOFT) ** 2) - 1)))
        return total

    damping, current = 1e-3, cost(values)
    for _ in range(iterations):
        gradient, curvature = weight * (values - mean), np.diag(weight)
        for part in range(len(given.parts)):
            logs = logs_of(values, part)
            error = residuals(part, logs)
            pull = 1.0 / np.sqrt(1 + (error / SOFT) ** 2)
            slopes = np.stack(
                [(residuals(part, logs + STEP * unit) - error) / STEP for unit in np.eye(len(CONSTANTS))], axis=-1
            )
            for key, index in keys[part]:
                where, spot = (np.array(side) for side in zip(*spots[key], strict=True))
                own = slopes[index].reshape(-1, len(CONSTANTS))
                pulled = own * pull[index].reshape(-1, 1)
                gradient[where] += (pulled.T @ error[index].ravel())[spot]
                curvature[np.ix_(where, where)] += (pulled.T @ own)[np.ix_(spot, spot)]
        while True:
            moved = values - np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), gradient)
            attempt = cost(moved)
            if attempt < current or damping > 1e4:
                break
            damping *= 10
        if attempt >= current:
            break
        gain, values, current, damping = current - attempt, moved, attempt, max(damping / 10, 1e-6)
        if gain < 1e-4 * current:
            break
    return Fit(names=tuple(terms), values=values, **_counts(given))


def _passes(rows: Rows, logs: FloatArray) -> PassModel:
    values = np.exp(logs)[:, :, None]
    numbers = {name: values[:, index] for index, name in enumerate(CONSTANTS)}
    return PassModel(shape=rows.shape, constants=_RECORD(**numbers))


def _record(**numbers: FloatArray) -> StepConstants:
    from qmodel.types import Band

    return StepConstants(**numbers, band=Band(), provenance="fit")  # type: ignore[arg-type]


_RECORD = _record


def _counts(given: Evidence) -> dict[str, Mapping[tuple[str, str, str], Any]]:
    tables = [
        part.rows.table[np.isfinite(part.measured).any(axis=1)] for part in given.parts if part.name in CELL_PARTS
    ]
    rows = pd.concat(tables, ignore_index=True).groupby(["gpu_row", "engine_family", "quant"])
    cells = {cell: len(own) for cell, own in rows}
    named = {name: {cell: tuple(sorted(set(own[name]))) for cell, own in rows} for name in ("model", "model_class")}
    return {"cells": cells, "models": named["model"], "classes": named["model_class"]}
