"""Choose pools: groups of classes that no limit ties to others are chosen for on their own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from qmodel.candidates import NO_STAGES, ColumnSet, StageColumns
from qmodel.optimize.choice import PATIENCE, choose_together
from qmodel.optimize.chosen_pools import Choice, Outcome
from qmodel.optimize.period_programs import Frame, OnePeriod
from qmodel.optimize.rounds import SAME_COST
from qmodel.optimize.solvers import SolverOptions, cancelled
from qmodel.types import Limits, RequestClass

__all__ = ["choose"]

_LEAST_TIME_S = 0.05
_CLOSER = 0.1  # of the gap: what parts that kept it may leave when the others left too much
_FIRST_PATIENCE = 3  # rounds in which the bound of a part may stand still, until it is known which gaps matter
_RESERVED = 0.5  # of the time: kept for the parts to come in equal shares, the rest is for whichever needs it
_MOST_DOUBTFUL = 4  # choices that are handed on to be built
_ONE_PERIOD = OnePeriod()
_WORST: tuple[Outcome, ...] = ("infeasible", "error", "unsettled", "time", "solved")


def choose(
    sets: Mapping[str, ColumnSet],
    classes: Mapping[str, Sequence[RequestClass]],
    limits: Limits,
    *,
    options: SolverOptions,
    stages: StageColumns = NO_STAGES,
    frame: Frame = _ONE_PERIOD,
    regimes: Sequence[Sequence[str]] = (),
) -> Choice:
    """Least-cost counts of columns that cover every class within the limits, and a bound on any fleet.

    Where nothing ties groups to each other, the least cost and the bound are sums, and a gap that each keeps is kept
    by all. Each is looked at briefly; if the sum leaves more than the gap, parts are looked at again until it does not:
    those that kept it, to the end, then the widest. Groups of one class are left together: their programs are solved at
    once.

    Args:
        sets: columns by group of classes that may share pools.
        classes: the classes of each group.
        limits: of the fleet.
        options: solver, gap and time limit.
        stages: what separate prefill and decode pools could carry.
        frame: how programs of single periods make one; every hour is the same if left out.
        regimes: groups of each regime of lengths, whose classes have the same names in the same order; empty: there is
            one regime of all.
    """
    parts = [tuple(sets)] if _tied(limits, stages, frame) else _parts(sets, classes)
    if len(parts) < 2:
        return choose_together(sets, classes, limits, options=options, stages=stages, frame=frame, regimes=regimes)
    deadline = time.monotonic() + options.time_limit_s
    reserved_s = _RESERVED * options.time_limit_s / len(parts)

    def look(part: tuple[str, ...], waiting: int, patience: int, of_gap: float = 1.0) -> Choice:
        left_s = deadline - time.monotonic() - reserved_s * waiting
        own = replace(options, time_limit_s=max(left_s, _LEAST_TIME_S), mip_gap=options.mip_gap * of_gap)
        mine = {group: classes[group] for group in part}
        return choose_together({group: sets[group] for group in part}, mine, limits, options=own, patience=patience)

    found = {part: look(part, len(parts) - number - 1, _FIRST_PATIENCE) for number, part in enumerate(parts)}
    wide = {
        part: _gap_usd(item) > options.mip_gap * item.cost_usd_per_hour * (1.0 + SAME_COST)
        for part, item in found.items()
    }
    open_parts = [part for part in parts if not any(sets[group].many for group in part) and _gap_usd(found[part]) > 0.0]
    for part in sorted(open_parts, key=lambda item: (wide[item], -_gap_usd(found[item]))):
        cost = sum(item.cost_usd_per_hour for item in found.values())
        closed = sum(map(_gap_usd, found.values())) <= options.mip_gap * cost
        if closed or any(item.empty for item in found.values()) or time.monotonic() > deadline or cancelled():
            break
        again = look(part, 0, PATIENCE) if wide[part] else look(part, 0, _FIRST_PATIENCE, _CLOSER)
        found[part] = _better(found[part], again)
    order = list(sets)
    return _joined([found[part] for part in sorted(found, key=lambda item: order.index(item[0]))])


def _gap_usd(choice: Choice) -> float:
    """Between cost and bound, USD/h; 0 where there is no fleet."""
    return 0.0 if choice.empty else max(choice.cost_usd_per_hour - choice.bound_usd_per_hour, 0.0)


def _better(first: Choice, second: Choice) -> Choice:
    """The cheaper of two choices for the same groups, with the higher of their bounds."""
    cheaper = second if second.cost_usd_per_hour <= first.cost_usd_per_hour else first
    return replace(cheaper, bound_usd_per_hour=max(first.bound_usd_per_hour, second.bound_usd_per_hour))


def _tied(limits: Limits, stages: StageColumns, frame: Frame) -> bool:
    """Whether what one group has may matter to another."""
    priced = any(item.counts_nodes or item.mixes_offers for item in limits.gpus.values())
    scarce = bool(limits.caps) or limits.change is not None
    return priced or scarce or bool(stages.sets) or not isinstance(frame, OnePeriod)


def _parts(sets: Mapping[str, ColumnSet], classes: Mapping[str, Sequence[RequestClass]]) -> list[tuple[str, ...]]:
    """Groups in parts that share no class, those whose pools no classes share in one of them; the small ones first."""
    parts: list[tuple[set[str], set[str]]] = []  # groups, and names of their classes
    for group in sets:
        names = {item.name for item in classes[group]}
        tied = [part for part in parts if part[1] & names]
        merged = {group}.union(*(part[0] for part in tied)), names.union(*(part[1] for part in tied))
        parts = [part for part in parts if part not in tied] + [merged]
    single = {
        group
        for groups, _ in parts
        for group in groups
        if all(len(sets[one].sharing(classes[one])) == 1 for one in groups)
    }
    found = [tuple(group for group in sets if group in groups) for groups, _ in parts if not groups & single]
    found += [tuple(group for group in sets if group in single)] if single else []
    return sorted(found, key=lambda part: sum(len(classes[group]) for group in part))


def _joined(choices: Sequence[Choice]) -> Choice:
    """Choices that have nothing in common as one; empty where one of them is."""
    worst = min(choices, key=lambda item: _WORST.index(item.outcome))
    bound = sum(item.bound_usd_per_hour for item in choices)
    columns_bound = sum(item.columns_bound_usd_per_hour for item in choices)
    if worst.outcome == "infeasible" or any(item.empty for item in choices):
        empty = min((item for item in choices if item.empty), key=lambda item: _WORST.index(item.outcome))
        return replace(
            empty,
            bound_usd_per_hour=bound if empty.outcome != "infeasible" else -np.inf,
            columns_bound_usd_per_hour=columns_bound,
        )
    return Choice(
        chosen=tuple(pool for item in choices for pool in item.chosen),
        open_pools=tuple(sorted((one for item in choices for one in item.open_pools), key=lambda one: one.pool.is_api)),
        outcome=worst.outcome,
        cost_usd_per_hour=sum(item.cost_usd_per_hour for item in choices),
        bound_usd_per_hour=bound,
        columns_bound_usd_per_hour=columns_bound,
        prices=tuple(price for item in choices for price in item.prices),
        words=worst.words,
        model_shares={key: share for item in choices for key, share in item.model_shares.items()},
        doubtful=tuple(
            _joined([*choices[:place], replace(other, doubtful=()), *choices[place + 1 :]])
            for place, item in enumerate(choices)
            for other in item.doubtful
        )[:_MOST_DOUBTFUL],
    )
