"""Of engine settings that cost the same, those with which the worst target of a pool has the most room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qmodel.candidates import Candidate, feasible_at
from qmodel.planning.planned_pools import PlannedKind, PlannedPool

__all__ = ["roomiest"]

_GAIN = 0.005  # of the worst ratio: less is not worth other settings


def roomiest(pools: Sequence[PlannedKind], candidates: Sequence[Candidate]) -> list[PlannedKind]:
    """The same pools, each with the settings under which its worst prediction over target is least.

    The type of the KV cache stays: another may cost quality, which is not modelled.

    Args:
        pools: of a plan, every target met; those of measured capacity and of batches stay as they are.
        candidates: all that were enumerated.
    """
    return [_roomiest(item, candidates) if isinstance(item, PlannedPool) else item for item in pools]


def _roomiest(item: PlannedPool, candidates: Sequence[Candidate]) -> PlannedPool:
    chosen, names = item.candidate, [one.name for one in item.classes]
    if not chosen.settings or item.classes[0].batch is not None:
        return item
    others = [one for one in candidates if _same_but_settings(one, chosen) and one.takes(names)]
    if not others:
        return item
    load = [one.part(share) for one, share in zip(item.classes, item.shares, strict=True)]
    able = [chosen, *others]
    ratios = feasible_at(able, load, np.full(len(able), item.replicas), np.ones(len(able)))
    best = int(np.argmin(ratios))
    return replace(item, candidate=able[best]) if ratios[best] < ratios[0] * (1.0 - _GAIN) else item


def _same_but_settings(one: Candidate, other: Candidate) -> bool:
    kinds = [
        (item.model, item.gpu, item.layout, item.precision, item.router, item.settings.get("kv_dtype"))
        for item in (one, other)
    ]
    return one is not other and kinds[0] == kinds[1]
