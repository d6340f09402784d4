"""Pools whose occupancy and pace are solved, and the latency laws of one class in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.queueing.bursts.phase_mixture import over_phases
from qmodel.queueing.bursts.phase_occupancy import BurstyOccupancy
from qmodel.queueing.replica.batch_priority import Ranks
from qmodel.queueing.replica.chain import Occupancy
from qmodel.queueing.replica.first_token import PrefillDelay, prefill_delay
from qmodel.queueing.replica.percentiles import GridLaw, KernelLaw, delayed
from qmodel.queueing.replica.prefill import Backlog, backlog
from qmodel.queueing.replica.stacks import ReplicaStack, WorkStack
from qmodel.queueing.replica.token_times import (
    LeftBehind,
    Pace,
    left_behind,
    mean_time_per_token,
    mean_time_to_token,
    time_per_token,
    time_to_token,
)
from qmodel.queueing.replica.work import ClassWork, Work
from qmodel.types import FloatArray, Replica

__all__ = ["ClassView", "SolvedPools"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolvedPools:
    """C stable cases of one replica and one mix, solved; with bursts C m rows, m phases of the rate for each."""

    replica: Replica | ReplicaStack
    work: Work | WorkStack
    seen: Occupancy
    run: Pace
    rate_rps: FloatArray
    evenness: FloatArray
    company: FloatArray | None
    bursts: BurstyOccupancy | None
    ranks: Ranks | None

    def waiting(self) -> Backlog:
        """The prefill backlog, solved on demand: means per token do without it."""
        clump = None if self.bursts is None else self.bursts.clump
        rate_rps = self.rate_rps if self.company is None else self.company * self.rate_rps
        return backlog(self.replica, self.work, self.seen, rate_rps, self.evenness, clump)

    def phases_met(self, member: ClassWork) -> FloatArray | None:
        """Share of the requests of a class that come in each phase, shape (C, m); None without bursts."""
        if self.bursts is None:
            return None
        return np.asarray(self.bursts.by_class[[item.name for item in self.work.classes].index(member.name)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassView:
    """What the requests of one class meet, C cases; ``found`` is None where only the time per token is asked for."""

    state: SolvedPools
    member: ClassWork
    seen: Occupancy
    left: LeftBehind
    found: PrefillDelay | None

    @classmethod
    def of(cls, state: SolvedPools, member: ClassWork, waiting: Backlog | None) -> ClassView:
        seen, prompt = state.seen, member.lengths.prompt
        if state.ranks is not None:
            seen = state.ranks.seen_by(member, seen)
            waiting = waiting if waiting is None else state.ranks.found_by(member, waiting)
        left = left_behind(state.run, prompt, state.replica.step.delta_s)
        if state.company is not None:
            left = replace(left, mean_s=state.company * left.mean_s, variance=state.company * left.variance)
        found = None
        if waiting is not None:
            found = prefill_delay(waiting, state.replica, prompt, seen.idle, state.work.lengths.prompt.mean)
        return cls(state=state, member=member, seen=seen, left=left, found=found)

    def steps_to(self, name: str) -> FloatArray | None:
        """Bands of the steps from the first token to where a metric ends; None where it ends there."""
        output = self.member.output_bands
        if name == "completion":
            return np.stack([output[0], np.maximum(output[1] - 1.0, 0.0), output[2]])
        return self.member.reasoning_bands if name == "answer_start" else None

    def laws(self, names: Sequence[str]) -> dict[str, GridLaw | KernelLaw | None]:
        """The laws of the named metrics."""
        seen, run, laws = self.seen, self.state.run, dict[str, GridLaw | KernelLaw | None]()
        first = None
        for name in names:
            steps = self.steps_to(name)
            if name == "tpot":
                laws[name] = time_per_token(run, self.member.output_bands, self.left)
                continue
            assert self.found is not None
            if steps is not None:
                first = self.found.moments() if first is None else first
                laws[name] = time_to_token(run, steps, self.left, first, seen)
            elif name == "answer_start" and "ttft" in laws:
                laws[name] = laws["ttft"]
            else:
                laws[name] = delayed(self.found.law(self.found.mean()), seen.p_wait, seen.wait_mean_s, seen.wait_scv)
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
        met = self.state.phases_met(self.member)
        return mean if met is None else np.asarray((mean.reshape(met.shape) * met).sum(axis=1))
