"""Public serving measurements as rows that the step-time model predicts, many at once.

Read from a folder that holds ``measured_serving.csv`` and ``step_latency_grid.csv.gz``; used by ``serving_accuracy.py``
and ``fit_constants.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from qmodel.catalog import Catalog, load_catalog
from qmodel.perf import memory, quant_family
from qmodel.perf.components import Pass, PassModel, stack_constants
from qmodel.perf.pass_shapes import PassShape, pass_shape, stack_shapes
from qmodel.perf.step_constants import StepConstants, model_class, resolve_constants
from qmodel.queueing import closed_loop, resident_cap
from qmodel.topology import link_costs
from qmodel.types import Engine, EngineConstants, FloatArray, Gpu, Layout, Model

__all__ = ["Rows", "grid_rows", "loop_rows", "offline_rows", "read_measured", "static_rows"]

ENGINES = {"vLLM": "vllm", "SGLang": "sglang", "TensorRT-LLM": "tensorrt-llm"}
PRECISIONS = {
    "fp8": "fp8",
    "fp8 (block)": "fp8",
    "nvfp4": "fp4",
    "fp4": "fp4",
    "mxfp4": "auto",
    "bf16": "bf16",
    "fp16": "bf16",
}
SGLANG_MEMORY_FRACTION = 0.93  # of the benchmarks' launch line, not the engine's default
BUDGET_TOKENS = 8192  # of a step, in every benchmark
TRT_SLOTS = 2048
BURST_SHARE = 0.1  # InferenceMAX submits ten requests per user at once
WAVE_SHARE = 0.4  # fixed lengths under an engine that serves prompts first: users stay in step
# The last requests of such a run leave users idle: measured throughput over users x output / (TTFT + (output - 1) TPOT)
# is 0.977 on all of its rows, 0.967 to 0.988 on nine in ten.
BUSY_SHARE = 0.977
STALL_S, STALL_RATIO = 20.0, 20.0  # a p99 TTFT beyond both is a one-off stall of the machine
# Settings of the InferenceMAX scripts (github.com/SemiAnalysisAI/InferenceX, benchmarks/): how often SGLang on B200
# looks for requests, and how long TensorRT-LLM holds a prompt back until all attention ranks have one; both keep an FP8
# cache.
POLL_STEPS, BUSY_POLL_STEPS, BUSY_USERS = 10.0, 30.0, 16.0
ALIGN_STEPS = 60.0
# Requests per run of the TensorRT-LLM pages, by prompt and output tokens; 1,500 where not listed.
OFFLINE_REQUESTS = {
    (128, 128): 30000,
    (128, 2048): 3000,
    (2048, 128): 3000,
    (1000, 1000): 3000,
    (500, 2000): 3000,
    (20000, 2000): 1000,
}
USUAL_REQUESTS = 1500
# Slices that contradict their own load column, see docs/theory/step-time.md.
WIDE_PREFILL, WIDE_TOKENS = {1000: 57674.0, 2000: 54543.0, 4000: 50302.0}, 16384
WIDE_DECODE, WIDE_BATCH = 22282.0, 256
DROPPED = (("Qwen3-32B", "GB200", "TensorRT-LLM"), ("Llama-3.1-8B", "H200", "vLLM"))
GRID_MODELS = {
    "Qwen/Qwen3-32B": "qwen3-32b",
    "meta-llama/Meta-Llama-3.1-8B": "llama-3.1-8b",
    "meta-llama/Meta-Llama-3.1-70B": "llama-3.1-70b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
}
GRID_GPUS = {
    "a100_sxm": "a100-80-sxm",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "gb200": "gb200",
    "l40s": "l40s",
}
GRID_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
GRID_PRECISIONS = {
    "bf16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "auto",
    "mxfp4_a8": "auto",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Measurements, and what a pass of each costs at data-sheet speed.

    Attributes:
        table: one line per row; ``gpu_row engine_family quant model_class`` say which constants apply.
        shape: numbers of shape (n, 1).
        owner: index of each row into ``subjects``.
        subjects: distinct (model, GPU, engine, precision).
    """

    table: pd.DataFrame
    shape: PassShape
    owner: FloatArray
    subjects: tuple[tuple[Model, Gpu, Engine, str], ...]

    def __len__(self) -> int:
        return len(self.table)

    def take(self, mask: FloatArray) -> Rows:
        """Some of the rows."""
        table = self.table[mask].reset_index(drop=True)
        return replace(self, table=table, shape=self.shape.take(mask), owner=self.owner[mask])

    def resolved(self, constants: EngineConstants) -> tuple[StepConstants, ...]:
        """What the catalog's rules make of the constants, one record per subject."""
        return tuple(
            resolve_constants(model, gpu, engine, constants=constants, precision=precision)
            for model, gpu, engine, precision in self.subjects
        )

    def passes(self, constants: EngineConstants) -> PassModel:
        """The step-time model of all rows."""
        found = self.resolved(constants)
        return PassModel(shape=self.shape, constants=stack_constants([found[index] for index in self.owner]))

    def column(self, name: str) -> FloatArray:
        """A column of the table, shape (n, 1)."""
        return self.table[name].to_numpy(dtype=float)[:, None]


