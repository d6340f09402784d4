"""How long a plan takes in a warm process, and where the time goes; run as ``python benchmarks/planning_speed.py``.

Each scenario is planned once to warm caches, then seven times. Shown are the shortest processor time of a plan, the
median of the wall time, and the part of that which the choice of pools took: integer programs, and the frontier along
the mixes that decide. Times depend on the machine: compare columns of one run, not runs.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import qmodel as qm

ROOT = Path(__file__).parent.parent
RUNS = 7
CASES = (
    ("peers/p1.yaml", ()),
    ("peers/p1.yaml", ("a100-only",)),
    ("peers/p2.yaml", ()),
    ("peers/p2kv.yaml", ()),
    ("peers/p4.yaml", ()),
    ("10-quickstart.yaml", ()),
    ("20-reasoning.yaml", ()),
    ("30-h200-node.yaml", ()),
    ("40-trace.yaml", ()),
)


def main() -> None:
    print(
        f"{'scenario':32} {'cpu ms':>8} {'plan ms':>8} {'choose':>8} {'load ms':>8}"
        f" {'candidates':>10} {'columns':>8} {'status':>9} {'USD/h':>8}"
    )
    for name, variants in CASES:
        load_s, plan_s, choose_s, used_s = [], [], [], []
        for _ in range(RUNS + 1):
            start = time.perf_counter()
            scenario = qm.load_scenario(ROOT / "scenarios" / name, apply=variants)
            loaded, before = time.perf_counter(), time.process_time()
            plan = qm.plan(scenario)
            used_s.append(time.process_time() - before)
            load_s.append(loaded - start)
            plan_s.append(time.perf_counter() - loaded)
            choose_s.append(plan.run["solve_s"])
        label = name + "".join(f" {item}" for item in variants)
        print(
            f"{label:32} {1e3 * min(used_s[1:]):8.1f} {1e3 * statistics.median(plan_s[1:]):8.1f}"
            f" {1e3 * statistics.median(choose_s[1:]):8.1f} {1e3 * statistics.median(load_s[1:]):8.1f}"
            f" {plan.run['candidates']:10.0f} {plan.run['columns']:8.0f} {plan.status:>9} {plan.cost_usd_per_hour:8.2f}"
        )


if __name__ == "__main__":
    main()
