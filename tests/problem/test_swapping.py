"""Engines that swap: what a copied token takes, where it comes from, and what is missing."""

from __future__ import annotations

from typing import Any

import pytest

import qmodel as qm
from qmodel.errors import ScenarioError
from qmodel.evaluation import pool_cases
from qmodel.problem import bind
from qmodel.types import Fleet, Layout, Path, Pool

SWAP = {"preemption": "swap", "swap_gbps": 25.0}


def chat(engine: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "llama-3.1-8b",
                "rate_rps": 1.0,
                "prompt_tokens": {"mean": 800, "cv": 1.0},
                "output_tokens": {"mean": 1500, "cv": 0.8},
                "slo": {"completion_p95_s": 900},
            }
        },
        "fleet": {"gpus": {"l40s": {"price": {"usd_per_gpu_hour": 0.9}}}},
        "engine": {"max_num_seqs": 256, "watermark": 0.01, **engine},
        **changes,
    }


def fleet_of(tp: int = 1, pp: int = 1) -> Fleet:
    pool = Pool(name="a", model="llama-3.1-8b", gpu="l40s", layout=Layout(tp=tp, pp=pp), replicas=1)
    return Fleet(pools={"a": pool}, routing={"chat": (Path(pools=("a",), share=1.0),)})


def told(data: dict[str, Any]) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        qm.load_scenario(data)
    return [str(problem).removeprefix("<dict>: ") for problem in caught.value.problems]


@pytest.mark.parametrize(("tp", "pp", "bytes_on_one"), [(1, 1, 131072.0), (2, 1, 65536.0), (1, 2, 65536.0)])
def test_a_copied_token_takes_its_bytes_on_one_gpu(tp: int, pp: int, bytes_on_one: float) -> None:
    instance = bind(qm.load_scenario(chat(SWAP)))
    replica = pool_cases(instance, fleet_of(tp, pp))["a"].replica  # type: ignore[union-attr]
    assert replica.preemption == "swap"
    assert replica.swap_out_s_per_token == replica.swap_in_s_per_token == pytest.approx(bytes_on_one / 25e9)
    usual = pool_cases(bind(qm.load_scenario(chat({}))), fleet_of(tp, pp))["a"].replica  # type: ignore[union-attr]
    assert (usual.preemption, usual.swap_out_s_per_token) == ("recompute", 0.0)


def test_the_cheaper_an_eviction_the_more_a_pool_carries() -> None:
    def most(engine: dict[str, Any]) -> float:
        return qm.capacity(chat({"admission": "full_prompt", "watermark": 0.0, **engine}), fleet_of()).factor

    slow, fast = most({"preemption": "swap", "swap_gbps": 0.05}), most({"preemption": "swap", "swap_gbps": 50.0})
    assert slow < most({}) <= fast * (1.0 + 1e-6)


def test_what_is_simulated_swaps_too() -> None:
    data = chat({"watermark": 0.0, **SWAP})
    factor = qm.capacity(data, fleet_of()).factor
    data["classes"]["chat"]["rate_rps"] = 2.0 * factor  # memory is saturated
    tiers = {row.tier for row in qm.simulate(data, fleet_of(), requests=1500).transfers if row.tokens}
    assert {"gpu to host", "host to gpu"} <= tiers


def test_a_number_that_is_missing_is_asked_for() -> None:
    assert told(chat({"preemption": "swap"})) == [
        "engine.preemption: swap needs swap_gbps, the rate of one GPU's copies; time a pinned copy from one GPU to host"
        " memory while all of its node copy; state its 1e9 bytes/s"
    ]
    assert told(chat({"swap_gbps": 25.0})) == [
        "engine.swap_gbps: is of no use without preemption: swap; leave it out, or write preemption: swap"
    ]
    profiles = [{"model": "m", "gpu": "l40s", "alpha_s": 0.01, "beta_s": 1e-4, "gamma_s": 1e-8, "delta_s": 1e-5}]
    data = chat(SWAP, profiles=profiles)
    data["classes"]["chat"]["model"] = "m"
    plan = qm.plan(data)
    assert plan.status == "infeasible" and "needs the KV bytes of a token" in plan.why.best


def test_a_batch_on_engines_that_swap_is_refused() -> None:
    data = chat(SWAP)
    del data["classes"]["chat"]["rate_rps"]
    data["classes"]["chat"]["batch"] = {"requests": 10, "deadline_s": 900}
    assert told(data) == [
        "classes.chat.batch: is a batch, which is predicted with recomputation only, and engines on l40s swap; use"
        " preemption: recompute"
    ]
