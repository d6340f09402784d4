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
