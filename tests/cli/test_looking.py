"""``catalog``, ``schema`` and ``--version``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from qmodel.cli.catalog_answers import KINDS
from tests.cli.conftest import Command


def test_the_catalog_counts_its_entries(qm: Command) -> None:
    counts = {row["kind"]: row["entries"] for row in json.loads(qm("catalog", "--format", "json").out)["kinds"]}
    assert tuple(counts) == KINDS
    assert all(count > 0 for count in counts.values())


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_has_a_date_and_a_source(qm: Command, kind: str) -> None:
    run = qm("catalog", kind, "--format", "csv")
    assert run.code == 0
    rows = list(csv.DictReader(io.StringIO(run.out)))
    assert rows
    assert all(row["as_of"] and row["source"] for row in rows)
    assert qm("catalog", kind).out.startswith(f"{kind.capitalize()}\n  ")


def test_one_entry_is_shown_in_full_with_its_source_last(qm: Command) -> None:
    run = qm("catalog", "gpu", "H100-SXM")
    lines = run.out.splitlines()
    assert lines[0] == "gpus: H100-SXM"
    assert {line.split()[0] for line in lines[-3:]} == {"source", "as_of", "confidence"}
    assert json.loads(qm("catalog", "gpu", "h100-sxm", "--format", "json").out)["tdp_w"] == 700


def test_the_rows_behind_a_price_are_shown(qm: Command) -> None:
    price = json.loads(qm("catalog", "prices", "h100-sxm", "--format", "json").out)
    assert price["rows"] and "median" in price["rule"]
    assert min(row["usd_per_gpu_hour"] for row in price["rows"]) <= price["usd_per_gpu_hour"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpsu"], "no kind 'gpsu' in the catalog; did you mean 'gpus'?"),
        (["gpus", "h10"], "no gpu 'h10' in the catalog; nearest: "),
        (["gpus", "--catalog", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_what_the_catalog_does_not_have_is_bad_input(qm: Command, words: list[str], message: str) -> None:
    run = qm("catalog", *words)
    assert (run.code, run.out) == (2, "")
    assert message in run.err


def test_what_of_a_model_fits_on_a_gpu_is_shown_by_layout(qm: Command) -> None:
    words = ("catalog", "models", "qwen3-32b", "--on", "h100-sxm", "--engine-version", "0.11")
    run = qm(*words, "--max-tokens", "32000", "--format", "json")
    answer = json.loads(run.out)
    rows = {row["layout"]: row for row in answer["layouts"]}
    assert (answer["usable_gib"], answer["max_tokens"]) == (79.18, 32000)
    assert rows["tp1"]["fits"] == "no"
    assert "gpu_memory_utilization 0.95" in rows["tp1"]["change"]
    assert rows["tp2"]["fits"] == "yes"
    assert rows["tp2"]["concurrency"] == rows["tp2"]["kv_tokens"] // 32000
    page = qm(*words, "--max-tokens", "32000")
    assert page.code == 0
    assert "tp1: qwen3-32b as tp1 on h100-sxm holds one request of at most 18,464 tokens" in page.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["gpus", "h100-sxm", "--on", "h100-sxm"],
            "--on: asks what of a model fits on a GPU; write qmodel catalog mod",
        ),
        (["models", "qwen3-32b", "--max-tokens", "9"], "--max-tokens: asks what of a model fits on a GPU"),
        (["models", "qwen3-32b", "--on", "h10"], "no gpu 'h10' in the catalog; nearest: "),
        (["models", "qwen3-32b", "--on", "h100-sxm", "--precision", "int3"], "--precision: unknown 'int3'"),
        (
            ["models", "llama-3.1-8b", "--on", "h100-sxm", "--max-tokens", "999999"],
            "--max-tokens: llama-3.1-8b has a context of 131,072 tokens (got 999,999); at most 131072",
        ),
    ],
)
def test_a_question_about_memory_that_has_no_answer_is_bad_input(qm: Command, words: list[str], message: str) -> None:
    run = qm("catalog", *words)
    assert (run.code, run.out) == (2, "")
    assert message in run.err


@pytest.mark.parametrize(("words", "key"), [([], "classes"), (["scenario"], "classes"), (["fleet"], "pools")])
def test_schemas_are_json(qm: Command, words: list[str], key: str) -> None:
    run = qm("schema", *words)
    assert run.code == 0
    assert key in json.loads(run.out)["properties"]


def test_every_scenario_file_is_valid(qm: Command) -> None:
    files = sorted((Path(__file__).parents[2] / "scenarios").rglob("*.yaml"))
    for path in (path for path in files if path.parent.name != "fleets"):
        run = qm("validate", path)
        assert (run.code, run.err) == (0, ""), path


def test_the_version_is_printed(qm: Command) -> None:
    run = qm("--version")
    assert run.code == 0
    assert run.out.startswith("qmodel ")
