"""Random scenarios whose targets bind: what a plan promises there must survive a simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["tight_scenario"]


def tight_scenario(seed: int) -> dict[str, Any]:
    """One to three classes of one model, measured steps; targets a little above what an idle replica does."""
    rng = np.random.default_rng([seed, 6])
    alpha_s = float(rng.uniform(0.006, 0.02))
    profile = {
        "model": "m",
        "gpu": "g",
        "alpha_s": alpha_s,
        "beta_s": alpha_s * float(rng.uniform(0.003, 0.012)),
        "gamma_s": float(rng.uniform(1e-8, 6e-8)),
        "delta_s": float(rng.uniform(2e-5, 1e-4)),
        "max_num_seqs": int(rng.choice([64, 128, 256])),
    }
    if rng.random() < 0.5:
        profile["kv_tokens"] = float(rng.uniform(2e5, 6e5))
    classes = {}
    for name in ("chat", "code", "reasoning")[: int(rng.integers(1, 4))]:
        long = name == "reasoning"
        output = float(rng.uniform(1500, 6000) if long else rng.uniform(60, 500))
        alone_s = alpha_s * output
        slo = {
            "ttft_p95_s": float(rng.uniform(0.15, 1.0)),
            str(rng.choice(["tpot_mean_s", "tpot_p95_s"])): alpha_s * float(rng.uniform(1.6, 4.0)),
            str(rng.choice(["completion_p90_s", "completion_mean_s"])): alone_s * float(rng.uniform(4.0, 9.0)),
        }
        classes[name] = {
            "model": "m",
            "rate_rps": float(rng.uniform(0.2, 1.5) if long else rng.uniform(2.0, 20.0)),
            "prompt_tokens": {"mean": float(rng.uniform(150, 2000)), "cv": float(rng.uniform(0.3, 1.2)), "max": 16000},
            "output_tokens": {"mean": output, "cv": float(rng.uniform(0.3, 1.0)), "max": 32000},
            "slo": slo,
        }
    return {
        "qmodel": 1,
        "classes": classes,
        "fleet": {"gpus": {"g": {"price": {"usd_per_gpu_hour": 2.0}}}},
        "engine": {
            "router": str(rng.choice(["random", "jsq"])),
            "watermark": float(rng.choice([0.03, 0.05])),
        },
        "profiles": [profile],
    }
