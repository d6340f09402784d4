"""Laws of times over random draws of a batch: of one of its requests, and of the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.queueing.populations.batch_engine import DrainRun
from qmodel.types.laws import FloatArray, Law, Lengths
from qmodel.types.replica import StepLaw

__all__ = ["TimeLaw", "finish_law", "pooled_law"]

_COARSE, _FINE = 161, 321  # times at which the law is known
_NEVER, _SURELY = 1e-5, 1.0 - 1e-6
_FAR = 1e9  # steps after the end of a run
_STARTS = 256  # groups of requests by when they begin to decode
_APART = 0.25  # relative gap between atoms of a law above which they are values of their own, not a grid


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimeLaw:
    """Law of a time by its CDF, linear between its points.

    Attributes:
        time_s: ascending, shape (k,).
        level: probability of at most that, not descending, shape (k,).
    """

    time_s: FloatArray
    level: FloatArray

    def p_by(self, time_s: float) -> float:
        """Probability of at most ``time_s``."""
        return float(np.interp(time_s, self.time_s, self.level, left=0.0, right=1.0))

    def quantile(self, p: float) -> float:
        """The time that is not exceeded with probability ``p``, s."""
        return float(np.interp(p, self.level, self.time_s))

    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation, s."""
        share = np.diff(self.level, prepend=0.0)
        middle = self.time_s - np.diff(self.time_s, prepend=self.time_s[0]) / 2.0
        mean = float(share @ middle / share.sum())
        return mean, float(np.sqrt(share @ (middle - mean) ** 2 / share.sum()))


def finish_law(groups: Sequence[tuple[Sequence[DrainRun], int]], lengths: Lengths, step: StepLaw) -> TimeLaw:
    """When all replicas are done, from runs of one replica each, by group.

    A run says when each request begins to decode and how fast tokens come at every time. One request more or less
    changes neither much, so every request may have another output: all are done by t with the product over requests
    of P(N - 1 <= tokens that come from its first one to t). The runs are averaged, which brings in the spread of the
    work, and replicas are independent.

    Args:
        groups: runs of a replica for several sets of requests, and how many replicas are like it.
        lengths: joint law of prompt and output.
        step: step-time law of the replicas.
    """
    law, context = _smooth(lengths.output), lengths.prompt.mean + lengths.output.mean
    courses = [([_Course.of(run, step, context) for run in runs], count) for runs, count in groups]
    end_s = max(course.reaching(float(law[0][-1])) for members, _ in courses for course in members)
    times = np.linspace(0.0, end_s, _COARSE)
    for _ in range(2):  # the law may be narrow: look again where it rises
        level = _level(courses, law, times)
        first = max(int(np.searchsorted(level, _NEVER)) - 1, 0)
        last = min(int(np.searchsorted(level, _SURELY)), times.size - 1)
        times = np.linspace(times[first], times[last], _FINE)
    return TimeLaw(time_s=times, level=np.maximum.accumulate(_level(courses, law, times)))


def pooled_law(times_s: Sequence[FloatArray], weights: Sequence[float]) -> TimeLaw:
    """Law of one time drawn from several sets.

    Args:
        times_s: sets of any size, s.
        weights: of one time in each set, any unit.

    Example:
        >>> pooled_law([np.array([2.0, 1.0]), np.array([3.0])], [1.0, 1.0]).quantile(0.5)
        2.0
    """
    times = np.concatenate(times_s)
    weight = np.repeat(np.asarray(weights, dtype=float), [part.size for part in times_s])
    order = np.argsort(times, kind="stable")
    weight = weight[order] / weight.sum()
    return TimeLaw(time_s=times[order], level=np.cumsum(weight) - weight / 2.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Course:
    """Steps that a replica has done over time, and after how many of them groups of its requests begin to decode.

    A request that is given another, longer output stays when its own would have ended: the pace is that of a batch
    larger by the share of requests that are over.
    """

    time_s: FloatArray
    steps: FloatArray
    start: FloatArray
    count: FloatArray
    late_s: float

    @classmethod
    def of(cls, run: DrainRun, step: StepLaw, context: float) -> _Course:
        span_s = np.diff(run.time_s, prepend=0.0)
        over = np.searchsorted(np.sort(run.completion_s), run.time_s - span_s / 2.0) / run.completion_s.size
        over = np.where(run.time_s > run.first_token_s.max(), over, 0.0)  # while others wait, a slot is not left empty
        slower = step.tau_s(run.running + over, context) / step.tau_s(run.running, context)
        alone_s = _FAR * float(step.tau_s(1.0, context))
        time_s = np.concatenate([[0.0], np.cumsum(span_s * slower)])
        time_s, steps = (
            np.append(time_s, time_s[-1] + alone_s),
            np.concatenate([[0.0], run.steps, [run.steps[-1] + _FAR]]),
        )
        start = np.interp(run.first_token_s, np.append(0.0, run.time_s), steps[:-1])
        likely_s = np.interp(start + run.outputs - 1.0, steps[:-1], np.append(0.0, run.time_s)).max()
        group = np.array_split(np.sort(start), min(_STARTS, start.size))
        return cls(
            time_s=time_s,
            steps=steps,
            start=np.array([part.mean() for part in group]),
            count=np.array([float(part.size) for part in group]),
            late_s=max(float(run.completion_s.max() - likely_s), 0.0),  # pauses of evicted requests
        )

    def reaching(self, tokens: float) -> float:
        """When a request of ``tokens`` that begins last would be done, s."""
        return float(np.interp(self.start.max() + tokens, self.steps, self.time_s)) + self.late_s

    def level(self, law: tuple[FloatArray, FloatArray], time_s: FloatArray) -> FloatArray:
        """Probability that all its requests are done at ``time_s``, shape (k,)."""
        done = np.interp(time_s - self.late_s, self.time_s, self.steps)
        had = done[:, None] - self.start + 1.0
        each = np.where(had >= 1.0 - 1e-9, np.interp(had + 1e-9, *law), 0.0)
        return np.asarray(np.prod(each**self.count, axis=1))


def _level(
    courses: Sequence[tuple[Sequence[_Course], int]], law: tuple[FloatArray, FloatArray], time_s: FloatArray
) -> FloatArray:
    level = np.ones_like(time_s)
    for members, count in courses:
        level *= np.mean([course.level(law, time_s) for course in members], axis=0) ** count
    return level


def _smooth(law: Law) -> tuple[FloatArray, FloatArray]:
    """Knots of the CDF: atoms close to each other share the room between them, others stay values."""
    values, upper = law.values, np.cumsum(law.weights) / law.weights.sum()
    gaps = np.diff(values)
    half = np.where(gaps <= _APART * values[1:], gaps / 2.0, 0.0)
    low, high = values - np.append(0.0, half), values + np.append(half, 0.0)
    knots = np.stack([low, np.maximum(high, low + 1e-9)], axis=1).ravel()
    levels = np.stack([np.append(0.0, upper[:-1]), upper], axis=1).ravel()
    return np.maximum.accumulate(knots), levels
