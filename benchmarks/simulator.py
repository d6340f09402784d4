"""Speed of the simulator, and its agreement with stored runs of an independent step-level simulator.

Run from the checkout: ``.venv/bin/python -m benchmarks.simulator`` for the speeds, which also fail above their limits;
``--agreement`` simulates every stored setting (minutes), ``--agreement --requests 20000`` in less.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable

import numpy as np

from qmodel.simulation import PoolRun, draw_requests, simulate_pool, table_from_arrays
from qmodel.types import Replica, StepLaw, Stream
from tests.queueing.llm_cases import chat_8b, reasoning_70b
from tests.simulation.reference_cells import compare, stored_runs

P2_LIMIT_S = 0.5
CHAT_LIMIT_S = 10.0


def main() -> int:
    """Print the tables; 1 if a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agreement", action="store_true", help="compare with the stored runs")
    parser.add_argument("--requests", type=int, help="requests of each compared run; as stored by default")
    arguments = parser.parse_args()
    broken = [not speeds()]
    if arguments.agreement:
        broken.append(not agreement(arguments.requests))
    return int(any(broken))


def speeds() -> bool:
    """Time the two reference loads; whether both keep their limits."""
    print(f"{'run':44s} {'requests':>9s} {'tokens':>12s} {'steps':>11s} {'seconds':>8s} {'limit':>6s}")
    replica, reasoning = reasoning_70b()
    kept = [timed("p2, 7 replicas, random", replica, reasoning, 1200, 7, "random", P2_LIMIT_S)]
    replica, chat = chat_8b("A100")
    eight = Stream(name=chat.name, rate_rps=chat.rate_rps * 8 / 5, lengths=chat.lengths)
    kept.append(timed("chat, 8 replicas, jsq", replica, eight, 100_000, 8, "jsq", CHAT_LIMIT_S))
    for output in (1_000, 100_000):
        table = table_from_arrays(np.arange(400) * 0.05, prompt=50, output=output)
        engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, gamma_s=1e-8), max_num_seqs=64)
        tracemalloc.start()
        simulate_pool(table, engine)
        peak_kib = tracemalloc.get_traced_memory()[1] / 1024
        tracemalloc.stop()
        print(f"peak memory of 400 requests of {output:,} tokens: {peak_kib:,.0f} KiB")
    return all(kept)


def timed(
    name: str, replica: Replica, stream: Stream, requests: int, replicas: int, router: str, limit_s: float
) -> bool:
    """Simulate one load, print its line, and say whether it keeps its limit."""
    table = draw_requests([stream], rng=np.random.default_rng(1), count=requests)
    run, took_s = best_of(
        3, lambda: simulate_pool(table, replica, replicas=replicas, router="jsq" if router == "jsq" else "random")
    )
    tokens = int(table.output.sum())
    print(f"{name:44s} {requests:9,d} {tokens:12,d} {run.track.steps:11,d} {took_s:8.2f} {limit_s:6.1f}")
    return took_s <= limit_s


def best_of(tries: int, call: Callable[[], PoolRun]) -> tuple[PoolRun, float]:
    """The result and the shortest of several times, which noise of the machine touches least."""
    times = []
    for _ in range(tries):
        begun_s = time.perf_counter()
        run = call()
        times.append(time.perf_counter() - begun_s)
    return run, min(times)


def agreement(requests: int | None) -> bool:
    """Compare every stored run; whether 95 % of the values lie within the joint interval."""
    inside: Counter[str] = Counter()
    total: Counter[str] = Counter()
    outside = []
    for seed, row in enumerate(stored_runs()):
        for cell in compare(row, seed=seed, requests=requests):
            for key in ("all", cell.quantity, f"rho {cell.rho:.2f}", cell.config):
                total[key] += 1
                inside[key] += cell.agrees
            if not cell.agrees:
                outside.append(cell)
    print(f"\n{'values within the joint 95 % interval':40s} {'inside':>7s} {'of':>6s} {'share':>7s}")
    for key, count in total.items():
        print(f"{key:40s} {inside[key]:7d} {count:6d} {inside[key] / count:7.3f}")
    print(f"\n{'outside':40s} {'stored, ms':>12s} {'found, ms':>12s} {'difference over interval':>25s}")
    for cell in outside:
        interval_s = (cell.stored_ci_s**2 + cell.found_ci_s**2) ** 0.5
        ratio = (cell.found_s - cell.stored_s) / interval_s
        label = f"{cell.config} {cell.rho:.2f} {cell.quantity}"
        print(f"{label:40s} {1e3 * cell.stored_s:12.3f} {1e3 * cell.found_s:12.3f} {ratio:25.2f}")
    return inside["all"] >= 0.95 * total["all"]


if __name__ == "__main__":
    sys.exit(main())
