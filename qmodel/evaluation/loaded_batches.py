"""A pool with a batch under multiples of its requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qmodel.evaluation.batches import BatchPool
from qmodel.evaluation.path_predictions import PoolCase
from qmodel.types import FloatArray, RequestClass, Slo

__all__ = ["LoadedBatch"]

_MOST_REQUESTS = 1_000_000
_FINEST = 0.002  # relative width at which the limit is known


class LoadedBatch:
    """The part of a batch that a pool serves, and multiples of it, in whole requests.

    Args:
        item: the class with the requests of the pool.
        case: the pool at nominal step times.
        confidence: ``nominal`` or ``p90``: the level at which targets are looked at.
    """

    def __init__(self, item: RequestClass, case: PoolCase, confidence: str) -> None:
        self.name = case.pool.name
        self.pools = (case.pool.name,)
        self.classes: list[RequestClass] = [item]
        self._case, self._level = case, confidence
        self._known: dict[int, BatchPool] = {}

    @property
    def targets(self) -> list[tuple[str, Slo, str]]:
        """Class, target and place of each column of :meth:`ratios`."""
        return [(self.classes[0].name, slo, self.name) for slo in self.classes[0].slos]

    def ratios(self, factors: Sequence[float]) -> FloatArray:
        """Prediction over target at several multiples, made monotone over them, shape (F, W)."""
        return np.asarray(np.maximum.accumulate([self._ratios(self._at(factor)) for factor in factors], axis=0))

    def utilisations(self, factors: Sequence[float]) -> list[float]:
        """Mean time that the batch takes over its deadline at several multiples."""
        return [self._at(factor).utilisation for factor in factors]

    def limit(self) -> float:
        """The largest multiple, in whole requests, at which every target holds, 0 where none does."""
        whole = self._requests(1.0)
        low, high = 0, whole
        while high < _MOST_REQUESTS and self._meets(high):
            low, high = high, min(2 * high, _MOST_REQUESTS)
        while high - low > max(1.0, _FINEST * high):
            middle = (low + high) // 2
            low, high = (middle, high) if self._meets(middle) else (low, middle)
        return low / whole

    def binding(self, factor: float) -> str:
        """What is missed most at a multiple."""
        found = self._at(factor)
        if found.found.overload is not None:
            return f"{self.name} has no memory for the longest request beyond this load"
        name, slo, place = self.targets[int(np.argmax(self._ratios(found)))]
        return f"{name} {slo.key} in {place}"

    def _meets(self, requests: int) -> bool:
        return float(self._ratios(self._solved(requests)).max()) <= 1.0

    def _ratios(self, found: BatchPool) -> FloatArray:
        return np.array([found.value_s(slo, self._level) / slo.target_s for slo in found.item.slos])

    def _requests(self, factor: float) -> int:
        batch = self.classes[0].batch
        assert batch is not None
        return min(batch.part(factor).requests, _MOST_REQUESTS)

    def _at(self, factor: float) -> BatchPool:
        return self._solved(self._requests(factor))

    def _solved(self, requests: int) -> BatchPool:
        if requests not in self._known:
            item = self.classes[0].part(requests / self._requests(1.0))
            self._known[requests] = BatchPool.of(item, self._case)
        return self._known[requests]
