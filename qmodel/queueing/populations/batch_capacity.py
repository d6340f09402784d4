"""How many requests of a batch replicas finish by a deadline, and how many replicas a batch takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log

import numpy as np

from qmodel.queueing.populations.batch_engine import pool_tokens
from qmodel.queueing.populations.closed_batches import ClosedBatch, closed_batch
from qmodel.queueing.populations.interleaving import interleaved_lengths
from qmodel.types.demand import RequestClass, Slo
from qmodel.types.laws import Lengths
from qmodel.types.replica import Replica

__all__ = ["BatchCapacity", "batch_statistic", "capacity_of", "least_work_s"]

_TIGHT = 0.004  # relative width at which an interval of requests is narrow enough
_ROUGH = 0.1  # where it only says which count to look at first
_LEAP = 4.0  # the next size looked at is at most so many times the largest that is known to be done in time
_BATCHES = 200  # sizes of the running batch among which the least time per token is looked for
_BETWEEN = 0.999  # the least between two of them is no further below
_SLICES = 4000  # requests that stand for the length law


def batch_statistic(found: ClosedBatch, slo: Slo) -> float:
    """The statistic of a batch that a target asks for, s; infinite where a request fits nowhere.

    Args:
        found: a solved batch.
        slo: a target on ``makespan``, ``completion`` or ``ttft``.
    """
    if found.laws is None:
        return np.inf
    match slo.metric:
        case "makespan":
            return found.makespan_s if slo.p is None else found.makespan_quantile_s(slo.p)
        case "completion":
            return found.mean_completion_s if slo.p is None else found.completion_quantile_s(slo.p)
        case "ttft":
            return float(found.first_token_s.mean()) if slo.p is None else found.first_token_quantile_s(slo.p)
        case _:
            raise ValueError(f"metric must be makespan, completion or ttft for a batch (got {slo.metric!r})")


@dataclass(slots=True, kw_only=True, eq=False)
class BatchCapacity:
    """What replicas of one kind do of a batch by its deadline.

    Replicas are dealt requests in turn and do not meet, so all is known from one replica with m of them: n replicas
    with m each are done in time with probability P(m)^n. P is solved where it is asked for, and kept.

    Attributes:
        replica: the engine instance; all are equal.
        lengths: joint law of prompt and output tokens.
        deadline_s: s after the batch came.
        p: probability with which all are to be done by then.
        others: further targets on ``completion`` and ``ttft``, which hold for the requests of every replica.

    Example:
        >>> from qmodel.types import Law, StepLaw
        >>> one = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0), max_num_seqs=4)
        >>> lengths = Lengths.independent(Law.constant(10), Law.constant(101))
        >>> capacity = BatchCapacity(replica=one, lengths=lengths, deadline_s=2.1, p=0.95)
        >>> capacity.most_requests(3, 100), capacity.least_replicas(20, 100)
        ((24, 25), 3)

    Reference: own construction, see docs/theory/closed-batch.md.
    """

    replica: Replica
    lengths: Lengths
    deadline_s: float
    p: float
    others: Sequence[Slo] = ()
    _known: dict[int, ClosedBatch] = field(default_factory=dict)
    _fitting: dict[int, bool] = field(default_factory=dict)

    def possible(self, requests: int) -> bool:
        """Whether so many requests could be done in time with a replica for each."""
        return self._fits(requests) and self._over(1, self.p ** (1.0 / requests)) <= 1.0

    def done_in_time(self, requests: int, replicas: int) -> bool:
        """Whether so many replicas finish so many requests by the deadline with the probability asked for."""
        if not self._fits(requests):
            return False
        least, more = divmod(requests, replicas)
        parts = [(size, count) for size, count in ((least + 1, more), (least, replicas - more)) if size and count]
        largest = max(size for size, _ in parts)
        if self._surely_late(min(size for size, _ in parts), replicas if least else more):
            return False
        if self._others_over(largest) > 1.0:
            return False
        chances = [(self._solved(size).p_done_by(self.deadline_s), count) for size, count in parts]
        if any(chance <= 0.0 for chance, _ in chances):
            return False
        return sum(count * log(chance) for chance, count in chances) >= log(self.p) - 1e-12

    def per_replica(self, replicas: int, up_to: int, *, within: float = _TIGHT) -> tuple[int, int]:
        """Requests on each of so many replicas that are done in time, and a larger number that is not.

        The two differ by a share ``within`` or one request; the second is ``up_to`` + 1 where all ``up_to`` are done.
        """
        level = self.p ** (1.0 / replicas)
        sides = {size: self._over(size, level) for size in self._known if size <= up_to}
        good = max((size for size, over in sides.items() if over <= 1.0), default=0)
        bad = min((size for size, over in sides.items() if over > 1.0 and size > good), default=up_to + 1)
        while bad - good > max(1.0, within * bad):
            size = self._next_size(sides, good, bad, up_to, within)
            sides[size] = over = self._over(size, level)
            good, bad = (size, bad) if over <= 1.0 else (good, size)
        return good, bad

    def most_requests(self, replicas: int, up_to: int) -> tuple[int, int]:
        """Requests that so many replicas finish in time, and a larger number that they do not; ``up_to`` caps both."""
        good, bad = self.per_replica(replicas, ceil(up_to / replicas))
        if good * replicas >= up_to:
            return up_to, up_to + 1
        if bad - good > 1:
            return good * replicas, min(bad * replicas, up_to + 1)
        more = 0  # replicas with one request more than the others
        if self._others_over(bad) <= 1.0:
            few = 0.0 if good == 0 else log(self._solved(good).p_done_by(self.deadline_s))
            chance = self._solved(bad).p_done_by(self.deadline_s)
            if chance > 0.0 and log(chance) < few:
                more = floor((log(self.p) - replicas * few) / (log(chance) - few) + 1e-9)
        carried = min(good * replicas + min(max(more, 0), replicas - 1), up_to)
        return carried, carried + 1

    def least_replicas(self, requests: int, up_to: int) -> int:
        """The least number of replicas that finish the batch in time, at most ``up_to``; 0 where none does."""
        if not self.possible(requests):
            return 0
        good, _ = self.per_replica(1, requests, within=_ROUGH)
        low, high = 0, min(max(ceil(requests / max(good, 1)), 1), up_to)
        while not self.done_in_time(requests, high):
            if high >= up_to:
                return 0
            low, high = high, min(max(high + 1, ceil(high * 1.25)), up_to)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.done_in_time(requests, middle) else (middle, high)
        return high

    def _next_size(self, sides: dict[int, float], good: int, bad: int, up_to: int, within: float) -> int:
        """Where the line through the nearest known sizes meets the deadline, inside the interval."""
        if not sides:
            return int(min(max(self.replica.max_num_seqs, 1), up_to))
        if bad <= up_to:
            left, right = sides.get(good, 0.0), min(sides[bad], 10.0)
            guess = good + (bad - good) * (1.0 - left) / max(right - left, 1e-9)
        else:
            smaller = [size for size in sides if size < good]
            if smaller:
                slope = (sides[good] - sides[max(smaller)]) / (good - max(smaller))
                guess = good + (1.0 - sides[good]) / slope if slope > 0.0 else _LEAP * good
            else:
                guess = good / max(sides[good], 1e-9)
            guess = min(guess * (1.0 + within / 2.0), max(_LEAP * good, float(self.replica.max_num_seqs)))
        step = max(int(within * bad / 2.0), 1)
        return int(min(max(round(guess), good + step), bad - step if bad - step > good else bad - 1, up_to))

    def _over(self, size: int, level: float) -> float:
        """The worst of time over target of one replica with ``size`` requests."""
        time_s = self._solved(size).makespan_quantile_s(level)
        return max(time_s / self.deadline_s, self._others_over(size))

    def _others_over(self, size: int) -> float:
        return max((batch_statistic(self._solved(size), slo) / slo.target_s for slo in self.others), default=0.0)

    def _surely_late(self, size: int, replicas: int) -> bool:
        """Whether a smaller number of requests on each replica is known to be late already."""
        return any(
            known <= size and found.p_done_by(self.deadline_s) ** replicas < self.p
            for known, found in self._known.items()
        )

    def _solved(self, size: int) -> ClosedBatch:
        if size not in self._known:
            self._known[size] = closed_batch(self.replica, size, self.lengths)
        return self._known[size]

    def _fits(self, requests: int) -> bool:
        """Whether the longest of so many requests fits into the memory of a replica."""
        if self.replica.kv_tokens is None:
            return True
        if requests not in self._fitting:
            prompts, outputs = interleaved_lengths(self.lengths, requests)
            self._fitting[requests] = (
                pool_tokens(self.replica, float((prompts + outputs).max())) <= self.replica.kv_tokens
            )
        return self._fitting[requests]


def capacity_of(item: RequestClass, replica: Replica) -> BatchCapacity:
    """What replicas do of the batch of a class, with its further targets."""
    assert item.batch is not None
    others = tuple(slo for slo in item.slos if slo.metric != "makespan")
    batch = item.batch
    return BatchCapacity(
        replica=replica, lengths=item.lengths, deadline_s=batch.deadline_s, p=batch.deadline_p, others=others
    )


def least_work_s(replica: Replica, lengths: Lengths, requests: int, p: float) -> float:
    """Step time that a batch needs of all replicas together, at the least, if it is done with probability ``p``, s.

    A token takes tau(b)/b of a step, least at the best batch b; KV reads and prompts add their own. With the mean M
    and the standard deviation S of that sum, no sum below M - S sqrt((1 - p)/p) is reached with probability p.

    Args:
        replica: slots and step law.
        lengths: joint law.
        requests: of the batch.
        p: in (0, 1).

    Reference: Cantelli's inequality; own construction.
    """
    step, slots = replica.step, float(replica.max_num_seqs)
    knots = step.batch[(step.batch >= 1.0) & (step.batch <= slots)]
    batch = np.union1d(np.geomspace(1.0, slots, _BATCHES), knots)
    token_s = float((step.tau_s(batch, 0.0) / batch).min()) * _BETWEEN
    prompts, outputs = interleaved_lengths(lengths, _SLICES)
    each = (outputs - 1.0) * token_s + step.gamma_s * outputs * (prompts + outputs / 2.0) + step.delta_s * prompts
    low = requests * float(each.mean()) - np.sqrt(requests * (1.0 - p) / p) * float(each.std())
    return float(max(low, 0.0))
