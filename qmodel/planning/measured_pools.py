"""Planned pools of measured capacity: taken from the program as they are, for their rows are exact."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from qmodel.candidates import ApiCandidate, CandidateSet
from qmodel.optimize import OpenChoice
from qmodel.planning.planned_pools import PlannedMeasured
from qmodel.planning.plans import Alternative
from qmodel.problem import Instance
from qmodel.types import RequestClass

__all__ = ["carried_by", "measured_alternatives", "measured_pools_of"]

_ROUNDING = 1e-6  # of a replica
_NAMED = 3  # classes named before the others are counted


def measured_pools_of(instance: Instance, chosen: Sequence[OpenChoice]) -> list[PlannedMeasured]:
    """Planned pools of the open pools that were chosen, without replicas that nothing needs.

    Args:
        instance: the bound problem.
        chosen: open pools with their counts and shares.
    """
    pools = []
    for item in chosen:
        taken = sum(share * item.pool.takes[name] for name, share in item.shares.items())
        least = 0 if item.pool.is_api else max(ceil(taken * (1.0 - _ROUNDING)), 1)
        pools.append(
            PlannedMeasured(
                candidate=item.pool.candidate,
                replicas=min(item.replicas, least),
                classes=tuple(instance.classes[name].under(item.pool.candidate.model) for name in item.shares),
                shares=tuple(item.shares.values()),
            )
        )
    return pools


def carried_by(pools: Sequence[PlannedMeasured]) -> dict[str, float]:
    """Share of each class's demand that pools carry, by class name."""
    carried: dict[str, float] = {}
    for item in pools:
        for request_class, share in zip(item.classes, item.shares, strict=True):
            carried[request_class.name] = carried.get(request_class.name, 0.0) + share
    return carried


def measured_alternatives(
    instance: Instance, candidates: CandidateSet, pools: Sequence[PlannedMeasured], paid_usd_per_hour: float
) -> list[Alternative]:
    """What each pool of measured capacity would cost if it carried all classes of its model alone.

    Args:
        instance: the bound problem.
        candidates: what was enumerated.
        pools: the plan's pools of measured capacity; one that is all its model has is no alternative.
        paid_usd_per_hour: by the whole plan.
    """
    rows = []
    for candidate in candidates.measured:
        classes = instance.classes_of(candidate.model)
        chosen = [item for item in pools if item.candidate is candidate]
        if chosen and len(chosen[0].classes) == len(classes) and min(chosen[0].shares) > 1.0 - _ROUNDING:
            continue
        rates = candidate.capacity.max_rate_rps
        missing = [item.name for item in classes if item.name not in rates]
        cost: float | None = None
        api = isinstance(candidate, ApiCandidate)
        if missing:
            limit = f"{'is not said to meet the targets of' if api else 'no measured capacity for'} {_named(missing)}"
        elif isinstance(candidate, ApiCandidate):
            cost, limit = _api_alone(candidate, classes, paid_usd_per_hour)
        else:
            count = ceil(sum(item.rate_rps / rates[item.name] for item in classes) * (1.0 - _ROUNDING))
            if count > candidate.max_replicas:
                limit = f"takes {count} replicas, the limits allow {candidate.max_replicas}"
            else:
                cost = candidate.pool_cost(max(count, 1))
                dearer = cost > paid_usd_per_hour * (1.0 + _ROUNDING)
                limit = "dearer" if dearer else "no dearer; the whole fleet decides"
        named = _named([item.name for item in classes])
        rows.append(Alternative(cls=named, candidate=candidate.label, cost_usd_per_hour=cost, limit=limit))
    return rows


def _api_alone(
    candidate: ApiCandidate, classes: Sequence[RequestClass], paid_usd_per_hour: float
) -> tuple[float | None, str]:
    """What an API costs for all classes of a model, and why it was not taken for all of them."""
    rate_rps, most_rps = sum(item.rate_rps for item in classes), candidate.api.max_rate_rps
    if most_rps is not None and rate_rps > most_rps * (1.0 + _ROUNDING):
        return None, f"takes at most {most_rps:g} requests/s of {rate_rps:.4g}"
    cost = sum(candidate.usd_per_hour[item.name] for item in classes)
    return cost, "dearer" if cost > paid_usd_per_hour * (1.0 + _ROUNDING) else "no dearer; the whole fleet decides"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
