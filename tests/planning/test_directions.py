"""What must move which way: demand, targets, prices, memory, links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qmodel as qm
from qmodel.problem import bind
from qmodel.types import Layout

ROOT = Path(__file__).parents[2]
EXACT = qm.SolverOptions(mip_gap=0.0)


def small(rate_rps: float = 3.0, ttft_s: float = 1.0, tpot_s: float = 0.05, router: str = "random") -> dict[str, Any]:
    """Two measured GPU types, one model, one class."""
    step = {"gamma_s": 4e-8, "max_num_seqs": 128, "kv_tokens": 300_000}
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "m",
                "rate_rps": rate_rps,
                "prompt_tokens": {"mean": 900, "cv": 0.8, "max": 8000},
                "output_tokens": {"mean": 400, "cv": 1.0, "max": 8000},
                "slo": {"ttft_p95_s": ttft_s, "tpot_mean_s": tpot_s},
            }
        },
        "fleet": {"gpus": {"big": {"price": {"usd_per_gpu_hour": 4.0}}, "small": {"price": {"usd_per_gpu_hour": 1.7}}}},
        "engine": {"router": router},
        "profiles": [
            {"model": "m", "gpu": "big", "alpha_s": 0.008, "beta_s": 5e-5, "delta_s": 4e-5, **step},
            {"model": "m", "gpu": "small", "alpha_s": 0.02, "beta_s": 1.5e-4, "delta_s": 1.2e-4, **step},
        ],
    }


def cost(data: dict[str, Any]) -> float:
    found = qm.plan(data, solver=EXACT).cost_usd_per_hour
    assert found is not None
    return found


@settings(max_examples=12, deadline=None)
@given(rate=st.floats(0.5, 30.0), router=st.sampled_from(["random", "jsq"]))
def test_doubling_demand_never_costs_more_than_twice(rate: float, router: str) -> None:
    assert cost(small(2 * rate, router=router)) <= 2 * cost(small(rate, router=router)) + 1e-6


@settings(max_examples=12, deadline=None)
@given(rate=st.floats(0.5, 30.0), ttft=st.floats(0.3, 2.0), looser=st.floats(1.05, 3.0), which=st.sampled_from("ab"))
def test_a_looser_target_never_costs_more(rate: float, ttft: float, looser: float, which: str) -> None:
    strict = small(rate, ttft_s=ttft, tpot_s=0.03)
    loose = small(rate, ttft_s=ttft * (looser if which == "a" else 1), tpot_s=0.03 * (looser if which == "b" else 1))
    before = qm.plan(strict, solver=EXACT).cost_usd_per_hour
    if before is not None:
        assert cost(loose) <= before + 1e-6


def test_doubling_every_price_doubles_the_cost_and_keeps_the_fleet() -> None:
    data, dear = small(), small()
    for gpu in dear["fleet"]["gpus"].values():
        gpu["price"]["usd_per_gpu_hour"] *= 2
    first, second = qm.plan(data, solver=EXACT), qm.plan(dear, solver=EXACT)
    assert second.cost_usd_per_hour == pytest.approx(2 * first.cost_usd_per_hour)
    assert [(row.gpu, row.replicas) for row in first.pools] == [(row.gpu, row.replicas) for row in second.pools]


def test_doubling_the_price_of_the_chosen_gpu_moves_the_plan_to_the_other() -> None:
    first = qm.plan(small(), solver=EXACT)
    dear = small()
    dear["fleet"]["gpus"][first.pools[0].gpu]["price"]["usd_per_gpu_hour"] *= 4
    second = qm.plan(dear, solver=EXACT)
    assert second.pools[0].gpu != first.pools[0].gpu


def test_utilisation_of_a_fixed_fleet_rises_with_the_rate() -> None:
    fleet = qm.plan(small(6.0)).fleet
    assert fleet is not None
    loads = [qm.evaluate(small(rate), fleet).pools[0].utilisation for rate in (1.0, 2.0, 4.0, 6.0)]
    assert loads == sorted(loads)
    assert loads[0] < loads[-1]


def test_half_the_memory_means_fewer_kv_tokens_and_never_a_cheaper_plan(tmp_path: Path) -> None:
    half = tmp_path / "half.yaml"
    half.write_text(
        "source: a what-if\nas_of: '2026-11-30'\ngpus:\n"
        "- {id: H100-SXM, hbm_gib: 39.8}\n- {id: H200-SXM, hbm_gib: 70.2}\n"
    )
    path = ROOT / "scenarios" / "10-quickstart.yaml"
    whole, halved = qm.load_scenario(path), qm.load_scenario(path, catalog=[half])
    engine = bind(whole).gpus["h200-sxm"].engine
    model = bind(whole).models["qwq-32b"]
    assert model is not None
    tokens = [
        qm.perf.memory(model, gpu, Layout(tp=2), engine).kv_tokens
        for item in (whole, halved)
        if (gpu := bind(item).gpus["h200-sxm"].gpu) is not None
    ]
    assert tokens[1] < tokens[0] / 2
    costs = [qm.plan(item).cost_usd_per_hour for item in (whole, halved)]
    assert costs[0] is not None and costs[1] is not None
    assert costs[1] >= costs[0]


def test_fp8_kv_cache_holds_twice_the_tokens_and_never_costs_more() -> None:
    path = ROOT / "scenarios" / "10-quickstart.yaml"
    wide, narrow = (qm.plan(qm.load_scenario(path, set={"engine.kv_dtype": kind})) for kind in ("bf16", "fp8"))
    assert wide.cost_usd_per_hour is not None and narrow.cost_usd_per_hour is not None
    assert narrow.cost_usd_per_hour <= wide.cost_usd_per_hour + 1e-9


def test_deepseek_r1_over_two_nodes_is_slower_on_tcp_than_on_infiniband() -> None:
    def evaluated(fabric: str) -> qm.Evaluation:
        scenario = {
            "qmodel": 1,
            "classes": {
                "r1": {
                    "model": "deepseek-r1",
                    "rate_rps": 0.02,
                    "prompt_tokens": {"mean": 500, "cv": 1},
                    "output_tokens": {"mean": 3000, "cv": 1, "max": 32768},
                    "slo": {"tpot_mean_s": 1.0},
                }
            },
            "fleet": {"gpus": {"h100-sxm": {"fabric": fabric, "price": {"usd_per_gpu_hour": 3}}}},
            "engine": {"name": "sglang"},
        }
        fleet = {
            "qmodel": 1,
            "pools": {"wide": {"model": "deepseek-r1", "gpu": "h100-sxm", "replicas": 1, "layout": {"tp": 16}}},
            "routing": {"r1": [{"path": ["wide"], "share": 1}]},
        }
        return qm.evaluate(scenario, qm.load_fleet(fleet))

    fast, slow = evaluated("ib-ndr"), evaluated("tcp-25")
    assert slow.slo[0].predicted_s is not None and fast.slo[0].predicted_s is not None
    assert slow.slo[0].predicted_s > 1.5 * fast.slo[0].predicted_s
