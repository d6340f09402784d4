"""Plans side by side."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from qmodel.comparison import Comparison, compare, comparison_page
from qmodel.comparison.cell_text import delta_text
from qmodel.comparison.comparisons import MetricRow
from qmodel.errors import ScenarioError
from qmodel.planning.latency_search import NO_TARGET_S
from qmodel.planning.plans import Plan, ServedRow
from qmodel.report import csv_text, json_text, render_text
from tests.report.sample_results import POOL, TPOT, TTFT, a_plan, no_plan

TEXT = """\
Inputs that differ
                         base  peak  bad
  classes.chat.rate_rps  12    40    12

Result
                         base                     peak         bad
  status              optimal                  optimal  infeasible
  cost, USD/h           30.00  45.00 (+15.00, +50.0 %)           -
  lower bound, USD/h    29.90                29.90 (=)           -
  h100-sxm, GPUs           12          8 (-4, -33.3 %)           -
  h200-sxm, GPUs            0                 12 (+12)           -

bad: class 'chat' cannot meet ttft_p95_s <= 0.05 on any allowed layout.

Predictions
                     base                       peak  bad
  chat ttft_p95    412 ms  600 ms (+188 ms, +45.6 %)    -
  chat tpot_mean  31.7 ms                31.7 ms (=)    -

Slack to the targets
                     base           peak  bad
  chat ttft_p95, %   17.6  -20.0 (-37.6)    -
  chat tpot_mean, %  20.8       20.8 (=)    -

Pools and what binds
                                 base                           peak                           bad
  llama-3.3-70b on h100-sxm tp4  3 replicas, slo chat ttft_p95  2 replicas, slo chat ttft_p95  -
  llama-3.3-70b on h200-sxm tp4  -                              1 replica, unstable            -
