"""The reference page: its examples hold, and it names every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qmodel.files import parse_value
from qmodel.scenario import check_fleet, check_scenario
from qmodel.scenario.fleet_files import FleetFile
from qmodel.scenario.schema import Scenario
from qmodel.scenario.shapes import Shape, shape_of
from qmodel.scenario.unsupported import FLEET_FILE_UNSUPPORTED, SCENARIO_UNSUPPORTED, Unsupported

PAGE = (Path(__file__).parents[2] / "docs" / "scenario-file.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml *(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def keys_of(shape: Shape) -> set[str]:
    found = set(shape.keys)
    for inner in (*shape.keys.values(), *([shape.entry] if shape.entry is not None else [])):
        found |= keys_of(inner)
    return found


@pytest.mark.parametrize(("mark", "text"), BLOCKS)
def test_examples_hold(mark, text):
    if mark == "scenario":
        assert [str(problem) for problem in check_scenario(text).problems] == []
    elif mark == "fleet":
        assert [str(problem) for problem in check_fleet(text).problems] == []
    else:
        assert mark == "" and isinstance(parse_value(text, "fragment"), dict)


def test_there_are_examples_of_each_kind():
    assert {mark for mark, _ in BLOCKS} == {"", "scenario", "fleet"}


def test_every_key_is_named():
    named = set(re.findall(r"[A-Za-z_0-9]+", " ".join(re.findall(r"`([^`]*)`", PAGE))))
    assert keys_of(shape_of(Scenario)) - named == set()
    assert keys_of(shape_of(FleetFile)) - named == set()


def row(entry: Unsupported) -> str:
    return f"| `{entry.key}{': ' * bool(entry.values)}{entry.values}` | {entry.meaning} |\n"


def test_everything_not_supported_yet_is_listed():
    table = PAGE.split("<!-- unsupported -->\n")[1]
    rows = "".join(row(entry) for entry in (*SCENARIO_UNSUPPORTED, *FLEET_FILE_UNSUPPORTED))
    assert table == "| key | what it would do |\n|---|---|\n" + rows
