"""What of a model fits on a GPU: one row per layout, with memory by use, context and concurrency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from qmodel.cli.output import Answer
from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.catalog import Catalog
    from qmodel.perf import MemoryPlan
    from qmodel.report import Block
    from qmodel.types import Engine, Gpu, Layout, Model

__all__ = ["memory_answer"]

Row = Mapping[str, object]
COLUMNS = (
    "layout",
    "gpus",
    "fits",
    "weights_gib",
    "workspace_gib",
    "graphs_gib",
    "kv_room_gib",
    "margin_gib",
    "kv_tokens",
    "max_context_tokens",
    "concurrency",
    "reason",
    "change",
)
DIGITS = 2


def memory_answer(
    catalog: Catalog,
    model_name: str,
    gpu_name: str,
    *,
    engine_name: str = "vllm",
    version: str | None = None,
    precision: str | None = None,
    max_tokens: int | None = None,
) -> Answer:
    """Memory of a model on a GPU in each layout of one node, with what would make the others fit.

    Args:
        catalog: where the names are looked up.
        model_name: a model.
        gpu_name: a GPU.
        engine_name: an engine; its defaults on this GPU apply.
        version: its release; None: the newest that the catalog describes.
        precision: weight type; None: the checkpoint's own.
        max_tokens: longest request; None: the model's own context.

    Raises:
        CatalogError: if a name is unknown.
        ScenarioError: if the precision is unknown, or the request is longer than the model's context.
    """
    from qmodel.perf import layouts, memory

    model, gpu = catalog.model(model_name), catalog.gpu(gpu_name)
    engine, node = catalog.engine(engine_name, gpu, version), catalog.default_node(gpu_name)
    longest = float(max_tokens or model.max_context)
    if longest > model.max_context:
        hint = f"at most {model.max_context}"
        what = f"{model.name} has a context of {model.max_context:,} tokens (got {max_tokens:,})"
        raise ScenarioError([Problem(what=what, file="--max-tokens", hint=hint)])
    try:
        found = layouts(
            model, gpu, node, engine=engine, precision=precision, max_tokens=longest, max_gpus=node.gpus_per_node
        )
    except ValueError as error:
        what = str(error).removeprefix("precision: ")
        raise ScenarioError([Problem(what=what, file="--precision")]) from error
    rows: list[Row] = [
        _row(layout, memory(model, gpu, layout, engine, precision=precision, max_tokens=longest), longest)
        for layout in found.legal
    ]
    for refusal in found.refused:
        if refusal.kind == "memory":
            plan = memory(model, gpu, refusal.layout, engine, precision=precision, max_tokens=longest)
            rows.append(_row(refusal.layout, plan, longest))
        elif refusal.kind != "gpus":
            blank = dict.fromkeys(COLUMNS)
            change = {"reason": f"{refusal.kind}: {refusal.reason}", "change": refusal.change}
            rows.append({**blank, "layout": str(refusal.layout), "gpus": refusal.layout.gpus, "fits": "no", **change})
    rows.sort(key=lambda row: int(str(row["gpus"])))
    data = {
        "model": model.name,
        "gpu": gpu.name,
        "engine": engine.name,
        "version": engine.version,
        "precision": precision or "auto",
        "usable_gib": gpu.usable_gib,
        "max_tokens": int(longest),
        "layouts": rows,
    }
    return Answer(
        data=lambda: data,
        page=lambda: _page(catalog, model, gpu, engine, int(longest), rows),
        tables={"layouts": lambda: (rows, COLUMNS)},
    )


def _row(layout: Layout, plan: MemoryPlan, longest: float) -> Row:
    return {
        "layout": str(layout),
        "gpus": layout.gpus,
        "fits": "tight" if plan.tight else "yes" if plan.fits else "no",
        "weights_gib": round(plan.weights_gib, DIGITS),
        "workspace_gib": round(plan.activation_gib + plan.other_gib, DIGITS),
        "graphs_gib": round(plan.graphs_gib, DIGITS),
        "kv_room_gib": round(plan.kv_room_gib, DIGITS),
        "margin_gib": round(plan.margin_gib, DIGITS),
        "kv_tokens": int(plan.kv_tokens),
        "max_context_tokens": plan.max_context_tokens,
        "concurrency": plan.concurrency(longest),
        "reason": plan.reason.removeprefix("memory: "),
        "change": plan.change,
    }


def _page(
    catalog: Catalog, model: Model, gpu: Gpu, engine: Engine, longest: int, rows: Sequence[Row]
) -> tuple[Block, ...]:
    from qmodel.perf import memory_rule, resolve_constants
    from qmodel.report import Column, Lines, TextTable

    shown = [name for name in COLUMNS if name not in ("reason", "change")]
    table = TextTable(
        title=f"{model.name} on {gpu.name} under {engine.name} {engine.version}, GiB per GPU",
        columns=tuple(Column(header=name, numeric=name not in ("layout", "fits")) for name in shown),
        rows=tuple(tuple(_cell(row[name]) for name in shown) for row in rows),
    )
    constants = resolve_constants(model, gpu, engine, constants=catalog.constants)
    release = f", not in the catalog: defaults of {engine.defaults_of}" if engine.defaults_of else ""
    lines = [
        f"engine: memory as {memory_rule(engine).label} ({memory_rule(engine).source}){release}",
        f"host: {constants.h0:.2f} ms a step and {constants.h1:.1f} us a sequence; up to {engine.max_batched_tokens:,} "
        f"tokens a step; {constants.provenance}",
        f"{gpu.usable_gib:.2f} GiB usable of {gpu.hbm_gib:.2f} that the driver reports, "
        f"gpu_memory_utilization {engine.gpu_memory_utilization:g}, max_num_seqs {engine.max_num_seqs}",
        f"concurrency: requests of {longest:,} tokens at once; tight: a margin below 3 % of the usable memory",
    ]
    for row in rows:
        if row["fits"] == "no":
            lines.append(
                f"{row['layout']}: {row['reason']}" + (f"; to proceed: {row['change']}" if row["change"] else "")
            )
    return (table, Lines(lines=tuple(lines)))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