"""


def peak_plan(**changes: object) -> Plan:
    pools = (
        replace(POOL, replicas=2, gpus=8),
        replace(POOL, pool="p2", gpu="h200-sxm", replicas=1, gpus=12, stable=False),
    )
    return a_plan(
        **{
            "title": "Peak",
            "cost_usd_per_hour": 45.0,
            "scenario": {"qmodel": 1, "title": "Peak", "classes": {"chat": {"rate_rps": 40}}},
            "pools": pools,
            "slo": (replace(TTFT, predicted_s=0.6, met=False), TPOT),
            **changes,
        }
    )


def three() -> Comparison:
    return compare({"base": a_plan(), "peak": peak_plan(), "bad": no_plan()})


def test_a_comparison_shows_inputs_first_then_cost_gpus_slack_and_what_binds() -> None:
    assert render_text(comparison_page(three())) == TEXT


def test_equal_plans_have_no_input_that_differs_and_no_delta() -> None:
    same = compare({"a": a_plan(), "b": a_plan(title="another title")})
    assert same.inputs == ()
    assert {delta for row in same.metrics for delta in row.deltas} == {0.0, None}
    assert render_text(comparison_page(same)).startswith("The inputs do not differ.\n")


def test_versions_that_differ_are_inputs_that_differ() -> None:
    newer = a_plan(versions={"qmodel": "0.1.0", "catalog": "abc"})
    (row,) = compare({"a": a_plan(), "b": newer}).inputs
    assert (row.key, row.values) == ("versions.catalog", (None, "abc"))


def test_an_input_that_only_a_later_plan_states_is_shown() -> None:
    scenario = {"classes": {"chat": {"rate_rps": 12}}, "policy": {"confidence": "p90"}}
    (row,) = compare({"a": a_plan(), "b": a_plan(), "c": a_plan(scenario=scenario)}).inputs
    assert (row.key, row.values) == ("policy.confidence", (None, None, "p90"))


def test_deltas_are_against_the_first_column() -> None:
    cost = next(row for row in three().metrics if row.name == "cost_usd_per_hour")
    assert cost.values == (30.0, 45.0, None)
    assert cost.deltas == (0.0, 15.0, None)
    assert cost.changes == (0.0, 0.5, None)


def test_a_comparison_against_no_plan_has_no_delta() -> None:
    comparison = compare({"bad": no_plan(), "base": a_plan()})
    assert all(delta is None for row in comparison.metrics for delta in row.deltas)
    gpus = next(row for row in comparison.metrics if row.section == "gpus")
    assert gpus.values == (None, 12)


def test_the_tightest_path_of_a_class_is_compared() -> None:
    rows = (replace(TTFT, path="fleet", predicted_s=0.45), TTFT, replace(TTFT, path="p2", predicted_s=0.49))
    comparison = compare({"a": a_plan(slo=rows), "b": a_plan(slo=rows[:1])})
    predicted = next(row for row in comparison.metrics if row.section == "predicted")
    assert predicted.values == (0.49, 0.45)


def test_the_frame_has_one_row_per_input_and_metric() -> None:
    comparison = three()
    frame = comparison.to_frame()
    assert list(frame.columns) == list(comparison.row_columns)
    assert len(frame) == len(comparison.inputs) + len(comparison.metrics)
    cost = frame[frame["name"] == "cost_usd_per_hour"].iloc[0]
    assert (cost["section"], cost["peak"], cost["peak delta"], cost["peak change"]) == ("cost", 45.0, 15.0, 0.5)


def test_a_comparison_is_plain_data_and_csv() -> None:
    comparison = three()
    read = json.loads(json_text(comparison.to_dict()))
    assert read["columns"] == ["base", "peak", "bad"]
    assert read["inputs"] == [{"key": "classes.chat.rate_rps", "values": {"base": 12, "peak": 40, "bad": 12}}]
    lines = csv_text(comparison.to_rows(), comparison.row_columns).splitlines()
    assert lines[0] == "section,name,base,peak,bad,peak delta,peak change,bad delta,bad change"
    assert "cost,cost_usd_per_hour,30.0,45.0,,15.0,0.5,," in lines


def test_names_that_would_collide_with_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="must have names that differ"):
        compare({"a": a_plan(), "section": a_plan()})
    with pytest.raises(ValueError, match="at least one plan"):
        compare({})


class Strict(HTMLParser):
    """Fails on tags that are closed in the wrong order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "b")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_self_contained_and_escapes_what_comes_from_files(tmp_path: Path) -> None:
    hostile = {"classes": {"<b>chat": {"model": "</td><script>alert(1)</script>"}}}
    path = tmp_path / "comparison.html"
    compare({"base": a_plan(), "<b>x": a_plan(scenario=hostile), "bad": no_plan()}).to_html(path)
    page = path.read_text(encoding="utf-8")
    parser = Strict()
    parser.feed(page)
    assert parser.open == []
    assert "&lt;/td&gt;&lt;script&gt;alert(1)" in page
    assert not re.search(r"https?://|src=|href=", page)


def test_a_page_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"nowhere/x\.html"):
        three().to_html(tmp_path / "nowhere" / "x.html")


def test_what_is_served_stands_beside_what_it_costs() -> None:
    served = (ServedRow(cls="chat", priority=0, rate_rps=12.0, served_rps=9.0, dropped_share=0.25),)
    text = render_text(comparison_page(compare({"base": a_plan(), "part": a_plan(served=served)})), width=None)
    assert re.search(r"chat served, requests/s +- +9\.00", text)


def test_the_loosest_target_of_a_front_is_shown_as_none() -> None:
    loose = {"qmodel": 1, "classes": {"chat": {"slo": {"tpot_mean_s": NO_TARGET_S}}}}
    tight = {"qmodel": 1, "classes": {"chat": {"slo": {"tpot_mean_s": 0.04}}}}
    first = a_plan(scenario=loose, slo=(TTFT, replace(TPOT, target_s=NO_TARGET_S)))
    found = compare({"first": first, "second": a_plan(scenario=tight)})
    assert [row.values for row in found.inputs] == [(None, 0.04)]
    slack = {row.name: row.values for row in found.metrics if row.section == "slack"}
    assert slack["chat tpot_mean_percent"][0] is None


def test_a_difference_of_rounding_is_told_as_none():
    row = MetricRow(section="predicted", name="chat ttft_p95_s", values=(0.278, 0.278 + 7e-15, 0.279))
    assert [delta_text(row, index) for index in (1, 2)] == ["=", "+1.00 ms, +0.36 %"]
