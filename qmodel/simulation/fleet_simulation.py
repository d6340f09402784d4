"""A fleet simulated pool by pool, and its requests counted into the tables of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from qmodel.evaluation import Evaluation, PoolCase, assess
from qmodel.problem import at_confidence
from qmodel.simulation.batch_runs import draws_of, estimate_of_batches, run_batches
from qmodel.simulation.length_buckets import Served, bucket_rows, fairness_row
from qmodel.simulation.policies import EnginePolicy
from qmodel.simulation.pool_runs import Demand, MeasuredRun, run_pool
from qmodel.simulation.predicted_buckets import predicted_pools
from qmodel.simulation.results import (
    CourseRow,
    Decision,
    SimulatedLatencyRow,
    SimulatedPoolRow,
    SimulatedSloRow,
    Simulation,
)
from qmodel.simulation.row_runs import RowRun, run_row
from qmodel.simulation.statistics import BATCHES, Estimate, Sample, batched, joined, mean_estimate, quantile_estimate
from qmodel.simulation.transfers import transfer_rows
from qmodel.types import RequestClass, Slo, SloScope

__all__ = ["FleetRuns", "simulate_pools", "tabulate"]

_TOLERANCE = 1e-9  # of a target, as in the predictions
_LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_FEW_RESIDENCES, _MANY_RESIDENCES = 2.0, 10.0

Parts = list[tuple[float, Sample]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetRuns:
    """A simulated fleet before it is counted.

    Attributes:
        demand: what came.
        cases: pools at the confidence in force.
        predicted: the closed forms for the same replicas.
        runs: by path, named by its pools joined with `` > ``, one per replication; those without a class are left out.
        pools: by pool, likewise.
        rows: by the first of pools that paths join, likewise.
        token_bytes: KV bytes of one token of context by pool, None where not known.
        scope: whether targets must hold in every pool, or over all pools of a class together.
    """

    demand: Demand
    cases: Mapping[str, PoolCase]
    predicted: Evaluation
    runs: Mapping[str, tuple[MeasuredRun, ...]]
    pools: Mapping[str, tuple[MeasuredRun, ...]]
    rows: Mapping[str, tuple[RowRun, ...]]
    token_bytes: Mapping[str, float | None]
    confidence: str
    seed: int
    scope: SloScope = "pool"


def simulate_pools(
    demand: Demand,
    cases: Mapping[str, PoolCase],
    *,
    confidence: str = "nominal",
    scope: SloScope = "pool",
    seed: int = 1,
    requests: int | None = None,
    replications: int = 1,
    policies: Mapping[str, EnginePolicy] | None = None,
    token_bytes: Mapping[str, float | None] | None = None,
    known: FleetRuns | None = None,
    again: Collection[str] = (),
    longer: Mapping[str, float] | None = None,
) -> FleetRuns:
    """Simulate every pool of a fleet.

    A class that is split over pools is split request by request at random, so that the streams of Poisson classes are
    independent and each pool can be simulated alone.

    Args:
        demand: what comes, and the fleet that it comes to.
        cases: its pools at nominal step times, by name.
        confidence: ``nominal`` or ``p90``: steps take their upper band, here and in the predictions.
        scope: whether targets must hold in every pool, or over all pools of a class together.
        seed: same seed, same digits.
        requests: measured in the whole fleet; None: enough for every target.
        replications: independent runs of every pool, each so long.
        policies: scheduling rules by pool name; those of the closed forms by default.
        token_bytes: KV bytes of one token of context by pool, where known.
        known: an earlier result with the same demand, from which pools are taken over, except
        again: those that are simulated anew.
        longer: by pool, how many times as many requests are measured.
    """
    level = "p90" if confidence == "p90" else "nominal"
    cases = {name: replace(case, replica=at_confidence(case.replica, level)) for name, case in cases.items()}
    predicted = assess(demand.classes, cases, demand.fleet, scope=scope)
    settings = {name: (policies or {}).get(name) or EnginePolicy() for name in cases}
    numbers = {name: index for index, name in enumerate(cases)}
    runs: dict[str, tuple[MeasuredRun, ...]] = {}
    pools: dict[str, tuple[MeasuredRun, ...]] = {}
    rows: dict[str, tuple[RowRun, ...]] = {}
    for names in demand.fleet.joined_pools:
        first, new = names[0], known is None or any(name in again for name in names)
        if len(names) == 1:
            if known is not None and not new and first in known.runs:
                runs[first] = pools[first] = known.runs[first]
            elif (batch := _batch_in(demand, first)) is not None:
                draws = draws_of(batch, requests, (longer or {}).get(first, 1.0) * replications)
                runs[first] = pools[first] = run_batches(
                    batch, cases[first], draws=draws, seed=(seed, numbers[first]), policy=settings[first]
                )
            elif demand.shares(first):
                runs[first] = pools[first] = tuple(
                    run_pool(
                        demand,
                        cases[first],
                        predicted=predicted,
                        requests=requests,
                        seed=(seed, numbers[first], number),
                        policy=settings[first],
                        times=(longer or {}).get(first, 1.0),
                    )
                    for number in range(replications)
                )
            continue
        if known is not None and not new and first in known.rows:
            rows[first] = known.rows[first]
        else:
            rows[first] = tuple(
                run_row(
                    demand,
                    {name: cases[name] for name in names},
                    predicted=predicted,
                    requests=requests,
                    seed=(seed, numbers[first], number),
                    policies=settings,
                    times=max((longer or {}).get(name, 1.0) for name in names),
                )
                for number in range(replications)
            )
        runs |= {path: tuple(run.on_path(path) for run in rows[first]) for path in rows[first][0].paths}
        pools |= {name: tuple(run.in_pool(name) for run in rows[first]) for name in names}
    return FleetRuns(
        demand=demand,
        cases=cases,
        predicted=predicted,
        runs=runs,
        pools={name: pools[name] for name in cases if name in pools},
        rows=rows,
        token_bytes=token_bytes or {},
        confidence=confidence,
        seed=seed,
        scope=scope,
    )


def _batch_in(demand: Demand, pool: str) -> RequestClass | None:
    """The part of a batch that a pool serves; None where it serves streams."""
    shares = demand.shares(pool)
    parts = [item.part(shares[name]) for name, item in demand.on(pool).items()]
    return next((item for item in parts if item.batch is not None), None)


def tabulate(fleet: FleetRuns, *, assumptions: Sequence[str] = ()) -> Simulation:
    """Count a simulated fleet into result tables.

    Args:
        fleet: what was simulated.
        assumptions: sentences to hand on.
    """
    classes = fleet.demand.classes
    served = {name: _with_shares(fleet, name) for name in classes}
    predicted = predicted_pools(fleet.demand, fleet.cases)
    buckets = {
        name: bucket_rows(name, pools, fleet.cases, predicted)
        for name, pools in served.items()
        if _all_stable(pools) and classes[name].batch is None
    }
    return Simulation(
        fleet=fleet.demand.fleet,
        pools=tuple(_pool_row(fleet, name) for name in fleet.pools),
        routing=fleet.predicted.routing,
        slo=tuple(_slo_rows(fleet)),
        latency=tuple(_latency_rows(fleet)),
        buckets=tuple(row for rows in buckets.values() for row in rows),
        fairness=tuple(fairness_row(name, served[name], fleet.cases, rows) for name, rows in buckets.items() if rows),
        course=tuple(_course_rows(fleet)),
        transfers=transfer_rows(fleet.pools, fleet.rows, fleet.predicted, fleet.token_bytes),
        confidence=fleet.confidence,
        cost_usd_per_hour=fleet.predicted.cost_usd_per_hour,
        seed=fleet.seed,
        assumptions=(*assumptions, *_notes(fleet)),
    )


def _with_shares(fleet: FleetRuns, cls: str) -> Served:
    """Share and runs of every path of a class."""
    found = {name: fleet.demand.shares(name).get(cls, 0.0) for name in fleet.runs}
    return {name: (share, fleet.runs[name]) for name, share in found.items() if share > 0.0}


def _all_stable(pools: Served) -> bool:
    return all(run.stable for _, runs in pools.values() for run in runs)


def _slo_rows(fleet: FleetRuns) -> list[SimulatedSloRow]:
    rows = []
    for known in fleet.predicted.slo:
        slo = next(
            item
            for model in fleet.demand.classes[known.cls].models
            for item in fleet.demand.classes[known.cls].under(model).slos
            if item.metric == known.metric and item.stat == known.stat and item.target_s == known.target_s
        )
        found = _estimate(fleet, known.cls, known.path, known.metric, slo.p)
        rows.append(
            SimulatedSloRow(
                cls=known.cls,
                path=known.path,
                metric=known.metric,
                stat=known.stat,
                target_s=known.target_s,
                predicted_s=known.predicted_s,
                simulated_s=_finite(found, "value"),
                ci_low_s=_finite(found, "low"),
                ci_high_s=_finite(found, "high"),
                decision=_decision(found, slo),
            )
        )
    if fleet.scope == "pool":
        return rows
    mixed = {(row.cls, row.metric, row.stat): row.decision for row in rows if row.path == "fleet"}
    return [replace(row, decision=mixed.get((row.cls, row.metric, row.stat), row.decision)) for row in rows]


def _latency_rows(fleet: FleetRuns) -> list[SimulatedLatencyRow]:
    rows = []
    for known in fleet.predicted.latency:
        for stat in ("mean", *_LEVELS):
            found = _estimate(fleet, known.cls, known.path, known.metric, _LEVELS.get(stat))
            rows.append(
                SimulatedLatencyRow(
                    cls=known.cls,
                    path=known.path,
                    metric=known.metric,
                    stat=stat,
                    predicted_s=getattr(known, f"{stat}_s"),
                    simulated_s=_finite(found, "value"),
                    ci_low_s=_finite(found, "low"),
                    ci_high_s=_finite(found, "high"),
                )
            )
    return rows


def _estimate(fleet: FleetRuns, cls: str, path: str, metric: str, p: float | None) -> Estimate | None:
    """A statistic of a class on a path, ``fleet`` for all its paths; None where a pool is not stable."""
    pools = _with_shares(fleet, cls)
    if path != "fleet":
        pools = {path: (1.0, pools[path][1])}
    if not _all_stable(pools):
        return None
    if fleet.demand.classes[cls].batch is not None:
        return estimate_of_batches(list(pools.values()), metric, p)
    parts: Parts = []
    for share, runs in pools.values():
        batches = max(math.ceil(BATCHES / len(runs)), 1)
        parts.append((share, joined([batched(run.values(fleet.demand.classes[cls], metric), batches) for run in runs])))
    return mean_estimate(parts) if p is None else quantile_estimate(parts, p)


def _decision(found: Estimate | None, slo: Slo) -> Decision:
    limit = slo.target_s * (1.0 + _TOLERANCE)
    if found is None or found.low > limit:
        return "missed"
    return "met" if found.high <= limit else "not decided"


def _pool_row(fleet: FleetRuns, name: str) -> SimulatedPoolRow:
    runs, case = fleet.pools[name], fleet.cases[name]
    known = next(row for row in fleet.predicted.pools if row.pool == name)
    tracks = [run.run.track for run in runs]
    requests = sum(int(run.measured.sum()) for run in runs)
    logs = [run.run.log for run in runs]

    def per_request(column: str) -> float:
        counted = sum(int(getattr(run.run.log, column)[run.measured].sum()) for run in runs)
        return counted / max(requests, 1)

    def mean(column: str) -> float:
        return float(sum(getattr(track, column) for track in tracks) / len(tracks))

    limited = case.replica.kv_tokens is not None
    taken = mean("kv_tokens")
    return SimulatedPoolRow(
        pool=name,
        model=known.model,
        gpu=known.gpu,
        replicas=known.replicas,
        requests=requests,
        stable=all(run.stable for run in runs),
        utilisation=known.utilisation,
        busy_share=mean("busy_share"),
        predicted_batch=known.mean_batch,
        mean_batch=mean("mean_running"),
        predicted_kv_fill=known.kv_fill,
        kv_fill=mean("kv_fill") if limited else None,
        kv_waste=(mean("kv_waste_tokens") / taken if taken else 0.0) if limited else None,
        preemptions_per_request=per_request("preemptions"),
        recomputed_tokens_per_request=per_request("recomputed_tokens"),
        refused=sum(int((log.outcome == log.outcomes.index("refused")).sum()) for log in logs),
    )


def _course_rows(fleet: FleetRuns) -> list[CourseRow]:
    """Every pool over time, in its first run."""
    rows = []
    for name, runs in fleet.pools.items():
        course = runs[0].run.track.course
        if course is not None:
            columns = (course.time_s, course.running, course.kv_tokens, course.kv_waste_tokens)
            for time_s, running, held, waste in zip(*(column.tolist() for column in columns), strict=True):
                rows.append(CourseRow(pool=name, time_s=time_s, running=running, kv_tokens=held, kv_waste_tokens=waste))
    return rows


def _notes(fleet: FleetRuns) -> list[str]:
    """What a reader must know of how a fleet was simulated."""
    notes = []
    for cls, source in fleet.demand.recorded.items():
        if fleet.demand.replay:
            notes.append(source.note)
        else:
            notes.append(f"class {cls}: requests of the recording, drawn at random, arrive as a Poisson stream")
    for name in fleet.pools:
        row = _pool_row(fleet, name)
        if not row.stable:
            notes.append(f"pool {name}: the number of requests present grew to the end of the simulation")
        if row.refused:
            notes.append(f"pool {name}: {row.refused} requests fit into no replica; no latency counts them")
    for path, runs in fleet.runs.items():
        if _batch_in(fleet.demand, path) is not None:
            notes.append(f"pool {path}: {len(runs)} batches drawn, of {len(runs[0].run.log):,} requests each")
            continue
        notes += _length_notes(path, runs[0], fleet.predicted)
    return notes


def _length_notes(pool: str, run: MeasuredRun, predicted: Evaluation) -> list[str]:
    """Whether a run was too short for its requests; a path of one pool is called by it."""
    rows = [row for row in predicted.latency if row.path == pool and row.metric == "completion"]
    mean_s = max((row.mean_s or 0.0 for row in rows), default=0.0)
    track, notes = run.run.track, []
    if run.warm_s < _FEW_RESIDENCES * mean_s:
        notes.append(
            f"pool {pool}: the warm-up of {run.warm_s:.4g} s is less than two mean completion times;"
            " the pool may not have been full, so latencies are optimistic"
        )
    if track.to_s - track.from_s < _MANY_RESIDENCES * mean_s:
        notes.append(
            f"pool {pool}: {track.to_s - track.from_s:.4g} s were measured, less than ten mean completion times;"
            " the intervals may be too narrow, ask for more requests"
        )
    return notes


def _finite(found: Estimate | None, name: Literal["value", "low", "high"]) -> float | None:
    value = math.nan if found is None else float(getattr(found, name))
    return value if math.isfinite(value) else None
