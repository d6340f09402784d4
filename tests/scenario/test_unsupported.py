"""Keys whose meaning is not built yet are refused, each alone and with its way out."""

from __future__ import annotations

import pytest

from qmodel.scenario import check_scenario
from qmodel.scenario.schema import Scenario
from qmodel.scenario.shapes import shape_of
from qmodel.scenario.unsupported import SCENARIO_UNSUPPORTED
from tests.scenario.examples import small

PROFILE = {"model": "m", "gpu": "g", "max_rate_rps": {"chat": 3.1}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"classes__chat__batch": {"requests": 3}, "classes__chat__rate_rps": None},
         "classes.chat.batch: not supported yet: batches with a deadline; state a rate and a completion target"),
        ({"classes__chat__models": {"a": {"quality": 0.8}}, "classes__chat__model": None},
         "classes.chat.models: not supported yet: a choice between models; state one model"),
        ({"classes__chat__rate_rps": None, "classes__chat__arrivals": {"rate_rps": 3, "profile": [1, 2]}},
         "classes.chat.arrivals.profile: not supported yet: rates by the hour; "
         "plan the busiest hour: write rate_rps: <requests per second>, which is Poisson"),
        ({"classes__chat__patience_s": 3}, "classes.chat.patience_s: not supported yet: requests that give up"),
        ({"classes__chat__engine": {"router": "jsq"}},
         "classes.chat.engine: not supported yet: engine settings by class; "
         "set them in engine or fleet.gpus.<gpu>.engine"),
        ({"fleet__budget_usd_per_hour": 3}, "fleet.budget_usd_per_hour: not supported yet: a limit on cost"),
        ({"fleet__gpus": {"h100-sxm": {"billing": "per_node"}}},
         "fleet.gpus.h100-sxm.billing: not supported yet: paying for whole nodes (got 'per_node'); use per_gpu"),
        ({"engine__router": "prefix_aware"},
         "engine.router: not supported yet: requests sent where their prefix is (got 'prefix_aware'); "
         "use random, round_robin or jsq"),
        ({"layouts__cp": [1, 2]},
         "layouts.cp: not supported yet: context parallelism (got [1, 2]); use cp: [1]"),
        ({"layouts__disaggregate": True},
         "layouts.disaggregate: not supported yet: separate prefill and decode pools (got true); use auto or false"),
        ({"profiles": [PROFILE]},
         "profiles[0].max_rate_rps: not supported yet: capacities measured at the target; "
         "state alpha_s, beta_s, gamma_s, delta_s"),
        ({"policy__slo_scope": "fleet"},
         "policy.slo_scope: not supported yet: targets over the whole fleet (got 'fleet'); use pool"),
        ({"policy__spare_replicas": 1},
         "policy.spare_replicas: not supported yet: spare replicas (got 1); use 0"),
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
