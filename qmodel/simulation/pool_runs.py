"""One pool of a fleet simulated long enough to measure it: warm-up before, company to the end behind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from qmodel.evaluation import Evaluation, PoolCase
from qmodel.simulation.fleet_engine import simulate_pool
from qmodel.simulation.logs import PoolRun, RequestLog
from qmodel.simulation.policies import EnginePolicy
from qmodel.simulation.recorded import RecordedClass
from qmodel.simulation.request_tables import RequestTable, draw_requests, table_from_arrays
from qmodel.types import Fleet, FloatArray, IntArray, RequestClass, Slo
from qmodel.workload.arrival_processes import ArrivalProcess, Poisson

__all__ = [
    "COURSE_POINTS",
    "MOST_REQUESTS",
    "Demand",
    "MeasuredRun",
    "Window",
    "grew",
    "measured_requests",
    "piled_up",
    "ranked",
    "run_pool",
    "table_of",
    "window_of",
]

MOST_REQUESTS = 50_000  # measured in one pool unless more are asked for
_LEAST_REQUESTS = 10_000
_BEYOND_PERCENTILE = 200  # measured requests beyond the largest percentile that a target asks for
_FOR_A_MEAN = 4_000
_RESIDENCES = 30.0  # the time measured, in mean completion times
_WARM_SHARE = 0.1  # of the time measured
_WARM_RESIDENCES = 3.0
_MOST_WARM_SHARE, _MOST_COOL_SHARE = 0.3, 0.2  # of a recording, which has an end
_MOST_AROUND = 200_000  # requests before and after the measured ones
COURSE_POINTS = 60
_GROWTH_SHARE, _GROWTH_SIGMAS, _GROWTH_FACTOR = 0.02, 4.0, 1.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """What comes to the pools of a fleet.

    Attributes:
        classes: request classes by name.
        fleet: pools and routing.
        recorded: recordings by class name, of the classes that have one.
        processes: arrival processes by class name; others are Poisson.
        replay: recorded requests come when they came; else they are drawn at random.
    """

    classes: Mapping[str, RequestClass]
    fleet: Fleet
    recorded: Mapping[str, RecordedClass]
    replay: bool
    processes: Mapping[str, ArrivalProcess] = field(default_factory=dict)

    def shares(self, path: str) -> dict[str, float]:
        """Share of each class that takes a path, named by its pools joined with `` > ``, of the classes that do."""
        found = {
            name: sum(way.share for way in self.fleet.routing.get(name, ()) if way.label == path)
            for name in self.classes
        }
        return {name: share for name, share in found.items() if share > 0.0}

    def on(self, path: str) -> dict[str, RequestClass]:
        """The classes that take a path, each as the model of its pools sees it."""
        return {
            name: self.classes[name].under(self.fleet.model_on(way))
            for name in self.shares(path)
            for way in self.fleet.routing[name]
            if way.label == path
        }

    def process(self, cls: str) -> ArrivalProcess:
        """How the requests of a class arrive."""
        return self.processes.get(cls, Poisson())

    def replayed(self, pool: str) -> list[str]:
        """Classes of a pool that a recording is replayed for."""
        return [name for name in self.shares(pool) if self.replay and name in self.recorded]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredRun:
    """A simulated pool and which of its requests count.

    Attributes:
        run: all that happened.
        measured: mask of the requests that arrived in the window, shape (n,).
        stable: the number of requests present did not grow to the end, or did so in a recording whose mean load the
            pool carries.
        warm_s, end_s: when the window begins, and when the last requests come.
    """

    run: PoolRun
    measured: npt.NDArray[np.bool_]
    stable: bool
    warm_s: float
    end_s: float

    def rows(self, cls: str) -> IntArray:
        """The measured requests of one class."""
        table = self.run.log.table
        if cls not in table.classes:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(self.measured & (table.cls == table.classes.index(cls))).astype(np.int64)

    def values(self, item: RequestClass, metric: str) -> FloatArray:
        """One metric of the measured requests of a class, from the arrival of the attempt that is served."""
        log, rows = self.run.log, self.rows(item.name)
        values = log.metric(metric)[rows]
        if item.patience is None or metric in ("tpot", "abandoned"):
            return values
        return np.asarray(values - item.patience.lost_s(log.retries[rows]))


def measured_requests(demand: Demand, pool: str, predicted: Evaluation, requests: int | None) -> int:
    """How many requests of a pool to measure.

    Args:
        demand: what comes.
        pool: name of the pool.
        predicted: tells how long requests stay.
        requests: of the whole fleet, over the same time in every pool; None: enough for each target of the pool, so
            200 requests beyond a percentile and 4,000 for a mean, for 30 mean completion times, at least 10,000 and
            at most 50,000.
    """
    shares = demand.shares(pool)
    rates = {name: demand.classes[name].rate_rps * share for name, share in shares.items()}
    rate_rps = sum(rates.values())
    if requests is not None:
        whole_rps = sum(item.rate_rps for item in demand.classes.values())
        return max(round(requests * rate_rps / whole_rps), 1)
    wanted = [_enough(slo) * rate_rps / rates[name] for name, item in demand.on(pool).items() for slo in item.slos]
    mean_s, _ = _stay_s(predicted, pool)
    return int(min(max(_LEAST_REQUESTS, *wanted, _RESIDENCES * mean_s * rate_rps), MOST_REQUESTS))


def _enough(slo: Slo) -> float:
    """Requests that decide a target."""
    if slo.metric == "abandoned":
        return _BEYOND_PERCENTILE / slo.target_s
    return _FOR_A_MEAN if slo.p is None else _BEYOND_PERCENTILE / (1.0 - slo.p)


def run_pool(
    demand: Demand,
    case: PoolCase,
    *,
    predicted: Evaluation,
    requests: int | None,
    seed: Sequence[int],
    policy: EnginePolicy,
    times: float = 1.0,
) -> MeasuredRun:
    """Simulate one pool.

    The first tenth of the time, and at least three mean completion times, is warm-up. Requests keep coming after the
    last one measured for as long as 99 % of requests stay, so that none is measured in a pool that runs empty. A
    recording is taken as it is: its first part is warm-up, and its last part is not measured.

    Args:
        demand: what comes.
        case: the pool, at the confidence in force.
        predicted: tells how long requests stay.
        requests: as for :func:`measured_requests`.
        seed: of all draws.
        policy: scheduling rules of the engines; where classes of the pool differ in priority, the queue goes by it.
        times: how many times as many requests are measured.
    """
    rng = np.random.default_rng(list(seed))
    name = case.pool.name
    window = window_of(demand, [name], predicted, requests, times)
    warm_s, stop_s, total_s, spans = window.warm_s, window.stop_s, window.total_s, window.recorded
    table = table_of(demand, name, rng, total_s, seed)
    policy = _with_patience(demand, name, replace(policy, order="priority") if ranked(demand, [name]) else policy)
    run = simulate_pool(
        table,
        case.replica,
        replicas=case.serving,
        router=case.router,
        policy=policy,
        rng=rng,
        window_s=(warm_s, stop_s),
        grid_s=np.linspace(0.0, total_s, COURSE_POINTS),
    )
    arrival_s = table.arrival_s
    return MeasuredRun(
        run=run,
        measured=(arrival_s >= warm_s) & (arrival_s < stop_s),
        # what is too much leaves; those who came again after the last arrivals are served, and look like a queue
        stable=policy.patience_s is not None
        or not grew(run.log, total_s)
        or (spans and _carries_its_mean(predicted, name)),
        warm_s=warm_s,
        end_s=total_s,
    )


def _with_patience(demand: Demand, pool: str, policy: EnginePolicy) -> EnginePolicy:
    """The policy with the patience of the classes of a pool, which all have the same."""
    patience = next((item.patience for item in demand.on(pool).values() if item.patience is not None), None)
    if patience is None:
        return policy
    return replace(policy, patience_s=patience.patience_s, retries=patience.retries, backoff_s=patience.backoff_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When a run measures, s.

    Attributes:
        warm_s, stop_s: requests that arrive in between are measured.
        total_s: requests come until then.
        recorded: a recording sets the end.
    """

    warm_s: float
    stop_s: float
    total_s: float
    recorded: bool


