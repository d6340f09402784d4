"""Whole-replica predictions for rows that state no layout, many layouts, or a batch: MLPerf, wide experts, a node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from qmodel.catalog import Catalog, load_catalog
from qmodel.perf import decode_step_s, memory, step_law
from qmodel.queueing import PoolPrediction, closed_batch, pool
from qmodel.topology import link_costs
from qmodel.types import Engine, EngineConstants, Gpu, Layout, Lengths, Model, Replica, Stream
from qmodel.workload import lengths_from_arrays, lognormal_law

__all__ = ["mlperf_rows", "node_batches", "node_ratios", "wide_rows"]

GPUS_IN_ISLAND = {"GB200": 72, "GB300": 72}
MLPERF_LAYOUTS = (
    Layout(tp=4, ep=4),
    Layout(tp=8, ep=8),
    Layout(dp=4, ep=4),
    Layout(dp=8, ep=8),
    Layout(tp=4),
    Layout(tp=8),
)
MLPERF_TTFT_S, MLPERF_TPOT_S = 2.0, 0.08  # limits of the Server scenario on p99
MLPERF_SLOTS = 1024
# Mean prompt of the paper's data set and its share of outputs above 5,000 tokens fix a lognormal up to its spread.
SEED_PROMPT_TOKENS, SEED_LONG_TOKENS, SEED_LONG_QUANTILE = 105.0, 5000.0, 0.1257
SEED_REQUESTS, SEED_MOST_TOKENS = 2000, 32768
SEED_LAYOUTS: tuple[tuple[str, str, Layout, int, float], ...] = (
    ("r1-distill-qwen-14b", "DP8", Layout(), 8, 332.0),
    ("r1-distill-qwen-14b", "PP2 TP4", Layout(tp=4, pp=2), 1, 1172.0),
    ("r1-distill-qwen-32b", "DP8", Layout(), 8, 857.0),
    ("r1-distill-qwen-32b", "TP8", Layout(tp=8), 1, 686.0),
    ("r1-distill-qwen-32b", "DP4 TP2", Layout(tp=2), 4, 484.0),
    ("llama-3.1-405b", "TP8", Layout(tp=8), 1, 986.0),
    ("llama-3.1-405b", "PP8", Layout(pp=8), 1, 7537.0),
    ("deepseek-r1", "PP4 TP2", Layout(tp=2, pp=4), 1, 1663.0),
    ("deepseek-r1", "TP8", Layout(tp=8), 1, 2047.0),
)
SEED_RATIOS = (
    ("llama-3.1-405b", "PP8", "TP8"),
    ("r1-distill-qwen-14b", "PP2 TP4", "DP8"),
    ("r1-distill-qwen-32b", "TP8", "DP8"),
    ("r1-distill-qwen-32b", "DP4 TP2", "DP8"),
    ("deepseek-r1", "TP8", "PP4 TP2"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    model: Model
    gpu: Gpu
    engine: Engine
    layout: Layout
    precision: str | None
    lengths: Lengths

    def replica(self, constants: EngineConstants, catalog: Catalog, batch: float) -> Replica | None:
        """The engine instance as queues see it, None where it does not fit."""
        context = self.lengths.mean_context
        named = {"precision": self.precision, "context_tokens": context}
        plan = memory(self.model, self.gpu, self.layout, self.engine, **named)  # type: ignore[arg-type]
        if not plan.fits:
            return None
        law = step_law(
            self.model,
            self.gpu,
            self.layout,
            self.engine,
            context_tokens=context,
            prompt_tokens=self.lengths.prompt.mean,
            batch=batch,
            constants=constants,
            links=link_costs(self.layout, catalog.default_node(self.gpu.name), None, None),
            precision=self.precision,
        )
        return Replica(
            step=law,
            max_num_seqs=self.engine.max_num_seqs * self.layout.dp,
            kv_tokens=plan.kv_tokens,
            max_batched_tokens=self.engine.max_batched_tokens * self.layout.dp,
            watermark=0.0,
            admission="full_prompt",
            kv_slope=plan.kv_slope,
            kv_fixed_tokens=plan.kv_fixed_tokens,
        )


def mlperf_rows(measured: pd.DataFrame, lengths_file: Path, constants: EngineConstants) -> pd.DataFrame:
    """DeepSeek-R1 under Poisson arrivals, in the layout that meets the limits best: submitters tune."""
    catalog = load_catalog()
    drawn = pd.read_csv(lengths_file)
    lengths = lengths_from_arrays(drawn["prompt_tokens"], drawn["output_tokens"])
    rows = measured[(measured["load_kind"] == "rate") & (measured["model"] == "DeepSeek-R1")]
    lines = []
    for row in rows.to_dict("records"):
        gpu, count = catalog.gpu(str(row["gpu"])), int(str(row["notes"]).split(" GPUs total")[0])
        engine = replace(catalog.engine("tensorrt-llm", gpu), max_num_seqs=MLPERF_SLOTS, kv_dtype="fp8")
        found: list[tuple[Layout, PoolPrediction]] = []
        for layout in MLPERF_LAYOUTS:
            subject = _Subject(
                model=catalog.model("deepseek-r1"),
                gpu=gpu,
                engine=engine,
                layout=layout,
                precision="fp4",
                lengths=lengths,
            )
            replica = subject.replica(constants, catalog, 128.0 * layout.gpus)
            if replica is not None:
                stream = Stream(name="a", rate_rps=float(row["request_rate_rps"]), lengths=lengths)
                found.append((layout, pool(replica, [stream], count // layout.gpus, "jsq")))
        layout, best = min(found, key=lambda item: _excess(item[1]))
        lines.append({"id": row["id"], "gpu": row["gpu"], "gpus": count, "layout": str(layout), "stable": best.stable})
        for name, stat in product(("ttft", "tpot"), ("mean", "p50", "p99")):
            true = float(row[f"{name}_ms_{stat}"]) / 1e3
            own = best["a"].metric(name) if best.stable else None  # type: ignore[arg-type]
            value = np.nan if own is None else own.mean if stat == "mean" else own.quantile(float(stat[1:]) / 100)
            lines[-1] |= {f"{name}_{stat}": true, f"{name}_{stat}_p": value}
    return pd.DataFrame(lines)


def _excess(found: PoolPrediction) -> float:
    if not found.stable:
        return 10.0 + found.utilisation
    metrics = found["a"]
    return max(metrics.ttft.quantile(0.99) / MLPERF_TTFT_S, metrics.tpot.quantile(0.99) / MLPERF_TPOT_S)


def wide_rows(constants: EngineConstants) -> pd.DataFrame:
    """The published wide-expert deployment of SGLang on H100: prompt tokens and output tokens per second and node."""
    catalog = load_catalog()
    gpu, node = catalog.gpu("h100-sxm"), catalog.default_node("h100-sxm")
    assert node.nic_fabric
    fabric = catalog.fabric(node.nic_fabric)
    engine = replace(catalog.engine("sglang", gpu), max_batched_tokens=16384 * 32)  # 16k tokens per rank, assumed
    lines = []
    prefill = Layout(dp=32, ep=32)
    links = link_costs(prefill, node, fabric, None)
    for prompt, published in ((1000, 57674.0), (2000, 54543.0), (4000, 50302.0)):
        tokens = 16384 * 32
        seconds = _pass_s(prefill, gpu, engine, constants, links, tokens, prompt)
        lines.append({"what": f"prefill EP32, {prompt}", "published": published, "predicted": tokens / seconds / 4})
    decode = Layout(dp=72, ep=72)
    seconds = float(
        decode_step_s(
            "deepseek-v3",
            gpu,
            decode,
            engine,
            batch=256 * 72,
            context_tokens=2050,
            constants=constants,
            links=link_costs(decode, node, fabric, None),
        )
    )
    lines.append({"what": "decode EP72, 256 each", "published": 22282.0, "predicted": 256 * 8 / seconds})
    return pd.DataFrame(lines)


def _pass_s(
    layout: Layout, gpu: Gpu, engine: Engine, constants: EngineConstants, links: object, tokens: int, prompt: int
) -> float:
    from qmodel.perf.components import Pass, pass_model

    passes = pass_model(
        load_catalog().model("deepseek-v3"),
        gpu,
        layout,
        engine,
        constants=constants,
        links=links,  # type: ignore[arg-type]
    )
    return float(passes.step_s(Pass.of(0.0, 0.0, tokens, prompt)))


def node_batches(constants: EngineConstants, slots: int, log_sd: float = 0.8) -> pd.DataFrame:
    """2,000 requests at once on one node of eight H200: mean request time and makespan of the published layouts."""
    catalog = load_catalog()
    gpu = catalog.gpu("h200-sxm")
    engine = replace(catalog.engine("vllm", gpu), max_num_seqs=slots)
    mean = SEED_LONG_TOKENS * np.exp(-SEED_LONG_QUANTILE * log_sd + log_sd**2 / 2)
    lengths = Lengths.independent(
        lognormal_law(SEED_PROMPT_TOKENS, 0.5),
        lognormal_law(float(mean), float(np.sqrt(np.expm1(log_sd**2))), maximum=SEED_MOST_TOKENS),
    )
    lines = []
    for name, label, layout, copies, published in SEED_LAYOUTS:
        subject = _Subject(
            model=catalog.model(name), gpu=gpu, engine=engine, layout=layout, precision=None, lengths=lengths
        )
        replica = subject.replica(constants, catalog, 64.0)
        if replica is None:
            continue
        batch = closed_batch(replica, SEED_REQUESTS, lengths, copies)
        lines.append(
            {
                "model": name,
                "layout": label,
                "published": published,
                "mean_s": batch.mean_completion_s,
                "makespan_s": batch.makespan_s,
            }
        )
    return pd.DataFrame(lines)


def node_ratios(table: pd.DataFrame) -> pd.DataFrame:
    """Ratios between layouts of a model, published and predicted."""
    known = table.set_index(["model", "layout"])
    lines = []
    for model, over, under in SEED_RATIOS:
        if (model, over) in known.index and (model, under) in known.index:
            ratio = known.loc[(model, over)] / known.loc[(model, under)]
            lines.append({"model": model, "ratio": f"{over} / {under}"} | ratio.to_dict())
    return pd.DataFrame(lines)
