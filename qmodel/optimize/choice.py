"""Choose pools: solve the master, bound the whole problem, read prices."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from qmodel.candidates import NO_STAGES, Column, ColumnSet, StageColumns
from qmodel.optimize.alternatives import model_shares
from qmodel.optimize.chosen_pools import Choice, Outcome, ShadowPrice
from qmodel.optimize.formulation import bound_program, master_program
from qmodel.optimize.joined_programs import JoinedProgram
from qmodel.optimize.linked_parts import solve_linked
from qmodel.optimize.open_pools import OpenChoice, balanced
from qmodel.optimize.period_pools import PeriodPools, pools_by_period, pools_of_regimes
from qmodel.optimize.period_programs import ChangingFleet, Frame, OneFleet, OnePeriod
from qmodel.optimize.programs import Program
from qmodel.optimize.proposed_pools import with_proposals
from qmodel.optimize.rounds import SAME_COST, Regime, Round, refined
from qmodel.optimize.settling import each_period, fewest_pools, solve_within
from qmodel.optimize.solvers import Solved, SolverOptions, cancelled, solve_integer, solve_relaxed
from qmodel.optimize.stage_rows import Columns, carried_in_rows
from qmodel.types import FloatArray, Limits, RequestClass

__all__ = ["PATIENCE", "choose_together", "shadow_prices"]

_WITHOUT: Mapping[str, Outcome] = {"infeasible": "unsettled", "time": "time"}  # by what the master ended with
_MOST_ROUNDS = 40  # of looking closer at the mixes that decide
_MASTER_EVERY = 8  # rounds; between them only the bound moves, which takes a hundredth of the time
PATIENCE = 15  # rounds in which the bound may stand still
_PATIENCE_OF_MANY = 2  # the same where some pools may have many classes
_RISE = 1e-3  # of the bound: less is standing still
_MOST_REPAIRS = 8  # of fleets with a pool that does not carry its mix
_MOST_LATE_REPAIRS = 3  # of them where the time is over
_TO_REPAIR_S = 0.5  # at least, even where the time is over: a fleet that does not hold is none
_MOST_DOUBTFUL = 4  # of these that are kept to be built
_OF_GAP = 0.4  # of the gap asked for: what the programs of a day may leave open
_OF_TIME = 0.3  # of what is left: for the bound of a day
_LEAST_TIME_S = 0.05
_ONE_PERIOD = OnePeriod()
_LOOKING = 2.0  # of the time spent on the bound: for fleets of many classes that cost less
_OF_LEFT = 0.15  # of what is left: for a relaxation with many classes, whose bound moves little in the end
_LEAST_FOR_PRICES_S = 2.0  # they are an extra, and a linear program is quick


def choose_together(
    sets: Mapping[str, ColumnSet],
    classes: Mapping[str, Sequence[RequestClass]],
    limits: Limits,
    *,
    options: SolverOptions,
    stages: StageColumns = NO_STAGES,
    frame: Frame = _ONE_PERIOD,
    regimes: Sequence[Sequence[str]] = (),
    patience: int = PATIENCE,
) -> Choice:
    """Least-cost counts of columns that cover every class within the limits, and a bound on any fleet.

    The relaxation is solved first: where every group has one class its optimum is a
    fleet, and if the feasible side of the frontier carries it too, it is the answer and
    its own bound. Where classes share pools, the frontier is followed along the mixes that both programs choose, and
    both are solved again, until they agree within the gap.

    Args:
        sets: columns by group of classes that may share pools.
        classes: the classes of each group.
        limits: of the fleet.
        options: solver, gap and time limit.
        stages: what separate prefill and decode pools could carry.
        frame: how programs of single periods make one; every hour is the same if left out.
        regimes: groups of each regime of lengths, whose classes have the same names in the same order; empty: there is
            one regime of all.
        patience: rounds in which the bound may stand still before the search ends; fewer with many classes.
    """
    started = time.monotonic()
    deadline = started + options.time_limit_s
    sets, classes = {**sets, **stages.sets}, {**classes, **stages.classes}
    known = [
        Columns(classes={group: classes[group] for group in groups}, stages=stages) for groups in regimes or (classes,)
    ]
    step = _step(sets, known, limits, options, deadline, frame)
    stalled, patience = 0, _PATIENCE_OF_MANY if any(found.many for found in sets.values()) else patience
    late = False
    for number in range(1, _MOST_ROUNDS):
        if step.failure or stalled >= patience or (step.closed(options.mip_gap) and step.fresh):
            break
        late = time.monotonic() > deadline or cancelled()
        if late:
            break
        closer = step.closer(options.mip_gap)
        renewed = closer is step.sets
        if renewed and (step.fresh or step.closed(options.mip_gap)):
            break
        bound_only = not renewed and number % _MASTER_EVERY > 0
        # a look in between for a better fleet takes half as long as all before it: often the bound settles more
        now = time.monotonic()
        until = deadline if renewed else min(deadline, now + (now - started) / 2.0)
        before = step.relaxed.bound
        step = _step(closer, known, limits, options, until, frame, earlier=step, bound_only=bound_only)
        stalled = 0 if step.relaxed.bound > before + _RISE * abs(before) else stalled + 1
    now = time.monotonic()
    looking = min((now + deadline) / 2.0, now + _LOOKING * (now - started))
    step = _with_proposals(step, known, limits, options, looking, deadline, frame)
    relaxed, solved = step.relaxed, step.solved
    if relaxed.outcome == "infeasible":
        return _nothing("infeasible", relaxed)
    bound = max(relaxed.bound, 0.0) if np.isfinite(relaxed.bound) else -np.inf
    if solved.values is None:
        without = "time" if late and solved.outcome == "infeasible" else _WITHOUT.get(solved.outcome, "error")
        return _nothing(without, solved, bound)
    settle = each_period if isinstance(frame, ChangingFleet) else fewest_pools
    values = settle(step, options, deadline)
    doubtful: list[Choice] = []
    for number in range(_MOST_REPAIRS):
        broken = step.overloaded(values, classes)
        if not broken or cancelled() or (number >= _MOST_LATE_REPAIRS and time.monotonic() > deadline):
            break
        if isinstance(frame, OnePeriod) and len(doubtful) < _MOST_DOUBTFUL:
            doubtful.append(_choice(step, values, known, limits, options, deadline, frame, bound, late=late))
        until = max(deadline, time.monotonic() + _TO_REPAIR_S)
        again = _step(refined(step.known, broken), known, limits, options, until, frame, bounded=step.relaxed)
        if again.solved.outcome == "infeasible":  # the doubtful may still do with a replica more
            return doubtful[0] if doubtful else _nothing("unsettled", again.solved, bound)
        if again.solved.values is None:  # stopped: pools that carry less than they should are grown later
            step, late = replace(step, failure=again.failure), late or not again.failure
            break
        step = again
        values = settle(step, options, deadline)
    found = _choice(step, values, known, limits, options, deadline, frame, bound, late=late)
    return replace(found, doubtful=tuple(item for item in doubtful if item.cost_usd_per_hour < found.cost_usd_per_hour))


def _choice(
    step: Round,
    values: FloatArray,
    known: Sequence[Columns],
    limits: Limits,
    options: SolverOptions,
    deadline: float,
    frame: Frame,
    bound: float,
    *,
    late: bool,
) -> Choice:
    """A solution of the master as a choice."""
    several = not isinstance(frame, OnePeriod)
    points = step.points(values)
    chosen = [] if several else points[0][0].pools(points[0][1])
    return Choice(
        chosen=tuple(chosen),
        open_pools=() if several else tuple(_balanced(step, points[0][1], chosen, known[0], options, deadline)),
        pools=_pools(step, values, lasting=isinstance(frame, OneFleet)) if several else (),
        measured=tuple(tuple(one.open_choices(point)) for one, point in points) if several else (),
        served=tuple(bool(values[place] > 0.5) for place in step.master.served),
        outcome="error" if step.failure else "time" if late or step.solved.outcome == "time" else "solved",
        cost_usd_per_hour=float(step.master.program.cost @ values),
        bound_usd_per_hour=bound,
        columns_bound_usd_per_hour=max(step.solved.bound, bound),
        prices=_prices(
            step.master, known[0].whole, limits, options.name, max(deadline - time.monotonic(), _LEAST_FOR_PRICES_S)
        ),
        words=step.failure or step.solved.words,
        model_shares=model_shares(step.master.program, values),
    )


def _with_proposals(
    step: Round,
    demand: Sequence[Columns],
    limits: Limits,
    options: SolverOptions,
    looking: float,
    deadline: float,
    frame: Frame,
) -> Round:
    """The same with fleets that the rows of many classes propose, where every hour is the same."""
    levels = any(found.levels for found in step.sets.values())
    if not levels or not isinstance(frame, OnePeriod) or step.relaxed.values is None or step.closed(options.mip_gap):
        return step
    if step.failure or cancelled():
        return step
    cost = np.inf if step.solved.objective is None else step.solved.objective
    sets = with_proposals(step.sets, demand[0], limits, options=options, cost_usd_per_hour=cost, deadline=looking)
    if sets is step.sets:
        return step
    return _step(sets, demand, limits, options, deadline, frame, earlier=step, same_bound=True)


def _pools(step: Round, values: FloatArray, *, lasting: bool) -> tuple[PeriodPools, ...]:
    """Pools over all periods; one fleet stands in all of them, whatever its regimes make of it."""
    by_regime = []
    for number, regime in enumerate(step.regimes):
        points = [
            point if own == number else None
            for own, point in zip(step.master.regimes, step.master.points(values), strict=True)
        ]
        by_regime.append(pools_by_period(regime.columns, regime.blends, points))
    return tuple(pools_of_regimes(by_regime) if lasting and len(by_regime) > 1 else chain(*by_regime))


def _step(
    sets: Mapping[str, ColumnSet],
    demand: Sequence[Columns],
    limits: Limits,
    options: SolverOptions,
    deadline: float,
    frame: Frame,
    *,
    earlier: Round | None = None,
    bound_only: bool = False,
    same_bound: bool = False,
    bounded: Solved | None = None,
) -> Round:
    """Solve the relaxation unless it is that of the earlier step, and the master unless a relaxed optimum is a fleet.

    With ``bound_only`` the master is left as it was.

    With ``bounded``, what is known of the relaxation, the master alone is solved.

    What an earlier step found cuts off all that is no better, which a solver proves much faster than it would find it.
    """
    own = [{group: sets[group] for group in one.classes} for one in demand]
    members = {group: items for one in demand for group, items in one.classes.items()}
    mixed = any(len(found.sharing(members[group])) > 1 for group, found in sets.items())
    exact = len(demand) == 1 and demand[0].same and not mixed and all(found.complete for found in sets.values())
    best = None if earlier is None else earlier.solved
    if earlier is not None and same_bound:
        flows, bounding, relaxed = [regime.flows for regime in earlier.regimes], earlier.bounding, earlier.relaxed
    else:
        apart = len(demand) > 1 and isinstance(frame, OneFleet)  # what stands in several regimes has one setting
        relaxations = [
            bound_program(one.bounding(found), one.classes, limits, one.stages.bounding, settings_apart=apart)
            for one, found in zip(demand, own, strict=True)
        ]
        flows = [item.flows for item in relaxations]
        bounding = _joined(frame, [item.program for item in relaxations])
        lasting = _lasting(frame, [item.program for item in relaxations])
        closely = not any(found.levels for found in sets.values())
        relaxed = bounded or _improved(
            frame, lasting, bounding, best, options, deadline, bound_only=mixed, closely=closely
        )
    failure = relaxed.words if relaxed.outcome == "error" else ""
    if earlier is not None:  # a solver that ran out of time may have shown less than it did before
        relaxed = replace(relaxed, bound=max(relaxed.bound, earlier.relaxed.bound))
    if earlier is not None:
        kept = replace(
            earlier,
            sets=sets,
            regimes=[
                replace(regime, flows=carried, groups=found)
                for regime, carried, found in zip(earlier.regimes, flows, own, strict=True)
            ],
            bounding=bounding,
            relaxed=relaxed,
            fresh=False,
            failure=failure,
        )
        if bound_only or failure or kept.closed(options.mip_gap):
            return kept
    regimes, singles = [], []
    for one, found, carried in zip(demand, own, flows, strict=True):
        used = one.chosen(found)
        regime = Regime(
            columns=[column for item in used.values() for column in item.columns],
            blends=[blend for item in used.values() for blend in item.blends()],
            open_pools=[pool for item in used.values() for pool in item.open_pools],
            flows=carried,
            groups=found,
        )
        regimes.append(regime)
        singles.append(
            master_program(regime.columns, one.whole, limits, regime.blends, regime.open_pools, one.stages.chains)
        )
    master = _joined(frame, singles)
    solved = relaxed
    if relaxed.outcome != "infeasible" and (
        bounded is not None or not exact or relaxed.values is None or master.program.violations(relaxed.values)
    ):
        solved = _improved(frame, _lasting(frame, singles), master, best, options, deadline)
    found_now = Round(
        sets=sets,
        known=sets,
        regimes=regimes,
        master=master,
        bounding=bounding,
        relaxed=relaxed,
        solved=solved,
        fresh=earlier is None or solved.outcome != "time",
        failure=solved.words if solved.outcome == "error" else failure,
    )
    if earlier is None or solved.values is not None:
        return found_now
    known = replace(earlier.solved, bound=min(solved.bound, earlier.solved.bound))
    before = [
        replace(old, flows=new.flows, groups=new.groups) for old, new in zip(earlier.regimes, regimes, strict=True)
    ]
    return replace(found_now, known=earlier.known, regimes=before, master=earlier.master, solved=known)


def _joined(frame: Frame, programs: Sequence[Program]) -> JoinedProgram:
    return frame.joined(programs[0]) if isinstance(frame, OnePeriod) else frame.joined(*programs)


def _lasting(frame: Frame, programs: Sequence[Program]) -> JoinedProgram | None:
    """One fleet for all periods of a fleet that may change: where a search for the latter may start."""
    if not isinstance(frame, ChangingFleet) or len(programs) > 1:
        return None
    return OneFleet(factors=frame.factors, weights=frame.weights).joined(*programs)


def _improved(
    frame: Frame,
    lasting: JoinedProgram | None,
    joined: JoinedProgram,
    known: Solved | None,
    options: SolverOptions,
    deadline: float,
    *,
    bound_only: bool = False,
    closely: bool = True,
) -> Solved:
    """The program's optimum, or that nothing costs less, by more than the gap, than a fleet that is known."""
    if isinstance(frame, ChangingFleet):
        left = max(deadline - time.monotonic(), 0.05)
        return solve_linked(
            joined,
            solver=options.name,
            mip_gap=options.mip_gap * _OF_GAP,
            time_limit_s=left * (_OF_TIME if bound_only else 1.0),
            lasting=None if bound_only else lasting,
            bound_only=bound_only,
        )
    program, solve = joined.program, solve_within if closely else _roughly
    if isinstance(frame, OneFleet) and known is None:  # large: no more of the time and the gap than it takes
        share = _OF_TIME if bound_only else 1.0
        left = max(deadline - time.monotonic(), 0.05) * share
        return solve_integer(program, solver=options.name, mip_gap=options.mip_gap * _OF_GAP, time_limit_s=left)
    if known is None or known.objective is None:
        return solve(program, options, deadline)
    cost = known.objective
    cut = cost * (1.0 - max(SAME_COST, options.mip_gap))
    found = solve(program.below(cut), options, deadline)
    if found.outcome == "infeasible":
        return replace(found, bound=cut, outcome="optimal")
    return found


