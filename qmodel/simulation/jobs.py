"""One request on its way through a pool, and the lines in which requests wait."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

__all__ = [
    "COMPUTE",
    "DONE",
    "FROM_HOST",
    "FROM_POOL",
    "OUTCOMES",
    "REFUSED",
    "RENEGED",
    "UNFINISHED",
    "Job",
    "PriorityLine",
]

OUTCOMES = ("done", "reneged", "refused", "unfinished")
DONE, RENEGED, REFUSED, UNFINISHED = range(4)
COMPUTE, FROM_POOL, FROM_HOST = range(3)
_NAN = float("nan")
_INF = float("inf")


class Job:
    """What a replica knows of a request while the request is in the pool.

    ``generated`` counts the tokens at the latest event of the request; while it decodes, those it had when it began to,
    at the end of step ``joined`` (-1: it does not decode). ``base`` are those it came with, ``saved`` those that a
    checkpoint holds. ``ready`` says that its context exists outside the replica and needs no prefill: it comes from
    another pool (FROM_POOL) or from host memory (FROM_HOST).
    """

    __slots__ = (
        "admitted_s",
        "answer_s",
        "arrival_s",
        "base",
        "cached",
        "done_s",
        "expires_s",
        "first_s",
        "generated",
        "joined",
        "left",
        "order",
        "output",
        "preemptions",
        "priority",
        "prompt",
        "ready",
        "reasoning",
        "recomputed",
        "replica",
        "retries",
        "row",
        "saved",
        "serial",
        "swapped",
    )

    def __init__(
        self,
        row: int,
        arrival_s: float,
        prompt: int,
        output: int,
        reasoning: int = 0,
        priority: int = 0,
        cached: int = 0,
        generated: int = 0,
    ) -> None:
        self.row = row
        self.arrival_s = arrival_s
        self.prompt = prompt
        self.output = output
        self.reasoning = reasoning
        self.priority = priority
        self.cached = cached
        self.generated = generated
        self.base = generated
        self.ready = FROM_POOL if generated else COMPUTE
        self.order = row
        self.left = 0
        self.joined = -1
        self.serial = -1
        self.saved = 0
        self.replica = -1
        self.preemptions = self.recomputed = self.swapped = self.retries = 0
        self.expires_s = _INF
        self.admitted_s = self.first_s = self.answer_s = self.done_s = _NAN


class PriorityLine:
    """A queue with the interface of a deque: larger priorities first, equal ones in order of arrival."""

    def __init__(self) -> None:
        self._line: list[tuple[int, int, Job]] = []

    def append(self, job: Job) -> None:
        insort(self._line, (-job.priority, job.order, job))

    appendleft = append  # a job that lost its place comes back to where its priority and arrival put it

    def popleft(self) -> Job:
        return self._line.pop(0)[2]

    def remove(self, job: Job) -> None:
        place = bisect_left(self._line, (-job.priority, job.order, job))
        assert self._line[place][2] is job
        del self._line[place]

    def clear(self) -> None:
        self._line.clear()

    def __getitem__(self, place: int) -> Job:
        return self._line[place][2]

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Job]:
        return (job for _, _, job in self._line)
