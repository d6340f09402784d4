"""Searches that end early: what was found stands, and says why it ended."""

from __future__ import annotations

import copy
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulp
import pytest
from ruamel.yaml import YAML

import qmodel as qm
from qmodel.optimize import solvers
from tests.planning.shared_models import two_classes

PEERS = Path(__file__).parents[2] / "scenarios" / "peers"


def many_classes(*, scarce: bool) -> dict[str, Any]:
    """Four classes of each of three models: the gap stays open; scarce: GPUs are, and no program is soon done."""
    data: dict[str, Any] = YAML(typ="safe").load((PEERS / "p4.yaml").read_text())
    classes = {}
    for name, item in data["classes"].items():
        for number, factor in enumerate((0.8, 1.4)):
            slo = {key: target_s * (0.9 + 0.3 * number) for key, target_s in item["slo"].items()}
            classes[f"{name}-{number}"] = {
                **copy.deepcopy(item),
                "rate_rps": item["rate_rps"] * factor / 2.0,
                "slo": slo,
            }
    data["classes"] = classes
    if scarce:
        data["engine"]["router"] = "jsq"
        for gpu, count in (("A100", 12), ("H100", 12), ("L40S", 16)):
            data["fleet"]["gpus"][gpu]["max_count"] = count
    return data


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """A solver that dies after so many programs; ``left`` counts down."""
    state = {"left": 0}
    real = solvers._backend

    def backend(name: str, *, mip: bool, gap: float, seconds: float, alone: bool = True) -> Any:
        if state["left"] <= 0:
            return pulp.COIN_CMD(path="/bin/false", mip=mip, msg=False, gapRel=gap, timeLimit=seconds)
        state["left"] -= 1
        return real("highs", mip=mip, gap=gap, seconds=seconds)

    monkeypatch.setattr(solvers, "_backend", backend)
    monkeypatch.setattr(solvers, "check_solver", lambda name: None)
    monkeypatch.setattr("qmodel.planning.planner.check_solver", lambda name: None)
    yield state


def test_a_solver_that_dies_at_once_is_a_limit_with_its_words(dying: dict[str, int]) -> None:
    plan = qm.plan(PEERS / "p4.yaml")
    assert (plan.status, plan.termination, plan.fleet, plan.cost_usd_per_hour) == ("limit", "solver_error", None, None)
    assert plan.why.text.startswith("solver 'highs' failed: ") and "false" in plan.why.text
    with pytest.raises(qm.SolverFailedError):
        plan.raise_for_status()


@pytest.mark.parametrize("programs", [2, 3, 4])
def test_a_solver_that_dies_on_the_way_leaves_the_best_plan_until_then(dying: dict[str, int], programs: int) -> None:
    others = [f"classes.{kind}-{size}" for kind in ("chat", "reason") for size in ("32b", "70b")]
    one_model = qm.load_scenario(PEERS / "p4.yaml", set=dict.fromkeys(others))  # models are chosen for one by one
    dying["left"] = programs
    plan = qm.plan(one_model, solver=qm.SolverOptions(mip_gap=0.0))
    assert (plan.status, plan.termination) == ("feasible", "solver_error")
    assert plan.why.text.startswith("the cheapest fleet found before the solver failed")
    assert plan.gap is not None and plan.bound_usd_per_hour is not None and plan.cost_usd_per_hour is not None
    assert plan.bound_usd_per_hour <= plan.cost_usd_per_hour
    assert qm.verify(plan).ok


def test_what_a_solver_leaves_and_nobody_can_read_is_told(
    monkeypatch: pytest.MonkeyPatch, dying: dict[str, int]
) -> None:
    dying["left"] = 100

    def broken(*_: Any) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(solvers, "_read", broken)
    plan = qm.plan(PEERS / "p4.yaml")
    assert plan.termination == "solver_error"
    assert "its answer could not be read (IndexError: list index out of range)" in plan.why.text


def test_a_short_time_gives_a_plan_with_a_true_gap_or_none() -> None:
    for scarce in (False, True):
        plan = qm.plan(many_classes(scarce=scarce), solver=qm.SolverOptions(time_limit_s=0.02))
        if plan.fleet is None:
            assert (plan.status, plan.termination, plan.cost_usd_per_hour) == ("limit", "time", None)
            assert plan.why.limit == "--time-limit"
        else:
            assert plan.status == "feasible" and plan.termination == "time" and qm.verify(plan).ok
            assert (
                plan.cost_usd_per_hour is not None and plan.cost_usd_per_hour > (plan.bound_usd_per_hour or 0.0) > 0.0
            )


def test_a_search_cancelled_from_another_thread_ends_while_a_program_is_solved() -> None:
    cancel, timers = threading.Event(), []

    def told(report: qm.Progress) -> None:
        if report.stage == "solve":
            timers.append(threading.Timer(0.2, cancel.set))
            timers[-1].start()

    plan = qm.plan(
        many_classes(scarce=True),
        solver=qm.SolverOptions(time_limit_s=600.0),
        on_progress=told,
        cancel=cancel.is_set,
    )
    assert timers and (plan.status, plan.termination, plan.why.text) == (
        "limit",
        "cancelled",
        "the search was cancelled",
    )


def test_an_interrupt_ends_a_program_that_is_being_solved() -> None:
    before = signal.getsignal(signal.SIGINT)

    def told(report: qm.Progress) -> None:
        if report.stage == "solve":
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        qm.plan(many_classes(scarce=True), solver=qm.SolverOptions(time_limit_s=600.0), on_progress=told)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_fleet_that_does_not_hold_is_repaired_though_the_time_is_over() -> None:
    """Between two looks at the frontier a percentile jumps, and a pool of the fleet found in time misses a target."""
    data = two_classes(4, "random")
    for item in data["classes"].values():
        item["rate_rps"] *= 30.0
    data["fleet"]["gpus"]["small"]["max_count"] = 20
    plan = qm.plan(data, solver=qm.SolverOptions(mip_gap=1e-4, time_limit_s=2.0))
    assert (plan.status, plan.termination) == ("feasible", "time"), plan.why.text
    assert qm.verify(plan).ok
