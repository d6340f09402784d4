"""Metrics of a fleet whose replicas are known: the part that needs no catalog, so that a plan can be verified alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.evaluation.results import Evaluation, LatencyRow
from qmodel.problem import Price, at_confidence
from qmodel.queueing import PoolPrediction, Prediction, pool, pool_metrics
from qmodel.types import (
    METRICS,
    Fleet,
    FloatArray,
    IntArray,
    Metric,
    Pool,
    PoolRow,
    Replica,
    RequestClass,
    Router,
    RouteRow,
    Slo,
    SloRow,
    Stream,
)

__all__ = ["PoolCase", "assess", "slo_ratios", "wanted_metrics"]

_LEVELS = ("nominal", "p90", "low")
_OVERLOAD_WORDS = {
    "kv": "KV memory",
    "length": "KV memory",
    "slots": "max_num_seqs",
    "steps": "step time",
    "rate": "measured rate",
}
_SCANS, _SCAN_POINTS = 4, 17  # each scan narrows a mixture's quantile by 16
_TOLERANCE = 1e-9  # of a target: rounding of a sum must not turn a met target into a missed one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolCase:
    """One pool with what the queue needs to know of it.

    Attributes:
        replica: at nominal step times.
        router: how requests are spread over the replicas.
        price: per GPU and hour.
    """

    pool: Pool
    replica: Replica
    router: Router
    price: Price


def assess(
    classes: Mapping[str, RequestClass],
    cases: Mapping[str, PoolCase],
    fleet: Fleet,
    *,
    confidence: str = "nominal",
    assumptions: Sequence[str] = (),
    detail: bool = True,
) -> Evaluation:
    """Predict every metric of a fleet and compare it with the targets.

    Args:
        classes: request classes by name.
        cases: one per pool of the fleet, by pool name.
        fleet: pools and routing; one pool a path.
        confidence: ``nominal`` or ``p90``: the level at which targets decide ``feasible``.
        assumptions: sentences to hand on.
        detail: fill the latency table and say what binds; a check of the targets needs neither.
    """
    streams = {name: _streams_of(name, classes, fleet) for name in fleet.pools}
    predictions: dict[str, dict[str, PoolPrediction]] = {level: {} for level in _LEVELS}
    for name, case in cases.items():
        if streams[name]:
            for level in _LEVELS:
                exact = level != "nominal" and case.replica.step.band.p90 == 0.0
                predictions[level][name] = (
                    predictions["nominal"][name]
                    if exact
                    else pool(at_confidence(case.replica, level), streams[name], case.pool.replicas, router=case.router)
                )
    slo = tuple(_slo_rows(classes, fleet, predictions))
    decided = "met_at_p90" if confidence == "p90" else "met"
    stable = all(item.stable for item in predictions["nominal"].values())
    return Evaluation(
        fleet=fleet,
        pools=tuple(
            _pool_row(
                case,
                predictions["nominal"].get(name),
                _binding(case, streams[name], classes, confidence, predictions["nominal"].get(name)) if detail else "",
            )
            for name, case in cases.items()
        ),
        routing=tuple(_route_rows(classes, fleet)),
        slo=slo,
        latency=tuple(_latency_rows(classes, fleet, predictions["nominal"])) if detail else (),
        stable=stable,
        feasible=stable and all(getattr(row, decided) for row in slo),
        cost_usd_per_hour=float(sum(case.pool.gpus * case.price.usd_per_gpu_hour for case in cases.values())),
        assumptions=(*assumptions, *_band_notes(cases)),
    )


def wanted_metrics(classes: Sequence[RequestClass]) -> list[tuple[str, Metric, float | None]]:
    """The (class, metric, level) triples that the targets of ``classes`` ask for."""
    return [(item.name, slo.metric, slo.p) for item in classes for slo in item.slos]


def slo_ratios(
    replicas: Sequence[Replica],
    classes: Sequence[RequestClass],
    shares: Sequence[float],
    counts: Sequence[int] | IntArray,
    loads: Sequence[float] | FloatArray,
    router: Router,
) -> FloatArray:
    """Prediction over target for every case and target; infinite where unstable.

    Args:
        replicas: one per case, shape (C,), at the confidence in force.
        classes: the classes of the mix.
        shares: share of each class's rate that one unit of load brings.
        counts: replicas of the pool, shape (C,).
        loads: multiple of the shares, shape (C,).
        router: how requests are spread.

    Returns:
        Ratios, shape (C, W) for W targets; at most 1 where met.
    """
    streams = [item.stream(share) for item, share in zip(classes, shares, strict=True)]
    metrics = pool_metrics(
        replicas, streams, np.asarray(counts), np.asarray(loads, dtype=float), router, wanted_metrics(classes)
    )
    targets = np.array([slo.target_s for item in classes for slo in item.slos])
    return np.asarray(metrics / targets)


def _band_notes(cases: Mapping[str, PoolCase]) -> list[str]:
    """How far the step times and the memory model of each pool can be trusted."""
    thrashing = [
        f"pool {name}: watermark 0: growth is paid by evictions; planned for 0.8 of the capacity, low confidence"
        for name, case in cases.items()
        if case.replica.kv_tokens is not None
        and case.replica.watermark == 0.0
        and case.replica.admission == "full_prompt"
    ]
    return thrashing + [
        f"pool {name}: nine in ten measured step times lie within {band.p90:.0%} of this model ({band.level});"
        f" confidence {band.confidence}"
        for name, case in cases.items()
        if (band := case.replica.step.band).p90 > 0
    ]


def _streams_of(pool_name: str, classes: Mapping[str, RequestClass], fleet: Fleet) -> list[Stream]:
    streams = []
    for name, item in classes.items():
        share = sum(path.share for path in fleet.routing.get(name, ()) if path.pools == (pool_name,))
        if share > 0:
            streams.append(item.stream(share))
    return streams


def _slo_rows(
    classes: Mapping[str, RequestClass], fleet: Fleet, predictions: Mapping[str, Mapping[str, PoolPrediction]]
) -> list[SloRow]:
    rows = []
    for item in classes.values():
        paths = fleet.routing.get(item.name, ())
        for slo in item.slos:
            for path in paths:
                values = [_predicted(predictions[level][path.pools[0]], item.name, slo) for level in _LEVELS]
                rows.append(_slo_row(item.name, " > ".join(path.pools), slo, values))
            if len(paths) > 1:
                values = [
                    _mixture([(path.share, predictions[level][path.pools[0]]) for path in paths], item.name, slo)
                    for level in _LEVELS
                ]
                rows.append(_slo_row(item.name, "fleet", slo, values))
    return rows


def _slo_row(cls: str, path: str, slo: Slo, values: Sequence[float | None]) -> SloRow:
    nominal, high, low = values
    limit = slo.target_s * (1.0 + _TOLERANCE)
    return SloRow(
        cls=cls,
        path=path,
        metric=slo.metric,
        stat=slo.stat,
        target_s=slo.target_s,
        predicted_s=nominal,
        low_s=low,
        high_s=high,
        met=nominal is not None and nominal <= limit,
        met_at_p90=high is not None and high <= limit,
    )


def _predicted(prediction: PoolPrediction, cls: str, slo: Slo) -> float | None:
    if not prediction.stable:
        return None
    metric: Prediction = getattr(prediction[cls], slo.metric)
    return float(metric.mean if slo.p is None else metric.quantile(slo.p))


def _mixture(parts: Sequence[tuple[float, PoolPrediction]], cls: str, slo: Slo) -> float | None:
    """The statistic over all paths: the mean of means, or the level where the mixed distribution reaches p."""
    if any(not prediction.stable for _, prediction in parts):
        return None
    metrics = [(share, getattr(prediction[cls], slo.metric)) for share, prediction in parts]
    if slo.p is None:
        return float(sum(share * metric.mean for share, metric in metrics))
    edges = [float(metric.quantile(slo.p)) for _, metric in metrics]
    low, high = min(edges), max(edges)
    for _ in range(_SCANS):
        times = np.linspace(low, high, _SCAN_POINTS)
        level = sum(share * metric.share_within(times) for share, metric in metrics)
        above = int(np.clip(np.searchsorted(level, slo.p), 1, _SCAN_POINTS - 1))
        low, high = float(times[above - 1]), float(times[above])
    return (low + high) / 2.0


def _route_rows(classes: Mapping[str, RequestClass], fleet: Fleet) -> list[RouteRow]:
    return [
        RouteRow(cls=item.name, path=" > ".join(path.pools), share=path.share, rate_rps=item.rate_rps * path.share)
        for item in classes.values()
        for path in fleet.routing.get(item.name, ())
    ]


def _latency_rows(
    classes: Mapping[str, RequestClass], fleet: Fleet, predictions: Mapping[str, PoolPrediction]
) -> list[LatencyRow]:
    rows = []
    for item in classes.values():
        for path in fleet.routing.get(item.name, ()):
            prediction = predictions[path.pools[0]]
            for name in METRICS:
                if name == "answer_start" and item.lengths.reasoning is None:
                    continue
                values: list[float | None] = [None] * 5
                if prediction.stable:
                    metric = getattr(prediction[item.name], name)
                    values = [float(metric.mean), *(float(metric.quantile(p)) for p in (0.5, 0.9, 0.95, 0.99))]
                mean, p50, p90, p95, p99 = values
                rows.append(
                    LatencyRow(
                        cls=item.name,
                        path=" > ".join(path.pools),
                        metric=name,
                        mean_s=mean,
                        p50_s=p50,
                        p90_s=p90,
                        p95_s=p95,
                        p99_s=p99,
                    )
                )
    return rows


def _pool_row(case: PoolCase, prediction: PoolPrediction | None, binding: str) -> PoolRow:
    item = case.pool
    price = case.price.usd_per_gpu_hour
    stable = prediction is None or prediction.stable
    overload = prediction.overload.reason if prediction is not None and prediction.overload is not None else ""
    known = prediction is not None and prediction.stable
    return PoolRow(
        pool=item.name,
        model=item.model,
        role=item.role,
        gpu=item.gpu,
        tp=item.layout.tp,
        pp=item.layout.pp,
        ep=item.layout.ep,
        dp=item.layout.dp,
        cp=item.layout.cp,
        replicas=item.replicas,
        gpus=item.gpus,
        price_tier=case.price.tier,
        usd_per_gpu_hour=price,
        cost_usd_per_hour=price * item.gpus,
        utilisation=None if prediction is None else prediction.utilisation,
        kv_fill=prediction.kv_fill if prediction is not None and known else None,
        mean_batch=prediction.mean_batch if prediction is not None and known else None,
        binding=binding if stable else "overload",
        stable=stable,
        overload=overload,
    )


def _binding(
    case: PoolCase,
    streams: Sequence[Stream],
    classes: Mapping[str, RequestClass],
    confidence: str,
    predicted: PoolPrediction | None,
) -> str:
    """What is missed now, else what breaks when the pool loses one replica: an overload, or the target missed by most.

    Where the target would hold if memory were no limit, memory is what binds.
    """
    if predicted is None:
        return "unused"
    replica = at_confidence(case.replica, "p90" if confidence == "p90" else "nominal")
    counts = case.pool.replicas
    missed = _most_missed(predicted, streams, classes)
    if missed is None:
        counts -= 1
        if counts == 0:
            return "one replica is the least"
        smaller = pool(replica, streams, counts, router=case.router)
        if smaller.overload is not None:
            return _OVERLOAD_WORDS[smaller.overload.kind]
        missed = _most_missed(smaller, streams, classes)
        if missed is None:
            return "spare: one replica less still meets every target"
    name, slo = missed
    if replica.kv_tokens is not None:
        unlimited = pool(replace(replica, kv_tokens=None), streams, counts, router=case.router)
        value = _predicted(unlimited, name, slo)
        if value is not None and value <= slo.target_s:
            return f"KV memory: SLO {name} {slo.metric} {slo.stat}"
    return f"SLO {name} {slo.metric} {slo.stat}"


def _most_missed(
    prediction: PoolPrediction, streams: Sequence[Stream], classes: Mapping[str, RequestClass]
) -> tuple[str, Slo] | None:
    """Class and target with the largest ratio of prediction to target above 1; None where every target is met."""
    worst, ratio = None, 1.0 + _TOLERANCE
    for stream in streams:
        for slo in classes[stream.name].slos:
            value = _predicted(prediction, stream.name, slo)
            if value is not None and value / slo.target_s > ratio:
                worst, ratio = (stream.name, slo), value / slo.target_s
    return worst
