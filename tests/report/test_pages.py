"""Whole pages, as a reader sees them in a pipe and on a terminal."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from qmodel.planning.plans import ObjectiveRow, Plan
from qmodel.report import Column, Facts, Heading, TextTable, capacity_page, evaluation_page, plan_page, render_text
from qmodel.types import RouteRow
from tests.report.sample_results import (
    POOL,
    TTFT,
    a_capacity,
    a_plan,
    an_evaluation,
    an_overloaded_evaluation,
    no_plan,
)

PLAN_TEXT = """\
Chat on H100

Status optimal: meets every target at the least cost within 0.33 %
Cost   30.00 USD/h = 21,900 USD/month (730 h)
Bound  29.90 USD/h: nothing allowed costs less; gap 0.33 % (of the fleets considered: 0.0 %)
GPUs   12 h100-sxm

Pools
  pool  model          GPU       layout  replicas  GPUs  USD/h  utilisation %  KV fill %  mean batch  what binds
  p1    llama-3.3-70b  h100-sxm  tp4            3    12  30.00           71.2       41.0        18.3  slo chat ttft_p95

Targets
  class  target              predicted      low     high  slack %  met  met at p90
  chat   ttft p95 <= 500 ms     412 ms   360 ms   530 ms     17.6  yes  no
  chat   tpot mean <= 40 ms    31.7 ms  29.0 ms  34.9 ms     20.8  yes  yes

Prices of limits
  limit             USD/h per unit
  coverage of chat           28.40

3 replicas are the fewest that keep ttft_p95_s of chat within 0.5 s.

Not chosen
  class  candidate     USD/h alone  why not
  chat   h200-sxm tp2        31.20  dearer
  chat   h100-sxm tp1            -  memory: weights need 131.4 GiB

Assumptions
  - Arrivals of chat are Poisson.
"""

NO_PLAN_TEXT = """\
Chat on H100

infeasible: class 'chat' cannot meet ttft_p95_s <= 0.05 on any allowed layout.
  best candidate: h100-sxm tp8: 0.071 s at zero load (prefill alone takes 0.063 s)
  to proceed: raise classes.chat.slo.ttft_p95_s to >= 0.071, or allow gpus: b200-sxm

Not chosen
  class  candidate     USD/h alone  why not
  chat   h100-sxm tp8            -  ttft_p95_s

Assumptions
  - Arrivals of chat are Poisson.
"""

OVERLOAD_TEXT = """\
Evaluation of a fleet

Verdict overloaded: at least one pool cannot carry its load
Cost    10.00 USD/h = 7,300 USD/month
GPUs    4 h100-sxm

Pools
  pool  model          GPU       layout  replicas  GPUs  USD/h  utilisation %  KV fill %  mean batch  what binds
  p1    llama-3.3-70b  h100-sxm  tp4            1     4  10.00          213.7          -           -  unstable

Overloaded
  - p1: 12 requests/s offered, 5.61 can be carried

Targets
  class  target              predicted  low      high  slack %  met  met at p90
  chat   ttft p95 <= 500 ms   unstable    -  unstable        -  no   no
  chat   tpot mean <= 40 ms   unstable    -  unstable        -  no   no

Latency
  class  metric  mean  p50  p90  p95  p99
  chat   ttft       -    -    -    -    -

Assumptions
  - Arrivals of chat are Poisson.
"""

CAPACITY_TEXT = """\
Capacity of a fleet

Carries    1.200 x the demand = 14.4 requests/s
Stopped by chat ttft_p95_s in p1

Service curve
  demand x  requests/s  utilisation %  served/s  tightest target  predicted / target  met
     1.000        12.0           71.2      12.0  chat ttft_p95_s               0.824  yes
     1.200        14.4           85.5      14.4  chat ttft_p95_s               1.000  yes
     1.450        17.4       unstable  unstable  chat ttft_p95_s            unstable  no

Assumptions
  - Arrivals of chat are Poisson.
