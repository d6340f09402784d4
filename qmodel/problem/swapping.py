"""Evicted sequences that are copied to host memory and back instead of computed again."""

from __future__ import annotations

from dataclasses import replace

from qmodel.perf import kv_bytes_per_token
from qmodel.perf.precision import kv_element_bytes
from qmodel.types import Engine, Layout, Model, Refusal, Replica

__all__ = ["with_swapping"]


def with_swapping(
    replica: Replica, model: Model | None, layout: Layout, engine: Engine, precision: str | None
) -> Replica | Refusal:
    """The replica with what one copied token adds to a step, where its engine swaps.

    All GPUs of a replica copy their part of a token at the same time, each over its own link to the host; pipeline
    stages hold their share of the layers. Both ways are taken to be as fast.

    Args:
        replica: as it is with recomputation.
        model: catalog record; None where only profiles describe the model.
        layout: degrees of the replica.
        engine: its settings.
        precision: weight type; None: the checkpoint's own.

    Returns:
        The replica, or why it cannot be told what a copy takes.
    """
    if engine.preemption != "swap":
        return replica
    if model is None:
        return Refusal(
            layout=layout,
            kind="engine",
            reason="engine.preemption swap needs the KV bytes of a token, and profiles do not state them",
            change="preemption: recompute, or a model of the catalog or a config.json",
        )
    assert engine.swap_gbps is not None  # the schema asks for both
    dtype = "fp8" if kv_element_bytes(model, engine, precision) == 1.0 else "bf16"
    token_bytes = kv_bytes_per_token(model, layout, dtype) / layout.pp * replica.kv_slope
    each_way_s = token_bytes / (engine.swap_gbps * 1e9)
    return replace(replica, preemption="swap", swap_out_s_per_token=each_way_s, swap_in_s_per_token=each_way_s)
