"""What classes take of one replica together at least, by the time per token that the strictest of them allows.

Own construction, see docs/theory/optimizer.md, "Bound": all classes of a replica share its batch, so all of them have
the time per token of its strictest class. Between that time and what they carry lie three linear rows, for the step
time, the memory and the slots of a replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.candidates.pool_kinds import Candidate
from qmodel.candidates.resources import tpot_limit_s
from qmodel.candidates.stage_candidates import on_stages
from qmodel.types import FloatArray, Replica, RequestClass

__all__ = ["Level", "have_levels", "joint_levels", "least_replicas"]

_BATCHES = 120  # looked at between one sequence and all slots
_ROUNDING = 0.999  # of what a replica carries: what lies between two batches that are looked at
_ALIKE = 1.02  # limits on the time per token closer than this count as the larger one
_MOST_LEVELS = 12
_RANGE = 1.02  # least ratio of the ends of a range of batches
_TURNS = 3  # in which what a request's own prompt adds to its time per token is bounded more closely


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """Replicas whose time per token is within one limit.

    Attributes:
        limit_s: on the mean time per token of every class there; infinite: none has one.
        classes: positions of those that allow it.
        rows: part of one replica that the whole demand of each class takes; no row sums to more than the number of
            replicas; shape (R, K), 0 for classes that are not there.
    """

    limit_s: float
    classes: tuple[int, ...]
    rows: FloatArray


def joint_levels(candidates: Sequence[Candidate], classes: Sequence[RequestClass]) -> list[tuple[Level, ...]]:
    """Levels of each candidate, strictest last; every pool that meets its targets keeps the rows of one of them.

    Classes that come in bursts do not share a time per token, stages have one part of it each, and requests that leave
    take no time: none for these.

    Args:
        candidates: of one model, J of them.
        classes: K of them that may share pools.

    Returns:
        One tuple for each candidate, empty where it cannot serve any class; an empty list where there are no levels.

    Example:
        >>> joint_levels([], [])
        []
    """
    if not candidates or not have_levels(candidates, classes):
        return []
    limits = np.array([tpot_limit_s(item, candidates[0].confidence) for item in classes])
    demand = _Demand.of(classes)
    return [_levels(item.replica, demand, limits) for item in candidates]


def have_levels(candidates: Sequence[Candidate], classes: Sequence[RequestClass]) -> bool:
    """Whether all classes of a pool have one time per token: no bursts, no requests that leave, no separate stages.

    Example:
        >>> have_levels([], [])
        True
    """
    settled = all(item.patience is None and item.stream().burst is None for item in classes)
    return settled and not on_stages(candidates)


def least_replicas(levels: Sequence[Level], classes: Sequence[int]) -> float:
    """Replicas that the whole demand of some classes takes together at the very least; infinite: none can serve it.

    Args:
        levels: of one candidate.
        classes: their positions.

    Example:
        >>> level = Level(limit_s=0.1, classes=(0, 1), rows=np.array([[0.5, 0.75]]))
        >>> least_replicas([level], [0, 1])
        1.25
    """
    mine = list(classes)
    able = [level.rows[:, mine].sum(axis=1).max() for level in levels if set(mine) <= set(level.classes)]
    return float(min(able, default=np.inf))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Demand:
    """Whole demand of the classes, shapes (K,).

    Attributes:
        requests_rps: requests.
        tokens_rps: decode tokens, one less than the output of each request.
        prompts_rps: prompt tokens.
        reads_rps: KV tokens read.
    """

    classes: tuple[RequestClass, ...]
    requests_rps: FloatArray
    tokens_rps: FloatArray
    prompts_rps: FloatArray
    reads_rps: FloatArray

    @classmethod
    def of(cls, classes: Sequence[RequestClass]) -> _Demand:
        rate = np.array([item.rate_rps for item in classes])
        output = np.array([item.lengths.output.mean for item in classes])
        prompt = np.array([item.lengths.prompt.mean for item in classes])
        reads = np.array([item.lengths.e_pn + item.lengths.output.moments[1] / 2.0 for item in classes])
        return cls(
            classes=tuple(classes),
            requests_rps=rate,
            tokens_rps=rate * np.maximum(output - 1.0, 0.0),
            prompts_rps=rate * prompt,
            reads_rps=rate * reads,
        )

    def held_rps(self, replica: Replica) -> FloatArray:
        """Pool tokens held times steps held, of the requests of a second."""
        whole = replica.admission == "no_evict"
        found = []
        for item in self.classes:
            grown = item.lengths.e_pn + item.lengths.output.moments[1] / (1.0 if whole else 2.0)
            found.append(replica.kv_slope * grown + replica.kv_fixed_tokens * item.lengths.output.mean)
        return np.asarray(self.requests_rps * np.array(found))


def _levels(replica: Replica, demand: _Demand, limits: FloatArray) -> tuple[Level, ...]:
    curve = _Curve.of(replica)
    held = None if replica.kv_tokens is None else demand.held_rps(replica)
    mixed, found = curve.mixing(), []
    for limit_s, least_s in _distinct(limits):
        able = (limits >= least_s) & (curve.tau_s[0] <= limits)
        if able.any():
            here = _Taken.of(replica, demand, held, able)
            rows = [_slots_row(curve, here), *_memory_rows(curve, here, replica.kv_tokens)]
            rows += (
                [_step_row(curve, here, limit_s, mixed), _time_row(curve, here, limit_s, mixed)]
                if np.isfinite(limit_s)
                else []
            )
            kept = _undominated(np.array(rows))
            if np.isfinite(kept).all():
                found.append(Level(limit_s=limit_s, classes=tuple(np.flatnonzero(able).tolist()), rows=kept))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Taken:
    """What the classes of one level ask of a replica, shapes (K,), 0 for the others; and ranges over mixes of them.

    Attributes:
        tokens: decode tokens/s.
        others: share of its time that reads and prompts take.
        held: pool tokens held times steps held, each second.
        least, most: of ``others`` for a decode token, s.
        prompt_s: longest prefill for an output token of the same request, s.
        least_held, most_held: pool tokens of a resident sequence.
    """

    tokens: FloatArray
    others: FloatArray
    held: FloatArray
    least: float
    most: float
    prompt_s: float
    least_held: float
    most_held: float

    @classmethod
    def of(
        cls,
        replica: Replica,
        demand: _Demand,
        held: FloatArray | None,
        able: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> _Taken:
        step = replica.step
        tokens = np.where(able, demand.tokens_rps, 0.0)
        prompts = np.where(able, demand.prompts_rps, 0.0)
        others = step.gamma_s * np.where(able, demand.reads_rps, 0.0) + step.delta_s * prompts
        outputs = tokens + np.where(able, demand.requests_rps, 0.0)
        steps = outputs + prompts / replica.max_batched_tokens  # at most: a prompt takes less than one more
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.where(able & (others > 0.0), others / tokens, 0.0)
        sizes = np.zeros(1) if held is None else held[able] / outputs[able]
        return cls(
            tokens=tokens,
            others=others,
            held=tokens * 0.0 if held is None else np.where(able, held, 0.0),
            least=float((others[able] / steps[able]).min()),
            most=float(most.max()),
            prompt_s=float((step.delta_s * prompts[able] / outputs[able]).max()),
            least_held=float(sizes.min()),
            most_held=float(sizes.max()),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Curve:
    """Step time without reads and prompts at some batches."""

    batch: FloatArray
    tau_s: FloatArray

    @classmethod
    def of(cls, replica: Replica) -> _Curve:
        """From one sequence to all slots, with the knots of the step law."""
        step, slots = replica.step, float(replica.max_num_seqs)
        knots = step.batch[(step.batch > 1.0) & (step.batch < slots)]
        batch = np.union1d(np.geomspace(1.0, max(slots, 1.0 + 1e-9), _BATCHES), knots)
        return cls(batch=batch, tau_s=np.asarray(step.tau_s(batch, 0.0)))

    def reaching(self, each_s: float, limit_s: float) -> float:
        """Batch at which a step with so much for each sequence takes the limit; one or all slots beyond the ends."""
        return float(np.interp(limit_s, self.tau_s + each_s * self.batch, self.batch))

    def below(self, first: float, last: float) -> tuple[float, float]:
        """A line below the curve between two batches: its value at 0, not negative, and its slope."""
        first = max(min(first, last / _RANGE), self.batch[0])
        ends = np.interp([first, last], self.batch, self.tau_s)
        inside = (self.batch > first) & (self.batch < last)
        batch, tau = np.append(self.batch[inside], [first, last]), np.append(self.tau_s[inside], ends)
        slope = max(float(ends[1] - ends[0]) / max(last - first, 1e-9), 0.0)
        least = float((tau - slope * batch).min())
        return (least, slope) if least >= 0.0 else (0.0, float((tau / batch).min()))

    def mixing(self) -> float:
        """Least step time per token, over that of one batch with the same mean step: steps of two lengths in turns."""
        each, tau = self.tau_s / self.batch, self.tau_s
        widths = np.diff(tau)
        slopes = -np.diff(each)[widths > 0.0] / widths[widths > 0.0]
        if slopes.size == 0:
            return 1.0
        heights = (each + slopes[:, None] * tau).min(axis=1)
        hull = (heights[:, None] - slopes[:, None] * tau).max(axis=0)
        return float(np.minimum(hull / each, 1.0).min())


def _time_row(curve: _Curve, here: _Taken, limit_s: float, mixed: float) -> FloatArray:
    """What the mean time per token leaves: sum of (slope tokens + others) <= 1 - alpha / limit."""
    each = mixed * float((curve.tau_s / curve.batch).min())
    free, longest = each / (here.most + each) if np.isfinite(here.most) else 0.0, np.inf
    for _ in range(_TURNS if free > 0.0 else 0):
        # a request's own prompt, and what comes while it is prefilled, is no part of its time per token
        longest = limit_s + here.prompt_s / free
        first = curve.reaching(here.most, longest)
        free = max(free, mixed * float(np.interp(first, curve.batch, curve.tau_s)) / longest)
    first, last = (curve.reaching(each_s, longest) for each_s in (here.most, here.least))
    alpha, slope = curve.below(first, last)
    room = 1.0 - alpha / longest
    if room <= 0.0:
        return np.where(here.tokens > 0.0, np.inf, 0.0)
    return (slope * here.tokens + here.others) * (_ROUNDING * mixed / room)


def _step_row(curve: _Curve, here: _Taken, limit_s: float, mixed: float) -> FloatArray:
    """What the mean step leaves if reads and prompts came between the steps: no batch is larger than it allows."""
    batch = curve.reaching(0.0, limit_s)
    each = mixed * float(np.interp(batch, curve.batch, curve.tau_s)) / batch
    return (each * here.tokens + here.others) * _ROUNDING


def _slots_row(curve: _Curve, here: _Taken) -> FloatArray:
    """What the slots leave: no batch has more sequences."""
    slots = float(curve.batch[-1])
    alpha, slope = curve.below(slots, slots)
    return ((alpha / slots + slope) * here.tokens + here.others) * _ROUNDING


def _memory_rows(curve: _Curve, here: _Taken, kv_tokens: float | None) -> list[FloatArray]:
    """What the memory leaves: no batch holds more, so many tokens ask for many steps."""
    if kv_tokens is None or here.most_held <= 0.0:
        return []
    room = max(kv_tokens, here.most_held)  # one sequence always runs
    slots = float(curve.batch[-1])
    alpha, slope = curve.below(min(room / here.most_held, slots), min(room / here.least_held, slots))
    return [(alpha * here.held / room + slope * here.tokens + here.others) * _ROUNDING]


def _distinct(limits: FloatArray) -> list[tuple[float, float]]:
    """Limits from the most lenient on, close ones together: the largest and the least of each."""
    kept: list[tuple[float, float]] = []
    for limit in sorted(set(limits.tolist()), reverse=True):
        if kept and (limit * _ALIKE >= kept[-1][0] or len(kept) == _MOST_LEVELS):
            kept[-1] = (kept[-1][0], limit)
        else:
            kept.append((limit, limit))
    return kept


def _undominated(rows: FloatArray) -> FloatArray:
    """Rows of which none asks no more of every class than another."""
    kept: list[FloatArray] = []
    for row in sorted(rows, key=lambda item: -float(item.sum())):
        if not any((row <= other * (1.0 + 1e-9)).all() for other in kept):
            kept.append(row)
    return np.array(kept)
