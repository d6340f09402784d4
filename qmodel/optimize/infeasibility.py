"""Why nothing is feasible: the first limit that cannot be met, the best reachable value, one change that would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from qmodel.candidates import (
    NO_STAGES,
    ApiCandidate,
    Candidate,
    CandidateSet,
    ColumnSet,
    MeasuredCandidate,
    RefusedCandidate,
    StageColumns,
    unit_loads,
)
from qmodel.evaluation import slo_ratios
from qmodel.optimize.batch_diagnosis import late_batch, too_large_batch
from qmodel.optimize.limit_diagnosis import Diagnosis, beyond, round_up, rounded, together
from qmodel.optimize.programs import Program
from qmodel.optimize.solvers import SolverOptions
from qmodel.optimize.target_keys import target_key
from qmodel.queueing import pool
from qmodel.types import FloatArray, Limits, Refusal, RequestClass, SloScope

__all__ = ["Diagnosis", "diagnose"]

_NO_LOAD = 1e-6  # share of the largest load at which only the hardware speaks
_VERB = {"engine": "use", "context": "send"}  # before the nearest change of a refusal; else it is allowed
_LEAST_SHARE = 1e-4  # of the demand: a class of which less is carried needs another answer than a count


def diagnose(
    candidates: CandidateSet,
    sets: Mapping[str, ColumnSet],
    classes: Mapping[str, Sequence[RequestClass]],
    limits: Limits,
    options: SolverOptions,
    stages: StageColumns = NO_STAGES,
    *,
    scope: SloScope = "pool",
    master: Program | None = None,
) -> Diagnosis:
    """Find the first limit that cannot be met: memory and layouts, then each target alone, then limits of the fleet.

    Args:
        candidates: what was enumerated and what was refused.
        sets: columns by group of classes that may share pools.
        classes: the classes of each group.
        limits: of the fleet.
        options: solver and time limit.
        stages: what separate prefill and decode pools could carry.
        scope: whether targets hold in every pool, or over all pools of a class together.
        master: the program of fleets; None: that of the columns.
    """
    for name, group in classes.items():
        model = group[0].model
        pools, measured = candidates.of(model, group[0].name), candidates.measured_of(model)
        if not pools and not measured:
            return _nothing_fits(model, candidates.refused_of(model), limits)
        for item in group:
            if _measured_for(sets[name], item) or stages.serves(item.name, item.model):
                continue
            reached = late_batch if item.batch is not None else partial(_unreachable, scope=scope)
            alike = all(tier.lengths is None and tier.slos is None for tier in item.alternatives)
            models = item.models if alike else (model,)
            able = [one for other in models for one in candidates.of(other, item.name)]
            found = reached(able, item) if able else _not_measured(measured, item)
            if found is not None:
                return found
    for name, group in classes.items():
        for item in group:
            elsewhere = _measured_for(sets[name], item) or stages.serves(item.name, item.model) or len(item.models) > 1
            if not elsewhere and not any(sets[name].least[item.name]):
                beyond_limits = too_large_batch if item.batch is not None else _beyond_limits
                return beyond_limits(candidates.of(item.model, item.name), item, limits)
    for name, group in classes.items():
        for item in group:
            found = None if len(item.models) > 1 else _beyond_rates(sets[name], item)
            if found is not None:
                return found
    return together(sets, classes, limits, options, stages, master=master)


def _measured_for(found: ColumnSet, item: RequestClass) -> bool:
    """Whether some open pool serves a class: then only the limits of the fleet can be in the way."""
    return any(item.name in pool.takes for pool in found.open_pools)


def _beyond_rates(found: ColumnSet, item: RequestClass) -> Diagnosis | None:
    """The class that nothing but APIs serves, which together take less than its rate; None where that is not so."""
    pools = [pool for pool in found.open_pools if item.name in pool.takes]
    if any(found.least.get(item.name, ())) or not pools or not all(pool.is_api for pool in pools):
        return None
    carried = sum(1.0 / pool.takes[item.name] if pool.takes[item.name] else np.inf for pool in pools)
    if carried >= 1.0:
        return None
    names = [pool.candidate.gpu for pool in pools]
    return Diagnosis(
        text=f"class '{item.name}' asks for more requests/s than its APIs take",
        limit=f"fleet.apis.{names[0]}",
        best=f"{carried * item.rate_rps:.4g} requests/s by {', '.join(names)}, of {item.rate_rps:.4g}",
        change=f"raise max_rate_rps of {' or '.join(names)}, or allow GPUs that serve {item.model}",
    )


def _not_measured(measured: Sequence[MeasuredCandidate], item: RequestClass) -> Diagnosis:
    places = ", ".join(one.label for one in measured)
    if any(isinstance(one, ApiCandidate) for one in measured):
        return Diagnosis(
            text=f"nothing serves class '{item.name}': no GPU type, and no API that is said to meet its targets",
            limit="fleet.apis",
            best=f"{item.model} is served for other classes by {places}",
            change=f"name {item.name} under meets, state a latency within its targets, or add a GPU type that fits",
        )
    return Diagnosis(
        text=f"class '{item.name}' has no measured capacity on any GPU type, and nothing else serves {item.model}",
        limit="profiles",
        best=f"{item.model} is measured for other classes on {places}",
        change=f"add {item.name} to max_rate_rps of a profile",
    )


def _nothing_fits(model: str, refused: Sequence[RefusedCandidate], limits: Limits) -> Diagnosis:
    ranked = sorted(refused, key=_nearness)
    if not ranked:
        return Diagnosis(
            text=f"no GPU type in fleet.gpus can serve '{model}'",
            limit="fleet.gpus",
            best="no layout was tried: the model or the GPUs are known by profiles only",
            change=f"add a profile for {model} on one of the GPUs, or a GPU type of the catalog",
        )
    best = ranked[0]
    nearest = f"{best.gpu} {best.refusal.layout}: {best.refusal.reason}"
    if best.limited_by:
        cap = next(item for item in limits.caps if item.key == best.limited_by)
        return Diagnosis(
            text=f"model '{model}' needs more {beyond(cap, 'for one replica ')}",
            limit=cap.key,
            best=nearest,
            change=best.refusal.change,
        )
    return Diagnosis(
        text=f"model '{model}' fits on no allowed layout ({len(ranked)} tried)",
        limit="layouts",
        best=nearest,
        change=_way_out(best.refusal),
    )


def _way_out(refusal: Refusal) -> str:
    if refusal.change:
        return f"{_VERB.get(refusal.kind, 'allow')} {refusal.change}"
    return "allow a GPU type with more memory" if refusal.kind == "memory" else "allow other layouts"


def _nearness(item: RefusedCandidate) -> tuple[int, int, int]:
    """Order of refusals: what fits but for a limit, the fewest GPUs first; what lacks stock; what lacks memory."""
    layout = item.refusal.layout
    if item.limited_by:
        return 0, layout.pp, layout.gpus
    if item.refusal.kind == "gpus":
        return 0, layout.pp, -layout.gpus
    return (1 if item.refusal.kind == "memory" else 2), 0, -layout.gpus


def _unreachable(pools: Sequence[Candidate], item: RequestClass, *, scope: SloScope = "pool") -> Diagnosis | None:
    """The target that no candidate meets even without load; None where some candidate meets them all."""
    load = unit_loads(pools, [item])
    idle = np.where(np.isfinite(load), _NO_LOAD / load, _NO_LOAD).tolist()  # of what each candidate carries at most
    ratios = np.array([_ratios(one, item, 1, low) for one, low in zip(pools, idle, strict=True)])  # (J, targets)
    worst = ratios.max(axis=1)
    if worst.min() <= 1.0:
        return None
    if not np.isfinite(worst).any():
        return _always_overloaded(pools, item)
    nearest = int(np.argmin(worst))
    each = ratios.min(axis=0)
    index = int(np.argmax(each if each.max() > 1.0 else ratios[nearest]))
    slo = item.slos[index]
    shown = int(np.argmin(ratios[:, index])) if each.max() > 1.0 else nearest
    text = f"class '{item.name}' cannot meet {slo.key} <= {slo.target_s:g} on any allowed layout"
    if each.max() <= 1.0:
        which = "single layout meets" if scope == "pool" else "mixture of layouts that was tried meets"
        text = f"class '{item.name}': no {which} all of its targets together"
    return Diagnosis(
        text=text,
        limit=target_key(item, slo)[0],
        best=f"{_label(pools[shown], item)}: {ratios[shown, index] * slo.target_s:.3g} s at zero load",
        change=f"{_looser(pools[nearest], item, ratios[nearest])}, or allow a faster GPU type or larger layouts",
    )


def _label(candidate: Candidate, item: RequestClass) -> str:
    """Of a candidate, with its model where several may serve the class."""
    return f"{candidate.model} on {candidate.label}" if len(item.models) > 1 else candidate.label


def _looser(candidate: Candidate, item: RequestClass, ratios: FloatArray) -> str:
    """Every target that a candidate misses, raised to what it meets at half of its largest load."""
    half = 0.5 / unit_loads([candidate], [item])
    loaded = _ratios(candidate, item, 1, float(half[0]))
    return " and ".join(
        f"raise {target_key(item, slo)[0]} to {round_up(float(at_half) * slo.target_s):g}"
        f" ({_label(candidate, item)} at half load; {ratio * slo.target_s:.3g} at zero load)"
        for slo, ratio, at_half in zip(item.slos, ratios, loaded, strict=True)
        if ratio > 1.0
    )


def _always_overloaded(pools: Sequence[Candidate], item: RequestClass) -> Diagnosis:
    candidate = max(pools, key=lambda c: c.replica.kv_tokens or np.inf)
    prediction = pool(candidate.replica, [item.stream(_NO_LOAD)], 1, router=candidate.router)
    reason = prediction.overload.reason if prediction.overload is not None else "the pool is not stable"
    return Diagnosis(
        text=f"class '{item.name}' can be served by no allowed layout at any load",
        limit=f"classes.{item.name}",
        best=f"{candidate.label}: {reason}",
        change=f"lower classes.{item.name}.max_tokens, or allow layouts with more KV memory",
    )


def _beyond_limits(pools: Sequence[Candidate], item: RequestClass, limits: Limits) -> Diagnosis:
    """The class is reachable, but not within what the limits of the fleet allow of any one candidate."""
    caps = {cap.key: cap for cap in limits.caps}
    limited = [candidate for candidate in pools if candidate.limited_by]
    if not limited:
        return Diagnosis(
            text=f"class '{item.name}' needs more replicas than a pool may have",
            limit=f"classes.{item.name}.rate_rps",
            best=f"{item.rate_rps:g} requests/s, pools of at most {pools[0].max_replicas:,} replicas",
            change=f"lower classes.{item.name}.rate_rps, and check its unit",
        )
    share, best = max(((_carried(one, item), one) for one in limited), key=lambda found: found[0])
    cap = caps[best.limited_by]
    # pools carry no less per replica as they grow
    serving = int(np.ceil(best.max_replicas / max(share, _LEAST_SHARE)))
    need = limits.used(cap, [best.holding(serving)])
    told = f"{cap.most:g} {'GPUs' if cap.kind == 'stock' else cap.unit}"
    if cap.kind == "offer":
        told = f"{best.pool_gpus(best.max_replicas)} GPUs"
    return Diagnosis(
        text=f"class '{item.name}' needs more {beyond(cap)}",
        limit=cap.key,
        best=f"{best.label}: {told} carry {share:.0%} of its {item.rate_rps:g} requests/s",
        change=f"raise {cap.key} to about {rounded(cap, need):g}, or lower classes.{item.name}.rate_rps",
    )


def _carried(candidate: Candidate, item: RequestClass) -> float:
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2.0
        met = _ratios(candidate, item, candidate.max_replicas, middle).max() <= 1.0
        low, high = (middle, high) if met else (low, middle)
    return low


def _ratios(candidate: Candidate, item: RequestClass, replicas: int, load: float) -> FloatArray:
    """Prediction over target at the confidence in force, by target."""
    ratios = slo_ratios(
        [candidate.replica], [item], [1.0], [replicas], [load], candidate.router, confidence=candidate.confidence
    )
    return np.asarray(ratios[0])
