"""The public calls about a given fleet: predictions, capacity, worth of resources, simulation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmodel.planning.reading import Source, loaded_fleet, loaded_scenario, placed_in

if TYPE_CHECKING:
    from qmodel.evaluation import CapacityResult, Evaluation, MarginalValues
    from qmodel.scenario import Scenario
    from qmodel.simulation import Arrivals, Simulation
    from qmodel.trace import Trace
    from qmodel.types import Fleet

__all__ = ["capacity", "evaluate", "marginal_values", "simulate"]


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

    with placed_in(fleet):
        known = loaded_fleet(fleet)
        return evaluate_fleet(bind(loaded_scenario(scenario), fleet=known), known)


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

    with placed_in(fleet):
        known = loaded_fleet(fleet)
        return fleet_capacity(bind(loaded_scenario(scenario), fleet=known), known)


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

    with placed_in(fleet):
        known = loaded_fleet(fleet)
        return values_of(bind(loaded_scenario(scenario), fleet=known), known)


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

    loaded = loaded_scenario(scenario)
    with placed_in(fleet):
        known = loaded_fleet(fleet)
        instance = bind(loaded, fleet=known)
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
        return tabulate(simulator.runs(known), assumptions=simulator.assumptions)
