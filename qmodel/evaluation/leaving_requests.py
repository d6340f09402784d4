"""Rows on requests that leave when they have waited too long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qmodel.evaluation.path_predictions import FleetPredictions
from qmodel.evaluation.results import LeavingRow
from qmodel.queueing import PoolPrediction
from qmodel.types import Fleet, RequestClass

__all__ = ["leaving_rows"]


def leaving_rows(
    classes: Mapping[str, RequestClass], fleet: Fleet, predictions: FleetPredictions
) -> Iterator[LeavingRow]:
    """One row per class with patience and pool whose load is predicted.

    Args:
        classes: request classes by name.
        fleet: pools and routing.
        predictions: of the fleet at nominal step times.
    """
    for name, item in classes.items():
        for path in fleet.routing.get(name, ()) if item.patience is not None else ():
            solved = predictions.pools.get(path.pools[0])
            if not isinstance(solved, PoolPrediction):
                continue
            assert item.patience is not None
            found, rate_rps = solved.impatience, item.rate_rps * path.share
            yield LeavingRow(
                cls=name,
                path=path.label,
                patience_s=item.patience.patience_s,
                retries=item.patience.retries,
                rate_rps=rate_rps,
                goodput_rps=None if found is None else rate_rps * (1.0 - found.abandoned),
                abandoned_share=None if found is None else found.abandoned,
                attempts=None if found is None else found.attempts,
                attempt_rps=None if found is None else rate_rps * found.attempts,
                lost_mean_s=None if found is None else found.lost_mean_s,
            )
