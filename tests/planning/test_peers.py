"""The side-by-side problems, against values found by step simulation (three seeds; see scenarios/peers)."""

from __future__ import annotations

from pathlib import Path

import pytest

import qmodel as qm
from qmodel.types import Fleet, Layout, Pool
from qmodel.types import Path as Route

PEERS = Path(__file__).parents[2] / "scenarios" / "peers"


def one_pool(model: str, gpu: str, cls: str, replicas: int, tp: int = 1) -> Fleet:
    pool = Pool(name="p", model=model, gpu=gpu, layout=Layout(tp=tp), replicas=replicas)
    return Fleet(pools={"p": pool}, routing={cls: (Route(pools=("p",), share=1.0),)})


def rows(result: qm.Evaluation) -> dict[str, float | None]:
    return {f"{row.metric}_{row.stat}": row.predicted_s for row in result.slo}


def test_p1_takes_two_h100() -> None:
    plan = qm.plan(PEERS / "p1.yaml")
    assert (plan.status, plan.termination) == ("optimal", "proven")
    assert plan.cost_usd_per_hour == pytest.approx(8.04)
    assert [(row.gpu, row.replicas) for row in plan.pools] == [("H100", 2)]
    predicted = {f"{row.metric}_{row.stat}": row.predicted_s for row in plan.slo}
    assert predicted["ttft_p99"] == pytest.approx(0.1705, rel=0.15)
    assert predicted["tpot_mean"] == pytest.approx(0.0141, rel=0.05)


@pytest.mark.parametrize(
    ("replicas", "ttft_p99_s", "tpot_s"), [(5, 0.607, 0.0281), (6, 0.508, 0.0217), (7, 0.454, 0.0187)]
)
def test_p1_on_a100_alone_predicts_the_simulated_tail(replicas: int, ttft_p99_s: float, tpot_s: float) -> None:
    scenario = qm.load_scenario(PEERS / "p1.yaml", apply=["a100-only"])
    predicted = rows(qm.evaluate(scenario, one_pool("llama-3.1-8b", "A100", "chat", replicas)))
    assert predicted["ttft_p99"] == pytest.approx(ttft_p99_s, rel=0.15)
    assert predicted["tpot_mean"] == pytest.approx(tpot_s, rel=0.05)


def test_p2_takes_seven_replicas_of_four_gpus() -> None:
    plan = qm.plan(PEERS / "p2.yaml")
    assert plan.status == "optimal"
    assert plan.cost_usd_per_hour == pytest.approx(112.56)
    assert [(row.tp, row.replicas, row.gpus) for row in plan.pools] == [(4, 7, 28)]
    predicted = {f"{row.metric}_{row.stat}": row.predicted_s for row in plan.slo}
    assert predicted["tpot_mean"] == pytest.approx(0.0317, rel=0.05)
    assert predicted["completion_p95"] == pytest.approx(482, rel=0.05)


def test_p2_with_six_replicas_misses_completion_alone() -> None:
    result = qm.evaluate(PEERS / "p2.yaml", one_pool("llama-3.1-70b", "H100", "reasoning", 6, tp=4))
    assert {row.metric for row in result.slo if not row.met} == {"completion"}
    assert rows(result)["completion_p95"] == pytest.approx(625, rel=0.05)
    assert not result.feasible


def test_p2_with_five_replicas_misses_every_target() -> None:
    result = qm.evaluate(PEERS / "p2.yaml", one_pool("llama-3.1-70b", "H100", "reasoning", 5, tp=4))
    assert {row.metric for row in result.slo if not row.met} >= {"tpot", "completion"}
    assert rows(result)["tpot_mean"] == pytest.approx(0.073, rel=0.15)


def test_p2kv_refuses_seven_replicas_because_kv_memory_delays_the_first_token() -> None:
    seven = qm.evaluate(PEERS / "p2kv.yaml", one_pool("llama-3.1-70b", "H100", "reasoning", 7, tp=4))
    without = qm.evaluate(PEERS / "p2.yaml", one_pool("llama-3.1-70b", "H100", "reasoning", 7, tp=4))
    assert [row.metric for row in seven.slo if not row.met] == ["ttft"]
    assert seven.pools[0].binding == "KV memory: SLO reasoning ttft p99"
    assert without.feasible
    plan = qm.plan(PEERS / "p2kv.yaml")
    assert plan.status == "optimal"
    assert [row.replicas for row in plan.pools] in ([8], [9])
    assert plan.pools[0].binding == "KV memory: SLO reasoning ttft p99"


def test_p4_meets_every_mean_target_for_less_than_the_planner_that_looks_at_one_class_at_a_time() -> None:
    plan = qm.plan(PEERS / "p4.yaml")
    assert plan.cost_usd_per_hour is not None
    assert plan.cost_usd_per_hour < 107.53
    assert all(row.met for row in plan.slo)
    assert plan.bound_usd_per_hour is not None
    assert 0.8 * plan.cost_usd_per_hour < plan.bound_usd_per_hour <= plan.cost_usd_per_hour
