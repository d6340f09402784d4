"""Fleets with pools in a row on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SCENARIO = SCENARIOS / "60-disaggregated.yaml"
FLEET = SCENARIOS / "fleets" / "60-prefill-decode.yaml"


def test_evaluation_prints_links_and_roles(qm: Command) -> None:
    run = qm("evaluate", SCENARIO, "--fleet", FLEET, "--require-slo")
    assert run.code == 0
    lines = run.out.splitlines()
    head = lines.index("Links")
    assert lines[head + 2].split()[:3] == ["decode", "prefill", "4"]
    assert any(line.split()[:3] == ["prefill", "llama-3.3-70b", "prefill"] for line in lines)


def test_links_are_a_table_of_their_own(qm: Command) -> None:
    run = qm("evaluate", SCENARIO, "--fleet", FLEET, "--format", "csv", "--table", "links")
    assert run.code == 0
    head, row = run.out.splitlines()
    assert head.startswith("pool,sources,bandwidth_gbps,lanes,latency_s,kv_bytes_per_token,utilisation,moved_gbps")
    assert row.startswith("decode,prefill,")


def test_simulation_prints_what_was_moved(qm: Command) -> None:
    run = qm("simulate", SCENARIO, "--fleet", FLEET, "--requests", "200", "--format", "json")
    assert run.code == 0
    found = json.loads(run.out)
    assert [(row["tier"], row["pool"]) for row in found["transfers"]] == [("gpu to gpu", "decode")]
    assert {row["path"] for row in found["slo"]} == {"prefill > decode"}


def test_a_path_in_the_wrong_order_is_told_with_its_place(qm: Command, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET.read_text().replace("chat: [{path: [prefill, decode]}]", "chat: [{path: [decode, prefill]}]"))
    run = qm("evaluate", SCENARIO, "--fleet", file)
    assert run.code == 2
    assert f"{file}:7:11: routing.chat[0].path: pools do not follow each other: decode (decode), prefill" in run.err
