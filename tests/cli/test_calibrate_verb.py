"""``qmodel calibrate``: the page, machine text, the file, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from qmodel.cli.calibrate_verb import TABLES
from qmodel.report.calibration_pages import CALIBRATION_TABLES
from tests.cli.conftest import Command

ON = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
ROWS = "users,isl,osl,tpot_ms,ttft_ms\n1,900,200,9.4,45\n8,900,200,10.3,52\n32,900,200,13.0,75\n64,900,200,17.1,110\n"


@pytest.fixture
def few(tmp_path: Path) -> Path:
    file = tmp_path / "few.csv"
    file.write_text(ROWS, encoding="utf-8")
    return file


def test_the_page_says_what_moved_what_did_not_and_the_errors(qm: Command, few: Path) -> None:
    run = qm("calibrate", few, *ON)
    assert (run.code, run.err) == (0, "")
    for text in (
        "Calibration of llama-3.1-8b on h100-sxm under vllm",
        "4 used, in tp1; 0 left out",
        "What moved",
        "Left alone",
        "expert_weights (reading experts): no measurement depends on it",
        "fitted without the point",
        "band after",
    ):
        assert text in run.out


def test_a_file_is_written_that_a_plan_takes(qm: Command, few: Path, tmp_path: Path) -> None:
    out = tmp_path / "cal.yaml"
    run = qm("calibrate", few, *ON, "--out", out, "--as-of", "2026-11-30")
    assert (run.code, run.err) == (0, f"written to {out}\n")
    assert "as_of: '2026-11-30'" in out.read_text(encoding="utf-8")
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "qmodel: 1\nclasses:\n  chat: {model: llama-3.1-8b, rate_rps: 5, prompt_tokens: {mean: 900, cv: 1},"
        " output_tokens: {mean: 200, cv: 1}, slo: {tpot_mean_s: 0.03}}\n"
        "fleet: {gpus: {h100-sxm: {price: {usd_per_gpu_hour: 3}}}}\nlayouts: {tp: [1], pp: [1]}\n"
        "calibrations: [cal.yaml]\n",
        encoding="utf-8",
    )
    planned = qm("plan", scenario)
    assert planned.code == 0
    assert "step times calibrated on 4 measurements (2026-11-30) in tp1" in planned.out


def test_json_has_everything(qm: Command, few: Path) -> None:
    data = json.loads(qm("calibrate", few, *ON, "--format", "json").out)
    assert (data["model"], data["points"], data["layouts"]) == ("llama-3.1-8b", 4, ["tp1"])
    assert {row["quantity"] for row in data["errors"]} == {"tpot", "ttft"}
    assert len(data["rows"]) == 8
    assert data["files"][0]["kind"] == "benchmarks at a fixed concurrency"


@pytest.mark.parametrize("table", TABLES)
def test_every_table_can_be_had_as_csv(qm: Command, few: Path, table: str) -> None:
    run = qm("calibrate", few, *ON, "--format", "csv", "--table", table)
    rows = list(csv.reader(io.StringIO(run.out)))
    assert tuple(rows[0]) == CALIBRATION_TABLES[table]
    assert table == "left_out" or len(rows) > 1


def test_the_degrees_are_those_of_the_measured_replica(qm: Command, few: Path) -> None:
    assert json.loads(qm("calibrate", few, *ON, "--tp", "2", "--format", "json").out)["layouts"] == ["tp2"]


def refused(run_err: str, code: int, *said: str) -> None:
    assert code == 2
    for text in said:
        assert text in run_err
    assert run_err.rstrip().endswith("Nothing was calibrated.")


def test_too_little_is_refused_with_a_way_out(qm: Command, tmp_path: Path) -> None:
    one = tmp_path / "one.csv"
    one.write_text("users,isl,osl,tpot_ms\n1,900,200,8\n", encoding="utf-8")
    run = qm("calibrate", one, *ON)
    refused(run.err, run.code, "one.csv: one usable measurement; a calibration needs two at least")
    same = tmp_path / "same.csv"
    same.write_text("users,isl,osl,tpot_ms\n8,900,200,8\n8,100,200,7\n", encoding="utf-8")
    run = qm("calibrate", same, *ON)
    refused(run.err, run.code, "all 2 usable measurements are at a batch of 8", "measure two batches at least")


def test_bad_files_and_options_are_refused(qm: Command, few: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("users,isl,osl,tpot_ms\n1,900,200,-8\n", encoding="utf-8")
    run = qm("calibrate", bad, *ON)
    refused(run.err, run.code, "bad.csv:2:11: tpot_ms: must be greater than 0 and finite (got -8)", "1 problem.")
    run = qm("calibrate", tmp_path / "none.csv", *ON)
    refused(run.err, run.code, "none.csv: no such file")
    run = qm("calibrate", few, *ON, "--precision", "fp7")
    refused(run.err, run.code, "precision: unknown 'fp7'")
    run = qm("calibrate", few, *ON, "--out", tmp_path / "cal.json")
    refused(run.err, run.code, "must end in .yaml")
    run = qm("calibrate", few, *ON, "--as-of", "yesterday")
    refused(run.err, run.code, "--as-of: must be a date, YYYY-MM-DD (got 'yesterday')")
    run = qm("calibrate", few, "--model", "llama-3.1-8", "--gpu", "h100-sxm")
    assert run.code == 2
    assert "no model 'llama-3.1-8' in the catalog; nearest: 'llama-3.1-8b'" in run.err
