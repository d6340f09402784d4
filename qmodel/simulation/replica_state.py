"""What one replica holds: its queue, its sequences, and the KV memory they take."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np

from qmodel.simulation.jobs import COMPUTE, FROM_HOST, RENEGED, Job, PriorityLine
from qmodel.simulation.meters import Meter
from qmodel.simulation.paging import BlockPhases
from qmodel.simulation.policies import EnginePolicy
from qmodel.simulation.step_runs import Run
from qmodel.types import Replica

__all__ = ["ReplicaState"]

_INF = math.inf
_STRIDE = 1 << 32


class ReplicaState:
    """Counters of one replica, and how they change when a sequence comes or goes.

    Memory is counted in context tokens (``held``, in blocks; ``exact``, without), which the pool turns into pool
    tokens: slope x held + fixed x running sequences.

    Args:
        replica: step law and limits.
        policy: scheduling rules.
        leave: called with each job that is over, and its outcome.
        meter: adds up what happens.
        index: number of the replica in its pool.
    """

    def __init__(
        self, replica: Replica, policy: EnginePolicy, *, leave: Callable[[Job, int], None], meter: Meter, index: int = 0
    ) -> None:
        rule = policy.rule(replica)
        law = replica.step
        draft = policy.speculation
        self._leave_pool, self.meter, self.index = leave, meter, index
        self._slots, self._budget = replica.max_num_seqs, replica.max_batched_tokens
        self._pace: float = 1 if draft is None else draft.tokens_per_step
        self._per_decode = 1 if draft is None else 1 + draft.draft_tokens  # budget that a decoding sequence takes
        base_s = np.atleast_1d(law.tau_s(np.arange(replica.max_num_seqs + 1.0), 0.0))
        if draft is not None:
            base_s = base_s * (1.0 + draft.draft_tokens * draft.draft_cost)
            base_s += law.delta_s * draft.draft_tokens * np.arange(base_s.size)
        self._base_s: list[float] = base_s.tolist()
        self._gamma_s, self._delta_s = float(law.gamma_s), float(law.delta_s)
        self._grows, self._first_chunk = rule != "no_evict", rule == "first_chunk"
        self._slope, self._fixed = float(replica.kv_slope), float(replica.kv_fixed_tokens)
        self._limit = _INF if replica.kv_tokens is None else float(replica.kv_tokens)
        self._admit_limit = (1.0 - replica.watermark) * self._limit
        self._block = policy.block_tokens
        self._phases = BlockPhases(self._block) if self._block > 1 else None
        self._by_priority = policy.order == "priority"
        self._swaps = policy.preemption == "swap"
        self._swap_out_s, self._swap_in_s = policy.swap_out_s_per_token, policy.swap_in_s_per_token
        self._patience_s = policy.patience_s
        self.waiting: deque[Job] | PriorityLine = PriorityLine() if self._by_priority else deque()
        self.running: dict[Job, None] = {}  # in order of admission
        self.prefilling: list[Job] = []  # running, prompt not complete
        self._due: list[tuple[int, int, Job]] = []  # (step number, serial, job); stale when the serials differ
        self._expiries: list[tuple[float, int, Job]] = []  # stale when the times differ
        self._serial = index  # one for each admission, never that of another replica: a job may move on
        self._swap_s = 0.0  # what swapping adds to the step that begins
        self.now_s = 0.0
        self.step = 0  # steps finished, without those of the run under way
        self.decoding = 0
        self.context: float = 0  # KV tokens of the decoding sequences
        self.held: float = 0
        self.exact: float = 0
        self.in_system = 0  # requests that run or wait
        self.coming: float = 0  # context tokens that the queue will take when admitted
        self.run = Run(pace=self._pace, phases=self._phases, token_pool=self._slope)

    @property
    def wakes_s(self) -> float:
        """When something may happen next; infinite while the replica is idle."""
        wakes_s = self.run.ends_s
        if wakes_s == _INF and (self.running or self.waiting):
            wakes_s = self.now_s
        if self._expiries and self._expiries[0][0] < wakes_s:
            return self._expiries[0][0]
        return wakes_s

    def never_fits(self, job: Job) -> bool:
        """Whether ``job`` would outgrow the whole pool."""
        tokens = job.prompt + job.output + (math.ceil(self._pace) if self._per_decode > 1 else 0)
        return self._slope * self._charge(tokens) + self._fixed > self._limit

    def load(self, time_s: float) -> float:
        """Pool tokens taken at ``time_s``, and those that waiting requests will take when they are admitted."""
        if self.run.ends_s < _INF:
            taken = self.run.pool_at(min(self.run.ended(time_s), self.run.steps - 1))
        else:
            taken = self._slope * self.held + self._fixed * len(self.running)
        return taken + (self._slope * self.coming + self._fixed * len(self.waiting) if self.waiting else 0.0)

    def release_waiting(self) -> list[Job]:
        """Give up the queue; the jobs in order."""
        jobs = list(self.waiting)
        self.waiting.clear()
        self.in_system -= len(jobs)
        self.coming = 0
        for job in jobs:
            job.expires_s = _INF
        return jobs

    def _charge(self, context: float) -> float:
        """Context tokens in whole blocks."""
        block = self._block
        return context if block == 1 else -(-context // block) * block

    def _growth(self) -> float:
        """Context tokens that the decodes of the step about to begin take."""
        if self._phases is None:
            return self.decoding * self._pace
        return self._phases.growth(self.step, 1, self.decoding)

    def _admission_tokens(self, job: Job) -> float:
        """Context tokens that a waiting request takes when its whole prompt is admitted."""
        if not self._grows:
            return job.prompt + job.output
        return job.prompt + job.generated + (self._pace - 1 if job.ready else 0)

    def _written(self, job: Job) -> float:
        """KV tokens of a decoding sequence by the last finished step."""
        return job.prompt + job.generated - 1 + (self.step - job.joined) * self._pace

    def _generated(self, job: Job, ended: int = 0) -> int:
        """Tokens of a running sequence, ``ended`` steps into the run under way."""
        if job.joined < 0:
            return job.generated
        return min(job.generated + int((self.step + ended - job.joined) * self._pace + 1e-9), job.output - 1)

    def _enqueue(self, job: Job, time_s: float) -> None:
        job.replica = self.index
        self.waiting.append(job)
        self.in_system += 1
        self.coming += self._charge(self._admission_tokens(job))
        if self._patience_s is not None and job.admitted_s != job.admitted_s:
            job.expires_s = time_s + self._patience_s
            heappush(self._expiries, (job.expires_s, job.order, job))

    def _admit(self, job: Job, tokens: float, charge: float) -> None:
        """Let the first in line take its slot and its memory."""
        self.waiting.popleft()
        self.coming -= self._charge(self._admission_tokens(job))
        if job.admitted_s != job.admitted_s:
            job.admitted_s = self.now_s
        job.expires_s = _INF
        self._serial += _STRIDE
        job.serial = self._serial
        self.running[job] = None
        self.held += charge
        self.exact += tokens

    def _join(self, job: Job) -> None:
        """Let a sequence whose tokens are all written but the last one decode from the next step on."""
        written = job.prompt + job.generated - 1
        self.decoding += 1
        self.context += written
        job.joined = self.step
        if self._phases is not None:
            self._phases.join(written, self.step)
        self._schedule(job)

    def _join_ready(self, job: Job) -> None:
        """Let a sequence whose context comes from elsewhere decode in the step that begins."""
        if job.ready == FROM_HOST:
            tokens = job.prompt + job.generated - 1
            self._swap_s += self._swap_in_s * tokens
            self.meter.count_swap(self.now_s, back=tokens)
        job.ready = COMPUTE
        self._join(job)
        self.context += self._pace

    def _schedule(self, job: Job) -> None:
        """Note the step that brings the first answer token, where it is still to come, or else the last token."""
        target = job.reasoning + 1 if job.reasoning >= job.generated else job.output
        heappush(self._due, (job.joined + self._steps_to(job, target), job.serial, job))

    def _steps_to(self, job: Job, target: int) -> int:
        """Steps from joining until ``target`` tokens are there."""
        if self._per_decode == 1:
            return target - job.generated
        return math.ceil((target - job.generated) / self._pace - 1e-9)

    def _victim(self) -> Job:
        """The sequence that gives up its memory first: the newest, or the least important, latest one."""
        if self._by_priority:
            return max(self.running, key=lambda job: (-job.priority, job.order))
        return next(reversed(self.running))

    def _evict(self, job: Job, *, grown: bool) -> None:
        """Take the memory of ``job`` and send it back to the queue; ``grown``: this step's token is counted already."""
        del self.running[job]
        extra = self._pace if grown else 0
        if job.joined >= 0:
            context = self._written(job) + extra
            self._give_back(job, context)
            self.context -= context
            self.decoding -= 1
            job.generated = self._generated(job)
            tokens = job.prompt + job.generated - 1
            if self._swaps:
                job.ready = FROM_HOST
                job.swapped += tokens
                self._swap_s += self._swap_out_s * tokens
                self.meter.count_swap(self.now_s, out=tokens)
            else:
                job.recomputed += tokens - job.cached
        else:
            self.prefilling.remove(job)
            self._give_back(job, self._prompt_held(job))
            job.recomputed += job.prompt + job.generated - job.left - job.cached
        job.joined = job.serial = -1
        job.preemptions += 1
        self.waiting.appendleft(job)
        self.coming += self._charge(self._admission_tokens(job))

    def _prompt_held(self, job: Job) -> int:
        """Context tokens that a sequence holds while it prefills."""
        return job.prompt + job.generated - (job.left if self._first_chunk else 0)

    def _give_back(self, job: Job, context: float) -> None:
        """Return the memory of a sequence that holds ``context`` tokens."""
        if job.joined >= 0 and self._phases is not None:
            self._phases.leave(job.prompt + job.generated - 1, job.joined)
        if not self._grows:
            context = job.prompt + job.output
        self.held -= self._charge(context)
        self.exact -= context
        if not self.running:
            self.held = self.exact = 0

    def _drop_expired(self, time_s: float) -> None:
        """Let go whose patience ended by ``time_s``."""
        expiries = self._expiries
        while expiries and expiries[0][0] <= time_s:
            expires_s, _, job = heappop(expiries)
            if job.expires_s == expires_s:
                self.waiting.remove(job)
                self.in_system -= 1
                self.coming -= self._charge(self._admission_tokens(job))
                job.expires_s = _INF
                job.done_s = expires_s
                self._leave_pool(job, RENEGED)
