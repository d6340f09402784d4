"""Random scenarios planned, then simulated: how many targets hold, and why the others do not.

Run from the checkout: ``.venv/bin/python -m benchmarks.checked_plans``; ``--scenarios 20`` for fewer.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator

import qmodel as qm
from tests.planning.tight_scenarios import tight_scenario

LEAST_MET = 0.99  # of the targets that are decided


def main() -> int:
    """Print the counts and every miss; 1 if too many targets are missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first scenario")
    arguments = parser.parse_args()
    started = time.perf_counter()
    decisions: Counter[str] = Counter()
    plans: Counter[str] = Counter()
    misses: list[str] = []
    for seed in range(arguments.first, arguments.first + arguments.scenarios):
        scenario = tight_scenario(seed)
        plan = qm.plan(scenario)
        if plan.fleet is None:
            plans[plan.status] += 1
            continue
        found = qm.check_plan(scenario, plan, seed=seed, most_added=0).simulation
        plans["missed" if found.missed else "met" if found.decided else "not decided"] += 1
        decisions.update(row.decision for row in found.slo)
        misses += miss_lines(seed, found)
    decided = decisions["met"] + decisions["missed"]
    share = decisions["met"] / decided if decided else 0.0
    print(f"plans: {dict(plans)}")
    print(f"targets: {dict(decisions)}; met of those decided: {share:.2%}")
    print("\n".join(["misses:", *misses]) if misses else "no misses")
    print(f"{time.perf_counter() - started:.0f} s")
    return int(share < LEAST_MET)


def miss_lines(seed: int, found: qm.Simulation) -> Iterator[str]:
    """Each missed target, with how far its own statistic and the mean of its metric are off."""
    for row in found.slo:
        if row.decision != "missed" or row.path == "fleet":
            continue
        pool = next(item for item in found.pools if item.pool == row.path)
        mean = next(
            item
            for item in found.latency
            if (item.cls, item.path, item.metric, item.stat) == (row.cls, row.path, row.metric, "mean")
        )
        yield (
            f"  seed {seed}: {row.cls} {row.metric} {row.stat} in {row.path} x{pool.replicas}:"
            f" target {row.target_s:.4g} s, predicted {text(row.predicted_s)}, simulated {text(row.simulated_s)}"
            f" [{text(row.ci_low_s)}, {text(row.ci_high_s)}] ({off(row)}; its mean {off(mean)});"
            f" batch {text(pool.predicted_batch)} / {text(pool.mean_batch)}, KV fill {text(pool.kv_fill)},"
            f" preemptions per request {pool.preemptions_per_request:.3f}"
        )


def off(row: object) -> str:
    """How much more was simulated than predicted."""
    predicted, simulated = getattr(row, "predicted_s", None), getattr(row, "simulated_s", None)
    return "no number" if not predicted or simulated is None else f"{simulated / predicted - 1.0:+.1%}"


def text(value: float | None) -> str:
    """Four digits, or a dash."""
    return "-" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main())
