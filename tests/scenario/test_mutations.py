"""Whatever is done to a valid file, the answer is a scenario or problems, never another exception."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qmodel.errors import ScenarioError
from qmodel.files import read_yaml_text
from qmodel.scenario import check_fleet, check_scenario, diff_scenarios
from tests.scenario.examples import FULL_YAML
from tests.scenario.test_fleet_files import TEXT as FLEET_YAML

FULL = read_yaml_text(FULL_YAML, "full").data
FLEET = read_yaml_text(FLEET_YAML, "fleet").data
PYDANTIC_WORDS = ("Input should", "Field required", "Extra inputs", "valid dictionary", "Value error")
SMALL_SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SCALARS = [None, True, 0, -1, 3, 2.5, 1e300, float("nan"), "", "auto", "12", "x y", "~", "p50", "base"]
COLLECTIONS = [[], [1], ["a"], [None], [[]], {}, {"a": 1}, {"mean": 3}, {"": 1}, {"a.b": {"c": 1}}]
NAMES = ["", "a.b", "a[0]", 'q"q', "mean", "slo", "classes", "trace", "batch", "x", "[key]", "<x>", "\\", "\0auto"]
PATHS = [
    *("classes.chat.rate_rps", "classes.chat", "profiles[0].alpha_s", "fleet.gpus.h100-sxm", "engine", "variants"),
    *("classes.chat.slo.ttft_p95_s", "layouts.tp[0]", "fleet", "a b", "fleet.gpus.x.y.z", "classes[0]", "title.x"),
]
odd_values = st.sampled_from([*SCALARS, *COLLECTIONS])
odd_keys = st.sampled_from(NAMES)


def containers(value: Any) -> list[Any]:
    found = [value] if isinstance(value, dict | list) and value else []
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += containers(inner)
    return found


def mutated(draw, tree: dict[str, Any]) -> dict[str, Any]:
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        places = containers(tree)
        if not places:
            break
        holder = draw(st.sampled_from(range(len(places))))
        target = places[holder]
        key = draw(st.sampled_from(list(target) if isinstance(target, dict) else range(len(target))))
        action = draw(st.sampled_from(["drop", "rename", "retype", "add"]))
        if action == "drop":
            del target[key]
        elif action == "retype":
            target[key] = copy.deepcopy(draw(odd_values))
        elif isinstance(target, list):
            target.append(copy.deepcopy(draw(odd_values)))
        elif action == "rename":
            target[draw(odd_keys)] = target.pop(key)
        else:
            target[draw(odd_keys)] = copy.deepcopy(draw(odd_values))
    return tree


@st.composite
def broken_scenarios(draw):
    return mutated(draw, FULL)


@st.composite
def broken_fleets(draw):
    return mutated(draw, FLEET)


def consistent(result: Any, outcome: object) -> None:
    assert (outcome is None) == bool(result.problems)
    for problem in result.problems:
        text = str(problem)
        assert problem.what and not any(word in text for word in PYDANTIC_WORDS), text


@SMALL_SETTINGS
@given(broken_scenarios())
def test_a_mutated_scenario_is_a_scenario_or_problems(tree):
    checked = check_scenario(tree)
    consistent(checked, checked.scenario)
    diff_scenarios(FULL, tree)


@SMALL_SETTINGS
@given(broken_fleets())
def test_a_mutated_fleet_is_a_fleet_or_problems(tree):
    checked = check_fleet(tree)
    consistent(checked, checked.fleet)


@SMALL_SETTINGS
@given(
    broken_scenarios(),
    st.dictionaries(st.sampled_from(PATHS), odd_values, max_size=3),
    st.lists(st.sampled_from(["peak", "small", "nope"]), max_size=2),
)
def test_overrides_of_a_mutated_scenario_never_escape(tree, overrides, apply):
    checked = check_scenario(tree, overrides=overrides, apply=apply)
    consistent(checked, checked.scenario)


@SMALL_SETTINGS
@given(st.data())
def test_cut_up_text_is_a_scenario_or_problems(data):
    start = data.draw(st.integers(0, len(FULL_YAML)))
    end = data.draw(st.integers(start, len(FULL_YAML)))
    joint = data.draw(st.sampled_from(["", "\n", "\t", ": ", "- ", "}", "'", "&x ", "<<: "]))
    text = FULL_YAML[:start] + joint + FULL_YAML[end:]
    checked = check_scenario(text + "\n")
    consistent(checked, checked.scenario)
    if checked.scenario is not None:
        try:
            checked.scenario.with_(overrides={"classes.chat.rate_rps": 3})
        except ScenarioError as error:
            assert error.problems
