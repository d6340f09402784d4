"""Shares and average quality of the models that serve a class, from the routing of a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qmodel.evaluation.results import QualityRow
from qmodel.types import Fleet, RequestClass

__all__ = ["quality_rows"]

_ROUNDING = 1e-6  # relative


def quality_rows(classes: Mapping[str, RequestClass], fleet: Fleet) -> Iterator[QualityRow]:
    """One row per class that states its models and model: quality, share of the requests, and the average of all.

    Args:
        classes: request classes by name.
        fleet: pools and routing; the shares of a class sum to 1.
    """
    for name, item in classes.items():
        shares = dict.fromkeys(item.models, 0.0)
        for path in fleet.routing.get(name, ()):
            model = fleet.pools[path.pools[0]].model
            shares[model] = shares.get(model, 0.0) + path.share
        scores = [tier.quality for tier in item.alternatives if tier.quality is not None]
        average: float | None = None
        if scores:
            average = sum(shares[tier.model] * (tier.quality or 0.0) for tier in item.alternatives)
        reached = item.min_quality is None or (average or 0.0) >= item.min_quality * (1.0 - _ROUNDING)
        for tier in item.alternatives:
            share = shares[tier.model]
            yield QualityRow(
                cls=name,
                model=tier.model,
                quality=tier.quality,
                share=share,
                least=tier.least,
                most=tier.most,
                average=average,
                min_quality=item.min_quality,
                met=reached and tier.least - _ROUNDING <= share <= tier.most + _ROUNDING,
            )
