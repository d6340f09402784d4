"""Pools whose occupancy and pace are solved, and the latency laws of one class in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from qmodel.queueing.bursts.phase_mixture import over_phases
from qmodel.queueing.bursts.phase_occupancy import BurstyOccupancy
from qmodel.queueing.replica.batch_priority import Ranks
from qmodel.queueing.replica.chain import Occupancy
from qmodel.queueing.replica.first_token import PrefillDelay, prefill_delay
from qmodel.queueing.replica.percentiles import GridLaw, KernelLaw, delayed
from qmodel.queueing.replica.prefill import Backlog, backlog, budget_binds
from qmodel.queueing.replica.stacks import ReplicaStack, WorkStack
from qmodel.queueing.replica.token_times import (
    LeftBehind,
    Pace,
    StepTimes,
    left_behind,
    mean_time_per_token,
    mean_time_to_token,
    step_times,
    time_per_token,
    time_to_token,
)
from qmodel.queueing.replica.work import ClassWork, Work
from qmodel.types import FloatArray, Replica

__all__ = ["ClassView", "SolvedPools"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolvedPools:
    """C stable cases of one replica and one mix, solved; with bursts C m rows, m phases of the rate for each.

    ``beside`` are the replicas behind a router that looks at queues, None with another router.
    """

    replica: Replica | ReplicaStack
    work: Work | WorkStack
    seen: Occupancy
    run: Pace
    rate_rps: FloatArray
    evenness: FloatArray
    beside: FloatArray | None
    company: FloatArray | None
    bursts: BurstyOccupancy | None
    ranks: Ranks | None

    def waiting(self) -> Backlog:
        """The prefill backlog, solved on demand: means per token do without it."""
        clump = None if self.bursts is None else self.bursts.clump
        rate_rps = self.rate_rps if self.company is None else self.company * self.rate_rps
        return backlog(self.replica, self.work, self.seen, rate_rps, self.evenness, clump, self.beside)

    def left_by(self, member: ClassWork, waiting: Backlog | None, delay: PrefillDelay | None) -> LeftBehind:
        """Prefill that waits when a request of a class has its first token; first come, first served."""
        delta_s = self.replica.step.delta_s
        taken = 1.0 if waiting is None else waiting.taken
        left = left_behind(self.run, member.lengths.prompt, delta_s, taken)
        if self.company is not None:
            return replace(left, mean_s=self.company * left.mean_s, variance=self.company * left.variance)
        if waiting is None or delay is None or delay.behind_tokens is None or self.bursts is not None:
            return left
        excess_s = np.maximum(delay.behind_tokens - waiting.mean_tokens, 0.0) * delta_s
        mean_s = taken * left.mean_s + (1.0 - taken) * excess_s
        if self.beside is not None:  # one replica has every arrival, whatever the router
            mean_s = np.where(self.beside == 1.0, mean_s, left.mean_s)
        return replace(left, mean_s=mean_s)

    @property
    def cases(self) -> int:
        """How many there are."""
        return self.rate_rps.size if self.bursts is None else self.bursts.p_wait.size

    def budget_binds(self) -> npt.NDArray[np.bool_]:
        """Whether times per token need the backlog too: what prefill waits may last over several steps, shape (C,)."""
        clump = None if self.bursts is None else self.bursts.clump
        found = budget_binds(self.replica, self.work, self.seen, self.rate_rps, clump)
        return np.asarray(found.reshape(self.cases, -1).any(axis=1))

    def phases_met(self, member: ClassWork) -> FloatArray | None:
        """Share of the requests of a class that come in each phase, shape (C, m); None without bursts."""
        if self.bursts is None:
            return None
        return np.asarray(self.bursts.by_class[[item.name for item in self.work.classes].index(member.name)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassView:
    """What the requests of one class meet, C cases; ``found`` is None without the backlog."""

    state: SolvedPools
    member: ClassWork
    seen: Occupancy
    left: LeftBehind
    found: PrefillDelay | None

    @classmethod
    def of(
        cls, state: SolvedPools, member: ClassWork, waiting: Backlog | None, *, means_only: bool = False
    ) -> ClassView:
        """The view of one class; ``means_only``: no law will be asked for."""
        seen = state.seen if state.ranks is None else state.ranks.seen_by(member, state.seen)
        if waiting is None:
            return cls(state=state, member=member, seen=seen, left=state.left_by(member, None, None), found=None)
        prompt, pooled = member.lengths.prompt, state.work.lengths.prompt.mean
        delay = partial(prefill_delay, mean_only=means_only)
        found = in_turn = delay(waiting, state.replica, prompt, state.seen.idle, pooled)
        if state.ranks is not None:
            ranked = state.ranks.found_by(member, waiting)
            found = delay(ranked, state.replica, prompt, seen.idle, pooled)
        return cls(state=state, member=member, seen=seen, left=state.left_by(member, waiting, in_turn), found=found)

    def steps_to(self, name: str) -> FloatArray | None:
        """Bands of the steps from the first token to where a metric ends; None where it ends there."""
        output = self.member.output_bands
        if name == "completion":
            return np.stack([output[0], np.maximum(output[1] - 1.0, 0.0), output[2]])
        return self.member.reasoning_bands if name == "answer_start" else None

    def laws(self, names: Sequence[str]) -> dict[str, GridLaw | KernelLaw | None]:
        """The laws of the named metrics."""
        seen, run, laws = self.seen, self.state.run, dict[str, GridLaw | KernelLaw | None]()
        known: list[StepTimes] = []

        def timed(steps: FloatArray) -> StepTimes:  # the tokens of an answer and the whole of it ask for the same
            for item in known:
                if np.array_equal(item.steps, steps):
                    return item
            known.append(step_times(run, steps, self.left))
            return known[-1]

        mean = first = None
        for name in names:
            if name == "tpot":
                laws[name] = time_per_token(run, self.member.output_bands, timed)
                continue
            assert self.found is not None
            steps = self.steps_to(name)
            mean = self.found.mean() if mean is None else mean
            if steps is not None:
                first = self.found.moments(mean) if first is None else first
                laws[name] = time_to_token(run, steps, timed, first, seen)
            elif name == "answer_start" and "ttft" in laws:
                laws[name] = laws["ttft"]
            else:
                laws[name] = delayed(self.found.law(mean), seen.p_wait, seen.wait_mean_s, seen.wait_scv)
        met = self.state.phases_met(self.member)
        if met is not None:
            laws = {name: None if law is None else over_phases(law, met) for name, law in laws.items()}
        return laws

    def mean(self, name: str) -> FloatArray:
        """The mean of one metric without its law, s, shape (C,)."""
        steps, seen = self.steps_to(name), self.seen
        if name == "tpot":
            mean = mean_time_per_token(self.state.run, self.member.output_bands, self.left)
        else:
            assert self.found is not None
            mean = self.found.mean()
            if steps is None:
                mean = mean + seen.p_wait * seen.wait_mean_s
            else:
                mean = mean_time_to_token(self.state.run, steps, self.left, mean, seen)
        return self._over_phases(mean)

    def least_tpot(self) -> FloatArray:
        """Mean time per token without any prefill left behind at the first token, s, shape (C,)."""
        none = replace(self.left, mean_s=np.zeros_like(self.left.mean_s))
        return self._over_phases(mean_time_per_token(self.state.run, self.member.output_bands, none))

    def _over_phases(self, mean: FloatArray) -> FloatArray:
        met = self.state.phases_met(self.member)
        return mean if met is None else np.asarray((mean.reshape(met.shape) * met).sum(axis=1))
