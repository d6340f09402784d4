"""Plan for the least value of one target that the limits of the fleet allow."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import sqrt

from qmodel.optimize import SolverOptions
from qmodel.planning.planner import plan_instance
from qmodel.planning.plans import ObjectiveRow, Plan
from qmodel.planning.progress import Cancel, OnProgress
from qmodel.planning.record import scope_from
from qmodel.problem import Instance
from qmodel.types import Slo, decisive

__all__ = ["NO_TARGET_S", "least_latency_plan", "reached", "with_target"]

NO_TARGET_S = 1e6  # asks for a prediction and nothing else
_FIRST_STEP = 8.0  # how far below a value that is reached the search looks at first
_MOST_DOUBTS = 4  # looks at levels below one that is neither reached nor ruled out
_LEAST_S = 1e-6  # no target is lower
_LEAST_GAP = 0.002  # the frontier is followed to 0.4 %
_LEAST_TIME_S = 0.05


def least_latency_plan(
    instance: Instance, *, options: SolverOptions, on_progress: OnProgress | None = None, cancel: Cancel | None = None
) -> Plan:
    """The cheapest fleet for the least value of the objective's target within the limits, all other targets met.

    The level is narrowed: one that some fleet within the limits reaches, and one that none does, until they differ by
    the gap. Each look is a whole plan, and what its fleet is predicted to reach is where the next look starts.

    Args:
        instance: the bound problem, its objective a target.
        options: solver, gap and time limit; the gap is also that of the level.
        on_progress: told where the search stands.
        cancel: asked between stages; a true answer stops the search.
    """
    started = time.monotonic()
    target = instance.objective.target
    assert target is not None
    name, closest = instance.objective.cls, sqrt(1.0 + max(options.mip_gap, _LEAST_GAP))
    stated = [slo.target_s for slo in instance.classes[name].slos if slo.key == target.key]

    def look(level_s: float) -> Plan:
        left_s = max(options.time_limit_s - (time.monotonic() - started), _LEAST_TIME_S)
        return plan_instance(
            with_target(instance, name, replace(target, target_s=level_s)),
            options=replace(options, time_limit_s=left_s),
            on_progress=on_progress,
            cancel=cancel,
        )

    best = look(min(stated, default=NO_TARGET_S))
    if best.fleet is None:
        return best
    search = _Levels(reached_s=reached(best, name, target))
    while (level_s := search.next_level(closest)) is not None:
        if time.monotonic() - started > options.time_limit_s:
            return _told(best, search, f"{target.key} of {name}", closest, out_of_time=True)
        found = look(level_s)
        if found.termination == "cancelled":
            return found
        if found.fleet is None:
            search.miss(level_s, ruled_out=found.status == "infeasible")
        else:
            best = found
            search.reach(min(reached(found, name, target), level_s))
    return _told(best, search, f"{target.key} of {name}", closest)


@dataclass(slots=True, kw_only=True)
class _Levels:
    """What is known of the levels of a target.

    Attributes:
        reached_s: the least that a fleet reaches.
        missed_s: the largest at which no fleet was found.
        ruled_out_s: the largest at which there is none for sure; the bound of a plan may leave it open.
        doubts: looks below ``missed_s`` that were to rule a level out.
    """

    reached_s: float
    missed_s: float = 0.0
    ruled_out_s: float = 0.0
    doubts: int = 0

    def next_level(self, closest: float) -> float | None:
        """Where to look next; None where nothing is left to learn."""
        if self.reached_s <= _LEAST_S:
            return None
        if self.reached_s > self.missed_s * closest:
            between = self.missed_s > 0.0
            return sqrt(self.reached_s * self.missed_s) if between else self.reached_s / _FIRST_STEP
        if self.missed_s > self.ruled_out_s * closest and self.doubts < _MOST_DOUBTS:
            return self.missed_s / float(closest ** (2**self.doubts))
        return None

    def reach(self, level_s: float) -> None:
        """A fleet reaches a level."""
        self.reached_s, self.doubts = level_s, 0
        self.missed_s = min(self.missed_s, level_s)

    def miss(self, level_s: float, *, ruled_out: bool) -> None:
        """No fleet was found for a level."""
        if level_s < self.missed_s:
            self.doubts += 1
        self.missed_s = max(self.missed_s, level_s)
        if ruled_out:
            self.ruled_out_s = max(self.ruled_out_s, level_s)


def _told(best: Plan, search: _Levels, name: str, closest: float, *, out_of_time: bool = False) -> Plan:
    proven = search.reached_s <= search.ruled_out_s * closest**2 * (1.0 + 1e-9)
    row = ObjectiveRow(
        name=name,
        unit="s",
        value=search.reached_s,
        bound=search.ruled_out_s if search.ruled_out_s > 0.0 else None,
        proven=proven,
    )
    if proven:
        return replace(best, objective=row)
    return replace(best, status="feasible", termination="time" if out_of_time else "gap", objective=row)


def with_target(instance: Instance, name: str, target: Slo) -> Instance:
    """The same problem with one target of a class set to another level, or added."""
    item = instance.classes[name]

    def moved(slos: tuple[Slo, ...]) -> tuple[Slo, ...]:
        return (*(slo for slo in slos if slo.key != target.key), target)

    tiers = tuple(tier if tier.slos is None else replace(tier, slos=moved(tier.slos)) for tier in item.alternatives)
    asked = replace(item, slos=moved(item.slos), alternatives=tiers)
    return replace(instance, classes={**instance.classes, name: asked})


def reached(plan: Plan, name: str, target: Slo) -> float:
    """The value that the fleet of a plan is predicted to have, the largest over the pools that serve the class.

    Where targets hold over all pools together, that of the mixture.

    At the confidence in force: at p90 the upper end of its bands.
    """
    at_p90 = plan.inputs["confidence"] == "p90"
    values = [
        row.target_s if (value_s := row.high_s if at_p90 else row.predicted_s) is None else value_s
        for row in decisive(plan.slo, scope_from(plan.inputs))
        if row.cls == name and row.metric == target.metric and row.stat == target.stat
    ]
    return max(values)
