"""Verbs on a small scenario with the real planner, in this process and as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command

ROOT = Path(__file__).parents[2]

SCENARIO = """\
qmodel: 1
title: Two ways to serve one class
classes:
  chat:
    model: m
    rate_rps: 20
    prompt_tokens: {mean: 500, cv: 1.0}
    output_tokens: {mean: 200, cv: 0.8}
    slo: {ttft_p95_s: 0.5, tpot_mean_s: 0.05}
fleet:
  gpus:
    small: {price: {usd_per_gpu_hour: 1.0}}
    large: {price: {usd_per_gpu_hour: 4.0}}
profiles:
  - {model: m, gpu: small, layout: {tp: 1}, alpha_s: .02, beta_s: 2e-4, gamma_s: 0, delta_s: 2e-4, max_num_seqs: 64}
  - {model: m, gpu: large, layout: {tp: 1}, alpha_s: .01, beta_s: 1e-4, gamma_s: 0, delta_s: 1e-4, max_num_seqs: 256}
variants:
  double: {classes.chat.rate_rps: 40}
  large-only: {fleet.gpus.small: ~}
  hopeless: {classes.chat.slo.ttft_p95_s: 0.001}
comparisons:
  growth: [base, double]
"""

JSON_KEYS = {
    "status",
    "termination",
    "cost_usd_per_hour",
    "bound_usd_per_hour",
    "gap",
    "pools",
    "routing",
    "slo",
    "prices",
    "why",
    "versions",
    "run",
}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO)
    return path


def test_a_plan_as_json_has_every_part(qm: Command, scenario: Path) -> None:
    run = qm("plan", scenario, "--format", "json")
    plan = json.loads(run.out)
    assert (run.code, run.err) == (0, "")
    assert plan.keys() >= JSON_KEYS
    assert plan["status"] == "optimal"
    assert plan["cost_usd_per_hour"] == pytest.approx(sum(pool["cost_usd_per_hour"] for pool in plan["pools"]))
    assert all(row["met"] for row in plan["slo"])


def test_equal_input_gives_equal_bytes(qm: Command, scenario: Path) -> None:
    first, second = (qm("plan", scenario, "--format", "json", "--reproducible").out for _ in range(2))
    assert first == second
    assert "run" not in json.loads(first)


def test_a_plan_evaluates_as_it_predicted(qm: Command, scenario: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    plan = json.loads(qm("plan", scenario, "--format", "json", "--out", saved).out)
    run = qm("evaluate", scenario, "--fleet", saved, "--format", "json", "--require-slo")
    assert run.code == 0
    evaluation = json.loads(run.out)
    assert [row["predicted_s"] for row in evaluation["slo"]] == pytest.approx(
        [row["predicted_s"] for row in plan["slo"]]
    )
    assert evaluation["cost_usd_per_hour"] == pytest.approx(plan["cost_usd_per_hour"])


def test_twice_the_demand_overloads_the_plan_and_require_slo_says_so(
    qm: Command, scenario: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "plan.json"
    qm("plan", scenario, "--out", saved)
    words = ("evaluate", scenario, "--fleet", saved, "--set", "classes.chat.rate_rps=2000")
    run = qm(*words, "--require-slo")
    assert run.code == 3
    assert "overloaded: at least one pool cannot carry its load" in run.out
    assert qm(*words).code == 0


def test_capacity_is_where_the_first_target_is_missed(qm: Command, scenario: Path) -> None:
    capacity = json.loads(qm("capacity", scenario, "--format", "json").out)
    assert capacity["factor"] >= 1.0
    assert capacity["rate_rps"] == pytest.approx(20 * capacity["factor"])
    inside = [row["met"] for row in capacity["curve"] if row["factor"] < capacity["factor"]]
    assert inside and all(inside)


def test_a_hopeless_target_is_infeasible_with_a_way_out(qm: Command, scenario: Path, tmp_path: Path) -> None:
    run = qm("plan", scenario, "--apply", "hopeless", "--out", tmp_path / "plan.json")
    assert run.code == 3
    assert "\ninfeasible: class 'chat' cannot meet ttft_p95_s <= 0.001" in run.out
    assert "\n  best candidate: " in run.out
    assert "\n  to proceed: " in run.out
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        (["--variants", "base,double"], ["base", "double"]),
        (["--variants", "double,double+large-only"], ["double", "double+large-only"]),
        (["--apply", "large-only"], ["base", "large-only"]),
        (["--comparison", "growth"], ["base", "double"]),
        ([], ["base", "double", "large-only", "hopeless"]),
    ],
)
def test_variants_of_a_file_become_columns(qm: Command, scenario: Path, words: list[str], columns: list[str]) -> None:
    run = qm("compare", scenario, *words, "--format", "json")
    assert run.code == 0
    assert json.loads(run.out)["columns"] == columns


def test_a_comparison_says_what_differs(qm: Command, scenario: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    qm("plan", scenario, "--out", saved)
    run = qm("compare", saved, scenario, "--apply", "double", "--format", "json")
    comparison = json.loads(run.out)
    assert comparison["columns"] == ["plan", "two", "two:double"]
    assert comparison["inputs"] == [
        {"key": "classes.chat.rate_rps", "values": {"plan": 20, "two": 20, "two:double": 40}}
    ]
    cost = next(row for row in comparison["metrics"] if row["name"] == "cost_usd_per_hour")
    assert cost["deltas"]["two"] == 0.0
    assert cost["deltas"]["two:double"] > 0.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--variants", "base,doubel"], "no variant 'doubel'; did you mean 'double'?"),
        (["--comparison", "grow"], "no comparison 'grow'; did you mean 'growth'?"),
        (["--apply", "double", "--variants", "base"], "give one of them"),
        (["--variants", "base"], "compare needs two"),
    ],
)
def test_columns_that_are_not_there_are_refused(qm: Command, scenario: Path, words: list[str], message: str) -> None:
    run = qm("compare", scenario, *words)
    assert (run.code, run.out) == (2, "")
    assert message in run.err


def test_a_comparison_with_an_infeasible_column_is_done_unless_targets_are_required(
    qm: Command, scenario: Path
) -> None:
    words = ("compare", scenario, "--variants", "base,hopeless")
    run = qm(*words)
    assert run.code == 0
    assert "hopeless: class 'chat' cannot meet ttft_p95_s" in run.out
    assert qm(*words, "--require-slo").code == 3


def process(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qmodel", *map(str, words)]
    return subprocess.run(command, text=True, capture_output=True, cwd=ROOT, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_a_process_prints_the_answer_alone(scenario: Path) -> None:
    """Solvers print banners on the process's stdout, which a runner inside this process would not see."""
    run = process("plan", scenario, "--format", "json")
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["status"] == "optimal"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m qmodel schema | head -n 1; echo ${{PIPESTATUS[0]}}"
    run = subprocess.run(["bash", "-c", command], text=True, capture_output=True, cwd=ROOT, check=True)
    assert (run.stdout, run.stderr) == ("{\n0\n", "")


def test_letters_that_stdout_cannot_write_are_replaced(scenario: Path) -> None:
    run = process("plan", scenario, "--set", "title=対話", env={"PYTHONIOENCODING": "ascii", "PATH": ""})
    assert run.returncode == 0
    assert run.stdout.startswith("??\n")