def _balanced(
    step: Round,
    values: FloatArray,
    chosen: Sequence[tuple[Column, int]],
    demand: Columns,
    options: SolverOptions,
    deadline: float,
) -> list[OpenChoice]:
    """The open pools of a solution, their flows spread so that each has as much room as can be."""
    used = step.regimes[0].open_choices(values)
    served = model_shares(step.master.program, values)
    found: list[OpenChoice] = []
    for model in dict.fromkeys(item.pool.candidate.model for item in used):
        elsewhere = {name: 1.0 - share for (name, other), share in served.items() if other == model}
        for column, count in chosen:
            if column.candidate.model == model:
                for name, share in column.shares.items():
                    elsewhere[name] = elsewhere.get(name, 0.0) + share * count
        mine_only = [chain for chain in demand.stages.chains if chain.model == model]
        for name, share in carried_in_rows(mine_only, elsewhere).items():
            elsewhere[name] = elsewhere.get(name, 0.0) + share
        mine = [item for item in used if item.pool.candidate.model == model]
        found += balanced(mine, elsewhere, lambda program: solve_within(program, options, deadline).values)
    return sorted(found, key=lambda item: item.pool.is_api)


def _nothing(outcome: Outcome, solved: Solved, bound_usd_per_hour: float = -np.inf) -> Choice:
    return Choice(
        chosen=(),
        outcome=outcome,
        cost_usd_per_hour=np.inf,
        bound_usd_per_hour=bound_usd_per_hour,
        columns_bound_usd_per_hour=solved.bound,
        prices=(),
        words=solved.words,
    )


