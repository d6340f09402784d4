"""What verbs print, write and exit with, for results made by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qmodel.errors import InfeasibleError, Problem, ScenarioError, SolverFailedError, SolverUnavailableError
from qmodel.planning.plans import Plan
from qmodel.report import json_text, plain, plan_page, render_text
from tests.cli.conftest import Command
from tests.report.sample_results import FLEET, TTFT, a_capacity, a_plan, an_evaluation, no_plan


def answers(plan: Plan) -> dict[str, Callable[..., object]]:
    """Public functions that load nothing and plan this."""
    return {"load_scenario": lambda *_, **__: "a scenario", "plan": lambda *_, **__: plan}


def raises(error: Exception) -> Callable[..., object]:
    def function(*_: object, **__: object) -> object:
        raise error

    return function


def test_a_plan_is_printed_as_a_page(qm: Command) -> None:
    run = qm("plan", "x.yaml", **answers(a_plan()))
    assert (run.code, run.out, run.err) == (0, render_text(plan_page(a_plan())), "")


def test_json_is_the_object_alone(qm: Command) -> None:
    run = qm("plan", "x.yaml", "--format", "json", **answers(a_plan()))
    assert (run.code, run.out, run.err) == (0, json_text(a_plan().to_dict()), "")


def test_reproducible_output_leaves_times_out(qm: Command) -> None:
    run = qm("plan", "x.yaml", "--format", "json", "--reproducible", **answers(a_plan()))
    assert "run" not in json.loads(run.out)
    assert json.loads(run.out) == plain(a_plan().to_dict(reproducible=True))


def test_csv_holds_the_pools_unless_another_table_is_named(qm: Command) -> None:
    pools = list(csv.DictReader(io.StringIO(qm("plan", "x.yaml", "--format", "csv", **answers(a_plan())).out)))
    assert [(row["pool"], row["replicas"], row["stable"]) for row in pools] == [("p1", "3", "true")]
    slo = qm("plan", "x.yaml", "--format", "csv", "--table", "slo", **answers(a_plan())).out
    assert slo.splitlines()[1] == "chat,p1,ttft,p95,0.5,0.412,0.36,0.53,true,false,predicted"


def test_options_reach_the_library(qm: Command) -> None:
    seen: dict[str, object] = {}

    def load(path: Path, **options: object) -> str:
        seen.update(options, path=path)
        return "a scenario"

    def make(scenario: str, *, solver: object, existing: object, on_progress: object) -> Plan:
        seen.update({"solver": solver, "existing": existing})
        return a_plan()

    words = ["--apply", "a", "--apply", "b", "--set", "classes.chat.rate_rps=40", "--set", "layouts.tp=[1,2]"]
    more = [
        "--catalog",
        "c.yaml",
        "--solver",
        "cbc",
        "--existing",
        "runs.yaml",
        "--mip-gap",
        "0.01",
        "--time-limit",
        "5",
    ]
    assert qm("plan", "x.yaml", *words, *more, load_scenario=load, plan=make).code == 0
    assert seen["path"] == Path("x.yaml")
    assert seen["apply"] == ("a", "b")
    assert seen["set"] == {"classes.chat.rate_rps": 40, "layouts.tp": [1, 2]}
    assert seen["existing"] == Path("runs.yaml")
    assert seen["catalog"] == (Path("c.yaml"),)
    assert [getattr(seen["solver"], name) for name in ("name", "mip_gap", "time_limit_s")] == ["cbc", 0.01, 5.0]


def test_out_writes_a_plan_that_explain_reads(qm: Command, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    run = qm("plan", "x.yaml", "--out", out, **answers(a_plan()))
    assert run.code == 0
    assert out.read_text() == json_text(a_plan().to_dict())
    assert run.err == f"written to {out}\n"
    explained = qm("explain", out)
    assert (explained.code, explained.out) == (0, a_plan().explain().rstrip() + "\n")
    assert json.loads(qm("explain", out, "--format", "json").out)["why"]["text"] == a_plan().why.text


def test_out_takes_csv_by_its_name(qm: Command, tmp_path: Path) -> None:
    out = tmp_path / "targets.csv"
    assert qm("plan", "x.yaml", "--out", out, "--table", "slo", **answers(a_plan())).code == 0
    assert out.read_text().startswith("class,path,metric,stat,")


@pytest.mark.parametrize(("status", "code"), [("infeasible", 3), ("limit", 4)])
def test_no_plan_prints_its_object_and_writes_nothing(qm: Command, tmp_path: Path, status: str, code: int) -> None:
    out = tmp_path / "plan.json"
    plan = no_plan(status=status, termination="proven" if status == "infeasible" else "time")
    run = qm("plan", "x.yaml", "--format", "json", "--out", out, **answers(plan))
    printed = json.loads(run.out)
    assert run.code == code
    assert printed["cost_usd_per_hour"] is None
    assert printed["why"]["change"] == plan.why.change
    assert "to proceed: raise classes.chat.slo.ttft_p95_s to >= 0.071" in run.err
    assert not out.exists()


def test_require_slo_tells_a_missed_target_by_its_exit_code(qm: Command) -> None:
    missed = a_plan(slo=(replace(TTFT, predicted_s=0.6, met=False),))
    assert qm("plan", "x.yaml", **answers(missed)).code == 0
    assert qm("plan", "x.yaml", "--require-slo", **answers(missed)).code == 3
    assert qm("plan", "x.yaml", "--require-slo", **answers(a_plan())).code == 0


def test_evaluate_prints_targets_and_takes_a_saved_plan_as_fleet(qm: Command, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    a_plan().save(saved)
    fleets: list[object] = []

    def evaluate(scenario: object, fleet: object) -> object:
        fleets.append(fleet)
        return an_evaluation()

    run = qm("evaluate", "x.yaml", "--fleet", saved, evaluate=evaluate, load_scenario=lambda *_, **__: "s")
    assert run.code == 0
    assert run.out.startswith(f"{saved} under x.yaml\n\nVerdict meets every target\n")
    assert fleets == [saved]
    run = qm("evaluate", "x.yaml", "--fleet", saved, "--format", "csv")
    assert run.out.splitlines()[0].startswith("class,path,metric,stat,target_s")


def test_evaluate_with_require_slo_fails_for_a_fleet_that_misses(qm: Command) -> None:
    stubs = {
        "load_scenario": lambda *_, **__: "s",
        "load_fleet": lambda *_: FLEET,
        "evaluate": lambda *_: an_evaluation(feasible=False),
    }
    assert qm("evaluate", "x.yaml", "--fleet", "f.yaml", **stubs).code == 0
    assert qm("evaluate", "x.yaml", "--fleet", "f.yaml", "--require-slo", **stubs).code == 3


def test_capacity_plans_a_fleet_where_none_is_given_and_says_so(qm: Command) -> None:
    run = qm("capacity", "x.yaml", **answers(a_plan()), capacity=lambda *_: a_capacity())
    assert run.code == 0
    assert "planning one" in run.err
    assert "Carries    1.200 x the demand" in run.out
    curve = qm("capacity", "x.yaml", "--format", "csv").out
    assert curve.splitlines()[0] == "factor,rate_rps,utilisation,goodput_rps,worst_slo,worst_ratio,met"


def test_capacity_of_no_plan_is_infeasible(qm: Command) -> None:
    run = qm("capacity", "x.yaml", "--format", "json", **answers(no_plan()))
    assert run.code == 3
    assert json.loads(run.out)["factor"] is None


def test_saved_plans_are_compared(qm: Command, tmp_path: Path) -> None:
    a_plan().save(tmp_path / "a.json")
    a_plan(cost_usd_per_hour=45.0).save(tmp_path / "b.json")
    page = tmp_path / "c.html"
    run = qm("compare", tmp_path / "a.json", tmp_path / "b.json", "--out", page)
    assert run.code == 0
    assert "cost, USD/h           30.00  45.00 (+15.00, +50.0 %)" in run.out
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(qm("compare", tmp_path / "a.json", tmp_path / "b.json", "--format", "json").out)["columns"] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{a}"], "a.json: is one plan, and compare needs two"),
        (["{a}", "{a}"], "a.json: is named twice"),
        (["{a}", "{b}", "--set", "x=1"], "saved plans take no --apply"),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused(
    qm: Command, tmp_path: Path, words: list[str], message: str
) -> None:
    for name in ("a", "b"):
        a_plan().save(tmp_path / f"{name}.json")
    run = qm("compare", *(word.format(a=tmp_path / "a.json", b=tmp_path / "b.json") for word in words))
    assert run.code == 2
    assert message in run.err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            ScenarioError([Problem(what="a"), Problem(what="b")]),
            2,
            "<input>: a\n<input>: b\n2 problems. Nothing was planned.\n",
        ),
        (ScenarioError("a"), 2, "<input>: a\n1 problem. Nothing was planned.\n"),
        (SolverUnavailableError("no cbc"), 2, "qmodel: no cbc\n"),
        (InfeasibleError("no fleet"), 3, "qmodel: no fleet\n"),
        (SolverFailedError("it died"), 4, "qmodel: it died\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_errors_have_one_message_and_their_exit_code(qm: Command, error: Exception, code: int, message: str) -> None:
    run = qm("plan", "x.yaml", load_scenario=raises(error))
    assert (run.code, run.out, run.err) == (code, "", message)


def test_a_bug_asks_to_be_reported_and_hides_its_traceback(qm: Command) -> None:
    run = qm("plan", "x.yaml", load_scenario=raises(ZeroDivisionError("division by zero")))
    assert (run.code, run.out) == (1, "")
    assert "please report it" in run.err and "division by zero" in run.err
    assert "Traceback" not in run.err
    run = qm("plan", "x.yaml", "--debug", load_scenario=raises(ZeroDivisionError("division by zero")))
    assert run.code == 1 and "Traceback (most recent call last)" in run.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "nonsense"], "has no '='"),
        (["--mip-gap", "-1"], "mip_gap must be in [0, 1) (got -1.0)"),
        (["--mip-gap", "nan"], "mip_gap must be in [0, 1) (got nan)"),
        (["--time-limit", "0"], "time_limit_s must be greater than 0 (got 0.0)"),
        (["--out", "no/such/folder/plan.json"], "no/such/folder/plan.json: there is no folder 'no/such/folder'"),
        (["--out", "."], ".: is a folder; name a file"),
        (["--table", "slo"], "--table: needs --format csv"),
        (["--format", "csv", "--table", "sloo"], "--table: no table 'sloo'; there are: pools, slo,"),
        (["--format", "xml"], "'xml' is not one of"),
        (["--nope"], "No such option"),
    ],
)
def test_words_that_make_no_sense_are_refused_before_anything_is_read(
    qm: Command, words: list[str], message: str
) -> None:
    run = qm(
        "plan", "x.yaml", *words, load_scenario=raises(AssertionError("read")), plan=raises(AssertionError("planned"))
    )
    assert (run.code, run.out) == (2, "")
    assert message in run.err


def test_an_unknown_verb_is_bad_input(qm: Command) -> None:
    assert qm("simulate", "x.yaml").code == 2


def test_problems_of_a_file_are_the_answer_of_validate(qm: Command) -> None:
    problem = Problem(what="must be greater than 0 (got -3)", key="classes.a.rate_rps", file="x.yaml", line=3, column=5)
    run = qm("validate", "x.yaml", validate=lambda *_, **__: [problem])
    assert (run.code, run.out) == (2, "")
    assert run.err == "x.yaml:3:5: classes.a.rate_rps: must be greater than 0 (got -3)\n1 problem.\n"
    run = qm("validate", "x.yaml", "--format", "json")
    assert run.code == 2
    assert json.loads(run.out)["problems"][0]["line"] == 3
    run = qm("validate", "x.yaml", validate=lambda *_, **__: [])
    assert (run.code, run.out, run.err) == (0, "x.yaml: valid\n", "")
