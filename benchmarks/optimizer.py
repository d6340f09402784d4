"""The optimizer against brute force, against greedy planning, and against size.

Run from the checkout: ``python -m benchmarks.optimizer``; ``--parts brute,shared,peers,size,catalog,greedy`` chooses,
``--instances`` says how many random scenarios brute force gets.
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
from benchmarks.brute_instances import mixed_lines
from benchmarks.greedy_savings import saving_lines, shipped_scenarios
from qmodel.problem import bind
from tests.planning.shared_models import least_cost, two_classes

ROOT = Path(__file__).resolve().parents[1] / "scenarios"
_ROUNDS = 5
_ROUNDING = 1e-6


def main() -> None:
    """Print the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="brute,shared,peers,size,catalog,greedy")
    parser.add_argument("--instances", type=int, default=200)
    arguments = parser.parse_args()
    parts = {
        "brute": lambda: mixed_lines(range(arguments.instances)),
        "shared": shared_lines,
        "peers": peer_lines,
        "size": size_lines,
        "catalog": catalog_lines,
        "greedy": lambda: saving_lines(shipped_scenarios()),
    }
    for name in arguments.parts.split(","):
        for line in parts[name]():
            print(line, flush=True)


def shared_lines(instances: int = 24) -> Iterator[str]:
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


def catalog_lines() -> Iterator[str]:
    """Models, classes and GPU types of the catalog with all their layouts; once, for they take seconds."""
    for classes, models, gpus in ((20, 20, 20), (50, 10, 6), (100, 20, 6), (200, 30, 6)):
        yield _once(f"{classes} classes, {models} models, {gpus} GPU types", catalog_grid(classes, models, gpus))
    for count in (5, 8, 12):
        alike = catalog_grid(count, 1, 6)
        for item in alike["classes"].values():
            item["model"] = "llama-3.3-70b"
        yield _once(f"{count} classes of llama-3.3-70b, 6 GPU types", alike)
    yield _growth("classes, two of each model, 4 GPU types", {n: (n, n // 2, 4) for n in (4, 8, 16, 32, 60)})
    yield _growth("classes of one model, 4 GPU types", {n: (n, 1, 4) for n in (2, 4, 8, 16, 32)})
    yield _growth("GPU types, 8 classes of 8 models", {n: (8, 8, n) for n in (2, 4, 8, 16)})
    yield _growth("GPU types, 8 classes of one model", {n: (8, 1, n) for n in (2, 4, 8, 16)})
    experts = catalog_grid(1, 1, 0)
    experts["classes"]["c0"] |= {"model": "deepseek-r1", "rate_rps": 40.0}
    experts["fleet"] = {"gpus": {"h200-sxm": {"max_count": 64, "price": {"usd_per_gpu_hour": 3.8}}}}
    experts["layouts"] = {
        "tp": [1, 2, 4, 8, 16],
        "pp": [1, 2, 4],
        "ep": [1, 8, 16, 32, 64],
        "dp": [1, 2, 4, 8, 16, 32, 64],
    }
    yield _once("deepseek-r1 on 64 H200, experts over up to 64 ranks", experts)


def _growth(what: str, cases: dict[int, tuple[int, int, int]]) -> str:
    """Processor time against a size, with its exponent."""
    spent = []
    for case in cases.values():
        started = time.process_time()
        qm.plan(qm.load_scenario(catalog_grid(*case)))
        spent.append(time.process_time() - started)
    exponent = np.polyfit(np.log(list(cases)), np.log(spent), 1)[0]
    times = ", ".join(f"{size}: {spent_s:.2f} s" for size, spent_s in zip(cases, spent, strict=True))
    return f"{what}, processor time {times}; exponent {exponent:.2f}"


def _once(name: str, data: dict[str, Any]) -> str:
    scenario = qm.load_scenario(data)
    started, began = time.perf_counter(), time.process_time()
    plan = qm.plan(scenario)
    spent_s, busy_s = time.perf_counter() - started, time.process_time() - began
    gaps = ", ".join(
        f"{what} {'none' if gap is None else f'{gap:.2%}'}"
        for what, gap in (("gap", plan.gap), ("of the columns", plan.gap_columns))
    )
    cost = "no fleet" if plan.cost_usd_per_hour is None else f"{plan.cost_usd_per_hour:.2f} USD/h"
    return (
        f"{name}: {plan.status}, {cost}, {gaps}; {plan.run['candidates']:.0f} candidates, {spent_s:.1f} s"
        f" ({busy_s:.1f} s of processor time, {plan.run['solve_s']:.1f} s in the programs)"
    )


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


MODELS = [
    "llama-3.1-8b",
    "llama-3.3-70b",
    "qwen2.5-7b",
    "qwen3-30b-a3b",
    "deepseek-r1",
    "qwen2.5-14b",
    "qwen2.5-32b",
    "qwen2.5-72b",
    "qwq-32b",
    "qwen3-8b",
    "qwen3-14b",
    "qwen3-32b",
    "llama-3.1-70b",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "mixtral-8x7b",
    "phi-4",
    "mistral-7b",
    "mistral-small-24b",
    "gemma-2-9b",
    "gemma-2-27b",
    "mistral-large",
    "r1-distill-llama-8b",
    "r1-distill-llama-70b",
    "r1-distill-qwen-7b",
    "r1-distill-qwen-32b",
    "qwen3-235b-a22b",
    "kimi-k2",
    "glm-4.5-air",
    "minimax-m2",
]
GPUS = [
    "h100-sxm",
    "h200-sxm",
    "a100-80-sxm",
    "l40s",
    "b200-sxm",
    "mi300x",
    "h20",
    "l4",
    "a10g",
    "a100-40-sxm",
    "h100-nvl",
    "a100-80-pcie",
    "h100-pcie",
    "mi325x",
    "gh200-96",
    "b300-sxm",
    "rtxpro6000",
    "h800-sxm",
    "h200-nvl",
    "mi355x",
]


def catalog_grid(classes: int, models: int, gpus: int) -> dict[str, Any]:
    """Chat classes of catalog models on catalog GPUs at drawn prices; each model has as many classes as another."""
    rng = np.random.default_rng([classes, models, gpus, 5])
    drawn = {
        f"c{number}": {
            "model": MODELS[number % models],
            "rate_rps": float(rng.uniform(1, 10)),
            "prompt_tokens": {"mean": float(rng.uniform(200, 3000)), "cv": 1.0, "max": 20000},
            "output_tokens": {"mean": float(rng.uniform(100, 800)), "cv": 1.0, "max": 4000},
            "slo": {"ttft_p95_s": float(rng.uniform(1, 4)), "tpot_mean_s": float(rng.uniform(0.04, 0.1))},
        }
        for number in range(classes)
    }
    prices = {gpu: {"price": {"usd_per_gpu_hour": float(rng.uniform(0.5, 6))}} for gpu in GPUS[:gpus]}
    return {"qmodel": 1, "classes": drawn, "fleet": {"gpus": prices}}


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
