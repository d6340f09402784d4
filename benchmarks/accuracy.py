"""Predicted against measured time per output token, row by row, through the whole catalog path.

Prints the page docs/accuracy.md:

    .venv/bin/python benchmarks/accuracy.py > docs/accuracy.md

Nothing here is fitted, but the constants of the step-time model were fitted to these rows: the figures are
in-sample; ``serving_accuracy.py`` predicts rows that were left out. Same input, same digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from qmodel.catalog import load_catalog
from qmodel.perf import memory, step_law
from qmodel.queueing import closed_loop, resident_cap
from qmodel.topology import link_costs
from qmodel.types import Engine, Gpu, Layout

ROWS = Path(__file__).parents[1] / "tests" / "data" / "perf" / "measured_serving.csv"
SEED = 20260101
BURST_SHARE = 0.1  # these benchmarks submit ten requests per user at once
ALIGN_STEPS = (
    60.0  # TensorRT-LLM's scripts hold a prompt back until every attention rank has one; no other row has ranks
)
FP8_CACHE_GPU = "b200-sxm"  # the scripts for SGLang and TensorRT-LLM ask for an FP8 cache there
SGLANG_MEMORY_FRACTION = 0.93  # of the benchmark's launch line, not the engine's default

# How many rows of each model are drawn, and which column tells them apart.
DRAWS = {"gpt-oss-120b": 10, "DeepSeek-R1": 10, "Qwen3-32B": 5, "Llama-3.1-8B": 5}
ENGINES = {"vLLM": "vllm", "SGLang": "sglang", "TensorRT-LLM": "tensorrt-llm"}
PRECISIONS = {"fp8": "fp8", "nvfp4": "fp4", "mxfp4": "auto"}  # rows without a weight type are bf16


def read_rows() -> pd.DataFrame:
    """All closed-loop rows, ordered by id."""
    return pd.read_csv(ROWS).sort_values("id", kind="stable").reset_index(drop=True)


def drawn_rows(rows: pd.DataFrame, seed: int = SEED) -> pd.DataFrame:
    """The fixed sample that the summary is about: ``DRAWS`` rows of each model."""
    rng = np.random.default_rng(seed)
    parts = []
    for model, count in DRAWS.items():
        of_model = rows[rows["model"] == model]
        parts.append(of_model.iloc[np.sort(rng.choice(len(of_model), size=count, replace=False))])
    return pd.concat(parts, ignore_index=True)


def predict(rows: pd.DataFrame) -> pd.DataFrame:
    """Add ``predicted_ms``, ``error`` (relative) and ``band`` to the rows."""
    results = [_predict_row(row) for row in rows.to_dict("records")]
    out = rows.copy()
    out["predicted_ms"] = [1e3 * seconds for seconds, _ in results]
    out["error"] = out["predicted_ms"] / out["tpot_ms_mean"] - 1.0
    out["band"] = [level for _, level in results]
    return out


def _predict_row(row: dict[str, object]) -> tuple[float, str]:
    catalog = load_catalog()
    model, gpu = catalog.model(str(row["model"])), catalog.gpu(str(row["gpu"]))
    engine = _engine(str(row["engine"]), gpu)
    layout = _layout(int(str(row["tp"])), int(str(row["ep"])), int(str(row["dp"])))
    links = link_costs(layout, catalog.default_node(gpu.name), None, None)
    precision = PRECISIONS.get(str(row["dtype_weights"]), "bf16")
    prompt, output = float(str(row["isl_mean"])), float(str(row["osl_mean"]))
    users = float(str(row["load_value"]))
    plan = memory(model, gpu, layout, engine, precision=precision, context_tokens=prompt + output)
    slots = engine.max_num_seqs * layout.dp
    cap = resident_cap(
        max(plan.kv_tokens, 1.0), prompt, output, engine.admission, slots, plan.kv_slope, plan.kv_fixed_tokens
    )
    batch = min(users, float(cap))
    tpot_s, level = 0.0, ""
    for _ in range(2):  # once at the cap, once at the batch that came out
        law = step_law(
            model,
            gpu,
            layout,
            engine,
            context_tokens=prompt + output / 2,
            prompt_tokens=prompt,
            batch=batch,
            constants=catalog.constants,
            links=links,
            precision=precision,
        )
        loop = closed_loop(
            law,
            users,
            prompt,
            output,
            cap,
            BURST_SHARE,
            max_batched_tokens=engine.max_batched_tokens,
            ranks=layout.dp,
            align_steps=ALIGN_STEPS,
        )
        batch, tpot_s, level = float(loop.batch), float(loop.tpot_s), law.band.level
    return tpot_s, level


def _engine(name: str, gpu: Gpu) -> Engine:
    engine = replace(load_catalog().engine(ENGINES[name], gpu), max_batched_tokens=8192)
    if gpu.name == FP8_CACHE_GPU and engine.name != "vllm":
        engine = replace(engine, kv_dtype="fp8")
    if engine.name == "sglang":
        return replace(engine, gpu_memory_utilization=SGLANG_MEMORY_FRACTION)
    return engine


def _layout(gpus: int, ep: int, dp: int) -> Layout:
    """The file's ``tp`` counts the GPUs of the replica; with attention data parallelism ``dp`` equals it."""
    return Layout(tp=gpus // dp, dp=dp, ep=gpus if ep > 1 else 1)


def summary(errors: pd.Series) -> str:
    """Median, mean and 90th percentile of the absolute error, and the median signed error, per cent."""
    size = errors.abs() * 100
    return f"{size.median():.1f} | {size.mean():.1f} | {size.quantile(0.9):.1f} | {errors.median() * 100:+.1f}"


def page() -> str:
    """The accuracy page as Markdown."""
    rows = predict(read_rows())
    sample = predict(drawn_rows(read_rows()))
    trust_a = rows[rows["trust"] == "A"]
    lines = [*INTRODUCTION, f"## {len(sample)} drawn rows", "", *_summary_table([("all drawn rows", sample)])]
    lines += _summary_rows((f"{model}", part) for model, part in sample.groupby("model"))
    lines += ["", *_row_table(sample), "", "## All closed-loop rows", "", *_summary_table([])]
    lines += _summary_rows([("all rows of trust A (InferenceMAX)", trust_a)])
    for keys, part in rows.groupby(["model", "gpu", "engine"]):
        lines += _summary_rows([(" / ".join(keys), part)])
    for dp, part in trust_a.groupby(trust_a["dp"] > 1):
        lines += _summary_rows([("attention data parallel" if dp else "tensor parallel, trust A", part)])
    return "\n".join([*lines, "", *LIMITS]) + "\n"


def _summary_table(parts: Iterable[tuple[str, pd.DataFrame]]) -> list[str]:
    head = ["| rows | number | median | mean | 90th percentile | bias |", "|---|---|---|---|---|---|"]
    return head + _summary_rows(parts)


def _summary_rows(parts: Iterable[tuple[str, pd.DataFrame]]) -> list[str]:
    return [f"| {name} | {len(part)} | {summary(part['error'])} |" for name, part in parts]


def _row_table(rows: pd.DataFrame) -> list[str]:
    lines = [
        "| id | model | GPU | engine | GPUs | dp | prompt / output | users | measured ms | predicted ms | error % |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.itertuples():
        lines.append(
            f"| {row.id} | {row.model} | {row.gpu} | {row.engine} | {row.tp} | {row.dp} | "
            f"{row.isl_mean:.0f} / {row.osl_mean:.0f} | {row.load_value} | {row.tpot_ms_mean:.2f} | "
            f"{row.predicted_ms:.2f} | {row.error * 100:+.1f} |"
        )
    return lines


INTRODUCTION = [
    "# Accuracy",
    "",
    "Printed by `benchmarks/accuracy.py`; do not edit.",
    "",
    "Mean time per output token (TPOT) of public benchmarks at fixed concurrency, against what the catalog's",
    "models, GPUs and constants, the memory model, the step law and the closed-loop queue predict from the",
    "row's model, GPU, engine, layout, lengths and number of users. **In-sample**: the constants were fitted to these",
    "rows, so this shows that the equations are right, not how well they transfer. Rows that were left out of the fit,",
    "throughput and TTFT: [accuracy-serving](accuracy-serving.md).",
    "",
    "Errors are per cent of the measured value: median, mean and 90th percentile of the absolute error, and the median",
    "signed error (bias). Rows, sources and licences: `tests/data/perf/README.md`.",
    "",
    "![Predicted against measured time per output token, 2 to 140 ms](accuracy-tpot.svg)",
    "",
    "Drawn by `benchmarks/accuracy_plot.py`; the dashed lines are a quarter too high and too low.",
    "",
    "Plans for recorded traffic against a replay of it: [accuracy-traces](accuracy-traces.md). Queueing models against",
    "exact solutions and simulations: [accuracy-queues](accuracy-queues.md). Collectives and expert exchanges against",
    "measurements: [accuracy-collectives](accuracy-collectives.md).",
    "",
]

LIMITS = [
    "## Limits of this comparison",
    "",
    "* Attention data parallelism rests on 16 rows of one model and engine.",
    "* The trust-A rows have at most 8k tokens of context and models with little KV traffic, so they say little about",
    "  the KV term; the dense rows do.",
    "* SGLang and TensorRT-LLM run with an FP8 cache on B200, as the scripts of the benchmark ask for.",
    "* Weight types that a row does not state are taken as bf16, which fits their lowest-load TPOT.",
    "* Prompts and outputs of the InferenceMAX rows are uniform on 0.8 to 1 of the nominal length; the means are used.",
]


if __name__ == "__main__":
    print(page(), end="")