def read_measured(folder: Path) -> pd.DataFrame:
    """All measured rows, with ``source`` cut to the letters of the id."""
    table = pd.read_csv(folder / "measured_serving.csv").sort_values("id", kind="stable").reset_index(drop=True)
    return table.assign(source=table["id"].str.split("-").str[0])


def loop_rows(measured: pd.DataFrame, trust: tuple[str, ...] = ("A", "B")) -> Rows:
    """Closed-loop rows of one replica, without the two slices that contradict themselves."""
    plain = measured[
        (measured["load_kind"] == "concurrency")
        & measured["trust"].isin(trust)
        & measured["engine"].isin(ENGINES)
        & measured["source"].isin(["imx", "aic"])
    ]
    dropped = [key in DROPPED for key in zip(plain["model"], plain["gpu"], plain["engine"], strict=True)]
    plain = plain[~np.array(dropped, dtype=bool)]
    lines, shapes = _lines(plain, _loop_line)
    return _rows(lines, shapes)


def offline_rows(measured: pd.DataFrame) -> Rows:
    """Saturated throughput of the TensorRT-LLM pages."""
    plain = measured[(measured["load_kind"] == "offline") & measured["source"].isin(["trt14", "trt20", "trt10"])]
    return _rows(*_lines(plain, _offline_line))


def static_rows(measured: pd.DataFrame) -> Rows:
    """Step times of static batches."""
    plain = measured[(measured["load_kind"] == "static_batch") & measured["source"].isin(["spl", "trt06"])]
    plain = plain[~((plain["source"] == "spl") & (plain["tp"] == 2) & (plain["load_value"].astype(float) == 64))]
    return _rows(*_lines(plain, _static_line))


def grid_rows(folder: Path, count: int | None = None, seed: int = 20260101) -> Rows:
    """Points of the grid of operator times, all or a drawn sample."""
    table = pd.read_csv(folder / "step_latency_grid.csv.gz")
    if count is not None and count < len(table):
        drawn = np.random.default_rng(seed).choice(len(table), size=count, replace=False)
        table = table.iloc[np.sort(drawn)].reset_index(drop=True)
    table["moe_ep"] = table["moe_ep"].fillna(1)
    lines: list[dict[str, object]] = []
    shapes: list[PassShape] = []
    known: dict[tuple[object, ...], tuple[dict[str, object], PassShape]] = {}
    columns = ["model", "gpu", "backend", "quant", "kv_quant", "tp", "attn_dp", "moe_ep"]
    for row in table.to_dict("records"):
        key = tuple(row[name] for name in columns)
        if key not in known:
            known[key] = _grid_subject(row)
        line, shape = known[key]
        batch = float(row["batch_per_dp_rank"]) * float(row["attn_dp"])
        new, context = float(row["new_tokens_per_seq"]), float(row["context_len"])
        decode = row["phase"] == "decode"
        lines.append(
            line
            | {
                "phase": row["phase"],
                "batch": batch if decode else 0.0,
                "context": context if decode else 0.0,
                "prefill": 0.0 if decode else batch * new,
                # Half of 2 c - q is the mean span of a chunk that ends at c.
                "prompt": 0.0 if decode else 2 * context - new,
                "samples": batch,
                "measured": row["latency_ms"] / 1e3,
                **{name: row[name] for name in ("attn_ms", "gemm_ms", "moe_ms", "comm_ms", "other_ms", "silicon_frac")},
            }
        )
        shapes.append(shape)
    return _rows(lines, shapes)


