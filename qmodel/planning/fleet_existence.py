"""Whether a fleet of unified pools exists when limits are lifted or moved, and the least of a limit that one takes.

What pools carry depends on targets, layouts and spare replicas, not on what is scarce. Columns are therefore made as if
nothing were scarce, once for every group of classes and set of targets; limits of the fleet are rows of small programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from qmodel.candidates import (
    CandidateSet,
    ColumnSet,
    columns_for_group,
    enumerate_candidates,
    open_pools_of,
)
from qmodel.candidates.stage_candidates import staged_candidates
from qmodel.optimize import Diagnosis, Program, SolverOptions, choose, solve_integer
from qmodel.optimize.alternatives import each_once
from qmodel.optimize.formulation import bound_program, master_program
from qmodel.planning.served_models import able_groups, out_of_reach, share_of_none
from qmodel.planning.stated_limits import Changes, UserLimit, moved
from qmodel.problem import Instance
from qmodel.types import Limits, RequestClass

__all__ = ["Existence", "State"]

State = Literal["some", "none", "open"]
Groups = Mapping[str, tuple[RequestClass, ...]]

_ROUNDING = 1e-6  # of a cost
_UNTOLD = Diagnosis(text="", limit="", best="", change="")
_ANY_GAP = 0.9  # a fleet is looked for, not a cheap one
_LEAST_TIME_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Built:
    """Columns of a problem.

    Attributes:
        sets, classes: by the name of a group of classes that may share pools.
        unserved: classes that no column carries.
        poor: whether the models that are left cannot have the shares or the quality that a class asks for.
    """

    sets: Mapping[str, ColumnSet]
    classes: Groups
    unserved: frozenset[str]
    poor: bool = False

    @property
    def everyone(self) -> list[RequestClass]:
        """Classes in the order of the programs' first rows."""
        return each_once(item for members in self.classes.values() for item in members)

    def relaxation(self, limits: Limits) -> Program:
        """Infeasible only if no such fleet exists."""
        return _within_budget(bound_program(self.sets, self.classes, limits).program, limits)

    def master(self, limits: Limits) -> Program:
        """Every solution is a fleet."""
        used = self.sets.values()
        program = master_program(
            [column for found in used for column in found.columns],
            self.everyone,
            limits,
            [blend for found in used for blend in found.blends()],
            [item for found in used for item in found.open_pools],
        )
        return _within_budget(program, limits)

    def cover_row(self, name: str) -> int:
        """The row of either program that covers a class."""
        return [item.name for item in self.everyone].index(name)


