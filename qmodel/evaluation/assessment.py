"""Metrics of a fleet whose replicas are known: the part that needs no catalog, so that a plan can be verified alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from qmodel.evaluation.kv_links import sources_of
from qmodel.evaluation.path_predictions import FleetPredictions, PoolCase, Solution, predict_paths
from qmodel.evaluation.results import Evaluation, LatencyRow
from qmodel.queueing import ClassPrediction, Prediction, pool_metrics
from qmodel.types import (
    METRICS,
    Fleet,
    FloatArray,
    IntArray,
    KvLink,
    LinkRow,
    Metric,
    PoolRow,
    Replica,
    RequestClass,
    Router,
    RouteRow,
    Slo,
    SloRow,
)

__all__ = ["PoolCase", "assess", "slo_ratios", "wanted_metrics"]

_LEVELS = ("nominal", "p90", "low")
_OVERLOAD_WORDS = {
    "kv": "KV memory",
    "length": "KV memory",
    "slots": "max_num_seqs",
    "steps": "step time",
    "rate": "measured rate",
    "link": "link",
}
_MOVED_BY = {  # metrics that a pool has a part in
    "unified": METRICS,
    "prefill": ("ttft", "answer_start", "completion"),
    "decode": ("answer_start", "tpot", "completion"),
    "answer": ("answer_start", "tpot", "completion"),
}
_NO_LINK = KvLink(bytes_per_s=np.inf, bytes_per_token=0.0)
_SCANS, _SCAN_POINTS = 4, 17  # each scan narrows a mixture's quantile by 16
_TOLERANCE = 1e-9  # of a target: rounding of a sum must not turn a met target into a missed one


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
        fleet: pools and routing.
        confidence: ``nominal`` or ``p90``: the level at which targets decide ``feasible``.
        assumptions: sentences to hand on.
        detail: fill the latency table and say what binds; a check of the targets needs neither.
    """
    predictions: dict[str, FleetPredictions] = {"nominal": predict_paths(classes, cases, fleet)}
    moved = [name for name, case in cases.items() if case.replica.step.band.p90 > 0.0]
    for level in _LEVELS[1:]:
        predictions[level] = predict_paths(
            classes, cases, fleet, level=level, known=predictions["nominal"], changed=moved
        )
    nominal = predictions["nominal"]
    slo = tuple(_slo_rows(classes, fleet, predictions))
    decided = "met_at_p90" if confidence == "p90" else "met"
    level = "p90" if confidence == "p90" else "nominal"
    return Evaluation(
        fleet=fleet,
        pools=tuple(
            _pool_row(
                case,
                nominal.pools.get(name),
                _binding(name, classes, cases, fleet, nominal, level, predictions[level]) if detail else "",
            )
            for name, case in cases.items()
        ),
        routing=tuple(_route_rows(classes, fleet)),
        slo=slo,
        latency=tuple(_latency_rows(classes, fleet, nominal)) if detail else (),
        links=tuple(_link_rows(cases, fleet, nominal)),
        stable=nominal.stable,
        feasible=nominal.stable and all(getattr(row, decided) for row in slo),
        cost_usd_per_hour=float(sum(case.pool.gpus * case.price.usd_per_gpu_hour for case in cases.values())),
        assumptions=(*assumptions, *_band_notes(cases), *_stage_notes(classes, cases, fleet)),
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


def _stage_notes(classes: Mapping[str, RequestClass], cases: Mapping[str, PoolCase], fleet: Fleet) -> list[str]:
    """What paths of several pools leave out."""
    notes = []
    in_rows = {name for name, item in classes.items() if any(len(p.pools) > 1 for p in fleet.routing.get(name, ()))}
    for name in classes:
        if name in in_rows and classes[name].burst is not None:
            notes.append(f"class {name}: arrivals at pools in a row are taken as Poisson, optimistic")
    if len({classes[name].priority for name in in_rows}) > 1:
        notes.append("pools in a row serve first come, first served: priorities are not predicted there")
    for name, case in cases.items():
        if case.pool.role != "unified" and case.router == "round_robin":
            notes.append(f"pool {name}: round_robin is predicted as random, pessimistic")
    return notes


def _slo_rows(
    classes: Mapping[str, RequestClass], fleet: Fleet, predictions: Mapping[str, FleetPredictions]
) -> list[SloRow]:
    rows = []
    for item in classes.values():
        paths = fleet.routing.get(item.name, ())
        for slo in item.slos:
            for path in paths:
                values = [_predicted(predictions[level].paths[item.name, path.pools], slo) for level in _LEVELS]
                rows.append(_slo_row(item.name, path.label, slo, values))
            if len(paths) > 1:
                values = [
                    _mixture([(path.share, predictions[level].paths[item.name, path.pools]) for path in paths], slo)
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


def _predicted(prediction: ClassPrediction | None, slo: Slo) -> float | None:
    if prediction is None:
        return None
    metric: Prediction = getattr(prediction, slo.metric)
    return float(metric.mean if slo.p is None else metric.quantile(slo.p))


def _mixture(parts: Sequence[tuple[float, ClassPrediction | None]], slo: Slo) -> float | None:
    """The statistic over all paths: the mean of means, or the level where the mixed distribution reaches p."""
    if any(prediction is None for _, prediction in parts):
        return None
    metrics = [(share, getattr(prediction, slo.metric)) for share, prediction in parts]
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
        RouteRow(cls=item.name, path=path.label, share=path.share, rate_rps=item.rate_rps * path.share)
        for item in classes.values()
        for path in fleet.routing.get(item.name, ())
    ]


def _latency_rows(classes: Mapping[str, RequestClass], fleet: Fleet, predictions: FleetPredictions) -> list[LatencyRow]:
    rows = []
    for item in classes.values():
        for path in fleet.routing.get(item.name, ()):
            prediction = predictions.paths[item.name, path.pools]
            for name in METRICS:
                if name == "answer_start" and item.lengths.reasoning is None:
                    continue
                values: list[float | None] = [None] * 5
                if prediction is not None:
                    metric = getattr(prediction, name)
                    values = [float(metric.mean), *(float(metric.quantile(p)) for p in (0.5, 0.9, 0.95, 0.99))]
                mean, p50, p90, p95, p99 = values
                rows.append(
                    LatencyRow(
                        cls=item.name,
                        path=path.label,
                        metric=name,
                        mean_s=mean,
                        p50_s=p50,
                        p90_s=p90,
                        p95_s=p95,
                        p99_s=p99,
                    )
                )
    return rows


def _link_rows(cases: Mapping[str, PoolCase], fleet: Fleet, predictions: FleetPredictions) -> list[LinkRow]:
    rows = []
    for name, found in predictions.links.items():
        link = cases[name].link
        assert link is not None
        known = found.overload is None and all(
            predictions.pools[source].overload is None for source in sources_of(fleet, name)
        )
        rows.append(
            LinkRow(
                pool=name,
                sources=", ".join(sources_of(fleet, name)),
                bandwidth_gbps=link.bytes_per_s / 1e9,
                lanes=link.lanes,
                latency_s=link.latency_s,
                kv_bytes_per_token=link.bytes_per_token,
                utilisation=found.utilisation,
                moved_gbps=found.bytes_per_s / 1e9,
                wait_mean_s=found.wait.mean if known else None,
                delay_mean_s=found.delay_mean_s if known else None,
                overload="" if found.overload is None else found.overload.reason,
            )
        )
    return rows


def _pool_row(case: PoolCase, prediction: Solution | None, binding: str) -> PoolRow:
    item = case.pool
    price = case.price.usd_per_gpu_hour
    stable = prediction is None or prediction.overload is None
    overload = prediction.overload.reason if prediction is not None and prediction.overload is not None else ""
    known = prediction is not None and stable
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
    name: str,
    classes: Mapping[str, RequestClass],
    cases: Mapping[str, PoolCase],
    fleet: Fleet,
    predicted: FleetPredictions,
    level: str,
    at_level: FleetPredictions,
) -> str:
    """What is missed now, else what breaks when the pool loses one replica: an overload, or the target missed by most.

    Where the target would hold if memory were no limit, memory is what binds; where it would hold if the KV came at
    once, the link is.
    """
    if name not in predicted.pools:
        return "unused"
    case = cases[name]

    def with_case(changed: PoolCase) -> FleetPredictions:
        return predict_paths(classes, {**cases, name: changed}, fleet, level=level, known=at_level, changed=(name,))

    link = predicted.links.get(name)
    if link is not None and link.overload is not None:
        return _OVERLOAD_WORDS["link"]
    missed = _most_missed(name, predicted, classes, fleet)
    if missed is None:
        if case.pool.replicas == 1:
            return "one replica is the least"
        case = replace(case, pool=replace(case.pool, replicas=case.pool.replicas - 1))
        smaller = with_case(case)
        overload = smaller.pools[name].overload
        if overload is not None:
            return _OVERLOAD_WORDS[overload.kind]
        missed = _most_missed(name, smaller, classes, fleet)
        if missed is None:
            return "spare: one replica less still meets every target"
    cls, pools, slo = missed
    if case.link is not None and _holds(with_case(replace(case, link=_NO_LINK)), cls, pools, slo):
        return f"link: SLO {cls} {slo.metric} {slo.stat}"
    if case.replica.kv_tokens is not None:
        unlimited = replace(case, replica=replace(case.replica, kv_tokens=None))
        if _holds(with_case(unlimited), cls, pools, slo):
            return f"KV memory: SLO {cls} {slo.metric} {slo.stat}"
    return f"SLO {cls} {slo.metric} {slo.stat}"


def _holds(predicted: FleetPredictions, cls: str, pools: tuple[str, ...], slo: Slo) -> bool:
    value = _predicted(predicted.paths[cls, pools], slo)
    return value is not None and value <= slo.target_s


def _most_missed(
    pool: str, predicted: FleetPredictions, classes: Mapping[str, RequestClass], fleet: Fleet
) -> tuple[str, tuple[str, ...], Slo] | None:
    """Class, path and target of a pool with the largest ratio of prediction to target above 1; None where all hold."""
    worst, ratio = None, 1.0 + _TOLERANCE
    for name, item in classes.items():
        for path in fleet.routing.get(name, ()):
            if pool not in path.pools:
                continue
            for slo in item.slos:
                value = _predicted(predicted.paths[name, path.pools], slo)
                concerns = slo.metric in _MOVED_BY[fleet.pools[pool].role]
                if concerns and value is not None and value / slo.target_s > ratio:
                    worst, ratio = (name, path.pools, slo), value / slo.target_s
    return worst
