"""Nothing is feasible: the first limit is named, and the change that is proposed makes a plan possible."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

import qmodel as qm
from tests.planning.test_directions import small

SECOND = {
    "model": "m",
    "rate_rps": 6.0,
    "prompt_tokens": {"mean": 300, "cv": 0.8, "max": 8000},
    "output_tokens": {"mean": 200, "cv": 1.0, "max": 8000},
    "slo": {"ttft_p95_s": 1.0},
}


def scenario(case: str) -> dict[str, Any]:
    data = copy.deepcopy(small(12.0))
    gpus, slo = data["fleet"]["gpus"], data["classes"]["chat"]["slo"]
    if case == "one target":
        slo["ttft_p95_s"] = 0.01
    elif case == "every target":
        slo.update(ttft_p95_s=0.01, tpot_mean_s=0.004)
    elif case == "stock of one class":
        data["classes"]["chat"]["rate_rps"] = 60.0
        gpus["big"]["max_count"] = gpus["small"]["max_count"] = 1
    elif case == "stock of all classes":
        data["classes"]["chat"]["rate_rps"] = 7.0
        data["classes"]["second"] = {**data["classes"]["chat"], "model": "n"}
        data["profiles"] += [{**profile, "model": "n"} for profile in data["profiles"]]
        gpus["small"]["max_count"] = 1
        gpus["big"]["max_count"] = 1
    elif case == "stock of one replica":
        for profile in data["profiles"]:
            profile["layout"] = {"tp": 4}
        gpus["big"]["max_count"] = gpus["small"]["max_count"] = 2
        data["classes"]["chat"]["rate_rps"] = 1.0
    return data


CASES = {
    "one target": ("class 'chat' cannot meet ttft_p95_s <= 0.01 on any allowed layout", "classes.chat.slo.ttft_p95_s"),
    "every target": (
        "class 'chat' cannot meet ttft_p95_s <= 0.01 on any allowed layout",
        "classes.chat.slo.ttft_p95_s",
    ),
    "stock of one class": ("class 'chat' needs more GPUs than are in stock", "fleet.gpus.big.max_count"),
    "stock of all classes": ("the classes together need more GPUs than are in stock", "fleet.gpus.big.max_count"),
    "stock of one replica": ("model 'm' needs more GPUs for one replica than are in stock", "fleet.gpus.big.max_count"),
}


@pytest.mark.parametrize("case", CASES)
def test_infeasible_names_the_limit_and_the_change_makes_a_plan_possible(case: str) -> None:
    data = scenario(case)
    plan = qm.plan(data)
    assert (plan.status, plan.termination) == ("infeasible", "proven")
    assert (plan.why.text, plan.why.limit) == CASES[case]
    assert plan.why.best
    changes = re.findall(r"raise ([a-z]\S+) to (?:about )?([\d.]+)", plan.why.change)
    assert changes[0][0] == plan.why.limit
    values = {key: int(value) if key.endswith("max_count") else float(value) for key, value in changes}
    again = qm.plan(qm.load_scenario(data, set=values))
    assert again.fleet is not None, again.why.text


def test_costs_at_the_upper_bands_add_up_over_pools() -> None:
    data = small(3.0)
    data["classes"]["second"] = {**SECOND, "model": "n"}
    data["profiles"] += [{**profile, "model": "n", "band_p90": 0.3} for profile in data["profiles"]]
    plan = qm.plan(data)
    grown = 0.0
    for name, item in data["classes"].items():
        single = qm.plan({**data, "classes": {name: item}})
        assert single.cost_usd_per_hour is not None and single.cost_at_p90_usd_per_hour is not None
        grown += single.cost_at_p90_usd_per_hour
    assert plan.cost_at_p90_usd_per_hour == pytest.approx(grown)