@dataclass(slots=True, kw_only=True, eq=False)
class Existence:
    """Answers about fleets of one problem and its variations; remembers columns and answers.

    Attributes:
        instance: the bound problem.
        limits: all of its limits, by key.
        options: solver and time limit.
        until_s: no program is solved for longer, of ``time.monotonic()``.
        bound_with: binds the scenario with overrides.
    """

    instance: Instance
    limits: Mapping[str, UserLimit]
    options: SolverOptions
    until_s: float
    bound_with: Callable[[Mapping[str, object]], Instance] | None = None
    _candidates: dict[tuple[object, ...], CandidateSet] = field(default_factory=dict)
    _groups: dict[tuple[object, ...], ColumnSet] = field(default_factory=dict)
    _states: dict[tuple[object, ...], State] = field(default_factory=dict)

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.until_s

    @property
    def every_count(self) -> bool:
        """Whether counts matter that are dearer than the cheapest pool for the same classes: something is scarce."""
        limits = self.instance.limits
        several = any(len(item.models) > 1 for item in self.instance.classes.values())
        return bool(limits.caps) or limits.pays_nodes or several

    def state(self, changes: Changes, *, without: str = "") -> State:
        """Whether some fleet keeps all limits, those in ``changes`` moved or lifted.

        Args:
            changes: by key of the limit.
            without: a class that need not be served; then ``open`` stands for all that is not ``none``.
        """
        key = (without, *sorted(changes.items(), key=lambda item: item[0]))
        if key not in self._states:
            self._states[key] = self._state(changes, without)
        return self._states[key]

    def least(self, key: str, changes: Changes) -> float | None:
        """The least that a fleet takes of a limit that is a row, within all others; None where that was not found.

        Args:
            key: of the limit.
            changes: other limits that are moved or lifted.
        """
        limit = self.limits[key]
        problem, built = self._built(changes)
        if built.unserved or built.poor:
            return None
        if limit.kind == "budget":
            free = replace(problem.limits, budget_usd_per_hour=None)
            master = built.master(free)
            values = self._values(master)
            return None if values is None else float(master.cost @ values)
        caps = [cap.key for cap in problem.limits.caps]
        master = built.master(problem.limits)
        row = len(built.everyone) + caps.index(key)
        values = self._values(master.least_use(row))
        return None if values is None else float(master.matrix[row] @ values)

    @property
    def unified_only(self) -> bool:
        """Whether separate prefill and decode pools are allowed too, of which nothing is said here."""
        if self.instance.layouts.disaggregate is False:
            return False
        candidates = self._enumerated(self.instance, {}).candidates
        return bool(staged_candidates(self.instance, candidates, "prefill")[0])

    def _state(self, changes: Changes, without: str) -> State:
        problem, built = self._built(changes)
        if without:
            if built.poor or built.unserved:
                return "none" if built.unserved - {without} else "open"
            return self._ruled_out(built.relaxation(problem.limits).without_rows([built.cover_row(without)]))
        if built.unserved or built.poor:
            return "none"
        relaxation = built.relaxation(problem.limits)
        if self._ruled_out(relaxation) == "none":
            return "none"
        if self._values(_for_any(built.master(problem.limits))) is not None:
            return "some"
        return "open" if self.late else self._looked_closely(problem)

    def _looked_closely(self, problem: Instance) -> State:
        """As a plan decides it: pools of the counts that limits allow, and the frontier where it matters."""
        built = self._columns(problem, enumerate_candidates(problem), cached=())
        if built.unserved or built.poor:
            return "none"
        limits = problem.limits
        budget = limits.budget_usd_per_hour
        gap = _ANY_GAP if budget is None else 0.0
        options = replace(self.options, mip_gap=gap, time_limit_s=self._left_s())
        choice = choose(built.sets, built.classes, limits, options=options)
        if choice.outcome == "infeasible":
            return "none"
        if budget is not None and choice.bound_usd_per_hour > budget * (1.0 + _ROUNDING):
            return "none"
        within = budget is None or choice.cost_usd_per_hour <= budget * (1.0 + _ROUNDING)
        return "some" if not choice.empty and within else "open"

    def _ruled_out(self, program: Program) -> State:
        found = solve_integer(
            _for_any(program), solver=self.options.name, mip_gap=_ANY_GAP, time_limit_s=self._left_s()
        )
        return "none" if found.outcome == "infeasible" else "open"

    def _values(self, program: Program) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
        found = solve_integer(program, solver=self.options.name, mip_gap=0.0, time_limit_s=self._left_s())
        return found.values

    def _left_s(self) -> float:
        return max(self.until_s - time.monotonic(), _LEAST_TIME_S)

    def _built(self, changes: Changes) -> tuple[Instance, _Built]:
        """The problem with its limits at other values, and columns for it as if nothing were scarce."""
        problem = moved(self.instance, self.limits, changes, self.bound_with)
        return problem, self._columns(problem, self._enumerated(problem, changes), cached=self._pools(changes))

    def _pools(self, changes: Changes) -> tuple[object, ...]:
        """What candidates depend on."""
        kinds = ("api", "spare", "survive", "forbid", "layouts", "floor")
        return tuple(sorted((key, value) for key, value in changes.items() if self.limits[key].kind in kinds))

    def _enumerated(self, problem: Instance, changes: Changes) -> CandidateSet:
        key = self._pools(changes)
        if key not in self._candidates:
            self._candidates[key] = enumerate_candidates(replace(problem, limits=problem.limits.without_caps()))
        return self._candidates[key]

    def _columns(self, problem: Instance, candidates: CandidateSet, *, cached: tuple[object, ...]) -> _Built:
        groups = {
            name: tuple(sorted(members, key=lambda item: item.name))
            for name, members in sorted(problem.sharing().items())
        }
        keep_all = problem.limits.change is not None

        def columns(group: str, members: Sequence[RequestClass]) -> ColumnSet:
            model = members[0].model
            key = (cached, candidates, group, *((item.name, item.slos, item.batch) for item in members))
            if key not in self._groups:
                self._groups[key] = columns_for_group(
                    candidates.of(model),
                    members,
                    open_pools=open_pools_of(candidates.measured_of(model), members),
                    every_count=self.every_count,
                    keep_all=keep_all,
                )
            return self._groups[key]

        sets = {group: columns(group, members) for group, members in groups.items()}
        poor = False
        if any(len(item.models) > 1 for item in problem.classes.values()):
            able = able_groups(sets, groups)
            missed = share_of_none(groups, able, lambda group, item: _UNTOLD)
            groups = able
            sets = {group: columns(group, members) for group, members in groups.items()}
            poor = missed is not None or out_of_reach(groups) is not None
        names = (item.name for members in groups.values() for item in members)
        unserved = frozenset(name for name in names if not any(found.serves(name) for found in sets.values()))
        return _Built(sets=sets, classes=groups, unserved=unserved, poor=poor)


def _within_budget(program: Program, limits: Limits) -> Program:
    budget = limits.budget_usd_per_hour
    return program if budget is None else program.with_row("budget", program.cost, "<=", budget)


def _for_any(program: Program) -> Program:
    """The same with no cost: the first solution will do."""
    return replace(program, cost=np.zeros_like(program.cost))
