"""Pools in a row: each serves one part of a request's tokens and hands its KV on over a link."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from qmodel.types import FloatArray, IntArray, KvLink, Replica

__all__ = ["KvLink", "LinkTrack", "NetworkRun", "Stage", "TandemRun", "simulate_network", "simulate_tandem"]

Part = Literal["prompt", "reasoning", "output"]
_PARTS: tuple[Part, ...] = ("prompt", "reasoning", "output")
_WAYS: dict[int, tuple[Part, ...]] = {1: ("output",), 2: ("prompt", "output"), 3: _PARTS}  # by the pools of a way


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
    """What went over a link.

    Attributes:
        sequences: that were moved.
        tokens: of their context.
        bytes_moved: their KV.
        busy_s: how long its lanes were busy, summed over them.
        mean_wait_s: of a sequence for a lane.
        under_way: how many wait or travel when half of them and when all of them have come.
        busy_share: of the lanes from the first to the last sequence.
    """

    sequences: int
    tokens: int
    bytes_moved: float
    busy_s: float
    mean_wait_s: float
    under_way: tuple[int, int]
    busy_share: float


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
    names = [str(place) for place in range(len(stages))]
    run = _served(
        table,
        np.zeros(len(table), dtype=np.int64),
        [[(name, stage.serves) for name, stage in zip(names, stages, strict=True)]],
        dict(zip(names, stages, strict=True)),
        _Settings(rng=rng or np.random.default_rng(0), window_s=window_s, grid_s=grid_s, until_s=until_s),
    )
    return TandemRun(
        log=run.log,
        stages=tuple(run.pools[name] for name in names),
        links=tuple(run.links[name] for name in names),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkRun:
    """Simulated pools that several ways share.

    Attributes:
        log: the requests over all their pools, as for a row.
        pools: each pool by name, with the part of the requests that it served.
        rows: which requests those are, by pool, in the order of the pool's own log.
        links: the link into each pool; None where there is none.
    """

    log: RequestLog
    pools: Mapping[str, PoolRun]
    rows: Mapping[str, IntArray]
    links: Mapping[str, LinkTrack | None]


def simulate_network(
    table: RequestTable,
    way: IntArray,
    ways: Sequence[Sequence[str]],
    pools: Mapping[str, Stage],
    *,
    rng: np.random.Generator | None = None,
    window_s: tuple[float, float] | None = None,
    grid_s: FloatArray | None = None,
    until_s: float = math.inf,
) -> NetworkRun:
    """Serve requests by pools that several ways share, such as one prefill pool before two decode pools.

    What a pool serves follows from its place: alone all; first of two or three the prompt, last what is left, between
    them the thinking. A pool has the same place on all ways.

    Args:
        table: requests in order of arrival.
        way: of each request, an index into ``ways``, shape (n,).
        ways: names of the pools that a request passes, in order.
        pools: by name; what they say they serve is not used.
        rng, window_s, grid_s, until_s: as for :func:`simulate_tandem`.

    Raises:
        ValueError: naming the argument that is out of range.
    """
    places = {(name, place) for names in ways for place, name in enumerate(names)}
    if any(not 1 <= len(names) <= len(_PARTS) for names in ways):
        raise ValueError(f"ways must have one to three pools (got {[list(names) for names in ways]})")
    if len({name for name, _ in places}) < len(places):
        raise ValueError(f"ways must have a pool at the same place everywhere (got {[list(names) for names in ways]})")
    parts = [list(zip(names, _WAYS[len(names)], strict=True)) for names in ways]
    settings = _Settings(rng=rng or np.random.default_rng(0), window_s=window_s, grid_s=grid_s, until_s=until_s)
    return _served(table, way, parts, pools, settings)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Settings:
    rng: np.random.Generator
    window_s: tuple[float, float] | None
    grid_s: FloatArray | None
    until_s: float


def _served(
    table: RequestTable,
    way: IntArray,
    ways: Sequence[Sequence[tuple[str, Part]]],
    pools: Mapping[str, Stage],
    settings: _Settings,
) -> NetworkRun:
    """Pool after pool: nothing later holds up what is earlier."""
    merged = _Merged(table)
    runs: dict[str, PoolRun] = {}
    links: dict[str, LinkTrack | None] = {}
    served: dict[str, IntArray] = {}
    for place in range(max(len(names) for names in ways)):
        for name in dict.fromkeys(names[place][0] for names in ways if len(names) > place):
            stage = pools[name]
            target = np.zeros_like(table.output)
            for index, names in enumerate(ways):
                if len(names) > place and names[place][0] == name:
                    target = np.where(way == index, _target(table, names[place][1]), target)
            rows = merged.rows(target)
            arrival_s, links[name] = _transfer(stage.link, merged, rows)
            order = np.argsort(arrival_s, kind="stable")
            rows, arrival_s = rows[order], arrival_s[order]
            runs[name] = simulate_pool(
                _part(table, merged, rows, arrival_s, target[rows]),
                stage.replica,
                replicas=stage.replicas,
                router=stage.router,
                policy=stage.policy,
                availability=stage.availability,
                rng=settings.rng,
                window_s=settings.window_s,
                grid_s=settings.grid_s,
                until_s=settings.until_s,
            )
            merged.take(rows, runs[name].log)
            served[name] = rows
    return NetworkRun(log=merged.log(), pools=runs, rows=served, links=links)


def _target(table: RequestTable, part: Part) -> IntArray:
    """Tokens that a request has when a part of it is done."""
    wanted = {"prompt": np.ones_like(table.output), "reasoning": table.reasoning, "output": table.output}
    return np.asarray(np.minimum(wanted[part], table.output))


def _part(
    table: RequestTable, merged: _Merged, rows: IntArray, arrival_s: FloatArray, output: IntArray
) -> RequestTable:
    """What a pool sees of ``rows``."""
    return replace(
        table.select(rows),
        arrival_s=arrival_s,
        output=output,
        reasoning=np.minimum(table.reasoning[rows], output - 1),
        generated=merged.generated[rows],
        cached_prefix=np.where(merged.generated[rows] > 0, 0, table.cached_prefix[rows]),
    )


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
    waits_s = np.maximum(across_s[order] - ready_s[order] - sending_s - link.latency_s, 0.0)
    busy_s = float(sending_s.sum())
    span_s = float(across_s.max() - ready_s.min()) - link.latency_s if rows.size else 0.0
    return across_s, LinkTrack(
        sequences=int(rows.size),
        tokens=int(tokens.sum()),
        bytes_moved=float(tokens.sum() * link.bytes_per_token),
        busy_s=busy_s,
        mean_wait_s=float(waits_s.mean()) if rows.size else 0.0,
        under_way=(_under_way(ready_s[order], across_s[order], 0.5), _under_way(ready_s[order], across_s[order], 1.0)),
        busy_share=min(busy_s / (link.lanes * span_s), 1.0) if span_s > 0.0 else 0.0,
    )


def _under_way(ready_s: FloatArray, across_s: FloatArray, share: float) -> int:
    """Sequences on a link when ``share`` of them have come."""
    if not ready_s.size:
        return 0
    now_s = ready_s[max(int(share * ready_s.size) - 1, 0)]
    return int(((ready_s <= now_s) & (across_s > now_s)).sum())


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
