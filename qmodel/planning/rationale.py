"""Why a plan has the pools it has: what binds, what was nearly chosen, what was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qmodel.candidates import CandidateSet, ColumnSet, RefusedCandidate
from qmodel.planning.planned_pools import PlannedKind
from qmodel.planning.plans import Alternative, Why
from qmodel.types import PoolRow, RequestClass

__all__ = ["reasons"]

_NEAREST = 3  # alternatives named per class
_ROUNDING = 1e-6  # of a cost
_CHEAPEST = "no cheaper fleet of these pools meets every target"
_STOPPED = {
    "time": "the cheapest fleet found in time",
    "error": "the cheapest fleet found before the solver failed",
}


def reasons(
    sets: Mapping[str, ColumnSet],
    classes: Mapping[str, Sequence[RequestClass]],
    candidates: CandidateSet,
    pools: Sequence[PlannedKind],
    rows: Sequence[PoolRow],
    *,
    tight: Sequence[str],
    outcome: str,
) -> Why:
    """One sentence with what binds in each pool, and the nearest pools not chosen.

    Args:
        sets: columns by group of classes that may share pools.
        classes: the classes of each group.
        candidates: what was enumerated and what was refused.
        pools: the plan's pools.
        rows: their evaluation.
        tight: limits of the fleet that have nothing left, in words.
        outcome: how the choice of pools ended, as in a ``Choice``.
    """
    alternatives: list[Alternative] = []
    for group, found in sets.items():
        several = {item.name: f"{item.model} on " for item in classes[group] if len(item.models) > 1}
        for name, least in found.least.items():
            alternatives += _alternatives(name, found, least, pools, several.get(name, ""))
        alternatives += _refusals(candidates.refused_of(classes[group][0].model), ", ".join(found.least))
    binding = "; ".join(f"{row.pool}: {row.binding}" for row in rows)
    text = _STOPPED.get(outcome, _CHEAPEST)
    held = f"; limits that bind: {', '.join(tight)}" if tight else ""
    return Why(text=f"{text}; what binds: {binding}{held}", tight=tuple(tight), alternatives=tuple(alternatives))


def _alternatives(
    name: str, found: ColumnSet, least: Sequence[int], pools: Sequence[PlannedKind], model: str
) -> list[Alternative]:
    serving = [item for item in pools if any(c.name == name for c in item.classes)]
    chosen = {id(item.candidate) for item in serving}
    paid = sum(item.candidate.pool_cost(item.replicas) if item.replicas else item.cost_usd_per_hour for item in serving)
    able = sorted(
        (candidate.pool_cost(count), candidate.label, count)
        for candidate, count in zip(found.candidates, least, strict=True)
        if count > 0 and id(candidate) not in chosen
    )
    unable = [
        candidate
        for candidate, count in zip(found.candidates, least, strict=True)
        if not count and id(candidate) not in chosen
    ]
    rows = [
        Alternative(
            cls=name,
            candidate=f"{model}{label} x{count}",
            cost_usd_per_hour=cost,
            limit="dearer" if cost > paid * (1.0 + _ROUNDING) else "no dearer alone; the whole fleet decides",
        )
        for cost, label, count in able[:_NEAREST]
    ]
    rows += [
        Alternative(
            cls=name,
            candidate=f"{model}{candidate.label}",
            cost_usd_per_hour=None,
            limit="misses a target at any count within the limits",
        )
        for candidate in sorted(unable, key=lambda c: (c.cost_usd_per_hour, c.label))[: max(0, _NEAREST - len(rows))]
    ]
    return rows


def _refusals(refused: Sequence[RefusedCandidate], classes: str) -> list[Alternative]:
    """The refused layouts with the fewest GPUs, one per GPU type: what a reader would have tried first."""
    nearest: dict[str, RefusedCandidate] = {}
    for item in sorted(refused, key=lambda r: (r.gpu, r.refusal.layout.gpus)):
        nearest.setdefault(item.gpu, item)
    return [
        Alternative(
            cls=classes, candidate=f"{gpu} {item.refusal.layout}", cost_usd_per_hour=None, limit=item.refusal.reason
        )
        for gpu, item in nearest.items()
    ]
