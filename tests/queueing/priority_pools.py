"""Simulated pools whose classes differ in priority, from tests/data/queueing/priority_batches.csv."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from qmodel.queueing import PoolPrediction, pool
from qmodel.types import Lengths, Replica, Router, StepLaw, Stream
from qmodel.workload import lognormal_law

RUNS = Path(__file__).parents[1] / "data" / "queueing" / "priority_batches.csv"
_STATS = (("mean", None), ("p95", 0.95), ("p99", 0.99))


def _replica(alpha_ms: float, beta_ms: float, gamma_ms: float, delta_ms: float, slots: int, budget: int) -> Replica:
    step = StepLaw.linear(alpha_s=alpha_ms / 1e3, beta_s=beta_ms / 1e3, gamma_s=gamma_ms / 1e3, delta_s=delta_ms / 1e3)
    return Replica(step=step, max_num_seqs=slots, max_batched_tokens=budget)


def _with_memory(replica: Replica, kv_tokens: float, watermark: float) -> Replica:
    return Replica(
        step=replica.step,
        max_num_seqs=replica.max_num_seqs,
        max_batched_tokens=replica.max_batched_tokens,
        kv_tokens=kv_tokens,
        watermark=watermark,
    )


@cache
def _kinds() -> dict[str, Lengths]:
    return {
        "chat": Lengths.independent(lognormal_law(800, 1.0), lognormal_law(200, 0.9)),
        "long": Lengths.independent(lognormal_law(400, 1.0), lognormal_law(1200, 0.8)),
        "documents": Lengths.independent(lognormal_law(5000, 0.6), lognormal_law(150, 0.7)),
        "code": Lengths.independent(lognormal_law(1500, 0.8), lognormal_law(300, 1.0)),
    }


_A100 = (9.8, 0.103, 8e-5)
POOLS: dict[str, tuple[Replica, dict[str, str]]] = {
    "slots2": (_replica(*_A100, 0.103, 32, 4096), {"chat": "chat", "bulk": "chat"}),
    "slots2mix": (_replica(*_A100, 0.103, 48, 4096), {"chat": "chat", "bulk": "long"}),
    "slots3": (_replica(6.0, 0.06, 5e-5, 0.04, 24, 2048), {"a": "chat", "b": "code", "c": "long"}),
    "slots2low": (_replica(*_A100, 0.103, 64, 4096), {"vip": "chat", "rest": "chat"}),
    "reverse": (_replica(*_A100, 0.103, 32, 4096), {"long": "long", "chat": "chat"}),
    "kv2": (_with_memory(_replica(*_A100, 0.06, 256, 4096), 60_000, 0.05), {"chat": "chat", "bulk": "long"}),
    "kv2big": (
        _with_memory(_replica(6.0, 0.06, 5e-5, 0.04, 256, 8192), 200_000, 0.05),
        {"chat": "chat", "bulk": "code"},
    ),
    "kv3": (
        _with_memory(_replica(9.8, 0.08, 6e-5, 0.06, 256, 4096), 100_000, 0.03),
        {"a": "chat", "b": "code", "c": "long"},
    ),
    "prefill2": (_replica(9.8, 0.05, 4e-5, 0.1, 256, 2048), {"chat": "chat", "doc": "documents"}),
    "slots-b": (_replica(7.0, 0.08, 6e-5, 0.05, 40, 3072), {"a": "code", "b": "chat", "c": "long"}),
    "slots_jsq-b": (_replica(*_A100, 0.103, 24, 4096), {"chat": "chat", "bulk": "code"}),
    "kv-b": (_with_memory(_replica(8.0, 0.07, 5e-5, 0.05, 256, 4096), 150_000, 0.05), {"code": "code", "bulk": "long"}),
}


def predicted(run: pd.DataFrame, *, ranked: bool = True) -> PoolPrediction:
    """The prediction for the rows of one simulated pool; first come, first served where not ``ranked``."""
    first = run.iloc[0]
    replica, kinds = POOLS[first["pool"]]
    streams = [
        Stream(
            name=row["class"],
            rate_rps=row["rate_rps"],
            lengths=_kinds()[kinds[row["class"]]],
            priority=int(row["priority"]) if ranked else 0,
        )
        for _, row in run.iterrows()
    ]
    router: Router = "jsq" if first["router"] == "jsq" else "random"
    return pool(replica, streams, int(first["replicas"]), router)


@cache
def pool_errors() -> pd.DataFrame:
    """Every simulated class with the relative errors of its prediction; ``plain_`` is first come, first served."""
    table = pd.read_csv(RUNS)
    rows = []
    for _, run in table.groupby(["pool", "load"], sort=False):
        found, plain = predicted(run), predicted(run, ranked=False)
        for _, row in run.iterrows():
            errors = {}
            for metric in ("ttft", "tpot", "completion"):
                for stat, p in _STATS:
                    law = found[row["class"]].metric(metric)
                    value = law.mean if p is None else law.quantile(p)
                    errors[f"{metric}_{stat}"] = value / row[f"{metric}_{stat}_s"] - 1.0
            errors["plain_ttft_mean"] = plain[row["class"]].ttft.mean / row["ttft_mean_s"] - 1.0
            limit = {"k": "memory", "p": "prefill", "r": "slots, long first"}.get(row["pool"][0], "slots")
            rows.append({**row, **errors, "limit": limit, "interval": row["ttft_ci95_s"] / row["ttft_mean_s"]})
    return pd.DataFrame(rows)
