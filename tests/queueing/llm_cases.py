"""Replicas and classes that several tests use, and the simulated runs of tests/data/queueing_llm."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from qmodel.types import Law, Lengths, Replica, Router, StepLaw, Stream
from qmodel.workload import lognormal_law, normal_law

RUNS = Path(__file__).parents[1] / "data" / "queueing_llm" / "step_engine_runs.csv"
METRICS = ("ttft", "tpot", "e2e")
STATS = ("mean", "p50", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One simulated run: the pool, its load and what was measured, s."""

    config: str
    rho: float
    replica: Replica
    stream: Stream
    replicas: int
    router: Router
    measured_s: dict[tuple[str, str], float]
    ttft_ci: float

    @property
    def group(self) -> str:
        if self.replica.kv_tokens is not None:
            return "KV-limited, 5 % watermark"
        return "join-shortest-queue" if self.router == "jsq" else "single class, random split"


def linear(alpha_ms: float, beta_ms: float, gamma_ms: float, delta_ms: float) -> StepLaw:
    return StepLaw.linear(alpha_s=alpha_ms / 1e3, beta_s=beta_ms / 1e3, gamma_s=gamma_ms / 1e3, delta_s=delta_ms / 1e3)


@cache
def chat_lengths() -> Lengths:
    return Lengths.independent(normal_law(1024, 256, 64, 4096), normal_law(256, 128, 16, 2048))


@cache
def reasoning_lengths() -> Lengths:
    return Lengths.independent(normal_law(512, 256, 32, 4096), normal_law(8192, 4096, 256, 32768))


def chat_8b(gpu: str) -> tuple[Replica, Stream]:
    """20 requests/s of an 8B chat model; 1024-token prompts, 256-token answers."""
    alpha, beta, gamma = {"A100": (9.8, 0.103, 8e-5), "H100": (6.0, 0.032, 4.9e-5)}[gpu]
    replica = Replica(step=linear(alpha, beta, gamma, beta), max_num_seqs=256, max_batched_tokens=4096)
    return replica, Stream(name="chat", rate_rps=20.0, lengths=chat_lengths())


def reasoning_70b(kv_tokens: float | None = None) -> tuple[Replica, Stream]:
    """2 requests/s of a 70B reasoning model on 4 GPUs; outputs of about 8192 tokens."""
    replica = Replica(
        step=linear(13.1, 0.071, 3.06e-5, 0.071),
        max_num_seqs=256,
        max_batched_tokens=8192,
        kv_tokens=kv_tokens,
        watermark=0.05,
    )
    return replica, Stream(name="reason", rate_rps=2.0, lengths=reasoning_lengths())


def small(rate_rps: float = 4.0, **settings: object) -> tuple[Replica, Stream]:
    """A small chat replica that tests bend to their purpose."""
    replica = Replica(step=linear(8.0, 0.05, 5e-5, 0.03), max_num_seqs=64, max_batched_tokens=2048)
    lengths = Lengths.independent(lognormal_law(512, 1.0, maximum=16000), lognormal_law(256, 1.0, maximum=8192))
    return replace(replica, **settings), Stream(name="chat", rate_rps=rate_rps, lengths=lengths)  # type: ignore[arg-type]


@cache
def _clipped(mean: float, scv: float, top: int) -> Law:
    return lognormal_law(mean, scv**0.5, maximum=top) if scv > 0.0 else Law.constant(mean)


@cache
def runs() -> tuple[Run, ...]:
    """All simulated runs."""
    with RUNS.open(newline="") as lines:
        return tuple(_run(row) for row in csv.DictReader(lines))


def _run(row: dict[str, str]) -> Run:
    lengths = Lengths.independent(
        _clipped(float(row["prompt_mean"]), float(row["prompt_scv"]), int(row["prompt_max"])),
        _clipped(float(row["output_mean"]), float(row["output_scv"]), int(row["output_max"])),
    )
    return Run(
        config=row["config"],
        rho=float(row["rho_nominal"]),
        replica=Replica(
            step=linear(*(float(row[f"{name}_ms"]) for name in ("alpha", "beta", "gamma", "delta"))),
            max_num_seqs=int(row["max_num_seqs"]),
            kv_tokens=float(row["kv_tokens"]) if row["kv_tokens"] else None,
            max_batched_tokens=int(row["max_batched_tokens"]),
            watermark=float(row["watermark"]),
        ),
        stream=Stream(name="a", rate_rps=float(row["rate_rps"]), lengths=lengths),
        replicas=int(row["replicas"]),
        router="jsq" if row["router"] == "jsq" else "random",
        measured_s={(m, s): float(row[f"{m}_{s}_ms"]) / 1e3 for m in METRICS for s in STATS},
        ttft_ci=float(row["ttft_mean_ci95_ms"]) / float(row["ttft_mean_ms"]),
    )
