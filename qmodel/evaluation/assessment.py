"""Metrics of a fleet whose replicas are known: the part that needs no catalog, so that a plan can be verified alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from qmodel.evaluation.api_pools import ApiCase, stated_row
from qmodel.evaluation.batches import batch_latency_rows, batch_pools, batch_values, held_notes, held_shares
from qmodel.evaluation.bindings import binding_of
from qmodel.evaluation.kv_links import sources_of
from qmodel.evaluation.leaving_requests import leaving_rows
from qmodel.evaluation.measured_pools import FULL, MeasuredCase, measured_row
from qmodel.evaluation.mixtures import mixture_of
from qmodel.evaluation.model_quality import quality_rows
from qmodel.evaluation.path_predictions import FleetPredictions, PoolCase, predict_paths
from qmodel.evaluation.pool_rows import api_pool_row, measured_pool_row, pool_row
from qmodel.evaluation.purchases import bought_for, purchase_rows, token_rows
from qmodel.evaluation.results import Evaluation, LatencyRow
from qmodel.evaluation.target_values import TOLERANCE, statistic_of, widening
from qmodel.queueing import ClassPrediction, pool_bands, pool_metrics
from qmodel.types import (
    METRICS,
    Fleet,
    FloatArray,
    IntArray,
    Limits,
    LinkRow,
    Metric,
    Replica,
    RequestClass,
    Router,
    RouteRow,
    Slo,
    SloRow,
    SloScope,
)

__all__ = ["PoolCase", "assess", "slo_ratios", "wanted_metrics"]

_LEVELS = ("nominal", "p90", "low")


def assess(
    classes: Mapping[str, RequestClass],
    cases: Mapping[str, PoolCase | MeasuredCase],
    fleet: Fleet,
    *,
    limits: Limits | None = None,
    confidence: str = "nominal",
    scope: SloScope = "pool",
    assumptions: Sequence[str] = (),
    detail: bool = True,
) -> Evaluation:
    """Predict every metric of a fleet and compare it with the targets.

    Args:
        classes: request classes by name.
        cases: one per pool of the fleet, by pool name.
        fleet: pools and routing.
        limits: say whether whole nodes are paid; None: single GPUs are.
        confidence: ``nominal`` or ``p90``: the level at which targets decide ``feasible``.
        scope: ``pool``: targets must hold on every path of a class; ``fleet``: for all of its requests together.
        assumptions: sentences to hand on.
        detail: fill the latency table and say what binds; a check of the targets needs neither.
    """
    held, streams = held_shares(classes, fleet), {name: item for name, item in classes.items() if item.batch is None}
    together = {name: case for name, case in cases.items() if isinstance(case, PoolCase)}
    batched = batch_pools(classes, together, fleet)
    predicted = {name: case for name, case in together.items() if name not in batched}
    loads = {name: case.utilisation(classes, fleet) for name, case in cases.items() if isinstance(case, MeasuredCase)}
    full = [name for name, load in loads.items() if load > FULL]
    predictions: dict[str, FleetPredictions] = {"nominal": predict_paths(streams, predicted, fleet)}
    moved = [name for name, case in predicted.items() if case.replica.step.band.p90 > 0.0]
    for level in _LEVELS[1:]:
        predictions[level] = predict_paths(
            streams, predicted, fleet, level=level, known=predictions["nominal"], changed=moved
        )
    nominal = predictions["nominal"]
    slo = (
        *_slo_rows(streams, fleet, cases, predictions, full, scope),
        *(_slo_row(*item) for item in batch_values(classes, fleet, batched)),
    )
    quality = tuple(quality_rows(classes, fleet))
    decided = "met_at_p90" if confidence == "p90" else "met"
    level = "p90" if confidence == "p90" else "nominal"
    stable = nominal.stable and not full and all(item.found.overload is None for item in batched.values())
    tokens_usd = {name: case.usd_per_hour(classes, fleet) for name, case in cases.items() if isinstance(case, ApiCase)}
    at_level = predictions[level]
    bindings = {
        name: binding_of(name, streams, predicted, fleet, nominal, level, at_level, scope)
        for name in (predicted if detail else ())
    }
    return Evaluation(
        fleet=fleet,
        pools=tuple(
            api_pool_row(case, loads[name], tokens_usd[name])
            if isinstance(case, ApiCase)
            else measured_pool_row(case, loads[name])
            if isinstance(case, MeasuredCase)
            else batched[name].pool_row(level, held[name], detail=detail)
            if name in batched
            else pool_row(case, nominal.pools.get(name), bindings.get(name, ""))
            for name, case in cases.items()
        ),
        routing=tuple(_route_rows(classes, fleet)),
        quality=quality,
        leaving=tuple(leaving_rows(streams, fleet, nominal)),
        slo=slo,
        latency=(*_latency_rows(streams, fleet, nominal), *batch_latency_rows(classes, fleet, batched))
        if detail
        else (),
        links=tuple(_link_rows(predicted, fleet, nominal)),
        purchases=(
            *purchase_rows(fleet, {name: case.price for name, case in cases.items()}, limits, held),
            *token_rows(fleet, tokens_usd),
        ),
        stable=stable,
        feasible=stable and all(getattr(row, decided) for row in slo) and all(row.met for row in quality),
        cost_usd_per_hour=_cost(classes, cases, fleet, limits, held),
        assumptions=(
            *assumptions,
            *_limit_notes(classes, cases, fleet, limits, held),
            *held_notes(classes, fleet, held),
            *_scope_notes(streams, fleet, scope),
            *_band_notes(together),
            *_stage_notes(streams, predicted, fleet),
        ),
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
    *,
    confidence: str = "nominal",
    targets: npt.NDArray[np.bool_] | None = None,
) -> FloatArray:
    """Prediction over target for every case and target; infinite where unstable.

    Args:
        replicas: one per case, shape (C,), at the confidence in force.
        classes: the classes of the mix.
        shares: share of each class's rate that one unit of load brings.
        counts: replicas of the pool, shape (C,).
        loads: multiple of the shares, shape (C,).
        router: how requests are spread.
        confidence: ``nominal``, or ``p90``: predictions take the upper end of their queueing band.
        targets: which of the classes' targets to predict, in their order; None: all of them.

    Returns:
        Ratios, shape (C, W) for W targets; at most 1 where met.
    """
    streams = [item.stream(share) for item, share in zip(classes, shares, strict=True)]
    limits = np.array([slo.target_s for item in classes for slo in item.slos])
    chosen = np.flatnonzero(np.ones(limits.size, dtype=bool) if targets is None else targets)
    wanted = [wanted_metrics(classes)[place] for place in chosen.tolist()]
    sizes, factors = np.asarray(counts), np.asarray(loads, dtype=float)
    metrics = pool_metrics(replicas, streams, sizes, factors, router, wanted)
    if confidence == "p90":
        metrics = metrics * (1.0 + pool_bands(replicas, streams, sizes, factors, wanted))
    return np.asarray(metrics / limits[chosen])


def _cost(
    classes: Mapping[str, RequestClass],
    cases: Mapping[str, PoolCase | MeasuredCase],
    fleet: Fleet,
    limits: Limits | None,
    held: Mapping[str, float],
) -> float:
    """Of pools while they are held, of GPUs that stand idle in nodes that are paid whole, and of what APIs are sent."""
    pools = float(sum(case.pool.gpus * case.price.usd_per_gpu_hour * held[name] for name, case in cases.items()))
    pools += sum(case.usd_per_hour(classes, fleet) for case in cases.values() if isinstance(case, ApiCase))
    return pools if limits is None else pools + sum(_idle_usd_per_hour(fleet, limits).values())


def _idle_usd_per_hour(fleet: Fleet, limits: Limits) -> dict[str, float]:
    """Of GPUs that stand idle in nodes that are paid whole, by type, at the mean price of what is bought."""
    found = {}
    for gpu, count in limits.idle_gpus(fleet.holdings).items():
        purchases = bought_for(gpu, fleet, limits)
        gpus = sum(item.gpus for item in purchases)
        found[gpu] = count * sum(item.cost_usd_per_hour for item in purchases) / gpus if gpus else 0.0
    return found


def _limit_notes(
    classes: Mapping[str, RequestClass],
    cases: Mapping[str, PoolCase | MeasuredCase],
    fleet: Fleet,
    limits: Limits | None,
    held: Mapping[str, float],
) -> list[str]:
    """Limits that a fleet breaks, and what is paid for and serves nothing."""
    if limits is None:
        return []
    idle_usd = _idle_usd_per_hour(fleet, limits)
    notes = [
        f"the fleet breaks {cap.key}: it takes {limits.used(cap, fleet.holdings):.4g} {cap.unit} of {cap.most:g}"
        for cap in limits.exceeded(fleet.holdings)
    ]
    cost, budget = _cost(classes, cases, fleet, limits, held), limits.budget_usd_per_hour
    if budget is not None and cost > budget * (1.0 + TOLERANCE):
        notes.append(f"the fleet breaks fleet.budget_usd_per_hour: it costs {cost:.2f} of {budget:g} USD/h")
    for name in fleet.pools:
        served = [cls for cls, paths in fleet.routing.items() if any(name in path.pools for path in paths)]
        if len(served) > 1 and any(cls in classes and classes[cls].isolate for cls in served):
            notes.append(f"pool {name} serves {', '.join(served)}, although one of them is isolated")
    return notes + [
        f"{gpu}: nodes of {limits.of(gpu).node_gpus} GPUs are paid whole, {limits.nodes(gpu, fleet.holdings)} of them;"
        f" GPUs that stand idle in them: {count} ({idle_usd[gpu]:.2f} USD/h)"
        for gpu, count in limits.idle_gpus(fleet.holdings).items()
    ]


def _scope_notes(classes: Mapping[str, RequestClass], fleet: Fleet, scope: SloScope) -> list[str]:
    """What targets over the whole fleet leave open."""
    if scope == "pool":
        return []
    return [
        f"class {name}: targets hold for all of its requests together (policy.slo_scope: fleet);"
        " requests of one of its pools alone may exceed them"
        for name in classes
        if len(fleet.routing.get(name, ())) > 1
    ]


def _band_notes(cases: Mapping[str, PoolCase]) -> list[str]:
    """How far the step times and the memory model of each pool can be trusted."""
    thrashing = [
        f"pool {name}: watermark 0: growth is paid by evictions; planned for 0.8 of the capacity, low confidence"
        for name, case in cases.items()
        if case.replica.kv_tokens is not None
        and case.replica.watermark == 0.0
        and case.replica.admission == "full_prompt"
    ]
    tight = [
        f"pool {name}: tight: its KV pool is below 3 % of a GPU's memory; another release of the engine may not start"
        for name, case in cases.items()
        if case.replica.memory_tight
    ]
    return (
        thrashing
        + tight
        + [
            f"pool {name}: nine in ten measured step times lie within {band.p90:.0%} of this model ({band.level});"
            f" confidence {band.confidence}"
            for name, case in cases.items()
            if (band := case.replica.step.band).p90 > 0
        ]
    )


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
    classes: Mapping[str, RequestClass],
    fleet: Fleet,
    cases: Mapping[str, PoolCase | MeasuredCase],
    predictions: Mapping[str, FleetPredictions],
    full: Sequence[str],
    scope: SloScope,
) -> list[SloRow]:
    """One row per target and path, and one for the mixture of several; ``full``: measured pools that are overloaded."""
    rows = []
    for item in classes.values():
        ways = fleet.routing.get(item.name, ())
        asked = {path: item.under(fleet.model_on(path)).slos for path in ways}
        for slo in dict.fromkeys(slo for slos in asked.values() for slo in slos):
            paths = [path for path in ways if slo in asked[path]]
            measured = [path for path in paths if (item.name, path.pools) not in predictions["nominal"].paths]
            for path in paths:
                case, within = cases[path.pools[0]], path.pools[0] not in full
                if isinstance(case, ApiCase):
                    rows.append(stated_row(item, path.label, slo, case, within=within))
                    continue
                if path in measured:
                    rows.append(measured_row(item.name, path.label, slo, met=within))
                    continue
                by_level = {level: predictions[level].paths[item.name, path.pools] for level in _LEVELS}
                rows.append(_slo_row(item.name, path.label, slo, _values(by_level, slo)))
            if len(paths) < len(ways):  # a target of some of its models is none of the whole class
                continue
            if measured and len(paths) > 1:  # every path within the target is sufficient
                each = rows[-len(paths) :]
                whole = measured_row(item.name, "fleet", slo, met=all(row.met for row in each))
                basis = "stated" if any(row.basis == "stated" for row in each) else whole.basis
                rows.append(replace(whole, met_at_p90=all(row.met_at_p90 for row in each), basis=basis))
            elif len(paths) > 1:
                values = [mixture_of(predictions[level].parts(item.name, paths), slo, level) for level in _LEVELS]
                whole = _slo_row(item.name, "fleet", slo, values)
                if scope == "fleet":  # what decides is the mixture
                    rows[-len(paths) :] = [
                        replace(row, met=whole.met, met_at_p90=whole.met_at_p90) for row in rows[-len(paths) :]
                    ]
                rows.append(whole)
    return rows


def _values(by_level: Mapping[str, ClassPrediction | None], slo: Slo) -> list[float | None]:
    """The statistic of a target at every level; often step times, and so predictions, are the same at all of them."""
    found: dict[int, float] = {}
    values: list[float | None] = []
    for level, prediction in by_level.items():
        if prediction is None:
            values.append(None)
            continue
        if id(prediction) not in found:
            found[id(prediction)] = statistic_of(prediction, slo)
        value = found[id(prediction)] * widening(prediction.metric(slo.metric), slo.p, level)
        values.append(min(value, 1.0) if slo.metric == "abandoned" else value)
    return values


def _slo_row(cls: str, path: str, slo: Slo, values: Sequence[float | None]) -> SloRow:
    nominal, high, low = values
    limit = slo.target_s * (1.0 + TOLERANCE)
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
            if (item.name, path.pools) not in predictions.paths:  # measured, not predicted
                continue
            prediction = predictions.paths[item.name, path.pools]
            for name in METRICS:
                if name == "answer_start" and item.under(fleet.model_on(path)).lengths.reasoning is None:
                    continue
                values: list[float | None] = [None] * 5
                if prediction is not None:
                    metric = getattr(prediction, name)
                    values = [float(metric.mean), *metric.quantiles((0.5, 0.9, 0.95, 0.99))]
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
