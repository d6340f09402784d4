"""What each freedom of a plan saves against greedy planning: each class alone in one pool of the cheapest GPU type.

A class that sends shares to several models has a pool for each of them. Where pools are counted, targets hold in every
one of them, whatever ``policy.slo_scope`` says.

Run from the checkout: ``python -m benchmarks.greedy_savings [scenario files]``; all shipped ones if left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import qmodel as qm
from qmodel.problem import bind

ROOT = Path(__file__).resolve().parents[1] / "scenarios"
_LIMIT = qm.SolverOptions(time_limit_s=15.0)
_MOST_APART = 4  # classes; of more, separate pools are not looked at: each look takes tens of milliseconds
_TOGETHER = {"layouts.disaggregate": False}
_HEAD = (
    "scenario",
    "greedy, USD/h",
    "splitting",
    "mixing types",
    "sharing",
    "separate pools",
    "all, USD/h",
    "saving",
    "gap",
)


def main() -> None:
    """Print a table of the scenarios asked for."""
    files = [Path(name) for name in sys.argv[1:]]
    for line in saving_lines(files or shipped_scenarios()):
        print(line, flush=True)


def shipped_scenarios() -> list[Path]:
    """All scenario files of the checkout."""
    return sorted((*ROOT.glob("*.yaml"), *(ROOT / "peers").glob("*.yaml")))


def saving_lines(files: Sequence[Path]) -> Iterator[str]:
    """Rows of a table in Markdown, one for each scenario.

    Each freedom is given alone: a class split over pools of one GPU type, over pools of several types, classes of one
    model in one pool, a class in separate prefill and decode pools. The last columns have all of them, and APIs.
    """
    yield f"| {' | '.join(_HEAD)} | s |"
    yield f"|{'---|' * (len(_HEAD) + 1)}"
    for path in files:
        started = time.process_time()
        cells = _cells(qm.load_scenario(path))
        yield f"| {path.stem} | {' | '.join(cells)} | {time.process_time() - started:.0f} |"


def _cells(scenario: qm.Scenario) -> list[str]:
    scenario = scenario.with_(overrides={"objective": None})
    few = len(scenario.classes) <= _MOST_APART
    plans = [_plan(scenario, {})]
    plans += [_plan(scenario, {"layouts.disaggregate": True})] if few else []
    made = [plan for plan in plans if plan is not None and plan.cost_usd_per_hour is not None]
    whole = min(made, key=lambda plan: plan.cost_usd_per_hour or np.inf, default=None)
    own = scenario.with_(overrides={**_TOGETHER, "fleet.apis": None})
    alone = [_alone(own, name) for name in own.classes]
    greedy = sum(_cost(item, _one_pool(item)) for item in alone)
    split = sum(min(_cost(item, _without_others(item, gpu)) for gpu in item.fleet.gpus) for item in alone)
    mixed = sum(_cost(item, {}) for item in alone)
    shared = _cost(own, _at_most(len(bind(own).sharing())))
    stages = {"layouts.disaggregate": True}
    apart = sum(_cost(item, stages, otherwise=_one_pool(item)) for item in alone) if few else np.inf
    cells = [_saved(cost, greedy) for cost in (split, mixed, shared, apart)]
    if whole is None or whole.cost_usd_per_hour is None:
        return [_usd(greedy), *cells, "no fleet", "-", "-"]
    gap = "-" if whole.gap is None else f"{whole.gap:.1%}"
    return [_usd(greedy), *cells, _usd(whole.cost_usd_per_hour), _saved(whole.cost_usd_per_hour, greedy), gap]


def _one_pool(item: qm.Scenario) -> dict[str, Any]:
    """Overrides for one pool, or one for each model that must carry a share of the only class."""
    (stated,) = item.resolved()["classes"].values()
    shares = [model.get("share", 0.0) for model in (stated.get("models") or {}).values()]
    needed = sum((share.get("min", 0.0) if isinstance(share, dict) else share) > 0.0 for share in shares)
    return _at_most(max(needed, 1))


def _at_most(pools: int) -> dict[str, Any]:
    return {"policy.max_pools": pools, "policy.slo_scope": "pool"}


def _usd(cost: float) -> str:
    return f"{cost:.2f}" if np.isfinite(cost) else "no fleet"


def _saved(cost: float, greedy: float) -> str:
    """Part of the greedy cost; ``-`` where there is no fleet or it was not looked for."""
    return "-" if not np.isfinite(cost) or not np.isfinite(greedy) else f"{max(1.0 - cost / greedy, 0.0):.1%}"


def _alone(scenario: qm.Scenario, name: str) -> qm.Scenario:
    """The same with one class only, the others left out wherever they are named."""
    stated = scenario.resolved()
    overrides: dict[str, Any] = {f"classes.{other}": None for other in scenario.classes if other != name}
    for case, item in stated.get("demand", {}).get("scenarios", {}).items() if stated.get("demand") else ():
        factors = {cls: factor for cls, factor in item.get("factors", {}).items() if cls == name}
        overrides[f"demand.scenarios.{case}.factors"] = factors or None
    profiles = [item for item in stated.get("profiles") or () if not _of_others(item, name)]
    if profiles:
        overrides["profiles"] = [
            {**item, "max_rate_rps": {name: item["max_rate_rps"][name]}} if "max_rate_rps" in item else item
            for item in profiles
        ]
    return scenario.with_(overrides=overrides)


def _of_others(profile: dict[str, Any], name: str) -> bool:
    return "max_rate_rps" in profile and name not in profile["max_rate_rps"]


def _without_others(scenario: qm.Scenario, gpu: str) -> dict[str, Any]:
    """Overrides that leave one GPU type."""
    found: dict[str, Any] = {f"fleet.gpus.{other}": None for other in scenario.fleet.gpus if other != gpu}
    profiles = scenario.resolved().get("profiles")
    if profiles:
        found["profiles"] = [item for item in profiles if item["gpu"] == gpu] or None
    return found


def _plan(scenario: qm.Scenario, overrides: dict[str, Any]) -> qm.Plan | None:
    """The plan under overrides; None where the scenario cannot have them."""
    try:
        return qm.plan(scenario.with_(overrides=overrides), solver=_LIMIT)
    except qm.ScenarioError:
        return None


def _cost(scenario: qm.Scenario, overrides: dict[str, Any], *, otherwise: dict[str, Any] | None = None) -> float:
    """Least cost under overrides, infinite where there is no fleet.

    Args:
        otherwise: overrides to take where the scenario cannot have these.
    """
    plan = _plan(scenario, overrides)
    if plan is None and otherwise is not None:
        plan = _plan(scenario, otherwise)
    return np.inf if plan is None or plan.cost_usd_per_hour is None else plan.cost_usd_per_hour


if __name__ == "__main__":
    main()