"""


def text_of(plan: Plan, width: int | None = None) -> str:
    return render_text(plan_page(plan), width=width)


def test_a_plan_in_a_pipe() -> None:
    assert text_of(a_plan()) == PLAN_TEXT


def test_no_plan_says_what_stops_it_and_what_would_help() -> None:
    refused = replace(a_plan().why.alternatives[1], candidate="h100-sxm tp8", limit="ttft_p95_s")
    plan = no_plan()
    assert text_of(replace(plan, why=replace(plan.why, alternatives=(refused,)))) == NO_PLAN_TEXT


def test_a_search_that_was_stopped_is_not_called_infeasible() -> None:
    plan = no_plan(status="limit", termination="time")
    assert "\nno plan: class 'chat'" in text_of(plan)
    assert "no plan: the time limit ended the search" in text_of(replace(plan, why=replace(plan.why, text="")))


def test_a_feasible_plan_does_not_claim_the_least_cost() -> None:
    text = text_of(a_plan(status="feasible", termination="time", gap=0.04))
    assert "feasible: meets every target; a cheaper fleet is not ruled out (the time limit ended the search)" in text


def test_a_plan_that_may_be_bettered_by_its_objective_does_not_speak_of_cost() -> None:
    row = ObjectiveRow(name="ttft_p95_s of chat", unit="s", value=0.2, bound=0.1, proven=False)
    plan = a_plan(status="feasible", termination="time", objective=row)
    words = "meets every target; that a fleet does better by the objective is not ruled out"
    assert f"feasible: {words} (the time limit ended the search)" in text_of(plan)
    assert f"feasible, {words}\n" in plan.explain()
    reached = a_plan(objective=replace(row, bound=0.2, proven=True))
    assert "within the gap asked for, of fleets that reach the objective\n" in reached.explain()


def test_a_plan_without_a_bound_says_so() -> None:
    text = text_of(a_plan(status="feasible", bound_usd_per_hour=None, gap=None))
    assert "no lower bound is known" in text
    assert "Bound" not in text


def test_a_gap_that_columns_cannot_close_is_not_called_a_stopped_search() -> None:
    text = text_of(a_plan(status="feasible", termination="gap", gap=0.064))
    assert "the cheapest fleet considered, but the bound leaves the gap below open" in text
    assert "gap 6.4 %" in text


def test_a_fleet_that_misses_a_target_is_not_said_to_meet_it() -> None:
    missed = replace(TTFT, predicted_s=0.6, met=False)
    text = render_text(evaluation_page(an_evaluation(slo=(missed,), feasible=False)))
    assert "Verdict misses 1 of 1 targets\n" in text


def test_an_overloaded_fleet_has_no_latencies() -> None:
    assert render_text(evaluation_page(an_overloaded_evaluation())) == OVERLOAD_TEXT


def test_a_capacity_and_its_curve() -> None:
    assert render_text(capacity_page(a_capacity())) == CAPACITY_TEXT


def test_a_target_missed_by_a_hair_is_seen_to_be_missed() -> None:
    plan = a_plan(slo=(replace(TTFT, predicted_s=0.50004, met=False),))
    assert "ttft p95 <= 500 ms  500.04 ms" in text_of(plan)


def test_paths_are_shown_only_where_a_class_has_several() -> None:
    assert "Routing" not in text_of(a_plan())
    routing = tuple(RouteRow(cls="chat", path=path, share=0.5, rate_rps=6.0) for path in ("a", "b"))
    plan = a_plan(routing=routing, slo=(replace(TTFT, path="a"), replace(TTFT, path="b")))
    assert "Routing\n  class  path  share %  requests/s\n  chat   a        50.0        6.00\n" in text_of(plan)
    assert "class  path  target" in text_of(plan)


def test_tier_and_role_are_shown_where_they_are_not_the_usual_ones() -> None:
    text = text_of(a_plan(pools=(replace(POOL, price_tier="spot", role="decode"),)))
    assert "pool  model          role    GPU       layout  tier  replicas" in text


def test_a_terminal_too_narrow_for_a_table_gets_a_list_per_row() -> None:
    text = text_of(a_plan(), width=60)
    assert "\n  utilisation % 71.2\n" in text
    assert max(map(len, text.splitlines())) <= 60


@given(st.integers(20, 200))
def test_no_number_is_ever_cut(width: int) -> None:
    words = text_of(a_plan(), width=width).split()
    assert {"30.00", "21,900", "71.2", "29.90", "412", "31.7", "28.40", "31.20"} <= set(words)


def test_colours_are_used_only_when_asked_for() -> None:
    assert "\x1b" not in text_of(a_plan())
    colored = render_text(plan_page(a_plan()), color=True)
    assert "\x1b[1mChat on H100\x1b[0m" in colored
    assert "\x1b[32myes\x1b[0m" in colored


def test_wide_letters_keep_columns_aligned() -> None:
    table = TextTable(
        title="T",
        columns=(Column(header="name"), Column(header="n", numeric=True)),
        rows=(("対話", "1"), ("chat", "2")),
    )
    assert render_text([table]) == "T\n  name  n\n  対話  1\n  chat  2\n"


def test_control_letters_of_an_input_do_not_reach_the_terminal() -> None:
    assert render_text([Heading(text="a\x1b[2Jb\nc"), Facts(rows=(("k", "v\r\x07"),))]) == "a [2Jb c\n\nk v\n"
