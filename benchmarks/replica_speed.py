"""Speed of the replica model: one case, many cases, different replicas, means only and percentiles.

Run from the checkout on one core: ``OPENBLAS_NUM_THREADS=1 .venv/bin/python -m benchmarks.replica_speed``.
Times are processor times, the shortest of many calls; the reference loop, plain arithmetic on 90,000 numbers, says how
fast the machine was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from qmodel.queueing import pool, pool_metrics, utilisation
from qmodel.queueing.replica.chain import occupancy
from qmodel.queueing.replica.kv_limited import memory_limit
from qmodel.queueing.replica.work import pooled_work
from qmodel.types import Metric, Replica, Stream
from tests.queueing.llm_cases import chat_8b, reasoning_70b

REPEATS = 15

Wanted = tuple[str, Metric, float | None]


def main() -> None:
    """Print milliseconds per call and per case."""
    cases: list[tuple[str, Replica, Stream, int]] = [
        ("chat 8B, A100", *chat_8b("A100"), 5),
        ("reasoning 70B", *reasoning_70b(), 6),
        ("reasoning 70B, KV-limited", *reasoning_70b(519_500.0), 8),
    ]
    numbers = np.linspace(-1.0, 1.0, 90_000)
    print(f"reference loop: {1e3 * least_s(lambda: np.tanh(numbers).sum()):.3f} ms")
    print(f"{'case':28s} {'call':46s} {'ms/call':>8s} {'us/case':>8s}")
    for name, replica, stream, least in cases:
        for call, count, run in calls(replica, stream, least):
            seconds = least_s(run)
            print(f"{name:28s} {call:46s} {1e3 * seconds:8.2f} {1e6 * seconds / count:8.1f}")


def calls(replica: Replica, stream: Stream, least: int) -> list[tuple[str, int, Callable[[], object]]]:
    """Named calls with the number of cases each evaluates."""
    few, many = np.arange(least, least + 40), np.repeat(np.arange(least, least + 40), 25)
    loads = np.tile(np.linspace(0.5, 1.0, 25), 40)
    tail: list[Wanted] = [(stream.name, "ttft", 0.99), (stream.name, "tpot", None), (stream.name, "completion", 0.95)]
    means: list[Wanted] = [(stream.name, "ttft", None), (stream.name, "tpot", None), (stream.name, "completion", None)]
    step = replica.step
    slower = [replace(replica, step=step.scaled(factor)) for factor in np.linspace(1.0, 1.3, 40).tolist()]
    work = pooled_work(replica, [stream])
    limit = memory_limit(replica, work)
    each, pools = np.linspace(0.3, 0.9, 2000) * work.rate_rps, np.full(2000, float(least))
    return [
        (
            f"chain of {replica.max_num_seqs} slots, 2000 pools",
            2000,
            lambda: occupancy(replica, work, limit, each, pools, "random"),
        ),
        ("utilisation, 1000 cases", 1000, lambda: utilisation(replica, [stream], many, loads)),
        (
            "mean TPOT, 1000 cases",
            1000,
            lambda: pool_metrics(replica, [stream], many, loads, "random", [(stream.name, "tpot", None)]),
        ),
        (
            "mean TPOT, 1000 cases, jsq",
            1000,
            lambda: pool_metrics(replica, [stream], many, loads, "jsq", [(stream.name, "tpot", None)]),
        ),
        ("mean TPOT, 1 case", 1, lambda: pool_metrics(replica, [stream], least, 1.0, "random", tail[1:2])),
        (
            "TTFT p99, TPOT mean, completion p95, 40",
            40,
            lambda: pool_metrics(replica, [stream], few, 1.0, "random", tail),
        ),
        (
            "the same, 1000",
            1000,
            lambda: pool_metrics(replica, [stream], many, loads, "random", tail),
        ),
        (
            "the same, 40 different replicas",
            40,
            lambda: pool_metrics(slower, [stream], np.full(40, 2 * least), 0.9, "random", tail),
        ),
        (
            "the same, 1 case",
            1,
            lambda: pool_metrics(replica, [stream], least, 1.0, "random", tail),
        ),
        (
            "means of three metrics, 1000 cases",
            1000,
            lambda: pool_metrics(replica, [stream], many, loads, "random", means),
        ),
        ("pool, nine percentiles", 1, lambda: percentiles(replica, stream, least)),
        ("pool, all laws, one percentile", 1, lambda: pool(replica, [stream], least)[stream.name].ttft.quantile(0.99)),
    ]


def percentiles(replica: Replica, stream: Stream, replicas: int) -> list[float]:
    """Median, p95 and p99 of three metrics."""
    found = pool(replica, [stream], replicas)[stream.name]
    return [value for law in (found.ttft, found.tpot, found.completion) for value in law.quantiles((0.5, 0.95, 0.99))]


def least_s(run: Callable[[], object]) -> float:
    """Shortest processor time of a warm call, s."""
    run()
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


if __name__ == "__main__":
    main()
