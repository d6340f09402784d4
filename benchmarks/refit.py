"""Fit the constants of the step-time model anew and write them, with their bands, into the catalog's file.

    .venv/bin/python benchmarks/refit.py DATA_DIR

DATA_DIR holds ``measured_serving.csv`` and ``step_latency_grid.csv.gz``. One fit to all rows gives the constants; fits
without a half, a slice, a GPU or a model give the bands. Same input, same digits; about ten minutes on one core.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from fit_constants import CAPS, CONSTANTS, Fit, evidence, fit
from serving_folds import FOLDS, Predictions, predict, predict_unseen

from qmodel.catalog import load_catalog
from qmodel.types import EngineConstants, FloatArray

FILE = Path(__file__).parents[1] / "qmodel" / "catalog" / "data" / "engine_constants.yaml"
LEVEL_OF = {
    "random half": "exact override",
    "unseen (GPU, engine, model)": "GPU x engine x model slice never seen",
    "unseen GPU": "GPU never seen",
    "unseen model": "MoE/MLA architecture never seen",
}
KEPT = "nothing fitted (start values, final structure)"


def errors(table: pd.DataFrame, name: str) -> FloatArray:
    """Absolute percentage errors of a predicted column."""
    return np.asarray(100 * np.abs(table[f"{name}_p"] / table[name] - 1.0))


def flow(values: dict[str, object]) -> str:
    """A YAML flow mapping of numbers at four digits."""
    parts = (f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}" for key, value in values.items())
    return "{" + ", ".join(parts) + "}"


def levels(found: dict[str, Predictions], base: EngineConstants) -> str:
    """The bands of both quantities, as the file holds them."""
    lines = ["  bands_tpot_ape_pct:"]
    for folds, level in LEVEL_OF.items():
        table = found[folds].loop
        if folds == "unseen model":
            table = table[table["model_class"] != "dense"]
        size = errors(table, "tpot")
        basis = f"{folds}, {len(size)} closed-loop rows"
        lines.append(
            f"    {level}: {{p50: {np.median(size):.3g}, p90: {np.quantile(size, 0.9):.3g}, basis: '{basis}'}}"
        )
    kept = base.bands[KEPT]
    lines.append(f"    {KEPT}: {{p50: {kept['p50']:g}, p90: {kept['p90']:g}, basis: '{kept['basis']}'}}")
    lines.append("  bands_offline_ape_pct:")
    for folds in ("random half", "unseen GPU", "unseen model"):
        size = errors(found[folds].offline, "rate")
        level = "model never seen (dense, Mixtral)" if folds == "unseen model" else LEVEL_OF[folds]
        lines.append(f"    {level}: {{p50: {np.median(size):.3g}, p90: {np.quantile(size, 0.9):.3g}}}")
    kept = base.bands_offline["nothing fitted"]
    lines.append(f"    nothing fitted: {{p50: {kept['p50']:g}, p90: {kept['p90']:g}}}")
    return "\n".join(lines) + "\n"


def sections(constants: EngineConstants, half: Predictions, whole: Predictions) -> dict[str, str]:
    """The fitted sections of the file."""
    text = {}
    for name in ("gpu_defaults", "engine_factors", "quant_factors", "class_factors"):
        rows = getattr(constants, name)
        text[name] = f"{name}:\n" + "".join(f"  {key}: {flow(dict(values))}\n" for key, values in rows.items())
    text["caps"] = f"caps: {flow(dict(CAPS))}\n"
    lines = ["overrides:\n"]
    for item in constants.overrides:
        cell = (item["gpu"], item["engine"], item["quant"])
        band = {}
        for label, source in (("in_sample", whole), ("half_split_cv", half)):
            own = [
                errors(table[(table[["gpu_row", "engine_family", "quant"]] == list(cell)).all(axis=1)], name)
                for table, name in ((source.loop, "tpot"), (source.offline, "rate"))
            ]
            size = np.concatenate(own)
            for p in (50, 90):
                band[f"{label}_p{p}_ape"] = float(np.percentile(size, p)) if size.size else "null"
        capped = [name for name in CONSTANTS if item["constants"][name] >= CAPS.get(name, np.inf)]
        lines.append(
            f"- gpu: {cell[0]}\n  engine: {cell[1]}\n  quant: {cell[2]}\n  n_points: {item['n_points']}\n"
            f"  models: [{', '.join(item['models'])}]\n  classes: [{', '.join(item['classes'])}]\n"
            f"  constants: {flow(dict(item['constants']))}\n  at_bound: [{', '.join(capped)}]\n  band: {flow(band)}\n"
        )
    text["overrides"] = "".join(lines)
    return text


def replaced(text: str, parts: dict[str, str]) -> str:
    """The file with some of its top-level sections replaced."""
    pieces = re.split(r"(?m)^(?=[a-z_]+:)", text)
    return "".join(parts.get(piece.split(":", 1)[0], piece) for piece in pieces)


def refit(folder: Path) -> dict[str, Predictions]:
    """Fit, predict each fold, write; returns the predictions."""
    base = load_catalog().constants
    given = evidence(folder)
    full: Fit = fit(given)
    constants = full.constants(base)
    found = {name: predict_unseen(given, name, base, full) for name in FOLDS}
    text = FILE.read_text(encoding="utf-8")
    order = text[text.index("\nfallback:") + 1 : text.index("  bands_tpot_ape_pct:")]
    parts = sections(constants, found["random half"], predict(given, constants))
    parts["fallback"] = order + levels(found, base)
    FILE.write_text(replaced(text, parts), encoding="utf-8")
    return found


if __name__ == "__main__":
    refit(Path(sys.argv[1]))
