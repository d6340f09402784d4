"""One planning problem with everything that its search has found so far, and the choice within its limits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from qmodel.candidates import NO_STAGES, CandidateSet, ColumnSet, StageColumns, columns_by_stage, columns_for_group
from qmodel.optimize import Choice, SolverOptions, cancelled, choose
from qmodel.problem import Instance
from qmodel.types import Limits, RequestClass

__all__ = ["LEAST_TIME_S", "Search", "chosen_within", "left_of"]

LEAST_TIME_S = 0.05  # a second integer program gets at least this


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """One planning problem with everything the search has found so far.

    Attributes:
        sets, classes: by the name of a group of classes that may share pools.
        stages: what separate prefill and decode pools could carry.
        pressing: keys of limits that the cheapest fleet without them breaks.
    """

    instance: Instance
    options: SolverOptions
    started_s: float
    candidates: CandidateSet
    sets: Mapping[str, ColumnSet]
    classes: Mapping[str, tuple[RequestClass, ...]]
    stages: StageColumns = NO_STAGES
    pressing: tuple[str, ...] = ()
    solve_s: float = 0.0

    @property
    def limits(self) -> Limits:
        """Of the fleet."""
        return self.instance.limits

    @property
    def serves_all(self) -> bool:
        """Whether some pool, or pools in a row, carry a part of every class."""
        return all(self.serves(item.name) for members in self.classes.values() for item in members)

    def serves(self, name: str) -> bool:
        """Whether some pool, or pools in a row, carry a part of a class."""
        models = {item.model for members in self.classes.values() for item in members if item.name == name}
        apart = any(self.stages.serves(name, model) for model in models)
        return apart or any(found.serves(name) for found in self.sets.values())


def chosen_within(search: Search) -> tuple[Search, Choice]:
    """The choice within the limits, and the search with the columns it was made from.

    Classes that compete for what is limited may each need what is not cheapest for them alone. The
    columns leave such pools out, so they are tried first as if nothing was scarce: that
    choice and its bound hold if it fits. If not, every count becomes a column. Where nodes are paid whole it is one
    from the start: what a pool costs then depends on the others.
    """
    started = time.perf_counter()
    limits, options = search.limits, search.options
    competing = bool(limits.caps) and len(search.instance.classes) > 1 and not limits.pays_nodes
    free = limits.without_caps() if competing else limits
    first = replace(options, time_limit_s=options.time_limit_s / 2.0) if competing else options
    choice = choose(search.sets, search.classes, free, options=first, stages=search.stages)
    pressing = tuple(cap.key for cap in limits.exceeded(choice.holdings)) if competing else ()
    if pressing and not cancelled():
        sets = {
            group: columns_for_group(
                found.candidates,
                search.classes[group],
                open_pools=found.open_pools,
                every_count=True,
                keep_all=limits.change is not None,
            )
            for group, found in search.sets.items()
        }
        stages = search.stages
        if stages.sets:
            able = search.candidates.candidates
            stages = columns_by_stage(
                search.instance, able, search.classes, every_count=True, keep_all=limits.change is not None
            )
        search = replace(search, sets=sets, stages=stages, pressing=pressing)
        unlimited_usd = choice.bound_usd_per_hour  # limits make nothing cheaper
        choice = choose(sets, search.classes, limits, options=left_of(options, started), stages=stages)
        choice = replace(choice, bound_usd_per_hour=max(choice.bound_usd_per_hour, unlimited_usd))
    budget = limits.budget_usd_per_hour
    if budget is not None and choice.bound_usd_per_hour <= budget < choice.cost_usd_per_hour:
        exact = replace(left_of(options, started), mip_gap=0.0)  # a fleet within the gap may be within the budget
        closer = choose(search.sets, search.classes, limits, options=exact, stages=search.stages)
        bound = max(choice.bound_usd_per_hour, closer.bound_usd_per_hour)
        choice = replace(choice if closer.empty else closer, bound_usd_per_hour=bound)
    return replace(search, solve_s=time.perf_counter() - started), choice


def left_of(options: SolverOptions, started_s: float) -> SolverOptions:
    """The same with what is left of the time limit."""
    left_s = options.time_limit_s - (time.perf_counter() - started_s)
    return replace(options, time_limit_s=max(left_s, LEAST_TIME_S))
