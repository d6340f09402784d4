"""What a replica adds up while it runs: time integrals over a window, counters, and samples on a time grid."""

from __future__ import annotations

from qmodel.simulation.step_runs import Run, time_after
from qmodel.types import FloatArray

__all__ = ["Meter"]


class Meter:
    """Integrals and counters of one replica over the steps that end inside a window.

    A run of steps is added at once; of a run that crosses a border of the window, the steps that end inside count.
    """

    __slots__ = (
        "_from_s",
        "_grid",
        "_place",
        "_to_s",
        "batch_samples",
        "batch_seconds",
        "busy_s",
        "decoded_tokens",
        "exact_seconds",
        "kv_tokens_read",
        "pool_samples",
        "pool_seconds",
        "prefill_tokens",
        "steps",
        "swapped_in_tokens",
        "swapped_out_tokens",
        "waste_samples",
    )

    def __init__(self, from_s: float, to_s: float, grid_s: FloatArray | None) -> None:
        self._from_s, self._to_s = from_s, to_s
        self._grid: list[float] = [] if grid_s is None else grid_s.tolist()
        self._place = 0
        self.busy_s = self.batch_seconds = self.pool_seconds = self.exact_seconds = 0.0
        self.kv_tokens_read = self.decoded_tokens = 0.0
        self.steps = self.prefill_tokens = self.swapped_out_tokens = self.swapped_in_tokens = 0
        self.batch_samples = [0.0] * len(self._grid)
        self.pool_samples = [0.0] * len(self._grid)
        self.waste_samples = [0.0] * len(self._grid)

    def add(self, run: Run, steps: int, ends_s: float) -> None:
        """Add the first ``steps`` steps of ``run``, which end at ``ends_s``."""
        if self._place < len(self._grid) and self._grid[self._place] <= ends_s:
            self.sample(run, ends_s)
        start_s = run.start_s
        if start_s >= self._from_s and ends_s <= self._to_s:
            lasted_s = ends_s - start_s
            self.busy_s += lasted_s
            self.batch_seconds += lasted_s * run.running
            self.pool_seconds += run.pool_seconds(steps)
            if run.phases is not None:
                self.exact_seconds += run.exact_seconds(steps)
            self.kv_tokens_read += run.tokens_read(steps)
            self.decoded_tokens += steps * run.decoding * run.pace
            self.steps += steps
            self.prefill_tokens += steps * run.prefill
            return
        first, last = min(run.ended(self._from_s), steps), min(run.ended(self._to_s), steps)
        if last <= first:
            return
        lasted_s = time_after(last, run.first_s, run.slope_s) - time_after(first, run.first_s, run.slope_s)
        self.busy_s += lasted_s
        self.batch_seconds += lasted_s * run.running
        self.pool_seconds += run.pool_seconds(last) - run.pool_seconds(first)
        if run.phases is not None:
            self.exact_seconds += run.exact_seconds(last) - run.exact_seconds(first)
        self.kv_tokens_read += run.tokens_read(last) - run.tokens_read(first)
        self.decoded_tokens += (last - first) * run.decoding * run.pace
        self.steps += last - first
        self.prefill_tokens += (last - first) * run.prefill

    def count_swap(self, time_s: float, *, out: int = 0, back: int = 0) -> None:
        """Count KV tokens that go to host memory or come back."""
        if self._from_s <= time_s <= self._to_s:
            self.swapped_out_tokens += out
            self.swapped_in_tokens += back

    def sample(self, run: Run, ends_s: float) -> None:
        """Note the state at the times of the grid up to ``ends_s``, during which ``run`` is under way."""
        place = self._place
        while place < len(self._grid) and self._grid[place] <= ends_s:
            time_s = self._grid[place]
            if time_s >= run.start_s:
                steps = min(run.ended(time_s), run.steps - 1)
                taken = run.pool_at(steps)
                self.batch_samples[place] = float(run.running)
                self.pool_samples[place] = taken
                if run.phases is not None:
                    self.waste_samples[place] = taken - run.exact - steps * run.growth
            place += 1
        self._place = place
