"""The optimizer against brute force, against greedy planning, and against size.

Run from the checkout: ``python -m benchmarks.optimizer``; ``--parts brute,peers,size,greedy`` chooses, ``--instances``
says how many random ones brute force gets.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import qmodel as qm
from qmodel.candidates import enumerate_candidates, least_counts, open_pools_of
from qmodel.problem import bind
from tests.planning.shared_models import least_cost, two_classes

ROOT = Path(__file__).resolve().parents[1] / "scenarios"
_ROUNDS = 5
_ROUNDING = 1e-6


def main() -> None:
    """Print the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="brute,peers,size,greedy")
    parser.add_argument("--instances", type=int, default=20)
    arguments = parser.parse_args()
    parts = {
        "brute": lambda: brute_lines(arguments.instances),
        "peers": peer_lines,
        "size": size_lines,
        "greedy": greedy_lines,
    }
    for name in arguments.parts.split(","):
        print("\n".join(parts[name]()))


def brute_lines(instances: int) -> Iterator[str]:
    """Two classes of one model: cost and bound against brute force over counts and mixes."""
    equal = proven = above = 0
    gaps = []
    for seed in range(instances):
        data = two_classes(seed, ("random", "jsq")[seed % 2])
        plan = qm.plan(data)
        cheapest = least_cost(bind(qm.load_scenario(data)))
        cost, bound = plan.cost_usd_per_hour, plan.bound_usd_per_hour
        if cost is None or bound is None:
            yield f"  seed {seed}: {plan.status}, brute force {cheapest:.3f}"
            continue
        equal += cost <= cheapest * (1.0 + _ROUNDING)
        proven += plan.status == "optimal"
        above += bound > cheapest * (1.0 + _ROUNDING)
        gaps.append(plan.gap or 0.0)
    yield (
        f"two classes, one model, {instances} instances: {equal} cost no more than brute force, {proven} proven, "
        f"{above} bounds above it; gap median {statistics.median(gaps):.2%}, largest {max(gaps):.2%}"
    )


def peer_lines() -> Iterator[str]:
    """The side-by-side problems, warm, in this process; loading apart."""
    for path in sorted((ROOT / "peers").glob("*.yaml")):
        started = time.perf_counter()
        scenario = qm.load_scenario(path)
        loaded_s = time.perf_counter() - started
        plan, spent_s, busy_s = timed(scenario)
        yield (
            f"{path.stem}: {plan.cost_usd_per_hour} USD/h, bound {plan.bound_usd_per_hour}, {plan.status}; "
            f"{1e3 * spent_s:.0f} ms ({1e3 * busy_s:.0f} ms of processor time), file read in {1e3 * loaded_s:.0f} ms"
        )


def size_lines() -> Iterator[str]:
    """Time against the number of models (a class each) and of GPU types, with its exponent."""
    for what, cases in (("models", [(m, 4) for m in (2, 4, 8, 16)]), ("GPU types", [(4, g) for g in (2, 4, 8, 16)])):
        spent = []
        for models, gpus in cases:
            _, spent_s, _ = timed(qm.load_scenario(grid(models, gpus)))
            spent.append(spent_s)
        sizes = [case[0] if what == "models" else case[1] for case in cases]
        exponent = np.polyfit(np.log(sizes), np.log(spent), 1)[0]
        times = ", ".join(f"{size}: {1e3 * spent_s:.0f} ms" for size, spent_s in zip(sizes, spent, strict=True))
        yield f"{what} {times}; exponent {exponent:.2f}"
    _, spent_s, *_ = timed(qm.load_scenario(grid(20, 20)))
    yield f"20 models, 20 GPU types: {1e3 * spent_s:.0f} ms"


def greedy_lines() -> Iterator[str]:
    """Every scenario against each class alone on its cheapest pool."""
    for path in sorted((*ROOT.glob("*.yaml"), *(ROOT / "peers").glob("*.yaml"))):
        scenario = qm.load_scenario(path)
        plan = qm.plan(scenario)
        instance = bind(scenario)
        candidates = enumerate_candidates(instance)
        greedy = 0.0
        for item in instance.classes.values():
            able = candidates.of(item.model)
            counts = least_counts(able, [item]) if able else ()
            costs = [one.pool_cost(int(n)) for n, one in zip(counts, able, strict=True) if n > 0]
            opened = open_pools_of(candidates.measured_of(item.model), [item])
            costs += [one.candidate.pool_cost(n) for one in opened if (n := one.least(item.name))]
            greedy += min(costs, default=np.inf)
        if plan.cost_usd_per_hour is not None:
            saved = 1.0 - plan.cost_usd_per_hour / greedy
            yield f"{path.stem}: greedy {greedy:.2f}, plan {plan.cost_usd_per_hour:.2f} USD/h, {saved:.1%} saved"


def timed(scenario: qm.Scenario) -> tuple[qm.Plan, float, float]:
    """The plan, and the median wall-clock and processor time of planning it again."""
    plan = qm.plan(scenario)
    spent, busy = [], []
    for _ in range(_ROUNDS):
        started, began = time.perf_counter(), time.process_time()
        qm.plan(scenario)
        spent.append(time.perf_counter() - started)
        busy.append(time.process_time() - began)
    return plan, statistics.median(spent), statistics.median(busy)


def grid(models: int, gpus: int) -> dict[str, Any]:
    """A class for each model, and a measured step law for each model and GPU type."""
    rng = np.random.default_rng([models, gpus])
    classes = {
        f"c{m}": {
            "model": f"m{m}",
            "rate_rps": float(rng.uniform(1, 8)),
            "prompt_tokens": {"mean": float(rng.uniform(200, 2000)), "cv": 0.7, "max": 16000},
            "output_tokens": {"mean": float(rng.uniform(60, 600)), "cv": 0.9, "max": 16000},
            "slo": {"ttft_p95_s": float(rng.uniform(0.5, 2)), "tpot_mean_s": float(rng.uniform(0.025, 0.06))},
        }
        for m in range(models)
    }
    speeds = rng.uniform(0.6, 2.5, gpus)
    profiles = [
        {
            "model": f"m{m}",
            "gpu": f"g{g}",
            "alpha_s": float(speeds[g] * rng.uniform(0.006, 0.01)),
            "beta_s": float(speeds[g] * rng.uniform(5e-5, 2e-4)),
            "gamma_s": float(speeds[g] * 3e-8),
            "delta_s": float(speeds[g] * rng.uniform(3e-5, 6e-5)),
            "max_num_seqs": 128,
        }
        for m in range(models)
        for g in range(gpus)
    ]
    prices = {f"g{g}": {"price": {"usd_per_gpu_hour": float(rng.uniform(3, 5) / speeds[g])}} for g in range(gpus)}
    return {"qmodel": 1, "classes": classes, "fleet": {"gpus": prices}, "profiles": profiles}


if __name__ == "__main__":
    main()
