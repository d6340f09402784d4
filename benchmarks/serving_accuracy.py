"""How far the step-time model lies from public measurements, fitted and unseen: prints docs/accuracy-serving.md.

    .venv/bin/python benchmarks/serving_accuracy.py DATA_DIR [LENGTHS] > docs/accuracy-serving.md

DATA_DIR holds ``measured_serving.csv`` and ``step_latency_grid.csv.gz``; LENGTHS is a table of the prompt and output
tokens of the MLPerf DeepSeek-R1 data set, without which that section is left out. Rows called unseen are predicted by
constants that were fitted anew without them. About ten minutes on one core; same input, same digits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from fit_constants import evidence, fit
from serving_folds import FOLDS, Predictions, pair_order, predict, predict_unseen
from serving_layouts import mlperf_rows, node_batches, node_ratios, wide_rows
from serving_rows import grid_rows, offline_rows, read_measured, step_times

from qmodel.catalog import load_catalog
from qmodel.types import EngineConstants, FloatArray

SLOTS = (256, 1024)
UNFITTED = ("llama-4-maverick", "qwen3-30b-a3b")
HEAD = "| rows | number | median | mean | 90th percentile | bias |\n|---|---|---|---|---|---|"


def line(label: str, error: FloatArray) -> str:
    """One line of a table of relative errors."""
    error = error[np.isfinite(error)]
    if not error.size:
        return f"| {label} | 0 | | | | |"
    size = 100 * np.abs(error)
    spread = f"{np.median(size):.1f} | {size.mean():.1f} | {np.quantile(size, 0.9):.1f}"
    return f"| {label} | {error.size} | {spread} | {100 * np.median(error):+.1f} |"


def error(table: pd.DataFrame, name: str) -> FloatArray:
    """Relative errors of a predicted column."""
    return np.asarray(table[f"{name}_p"] / table[name] - 1.0)


def quantities(found: Predictions) -> Iterable[tuple[str, FloatArray]]:
    """Each quantity's errors."""
    loop = found.loop
    trusted = loop[loop["trust"] == "A"]
    steady = trusted[~trusted["stalled"].astype(bool)]
    below = steady[steady["users"] <= steady["cap"]]
    yield "TPOT, closed loop, trust A", error(trusted, "tpot")
    yield "TPOT, closed loop, trust B", error(loop[loop["trust"] == "B"], "tpot")
    yield "output tok/s, closed loop", error(steady, "rate")
    yield "mean TTFT below the KV knee", error(below, "ttft")
    yield "mean TTFT, all", error(steady, "ttft")
    offline = found.offline[~found.offline["model"].isin(UNFITTED)]
    yield "offline tok/s", error(offline, "rate")


def quantity_tables(found: dict[str, Predictions]) -> str:
    """One table per way of predicting."""
    text = []
    for name, predictions in found.items():
        lines = [line(label, errors) for label, errors in quantities(predictions)]
        text.append(f"### {name[0].upper() + name[1:]}\n\n{HEAD}\n" + "\n".join(lines) + "\n")
    return "\n".join(text)


def slice_table(found: Predictions) -> str:
    """Unseen slices one by one."""
    lines = [
        line(" / ".join(map(str, key)), error(part, "tpot"))
        for key, part in found.loop.groupby(["trust", "model", "gpu_row", "engine_family"])
    ]
    return f"{HEAD}\n" + "\n".join(lines) + "\n"