def wide_rows() -> Rows:
    """Passes of the published wide-expert deployment of DeepSeek-V3 on H100 under SGLang.

    Prompt tokens and output tokens per second and node of eight; 16,384 prompt tokens per rank are assumed.
    """
    catalog = load_catalog()
    gpu, node = catalog.gpu("h100-sxm"), catalog.default_node("h100-sxm")
    engine, fabric = catalog.engine("sglang", gpu), _fabric(gpu, catalog)
    lines, shapes = [], []
    passes = [(32, 0, WIDE_TOKENS * 32, prompt, rate) for prompt, rate in WIDE_PREFILL.items()]
    passes.append((72, WIDE_BATCH * 72, 0, 2050, WIDE_DECODE))
    for number, (ranks, batch, prefill, tokens, rate) in enumerate(passes):
        setting = _Setting(
            model=catalog.model("deepseek-v3"),
            gpu=gpu,
            engine=engine,
            layout=Layout(dp=ranks, ep=ranks),
            precision="fp8",
        )
        links = link_costs(setting.layout, node, fabric, None)
        shapes.append(pass_shape(setting.model, gpu, setting.layout, engine, links=links, precision="fp8"))
        work = {"batch": batch, "context": tokens, "prefill": prefill, "prompt": tokens}
        seconds = (prefill or batch) * 8 / ranks / rate
        lines.append(
            setting.line() | work | {"id": f"wide-{number}", "trust": "A", "source": "wide", "measured": seconds}
        )
    return _rows(lines, shapes)


def loop_times(rows: Rows, passes: PassModel) -> dict[str, FloatArray]:
    """Mean TPOT and TTFT in s and output tokens per second, shape (n,)."""
    prompt = rows.column("prompt")

    def step(batch: FloatArray, context: FloatArray, prefill: FloatArray) -> FloatArray:
        return passes.step_s(Pass.of(batch, context, prefill, prompt))

    loop = closed_loop(
        step,
        rows.column("users"),
        prompt,
        rows.column("output"),
        rows.column("cap"),
        rows.column("burst"),
        max_batched_tokens=BUDGET_TOKENS,
        front_end_s=np.asarray(passes.constants.t_fe) * 1e-3,
        poll_steps=rows.column("poll"),
        ranks=rows.column("dp"),
        align_steps=rows.column("align"),
    )
    return {
        "tpot": np.ravel(loop.tpot_s),
        "ttft": np.ravel(loop.ttft_s),
        "rate": np.ravel(loop.output_tokens_per_s * rows.column("busy")),
    }


def offline_rate(rows: Rows, passes: PassModel) -> FloatArray:
    """Output tokens per second of a queue that never empties until its end, shape (n,)."""
    prompt, output, requests = rows.column("prompt"), rows.column("output"), rows.column("requests")
    full = np.minimum(np.floor(rows.column("cap")), requests)
    rest = np.mod(requests, full)

    def wave_s(batch: FloatArray) -> FloatArray:
        context = prompt + output / 2
        lump = np.where(prompt >= BUDGET_TOKENS, BUDGET_TOKENS, np.clip(batch * prompt / output, prompt, BUDGET_TOKENS))
        decode = passes.step_s(Pass.of(batch, context))
        added = (passes.step_s(Pass.of(batch, context, lump, prompt)) - decode) * prompt / lump
        alone = passes.step_s(Pass.of(0.0 * batch, context, BUDGET_TOKENS, prompt)) * prompt / BUDGET_TOKENS
        steps = output * decode
        return np.where(batch * prompt / (output * lump) <= 1.0, steps + batch * added, steps + batch * alone)

    total = np.floor(requests / full) * wave_s(full) + np.where(rest > 0, wave_s(np.maximum(rest, 1.0)), 0.0)
    return np.ravel(requests * output / total)


def step_times(rows: Rows, passes: PassModel) -> FloatArray:
    """Time of one pass per row, shape (n,)."""
    work = Pass.of(*(rows.column(name) for name in ("batch", "context", "prefill", "prompt")))
    return np.ravel(passes.step_s(work))


def static_times(rows: Rows, passes: PassModel) -> FloatArray:
    """Decode step and whole prefill of a static batch, s, shape (n, 2)."""
    batch, prompt = rows.column("batch"), rows.column("prompt")
    decode = passes.step_s(Pass.of(batch, rows.column("context")))
    prefill = passes.step_s(Pass.of(0.0 * batch, prompt, batch * prompt, prompt))
    return np.concatenate([decode, prefill], axis=1)


