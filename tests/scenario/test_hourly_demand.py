"""Profiles of hours: what may be stated, and what is told where it cannot."""

from __future__ import annotations

import pytest

import qmodel as qm
from qmodel.problem import bind
from tests.scenario.examples import small

DAY = [1.0] * 24


def told(**changes: object) -> list[str]:
    return [str(problem).removeprefix("<dict>: ") for problem in qm.validate(small(**changes))]


def arrivals(**stated: object) -> dict[str, object]:
    return {"classes__chat__rate_rps": None, "classes__chat__arrivals": {"rate_rps": 3, **stated}}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"profile": [1.0] * 23},
         "classes.chat.arrivals.profile: must have 24 factors, one for each hour of the day (got 23); "
         "the first is for the hour that starts at midnight"),
        ({"profile": [0.0] * 24},
         "classes.chat.arrivals.profile: is 0 in every hour; leave the class out, or give it a rate in some hour"),
        ({"profile": [1.0] * 23 + [-0.5]},
         "classes.chat.arrivals.profile[23]: must be at least 0 (got -0.5)"),
        ({"hours": True},
         "classes.chat.arrivals.hours: hours: true has no profile to follow; add profile: [24 factors on rate_rps]"),
        ({"profile": [1e6] * 24},
         "classes.chat.arrivals.profile: makes 3e+06 requests per second of the busiest hour, "
         "at most 1e+06 make sense; lower the factors or rate_rps"),
    ],
)  # fmt: skip
def test_a_wrong_profile_is_told(stated, expected):
    assert told(**arrivals(**stated)) == [expected]


def test_time_to_start_needs_a_fleet_that_changes():
    (alone,) = told(fleet__start_lag_s=600)
    assert alone == (
        "fleet.start_lag_s: start_lag_s (600 s) needs a fleet that changes by the hour, and no class has a profile; "
        "leave it out, or add arrivals: {profile: [24 factors], hours: true} to a class"
    )
    (fixed,) = told(fleet__start_lag_s=600, **arrivals(profile=DAY))
    assert fixed.startswith("fleet.start_lag_s: start_lag_s needs a fleet that changes by the hour; add hours: true")
    assert told(fleet__start_lag_s=600, **arrivals(profile=DAY, hours=True)) == []
    (long,) = told(fleet__start_lag_s=7200, **arrivals(profile=DAY, hours=True))
    assert long.startswith("fleet.start_lag_s: must be at most 3600 (got 7200")


def test_other_objectives_are_refused():
    (problem,) = told(
        objective={"maximize": "served_rps"}, fleet__budget_usd_per_hour=40.0, **arrivals(profile=DAY, hours=True)
    )
    assert problem.startswith("objective: not supported yet: served_rps where the demand differs by the hour")


def test_classes_have_their_largest_rates_and_factors_of_them():
    profile = [0.5] * 8 + [2.0] * 16
    instance = bind(qm.load_scenario(small(**arrivals(profile=profile))))
    assert instance.classes["chat"].rate_rps == pytest.approx(6.0)
    assert instance.periods is not None
    assert [(item.name, item.factors["chat"]) for item in instance.periods.items] == [("0-7", 0.25), ("8-23", 1.0)]
    night = instance.periods.items[0].demand(instance.classes)["chat"]
    assert night.rate_rps == pytest.approx(1.5)
    assert "class chat: from 1.5 to 6 requests/s by the hour (profile)" in instance.assumptions


def test_one_class_cannot_change_the_fleet_alone():
    data = small(**arrivals(profile=DAY, hours=True))
    data["classes"]["other"] = {**data["classes"]["chat"], "arrivals": {"rate_rps": 1, "profile": DAY}}
    (problem,) = [str(item) for item in qm.validate(data)]
    assert "class 'other' has a profile without hours: true, class 'chat' has one with it" in problem


def test_a_bursty_profile_keeps_its_shape_at_every_hour():
    shape = {"mmpp": {"peak_to_mean": 2, "mean_peak_s": 60, "mean_base_s": 240}}
    instance = bind(qm.load_scenario(small(**arrivals(profile=[0.5] * 12 + [1.0] * 12, **shape))))
    chat = instance.classes["chat"]
    assert chat.burst is not None and instance.periods is not None
    night = instance.periods.items[0].demand(instance.classes)["chat"]
    assert night.burst is not None and night.burst != chat.burst


def test_batches_and_separate_pools_are_refused():
    data = small(layouts__disaggregate=True, **arrivals(profile=DAY))
    nightly = {
        key: value for key, value in data["classes"]["chat"].items() if key not in ("arrivals", "rate_rps", "slo")
    }
    data["classes"]["nightly"] = {**nightly, "batch": {"requests": 200, "deadline_s": 3600, "deadline_p": 0.9}}
    found = [str(item) for item in qm.validate(data)]
    assert any("classes.nightly.batch: not supported yet: a batch where the demand differs" in text for text in found)
    assert any("layouts.disaggregate: not supported yet: separate pools where the demand" in text for text in found)