def order_table(found: dict[str, Predictions]) -> str:
    """Pairs of layouts that differ by more than a tenth in tokens per second and GPU."""
    lines = ["| pairs | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    cells: dict[str, list[str]] = {}
    for predictions in found.values():
        for label, (right, pairs) in _orders(predictions):
            cells.setdefault(label, []).append(f"{right} of {pairs}" if pairs else "")
    return "\n".join([*lines, *(f"| {label} | " + " | ".join(cell) + " |" for label, cell in cells.items())]) + "\n"


def _orders(found: Predictions) -> Iterable[tuple[str, tuple[int, int]]]:
    offline = found.offline.reset_index(drop=True)
    same = ["source", "model", "gpu_row", "quant", "prompt", "output"]
    gpus = offline["gpus"].to_numpy()
    yield (
        "tensor degrees, offline",
        pair_order(offline, same, "tp", offline["rate"].to_numpy() / gpus, offline["rate_p"].to_numpy() / gpus),
    )
    loop = found.loop[(found.loop["trust"] == "A") & ~found.loop["stalled"].astype(bool)].reset_index(drop=True)
    loop = loop.assign(users_per_gpu=loop["users"] / loop["gpus"], ranks=loop["dp"] > 1)
    same = ["model", "gpu_row", "engine_family", "quant", "prompt", "output"]
    plain = loop[loop["dp"] == 1].reset_index(drop=True)
    for label, table, more, differ in (
        ("tensor degrees at equal users per GPU", plain, ["users_per_gpu"], "gpus"),
        ("tensor parallel against attention ranks", loop, ["users", "gpus"], "ranks"),
    ):
        gpus = table["gpus"].to_numpy()
        order = pair_order(
            table, same + more, differ, table["rate"].to_numpy() / gpus, table["rate_p"].to_numpy() / gpus
        )
        yield label, order


def band_table(found: dict[str, Predictions]) -> str:
    """Share of rows within the nine-in-ten band that their prediction carries."""
    lines = ["| rows | closed loop, TPOT | trust A alone |", "|---|---|---|"]
    for name, predictions in found.items():
        loop = predictions.loop
        inside = np.abs(error(loop, "tpot")) <= loop["band"].to_numpy()
        trusted = (loop["trust"] == "A").to_numpy()
        lines.append(f"| {name} | {100 * inside.mean():.0f} % | {100 * inside[trusted].mean():.0f} % |")
    return "\n".join(lines) + "\n"


def grid_table(folder: Path, constants: EngineConstants) -> str:
    """The grid of operator times, host terms off."""
    rows = grid_rows(folder)
    passes = rows.passes(constants)
    bare = replace(passes, constants=replace(passes.constants, h0=0.0, h1=0.0))
    errors = step_times(rows, bare) / rows.table["measured"].to_numpy() - 1.0
    groups = rows.table.groupby(["phase", "model_class"]).indices
    return f"{HEAD}\n" + "\n".join(line(" ".join(key), errors[index]) for key, index in groups.items()) + "\n"


def never_fitted(folder: Path, constants: EngineConstants) -> str:
    """Offline mixtures of the 1.0 page, which no fit saw."""
    from serving_rows import offline_rate

    rows = offline_rows(read_measured(folder))
    rows = rows.take(rows.table["model"].isin(UNFITTED).to_numpy())
    errors = offline_rate(rows, rows.passes(constants)) / rows.table["rate"].to_numpy() - 1.0
    groups = rows.table.groupby(["model", "gpu_row"]).indices
    return f"{HEAD}\n" + "\n".join(line(" / ".join(key), errors[index]) for key, index in groups.items()) + "\n"


def frame(table: pd.DataFrame) -> str:
    """A table of records as Markdown."""
    head = "| " + " | ".join(map(str, table.columns)) + " |\n|" + "---|" * len(table.columns)
    cells = (
        " | ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row)
        for row in table.itertuples(index=False)
    )
    return head + "\n" + "\n".join(f"| {row} |" for row in cells) + "\n"


def page(folder: Path, lengths: Path | None) -> str:
    """The whole page."""
    constants = load_catalog().constants
    given = evidence(folder)
    full = fit(given)
    found = {name: predict_unseen(given, name, constants, full) for name in FOLDS}
    return page_of(folder, lengths, {"in sample, shipped constants": predict(given, constants)} | found)


def page_of(folder: Path, lengths: Path | None, found: dict[str, Predictions]) -> str:
    """The page of predictions that are there already."""
    constants = load_catalog().constants
    parts = [INTRODUCTION, "## Quantities\n", quantity_tables(found)]
    parts += ["## Unseen slices\n", slice_table(found["unseen (GPU, engine, model)"])]
    parts += ["## Layouts in order\n", ORDER, order_table(found)]
    parts += ["## Bands\n", BANDS, band_table(found)]
    parts += ["## Grid of operator times\n", GRID, grid_table(folder, constants)]
    parts += ["## Mixtures never fitted\n", never_fitted(folder, constants)]
    parts += ["## Wide expert parallelism\n", WIDE, frame(wide_rows(constants))]
    if lengths:
        parts += ["## Poisson arrivals\n", POISSON, frame(mlperf_rows(read_measured(folder), lengths, constants))]
    parts += ["## One node\n", NODE]
    for slots in SLOTS:
        table = node_batches(constants, slots)
        parts += [f"### {slots} sequences\n", frame(table), frame(node_ratios(table))]
    return "\n".join(parts)


INTRODUCTION = """# Accuracy of step times

Printed by `benchmarks/serving_accuracy.py`; do not edit.

Errors are per cent of the measured value: median, mean and 90th percentile of the absolute error, and the median
signed error (bias). Closed loop: InferenceMAX (trust A) and NVIDIA aiconfigurator's silicon samples (trust B) at a
fixed number of users; throughput and TTFT leave out rows with a one-off stall. Offline: the performance pages of
TensorRT-LLM 0.14, 0.20 and 1.0. Below the first table every row is predicted by constants fitted without it: without
a random half, without all rows of its GPU, engine and model, without its model, without its GPU. The grid of operator
times stays in every fit.
"""
ORDER = (
    "Pairs of layouts whose measured tokens per second and GPU differ by more than a tenth: how many come in order.\n"
)
BANDS = "Share of rows whose error lies within the band (p90) that the prediction carries.\n"
GRID = "A model built on measured kernels (aiconfigurator), not a measurement; host terms are off.\n"
WIDE = "Tokens per second and node of eight H100; 16,384 prompt tokens per rank are assumed.\n"
POISSON = (
    "DeepSeek-R1 under MLPerf's Server scenario; seconds, predictions end in `_p`. The layout is not published: the one"
    " that\nmeets the limits best. Its engine seems to hold prompts back until all attention ranks have one, which the"
    " queue leaves out.\n"
)
NODE = (
    "2,000 requests at once on 8x H200 (arXiv:2605.19775), lognormal outputs with 45 % above 5,000 tokens and a log"
    " deviation\nof 0.8; the engine's `max_num_seqs`, the length law and the meaning of the published time are not"
    " stated.\n"
)


if __name__ == "__main__":
    print(page(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None), end="")