def _rows(lines: list[dict[str, object]], shapes: list[PassShape]) -> Rows:
    subjects: dict[tuple[str, ...], int] = {}
    kept: list[tuple[Model, Gpu, Engine, str]] = []
    owner = []
    for line in lines:
        model, gpu, engine, precision = (line.pop(name) for name in ("_model", "_gpu", "_engine", "_precision"))
        assert isinstance(model, Model) and isinstance(gpu, Gpu) and isinstance(engine, Engine)
        key = (model.name, gpu.name, engine.constants, str(line["quant"]))
        if key not in subjects:
            subjects[key] = len(kept)
            kept.append((model, gpu, engine, str(precision)))
        owner.append(subjects[key])
    return Rows(
        table=pd.DataFrame(lines), shape=stack_shapes(shapes), owner=np.array(owner, dtype=int), subjects=tuple(kept)
    )


Line = Callable[[dict[str, object], "_Setting"], dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    model: Model
    gpu: Gpu
    engine: Engine
    layout: Layout
    precision: str

    def cap(self, prompt: float, output: float) -> float:
        plan = memory(
            self.model,
            self.gpu,
            self.layout,
            self.engine,
            precision=self.precision,
            context_tokens=prompt + output,
        )
        slots = self.engine.max_num_seqs * self.layout.dp
        tokens = max(plan.kv_tokens, 1.0)
        return float(
            resident_cap(tokens, prompt, output, self.engine.admission, slots, plan.kv_slope, plan.kv_fixed_tokens)  # type: ignore[arg-type]
        )

    def line(self) -> dict[str, object]:
        return {
            "_model": self.model,
            "_gpu": self.gpu,
            "_engine": self.engine,
            "_precision": self.precision,
            "model": self.model.name,
            "gpu_row": self.gpu.constants_row,
            "gpu": self.gpu.name,
            "engine_family": self.engine.constants,
            "quant": quant_family(self.model, self.gpu, self.precision),
            "model_class": model_class(self.model),
            "tp": self.layout.tp,
            "dp": self.layout.dp,
            "ep": self.layout.ep,
            "gpus": self.layout.gpus,
        }


def _lines(table: pd.DataFrame, line: Line) -> tuple[list[dict[str, object]], list[PassShape]]:
    catalog = load_catalog()
    lines, shapes = [], []
    for row in table.to_dict("records"):
        setting = _setting(row, catalog)
        links = link_costs(setting.layout, catalog.default_node(setting.gpu.name), None, None)
        shapes.append(
            pass_shape(
                setting.model, setting.gpu, setting.layout, setting.engine, links=links, precision=setting.precision
            )
        )
        identity = {"id": row["id"], "trust": row["trust"], "source": row["source"]}
        lines.append(setting.line() | identity | line(row, setting))
    return lines, shapes


def _setting(row: Mapping[str, object], catalog: Catalog) -> _Setting:
    model, gpu = _model(str(row["model"]), catalog), catalog.gpu(str(row["gpu"]))
    family = {"trt14": "TRTcpp", "trt06": "TRTcpp", "spl": "legacy"}.get(str(row["source"]))
    name = ENGINES.get(str(row["engine"]), "vllm")
    engine = replace(catalog.engine(name, gpu), max_batched_tokens=BUDGET_TOKENS)
    if engine.name == "sglang":
        engine = replace(engine, gpu_memory_utilization=SGLANG_MEMORY_FRACTION)
    if engine.name == "tensorrt-llm":
        engine = replace(engine, max_num_seqs=TRT_SLOTS)
    if family:
        engine = replace(engine, constants=family)
    if row["dtype_kv"] == "fp8" or ((row["source"], row["gpu"]) == ("imx", "B200") and engine.name != "vllm"):
        engine = replace(engine, kv_dtype="fp8")
    gpus, ranks, experts = _whole(row["tp"]), _whole(row["dp"]), _whole(row["ep"])
    if row["source"] == "trt10" and model.moe:  # these pages spread attention over ranks, and experts whole
        ranks = experts = gpus
    layout = Layout(tp=gpus // ranks, dp=ranks, ep=gpus if experts > 1 else 1)
    # Rows that state no weight type fit bf16, those of SGLang 0.5.8 FP8.
    unstated = "fp8" if "0.5.8" in str(row["engine_version"]) else "bf16"
    precision = PRECISIONS.get(str(row["dtype_weights"]), unstated)
    return _Setting(model=model, gpu=gpu, engine=engine, layout=layout, precision=precision)


def _model(name: str, catalog: Catalog) -> Model:
    if name == "Llama-2-70B":  # the shape of its successors with a smaller vocabulary
        return replace(catalog.model("llama-3.1-70b"), name="llama-2-70b", vocab=32000)
    return catalog.model(name)


def _loop_line(row: dict[str, object], setting: _Setting) -> dict[str, object]:
    prompt, output, users = (float(str(row[name])) for name in ("isl_mean", "osl_mean", "load_value"))
    p99, p50 = float(str(row["ttft_ms_p99"])), float(str(row["ttft_ms_p50"]))
    stalled = p99 > STALL_S * 1e3 and p99 > STALL_RATIO * p50
    fixed = row["length_distribution"] == "fixed" and setting.engine.name == "sglang"
    return {
        "users": users,
        "prompt": prompt,
        "output": output,
        "cap": setting.cap(prompt, output),
        "burst": BURST_SHARE if row["source"] == "imx" else WAVE_SHARE if fixed else 0.0,
        "busy": BUSY_SHARE if row["source"] == "imx" else 1.0,
        "stalled": stalled,
        "poll": _poll_steps(row, users),
        "align": ALIGN_STEPS if row["source"] == "imx" and setting.engine.name == "tensorrt-llm" else 0.0,
        "tpot": float(str(row["tpot_ms_mean"])) / 1e3,
        "ttft": float(str(row["ttft_ms_mean"])) / 1e3,
        "ttft_p50": p50 / 1e3,
        "rate": float(str(row["output_tps_total"])),
    }


def _poll_steps(row: Mapping[str, object], users: float) -> float:
    """Steps between two looks at the queue: what the InferenceMAX scripts for SGLang on B200 set."""
    if row["source"] != "imx" or row["engine"] != "SGLang" or row["gpu"] != "B200":
        return 1.0
    return BUSY_POLL_STEPS if users >= BUSY_USERS else POLL_STEPS


def _offline_line(row: dict[str, object], setting: _Setting) -> dict[str, object]:
    prompt, output = float(str(row["isl_mean"])), float(str(row["osl_mean"]))
    return {
        "prompt": prompt,
        "output": output,
        "requests": float(OFFLINE_REQUESTS.get((int(prompt), int(output)), USUAL_REQUESTS)),
        "cap": setting.cap(prompt, output),
        "rate": float(str(row["output_tps_total"])),
    }


def _static_line(row: dict[str, object], setting: _Setting) -> dict[str, object]:
    batch, prompt, output = (float(str(row[name])) for name in ("load_value", "isl_mean", "osl_mean"))
    return {
        "batch": batch,
        "context": prompt + (output if np.isfinite(output) else 0.0) / 2,
        "prompt": prompt,
        "tpot": float(str(row["tpot_ms_mean"])) / 1e3,
        "ttft": float(str(row["ttft_ms_mean"])) / 1e3,
    }


def _grid_subject(row: Mapping[str, object]) -> tuple[dict[str, object], PassShape]:
    catalog = load_catalog()
    model, gpu = catalog.model(GRID_MODELS[str(row["model"])]), catalog.gpu(GRID_GPUS[str(row["gpu"])])
    kv_dtype = "fp8" if row["kv_quant"] == "fp8" else "bf16"
    engine = replace(catalog.engine(GRID_ENGINES[str(row["backend"])], gpu), kv_dtype=kv_dtype)
    if row["quant"] == "mxfp4":  # unpacked to 16 bit, also where there are FP4 units
        gpu = replace(gpu, dense_tflops={name: peak for name, peak in gpu.dense_tflops.items() if name != "fp4"})
    gpus, ranks = _whole(row["num_gpus"]), _whole(row["attn_dp"])
    layout = Layout(tp=max(gpus // ranks, 1), dp=ranks, ep=gpus if _whole(row["moe_ep"]) > 1 else 1)
    precision = GRID_PRECISIONS[str(row["quant"])]
    setting = _Setting(model=model, gpu=gpu, engine=engine, layout=layout, precision=precision)
    links = link_costs(layout, catalog.default_node(gpu.name), _fabric(gpu, catalog), None)
    shape = pass_shape(model, gpu, layout, engine, links=links, precision=precision)
    return setting.line() | {"grid_quant": row["quant"]}, shape


def _fabric(gpu: Gpu, catalog: Catalog):  # type: ignore[no-untyped-def]
    node = catalog.default_node(gpu.name)
    return catalog.fabric(node.nic_fabric) if node.nic_fabric else None


def _whole(value: object) -> int:
    number = float(str(value))
    return int(number) if np.isfinite(number) and number >= 1 else 1
