"""Files that cannot be used: a clear message, exit code 2 or 3, nothing on stdout, nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command

GOOD = """\
qmodel: 1
title: A test
classes:
  chat:
    model: llama-3.1-8b
    rate_rps: 4
    prompt_tokens: {mean: 800, cv: 1.0}
    output_tokens: {mean: 200, cv: 0.9}
    slo: {ttft_p95_s: 1.0, tpot_p95_s: 0.05}
fleet:
  gpus:
    h100-sxm: {price: {usd_per_gpu_hour: 2.9}}
"""

BAD = {
    "an unknown key": (
        "    rate_rps: 4",
        "    rate_rps: 4\n    outptu_tokens: 3",
        "x.yaml:7:5: classes.chat: unknown key 'outptu_tokens'; did you mean 'output_tokens'?",
    ),
    "a number given as text": ("rate_rps: 4", "rate_rps: 'four'", "x.yaml:6:5: classes.chat.rate_rps: "),
    "a negative length": ("mean: 800", "mean: -800", "x.yaml:7:21: classes.chat.prompt_tokens.mean: "),
    "a rate that is not a number": (
        "rate_rps: 4",
        "rate_rps: .nan",
        "x.yaml:6:15: classes.chat.rate_rps: must be a finite number (got .nan)",
    ),
    "broken YAML": ("{mean: 800, cv: 1.0}", "{mean: 800, cv: 1.0", "x.yaml:8:"),
    "duplicate keys": (
        "    rate_rps: 4",
        "    rate_rps: 4\n    rate_rps: 5",
        "x.yaml:7:5: classes.chat: key 'rate_rps' is given twice",
    ),
    "a file that extends itself": ("title: A test", "extends: x.yaml", "x.yaml:2:1: extends: "),
    "an unknown model": ("llama-3.1-8b", "lama-3.1-8b", "x.yaml:5:5: classes.chat.model: no model 'lama-3.1-8b'"),
    "an unknown GPU": ("h100-sxm", "h10-sxm", "x.yaml:12:5: fleet.gpus.h10-sxm"),
    "a variant that is not there": (
        "title: A test",
        "title: A test\ncomparisons: {a: [base, peek]}",
        "no variant 'peek'",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("verb", ["plan", "validate"])
def test_a_file_that_cannot_be_used_is_refused(
    qm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, verb: str
) -> None:
    good, bad, message = BAD[case]
    assert good in GOOD
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(GOOD.replace(good, bad, 1))
    run = qm(verb, "x.yaml", *(["--out", "plan.json"] if verb == "plan" else []))
    assert (run.code, run.out) == (2, "")
    assert message in run.err
    assert "Traceback" not in run.err and "bug" not in run.err
    assert run.err.splitlines()[-1].startswith(("1 problem.", "2 problems."))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.yaml"]


def test_no_classes_are_refused(qm: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for classes in ("classes: {}\n", ""):
        path.write_text(f"qmodel: 1\n{classes}fleet: {{gpus: {{h100-sxm: {{}}}}}}\n")
        run = qm("plan", path)
        assert (run.code, run.out) == (2, "")
        assert "classes" in run.err


def test_a_missing_file_is_named(qm: Command, tmp_path: Path) -> None:
    path = tmp_path / "nowhere.yaml"
    run = qm("plan", path)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith(f"{path}: ")
    assert run.err.endswith("1 problem. Nothing was planned.\n")


def test_two_files_that_extend_each_other_are_refused(qm: Command, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    run = qm("plan", tmp_path / "a.yaml")
    assert (run.code, run.out) == (2, "")
    assert "extends" in run.err


def test_all_problems_of_a_file_are_told_at_once(qm: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD.replace("rate_rps: 4", "rate_rps: -4").replace("mean: 200", "mean: x").replace("h100-", "h1-"))
    run = qm("plan", path)
    assert run.code == 2
    assert run.err.endswith("3 problems. Nothing was planned.\n")


@pytest.mark.parametrize("word", ["classes.chat.rate=3", "classes.chat.rate_rps=many", "classes..x=1", "=3"])
def test_overrides_that_do_not_fit_are_refused(qm: Command, tmp_path: Path, word: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD)
    run = qm("plan", path, "--set", word)
    assert (run.code, run.out) == (2, "")
    assert "--set" in run.err


def test_an_unknown_variant_is_refused(qm: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD)
    run = qm("plan", path, "--apply", "peak")
    assert (run.code, run.out) == (2, "")
    assert "no variant 'peak'" in run.err


def test_a_solver_that_is_not_there_is_bad_input(qm: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD)
    run = qm("plan", path, "--solver", "gurbi")
    assert (run.code, run.out) == (2, "")
    assert "gurbi" in run.err


def test_a_model_that_fits_nowhere_is_infeasible(qm: Command, tmp_path: Path) -> None:
    path, out = tmp_path / "x.yaml", tmp_path / "plan.json"
    path.write_text(GOOD.replace("llama-3.1-8b", "deepseek-r1").replace("h100-sxm", "l4"))
    run = qm("plan", path, "--out", out)
    assert run.code == 3
    assert "infeasible: model 'deepseek-r1' fits on no allowed layout" in run.out
    assert "to proceed: " in run.out
    assert not out.exists()
    printed = json.loads(qm("plan", path, "--format", "json").out)
    assert printed["status"] == "infeasible"
    assert printed["cost_usd_per_hour"] is None
    assert printed["pools"] == []


def test_a_file_that_is_not_a_saved_plan_is_refused_by_compare(qm: Command, tmp_path: Path) -> None:
    broken = tmp_path / "plan.json"
    broken.write_text('{"status": "optimal", "termination": "gap", "pools": []}')
    run = qm("compare", broken, broken.with_name("other.json"))
    assert (run.code, run.out) == (2, "")
    assert "other.json" in run.err or "not a saved plan" in run.err
