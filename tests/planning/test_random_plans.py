"""Plans of random scenarios against a plain step-by-step engine: completion and TPOT means within 5 %."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.evaluation import pool_cases
from qmodel.problem import bind
from tests.step_engine import simulate

REQUESTS = 12_000


def random_scenario(seed: int) -> dict[str, Any]:
    """One or two classes of one model, measured steps, with or without a KV limit, random or JSQ routing."""
    rng = np.random.default_rng(seed)
    classes = {}
    for name in ("short", "long")[: int(rng.integers(1, 3))]:
        mean = float(rng.uniform(100, 400) if name == "short" else rng.uniform(800, 3000))
        classes[name] = {
            "model": "m",
            "rate_rps": float(rng.uniform(2, 12) if name == "short" else rng.uniform(0.3, 1.5)),
            "prompt_tokens": {"mean": float(rng.uniform(200, 1500)), "cv": float(rng.uniform(0.3, 1.0)), "max": 16000},
            "output_tokens": {"mean": mean, "cv": float(rng.uniform(0.3, 1.0)), "max": 16000},
            "slo": {"ttft_p95_s": float(rng.uniform(0.6, 2.0)), "tpot_mean_s": float(rng.uniform(0.025, 0.06))},
        }
    profile = {
        "model": "m",
        "gpu": "g",
        "alpha_s": float(rng.uniform(0.006, 0.014)),
        "beta_s": float(rng.uniform(2e-5, 1e-4)),
        "gamma_s": float(rng.uniform(1e-8, 6e-8)),
        "delta_s": float(rng.uniform(2e-5, 8e-5)),
        "max_num_seqs": int(rng.choice([64, 128, 256])),
    }
    if rng.random() < 0.5:
        profile["kv_tokens"] = float(rng.uniform(2e5, 5e5))
    return {
        "qmodel": 1,
        "classes": classes,
        "fleet": {"gpus": {"g": {"price": {"usd_per_gpu_hour": 2.0}}}},
        "engine": {"router": str(rng.choice(["random", "jsq"])), "watermark": 0.05},
        "profiles": [profile],
    }


@pytest.mark.parametrize("seed", range(10))
def test_random_plan_agrees_with_the_step_engine(seed: int) -> None:
    data = random_scenario(seed)
    plan = qm.plan(data)
    assert plan.fleet is not None, plan.why.text
    instance = bind(qm.load_scenario(data))
    rows = {(row.cls, row.path, row.metric): row.mean_s for row in plan.latency}
    for name, case in pool_cases(instance, plan.fleet).items():
        shares = {
            cls: sum(path.share for path in paths if path.pools == (name,)) for cls, paths in plan.fleet.routing.items()
        }
        streams = [instance.classes[cls].stream(share) for cls, share in shares.items() if share > 0]
        found = simulate(
            case.replica,
            streams,
            replicas=case.pool.replicas,
            router=case.router,
            requests=REQUESTS,
            seed=seed,
            warmup=0.3,
        )
        for stream in streams:
            observed = found.classes[stream.name]
            assert rows[stream.name, name, "completion"] == pytest.approx(observed.completion_s.mean(), rel=0.05)
            assert rows[stream.name, name, "tpot"] == pytest.approx(observed.tpot_s.mean(), rel=0.05)
