"""``simulate`` and ``plan --check`` on a small scenario."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command

SCENARIO = """\
qmodel: 1
title: One class
classes:
  chat:
    model: m
    rate_rps: 20
    prompt_tokens: {mean: 500, cv: 1.0}
    output_tokens: {mean: 200, cv: 0.8}
    slo: {ttft_p95_s: 0.5, tpot_mean_s: 0.05}
fleet:
  gpus:
    g: {price: {usd_per_gpu_hour: 1.0}}
engine: {router: random, max_batched_tokens: 2048}
profiles:
  - {model: m, gpu: g, layout: {tp: 1}, alpha_s: .01, beta_s: 1e-4, gamma_s: 0, delta_s: 1e-4, max_num_seqs: 64}
variants:
  hopeless: {classes.chat.slo.ttft_p95_s: 0.001}
"""

FLEET = """\
qmodel: 1
pools:
  p: {model: m, gpu: g, layout: {tp: 1}, replicas: %d}
routing:
  chat: [{path: [p], share: 1}]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(SCENARIO)
    return path


def fleet(folder: Path, replicas: int) -> Path:
    path = folder / f"fleet-{replicas}.yaml"
    path.write_text(FLEET % replicas)
    return path


def test_a_fleet_is_simulated_beside_its_predictions(qm: Command, scenario: Path, tmp_path: Path) -> None:
    run = qm("simulate", scenario, "--fleet", fleet(tmp_path, 4), "--requests", 2000)
    assert run.code == 0 and run.err == ""
    for words in ("meets every target", "95 % interval", "By output length", "Jain index"):
        assert words in run.out


def test_without_a_fleet_one_is_planned_first(qm: Command, scenario: Path) -> None:
    run = qm("simulate", scenario, "--requests", 500)
    assert run.code == 0
    assert "no --fleet: planning one" in run.err


def test_json_has_every_table_and_the_same_digits_each_time(qm: Command, scenario: Path, tmp_path: Path) -> None:
    words = ("simulate", scenario, "--fleet", fleet(tmp_path, 4), "--requests", 500, "--format", "json")
    first, second = qm(*words), qm(*words)
    data = json.loads(first.out)
    assert first.out == second.out
    assert {"slo", "pools", "latency", "buckets", "fairness", "routing", "course"} <= data.keys()
    assert data["slo"][0]["class"] == "chat" and data["slo"][0]["decision"] in ("met", "missed", "not decided")


def test_csv_holds_the_table_asked_for(qm: Command, scenario: Path, tmp_path: Path) -> None:
    words = ("simulate", scenario, "--fleet", fleet(tmp_path, 4), "--requests", 500, "--format", "csv")
    assert qm(*words).out.startswith("class,path,metric,stat,target_s,predicted_s,simulated_s,ci_low_s,ci_high_s,")
    assert qm(*words, "--table", "course").out.startswith("pool,time_s,running,")
    assert qm(*words, "--table", "prices").code == 2


def test_a_missed_target_exits_with_3_where_that_is_asked_for(qm: Command, scenario: Path, tmp_path: Path) -> None:
    words = ("simulate", scenario, "--fleet", fleet(tmp_path, 1), "--requests", 2000)
    run = qm(*words)
    assert run.code == 0 and "missed" in run.out
    assert qm(*words, "--require-slo").code == 3


def test_a_scenario_without_a_plan_has_nothing_to_simulate(qm: Command, scenario: Path) -> None:
    run = qm("simulate", scenario, "--apply", "hopeless")
    assert run.code == 3
    assert run.out.startswith("infeasible")
    assert json.loads(qm("simulate", scenario, "--apply", "hopeless", "--format", "json").out)["slo"] == []


def test_a_trace_is_replayed(qm: Command, scenario: Path, tmp_path: Path) -> None:
    trace = tmp_path / "even.csv"
    rows = [f"{row * 0.1037:.4f},300,50" for row in range(1500)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    words = ("simulate", scenario, "--fleet", fleet(tmp_path, 4), "--requests", 1000, "--trace", trace)
    run = qm(*words)
    assert run.code == 0
    assert "even.csv are replayed, its times divided by 2.07" in run.out
    run = qm(*words, "--replications", 2)
    assert run.code == 2 and "replications" in run.err
    run = qm("simulate", scenario, "--fleet", fleet(tmp_path, 4), "--trace", tmp_path / "none.csv")
    assert run.code == 2 and "none.csv" in run.err
    run = qm(*words, "--by", "model")
    assert run.code == 2 and "has no column 'model' to tell classes by" in run.err
    run = qm(*words, "--split", "20,many")
    assert run.code == 2 and "must be whole numbers of tokens" in run.err
    run = qm("simulate", scenario, "--split", "20")
    assert run.code == 2 and "--split: says what the classes of a trace are; add --trace FILE" in run.err


@pytest.mark.parametrize("words", [("--requests", "5"), ("--seed", "-1"), ("--arrivals", "even"), ("--table", "slo")])
def test_words_that_make_no_sense_are_bad_input(qm: Command, scenario: Path, words: tuple[str, str]) -> None:
    run = qm("simulate", scenario, *words)
    assert run.code == 2 and run.out == ""
    assert words[0] in run.err


def test_a_checked_plan_says_what_was_simulated(qm: Command, scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    run = qm("plan", scenario, "--check", "--requests", 4000, "--out", out, "--require-slo")
    assert run.code == 0
    assert "Simulated: met" in run.out and "of 2 targets 2 met" in run.out
    saved = json.loads(out.read_text())
    assert saved["check"]["verdict"] == "met" and saved["check"]["growth"] == []
    assert qm("explain", out).code == 0
    run = qm("plan", scenario, "--check", "--requests", 500, "--format", "csv", "--table", "simulated_pools")
    assert run.out.startswith("pool,model,gpu,replicas,requests,stable,")


def test_an_infeasible_plan_is_not_checked(qm: Command, scenario: Path) -> None:
    run = qm("plan", scenario, "--apply", "hopeless", "--check")
    assert run.code == 3 and "Simulated" not in run.out
