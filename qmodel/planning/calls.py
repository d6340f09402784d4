"""The public calls that plan: a plan, a front of plans, a plan that is checked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qmodel.errors import ScenarioError
from qmodel.planning.reading import Source, loaded_fleet, loaded_scenario

if TYPE_CHECKING:
    from qmodel.optimize import SolverOptions
    from qmodel.planning.checking import PlanCheck
    from qmodel.planning.plans import Plan
    from qmodel.planning.progress import Cancel, OnProgress
    from qmodel.scenario import Scenario
    from qmodel.simulation import Arrivals
    from qmodel.trace import Trace
    from qmodel.types import Fleet

__all__ = ["check_plan", "pareto", "plan"]


def plan(
    scenario: Scenario | Source,
    *,
    solver: SolverOptions | None = None,
    existing: Fleet | str | Path | None = None,
    on_progress: OnProgress | None = None,
    cancel: Cancel | None = None,
) -> Plan:
    """The least-cost fleet that meets every target of a scenario.

    Infeasibility, overload and time limits are results, not errors: see ``plan.status`` and ``plan.why``.

    Args:
        scenario: a loaded scenario, or what :func:`load_scenario` takes.
        solver: solver, gap and time limit; None: HiGHS, 0.5 %, 30 s.
        existing: a fleet that runs already, or the path of a fleet file or saved plan. The plan then counts what
            ``policy.change`` says that starting and stopping replicas costs, and lists what changes.
        on_progress: called with a ``Progress`` at each stage.
        cancel: asked between stages; a true answer stops the search with status ``limit``.

    Returns:
        The plan. ``plan.fleet`` is None unless the status is ``optimal`` or ``feasible``.

    Raises:
        ScenarioError: for a scenario that cannot be used.
        SolverUnavailableError: if the named solver is not installed.

    Example:
        >>> import qmodel as qm
        >>> plan = qm.plan("scenarios/peers/p1.yaml")
        >>> plan.status, round(plan.cost_usd_per_hour, 2)
        ('optimal', 8.04)
        >>> [row.started_gpus for row in qm.plan("scenarios/peers/p1.yaml", existing=plan.fleet).changes]
        [0]
    """
    from qmodel.optimize import SolverOptions
    from qmodel.planning.conflict_search import with_conflict
    from qmodel.planning.objectives import plan_for_objective
    from qmodel.problem import bind, with_running

    loaded, running = loaded_scenario(scenario), None if existing is None else loaded_fleet(existing)
    instance = bind(loaded, fleet=running)
    if running is not None:
        instance = with_running(instance, running, loaded)
    elif loaded.policy.change is not None:
        note = "policy.change counts nothing: no fleet is given that runs already (--existing)"
        instance = replace(instance, assumptions=(*instance.assumptions, note))
    options, started_s = solver or SolverOptions(), time.monotonic()
    found = plan_for_objective(instance, options=options, on_progress=on_progress, cancel=cancel)
    if instance.periods is not None or instance.objective.kind == "served":
        return found  # a conflict of one period is told with it; and a part of the demand may be served
    return with_conflict(
        found,
        instance,
        options=options,
        searched_s=time.monotonic() - started_s,
        bound_with=lambda changes: bind(loaded.with_(overrides=changes)),
        on_progress=on_progress,
        cancel=cancel,
    )


def pareto(
    scenario: Scenario | Source,
    cls: str,
    target: str,
    *,
    points: int = 8,
    closest: float = 0.8,
    solver: SolverOptions | None = None,
    on_progress: OnProgress | None = None,
    cancel: Cancel | None = None,
) -> dict[str, Plan]:
    """The front of cost against one target: plans of which none is both dearer and slower than another.

    All other targets and limits of the scenario hold; its own level of this target, if any, is set aside.

    Args:
        scenario: a loaded scenario, or what :func:`load_scenario` takes.
        cls: the class whose target it is.
        target: such as ``ttft_p95_s``.
        points: most plans, at least 1.
        closest: each plan is asked for at most so much of what the one before reaches, in (0, 1).
        solver: as for :func:`plan`; the time limit is that of each plan.
        on_progress, cancel: as for :func:`plan`.

    Returns:
        Plans by the level they reach, the loosest and cheapest first; what :func:`qmodel.compare` takes. Where no
        level can be had, the one plan without a fleet, which says why.

    Raises:
        ScenarioError: for a scenario that cannot be used.
        ValueError: naming an argument that is out of range.

    Example:
        >>> import qmodel as qm
        >>> front = qm.pareto("scenarios/peers/p1.yaml", "chat", "ttft_p99_s", points=3)
        >>> costs = [plan.cost_usd_per_hour for plan in front.values()]
        >>> costs == sorted(costs)
        True
    """
    from qmodel.planning.pareto_front import front_of
    from qmodel.problem.objectives import unpredicted
    from qmodel.scenario.class_section import slo_from_key

    if points < 1:
        raise ValueError(f"points must be at least 1 (got {points})")
    if not 0.0 < closest < 1.0:
        raise ValueError(f"closest must be in (0, 1) (got {closest:g})")
    loaded, found = loaded_scenario(scenario), slo_from_key(target, 1.0)
    if cls not in loaded.classes:
        raise ValueError(f"cls must be one of {', '.join(loaded.classes)} (got {cls!r})")
    if found.metric == "abandoned":
        raise ValueError(f"target must be one in seconds (got {target!r})")
    if (other := loaded.objective.maximize or loaded.objective.target_key) is not None:
        what = f"a front is of cost against a target, not of {other}"
        raise ScenarioError([loaded.problem("objective", what, "leave it out: --set 'objective=~'")])
    if (unseen := unpredicted(loaded, cls, f"classes.{cls}", target)) is not None:
        raise ScenarioError([unseen])

    def plan_at(level_s: float) -> Plan:
        asked = loaded.with_(overrides={f"classes.{cls}.slo.{_quoted(target)}": level_s})
        return plan(asked, solver=solver, on_progress=on_progress, cancel=cancel)

    return front_of(plan_at, cls, found, points=points, closest=closest)


def _quoted(key: str) -> str:
    """A segment of a dotted key: in quotes where it has dots itself."""
    return f'"{key}"' if "." in key else key


def check_plan(
    scenario: Scenario | Source,
    plan: Plan,
    *,
    seed: int = 1,
    requests: int | None = None,
    replications: int = 1,
    trace: Trace | str | Path | None = None,
    split: Sequence[int] | None = None,
    arrivals: Arrivals = "recorded",
    most_added: int = 8,
) -> PlanCheck:
    """Simulate a plan, and grow it where a target is missed.

    Args:
        scenario: the one that was planned.
        plan: a plan of it with a fleet.
        seed, requests, replications, trace, split, arrivals: as for :func:`simulate`.
        most_added: replicas that may be added to the fleet.

    Returns:
        The plan, grown where it had to be, and the simulation of it.

    Raises:
        ScenarioError: for a scenario or trace that cannot be used, or a plan of another scenario.
        ValueError: naming an argument that is out of range, such as a plan without a fleet.

    Example:
        >>> import qmodel as qm
        >>> plan = qm.plan("scenarios/peers/p1.yaml")
        >>> check = qm.check_plan("scenarios/peers/p1.yaml", plan, requests=2000)
        >>> check.verdict, check.plan.cost_usd_per_hour == plan.cost_usd_per_hour
        ('met', True)
    """
    from qmodel.planning.checking import checked_plan
    from qmodel.planning.record import classes_from, limits_from
    from qmodel.problem import bind
    from qmodel.simulation import FleetSimulator

    loaded = loaded_scenario(scenario)
    instance = bind(loaded)
    if plan.objective is not None and plan.fleet is not None:  # its demand and targets are not those of the file
        thinned = [row.cls for row in plan.served if row.dropped_share > 0.0]
        replayed = [name for name in thinned if loaded.classes[name].trace is not None]
        if replayed:
            what = f"the plan serves a part of class '{replayed[0]}', and its trace can only be replayed whole"
            raise ScenarioError([loaded.problem(f"classes.{replayed[0]}.trace", what, "check without the objective")])
        instance = replace(instance, classes=classes_from(plan.inputs))
    if plan.changes:
        instance = replace(instance, limits=limits_from(plan.inputs))
    if plan.periods:  # that of the busiest period is simulated, and none is grown alone
        assert instance.periods is not None
        period = next(item for item in instance.periods.items if item.name == plan.busiest)
        replayed = [name for name in period.lengths if loaded.classes[name].trace is not None]
        if replayed:
            what = (
                f"in {period.title} class '{replayed[0]}' has other lengths than its trace, which can only be replayed"
            )
            raise ScenarioError([loaded.problem(f"classes.{replayed[0]}.trace", what, "check without the lengths")])
        instance = replace(instance, classes=period.demand(instance.classes))
        most_added = 0
    simulator = FleetSimulator.for_scenario(
        loaded,
        instance,
        seed=seed,
        requests=requests,
        replications=replications,
        trace=trace,
        split=split,
        arrivals=arrivals,
    )
    return checked_plan(plan, simulator, most_added=most_added)
