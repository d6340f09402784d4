"""Why nothing is feasible: the first limit that cannot be met, the best reachable value, one change that would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.candidates import Candidate, CandidateSet, ColumnSet, RefusedCandidate
from qmodel.evaluation import slo_ratios
from qmodel.queueing import pool
from qmodel.types import RequestClass, Slo

__all__ = ["Diagnosis", "diagnose"]

_NO_LOAD = 1e-6  # share of the demand at which only the hardware speaks


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
    order = {"memory": 0, "gpus": 1}
    ranked = sorted(refused, key=lambda r: (order.get(r.refusal.kind, 2), -r.refusal.layout.gpus))
    if not ranked:
        return Diagnosis(
            text=f"no GPU type in fleet.gpus can serve '{model}'",
            limit="fleet.gpus",
            best="no layout was tried: the model or the GPUs are known by profiles only",
            change=f"add a profile for {model} on one of the GPUs, or a GPU type of the catalog",
        )
    best = ranked[0]
    return Diagnosis(
        text=f"model '{model}' fits on no allowed layout ({len(ranked)} tried)",
        limit="layouts" if best.refusal.kind != "gpus" else f"fleet.gpus.{best.gpu}.max_count",
        best=f"{best.gpu} {best.refusal.layout}: {best.refusal.reason}",
        change=f"allow {best.refusal.change}" if best.refusal.change else "allow a GPU type with more memory",
    )


def _unreachable(pools: Sequence[Candidate], item: RequestClass) -> Diagnosis | None:
    """The target that no candidate meets even without load; None where some candidate meets them all."""
    rows = []
    for candidate in pools:
        rows.append(slo_ratios([candidate.replica], [item], [1.0], [1], [_NO_LOAD], candidate.router)[0])
    ratios = np.array(rows)
    if (ratios.max(axis=1) <= 1.0).any():
        return None
    if not np.isfinite(ratios).any():
        return _always_overloaded(pools, item)
    alone = ratios.min(axis=0)
    slos = item.slos
    if alone.max() > 1.0:
        index = int(np.argmax(alone))
        return _missed(item, slos[index], pools[int(np.argmin(ratios[:, index]))], float(alone[index]))
    nearest = int(np.argmin(ratios.max(axis=1)))
    index = int(np.argmax(ratios[nearest]))
    found = _missed(item, slos[index], pools[nearest], float(ratios[nearest, index]))
    return Diagnosis(
        text=f"class '{item.name}': no single layout meets all of its targets together",
        limit=found.limit,
        best=found.best,
        change=found.change,
    )


def _missed(item: RequestClass, slo: Slo, candidate: Candidate, ratio: float) -> Diagnosis:
    reached = ratio * slo.target_s
    key = f"classes.{item.name}.slo.{slo.key}"
    return Diagnosis(
        text=f"class '{item.name}' cannot meet {slo.key} <= {slo.target_s:g} on any allowed layout",
        limit=key,
        best=f"{candidate.label}: {reached:.3g} s at zero load",
        change=f"raise {key} to at least {_round_up(reached):g}, or allow a faster GPU type or larger layouts",
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
    best, share = pools[0], 0.0
    for candidate in pools:
        carried = _carried(candidate, item)
        if carried > share:
            best, share = candidate, carried
    limit = f"fleet.gpus.{best.gpu}.max_count"
    have = stock.get(best.gpu, 0)
    need = int(np.ceil(have / share)) if share > 0 else have + best.layout.gpus
    return Diagnosis(
        text=f"class '{item.name}' needs more GPUs than are in stock",
        limit=limit,
        best=f"{best.label}: {have} GPUs carry {share:.0%} of its {item.rate_rps:g} requests/s",
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
                if count
            ]
            _, candidate, count = min(options, key=lambda option: option[0])
            need[candidate.gpu] = need.get(candidate.gpu, 0) + candidate.layout.gpus * count
    short = {gpu: need.get(gpu, 0) for gpu, have in stock.items() if need.get(gpu, 0) > have}
    gpu = next(iter(short), next(iter(stock), ""))
    return Diagnosis(
        text="the classes together need more GPUs than are in stock",
        limit=f"fleet.gpus.{gpu}.max_count",
        best=", ".join(f"{name}: about {count} needed, {stock[name]} in stock" for name, count in short.items())
        or "each class fits alone, not all of them together",
        change=f"raise fleet.gpus.{gpu}.max_count to about {short.get(gpu, stock.get(gpu, 0) + 1)}",
    )


def _round_up(value: float) -> float:
    """Three significant digits, not below the value."""
    scale = 10.0 ** (np.floor(np.log10(value)) - 2)
    return float(np.ceil(value / scale - 1e-9) * scale)
