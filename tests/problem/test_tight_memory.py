"""Pools whose memory is nearly used up are marked in the plan."""

from __future__ import annotations

from typing import Any

import qmodel as qm


def scenario(utilisation: float) -> dict[str, Any]:
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "gpt-oss-120b",
                "rate_rps": 0.2,
                "prompt_tokens": {"mean": 300, "cv": 0.5},
                "output_tokens": {"mean": 100, "cv": 0.5},
                "slo": {"tpot_mean_s": 0.1},
            }
        },
        "fleet": {"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 2.9}}}},
        "layouts": {"tp": [1], "pp": [1]},
        "engine": {"version": "0.11.0", "gpu_memory_utilization": utilisation, "max_num_seqs": 1024},
    }


def test_a_pool_of_a_gigabyte_is_tight_and_one_of_three_is_not() -> None:
    text = "pool chat-h100-sxm-tp1: tight: its KV pool is below 3 % of a GPU's memory"
    assert text in qm.plan(scenario(0.92)).explain()
    assert "tight: its KV pool" not in qm.plan(scenario(0.95)).explain()