def window_of(
    demand: Demand, paths: Sequence[str], predicted: Evaluation, requests: int | None, times: float = 1.0
) -> Window:
    """How long pools are simulated that share requests of several paths.

    Args:
        demand: what comes.
        paths: named by their pools joined with `` > ``.
        predicted, requests: as for :func:`measured_requests`.
        times: how many times as many requests are measured.
    """
    rates = [sum(demand.classes[cls].rate_rps * share for cls, share in demand.shares(path).items()) for path in paths]
    counts = [measured_requests(demand, path, predicted, requests) for path in paths]
    stays = [_stay_s(predicted, path) for path in paths]
    mean_s, late_s = max(mean for mean, _ in stays), max(late for _, late in stays)
    spans = [demand.recorded[cls].span_s for path in paths for cls in demand.replayed(path)]
    measure_s = min([max(times * count / rate for count, rate in zip(counts, rates, strict=True)), *spans])
    warm_s, cool_s = max(_WARM_SHARE * measure_s, _WARM_RESIDENCES * mean_s), late_s
    around = (warm_s + cool_s) * sum(rates)
    if around > _MOST_AROUND:
        warm_s, cool_s = warm_s * _MOST_AROUND / around, cool_s * _MOST_AROUND / around
    if spans:
        total_s = min([*spans, warm_s + measure_s + cool_s])
        warm_s, cool_s = min(warm_s, _MOST_WARM_SHARE * total_s), min(cool_s, _MOST_COOL_SHARE * total_s)
        stop_s = total_s - cool_s
    else:
        stop_s = warm_s + measure_s
        total_s = stop_s + cool_s
    return Window(warm_s=warm_s, stop_s=stop_s, total_s=total_s, recorded=bool(spans))


def ranked(demand: Demand, paths: Sequence[str]) -> bool:
    """Whether classes of different priority take some paths."""
    return len({demand.classes[name].priority for path in paths for name in demand.shares(path)}) > 1


