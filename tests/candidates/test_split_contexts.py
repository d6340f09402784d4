"""Layouts that split contexts over GPUs are candidates only where the scenario lists them."""

from __future__ import annotations

from typing import Any

import pytest

import qmodel as qm
from qmodel.candidates import CandidateSet, enumerate_candidates
from qmodel.problem import bind
from qmodel.scenario import read_scenario


def found(**layouts: Any) -> CandidateSet:
    scenario = read_scenario(
        {
            "qmodel": 1,
            "classes": {
                "long": {
                    "model": "deepseek-r1",
                    "rate_rps": 1,
                    "prompt_tokens": {"mean": 20000, "cv": 0.5},
                    "output_tokens": {"mean": 1000, "cv": 0.5},
                    "slo": {"tpot_mean_s": 0.1},
                }
            },
            "fleet": {"gpus": {"h200-sxm": {"max_count": 16}}},
            "layouts": {"tp": [1, 8], "pp": [1], "dp": [1], **layouts},
        }
    )
    return enumerate_candidates(bind(scenario))


def test_the_default_splits_no_context() -> None:
    assert {item.layout.cp for item in found().candidates} == {1}


def test_a_listed_degree_multiplies_the_latent_pool_and_widens_the_band() -> None:
    by_layout = {str(item.layout): item for item in found(cp=[1, 8]).candidates}
    assert set(by_layout) == {"tp8", "tp1-cp8"}
    tensor, split = by_layout["tp8"].replica, by_layout["tp1-cp8"].replica
    assert tensor.kv_tokens is not None
    assert split.kv_tokens == pytest.approx(8 * tensor.kv_tokens, rel=1e-4)
    assert split.step.band.p90 >= tensor.step.band.p90
    assert split.step.gamma_s < tensor.step.gamma_s


def test_a_degree_that_is_forbidden_is_not_tried() -> None:
    assert {item.layout.cp for item in found(cp=[1, 8], forbid=[{"cp": 8}]).candidates} == {1}


@pytest.mark.parametrize(("cp", "way_out"), [(2, "allow cp 1"), (3, "allow cp 1")])
def test_heads_that_contexts_split_too_far_ask_for_fewer_of_them(cp: int, way_out: str) -> None:
    plan = qm.plan(
        {
            "qmodel": 1,
            "classes": {
                "long": {
                    "model": "qwq-32b",
                    "rate_rps": 1,
                    "prompt_tokens": {"constant": 1000},
                    "output_tokens": {"constant": 100},
                    "slo": {"tpot_mean_s": 0.1},
                }
            },
            "fleet": {"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 3.0}}}},
            "layouts": {"cp": [cp]},
        }
    )
    assert plan.status == "infeasible"
    assert plan.why.best.endswith(f"40 attention heads do not split over tp 8 x cp {cp}")
    assert plan.why.change == way_out
