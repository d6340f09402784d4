"""Pools in a row: each serves one part of a request's tokens and hands its KV on over a link."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from qmodel.simulation.availability import Availability
from qmodel.simulation.fleet_engine import simulate_pool
from qmodel.simulation.jobs import UNFINISHED
from qmodel.simulation.logs import PoolRun, RequestLog
from qmodel.simulation.policies import EnginePolicy
from qmodel.simulation.request_tables import RequestTable
from qmodel.simulation.routing import SimRouter
from qmodel.types import FloatArray, IntArray, Replica

__all__ = ["KvLink", "LinkTrack", "Stage", "TandemRun", "simulate_tandem"]

Part = Literal["prompt", "reasoning", "output"]
_PARTS: tuple[Part, ...] = ("prompt", "reasoning", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLink:
    """A link that carries the KV of one sequence after the other, in the order in which they come.

    Attributes:
        bytes_per_s: bandwidth.
        bytes_per_token: KV bytes of one token of context.
        latency_s: from the last byte sent to the arrival; it does not hold up the next sequence.

    Example:
        >>> link = KvLink(bytes_per_s=1e9, bytes_per_token=1e6, latency_s=0.5)
        >>> link.arrivals_s(np.array([0.0, 0.1]), np.array([1000, 2000])).tolist()
        [1.5, 3.5]
    """

    bytes_per_s: float
    bytes_per_token: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0.0:
            raise ValueError(f"bytes_per_s must be greater than 0 (got {self.bytes_per_s})")
        for name in ("bytes_per_token", "latency_s"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite (got {getattr(self, name)})")

    def arrivals_s(self, ready_s: FloatArray, tokens: IntArray) -> FloatArray:
        """When each sequence is across.

        Args:
            ready_s: when it may be sent, ascending, s, shape (n,).
            tokens: context tokens, shape (n,).
        """
        sending_s = self.sending_s(tokens)
        before_s = np.cumsum(sending_s) - sending_s
        # Lindley: a sequence waits for the latest time from which on the link was never idle
        return np.asarray(np.maximum.accumulate(ready_s - before_s) + before_s + sending_s + self.latency_s)

    def sending_s(self, tokens: IntArray) -> FloatArray:
        """How long each sequence occupies the link, s."""
        return np.asarray(tokens * (self.bytes_per_token / self.bytes_per_s), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pool of a row.

    Attributes:
        serves: how far it brings a request: ``prompt``: to its first token; ``reasoning``: to its last thinking token;
            ``output``: to its end.
        replica: what each of its replicas is.
        replicas: how many.
        link: brings KV here from the stage before; None: at once, and for the first stage.
        router: as in :func:`simulate_pool`, and the others.
    """

    serves: Part
    replica: Replica
    replicas: int = 1
    link: KvLink | None = None
    router: SimRouter = "random"
    policy: EnginePolicy | None = None
    availability: Availability | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkTrack:
    """What went over a link: bytes, how long it was busy, and the mean wait of a sequence for it, s."""

    sequences: int
    bytes_moved: float
    busy_s: float
    mean_wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TandemRun:
    """A simulated row of pools.

    Attributes:
        log: the requests over the whole row; ``replica`` is that of the last stage a request saw.
        stages: each pool with the part of the requests that it served.
        links: the link into each stage; None where there is none.
    """

    log: RequestLog
    stages: tuple[PoolRun, ...]
    links: tuple[LinkTrack | None, ...]


def simulate_tandem(
    table: RequestTable,
    stages: Sequence[Stage],
    *,
    rng: np.random.Generator | None = None,
    window_s: tuple[float, float] | None = None,
    grid_s: FloatArray | None = None,
    until_s: float = math.inf,
) -> TandemRun:
    """Serve requests by pools in a row, such as prefill and decode, or thinking and answer.

    A stage frees the memory of a sequence when it hands it over; it is never held up by the next one. Stages that a
    request has no part for are passed by.

    Args:
        table: requests in order of arrival.
        stages: in order; the last one serves ``output``.
        rng: of all routers, stage after stage.
        window_s: of the averages of every pool.
        grid_s: times at which every pool is sampled.
        until_s: stop then.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.simulation import table_from_arrays
        >>> from qmodel.types import StepLaw
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0, delta_s=1e-4))
        >>> link = KvLink(bytes_per_s=1e9, bytes_per_token=1e5, latency_s=0.001)
        >>> row = [Stage(serves="prompt", replica=engine), Stage(serves="output", replica=engine, link=link)]
        >>> run = simulate_tandem(table_from_arrays([0.0], prompt=100, output=5), row)
        >>> run.log.first_token_s.round(6).tolist(), run.log.completion_s.round(6).tolist()
        ([0.02], [0.071])
    """
    places = [_PARTS.index(stage.serves) for stage in stages]
    if not places or places != sorted(set(places)) or places[-1] != len(_PARTS) - 1:
        raise ValueError(
            f"stages must serve some of {', '.join(_PARTS)} in this order and end with output "
            f"(got {[stage.serves for stage in stages]})"
        )
    rng = rng or np.random.default_rng(0)
    merged = _Merged(table)
    pools: list[PoolRun] = []
    links: list[LinkTrack | None] = []
    for stage in stages:
        target = {"prompt": np.ones_like(table.output), "reasoning": table.reasoning, "output": table.output}
        rows = merged.rows(np.minimum(target[stage.serves], table.output))
        arrival_s, link = _transfer(stage.link, merged, rows)
        order = np.argsort(arrival_s, kind="stable")
        rows, arrival_s = rows[order], arrival_s[order]
        output = np.minimum(target[stage.serves], table.output)[rows]
        part = replace(
            table.select(rows),
            arrival_s=arrival_s,
            output=output,
            reasoning=np.minimum(table.reasoning[rows], output - 1),
            generated=merged.generated[rows],
            cached_prefix=np.where(merged.generated[rows] > 0, 0, table.cached_prefix[rows]),
        )
        pool = simulate_pool(
            part,
            stage.replica,
            replicas=stage.replicas,
            router=stage.router,
            policy=stage.policy,
            availability=stage.availability,
            rng=rng,
            window_s=window_s,
            grid_s=grid_s,
            until_s=until_s,
        )
        merged.take(rows, pool.log)
        pools.append(pool)
        links.append(link)
    return TandemRun(log=merged.log(), stages=tuple(pools), links=tuple(links))


