"""Runs of engine steps whose lengths form an arithmetic series."""

from __future__ import annotations

import math

from qmodel.simulation.paging import BlockPhases

__all__ = ["Run", "steps_until", "time_after", "weighted_growth"]


def time_after(steps: int, first_s: float, slope_s: float) -> float:
    """Time that the first ``steps`` steps of a run last when step j (from 0) lasts first_s + j slope_s.

    Example:
        >>> time_after(3, 1.0, 0.5)
        4.5
    """
    return steps * first_s + slope_s * (steps * (steps - 1) * 0.5)


def steps_until(span_s: float, first_s: float, slope_s: float, steps: int) -> int:
    """How many of the ``steps`` steps of a run have ended ``span_s`` after its start.

    The root of the quadratic is rounded down and corrected against :func:`time_after`, so that the two agree to the
    last digit.

    Example:
        >>> steps_until(4.4, 1.0, 0.5, 10), steps_until(4.5, 1.0, 0.5, 10)
        (2, 3)
    """
    if span_s < first_s or steps == 0:
        return 0
    lead = first_s - 0.5 * slope_s
    root = math.sqrt(lead * lead + 2.0 * slope_s * span_s)
    guess = 2.0 * span_s / (lead + root) if lead + root > 0.0 else steps
    ended = steps if guess >= steps else int(guess)
    while ended < steps and time_after(ended + 1, first_s, slope_s) <= span_s:
        ended += 1
    while ended > 0 and time_after(ended, first_s, slope_s) > span_s:
        ended -= 1
    return ended


def weighted_growth(steps: int, first_s: float, slope_s: float) -> float:
    """Sum over steps j < ``steps`` of j (first_s + j slope_s): the time integral of what grows by 1 a step.

    Example:
        >>> weighted_growth(3, 1.0, 0.5)
        5.5
    """
    pairs = steps * (steps - 1) * 0.5
    return first_s * pairs + slope_s * (pairs * (2 * steps - 1) / 3.0)


class Run:
    """Steps of a replica in which nothing happens but that every decoding sequence gets its tokens.

    Step j (from 0) lasts ``first_s`` + j ``slope_s``. ``context``, ``pool`` and ``exact`` belong to step 0: KV tokens
    read, pool tokens taken, and what would be taken without blocks. The context grows by ``pace`` for each of the
    ``decoding`` sequences, the pool by ``growth`` a step, or as ``phases`` says from step number ``step`` on.
    ``prefill`` prompt tokens are computed in each step.
    """

    __slots__ = (
        "context",
        "decoding",
        "ends_s",
        "exact",
        "first_s",
        "growth",
        "pace",
        "phases",
        "pool",
        "prefill",
        "running",
        "slope_s",
        "start_s",
        "step",
        "steps",
        "token_pool",
    )

    def __init__(self, *, pace: float, phases: BlockPhases | None, token_pool: float) -> None:
        self.pace, self.phases, self.token_pool = pace, phases, token_pool
        self.start_s = self.first_s = self.slope_s = 0.0
        self.ends_s = math.inf
        self.steps = self.step = self.decoding = self.running = self.prefill = 0
        self.context = self.pool = self.exact = self.growth = 0.0

    def ended(self, time_s: float) -> int:
        """Steps that have ended by ``time_s``."""
        return steps_until(time_s - self.start_s, self.first_s, self.slope_s, self.steps)

    def cut(self, time_s: float) -> None:
        """End the run with the step that is under way at ``time_s``."""
        steps = steps_until(time_s - self.start_s, self.first_s, self.slope_s, self.steps) + 1
        if steps < self.steps:
            self.steps = steps
            self.ends_s = self.start_s + time_after(steps, self.first_s, self.slope_s)

    def pool_at(self, steps: int) -> float:
        """Pool tokens taken in step ``steps`` of the run."""
        if self.phases is None or not self.growth:
            return self.pool + steps * self.growth
        return self.pool + self.token_pool * self.phases.growth(self.step + 1, steps, self.decoding)

    def pool_seconds(self, steps: int) -> float:
        """Pool tokens taken, integrated over the first ``steps`` steps."""
        base = self.pool * time_after(steps, self.first_s, self.slope_s)
        if not self.growth or steps < 2:
            return base
        if self.phases is None:
            return base + self.growth * weighted_growth(steps, self.first_s, self.slope_s)
        return base + self.token_pool * self.phases.weighted_growth(self.step + 1, steps, self.first_s, self.slope_s)

    def exact_seconds(self, steps: int) -> float:
        """The same without blocks."""
        base = self.exact * time_after(steps, self.first_s, self.slope_s)
        return base + (self.growth * weighted_growth(steps, self.first_s, self.slope_s) if self.growth else 0.0)

    def tokens_read(self, steps: int) -> float:
        """KV tokens read in the first ``steps`` steps."""
        return steps * self.context + self.decoding * self.pace * (steps * (steps - 1) * 0.5)
