"""Which limits conflict: a set that no fleet keeps and every part of which some fleet keeps, and what would be enough.

A deletion filter (Chinneck and Dravnieks, Locating minimal infeasible constraint sets in linear programs, ORSA Journal
on Computing 3, 1991) over what a user states instead of over rows: one limit after another is lifted, and stays so
where there is still no fleet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, log10, sqrt

from qmodel.optimize import SolverOptions
from qmodel.planning.conflict_records import Conflict, ConflictingLimit, Help
from qmodel.planning.fleet_existence import Existence
from qmodel.planning.plans import Plan
from qmodel.planning.progress import Cancel, OnProgress, Progress
from qmodel.planning.stated_limits import UserLimit, user_limits
from qmodel.problem import Instance

__all__ = ["with_conflict"]

_TIMES = 2.0  # as long as the search took, at most
_LEAST_S = 5.0  # but at least so long
_TO_FILTER = 0.6  # of the time: the rest is for what would be enough
_CLOSEST = 1.01  # between a value that is enough and one that is not
_FIRST_STEPS = (1.25, 2.0, 4.0, 16.0, 256.0)  # times a target, until one is enough
_DIGITS = 3  # of a value that is enough
_MOST = 4  # conflicts that are told


def with_conflict(
    plan: Plan,
    instance: Instance,
    *,
    options: SolverOptions,
    searched_s: float,
    bound_with: Callable[[Mapping[str, object]], Instance] | None = None,
    on_progress: OnProgress | None = None,
    cancel: Cancel | None = None,
) -> Plan:
    """An infeasible plan with the limits that conflict; any other plan as it is.

    So is a plan whose targets hold over the fleet: what is looked at here are pools that hold them each.
    The search for them ends after twice the time that the plan took, or 5 s if that is more, and with the time limit.

    Args:
        plan: of the instance.
        instance: the bound problem of a single period.
        options: solver and time limit.
        searched_s: how long it took.
        bound_with: binds the scenario of the instance with overrides; None: least qualities of models stay.
        on_progress: told where the search stands.
        cancel: asked before every look; a true answer ends the search.
    """
    if plan.status != "infeasible" or instance.policy.slo_scope == "fleet":
        return plan
    limits = {item.key: item for item in user_limits(instance) if bound_with is not None or item.kind != "floor"}
    most_s = min(max(_TIMES * searched_s, _LEAST_S), options.time_limit_s)
    started = time.monotonic()
    fleets = Existence(
        instance=instance, limits=limits, options=options, until_s=started + _TO_FILTER * most_s, bound_with=bound_with
    )
    search = _Search(
        fleets=fleets,
        until_s=started + most_s,
        tell=on_progress or (lambda _: None),
        cancel=cancel or (lambda: False),
    )
    found = search.conflicts()
    run = {**plan.run, "conflict_s": time.monotonic() - started}
    return replace(plan, why=replace(plan.why, conflicts=found), run=run)


@dataclass(slots=True, kw_only=True, eq=False)
class _Search:
    """The filter, and then what would be enough of each limit that is left.

    Attributes:
        fleets: answers whether there is a fleet.
        until_s: no look begins later, of ``time.monotonic()``.
        tell: takes progress.
        cancel: whether to stop.
        lifted: limits that do not hold, with no value.
        needed: those that are left and without which there is one.
        done: looks so far.
    """

    fleets: Existence
    until_s: float
    tell: OnProgress
    cancel: Cancel
    lifted: dict[str, float | None] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)
    done: int = 0

    def conflicts(self) -> tuple[Conflict, ...]:
        """Conflicts without a limit in common; empty where that there is no fleet does not follow from limits."""
        parts: list[list[UserLimit]] = []
        while len(parts) < _MOST and not self._over():
            self.lifted = {one.key: None for part in parts for one in part}
            if self.fleets.state(self.lifted) != "none":
                break
            self._filter()
            left = [item for key, item in self.fleets.limits.items() if key not in self.lifted]
            if not left:
                break
            parts.append(left)
        self.fleets.until_s = self.until_s
        found = []
        for part in parts:
            self.lifted = {one.key: None for other in parts if other is not part for one in other}
            found.append(Conflict.of([self._reach(item) for item in part], unified_only=self.fleets.unified_only))
        return tuple(found)

    def _filter(self) -> None:
        """Lift one limit after another; many at once first, since most have nothing to do with it."""
        rows = [item for item in self.fleets.limits.values() if item.in_program]
        others = [item for item in self.fleets.limits.values() if not item.in_program]
        if not self._lift(rows):
            self._lift([item for item in others if item.kind != "isolate"])
            for item in rows:
                self._lift([item])
        self._each([item for item in others if not item.cls])
        for name in dict.fromkeys(item.cls for item in others if item.cls):
            mine = [item for item in others if item.cls == name]
            if self._left(mine) and not self._over() and self.fleets.state(self.lifted, without=name) == "none":
                self.lifted |= dict.fromkeys(item.key for item in mine)  # not serving it at all lifts more than these
            self._each([item for item in mine if item.kind != "isolate"])
        # more classes in one pool take the longest to look at
        self._each([item for item in others if item.kind == "isolate"])

    def _each(self, limits: Sequence[UserLimit]) -> None:
        """Lift all of some limits, or one after another."""
        if len(limits) < 2 or not self._lift(limits):
            for item in limits:
                self._lift([item])

    def _left(self, limits: Sequence[UserLimit]) -> list[UserLimit]:
        return [item for item in limits if item.key not in self.lifted]

    def _lift(self, limits: Sequence[UserLimit]) -> bool:
        """Lift limits if there is still no fleet; whether none of them is left."""
        limits = self._left(limits)
        if not limits:
            return True
        if self._over():
            return False
        changes = {**self.lifted, **dict.fromkeys(item.key for item in limits)}
        state = self.fleets.state(changes)
        self.done += 1
        if state == "none":
            self.lifted = changes
        elif state == "some" and len(limits) == 1:
            self.needed.add(limits[0].key)
        return state == "none"

    def _reach(self, limit: UserLimit) -> ConflictingLimit:
        """One limit with the nearest value that is enough while all others hold."""
        help_, enough = self._enough(limit)
        return ConflictingLimit(
            limit=limit.key,
            value=limit.value,
            unit=limit.unit,
            enough=enough,
            help=help_,
            needed=limit.key in self.needed,
        )

    def _enough(self, limit: UserLimit) -> tuple[Help, float | None]:
        if self.cancel():
            return "unknown", None
        if limit.kind in ("cap", "budget"):
            need = self.fleets.least(limit.key, self.lifted)
            if need is None:
                return "unknown" if self.fleets.late else "nothing", None
            return "value", _written(limit, need)
        state = "open" if self._over() else self.fleets.state({**self.lifted, limit.key: None})
        if state != "some":
            return "nothing" if state == "none" else "unknown", None
        if limit.value is None or limit.kind == "floor":
            return "lifted", None
        enough = self._largest_whole(limit) if limit.whole else self._narrowed(limit)
        return ("lifted", None) if enough is None else ("value", enough)

    def _largest_whole(self, limit: UserLimit) -> float:
        """Of a limit that counts what is to be lost: the most that a fleet can do without."""
        assert limit.value is not None
        low, high = 0, int(limit.value)  # the former is enough
        while high - low > 1 and not self._over():
            middle = (low + high) // 2
            low, high = (middle, high) if self._some(limit, float(middle)) else (low, middle)
        return float(low)

    def _narrowed(self, limit: UserLimit) -> float | None:
        """By halving the logarithm of the interval between a value that is enough and one that is not."""
        assert limit.value is not None
        missed, reached = limit.value, None
        for step in _FIRST_STEPS:
            value = limit.value * step if limit.rises else limit.value / step
            if self._over():
                return None
            if self._some(limit, value):
                reached = value
                break
            missed = value
        if reached is None:
            return None
        while max(missed / reached, reached / missed) > _CLOSEST and not self._over():
            middle = sqrt(missed * reached)
            if self._some(limit, middle):
                reached = middle
            else:
                missed = middle
        return _written(limit, reached)

    def _some(self, limit: UserLimit, value: float) -> bool:
        """Whether there is a fleet with a limit at a value."""
        self.done += 1
        return self.fleets.state({**self.lifted, limit.key: value}) == "some"

    def _over(self) -> bool:
        self.tell(Progress(stage="conflict", done=self.done, total=0))
        return self.fleets.late or self.cancel()


def _written(limit: UserLimit, value: float) -> float:
    """A value that is enough, as one would write it, on the side that is easier to keep."""
    if limit.whole:
        return float(ceil(value - 1e-6))
    if "USD/h" in limit.unit:
        return ceil(value * 100.0 - 1e-6) / 100.0
    scale = 10.0 ** (floor(log10(value)) + 1 - _DIGITS)
    told = ceil(value / scale - 1e-9) if limit.rises else floor(value / scale + 1e-9)
    return float(f"{told * scale:.12g}")
