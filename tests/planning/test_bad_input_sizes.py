"""Demands far from the usual: a plan, at once, or a clear refusal."""

from __future__ import annotations

from typing import Any

import pytest

import qmodel as qm


def scenario(rate_rps: float, **slo: float) -> dict[str, Any]:
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "llama-3.1-8b",
                "rate_rps": rate_rps,
                "prompt_tokens": {"mean": 800, "cv": 1},
                "output_tokens": {"mean": 200, "cv": 1},
                "slo": slo or {"ttft_p95_s": 1, "tpot_p95_s": 0.05},
            }
        },
        "fleet": {"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 3}}}},
    }


@pytest.mark.parametrize("rate_rps", [1e-9, 1e6])
def test_any_rate_is_planned_and_the_plan_verifies(rate_rps: float) -> None:
    plan = qm.plan(scenario(rate_rps))
    assert plan.status == "optimal"
    assert qm.verify(plan).ok


def test_a_huge_demand_on_a_target_out_of_reach_is_told_by_the_target() -> None:
    plan = qm.plan(scenario(1e6, ttft_p95_s=1e-6))
    assert plan.status == "infeasible"
    assert plan.why.limit == "classes.chat.slo.ttft_p95_s"
