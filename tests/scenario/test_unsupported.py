"""Keys whose meaning is not built yet are refused, each alone and with its way out."""

from __future__ import annotations

import pytest

from qmodel.scenario import check_scenario
from qmodel.scenario.schema import Scenario
from qmodel.scenario.shapes import shape_of
from qmodel.scenario.unsupported import SCENARIO_UNSUPPORTED
from tests.scenario.examples import small


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"classes__chat__session": {"turns": 3}},
         "classes.chat.session: not supported yet: sessions of several turns"),
        ({"fleet__nodes": {"dgx-h100": 3}},
         "fleet.nodes: not supported yet: a stock of nodes by their names; set fleet.gpus.<gpu>.max_nodes"),
        ({"engine__router": "prefix_aware"},
         "engine.router: not supported yet: requests sent where their prefix is (got 'prefix_aware'); "
         "use random, round_robin or jsq"),
    ],
)  # fmt: skip
def test_it_is_told_alone_and_with_a_way_out(changes, expected):
    found = [str(problem).removeprefix("<dict>: ") for problem in check_scenario(small(**changes)).problems]
    assert found == [expected]


def test_a_key_that_is_refused_whole_is_not_in_the_schema():
    shape = shape_of(Scenario)
    for entry in SCENARIO_UNSUPPORTED:
        refused_whole = entry.refused.__name__ == "_anything"
        assert (shape.at(entry.key.split(".")) is None) == refused_whole, entry.key
        assert refused_whole == (entry.values == ""), entry.key


def test_a_misspelt_unsupported_key_is_recognised():
    (problem,) = check_scenario(small(classes__chat__patiense_s=3)).problems
    assert str(problem) == "<dict>: classes.chat: unknown key 'patiense_s'; did you mean 'patience_s'?"
