"""One replica under continuous batching, walked from event to event."""

from __future__ import annotations

import math
from heapq import heappop, heappush

from qmodel.simulation.jobs import COMPUTE, DONE, FROM_HOST, Job
from qmodel.simulation.replica_state import ReplicaState
from qmodel.simulation.step_runs import time_after

__all__ = ["SimReplica"]

_INF = math.inf
_NO_LIMIT = 1 << 62


class SimReplica(ReplicaState):
    """A replica that serves its queue step by step, whole runs of steps at once.

    A step: (1) every decoding sequence writes its token; where that does not fit, sequences are evicted and wait
    again; (2) the token budget that is left goes to prompts, running ones first, then new ones while there is a slot
    and memory, and nobody new in a step that evicted; (3) the step lasts as the law says; (4) at its end tokens are
    there. Steps in which nothing happens but (1), (3) and (4), or in which one prompt takes the whole budget, make one
    :class:`~qmodel.simulation.step_runs.Run`: their lengths are an arithmetic series. See docs/theory/simulator.md.
    """

    def accept(self, job: Job, time_s: float) -> None:
        """Put ``job`` into the queue at ``time_s``, up to which the replica was advanced."""
        if not self.running and not self.waiting and self.now_s < time_s:
            self.now_s = time_s
        self._enqueue(job, time_s)
        run = self.run
        if run.ends_s == _INF or run.steps == 1 or run.prefill:  # in such a run the budget admits nobody
            return
        if len(self.running) < self._slots and self.waiting[0] is job:
            run.cut(time_s)

    def advance(self, until_s: float) -> None:
        """Finish every step that ends by ``until_s``; a step under way stays under way."""
        run = self.run
        while True:
            if run.ends_s == _INF:
                if self.now_s >= until_s or not (self.running or self.waiting):
                    break
                self._begin()
            elif run.ends_s > until_s:
                break
            else:
                self._finish()
        if self._expiries:
            self._drop_expired(until_s)

    def stop(self, time_s: float) -> None:
        """Count what has happened by ``time_s``, after which nothing is asked for any more."""
        self.advance(time_s)
        run = self.run
        if run.ends_s < _INF:
            ended = run.ended(time_s)
            self.meter.sample(run, time_s)
            self.meter.add(run, ended, run.start_s + time_after(ended, run.first_s, run.slope_s))

    def clear(self, time_s: float) -> list[Job]:
        """Lose everything at ``time_s``, the step under way included.

        Returns:
            The jobs in order of admission and arrival; those that ran have kept what they came with or had saved.
        """
        self.stop(time_s)
        run = self.run
        if run.ends_s < _INF:
            ended = run.ended(time_s)
            self.step += ended
            if run.prefill and run.steps > 1:  # the chunk under way counts as computed
                self.prefilling[0].left -= min(ended, run.steps - 1) * run.prefill
            run.ends_s = _INF
        running = list(self.running)
        for job in running:
            had = self._generated(job)
            computed = job.prompt + had - job.left - job.cached if job.joined < 0 else job.prompt + had - 1 - job.cached
            job.generated = max(job.saved, job.base)
            job.recomputed += computed
            job.joined = job.serial = -1
            job.left = 0
        waiting = self.release_waiting()
        for job in waiting:
            if job.ready == FROM_HOST:
                job.recomputed += job.prompt + job.generated - 1 - job.cached
                job.ready, job.generated = COMPUTE, max(job.saved, job.base)
        self.running.clear()
        self.prefilling.clear()
        self._due.clear()
        self.decoding = self.in_system = 0
        self.context = self.held = self.exact = 0
        if self._phases is not None:
            self._phases.clear()
        self.now_s = time_s
        return running + waiting

    def save(self, time_s: float) -> None:
        """Take a checkpoint at ``time_s``: note how many tokens every sequence has."""
        self.advance(time_s)
        ended = self.run.ended(time_s) if self.run.ends_s < _INF else 0
        for job in self.running:
            job.saved = self._generated(job, ended)
        for job in self.waiting:
            job.saved = job.generated

    def _begin(self) -> None:
        """Begin a step at ``now_s``, and with it the run of all steps that are like it."""
        if self._expiries:
            self._drop_expired(self.now_s)
            if not self.running and not self.waiting:
                return
        running, fixed, run = self.running, self._fixed, self.run
        self._swap_s = 0.0
        evicted = False
        if self.decoding:
            if self._grows:
                growth = self._growth()
                while self._slope * (self.held + growth) + fixed * len(running) > self._limit:
                    evicted = True
                    self._evict(self._victim(), grown=False)
                    growth = self._growth()
                self.held += growth
                self.exact += self.decoding * self._pace
            self.context += self.decoding * self._pace
        prefill, most = 0, 1 if evicted else _NO_LIMIT
        if self.prefilling or self.waiting:
            prefill, most = self._serve_prompts(evicted)
        decoding = self.decoding
        step_growth = decoding * self._pace
        first_s = self._base_s[decoding] + self._gamma_s * self.context + self._delta_s * prefill + self._swap_s
        slope_s = self._gamma_s * step_growth
        steps = 1 if most == 1 else self._undisturbed(most)
        run.start_s, run.first_s, run.slope_s, run.steps = self.now_s, first_s, slope_s, steps
        run.ends_s = self.now_s + (first_s if steps == 1 else time_after(steps, first_s, slope_s))
        run.running, run.decoding, run.context, run.prefill, run.step = (
            len(running),
            decoding,
            self.context,
            prefill,
            self.step,
        )
        fixed *= len(running)
        run.pool, run.exact = self._slope * self.held + fixed, self._slope * self.exact + fixed
        run.growth = self._slope * step_growth if self._grows else 0.0
        if steps > 1 and self._expiries and self.waiting and not prefill and len(running) < self._slots:
            head = self.waiting[0]  # it waits for memory: when it gives up, the next one may fit
            if head.expires_s < run.ends_s:
                run.cut(head.expires_s)

    def _undisturbed(self, most: int) -> int:
        """Steps until something is due or memory is full, at most ``most``, the one that begins included."""
        due = self._due
        while due and due[0][2].serial != due[0][1]:
            heappop(due)
        if due:
            most = min(most, due[0][0] - self.step)
        if most > 1 and self._limit < _INF and self._grows and self.decoding and self._slope:
            room = (self._limit - self._fixed * len(self.running)) / self._slope - self.held
            if self._phases is not None:
                return 1 + self._phases.most_steps(self.step + 1, room, self.decoding, most - 1)
            step_growth = self.decoding * self._pace
            if room < (most - 1) * step_growth:
                most = 1 + max(int(room / step_growth), 0)
        return most

    def _serve_prompts(self, evicted: bool) -> tuple[int, int]:
        """Spend the budget that decodes leave on prompts: tokens of this step, and how many steps may be like it."""
        budget = self._budget - self.decoding * self._per_decode
        prefilling = self.prefilling
        if prefilling and not self._first_chunk and prefilling[0].left >= budget:
            most = 1 if evicted else prefilling[0].left // budget
            prefilling[0].left -= budget
            return budget, most
        spent = 0
        for job in list(prefilling):
            chunk = min(job.left, budget - spent)
            if chunk and self._first_chunk and self._take_chunk(job, chunk):
                evicted = True
            if job.serial >= 0:
                job.left -= chunk
                spent += chunk
        most = 1 if evicted or spent else _NO_LIMIT
        waiting = self.waiting
        while waiting and not evicted and spent < budget and len(self.running) < self._slots:
            job = waiting[0]
            tokens = self._admission_tokens(job)
            todo = 0 if job.ready else job.prompt + job.generated - job.cached
            chunk = min(todo, budget - spent)
            if self._first_chunk:
                tokens += chunk - todo
            charge = self._charge(tokens)
            if self.running and (
                self._slope * (self.held + charge) + self._fixed * (len(self.running) + 1) > self._admit_limit
            ):
                break
            self._admit(job, tokens, charge)
            most = 1
            if job.ready:
                budget -= self._per_decode
                self._join_ready(job)
            else:
                job.left = todo - chunk
                spent += chunk
                prefilling.append(job)
        return spent, most

    def _take_chunk(self, job: Job, chunk: int) -> bool:
        """Take memory for one more chunk of a running prompt; whether sequences were evicted for it."""
        if job.serial < 0:
            return False
        evicted = False
        done = job.prompt + job.generated - job.left
        more = self._charge(done + chunk) - self._charge(done)
        while self._slope * (self.held + more) + self._fixed * len(self.running) > self._limit:
            evicted = True
            victim = self._victim()
            self._evict(victim, grown=True)
            if victim is job:
                return True
        self.held += more
        self.exact += chunk
        return evicted

    def _finish(self) -> None:
        """Finish the run under way: tokens are there, sequences decode, answer or leave."""
        run = self.run
        steps = run.steps
        self.meter.add(run, steps, run.ends_s)
        self.now_s = run.ends_s
        run.ends_s = _INF
        if steps > 1:
            growth = (steps - 1) * (self.decoding * self._pace)
            self.context += growth
            if self._grows:
                self.exact += growth
                if self._phases is not None:
                    growth = self._phases.growth(self.step + 1, steps - 1, self.decoding)
                self.held += growth
            if run.prefill:
                self.prefilling[0].left -= (steps - 1) * run.prefill
        self.step += steps
        due = self._due
        while due and due[0][0] <= self.step:
            _, serial, job = heappop(due)
            if job.serial == serial:
                self._token_due(job)
        if run.prefill:
            ready = [job for job in self.prefilling if not job.left]
            if ready:
                self.prefilling = [job for job in self.prefilling if job.left]
                for job in ready:
                    self._prompt_done(job)

    def _token_due(self, job: Job) -> None:
        """The first answer token or the last token of a decoding sequence is there."""
        steps = self.step - job.joined
        if job.reasoning >= job.generated and job.answer_s != job.answer_s:
            job.answer_s = self.now_s
        remaining = self._steps_to(job, job.output) - steps
        if remaining > 0:
            heappush(self._due, (self.step + remaining, job.serial, job))
            return
        context = self._written(job)
        self.decoding -= 1
        self.context = self.context - context if self.decoding else 0
        self._leave(job, context)

    def _prompt_done(self, job: Job) -> None:
        job.generated += 1
        if job.generated == 1 and job.first_s != job.first_s:
            job.first_s = self.now_s
        if job.generated == job.reasoning + 1 and job.answer_s != job.answer_s:
            job.answer_s = self.now_s
        if job.generated == job.output:
            self._leave(job, job.prompt + job.output - 1)
        else:
            self._join(job)

    def _leave(self, job: Job, context: float) -> None:
        job.done_s = self.now_s
        del self.running[job]
        self.in_system -= 1
        self._give_back(job, context)
        job.joined = job.serial = -1
        self._leave_pool(job, DONE)
