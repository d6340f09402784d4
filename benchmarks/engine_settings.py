"""Processor time of plans whose engine settings are lists, against the same plans with the engine's usual values.

python -m benchmarks.engine_settings
"""

from __future__ import annotations

import copy
import time
from typing import Any

import qmodel as qm

CHAT: dict[str, Any] = {
    "model": "llama-3.3-70b",
    "rate_rps": 12,
    "prompt_tokens": {"mean": 1200, "cv": 1.1},
    "output_tokens": {"mean": 300, "cv": 0.9},
    "slo": {"ttft_p95_s": 0.5, "tpot_p95_s": 0.04},
}
DOCUMENTS: dict[str, Any] = {
    "model": "llama-3.3-70b",
    "rate_rps": 1,
    "prompt_tokens": {"mean": 6000, "cv": 1},
    "output_tokens": {"mean": 500, "cv": 0.8},
    "slo": {"ttft_p95_s": 3, "tpot_mean_s": 0.06},
}
REASONING: dict[str, Any] = {
    "model": "deepseek-r1",
    "rate_rps": 0.8,
    "prompt_tokens": {"mean": 400, "cv": 1.5},
    "reasoning_tokens": {"mean": 3000, "cv": 1},
    "answer_tokens": {"mean": 500, "cv": 0.6},
    "max_tokens": 32000,
    "slo": {"answer_start_p90_s": 400, "tpot_mean_s": 0.05},
}
GPUS: dict[str, Any] = {
    "h100-sxm": {"max_count": 64, "price": {"usd_per_gpu_hour": 2.9}},
    "h200-sxm": {"price": {"usd_per_gpu_hour": 3.8}},
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one class": ({"chat": CHAT}, GPUS),
    "two classes that share pools": ({"chat": CHAT, "documents": DOCUMENTS}, GPUS),
    "mixture of experts": ({"reasoning": REASONING}, {"h200-sxm": GPUS["h200-sxm"]}),
}
LISTS: tuple[dict[str, Any], ...] = (
    {},
    {"max_num_seqs": [64, 256]},
    {"max_num_seqs": [32, 64, 256]},
    {"max_num_seqs": [32, 64, 256], "max_batched_tokens": [2048, 8192]},
)


def main() -> None:
    """Print one line for each case and list."""
    for name, (classes, gpus) in CASES.items():
        data: dict[str, Any] = {"qmodel": 1, "classes": classes, "fleet": {"gpus": gpus}}
        qm.plan(data)  # what is read once is read
        usual_s = 0.0
        for settings in LISTS:
            asked = {**copy.deepcopy(data), "engine": settings}
            started_s = time.process_time()
            plan = qm.plan(asked)
            took_s = time.process_time() - started_s
            usual_s = usual_s or took_s
            number = len(settings.get("max_num_seqs", [0])) * len(settings.get("max_batched_tokens", [0]))
            cost = "no plan" if plan.cost_usd_per_hour is None else f"{plan.cost_usd_per_hour:.2f} USD/h"
            print(f"{name}: {number} combinations, {took_s:.2f} s, {took_s / usual_s:.1f} times, {cost}, {plan.status}")


if __name__ == "__main__":
    main()
