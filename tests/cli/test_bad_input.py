"""Files that cannot be used: a clear message, exit code 2 or 3, nothing on stdout, nothing written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from qmodel.report import json_text
from tests.cli.conftest import Command
from tests.report.sample_results import a_plan

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
    "a rate that nobody has": (
        "rate_rps: 4",
        "rate_rps: 1e12",
        "x.yaml:6:5: classes.chat.rate_rps: must be from 1e-09 to 1e+06 requests per second (got 1e+12)",
    ),
    "a rate of less than one request in a lifetime": (
        "rate_rps: 4",
        "rate_rps: 1e-300",
        "x.yaml:6:5: classes.chat.rate_rps: must be from 1e-09 to 1e+06 requests per second (got 1e-300)",
    ),
    "GPUs that cost nothing": (
        "usd_per_gpu_hour: 2.9",
        "usd_per_gpu_hour: 0",
        "x.yaml:12:24: fleet.gpus.h100-sxm.price.usd_per_gpu_hour: must be greater than 0 (got 0)",
    ),
    "steps without room for prompts": (
        "qmodel: 1",
        "qmodel: 1\nengine: {max_batched_tokens: 512}",
        "x.yaml:2:10: engine.max_batched_tokens: steps of max_batched_tokens 512 have no room for prompts",
    ),
    "more sequences than a step has tokens, on one GPU type": (
        "{usd_per_gpu_hour: 2.9}",
        "{usd_per_gpu_hour: 2.9}, engine: {max_num_seqs: 8192}",
        "fleet.gpus.h100-sxm.engine.max_num_seqs: steps of max_batched_tokens 8192 have no room for prompts",
    ),
    "an engine version of one GPU type": (
        "{usd_per_gpu_hour: 2.9}",
        "{usd_per_gpu_hour: 2.9}, engine: {version: zz}",
        "fleet.gpus.h100-sxm.engine.version: no version 'zz' of engine 'vllm'",
    ),
    "a topology that is not there": (
        "{price: ",
        "{topology: zz, price: ",
        "no topology 'zz' in the catalog; 'qmodel catalog topologies' lists them",
    ),
    "half of a GPU's name": (
        "h100-sxm:",
        "h100:",
        "fleet.gpus.h100: no gpu 'h100' in the catalog; nearest: 'h100-sxm', 'h100-pcie', 'h100-nvl'",
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


FLEET = {
    "qmodel": 1,
    "pools": {"p": {"model": "llama-3.1-8b", "gpu": "h100-sxm", "layout": {"tp": 1}, "replicas": 2}},
    "routing": {"chat": [{"path": ["p"]}]},
}


@pytest.mark.parametrize("name", ["fleet.yaml", "fleet.json"])
@pytest.mark.parametrize("verb", ["evaluate", "capacity"])
def test_a_fleet_file_may_be_json(qm: Command, tmp_path: Path, name: str, verb: str) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    (tmp_path / name).write_text(json.dumps(FLEET))
    assert qm(verb, tmp_path / "x.yaml", "--fleet", tmp_path / name).code == 0


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        ({"gpu": "h200-sxm"}, "fleet.yaml:3:7: pools.p.gpu: 'h200-sxm' is not in fleet.gpus; one of h100-sxm"),
        (
            {"layout": {"tp": 3}},
            "fleet.yaml:3:26: pools.p.layout: 32 attention heads do not split over tp 3; try tp 2 or tp 4",
        ),
        ({"layout": {"tp": 1024}}, "fleet.yaml:3:26: pools.p.layout: 32 attention heads"),
        ({"layout": {"pp": 64}}, "fleet.yaml:3:26: pools.p.layout: 32 layers are fewer than pp 64; try pp 32"),
        ({"layout": {"ep": 2}}, "fleet.yaml:3:26: pools.p.layout: ep 2: llama-3.1-8b has no experts; try ep 1"),
        ({"layout": {"cp": 2}}, "fleet.yaml:3:26: pools.p.layout: cp 2 at tp 1: vllm splits tokens only"),
        ({"engine": {"max_batched_tokens": 16}}, "steps of max_batched_tokens 16 have no room for prompts"),
    ],
)
def test_a_pool_that_cannot_exist_is_placed_in_its_file(
    qm: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: dict[str, object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(GOOD)
    content = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "layout": {"tp": 1}, "replicas": 2} | pool
    lines = ["qmodel: 1", "pools:", "  p: " + json.dumps({key: content[key] for key in ("gpu", "layout")})[:-1] + ","]
    rest = {key: value for key, value in content.items() if key not in ("gpu", "layout")}
    lines += ["    " + json.dumps(rest)[1:], "routing: {chat: [{path: [p]}]}"]
    Path("fleet.yaml").write_text("\n".join(lines) + "\n")
    for verb in ("evaluate", "capacity"):
        run = qm(verb, "x.yaml", "--fleet", "fleet.yaml")
        assert (run.code, run.out) == (2, "")
        assert message in run.err


def test_a_path_that_stands_twice_is_refused(qm: Command, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    halves = [{"path": ["p"], "share": 0.5}] * 2
    (tmp_path / "fleet.yaml").write_text(json.dumps(FLEET | {"routing": {"chat": halves}}))
    run = qm("evaluate", tmp_path / "x.yaml", "--fleet", tmp_path / "fleet.yaml")
    assert (run.code, run.out) == (2, "")
    assert "routing.chat[1].path: names p twice; add up the shares" in run.err


def test_a_saved_plan_with_a_fleet_but_no_cost_is_refused(qm: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD)
    plan = json.loads(qm("plan", path, "--format", "json").out)
    (tmp_path / "p.json").write_text(json.dumps(plan | {"cost_usd_per_hour": None}))
    run = qm("explain", tmp_path / "p.json")
    assert (run.code, run.out) == (2, "")
    assert "not a saved plan (missing or wrong: 'fleet or cost_usd_per_hour')" in run.err


def test_an_override_of_a_key_with_dots_is_told_to_quote_it(qm: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD)
    run = qm("plan", path, "--set", "classes.chat.slo.ttft_p99.9_s=2")
    assert (run.code, run.out) == (2, "")
    assert 'a name that has dots is quoted: classes.chat.slo."ttft_p99.9_s"' in run.err
    assert qm("plan", path, "--set", 'classes.chat.slo."ttft_p99.9_s"=2').code == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_loses_its_words_and_nothing_else(tmp_path: Path, closed: str) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    words = f"{sys.executable} -m qmodel plan x.yaml --out plan.json {closed}"
    run = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads((tmp_path / "plan.json").read_text())["status"] == "optimal"
    assert "written to" not in run.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--pareto", "chat"], "--pareto chat: says no target of class 'chat'; write chat.ttft_p95_s, for example"),
        (
            ["--pareto", "chat.ttft_p95_s", "--set", "objective={maximize: served_rps}"],
            "<--set>: objective: a front is of cost",
        ),
        (["--points", "3"], "--points is how many columns a front has; add --pareto CLASS.TARGET"),
    ],
)
def test_fronts_that_make_no_sense_are_refused(qm: Command, tmp_path: Path, words: list[str], text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD.replace("2.9}}", "2.9}, max_count: 8}"))
    found = qm("compare", path, *words)
    assert (found.code, found.out) == (2, "")
    assert text in found.err


def test_requests_without_a_check_are_refused(qm: Command, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    found = qm("plan", tmp_path / "x.yaml", "--requests", "2000")
    assert (found.code, found.out) == (2, "")
    assert "--requests is how many requests a check simulates; add --check" in found.err


@pytest.mark.parametrize("words", [["plan"], ["validate"], ["evaluate"], ["compare", "--pareto", "chat.ttft_p95_s"]])
def test_a_saved_plan_is_no_scenario_and_is_told_so(qm: Command, tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json_text(a_plan().to_dict()))
    verb, *more = words
    found = qm(verb, path, *more, *(["--fleet", path] if verb == "evaluate" else []))
    assert found.code == 2
    assert f"{path}: is a saved plan, not a scenario; give the scenario file" in found.err
