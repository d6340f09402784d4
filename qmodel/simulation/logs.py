"""What a simulation leaves behind: one row per request, and averages of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.simulation.jobs import DONE, OUTCOMES, RENEGED, UNFINISHED, Job
from qmodel.simulation.meters import Meter
from qmodel.simulation.request_tables import RequestTable
from qmodel.types import FloatArray, IntArray

__all__ = ["Course", "PoolRun", "PoolTrack", "RequestLog"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestLog:
    """What happened to each of n requests, in order of arrival; times that did not come are NaN.

    Attributes:
        table: the requests.
        admitted_s: first admission to a replica, s, shape (n,) as all columns.
        first_token_s: end of the step that brought the first token.
        answer_start_s: end of the step that brought the first token after the thinking.
        completion_s: end of the step that brought the last token; when it left, for a request that reneged.
        replica: number of the replica that had it last, -1: none.
        outcome: place in ``outcomes``.
        preemptions: how often its memory was taken away.
        recomputed_tokens: context tokens computed and lost, to memory pressure or to failures.
        swapped_tokens: context tokens copied to host memory.
        retries: how often it came back after it had lost patience.
    """

    table: RequestTable
    admitted_s: FloatArray
    first_token_s: FloatArray
    answer_start_s: FloatArray
    completion_s: FloatArray
    replica: IntArray
    outcome: IntArray
    preemptions: IntArray
    recomputed_tokens: IntArray
    swapped_tokens: IntArray
    retries: IntArray

    outcomes = OUTCOMES

    def __len__(self) -> int:
        return len(self.table)

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Which requests got all their tokens."""
        return np.asarray(self.outcome == DONE)

    @property
    def wait_s(self) -> FloatArray:
        """From arrival to admission."""
        return self.admitted_s - self.table.arrival_s

    @property
    def ttft_s(self) -> FloatArray:
        """From arrival to the first token."""
        return self.first_token_s - self.table.arrival_s

    @property
    def answer_start_after_s(self) -> FloatArray:
        """From arrival to the first token of the answer."""
        return self.answer_start_s - self.table.arrival_s

    @property
    def tpot_s(self) -> FloatArray:
        """Mean time of the tokens after the first; NaN for outputs of one token."""
        later = np.where(self.table.output > 1, self.table.output - 1.0, np.nan)
        return np.where(self.done, self.completion_s - self.first_token_s, np.nan) / later

    @property
    def completion_after_s(self) -> FloatArray:
        """From arrival to the last token."""
        return np.where(self.done, self.completion_s, np.nan) - self.table.arrival_s

    def metric(self, name: str) -> FloatArray:
        """``ttft``, ``answer_start``, ``tpot`` or ``completion`` of each request, s; ``abandoned``: 1 where it left.

        Raises:
            ValueError: if there is no such metric.
        """
        if name == "abandoned":
            return np.where(self.done, 0.0, np.where(self.outcome == RENEGED, 1.0, np.nan))
        columns = {
            "ttft": "ttft_s",
            "answer_start": "answer_start_after_s",
            "tpot": "tpot_s",
            "completion": "completion_after_s",
        }
        if name not in columns:
            raise ValueError(f"metric must be one of {', '.join(columns)} (got {name!r})")
        values: FloatArray = getattr(self, columns[name])
        return values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """State of a pool, summed over its replicas, at the times ``time_s``; every column has shape (m,).

    ``kv_waste_tokens`` are those that the last block of each sequence leaves unused.
    """

    time_s: FloatArray
    running: FloatArray
    kv_tokens: FloatArray
    kv_waste_tokens: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolTrack:
    """Averages and totals of a pool over the window [from_s, to_s].

    Averages are per replica-second of the window for as many replicas as the pool ever had. Steps count when they end
    inside the window.

    Attributes:
        replicas: how many the averages are over.
        mean_running: sequences running in one replica.
        busy_share: share of the time in which a replica computes.
        kv_tokens: pool tokens taken in one replica.
        kv_fill: the same over the size of the pool; None without a limit.
        kv_waste_tokens: pool tokens that blocks leave unused in one replica.
        steps: engine steps of all replicas, as the totals below.
        prefill_tokens: prompt tokens computed.
        decoded_tokens: tokens generated by decoding.
        kv_tokens_read: KV tokens that decodes read.
        swapped_out_tokens: KV tokens copied to host memory.
        swapped_in_tokens: KV tokens copied back.
        course: samples over time, where a grid was asked for.
    """

    from_s: float
    to_s: float
    replicas: int
    mean_running: float
    busy_share: float
    kv_tokens: float
    kv_fill: float | None
    kv_waste_tokens: float
    steps: int
    prefill_tokens: int
    decoded_tokens: float
    kv_tokens_read: float
    swapped_out_tokens: int
    swapped_in_tokens: int
    course: Course | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolRun:
    """One simulated pool."""

    log: RequestLog
    track: PoolTrack


