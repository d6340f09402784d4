"""A planning problem over several periods, and what its programs are made of."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.candidates import (
    CandidateSet,
    ColumnSet,
    columns_for_model,
    enumerate_candidates,
    open_pools_of,
    priced_for,
)
from qmodel.evaluation import day_purchases, paid_by_period
from qmodel.optimize import SolverOptions, least_risk_base, solve_integer
from qmodel.optimize.programs import Program
from qmodel.problem import Instance
from qmodel.types import DayPurchase, FloatArray, Holding, Limits, Period, Periods, RequestClass

__all__ = ["Day", "at_once", "binding_periods", "columns_of", "day_of", "without_budget"]

_PROGRAM_GAP = 1e-6
_LEAST_TIME_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Day:
    """A planning problem over the hours of a day.

    Attributes:
        groups: classes that may share pools, at their largest rates, by name; of the first regime.
        members: the same for every regime of lengths, groups by a name of their own in each.
        regimes: names in ``members`` of the groups of each regime, in the order of ``groups``.
        instances: the problem of each period alone, classes at its rates.
    """

    instance: Instance
    periods: Periods
    options: SolverOptions
    started_s: float
    candidates: CandidateSet
    groups: Mapping[str, tuple[RequestClass, ...]]
    members: Mapping[str, tuple[RequestClass, ...]]
    regimes: tuple[tuple[str, ...], ...]
    instances: tuple[Instance, ...]

    @property
    def everyone(self) -> list[RequestClass]:
        """All classes in the order of the programs."""
        return [item for group in self.groups.values() for item in group]

    def classes_in(self, period: int) -> dict[str, RequestClass]:
        """All classes at their largest rates with the lengths of a period."""
        return self.periods.items[period].with_lengths(self.instance.classes)

    def served(self, sets: Mapping[str, ColumnSet]) -> bool:
        """Whether some pool carries a part of every class that a period asks for."""
        regimes = self.periods.regimes
        return all(
            sets[group].serves(item.name)
            for number, period in zip(regimes, self.periods.items, strict=True)
            for group in self.regimes[number]
            for item in self.members[group]
            if period.factors[item.name] > 0.0
        )

    def solve(self, program: Program) -> FloatArray | None:
        """The optimum of a small program."""
        left_s = max(self.options.time_limit_s - (time.perf_counter() - self.started_s), _LEAST_TIME_S)
        return solve_integer(program, solver=self.options.name, mip_gap=_PROGRAM_GAP, time_limit_s=left_s).values

    def purchases(self, holdings: Sequence[Sequence[Holding]]) -> dict[str, DayPurchase]:
        """The best base of each GPU type for fleets that change, by what counts of their costs.

        Args:
            holdings: pools of each period.
        """
        limits, sizes = self.instance.limits, None
        if self.periods.risk is not None:
            sizes = least_risk_base(limits, paid_by_period(limits, holdings), self.periods, self.solve)
        return day_purchases(limits, holdings, self.periods, sizes)


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
    regimes = periods.regimes
    sharing = []
    for number in range(max(regimes) + 1):
        first = periods.items[regimes.index(number)]
        own = replace(instance, classes=first.with_lengths(instance.classes)).sharing()
        sharing.append({name: tuple(sorted(own[name], key=lambda item: item.name)) for name in sorted(own)})
    names = [
        {group: group if len(sharing) == 1 else f"{group} {number}" for group in own}
        for number, own in enumerate(sharing)
    ]
    return Day(
        instance=instance,
        periods=periods,
        options=options,
        started_s=started_s,
        candidates=enumerate_candidates(instance),
        groups=sharing[0],
        members={names[number][group]: items for number, own in enumerate(sharing) for group, items in own.items()},
        regimes=tuple(tuple(own.values()) for own in names),
        instances=tuple(_in_period(instance, item) for item in periods.items),
    )


def columns_of(day: Day) -> dict[str, ColumnSet]:
    """Columns of each group in each regime with every count."""
    return {
        group: columns_for_model(
            day.candidates.of(members[0].model, members[0].name),
            members,
            open_pools=open_pools_of(priced_for(day.candidates.measured_of(members[0].model), members), members),
            every_count=True,
        )
        for group, members in day.members.items()
    }


def _in_period(instance: Instance, period: Period) -> Instance:
    """The problem of some hours alone, at their rates."""
    return replace(instance, classes=period.demand(instance.classes), limits=without_budget(instance.limits))


def without_budget(limits: Limits) -> Limits:
    """The limits of a single period: the budget is one of the mean."""
    return replace(limits, budget_usd_per_hour=None)


def at_once(instance: Instance) -> Instance:
    """The problem with every class at its largest rate at once, where lengths are the same in all periods."""
    assert instance.periods is not None
    classes = instance.periods.items[0].with_lengths(instance.classes)
    return replace(instance, classes=classes, periods=None)


def binding_periods(day: Day) -> dict[str, list[int]]:
    """For each group of classes, periods of which none asks for more of every class than another; of equals one.

    Where lengths differ, only periods with the same ones are compared, and all groups have the same periods. Where an
    API is paid by the token every period counts.
    """
    regimes = day.periods.regimes
    if day.instance.apis:
        return {group: list(range(len(day.periods.items))) for group in day.groups}
    if len(day.regimes) > 1:
        names = [one.name for one in day.everyone]
        kept = [
            place
            for number in range(len(day.regimes))
            for place in _undominated(day, names, [place for place, own in enumerate(regimes) if own == number])
        ]
        return {group: sorted(kept) for group in day.groups}
    every = list(range(len(day.periods.items)))
    return {group: _undominated(day, [one.name for one in members], every) for group, members in day.groups.items()}


def _undominated(day: Day, names: Sequence[str], places: Sequence[int]) -> list[int]:
    asked = {place: np.array([day.periods.items[place].factors[name] for name in names]) for place in places}
    kept: list[int] = []
    for place in sorted(places, key=lambda one: (-float(asked[one].sum()), one)):
        if not any(np.all(asked[other] >= asked[place]) for other in kept):
            kept.append(place)
    return sorted(kept)
