"""Pools and rows of pools under multiples of the demand: where the first target is missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qmodel.evaluation.assessment import slo_ratios
from qmodel.evaluation.loaded_batches import LoadedBatch
from qmodel.evaluation.measured_pools import LoadedMeasured, MeasuredCase
from qmodel.evaluation.mixtures import scoped_values, together
from qmodel.evaluation.path_predictions import FleetPredictions, PoolCase, predict_paths
from qmodel.problem import Instance, at_confidence
from qmodel.queueing import pool_metrics, utilisation
from qmodel.types import Fleet, FloatArray, Metric, Patience, RequestClass, Slo, Stream

__all__ = ["LoadedPart", "LoadedPool", "LoadedRow", "loaded_parts"]

_BISECTIONS = 24
_ROW_BISECTIONS = 14
_LEAST_LOAD = 1e-6  # of the largest stable one: a target missed there is missed at any load


def loaded_parts(instance: Instance, fleet: Fleet, cases: Mapping[str, PoolCase | MeasuredCase]) -> list[LoadedPart]:
    """The parts of a fleet that share no pool: unified pools one by one, and pools joined by paths together.

    Where targets hold over the whole fleet, pools that serve the same class belong together too.
    """
    parts: list[LoadedPart] = []
    predicted = {name: case for name, case in cases.items() if isinstance(case, PoolCase)}
    over_fleet = instance.policy.slo_scope == "fleet"
    for names in fleet.pools_by_class if over_fleet else fleet.joined_pools:
        first = cases[names[0]]
        part: LoadedPart
        if isinstance(first, MeasuredCase):
            part = LoadedMeasured(instance.classes, fleet, first)
        elif (batch := _batch_in(names[0], instance, fleet)) is not None:
            part = LoadedBatch(batch, first, instance.policy.confidence)
        elif first.pool.role == "unified" and len(names) == 1:
            part = LoadedPool(instance, fleet, first)
        else:
            part = LoadedRow(instance, fleet, {name: predicted[name] for name in names})
        if part.classes:
            parts.append(part)
    return parts


def _batch_in(pool: str, instance: Instance, fleet: Fleet) -> RequestClass | None:
    """The part of a batch that a pool serves; None where it serves streams."""
    for item in instance.classes.values():
        if item.batch is not None:
            for path in fleet.routing[item.name]:
                if path.pools == (pool,):
                    return item.part(path.share)
    return None


def _least_served(item: RequestClass) -> float:
    """Share of the requests of a class that must be served: all but those that may leave."""
    return 1.0 - max((slo.target_s for slo in item.slos if slo.metric == "abandoned"), default=0.0)


class LoadedPool:
    """One unified pool under a multiple of its share of the demand."""

    def __init__(self, instance: Instance, fleet: Fleet, case: PoolCase) -> None:
        self.name = case.pool.name
        self.pools = (case.pool.name,)
        self.count = case.serving
        self.router = case.router
        self.confidence = instance.policy.confidence
        self.replica = at_confidence(case.replica, self.confidence)
        parts = [
            (
                item.under(case.pool.model),
                sum(path.share for path in fleet.routing[item.name] if path.pools == (self.name,)),
            )
            for item in instance.classes.values()
        ]
        self.classes: list[RequestClass] = [item for item, share in parts if share > 0]
        self.shares: list[float] = [share for _, share in parts if share > 0]

    @property
    def targets(self) -> list[tuple[str, Slo, str]]:
        """Class, target and place of each column of :meth:`ratios`."""
        return [(item.name, slo, self.name) for item in self.classes for slo in item.slos]

    @property
    def patience(self) -> Patience | None:
        """When its requests leave; None: they wait as long as it takes."""
        return self.classes[0].patience if self.classes else None

    def lost_rps(self, factor: float) -> float:
        """Requests that leave for good at a multiple, requests/s."""
        streams = [item.stream(share) for item, share in zip(self.classes, self.shares, strict=True)]
        wanted: list[tuple[str, Metric, float | None]] = [(self.classes[0].name, "abandoned", None)]
        lost = pool_metrics(self.replica, streams, self.count, factor, self.router, wanted)[0, 0]
        return factor * float(lost) * sum(item.rate_rps for item in streams)

    def ratios(self, factors: Sequence[float]) -> FloatArray:
        """Prediction over target at several multiples, made monotone over them, shape (F, W)."""
        many = len(factors)
        raw = slo_ratios(
            [self.replica] * many,
            self.classes,
            self.shares,
            [self.count] * many,
            list(factors),
            self.router,
            confidence=self.confidence,
        )
        return np.asarray(np.maximum.accumulate(raw, axis=0))

    def utilisations(self, factors: Sequence[float]) -> list[float]:
        """Offered over largest stable load at several multiples."""
        streams: list[Stream] = [item.stream(share) for item, share in zip(self.classes, self.shares, strict=True)]
        many = len(factors)
        found = utilisation([self.replica] * many, streams, np.array([self.count] * many), np.asarray(factors))
        return [float(value) for value in found]

    def limit(self) -> float:
        """The largest multiple at which every target holds, 0 where none does."""
        at_one = self.utilisations([1.0])[0] * max(_least_served(item) for item in self.classes)
        high = 1.0 / at_one if at_one > 0 else np.inf
        low = 0.0
        if not np.isfinite(high) or self.ratios([1e-6 * high]).max() > 1.0:
            return 0.0
        for _ in range(_BISECTIONS // 3):
            grid = np.linspace(low, high, 9)[1:-1]
            met = (self.ratios(grid.tolist()) <= 1.0).all(axis=1)
            good = int(np.argmin(met)) if not met.all() else met.size
            low, high = (grid[good - 1] if good else low), (grid[good] if good < met.size else high)
        return float(low)

    def binding(self, factor: float) -> str:
        """What is missed most at a multiple."""
        ratios = self.ratios([factor])[0]
        if not np.isfinite(ratios).all():
            return f"{self.name} is not stable beyond this load"
        name, slo, place = self.targets[int(np.argmax(ratios))]
        return f"{name} {slo.key} in {place}"


class LoadedRow:
    """Pools joined by paths of several pools, or by targets over several paths, under a multiple of the demand."""

    def __init__(self, instance: Instance, fleet: Fleet, cases: Mapping[str, PoolCase]) -> None:
        self._level = "p90" if instance.policy.confidence == "p90" else "nominal"
        self._scope = instance.policy.slo_scope
        self._cases = cases
        self.pools = tuple(cases)
        routing = {
            name: tuple(path for path in paths if path.pools[0] in cases) for name, paths in fleet.routing.items()
        }
        self._fleet = Fleet(pools={name: case.pool for name, case in cases.items()}, routing=routing)
        self.classes = [
            item.under(self._fleet.model_on(routing[item.name][0]))
            for item in instance.classes.values()
            if routing.get(item.name)
        ]
        self._known: dict[float, FleetPredictions] = {}

    @property
    def targets(self) -> list[tuple[str, Slo, str]]:
        """Class, target and path of each column of :meth:`ratios`; ``the fleet`` where it is of several paths."""
        return [
            (item.name, slo, paths[0].label if len(paths) == 1 else "the fleet")
            for item in self.classes
            for paths in together(self._fleet.routing[item.name], self._scope)
            for slo in item.slos
        ]

    def ratios(self, factors: Sequence[float]) -> FloatArray:
        """Prediction over target at several multiples, made monotone over them, shape (F, W)."""
        return np.asarray(np.maximum.accumulate([self._ratios(factor) for factor in factors], axis=0))

    def utilisations(self, factors: Sequence[float]) -> list[float]:
        """Of the busiest pool or link at several multiples."""
        found = []
        for factor in factors:
            at = self._at(factor)
            found.append(max(item.utilisation for item in (*at.pools.values(), *at.links.values())))
        return found

    def limit(self) -> float:
        """The largest multiple at which every target holds, 0 where none does."""
        high = 1.0 / self.utilisations([1.0])[0]
        low = _LEAST_LOAD * high
        if not np.isfinite(high) or self._ratios(low).max() > 1.0:
            return 0.0
        for _ in range(_ROW_BISECTIONS):
            middle = (low + high) / 2.0
            if self._ratios(middle).max() <= 1.0:
                low = middle
            else:
                high = middle
        return float(low)

    def binding(self, factor: float) -> str:
        """What is missed most at a multiple."""
        at = self._at(factor)
        for name, item in (*at.pools.items(), *((f"the link into {name}", link) for name, link in at.links.items())):
            if item.overload is not None:
                return f"{name} is not stable beyond this load"
        name, slo, place = self.targets[int(np.argmax(self._ratios(factor)))]
        return f"{name} {slo.key} in {place}"

    def _ratios(self, factor: float) -> FloatArray:
        at = self._at(factor)
        values = []
        for item in self.classes:
            for paths in together(self._fleet.routing[item.name], self._scope):
                for slo in item.slos:
                    (value,) = scoped_values(at, item.name, [paths], slo, self._level)
                    values.append(np.inf if value is None else value / slo.target_s)
        return np.asarray(values)

    def _at(self, factor: float) -> FleetPredictions:
        if factor not in self._known:
            classes = {item.name: item.part(factor) for item in self.classes}
            self._known[factor] = predict_paths(classes, self._cases, self._fleet, level=self._level)
        return self._known[factor]


LoadedPart = LoadedPool | LoadedRow | LoadedMeasured | LoadedBatch
