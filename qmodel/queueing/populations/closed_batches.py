"""A batch of requests that are all present at time 0: when it is done, how sure that is, and its course."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from qmodel.queueing.populations.batch_engine import DrainRun, drain, pool_tokens
from qmodel.queueing.populations.finish_times import TimeLaw, finish_law, pooled_law
from qmodel.queueing.populations.interleaving import dealt_lengths, interleaved_lengths
from qmodel.types.fleets import Overload
from qmodel.types.laws import FloatArray, Lengths
from qmodel.types.replica import Replica

__all__ = ["BatchCourse", "BatchLaws", "ClosedBatch", "closed_batch"]

_MOST_REQUESTS = 1_000_000
_DEALT = 6000  # requests served to learn what one replica does with its own
_FEWEST_HANDS, _MOST_HANDS = 2, 64
_COURSE_HANDS, _COURSE_POINTS = 8, 61
_MOST_SORTED = 2_000_000  # completion times put in order for the mean order of a pool
_USUAL = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchCourse:
    """A batch over time, the mean over draws of its requests.

    Attributes:
        time_s: s after the start, shape (k,).
        running: sequences in all replicas together, shape (k,).
        kv_fill: share of all KV memory that they hold, shape (k,); None where memory is not limited.
    """

    time_s: FloatArray
    running: FloatArray
    kv_fill: FloatArray | None

    def to_dict(self) -> dict[str, object]:
        """Plain lists."""
        return {
            "time_s": self.time_s.tolist(),
            "running": self.running.tolist(),
            "kv_fill": None if self.kv_fill is None else self.kv_fill.tolist(),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchLaws:
    """Times over random draws of the lengths: the end of the whole batch, and of one request of it."""

    makespan: TimeLaw
    completion: TimeLaw
    first_token: TimeLaw


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClosedBatch:
    """Completion of a batch of requests that are all present at time 0, over random draws of their lengths.

    Where a request is longer than a replica's memory, times are +inf and ``overload`` says why.

    Attributes:
        makespan_s: when the last request completes, mean over draws, s.
        makespan_sd_s: its standard deviation over draws, s.
        mean_completion_s: mean over requests of the completion time, s.
        completion_s: completion times in ascending order, each the mean over draws, s, shape (requests,).
        first_token_s: times of the first tokens in ascending order, likewise, s, shape (requests,).
        output_tokens_per_s: all generated tokens over the makespan.
        preemptions: evictions for lack of KV memory, over all requests.
        recomputed_tokens: tokens prefilled again after evictions.
        course: sequences and memory over time; None where the batch fits nowhere.
        overload: None, or the request that fits nowhere.
    """

    makespan_s: float
    makespan_sd_s: float
    mean_completion_s: float
    completion_s: FloatArray
    first_token_s: FloatArray
    output_tokens_per_s: float
    preemptions: float
    recomputed_tokens: float
    course: BatchCourse | None = None
    overload: Overload | None = None
    laws: BatchLaws | None = field(default=None, repr=False)

    def makespan_quantile_s(self, p: float) -> float:
        """The time by which the whole batch is done with probability ``p`` in (0, 1), s."""
        return np.inf if self.laws is None else self.laws.makespan.quantile(_level(p))

    def completion_quantile_s(self, p: float) -> float:
        """The time by which a request is complete with probability ``p`` in (0, 1), s."""
        return np.inf if self.laws is None else self.laws.completion.quantile(_level(p))

    def first_token_quantile_s(self, p: float) -> float:
        """The time by which a request has its first token with probability ``p`` in (0, 1), s."""
        return np.inf if self.laws is None else self.laws.first_token.quantile(_level(p))

    def p_done_by(self, deadline_s: float) -> float:
        """Probability that the whole batch is done by ``deadline_s``, s from the start."""
        return 0.0 if self.laws is None else self.laws.makespan.p_by(_time(deadline_s))

    def share_done_by(self, deadline_s: float) -> float:
        """Mean share of the requests that are complete at ``deadline_s``, s from the start."""
        return 0.0 if self.laws is None else self.laws.completion.p_by(_time(deadline_s))

    def to_dict(self, levels: Sequence[float] = _USUAL) -> dict[str, object]:
        """Plain data: means, percentiles of the completion and of the makespan, and the course.

        Args:
            levels: of the percentiles, each strictly between 0 and 1.
        """
        names = {p: f"p{round(p * 100, 6):g}_s" for p in levels}
        return {
            "makespan": {
                "mean_s": self.makespan_s,
                "sd_s": self.makespan_sd_s,
                **{name: self.makespan_quantile_s(p) for p, name in names.items()},
            },
            "completion": {
                "mean_s": self.mean_completion_s,
                **{name: self.completion_quantile_s(p) for p, name in names.items()},
            },
            "first_token": {
                "mean_s": float(self.first_token_s.mean()),
                **{name: self.first_token_quantile_s(p) for p, name in names.items()},
            },
            "output_tokens_per_s": self.output_tokens_per_s,
            "preemptions": self.preemptions,
            "recomputed_tokens": self.recomputed_tokens,
            "course": None if self.course is None else self.course.to_dict(),
            "overload": None if self.overload is None else asdict(self.overload),
        }


def closed_batch(replica: Replica, requests: int, lengths: Lengths, replicas: int = 1) -> ClosedBatch:
    """When a batch of requests that are all present at time 0 completes.

    Requests are dealt to the replicas in turn, so that replicas are independent of each other and alike. One is
    stepped from completion to completion for several sets of requests: first come, first served admission while slots
    and memory last, chunked prefill, growth, eviction of the newest, whose prefill is repeated. The sets are cut from
    one fixed deck and have the spread of random draws; nothing is drawn at random: same input, same digits.

    Args:
        replica: the engine instance; all are equal.
        requests: number of requests, 1 to a million.
        lengths: joint law of prompt and output tokens.
        replicas: number of replicas, at least 1.

    Returns:
        :class:`ClosedBatch`; with ``overload`` where the longest request exceeds a replica's KV memory.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> from qmodel.types import Law, StepLaw
        >>> one = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0))
        >>> batch = closed_batch(one, 4, Lengths.independent(Law.constant(10), Law.constant(101)))
        >>> round(batch.makespan_s, 6), batch.p_done_by(2.0), batch.share_done_by(0.5)
        (1.01, 1.0, 0.0)

    Reference: own construction, see docs/theory/closed-batch.md.
    """
    for name, value, most in (("requests", requests, _MOST_REQUESTS), ("replicas", replicas, _MOST_REQUESTS)):
        if not (float(value).is_integer() and 1 <= value <= most):
            raise ValueError(f"{name} must be a whole number from 1 to {most:,} (got {value!r})")
    prompts, outputs = interleaved_lengths(lengths, int(requests))
    longest = int(np.argmax(prompts + outputs))
    need = pool_tokens(replica, float(prompts[longest] + outputs[longest]))
    if replica.kv_tokens is not None and need > replica.kv_tokens:
        return _does_not_fit(int(requests), need, replica.kv_tokens)
    least, more = divmod(int(requests), int(replicas))
    parts = [
        _Part(replicas=count, runs=_served(replica, lengths, size))
        for size, count in ((least + 1, more), (least, replicas - more))
        if size and count
    ]
    return _summed(replica, int(requests), lengths, parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """Replicas that get equally many requests, and what one of them does with several sets of them."""

    replicas: int
    runs: list[DrainRun]

    def mean(self, value: str) -> float:
        """Of all its replicas together."""
        return self.replicas * float(np.mean([getattr(run, value) for run in self.runs]))


def _served(replica: Replica, lengths: Lengths, size: int) -> list[DrainRun]:
    hands = int(np.clip(_DEALT // size, _FEWEST_HANDS, _MOST_HANDS))
    prompts, outputs = dealt_lengths(lengths, size, hands)
    if replica.kv_tokens is not None:  # the deck's longest requests are rarer than one in a batch: cut to what fits
        room = (replica.kv_tokens - replica.kv_fixed_tokens) / max(replica.kv_slope, 1e-12)
        prompts = np.clip(prompts, 1.0, max(np.floor(room) - 1.0, 1.0))
        outputs = np.clip(outputs, 1.0, np.maximum(np.floor(room - prompts), 1.0))
    return [drain(replica, prompt, output) for prompt, output in zip(prompts, outputs, strict=True)]


def _summed(replica: Replica, requests: int, lengths: Lengths, parts: Sequence[_Part]) -> ClosedBatch:
    laws = BatchLaws(
        makespan=finish_law([(part.runs, part.replicas) for part in parts], lengths, replica.step),
        completion=_pooled(parts, "completion_s"),
        first_token=_pooled(parts, "first_token_s"),
    )
    makespan_s, makespan_sd_s = laws.makespan.moments()
    completion_s = _mean_order(parts, "completion_s", requests)
    completion_s[-1] = makespan_s
    completion_s = np.minimum(completion_s, makespan_s)
    tokens = sum(part.replicas * float(np.mean([run.outputs.sum() for run in part.runs])) for part in parts)
    return ClosedBatch(
        makespan_s=makespan_s,
        makespan_sd_s=makespan_sd_s,
        mean_completion_s=float(completion_s.mean()),
        completion_s=completion_s,
        first_token_s=_mean_order(parts, "first_token_s", requests),
        output_tokens_per_s=tokens / makespan_s,
        preemptions=sum(part.mean("preemptions") for part in parts),
        recomputed_tokens=sum(part.mean("recomputed_tokens") for part in parts),
        course=_course(replica, parts, laws.makespan.quantile(0.99)),
        laws=laws,
    )


def _pooled(parts: Sequence[_Part], column: str) -> TimeLaw:
    pairs = [(getattr(run, column), part.replicas / len(part.runs)) for part in parts for run in part.runs]
    return pooled_law([times for times, _ in pairs], [weight for _, weight in pairs])


def _mean_order(parts: Sequence[_Part], column: str, requests: int) -> FloatArray:
    """Mean order statistics of the whole pool: the sets of requests are grouped into pools in turn."""
    most = max(len(part.runs) for part in parts)
    groups = int(np.clip(_MOST_SORTED // requests, 1, most))
    total = np.zeros(requests)
    for group in range(groups):
        picked = [
            getattr(part.runs[(group * part.replicas + number) % len(part.runs)], column)
            for part in parts
            for number in range(part.replicas)
        ]
        total += np.sort(np.concatenate(picked))
    return total / groups


def _course(replica: Replica, parts: Sequence[_Part], end_s: float) -> BatchCourse:
    time_s = np.linspace(0.0, end_s, _COURSE_POINTS)
    running, held = np.zeros(_COURSE_POINTS), np.zeros(_COURSE_POINTS)
    for part in parts:
        runs = part.runs[:_COURSE_HANDS]
        for run in runs:
            at = np.searchsorted(run.time_s, time_s, side="right")
            running += part.replicas * np.append(run.running, 0.0)[at] / len(runs)
            held += part.replicas * np.append(run.held_tokens, 0.0)[at] / len(runs)
    room = None if replica.kv_tokens is None else replica.kv_tokens * sum(part.replicas for part in parts)
    return BatchCourse(time_s=time_s, running=running, kv_fill=None if room is None else held / room)


def _does_not_fit(requests: int, need: float, room: float) -> ClosedBatch:
    never = np.full(requests, np.inf)
    return ClosedBatch(
        makespan_s=np.inf,
        makespan_sd_s=0.0,
        mean_completion_s=np.inf,
        completion_s=never,
        first_token_s=never,
        output_tokens_per_s=0.0,
        preemptions=0.0,
        recomputed_tokens=0.0,
        overload=Overload(
            kind="length",
            value=need,
            limit=room,
            reason=f"the longest request holds {need:,.0f} KV tokens, a replica has {room:,.0f}; "
            "lower max_tokens or give the replica more memory",
        ),
    )


def _level(p: float) -> float:
    if not 0.0 < p < 1.0:
        raise ValueError(f"p must lie strictly between 0 and 1, e.g. 0.95 (got {p!r})")
    return p


def _time(deadline_s: float) -> float:
    if not deadline_s > 0.0:
        raise ValueError(f"deadline_s must be greater than 0 s (got {deadline_s!r})")
    return deadline_s
