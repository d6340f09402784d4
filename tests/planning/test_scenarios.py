"""Every shipped scenario and every variant of it plans, and passes its own verification."""

from __future__ import annotations

from pathlib import Path

import pytest

import qmodel as qm

ROOT = Path(__file__).parents[2]
FILES = sorted(path for path in (ROOT / "scenarios").rglob("*.yaml") if path.parent.name != "fleets")
SLOW = ("61-experts-apart",)  # rows of pools are predicted from end to end
CASES = [
    pytest.param(path, name, id=f"{path.stem}-{name or 'base'}", marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in FILES
    for name in (None, *qm.load_scenario(path).variants)
]


@pytest.mark.parametrize(("path", "variant"), CASES)
def test_shipped_scenario_plans_and_verifies(path: Path, variant: str | None) -> None:
    plan = qm.plan(qm.load_scenario(path, apply=[variant] if variant else []))
    assert plan.status in ("optimal", "feasible")
    check = qm.verify(plan)
    assert check.ok, check.first_failure
    assert len(check.checks) == (10 * len(plan.periods) + 2 if plan.periods else 13)
    assert all(row.met for row in plan.slo)


def test_trace_scenario_says_how_bursty_its_arrivals_are_or_that_poisson_is_optimistic() -> None:
    plan = qm.plan(ROOT / "scenarios" / "40-trace.yaml")
    assert any("arrivals are bursty: peakedness" in text for text in plan.assumptions)
    poisson = {"classes.conversation.trace.arrivals": "poisson"}
    plan = qm.plan(qm.load_scenario(ROOT / "scenarios" / "40-trace.yaml", set=poisson))
    assert any("Poisson, optimistic" in text for text in plan.assumptions)


def test_no_engine_setting_of_the_example_is_best_for_all_its_classes() -> None:
    scenario = qm.load_scenario(ROOT / "scenarios" / "62-engine-settings.yaml")
    plan = qm.plan(scenario)
    costs = {name: qm.plan(scenario.with_(apply=[name])).cost_usd_per_hour for name in scenario.variants}
    assert plan.cost_usd_per_hour is not None and plan.status == "optimal"
    assert all(cost is not None and cost > 1.1 * plan.cost_usd_per_hour for cost in costs.values())
    chosen: dict[str, set[tuple[int | None, int | None]]] = {}
    for row in plan.pools:
        chosen.setdefault(row.model, set()).add((row.max_num_seqs, row.max_batched_tokens))
    assert {tokens for _, tokens in chosen["llama-3.1-8b"]} == {512}
    assert {tokens for _, tokens in chosen["qwen2.5-7b"]} == {8192}
    assert 256 not in {sequences for sequences, _ in chosen["llama-3.3-70b"]}


def test_prices_chosen_by_rule_are_printed_as_assumptions() -> None:
    plan = qm.plan(ROOT / "scenarios" / "20-reasoning.yaml")
    assert any("USD per GPU-hour, median of" in text for text in plan.assumptions)


def test_a_router_over_three_models_costs_a_fraction_of_the_thinking_model_alone():
    file = ROOT / "scenarios" / "93-router.yaml"
    base, bounded, alone = (
        qm.plan(qm.load_scenario(file, apply=names)).cost_usd_per_hour for names in ([], ["bounded"], ["all-reasoning"])
    )
    assert bounded < base < alone / 3
