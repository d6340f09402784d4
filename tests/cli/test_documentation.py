"""docs/cli.md says what the command line does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qmodel.cli.fleet_verbs import EVALUATION_TABLES
from qmodel.cli.main import app
from qmodel.cli.plan_verbs import PLAN_TABLES
from qmodel.report import TABLE_COLUMNS
from tests.cli.conftest import Command

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
VERBS = [command.name or "" for command in app.registered_commands]


def test_the_page_lists_every_verb() -> None:
    assert re.findall(r"^\| `(\w+) ", PAGE, flags=re.MULTILINE)[: len(VERBS)] == VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_the_page_has_every_option_of_a_verb(qm: Command, verb: str) -> None:
    run = qm(verb, "--help")
    assert run.code == 0
    options = set(re.findall(r"--[a-z-]+", run.out)) - {"--help"}
    assert options <= set(re.findall(r"--[a-z-]+", PAGE)), f"{verb}: {options}"


def test_the_page_has_the_columns_of_every_table() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| `([\w, ]+)` \|$", PAGE, flags=re.MULTILINE))
    for name, columns in TABLE_COLUMNS.items():
        assert listed[name] == ", ".join(columns)


def test_the_page_has_the_tables_of_every_verb() -> None:
    for verb, tables in (("plan", PLAN_TABLES), ("evaluate", EVALUATION_TABLES)):
        assert f"| `{verb}` | {', '.join(f'`{name}`' for name in tables)} |" in PAGE
