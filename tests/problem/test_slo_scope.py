"""Targets over the whole fleet: what they do not go with is refused at its place in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import qmodel as qm
from qmodel.problem import bind

BASE = """qmodel: 1
classes:
  chat:
    model: llama-3.1-8b
    rate_rps: 4
    prompt_tokens: {mean: 800, cv: 1}
    output_tokens: {mean: 200, cv: 1}
    slo: {ttft_p95_s: 0.5}
fleet: {gpus: {h100-sxm: {price: {usd_per_gpu_hour: 3.0}}}}
policy: {slo_scope: fleet}
"""


def told(**changes: Any) -> list[str]:
    overrides = {key.replace("__", "."): value for key, value in changes.items()}
    with pytest.raises(qm.ScenarioError) as raised:
        bind(qm.load_scenario(BASE, set=overrides))
    return [str(problem) for problem in raised.value.problems]


@pytest.mark.parametrize(
    ("changes", "key", "what"),
    [
        ({"policy__spare_replicas": 1}, "policy.spare_replicas", "replicas to spare"),
        ({"policy__survive_nodes": 1}, "policy.survive_nodes", "fleets that survive the loss of a node"),
        ({"policy__max_pools": 2}, "policy.max_pools", "a limit on pools"),
        ({"policy__change": {"spread_h": 9}}, "policy.change", "the cost of changing a fleet"),
        (
            {"classes__chat__patience_s": 20, "classes__chat__slo__abandoned_share": 0.01},
            "classes.chat.patience_s",
            "requests that leave",
        ),
        ({"layouts__disaggregate": True}, "layouts.disaggregate", "separate prefill and decode pools"),
        ({"objective__maximize": "served_rps"}, "objective", "another objective than cost"),
        ({"objective__minimize": "ttft_p95_s", "objective__class": "chat"}, "objective", "another objective than cost"),
        (
            {"demand": {"scenarios": {"up": {"weight": 1.0, "factors": {"chat": 1.0}}}}},
            "demand",
            "uncertain demand",
        ),
        (
            {"classes__chat__rate_rps": None, "classes__chat__arrivals": {"rate_rps": 4, "profile": [1] * 24}},
            "classes.chat.arrivals.profile",
            "demand by the hour",
        ),
        (
            {
                "classes__chat__model": None,
                "classes__chat__models": {"llama-3.1-8b": {"quality": 1}, "qwen3-8b": {"quality": 2}},
            },
            "classes.chat.models",
            "several models for a class",
        ),
        (
            {
                "profiles": [{"model": "llama-3.1-8b", "gpu": "h100-sxm", "max_rate_rps": {"chat": 2.0}}],
            },
            "profiles[0].max_rate_rps",
            "measured capacities, which do not say what share of requests exceeds a target,",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused_with_its_key(changes: dict[str, Any], key: str, what: str) -> None:
    found = [text for text in told(**changes) if "policy.slo_scope: fleet" in text]
    assert len(found) == 1
    assert f"{key}: not supported yet: {what} with policy.slo_scope: fleet; " in found[0]


def test_the_line_of_the_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(BASE.replace("{slo_scope: fleet}", "\n  slo_scope: fleet\n  spare_replicas: 2"))
    with pytest.raises(qm.ScenarioError, match=r"s\.yaml:12:\d+: policy\.spare_replicas: not supported yet"):
        bind(qm.load_scenario(tmp_path / "s.yaml"))


def test_all_problems_are_told_at_once() -> None:
    assert len(told(policy__spare_replicas=1, policy__max_pools=2, layouts__disaggregate=True)) == 3


def test_a_running_fleet_is_refused() -> None:
    scenario = qm.load_scenario(BASE)
    plan = qm.plan(scenario)
    assert plan.fleet is not None
    with pytest.raises(qm.ScenarioError, match=r"policy\.slo_scope: not supported yet: a running fleet"):
        qm.plan(scenario, existing=plan.fleet)


def test_layouts_say_that_separate_pools_are_not_tried() -> None:
    instance = bind(qm.load_scenario(BASE))
    assert instance.layouts.disaggregate is False
    assert instance.policy.slo_scope == "fleet"


def test_an_unknown_scope_is_refused_with_those_there_are() -> None:
    with pytest.raises(qm.ScenarioError, match=r"policy\.slo_scope: must be pool or fleet"):
        qm.load_scenario(BASE, set={"policy.slo_scope": "class"})