def _stay_s(predicted: Evaluation, pool: str) -> tuple[float, float]:
    """Mean and 99th percentile of the longest completion time in a pool as predicted; 0 where it is not stable."""
    rows = [row for row in predicted.latency if row.path == pool and row.metric == "completion"]
    return max((row.mean_s or 0.0 for row in rows), default=0.0), max((row.p99_s or 0.0 for row in rows), default=0.0)


def table_of(
    demand: Demand, pool: str, rng: np.random.Generator, horizon_s: float, seed: Sequence[int]
) -> RequestTable:
    """The requests of a path, such as one pool, before ``horizon_s``."""
    shares, classes = demand.shares(pool), demand.on(pool)
    recorded = {name: demand.recorded[name] for name in shares if name in demand.recorded}
    shaped = [name for name in shares if name not in recorded and not isinstance(demand.process(name), Poisson)]
    streams = [classes[name].stream(share) for name, share in shares.items() if name not in {*recorded, *shaped}]
    parts = [draw_requests(streams, rng=rng, horizon_s=horizon_s)] if streams else []
    for name in shaped:
        times = _times(demand, name, pool, seed, horizon_s)
        if times.size:
            requests = draw_requests([classes[name]], rng=rng, count=times.size)
            parts.append(replace(requests, arrival_s=times))
    for name, source in recorded.items():
        if demand.replay:
            which = _paths(demand, name, len(source), seed[0])
            mine = np.isin(which, [k for k, path in enumerate(demand.fleet.routing[name]) if path.label == pool])
            part = source.rows(np.flatnonzero(mine & (source.arrival_s < horizon_s)).astype(np.int64))
        else:
            part = source.poisson(classes[name].rate_rps * shares[name], rng=rng, horizon_s=horizon_s)
        parts.append(_as_table(name, part, classes[name].priority))
    return _merged(parts)


def _times(demand: Demand, cls: str, pool: str, seed: Sequence[int], horizon_s: float) -> FloatArray:
    """When the requests of a class come to a pool: its share of those of the whole class, the same for every pool."""
    rng = np.random.default_rng([seed[0], list(demand.classes).index(cls), seed[-1]])
    rate_rps = demand.classes[cls].rate_rps
    times = np.zeros(0)
    while not times.size or times[-1] < horizon_s:  # a burst may bring more requests than usual in less time
        more = demand.process(cls).draw(rng, int(1.1 * rate_rps * horizon_s) + 100, rate_rps)
        times = np.concatenate([times, more + (times[-1] if times.size else 0.0)])
    times = times[times < horizon_s]
    mine = [k for k, path in enumerate(demand.fleet.routing[cls]) if path.label == pool]
    return np.asarray(times[np.isin(_paths(demand, cls, times.size, seed[0]), mine)])


def _paths(demand: Demand, cls: str, requests: int, seed: int) -> IntArray:
    """The path of each request; the same for every pool, so that each request goes to one."""
    drawn = np.random.default_rng([seed, list(demand.classes).index(cls)]).random(requests)
    edges = np.cumsum([path.share for path in demand.fleet.routing[cls]])
    return np.minimum(np.searchsorted(edges, drawn, side="right"), edges.size - 1).astype(np.int64)


def _as_table(name: str, part: RecordedClass, priority: int) -> RequestTable:
    return table_from_arrays(
        part.arrival_s,
        prompt=part.prompt,
        output=part.output,
        reasoning=part.reasoning,
        priority=priority,
        classes=(name,),
    )


def _merged(parts: Sequence[RequestTable]) -> RequestTable:
    """Tables of different classes as one."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.classes) for part in parts)])

    def column(name: str) -> FloatArray:
        return np.concatenate([getattr(part, name) for part in parts])

    return table_from_arrays(
        column("arrival_s"),
        cls=np.concatenate([part.cls + start for part, start in zip(parts, starts, strict=False)]),
        classes=[name for part in parts for name in part.classes],
        prompt=column("prompt"),
        output=column("output"),
        reasoning=column("reasoning"),
        priority=column("priority"),
    )


def _carries_its_mean(predicted: Evaluation, pool: str) -> bool:
    """Whether a pool is stable at its mean load; a recording that ends in a burst is then no overload."""
    return any(row.stable for row in predicted.pools if row.pool == pool)


def grew(log: RequestLog, total_s: float) -> bool:
    """Whether the second half of the arrivals left far more requests behind than chance would."""
    arrival_s, taken = log.table.arrival_s, log.done
    present = [int((taken & (arrival_s < at_s) & (log.completion_s > at_s)).sum()) for at_s in (total_s / 2.0, total_s)]
    arrived = int((taken & (arrival_s >= total_s / 2.0)).sum())
    return piled_up(present[0], present[1], arrived)


def piled_up(half: int, end: int, arrived: int) -> bool:
    """Whether those present at the end are far more than at half time, of ``arrived`` in the second half."""
    least = max(_GROWTH_SHARE * arrived, _GROWTH_SIGMAS * math.sqrt(arrived))
    return end - half > least and end > _GROWTH_FACTOR * half