def _transfer(link: KvLink | None, merged: _Merged, rows: IntArray) -> tuple[FloatArray, LinkTrack | None]:
    """When each of ``rows`` reaches the next stage, in the order of ``rows``."""
    ready_s = merged.ready_s[rows]
    if link is None:
        return ready_s, None
    order = np.argsort(ready_s, kind="stable")
    tokens = np.where(merged.generated[rows] > 0, merged.table.prompt[rows] + merged.generated[rows] - 1, 0)[order]
    across_s = np.empty_like(ready_s)
    across_s[order] = link.arrivals_s(ready_s[order], tokens)
    sending_s = link.sending_s(tokens)
    waits_s = across_s[order] - ready_s[order] - sending_s - link.latency_s
    return across_s, LinkTrack(
        sequences=int(rows.size),
        bytes_moved=float(tokens.sum() * link.bytes_per_token),
        busy_s=float(sending_s.sum()),
        mean_wait_s=float(waits_s.mean()) if rows.size else 0.0,
    )


class _Merged:
    """How far each request of the row has come."""

    def __init__(self, table: RequestTable) -> None:
        n = len(table)
        self.table = table
        self.ready_s = table.arrival_s.copy()
        self.generated = table.generated.copy()
        self._alive = np.ones(n, dtype=bool)
        self._times = {name: np.full(n, np.nan) for name in _TIMES}
        self._counts = {name: np.zeros(n, dtype=np.int64) for name in _SUMS}
        self._replica = np.full(n, -1, dtype=np.int64)
        self._outcome = np.full(n, UNFINISHED, dtype=np.int64)

    def rows(self, target: IntArray) -> IntArray:
        """Requests that still lack tokens up to ``target``."""
        return np.flatnonzero(self._alive & (self.generated < target)).astype(np.int64)

    def take(self, rows: IntArray, log: RequestLog) -> None:
        """Add what a stage did to ``rows``."""
        part = log.table
        reasons = (part.generated <= self.table.reasoning[rows]) & (self.table.reasoning[rows] < part.output)
        for name, values in self._times.items():
            found = getattr(log, name)
            if name == "answer_start_s":
                found = np.where(reasons, found, np.nan)
            keep = np.isnan(values[rows]) | (name == "completion_s")
            values[rows] = np.where(keep, found, values[rows])
        for name, counts in self._counts.items():
            counts[rows] += getattr(log, name)
        self._replica[rows] = log.replica
        self.generated[rows] = np.where(log.done, part.output, self.generated[rows])
        over = self.generated[rows] >= self.table.output[rows]
        self._outcome[rows] = np.where(log.done & ~over, UNFINISHED, log.outcome)
        self._alive[rows] = log.done & ~over
        self.ready_s[rows] = log.completion_s

    def log(self) -> RequestLog:
        """The requests over all stages so far."""
        times, counts = self._times, self._counts
        return RequestLog(
            table=self.table,
            admitted_s=times["admitted_s"],
            first_token_s=times["first_token_s"],
            answer_start_s=times["answer_start_s"],
            completion_s=np.where(self._outcome == UNFINISHED, np.nan, times["completion_s"]),
            replica=self._replica,
            outcome=self._outcome,
            preemptions=counts["preemptions"],
            recomputed_tokens=counts["recomputed_tokens"],
            swapped_tokens=counts["swapped_tokens"],
            retries=counts["retries"],
        )


_TIMES = ("admitted_s", "first_token_s", "answer_start_s", "completion_s")
_SUMS = ("preemptions", "recomputed_tokens", "swapped_tokens", "retries")
