"""The average quality of classes that several models may serve, from the routing of a fleet."""

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
        average = sum(shares[model] * quality for model, quality in item.alternatives)
        met = item.min_quality is None or average >= item.min_quality * (1.0 - _ROUNDING)
        for model, quality in item.alternatives:
            yield QualityRow(
                cls=name,
                model=model,
                quality=quality,
                share=shares[model],
                average=average,
                min_quality=item.min_quality,
                met=met,
            )
