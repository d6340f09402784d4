"""Cases on reasoning, cost, solvers, input and operations."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

from sizing_checks import CATALOG, Checks, case, check, near, problems, scenario, uncovered

import qmodel as qm

SCIENTIFIC = """\
qmodel: 1
classes:
  a:
    model: llama-3.1-8b
    rate_rps: 1e1
    prompt_tokens: {mean: 1e3, cv: 1}
    output_tokens: {mean: 100, cv: 1}
    slo: {ttft_p95_s: 5e-1}
fleet: {gpus: {h100-sxm: {}}}
"""


@case("CD057")
def _() -> Checks:
    capped = problems(
        scenario(
            chat={
                "model": "kimi-k2-thinking",
                "output_tokens": None,
                "reasoning_tokens": {
                    "mixture": [{"weight": 0.5, "mu": 8, "sigma": 0.8}, {"weight": 0.5, "mu": 13, "sigma": 0.2}],
                    "budget": 65536,
                    "at_cap": "atom",
                },
                "answer_tokens": {"mean": 300, "cv": 0.5},
            }
        )
    )
    return [check("a mixture with an atom at the cap is an input", capped == "", capped)]


@case("CD059")
def _() -> Checks:
    return [uncovered("only prompt tokens are cacheable", "prefix caches are not modelled")]


@case("CD060")
def _() -> Checks:
    cost = [2.5 / (700 * share * 3600) * 1e6 for share in (1.0, 0.1)]
    plan = qm.plan(scenario(fleet={"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 2.5}}}}))
    return [
        check("0.992 and 9.92 USD per million tokens", near(cost[0], 0.992, 5e-3) and near(cost[1], 9.92, 5e-3), cost),
        check("provisioned GPUs are paid", plan.cost_usd_per_hour == 2.5 * sum(item.gpus for item in plan.pools)),
    ]


@case("CD061")
def _() -> Checks:
    costs = []
    for price in (2.0, 4.0):
        costs.append(
            qm.plan(scenario(fleet={"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": price}}}})).cost_usd_per_hour
        )
    chosen = CATALOG.price("h100-sxm")
    return [
        check("prices are dated", all(row.as_of for row in chosen.rows)),
        check("a price scales the cost", costs[0] is not None and costs[1] == 2 * costs[0], costs),
    ]


@case("CD062")
def _() -> Checks:
    return [uncovered("break-even against an API", "no verb compares with an API price")]


@case("CD063")
def _() -> Checks:
    plan = qm.plan(scenario(), solver=qm.SolverOptions(time_limit_s=0.001))
    return [
        check(
            "an incumbent is kept or none is claimed",
            plan.status in ("optimal", "feasible", "limit"),
            f"{plan.status}, {plan.termination}",
        )
    ]


@case("CD064")
def _() -> Checks:
    plan = qm.plan(scenario(), solver=qm.SolverOptions(time_limit_s=0.001))
    held = qm.verify(plan).ok if plan.pools else plan.cost_usd_per_hour is None
    return [check("every plan passes an independent check", held, plan.status)]


@case("CD065")
def _() -> Checks:
    return [uncovered("an outer guard ends a hanging solver", "the limit is the solver's own")]


@case("CD066")
def _() -> Checks:
    plan = qm.plan(scenario(chat={"model": "deepseek-v3"}, layouts={"tp": [1], "pp": [1], "dp": [1]}))
    return [
        check(
            "no layouts: infeasible with a reason",
            plan.status == "infeasible" and plan.cost_usd_per_hour is None,
            plan.explain().splitlines()[0],
        )
    ]


@case("CD067")
def _() -> Checks:
    plan = qm.plan(scenario(chat={"rate_rps": 200}, fleet={"gpus": {"h100-sxm": {"max_count": 2}}}))
    return [
        check(
            "what to raise, and to what",
            "raise fleet.gpus.h100-sxm.max_count" in plan.explain(),
            plan.explain().splitlines()[2],
        )
    ]


@case("CD068")
def _() -> Checks:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.yaml"
        path.write_text(SCIENTIFIC)
        loaded = qm.load_scenario(path)
    return [check("1e3 is a number", loaded.classes["a"].rate_rps == 10.0)]


@case("CD069")
def _() -> Checks:
    return [
        check(
            "units are in the names",
            "ttft_ms" in problems(scenario(chat={"slo": {"ttft_ms": 0.5}})),
            problems(scenario(chat={"slo": {"ttft_ms": 0.5}})),
        ),
    ]


@case("CD070")
def _() -> Checks:
    told = [
        problems(scenario(chat=bad))
        for bad in (
            {"slo": {"tpot_mean_s": 0}},
            {"slo": {"tpot_mean_s": -0.005}},
            {"rate_rps": -1},
            {"rate_rps": math.nan},
            {"rate_rps": math.inf},
        )
    ]
    plan = qm.plan(scenario(chat={"slo": {"tpot_mean_s": 0.0001}}))
    return [
        check("each refused with its field", all("classes.chat" in text for text in told), told[0]),
        check("out of reach at batch 1: infeasible", plan.status == "infeasible", plan.explain().splitlines()[0]),
    ]


@case("CD072")
def _() -> Checks:
    return [uncovered("scale-up takes as long as loading", "not supported yet: plans by the hour")]


@case("CD073")
def _() -> Checks:
    plan = qm.plan(scenario(chat={"rate_rps": 0.001}))
    return [
        check("at least one replica", all(item.replicas >= 1 for item in plan.pools), "fleets do not scale to zero")
    ]
