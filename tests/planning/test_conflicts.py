"""Limits that conflict: the set is what brute force finds, and what is said to be enough is."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmodel as qm
from qmodel.planning.conflict_records import Conflict, ConflictingLimit
from qmodel.planning.stated_limits import user_limits
from qmodel.problem import bind
from tests.planning.limited_fleets import least_cost, two_models
from tests.planning.shared_models import two_classes
from tests.planning.test_batches import nightly
from tests.planning.test_infeasible import scenario
from tests.planning.test_several_models import BOTH, asking

LOOSE_S = 1e6


def with_value(data: Mapping[str, Any], key: str, value: object) -> dict[str, Any]:
    """The scenario with a limit at another value; None: without it, a target so loose that it never matters."""
    if value is None and (".slo." in key or key.endswith("deadline_s")):
        value = LOOSE_S
    found = copy.deepcopy(dict(data))
    *way, last = key.split(".")
    part: Any = found
    for name in way:
        if name.endswith("[0]"):
            return {**found, way[0]: {**found[way[0]], last: []}}
        part = part[name]
    if last.endswith("[0]"):
        part[last.removesuffix("[0]")] = []
        return found
    if value is None:
        part.pop(last, None)
    else:
        part[last] = value
    return found


def only(data: dict[str, Any], kept: set[str]) -> dict[str, Any]:
    """The scenario without all limits but some."""
    for item in user_limits(bind(qm.load_scenario(data))):
        if item.key not in kept:
            data = with_value(data, item.key, None)
    return data


def feasible(data: dict[str, Any]) -> bool:
    """By brute force over counts."""
    return bool(np.isfinite(least_cost(data)))


CASES = ("stock and target", "budget and target", "power and spare", "pools and stock", "spare and node", "many")


def limited(case: str, seed: int, router: str) -> dict[str, Any]:
    """A scenario of two classes with limits that cannot all be kept, or just can."""
    data = two_models(seed, router)
    gpus, fleet, policy = data["fleet"]["gpus"], data["fleet"], data["policy"]
    rng = np.random.default_rng([seed, 5])
    cost = least_cost(data)
    match case:
        case "stock and target":
            gpus["big"]["max_count"], gpus["small"]["max_count"] = 1, int(rng.integers(1, 3))
        case "budget and target":
            fleet["budget_usd_per_hour"] = cost * float(rng.uniform(0.6, 0.95))
        case "power and spare":
            fleet["power_kw"], policy["spare_replicas"] = float(rng.uniform(1.5, 3.0)), 2
        case "pools and stock":
            gpus["big"]["max_count"], policy["max_pools"] = 1, int(rng.integers(1, 3))
        case "spare and node":
            gpus["small"]["max_nodes"], gpus["big"]["max_count"], policy["spare_replicas"] = 1, 2, 2
        case "many":
            gpus["big"] |= {"max_count": 2, "provider": "x"}
            gpus["small"] |= {"max_count": 4, "provider": "x"}
            fleet |= {"providers": {"x": {"max_gpus": 5}}, "power_kw": 2.0, "budget_usd_per_hour": cost * 0.9}
            policy |= {"max_pools": 2, "spare_replicas": 1}
    return data


def check(data: dict[str, Any]) -> tuple[Conflict, ...]:
    """The conflicts of a plan, held against brute force; empty where it is feasible."""
    plan = qm.plan(data, solver=qm.SolverOptions(mip_gap=0.0))
    assert (plan.status == "infeasible") is not feasible(data)
    lifted: set[str] = set()
    for conflict in plan.why.conflicts:
        keys = {item.limit for item in conflict.limits}
        assert conflict.irreducible
        assert not feasible(only(data, keys))
        for key in keys:
            assert feasible(only(data, keys - {key})), f"{key} is not needed"
        lifted |= keys
    for conflict in plan.why.conflicts:
        others = data
        for key in lifted - {item.limit for item in conflict.limits}:
            others = with_value(others, key, None)
        for item in conflict.limits:
            check_value(others, item)
    return plan.why.conflicts


def check_value(data: dict[str, Any], item: ConflictingLimit) -> None:
    """What is said to be enough is, and a little less is not."""
    if item.help == "nothing":
        assert not feasible(with_value(data, item.limit, None))
        return
    assert item.help == "value" and item.enough is not None and item.value is not None
    whole = item.limit.rpartition(".")[2].startswith(("max_", "spare_"))
    enough: float = int(item.enough) if whole else item.enough
    assert feasible(with_value(data, item.limit, enough)), (item.limit, enough)
    up = 1 if item.enough > item.value else -1
    less = enough - up if whole else enough * (1.0 - 0.03 * up)
    if (less - item.value) * up > 0.0:
        assert not feasible(with_value(data, item.limit, less)), (item.limit, less)


@pytest.mark.parametrize("case", CASES)
def test_conflicts_are_what_brute_force_finds(case: str) -> None:
    found = check(limited(case, 4, "random"))
    assert found, "the case is feasible"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("case", CASES)
def test_more_conflicts_are_what_brute_force_finds(case: str, seed: int) -> None:
    check(limited(case, seed, "jsq" if seed % 2 else "random"))


def replanned(data: dict[str, Any]) -> bool:
    """Whether a plan is found; that there is none has to be proven."""
    plan = qm.plan(data)
    assert plan.fleet is not None or plan.status == "infeasible", plan.why.text
    return plan.fleet is not None


def competing() -> dict[str, Any]:
    """Two classes of one model that fit into the stock alone, and together do not."""
    data = two_classes(4, "jsq")
    gpus = data["fleet"]["gpus"]
    gpus["small"]["max_count"] = 0
    for item in data["classes"].values():
        item["rate_rps"] *= 2.0
    whole = qm.plan(data)
    assert whole.fleet is not None
    gpus["big"]["max_count"] = whole.fleet.gpus["big"] - 1
    for name, item in data["classes"].items():
        assert qm.plan({**data, "classes": {name: item}}).fleet is not None
    return data


def dear_quality() -> dict[str, Any]:
    data = asking(models=BOTH, min_quality=0.82)
    cost = qm.plan(data).cost_usd_per_hour
    assert cost is not None
    data["fleet"]["budget_usd_per_hour"] = cost * 0.8
    return data


def dear_floor() -> dict[str, Any]:
    data = asking(models=BOTH, floor=0.82)
    cost = qm.plan(data).cost_usd_per_hour
    assert cost is not None
    data["fleet"]["budget_usd_per_hour"] = cost * 0.8
    return data


def late_batch() -> dict[str, Any]:
    data = nightly({"requests": 40, "deadline_s": 8.0})
    del data["fleet"]["gpus"]["small"], data["profiles"][1]
    data["fleet"]["gpus"]["big"]["max_count"] = 1
    return data


def forbidden() -> dict[str, Any]:
    data = two_models(2, "random")
    data["layouts"] = {"forbid": [{"gpu": "small"}]}
    data["fleet"]["gpus"]["big"]["max_count"] = 1
    return data


def slow_api() -> dict[str, Any]:
    data = two_models(2, "random")
    prices = {"usd_per_million_input": 0.5, "usd_per_million_output": 1.5, "meets": ["class-m"]}
    data["fleet"]["apis"] = {"tokens": {"models": {"m": prices | {"max_rate_rps": 0.5}}}}
    data["fleet"]["gpus"]["big"]["max_count"] = data["fleet"]["gpus"]["small"]["max_count"] = 1
    return data


REPLANNED = {
    "competing": (competing, {"fleet.gpus.big.max_count"}),
    "quality and budget": (dear_quality, {"fleet.budget_usd_per_hour", "classes.chat.min_quality"}),
    "floor and budget": (dear_floor, {"fleet.budget_usd_per_hour", "classes.chat.floor"}),
    "deadline and stock": (late_batch, {"fleet.gpus.big.max_count", "classes.nightly.batch.deadline_s"}),
    "forbidden": (forbidden, {"fleet.gpus.big.max_count", "layouts.forbid[0]"}),
    "API": (slow_api, {"fleet.gpus.small.max_count"}),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if "deadline" in case else ()) for case in REPLANNED]
)
def test_a_plan_exists_without_any_limit_of_a_conflict_and_at_what_is_enough(case: str) -> None:
    make, members = REPLANNED[case]
    data = make()
    plan = qm.plan(data)
    assert plan.status == "infeasible"
    (conflict,) = plan.why.conflicts
    keys = {item.limit for item in conflict.limits}
    assert conflict.irreducible and members <= keys, conflict.lines
    assert not replanned(only(data, keys))
    for item in conflict.limits:
        assert replanned(only(data, keys - {item.limit})), item.limit
        assert item.help in ("value", "lifted"), conflict.lines
        enough = item.enough if not item.limit.endswith("max_count") else int(item.enough or 0)
        assert replanned(with_value(data, item.limit, enough)), (item.limit, enough)
    assert conflict.nearest in keys


def test_limits_that_conflict_apart_from_each_other_are_told_apart() -> None:
    plan = qm.plan(scenario("every target"))
    assert [[item.limit for item in conflict.limits] for conflict in plan.why.conflicts] == [
        ["classes.chat.slo.tpot_mean_s"],
        ["classes.chat.slo.ttft_p95_s"],
    ]
    values = {item.limit: item.enough for conflict in plan.why.conflicts for item in conflict.limits}
    assert qm.plan(qm.load_scenario(scenario("every target"), set=values)).fleet is not None


def test_conflicts_are_saved_and_told(tmp_path: Path) -> None:
    plan = qm.plan(scenario("stock of all classes"))
    plan.save(tmp_path / "none.json")
    again = qm.load_plan(tmp_path / "none.json")
    assert again.why == plan.why and again.why.conflicts
    assert json.loads((tmp_path / "none.json").read_text())["why"]["conflicts"] == json.loads(
        json.dumps([asdict(item) for item in plan.why.conflicts])
    )
    assert "no fleet keeps these 2 limits together, whatever the others are:" in plan.explain()
    assert "    fleet.gpus.big.max_count, 1 big GPUs: 2 is enough while the others hold" in plan.explain().split("\n")
    assert "each of these conflicts" not in plan.explain()
    twice = replace(plan.why, conflicts=plan.why.conflicts * 2)
    assert twice.conflict_lines[-1] == (
        "each of these conflicts needs a change; what is enough of one is told without the limits of the others"
    )
    old = plan.to_dict()
    old["why"] = {key: value for key, value in asdict(plan.why).items() if key != "conflicts"}
    assert qm.Plan.from_dict(old).why.conflicts == ()


def test_what_is_not_ruled_out_has_no_conflicts() -> None:
    data = two_models(3, "jsq")
    assert qm.plan(data).why.conflicts == ()
    data["fleet"]["budget_usd_per_hour"] = 1e-3
    stopped = qm.plan(data, cancel=lambda: True)
    assert stopped.status == "limit" and stopped.why.conflicts == ()


def test_a_cancelled_search_for_conflicts_leaves_the_answer() -> None:
    looks = {"conflict": 0}

    def told(report: qm.Progress) -> None:
        looks[report.stage] = looks.get(report.stage, 0) + 1

    data = scenario("stock of all classes")
    plan = qm.plan(data, on_progress=told, cancel=lambda: looks["conflict"] > 2)
    assert plan.status == "infeasible" and plan.why.limit == "fleet.gpus.big.max_count"
    assert not any(item.irreducible for item in plan.why.conflicts)


def test_words_say_what_would_be_enough() -> None:
    rows = [
        ConflictingLimit(limit="a", value=2.0, unit="x", enough=3.0, help="value", needed=True),
        ConflictingLimit(limit="b", value=None, unit="pools of its own", enough=None, help="lifted", needed=True),
        ConflictingLimit(limit="c", value=1.0, unit="x", enough=None, help="nothing", needed=False),
        ConflictingLimit(limit="d", value=4.0, unit="x", enough=None, help="unknown", needed=True),
        ConflictingLimit(limit="e", value=4.0, unit="x", enough=3.0, help="value", needed=True),
    ]
    found = Conflict.of(rows, unified_only=True)
    assert found.lines == (
        "no fleet of unified pools keeps these 5 limits together, whatever the others are:",
        "  a, 2 x: 3 is enough while the others hold",
        "  b, pools of its own: without it there is a fleet",
        "  c, 1 x: no other value is enough",
        "  d, 4 x: what would be enough was not settled",
        "  e, 4 x: 3 is enough while the others hold",
        "  the nearest change: lower e to 3",
        "  some of them may not be needed for the conflict: the search ended before that was settled",
    )
    assert Conflict.from_dict(json.loads(json.dumps(asdict(found)))) == found
