"""A pool of replicas behind one router, driven by arrivals and by what happens to replicas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Literal

import numpy as np

from qmodel.simulation.availability import Availability, Outage
from qmodel.simulation.jobs import REFUSED, RENEGED, UNFINISHED, Job
from qmodel.simulation.logs import LogBook, PoolRun, pool_track
from qmodel.simulation.meters import Meter
from qmodel.simulation.policies import EnginePolicy
from qmodel.simulation.replica_engine import SimReplica
from qmodel.simulation.request_tables import RequestTable
from qmodel.simulation.routing import Dispatcher, SimRouter
from qmodel.types import FloatArray, Replica

__all__ = ["simulate_pool"]

_INF = math.inf
_BLOCK = 4096  # rows of the table turned into Python numbers at once

_Event = Literal["count", "ready", "expire", "retry", "notice", "save", "down", "up"]


def simulate_pool(
    table: RequestTable,
    replica: Replica,
    *,
    replicas: int = 1,
    router: SimRouter = "random",
    policy: EnginePolicy | None = None,
    availability: Availability | None = None,
    rng: np.random.Generator | None = None,
    window_s: tuple[float, float] | None = None,
    grid_s: FloatArray | None = None,
    until_s: float = _INF,
) -> PoolRun:
    """Serve the requests of a table and say what happened to each.

    Args:
        table: requests in order of arrival.
        replica: what each replica of the pool is.
        replicas: how many there are at first.
        router: ``random``, ``round_robin``, ``jsq`` (fewest requests present) or ``least_kv``.
        policy: scheduling rules of the engines; those of the closed forms by default.
        availability: counts over time, start-up, failures; all replicas all the time by default.
        rng: chooses replicas, and among equals; seeded with 0 by default.
        window_s: time averages are over this window; from 0 to the end by default.
        grid_s: times, ascending, at which the state of the pool is sampled, shape (m,).
        until_s: stop then; requests that are not over are ``unfinished``.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.simulation import table_from_arrays
        >>> from qmodel.types import StepLaw
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0, delta_s=1e-4), max_num_seqs=1)
        >>> run = simulate_pool(table_from_arrays([0.0, 0.1], prompt=100, output=[21, 1]), engine)
        >>> run.log.completion_s.round(6).tolist(), run.log.wait_s.round(6).tolist()
        ([0.22, 0.24], [0.0, 0.12])

    Source: docs/theory/simulator.md.
    """
    if replicas < 1:
        raise ValueError(f"replicas must be at least 1 (got {replicas})")
    policy = policy or EnginePolicy()
    policy.check(replica)
    if not until_s > 0.0:
        raise ValueError(f"until_s must be greater than 0 (got {until_s})")
    from_s, to_s = window_s or (0.0, until_s)
    if not 0.0 <= from_s < to_s:
        raise ValueError(f"window_s must be two ascending times from 0 on (got {window_s})")
    availability = availability or Availability()
    beyond = [outage.replica for outage in availability.outages if outage.replica >= availability.most(replicas)]
    if beyond:
        raise ValueError(f"outages must name replicas below {availability.most(replicas)} (got {beyond[0]})")
    fleet = _Fleet(
        table,
        replica,
        replicas=replicas,
        dispatcher=Dispatcher(router, rng or np.random.default_rng(0)),
        policy=policy,
        availability=availability,
        meter_arguments=(from_s, to_s, grid_s),
    )
    fleet.serve(until_s)
    return PoolRun(
        log=fleet.book.log(),
        track=pool_track(
            [engine.meter for engine in fleet.engines],
            from_s=from_s,
            to_s=min(to_s, max(fleet.now_s, from_s)) if to_s == _INF else to_s,
            kv_tokens=replica.kv_tokens,
            grid_s=grid_s,
        ),
    )


class _Fleet:
    """Engines, the events to come, and the requests that no replica can take."""

    def __init__(
        self,
        table: RequestTable,
        replica: Replica,
        *,
        replicas: int,
        dispatcher: Dispatcher,
        policy: EnginePolicy,
        availability: Availability,
        meter_arguments: tuple[float, float, FloatArray | None],
    ) -> None:
        self._table, self._policy, self._availability = table, policy, availability
        self._dispatcher = dispatcher
        self.book = LogBook(table)
        self.engines = [
            SimReplica(replica, policy, leave=self._left, meter=Meter(*meter_arguments), index=index)
            for index in range(availability.most(replicas))
        ]
        self.now_s = 0.0
        self._wanted = replicas
        self._served_since = [0.0] * len(self.engines)
        self._ready_s = [0.0 if index < replicas else _INF for index in range(len(self.engines))]  # there from then on
        self._down = [False] * len(self.engines)
        self._leaving = [False] * len(self.engines)  # notice was given
        self._open = self.engines[:replicas]  # those that take requests
        self._homeless: list[Job] = []
        self._events: list[tuple[float, int, _Event, Job | Outage | int]] = []
        self._number = self._retries_due = 0
        self._wakes: list[tuple[float, int]] = []
        self._wake_of = [_INF] * len(self.engines)
        for time_s, count in availability.counts:
            self._at(time_s, "count", count)
        for outage in availability.outages:
            self._at(max(outage.down_s - availability.notice_s, 0.0), "notice", outage)
            self._at(outage.down_s, "down", outage)
            self._at(outage.up_s, "up", outage)
        for index in range(replicas):
            self._serve_from(index, 0.0)

    def serve(self, until_s: float) -> None:
        """Let everything happen that happens by ``until_s``."""
        arrivals = _jobs(self._table)
        arriving = next(arrivals, None)
        watches = self._dispatcher.looks_at_state
        while True:
            event_s = self._events[0][0] if self._events else _INF
            arrival_s = _INF if arriving is None else arriving.arrival_s
            time_s = min(event_s, arrival_s)
            if time_s > until_s or time_s == _INF or (arriving is None and self._nothing_left(time_s)):
                break
            if watches:
                self._settle(time_s)
            if event_s <= arrival_s:
                _, _, kind, subject = heappop(self._events)
                self._happen(time_s, kind, subject)
                if self._homeless and self._open and not (self._events and self._events[0][0] == time_s):
                    homeless, self._homeless = self._homeless, []
                    for job in homeless:
                        self._route(job, time_s)
            else:
                assert arriving is not None
                if self.engines[0].never_fits(arriving):
                    self.book.record(arriving, REFUSED)
                else:
                    self._route(arriving, time_s)
                arriving = next(arrivals, None)
        for engine in self.engines:
            engine.stop(until_s)
            for job in (*engine.running, *engine.waiting):
                self.book.record(job, UNFINISHED)
        coming_back = [subject for _, _, _, subject in self._events if isinstance(subject, Job)]
        for job in (*self._homeless, *coming_back):
            self.book.record(job, UNFINISHED)
        self.now_s = self.book.end_s if until_s == _INF else until_s

    def _nothing_left(self, time_s: float) -> bool:
        """Whether, after the last arrival, only events remain at ``time_s`` that no request will see."""
        for engine in self.engines:
            engine.advance(time_s)
        return not (self._homeless or self._retries_due or any(engine.in_system for engine in self.engines))

    def _settle(self, time_s: float) -> None:
        """Bring every replica to ``time_s`` to which something may have happened by then."""
        wakes, wake_of = self._wakes, self._wake_of
        woken = []
        while wakes and wakes[0][0] <= time_s:
            wake_s, index = heappop(wakes)
            if wake_s == wake_of[index]:
                self.engines[index].advance(time_s)
                woken.append(index)
        for index in woken:
            self._wake(index)

    def _wake(self, index: int) -> None:
        """Note when replica ``index`` must be looked at again."""
        wake_s = self._wake_of[index] = self.engines[index].wakes_s
        if wake_s < _INF:
            heappush(self._wakes, (wake_s, index))

    def _route(self, job: Job, time_s: float) -> None:
        if not self._open:
            self._homeless.append(job)
            return
        engine = self._dispatcher.choose(self._open, time_s)
        engine.advance(time_s)
        engine.accept(job, time_s)
        if self._dispatcher.looks_at_state and engine.wakes_s != self._wake_of[engine.index]:
            self._wake(engine.index)
        if self._policy.retries and job.expires_s < _INF:
            self._at(job.expires_s, "expire", engine.index)

    def _left(self, job: Job, outcome: int) -> None:
        """A replica is through with ``job``."""
        if outcome == RENEGED and job.retries < self._policy.retries:
            self._at(job.done_s + self._policy.backoff_s * 2.0**job.retries, "retry", job)
            job.retries += 1
            self._retries_due += 1
            job.done_s = math.nan
        else:
            self.book.record(job, outcome)

    def _at(self, time_s: float, kind: _Event, subject: Job | Outage | int) -> None:
        self._number += 1
        heappush(self._events, (time_s, self._number, kind, subject))

    def _happen(self, time_s: float, kind: _Event, subject: Job | Outage | int) -> None:
        if isinstance(subject, Job):
            self._retries_due -= 1
            self._route(subject, time_s)
        elif isinstance(subject, Outage):
            self._outage(time_s, kind, subject)
        elif kind == "expire":
            self.engines[subject].advance(time_s)
        elif kind == "count":
            self._recount(time_s, subject)
        elif time_s == self._ready_s[subject]:  # else it was sent away while it started
            self._serve_from(subject, time_s)
            self._reopen(time_s)

    def _recount(self, time_s: float, count: int) -> None:
        """Want ``count`` replicas from now on."""
        for index in range(self._wanted, count):
            engine = self.engines[index]
            engine.advance(time_s)
            if not engine.in_system:
                self._ready_s[index] = time_s + self._availability.startup_s
                self._at(self._ready_s[index], "ready", index)
        self._wanted = count
        self._reopen(time_s)

    def _outage(self, time_s: float, kind: _Event, outage: Outage) -> None:
        """Last checkpoint, notice, loss or return of one replica."""
        index = outage.replica
        engine = self.engines[index]
        engine.advance(time_s)
        moved: list[Job] = []
        if kind == "notice":
            self._leaving[index] = True
            moved = engine.release_waiting()
        elif kind == "save":
            if time_s == self._last_save_s(outage):  # else the replica was away in between
                engine.save(time_s)
        elif kind == "down":
            self._down[index] = True
            moved = engine.clear(time_s)
        else:
            self._down[index] = self._leaving[index] = False
            self._serve_from(index, time_s)
        if self._dispatcher.looks_at_state:
            self._wake(index)
        self._reopen(time_s)
        for job in moved:
            self._route(job, time_s)

    def _serve_from(self, index: int, time_s: float) -> None:
        """Replica ``index`` begins to serve; of its checkpoints only the last before its next loss is made."""
        self._served_since[index] = time_s
        if self._availability.checkpoint_s is not None:
            coming = [item for item in self._availability.outages if item.replica == index and item.down_s > time_s]
            if coming:
                outage = min(coming, key=lambda item: item.down_s)
                self._at(self._last_save_s(outage), "save", outage)

    def _last_save_s(self, outage: Outage) -> float:
        """When the replica made its last checkpoint before ``outage``."""
        every_s = self._availability.checkpoint_s
        assert every_s is not None
        since_s = self._served_since[outage.replica]
        return since_s + math.floor((outage.down_s - since_s) / every_s) * every_s

    def _reopen(self, time_s: float) -> None:
        """Find the replicas that take requests."""
        self._open = [
            engine
            for engine in self.engines[: self._wanted]
            if self._ready_s[engine.index] <= time_s and not (self._down[engine.index] or self._leaving[engine.index])
        ]


def _jobs(table: RequestTable) -> Iterator[Job]:
    """The rows of a table as jobs, made when they are needed."""
    for start in range(0, len(table), _BLOCK):
        stop = min(start + _BLOCK, len(table))
        columns = [
            column[start:stop].tolist()
            for column in (
                table.arrival_s,
                table.prompt,
                table.output,
                table.reasoning,
                table.priority,
                table.cached_prefix,
                table.generated,
            )
        ]
        for row, values in zip(range(start, stop), zip(*columns, strict=True), strict=True):
            yield Job(row, *values)