class LogBook:
    """Takes jobs that are over, one by one; only arrays grow with their number."""

    def __init__(self, table: RequestTable) -> None:
        n = len(table)
        self._table = table
        self._times = np.full((4, n), np.nan)
        self._counts = np.zeros((6, n), dtype=np.int64)
        self._counts[0], self._counts[1] = -1, UNFINISHED
        self.end_s = 0.0  # when the last request left

    def record(self, job: Job, outcome: int) -> None:
        """Write the row of ``job``."""
        if job.done_s > self.end_s:
            self.end_s = job.done_s
        self._times[:, job.row] = (job.admitted_s, job.first_s, job.answer_s, job.done_s)
        self._counts[:, job.row] = (
            job.replica,
            outcome,
            job.preemptions,
            job.recomputed,
            job.swapped,
            job.retries,
        )

    def log(self) -> RequestLog:
        """The rows."""
        admitted, first, answer, done = self._times
        replica, outcome, preemptions, recomputed, swapped, retries = self._counts
        return RequestLog(
            table=self._table,
            admitted_s=admitted,
            first_token_s=first,
            answer_start_s=answer,
            completion_s=done,
            replica=replica,
            outcome=outcome,
            preemptions=preemptions,
            recomputed_tokens=recomputed,
            swapped_tokens=swapped,
            retries=retries,
        )


def pool_track(
    meters: Sequence[Meter], *, from_s: float, to_s: float, kv_tokens: float | None, grid_s: FloatArray | None
) -> PoolTrack:
    """Put together what the meters of all replicas say."""
    span_s = max(to_s - from_s, 1e-300) * len(meters)
    held = sum(meter.pool_seconds for meter in meters) / span_s
    exact = sum(meter.exact_seconds for meter in meters) / span_s
    course = None
    if grid_s is not None:
        running, taken, waste = (
            np.sum([getattr(meter, name) for meter in meters], axis=0)
            for name in ("batch_samples", "pool_samples", "waste_samples")
        )
        course = Course(time_s=grid_s, running=running, kv_tokens=taken, kv_waste_tokens=waste)
    return PoolTrack(
        from_s=from_s,
        to_s=to_s,
        replicas=len(meters),
        mean_running=sum(meter.batch_seconds for meter in meters) / span_s,
        busy_share=sum(meter.busy_s for meter in meters) / span_s,
        kv_tokens=held,
        kv_fill=None if kv_tokens is None else held / kv_tokens,
        kv_waste_tokens=max(held - exact, 0.0) if exact else 0.0,
        steps=sum(meter.steps for meter in meters),
        prefill_tokens=sum(meter.prefill_tokens for meter in meters),
        decoded_tokens=sum(meter.decoded_tokens for meter in meters),
        kv_tokens_read=sum(meter.kv_tokens_read for meter in meters),
        swapped_out_tokens=sum(meter.swapped_out_tokens for meter in meters),
        swapped_in_tokens=sum(meter.swapped_in_tokens for meter in meters),
        course=course,
    )
