"""The worth of resources and targets against closed forms and against plans made again."""

from __future__ import annotations

from typing import Any

import pytest

import qmodel as qm
from qmodel.evaluation import MarginalRow

EXACT = qm.SolverOptions(mip_gap=0.0)


def profiled(rate_rps: float, slo: dict[str, float], **profile: float) -> dict[str, Any]:
    """One class on one measured GPU type with random routing, where pools add up."""
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "m",
                "rate_rps": rate_rps,
                "prompt_tokens": {"mean": 300, "cv": 0.5},
                "output_tokens": {"mean": 200, "cv": 0.7},
                "slo": slo,
            }
        },
        "fleet": {"gpus": {"g": {"price": {"usd_per_gpu_hour": 2.0}}}},
        "engine": {"router": "random"},
        "profiles": [
            {
                "model": "m",
                "gpu": "g",
                "alpha_s": 0.01,
                "beta_s": 2e-4,
                "gamma_s": 1e-8,
                "delta_s": 2e-5,
                "max_num_seqs": 256,
                **profile,
            }
        ],
    }


def rows(data: Any) -> dict[str, MarginalRow]:
    plan = qm.plan(data)
    assert plan.fleet is not None
    return {row.figure: row for row in qm.marginal_values(data, plan.fleet).rows}


def test_the_price_of_a_target_is_what_plans_for_it_differ_by() -> None:
    data = profiled(4000.0, {"tpot_mean_s": 0.03, "ttft_p95_s": 5.0})
    found = rows(data)
    row = found["classes.chat.slo.tpot_mean_s"]
    assert list(found) == ["classes.chat.slo.tpot_mean_s"]  # the other target does not bind
    costs = []
    for factor in (0.95, 1.05):
        plan = qm.plan(qm.load_scenario(data, set={"classes.chat.slo.tpot_mean_s": 0.03 * factor}), solver=EXACT)
        assert plan.cost_usd_per_hour is not None
        costs.append(plan.cost_usd_per_hour)
    assert row.usd_per_hour_per_unit == pytest.approx((costs[1] - costs[0]) / (0.03 * 0.1), rel=0.05)
    assert row.elasticity > 0.0 > row.usd_per_hour_per_unit


def test_the_price_of_kv_memory_is_what_plans_with_more_of_it_differ_by() -> None:
    data = profiled(1500.0, {"ttft_p95_s": 0.5}, kv_tokens=20000.0)
    row = rows(data)["profiles.m.g.tp1.kv_tokens"]
    costs = []
    for factor in (0.95, 1.05):
        plan = qm.plan(qm.load_scenario(data, set={"profiles[0].kv_tokens": 20000.0 * factor}), solver=EXACT)
        assert plan.cost_usd_per_hour is not None
        costs.append(plan.cost_usd_per_hour)
    assert row.unit == "tokens per replica"
    assert row.usd_per_hour_per_unit == pytest.approx((costs[1] - costs[0]) / 2000.0, rel=0.05)


def test_a_step_that_is_all_bandwidth_has_the_elasticity_of_one() -> None:
    """Where every step is one fixed time, the mean TPOT is that time and only slots and memory limit the load."""
    data = profiled(50.0, {"ttft_p99_s": 60.0}, alpha_s=0.02, beta_s=0.0, gamma_s=0.0, delta_s=0.0)
    data["profiles"][0]["kv_tokens"] = 50_000.0
    found = rows(data)
    # far from a latency target the load that a KV pool carries is its size over what a request holds for how long
    assert found["profiles.m.g.tp1.kv_tokens"].elasticity == pytest.approx(1.0, abs=0.2)


def test_hardware_that_binds_has_the_largest_elasticity() -> None:
    plan = qm.plan("scenarios/20-reasoning.yaml")
    assert plan.fleet is not None
    found = qm.marginal_values("scenarios/20-reasoning.yaml", plan.fleet)
    hardware = [row.figure.rpartition(".")[2] for row in found.rows if row.figure.startswith("gpus.")]
    # Long outputs read weights and KV in every step; at this batch latent attention and experts compute about as long.
    assert set(hardware[:2]) == {"hbm_bandwidth_gbps", "dense_bf16_tflops"}
    assert all(row.usd_per_hour_per_unit < 0.0 for row in found.rows)
    assert list(found.to_frame().columns) == list(found.to_dict()["rows"][0])  # type: ignore[index]


def test_measured_pools_have_no_figures_that_could_move() -> None:
    data = profiled(4.0, {"tpot_mean_s": 0.03})
    data["profiles"] = [{"model": "m", "gpu": "g", "max_rate_rps": {"chat": 3.0}}]
    plan = qm.plan(data)
    assert plan.fleet is not None
    assert qm.marginal_values(data, plan.fleet).rows == ()
