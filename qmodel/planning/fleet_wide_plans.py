"""Steps of a plan whose targets hold over all pools of a class together, from columns to a built fleet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from qmodel.candidates import Candidate, Column, ColumnSet, FleetWideColumns, columns_over_fleet
from qmodel.optimize import Choice, Outcome, SolverOptions, WideChoice, choose_fleet_wide, solved_point
from qmodel.planning.assembly import cost_of
from qmodel.planning.built_fleets import BuiltFleet
from qmodel.planning.fleet_wide import FleetCheck, evened_over_fleet, settled_over_fleet
from qmodel.planning.merging import merged
from qmodel.planning.planned_rows import NO_ROW
from qmodel.problem import Instance
from qmodel.types import Limits, RequestClass

__all__ = ["as_choice", "best_over_fleet", "wide_groups"]

_LEAST_TIME_S = 0.05


def wide_groups(
    sets: Mapping[str, ColumnSet],
    classes: Mapping[str, Sequence[RequestClass]],
    chosen: Sequence[tuple[Column, int]],
    instance: Instance,
) -> dict[str, FleetWideColumns]:
    """Pools of every group at any load; beside them those with several classes, each with its own targets met.

    Args:
        sets: columns by group of classes that may share pools.
        classes: the classes of each group.
        chosen: of the plan whose pools meet every target.
        instance: the bound problem.
    """
    limits = instance.limits
    every_count = limits.pays_nodes or (bool(limits.caps) and len(instance.classes) > 1)
    found = {}
    for group, columns in sets.items():
        names = {item.name for item in classes[group]}
        shared = [one for one in columns.columns if len(one.shares) > 1]
        shared += [one for one, _ in chosen if len(one.shares) > 1 and names.issuperset(one.shares)]
        found[group] = columns_over_fleet(columns, classes[group], every_count=every_count, shared=shared)
    return found


def best_over_fleet(
    instance: Instance,
    candidates: Sequence[Candidate],
    groups: Mapping[str, FleetWideColumns],
    known: BuiltFleet | None,
    options: SolverOptions,
) -> tuple[WideChoice, BuiltFleet | None]:
    """What programs over all pools say, and the cheapest fleet known; None: none is.

    Args:
        instance: the bound problem.
        candidates: pools that may take the place of a pair.
        groups: pools by group of classes that may share them.
        known: a fleet whose pools meet every target.
        options: solver, gap and time limit.
    """
    started = time.monotonic()
    wide, found = _cheaper(instance, candidates, groups, known, options)
    budget = instance.limits.budget_usd_per_hour
    cost = np.inf if found is None else found.cost_usd_per_hour(instance.limits)
    if budget is not None and wide.bound_usd_per_hour <= budget < cost < np.inf:
        left_s = max(options.time_limit_s - (time.monotonic() - started), _LEAST_TIME_S)
        exact = replace(options, mip_gap=0.0, time_limit_s=left_s)  # one within the gap may be within the budget
        wide, found = _cheaper(instance, candidates, groups, found, exact)
    return wide, found


def _cheaper(
    instance: Instance,
    candidates: Sequence[Candidate],
    groups: Mapping[str, FleetWideColumns],
    known: BuiltFleet | None,
    options: SolverOptions,
) -> tuple[WideChoice, BuiltFleet | None]:
    """What the programs say, and their fleet where it costs less than one that is known, else that one."""
    limits, solve = instance.limits, partial(solved_point, options=options)
    cost = np.inf if known is None else known.cost_usd_per_hour(limits)
    wide = choose_fleet_wide(groups, list(instance.classes.values()), limits, known_usd_per_hour=cost, options=options)
    check = FleetCheck()
    settled = settled_over_fleet(wide.pools, instance.classes, limits, check) if wide.pools else None
    if settled is not None:
        pools = merged(settled, candidates, limits, holds=check.holds)
        if cost_of(pools, limits) < cost:
            return wide, BuiltFleet(pools=tuple(evened_over_fleet(pools, check, solve)), row=NO_ROW)
    if known is None:
        return wide, None
    return wide, replace(known, pools=tuple(evened_over_fleet(known.pools, check, solve)))


def as_choice(wide: WideChoice, built: BuiltFleet | None, limits: Limits) -> Choice:
    """What the programs say, as a plan takes it."""
    ended: Outcome = "solved" if built is not None else "unsettled"
    if built is None and wide.ruled_out:
        ended = "infeasible"
    elif not wide.in_time:
        ended = "time"
    return Choice(
        chosen=(),
        outcome=ended,
        cost_usd_per_hour=np.inf if built is None else built.cost_usd_per_hour(limits),
        bound_usd_per_hour=wide.bound_usd_per_hour,
        columns_bound_usd_per_hour=wide.columns_bound_usd_per_hour,
        prices=wide.prices,
        words="",
    )