def _roughly(program: Program, options: SolverOptions, deadline: float) -> Solved:
    """The optimum of a relaxation with many classes within the gap, in a part of the time."""
    left_s = max((deadline - time.monotonic()) * _OF_LEFT, _LEAST_TIME_S)
    return solve_integer(program, solver=options.name, mip_gap=options.mip_gap * _OF_GAP, time_limit_s=left_s)


def _prices(
    master: JoinedProgram, classes: Sequence[RequestClass], limits: Limits, solver: str, time_limit_s: float
) -> tuple[ShadowPrice, ...]:
    """Duals of the single period's rows: of a limit over all periods, of a class where it grows in all of them."""
    # what a variable may be at most follows from the demand: as a bound that is just met it would share the prices
    free = replace(master.program, upper=2.0 * master.program.upper + 1.0)
    relaxed = solve_relaxed(free, solver=solver, time_limit_s=time_limit_s)
    if relaxed is None:
        return ()
    own = master.origin >= 0
    moved = np.where(np.array(master.program.senses) == ">=", master.program.rhs, 1.0)  # with the rate of a class
    duals = np.zeros(int(master.origin.max()) + 1)
    np.add.at(duals, master.origin[own], (relaxed[1] * moved)[own])
    return shadow_prices(duals, classes, limits)


def shadow_prices(duals: FloatArray, classes: Sequence[RequestClass], limits: Limits) -> tuple[ShadowPrice, ...]:
    """Prices of demand and limits by the duals of the rows of a program: cover rows come first, then one per limit."""
    prices = [
        ShadowPrice(kind="cover", name=item.name, usd_per_hour=float(dual) / item.quantity)
        for item, dual in zip(classes, duals[: len(classes)], strict=True)
    ]
    prices += [
        ShadowPrice(kind=cap.kind, name=cap.name, usd_per_hour=float(dual))
        for cap, dual in zip(limits.caps, duals[len(classes) : len(classes) + len(limits.caps)], strict=True)
        if abs(dual) > 1e-9
    ]
    return tuple(prices)
