"""A planning problem over several periods, and what its programs are made of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates import CandidateSet, ColumnSet, columns_for_model, enumerate_candidates, open_pools_of
from qmodel.optimize import SolverOptions, solve_integer
from qmodel.optimize.programs import Program
from qmodel.problem import Instance
from qmodel.types import FloatArray, Limits, Period, Periods, RequestClass

__all__ = ["Day", "at_once", "binding_periods", "columns_of", "day_of", "without_budget"]

_PROGRAM_GAP = 1e-6
_LEAST_TIME_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Day:
    """A planning problem over the hours of a day.

    Attributes:
        groups: classes that may share pools, by name.
        instances: the problem of each period alone, classes at its rates.
    """

    instance: Instance
    periods: Periods
    options: SolverOptions
    started_s: float
    candidates: CandidateSet
    groups: Mapping[str, tuple[RequestClass, ...]]
    instances: tuple[Instance, ...]

    @property
    def everyone(self) -> list[RequestClass]:
        """All classes in the order of the programs."""
        return [item for group in self.groups.values() for item in group]

    def solve(self, program: Program) -> FloatArray | None:
        """The optimum of a small program."""
        left_s = max(self.options.time_limit_s - (time.perf_counter() - self.started_s), _LEAST_TIME_S)
        return solve_integer(program, solver=self.options.name, mip_gap=_PROGRAM_GAP, time_limit_s=left_s).values


def day_of(instance: Instance, options: SolverOptions, started_s: float) -> Day:
    """The problem over the periods of an instance, with unified pools only.

    Args:
        instance: the bound problem, with periods.
        options: solver, gap and time limit.
        started_s: when the search began.
    """
    instance = replace(instance, layouts=replace(instance.layouts, disaggregate=False))
    periods = instance.periods
    assert periods is not None
    groups = {name: tuple(sorted(group, key=lambda item: item.name)) for name, group in instance.sharing().items()}
    return Day(
        instance=instance,
        periods=periods,
        options=options,
        started_s=started_s,
        candidates=enumerate_candidates(instance),
        groups=dict(sorted(groups.items())),
        instances=tuple(_in_period(instance, item) for item in periods.items),
    )


def columns_of(day: Day) -> dict[str, ColumnSet]:
    """Columns of each group with every count."""
    return {
        group: columns_for_model(
            day.candidates.of(members[0].model, members[0].name),
            members,
            open_pools=open_pools_of(day.candidates.measured_of(members[0].model), members),
            every_count=True,
        )
        for group, members in day.groups.items()
    }


def _in_period(instance: Instance, period: Period) -> Instance:
    """The problem of some hours alone, at their rates."""
    return replace(instance, classes=period.demand(instance.classes), limits=without_budget(instance.limits))


def without_budget(limits: Limits) -> Limits:
    """The limits of a single period: the budget is one of the mean."""
    return replace(limits, budget_usd_per_hour=None)


def at_once(instance: Instance) -> Instance:
    """The problem with every class at its largest rate at once."""
    return replace(instance, periods=None)


def binding_periods(day: Day) -> dict[str, list[int]]:
    """For each group of classes, periods of which none asks for more of every class than another; of equals one."""
    found: dict[str, list[int]] = {}
    for group, members in day.groups.items():
        asked = np.array([[item.factors[one.name] for one in members] for item in day.periods.items])
        kept: list[int] = []
        for place in np.lexsort((np.arange(len(asked)), -asked.sum(axis=1))).tolist():
            if not any(np.all(asked[other] >= asked[place]) for other in kept):
                kept.append(place)
        found[group] = sorted(kept)
    return found
