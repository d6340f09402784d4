"""The public calls: load a scenario, plan it, evaluate or simulate a fleet, find its capacity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmodel.errors import CatalogError, Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.evaluation import CapacityResult, Evaluation, MarginalValues
    from qmodel.optimize import SolverOptions
    from qmodel.planning.checking import PlanCheck
    from qmodel.planning.plans import Plan
    from qmodel.planning.progress import Cancel, OnProgress
    from qmodel.scenario import Scenario
    from qmodel.simulation import Arrivals, Simulation
    from qmodel.trace import Trace
    from qmodel.types import Fleet

__all__ = [
    "capacity",
    "check_plan",
    "evaluate",
    "load_fleet",
    "load_scenario",
    "marginal_values",
    "pareto",
    "plan",
    "simulate",
    "validate",
]

Source = str | Path | Mapping[str, Any]


def load_scenario(
    source: Source,
    *,
    apply: Sequence[str] = (),
    set: Mapping[str, Any] | None = None,  # the public name, as the command line has it
    catalog: Sequence[str | Path] = (),
) -> Scenario:
    """Read a scenario and check it: schema, names, prices, traces.

    Args:
        source: path of a YAML file, or the same content as a mapping.
        apply: names of variants, left to right.
        set: dotted key to value; wins over variants and file.
        catalog: the user's catalog files, laid over the shipped one in order.

    Returns:
        The scenario, frozen; ``scenario.with_(...)`` derives another.

    Raises:
        ScenarioError: every problem found, each with file, line and column.

    Example:
        >>> import qmodel as qm
        >>> scenario = qm.load_scenario({
        ...     "qmodel": 1,
        ...     "classes": {"chat": {"model": "llama-3.1-8b", "rate_rps": 4, "slo": {"tpot_mean_s": 0.05},
        ...                          "prompt_tokens": {"mean": 800, "cv": 1}, "output_tokens": {"mean": 200, "cv": 1}}},
        ...     "fleet": {"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 3.0}}}},
        ... })
        >>> list(scenario.classes)
        ['chat']
    """
    scenario, problems = _checked(source, apply, set, catalog)
    if scenario is None or problems:
        raise ScenarioError(problems)
    return scenario


def validate(
    source: Source,
    *,
    apply: Sequence[str] = (),
    set: Mapping[str, Any] | None = None,  # the public name, as the command line has it
    catalog: Sequence[str | Path] = (),
) -> list[Problem]:
    """Every problem of a scenario, in the order of the file; empty for one that can be planned.

    Args:
        source, apply, set, catalog: as for :func:`load_scenario`.
    """
    return _checked(source, apply, set, catalog)[1]


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
    from qmodel.planning.objectives import plan_for_objective
    from qmodel.problem import bind, with_running

    loaded = _loaded(scenario)
    instance = bind(loaded)
    if existing is not None:
        instance = with_running(instance, _fleet(existing), loaded)
    elif loaded.policy.change is not None:
        note = "policy.change counts nothing: no fleet is given that runs already (--existing)"
        instance = replace(instance, assumptions=(*instance.assumptions, note))
    return plan_for_objective(instance, options=solver or SolverOptions(), on_progress=on_progress, cancel=cancel)


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
    loaded, found = _loaded(scenario), slo_from_key(target, 1.0)
    if cls not in loaded.classes:
        raise ValueError(f"cls must be one of {', '.join(loaded.classes)} (got {cls!r})")
    if (other := loaded.objective.maximize or loaded.objective.target_key) is not None:
        what = f"a front is of cost against a target, not of {other}"
        raise ScenarioError([loaded.problem("objective", what, "leave it out: --set objective=~")])
    if (unseen := unpredicted(loaded, cls, f"classes.{cls}", target)) is not None:
        raise ScenarioError([unseen])

    def plan_at(level_s: float) -> Plan:
        asked = loaded.with_(overrides={f"classes.{cls}.slo.{_quoted(target)}": level_s})
        return plan(asked, solver=solver, on_progress=on_progress, cancel=cancel)

    return front_of(plan_at, cls, found, points=points, closest=closest)


def _quoted(key: str) -> str:
    """A segment of a dotted key: in quotes where it has dots itself."""
    return f'"{key}"' if "." in key else key


def evaluate(scenario: Scenario | Source, fleet: Fleet | str | Path) -> Evaluation:
    """Predictions for a given fleet, without optimisation.

    Args:
        scenario: a loaded scenario, or what :func:`load_scenario` takes.
        fleet: a fleet, or the path of a fleet file.

    Raises:
        ScenarioError: for a scenario or fleet that cannot be used.

    Example:
        >>> import qmodel as qm
        >>> plan = qm.plan("scenarios/peers/p1.yaml")
        >>> qm.evaluate("scenarios/peers/p1.yaml", plan.fleet).feasible
        True
    """
    from qmodel.evaluation import evaluate_fleet
    from qmodel.problem import bind

    with _placed_in(fleet):
        return evaluate_fleet(bind(_loaded(scenario)), _fleet(fleet))


def capacity(scenario: Scenario | Source, fleet: Fleet | str | Path) -> CapacityResult:
    """The largest multiple of the demand that a fleet carries within every target, and the service curve.

    Args:
        scenario: a loaded scenario, or what :func:`load_scenario` takes.
        fleet: a fleet, or the path of a fleet file.

    Raises:
        ScenarioError: for a scenario or fleet that cannot be used.

    Example:
        >>> import qmodel as qm
        >>> plan = qm.plan("scenarios/peers/p1.yaml")
        >>> qm.capacity("scenarios/peers/p1.yaml", plan.fleet).factor > 1.0
        True
    """
    from qmodel.evaluation import fleet_capacity
    from qmodel.problem import bind

    with _placed_in(fleet):
        return fleet_capacity(bind(_loaded(scenario)), _fleet(fleet))


def marginal_values(scenario: Scenario | Source, fleet: Fleet | str | Path) -> MarginalValues:
    """What a little more memory, bandwidth, arithmetic, link speed or time in a target is worth in each pool.

    Each figure moves by 2 % to both sides, and the largest load that the pool carries is followed. The worth is that
    of the linear relaxation, in which replicas are divisible; what moves the load by less than 5 % of its own change is
    left out.

    Args:
        scenario: a loaded scenario, or what :func:`load_scenario` takes.
        fleet: a fleet, or the path of a fleet file or saved plan.

    Raises:
        ScenarioError: for a scenario or fleet that cannot be used.

    Example:
        >>> import qmodel as qm
        >>> plan = qm.plan("scenarios/peers/p2kv.yaml")
        >>> [row.figure.rpartition(".")[2] for row in qm.marginal_values("scenarios/peers/p2kv.yaml", plan.fleet).rows]
        ['kv_tokens']
    """
    from qmodel.evaluation import marginal_values as values_of
    from qmodel.problem import bind

    with _placed_in(fleet):
        return values_of(bind(_loaded(scenario)), _fleet(fleet))


def simulate(
    scenario: Scenario | Source,
    fleet: Fleet | str | Path,
    *,
    seed: int = 1,
    requests: int | None = None,
    replications: int = 1,
    trace: Trace | str | Path | None = None,
    split: Sequence[int] | None = None,
    arrivals: Arrivals = "recorded",
) -> Simulation:
    """Serve requests one by one by a given fleet: what can contradict the predictions of :func:`evaluate`.

    Replicas, routers, shares and the confidence in force are those of the predictions. Classes arrive as they
    state, Poisson if nothing else; a class that a trace feeds is replayed as it was recorded.

    Args:
        scenario: a loaded scenario, or what :func:`load_scenario` takes.
        fleet: a fleet, or the path of a fleet file or saved plan.
        seed: same seed, same digits.
        requests: how many to measure over all pools, at least 100; None: enough for each target, from 10,000 to 50,000
            in each pool. Warm-up and end come on top.
        replications: independent runs, each so long.
        trace: replayed instead of what the scenario says, at the mean rates of its classes.
        split: the largest output of each class of the trace but the longest, tokens, rising, for a trace that names no
            classes; without it, such a trace is the only class there is.
        arrivals: ``recorded``: recorded requests come when they came; ``poisson``: the same requests at random times.

    Returns:
        Every number with its prediction and its 95 % confidence interval, and for every target whether it is met,
        missed or not decided.

    Raises:
        ScenarioError: for a scenario, fleet or trace that cannot be used.
        ValueError: naming an argument that is out of range.

    Example:
        >>> import qmodel as qm
        >>> plan = qm.plan("scenarios/peers/p1.yaml")
        >>> found = qm.simulate("scenarios/peers/p1.yaml", plan.fleet, requests=4000)
        >>> [row.decision for row in found.slo]
        ['met', 'met']
    """
    from qmodel.problem import bind
    from qmodel.simulation import FleetSimulator, tabulate

    loaded = _loaded(scenario)
    with _placed_in(fleet):
        instance = bind(loaded)
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
        return tabulate(simulator.runs(_fleet(fleet)), assumptions=simulator.assumptions)


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

    loaded = _loaded(scenario)
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
        rates = next(item.rates_rps for item in plan.periods if item.name == plan.busiest)
        classes = {name: instance.classes[name] for name in rates}
        shares = {name: rate / classes[name].rate_rps for name, rate in rates.items()}
        instance = replace(
            instance, classes={name: item.part(min(shares[name], 1.0)) for name, item in classes.items()}
        )
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


def load_fleet(source: Source) -> Fleet:
    """Read a fleet file, or the fleet of a saved plan.

    Args:
        source: path of a fleet file or of a saved plan, or the fleet file's content as a mapping.

    Raises:
        ScenarioError: every problem found, each with its position.
    """
    from qmodel.planning.storage import is_saved_plan, load_plan

    if not isinstance(source, Mapping) and is_saved_plan(source):
        fleet = load_plan(source).fleet
        if fleet is None:
            raise ScenarioError([Problem(what="this plan has no fleet", file=str(source), hint="its status says why")])
        return fleet
    from qmodel.problem import fleet_from_file
    from qmodel.scenario import read_fleet

    return fleet_from_file(read_fleet(source))


def _checked(
    source: Source, apply: Sequence[str], set_: Mapping[str, Any] | None, catalog: Sequence[str | Path]
) -> tuple[Scenario | None, list[Problem]]:
    from qmodel.catalog import load_catalog
    from qmodel.problem import name_problems, unknown_names
    from qmodel.scenario import check_scenario

    checked = check_scenario(source, apply=apply, overrides=set_ or {}, catalog=catalog)
    if checked.scenario is not None:
        return checked.scenario, name_problems(checked.scenario)
    try:
        found = unknown_names(checked.tree, load_catalog(catalog), checked.problem)
    except (CatalogError, ScenarioError) as error:  # a broken catalog file: said once, beside the schema's problems
        found = list(error.problems) if isinstance(error, ScenarioError) else [Problem(what=str(error))]
    problems = {str(item): item for item in (*checked.problems, *found)}
    return None, sorted(problems.values(), key=lambda item: (item.file, item.line, item.column, item.key))


def _loaded(scenario: Scenario | Source) -> Scenario:
    from qmodel.scenario import Scenario

    return scenario if isinstance(scenario, Scenario) else load_scenario(scenario)


def _fleet(fleet: object) -> Fleet:
    from qmodel.types import Fleet

    if isinstance(fleet, Fleet):
        return fleet
    if isinstance(fleet, str | Path | Mapping):
        return load_fleet(fleet)
    what = f"fleet must be a Fleet, or the path of a fleet file or saved plan (got {type(fleet).__name__})"
    raise TypeError(f"{what}; a plan has it as plan.fleet, None where there is none")


@contextmanager
def _placed_in(fleet: Fleet | str | Path) -> Iterator[None]:
    """Give problems of a fleet the position they have in its file, where it came from one."""
    try:
        yield
    except ScenarioError as error:
        if not isinstance(fleet, str | Path) or any(problem.file != "<fleet>" for problem in error.problems):
            raise
        from qmodel.scenario import check_fleet

        checked = check_fleet(fleet)
        if checked.fleet is None:  # a saved plan: it has keys but no lines
            raise ScenarioError(replace(problem, file=str(fleet)) for problem in error.problems) from error
        found = [checked.fleet.problem(problem.key, problem.what, problem.hint) for problem in error.problems]
        raise ScenarioError(found) from error
