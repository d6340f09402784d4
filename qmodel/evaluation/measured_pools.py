"""Pools of measured capacity: utilisation by what was measured, targets met while it is at most one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.problem import Price
from qmodel.types import Fleet, FloatArray, MeasuredCapacity, Overload, Pool, RequestClass, Slo, SloRow

__all__ = [
    "FULL",
    "LoadedMeasured",
    "MeasuredCase",
    "measured_binding",
    "measured_overload",
    "measured_row",
]

FULL = 1.0 + 1e-6  # a pool that a solver filled to the brim is full, not beyond


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredCase:
    """One pool of measured capacity.

    Attributes:
        capacity: of one replica.
        price: per GPU and hour.
        spare: replicas that are taken as lost.
    """

    pool: Pool
    capacity: MeasuredCapacity
    price: Price
    spare: int = 0

    @property
    def serving(self) -> int:
        """Replicas that serve."""
        return self.pool.replicas - self.spare

    @property
    def limited_by(self) -> str:
        """What stops more, in words."""
        return "measured capacity"

    def utilisation(self, classes: Mapping[str, RequestClass], fleet: Fleet) -> float:
        """Share of the measured capacity of the serving replicas that a fleet's routing asks for."""
        return self.capacity.utilisation(_rates_to(self.pool.name, classes, fleet), self.serving)


def measured_overload(case: MeasuredCase, utilisation: float) -> Overload | None:
    """Why a pool cannot carry its load; None where it can."""
    if utilisation <= FULL:
        return None
    count = case.serving
    reason = f"takes {utilisation * count:.4g} replicas at the measured capacities, has {count}"
    return Overload(kind="rate", value=utilisation, limit=1.0, reason=reason)


def measured_binding(case: MeasuredCase, utilisation: float) -> str:
    """What stops one replica less."""
    if case.serving == 1:
        return "one replica is the least"
    fewer = utilisation * case.serving / (case.serving - 1)
    return "measured capacity" if fewer > FULL else "spare: one replica less still meets every target"


def measured_row(cls: str, path: str, slo: Slo, *, met: bool) -> SloRow:
    """A target without a prediction: met as long as nothing on its path carries more than was measured."""
    return SloRow(
        cls=cls,
        path=path,
        metric=slo.metric,
        stat=slo.stat,
        target_s=slo.target_s,
        predicted_s=None,
        low_s=None,
        high_s=None,
        met=met,
        met_at_p90=met,
        basis="measured",
    )


class LoadedMeasured:
    """A pool of measured capacity under a multiple of its share of the demand."""

    def __init__(self, classes: Mapping[str, RequestClass], fleet: Fleet, case: MeasuredCase) -> None:
        self.name = case.pool.name
        self.pools = (case.pool.name,)
        model = case.pool.model
        self.classes = [classes[name].under(model) for name in _rates_to(self.name, classes, fleet)]
        self._what = case.limited_by
        self._at_one = case.utilisation(classes, fleet)

    @property
    def targets(self) -> list[tuple[str, Slo, str]]:
        """Class, target and place of each column of :meth:`ratios`."""
        return [(item.name, slo, self.name) for item in self.classes for slo in item.slos]

    def ratios(self, factors: Sequence[float]) -> FloatArray:
        """Utilisation at several multiples, which stands for prediction over target, shape (F, W)."""
        many = len(self.targets)
        return np.repeat(np.array(self.utilisations(factors))[:, None], many, axis=1)

    def utilisations(self, factors: Sequence[float]) -> list[float]:
        """Share of the measured capacity at several multiples."""
        return [self._at_one * factor for factor in factors]

    def limit(self) -> float:
        """The largest multiple within the measured capacity."""
        return 1.0 / self._at_one if self._at_one > 0.0 else np.inf

    def binding(self, factor: float) -> str:
        """What stops more."""
        return f"{self._what} of {self.name}"


def _rates_to(pool: str, classes: Mapping[str, RequestClass], fleet: Fleet) -> dict[str, float]:
    """Requests/s of each class that come to a pool."""
    return {
        name: classes[name].rate_rps * share
        for name, paths in fleet.routing.items()
        if name in classes and (share := sum(path.share for path in paths if path.pools == (pool,))) > 0.0
    }
