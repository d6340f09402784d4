"""Why nothing is feasible: the first limit that cannot be met, the best reachable value, one change that would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.candidates import Candidate, CandidateSet, ColumnSet, RefusedCandidate, unit_loads
from qmodel.evaluation import slo_ratios
from qmodel.queueing import pool
from qmodel.types import FloatArray, RequestClass

__all__ = ["Diagnosis", "diagnose"]

_NO_LOAD = 1e-6  # share of the largest load at which only the hardware speaks
_LEAST_SHARE = 1e-4  # of the demand: a class of which less is carried needs another answer than a count


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The first limit that cannot be met.

    Attributes:
        text: what cannot be met, in one sentence.
        limit: the key of the scenario that sets the limit.
        best: what came nearest, with its value.
        change: one change that would help.
    """

    text: str
    limit: str
    best: str
    change: str


def diagnose(
    candidates: CandidateSet,
    sets: Mapping[str, ColumnSet],
    classes: Mapping[str, Sequence[RequestClass]],
    stock: Mapping[str, int],
) -> Diagnosis:
    """Find the first limit that cannot be met: memory and layouts, then each target alone, then stock.

    Args:
        candidates: what was enumerated and what was refused.
        sets: columns by model.
        classes: classes by model.
        stock: GPUs by type, for the limited types.
    """
    for model, group in classes.items():
        pools = candidates.of(model)
        if not pools:
            return _nothing_fits(model, candidates.refused_of(model))
        for item in group:
            found = _unreachable(pools, item)
            if found is not None:
                return found
    for model, group in classes.items():
        for item in group:
            if not any(sets[model].least[item.name]):
                return _beyond_stock(candidates.of(model), item, stock)
    return _stock_together(sets, classes, stock)


def _nothing_fits(model: str, refused: Sequence[RefusedCandidate]) -> Diagnosis:
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
    if best.refusal.kind == "gpus":
        return Diagnosis(
            text=f"model '{model}' needs more GPUs for one replica than are in stock",
            limit=f"fleet.gpus.{best.gpu}.max_count",
            best=nearest,
            change=best.refusal.change,
        )
    return Diagnosis(
        text=f"model '{model}' fits on no allowed layout ({len(ranked)} tried)",
        limit="layouts",
        best=nearest,
        change=f"allow {best.refusal.change}" if best.refusal.change else "allow a GPU type with more memory",
    )


def _nearness(item: RefusedCandidate) -> tuple[int, int, int]:
    """Order of refusals: what only lacks stock, few stages first; then what lacks memory, the widest first."""
    layout = item.refusal.layout
    if item.refusal.kind == "gpus":
        return 0, layout.pp, -layout.gpus
    return (1 if item.refusal.kind == "memory" else 2), 0, -layout.gpus


def _unreachable(pools: Sequence[Candidate], item: RequestClass) -> Diagnosis | None:
    """The target that no candidate meets even without load; None where some candidate meets them all."""
    load = unit_loads(pools, [item])
    idle = np.where(np.isfinite(load), _NO_LOAD / load, _NO_LOAD).tolist()  # of what each candidate carries at most
    ratios = np.array(
        [
            slo_ratios([one.replica], [item], [1.0], [1], [low], one.router)[0]
            for one, low in zip(pools, idle, strict=True)
        ]
    )  # (J, targets)
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
        text = f"class '{item.name}': no single layout meets all of its targets together"
    return Diagnosis(
        text=text,
        limit=f"classes.{item.name}.slo.{slo.key}",
        best=f"{pools[shown].label}: {ratios[shown, index] * slo.target_s:.3g} s at zero load",
        change=f"{_looser(pools[nearest], item, ratios[nearest])}, or allow a faster GPU type or larger layouts",
    )


def _looser(candidate: Candidate, item: RequestClass, ratios: FloatArray) -> str:
    """Every target that a candidate misses, raised to what it meets at half of its largest load."""
    half = 0.5 / unit_loads([candidate], [item])
    loaded = slo_ratios([candidate.replica], [item], [1.0], [1], half, candidate.router)[0]
    return " and ".join(
        f"raise classes.{item.name}.slo.{slo.key} to {_round_up(float(at_half) * slo.target_s):g}"
        f" ({candidate.label} at half load; {ratio * slo.target_s:.3g} at zero load)"
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


def _beyond_stock(pools: Sequence[Candidate], item: RequestClass, stock: Mapping[str, int]) -> Diagnosis:
    """The class is reachable, but not within the stock of any one type."""
    limited = [candidate for candidate in pools if candidate.gpu in stock]
    if not limited:
        return Diagnosis(
            text=f"class '{item.name}' needs more replicas than a pool may have",
            limit=f"classes.{item.name}.rate_rps",
            best=f"{item.rate_rps:g} requests/s, pools of at most {pools[0].max_replicas:,} replicas",
            change=f"lower classes.{item.name}.rate_rps, and check its unit",
        )
    share, best = max(((_carried(one, item), one) for one in limited), key=lambda found: found[0])
    limit = f"fleet.gpus.{best.gpu}.max_count"
    # pools carry no less per replica as they grow
    need = int(np.ceil(best.max_replicas / max(share, _LEAST_SHARE))) * best.layout.gpus
    return Diagnosis(
        text=f"class '{item.name}' needs more GPUs than are in stock",
        limit=limit,
        best=f"{best.label}: {stock[best.gpu]} GPUs carry {share:.0%} of its {item.rate_rps:g} requests/s",
        change=f"raise {limit} to about {need}, or lower classes.{item.name}.rate_rps",
    )


def _carried(candidate: Candidate, item: RequestClass) -> float:
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2.0
        ratios = slo_ratios([candidate.replica], [item], [1.0], [candidate.max_replicas], [middle], candidate.router)
        low, high = (middle, high) if ratios.max() <= 1.0 else (low, middle)
    return low


def _stock_together(
    sets: Mapping[str, ColumnSet], classes: Mapping[str, Sequence[RequestClass]], stock: Mapping[str, int]
) -> Diagnosis:
    """Each class fits alone, all together do not: what the cheapest pools would take, against the stock."""
    need: dict[str, int] = {}
    for model, group in classes.items():
        for item in group:
            options = [
                (candidate.cost_usd_per_hour * count, candidate, count)
                for candidate, count in zip(sets[model].candidates, sets[model].least[item.name], strict=True)
                if count > 0
            ]
            _, candidate, count = min(options, key=lambda option: option[0])
            need[candidate.gpu] = need.get(candidate.gpu, 0) + candidate.layout.gpus * count
    short = {gpu: need[gpu] for gpu, have in stock.items() if need.get(gpu, 0) > have}
    assert short  # the cheapest pools are columns: within stock they would have been a fleet
    return Diagnosis(
        text="the classes together need more GPUs than are in stock",
        limit=f"fleet.gpus.{next(iter(short))}.max_count",
        best=", ".join(f"{gpu}: {count} for the cheapest pools, {stock[gpu]} in stock" for gpu, count in short.items()),
        change=" and ".join(f"raise fleet.gpus.{gpu}.max_count to {count}" for gpu, count in short.items()),
    )


def _round_up(value: float) -> float:
    """Three significant digits, not below the value."""
    scale = 10.0 ** (np.floor(np.log10(value)) - 2)
    return float(np.ceil(value / scale - 1e-9) * scale)
