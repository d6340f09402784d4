"""Pools of a plan before they are a fleet: a candidate, its count, and the classes it serves."""

from __future__ import annotations

from dataclasses import dataclass

from qmodel.candidates import ApiCandidate, Candidate, MeasuredCandidate, PoolKind
from qmodel.types import Holding, RequestClass

__all__ = ["PlannedKind", "PlannedMeasured", "PlannedPool"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedKind:
    """A pool with the classes it serves and the share of each, whatever is known of its replicas.

    Attributes:
        replicas: that serve; the fleet has those that may be lost beside them.
        shares: share of each class's demand, by class name, in (0, 1].
    """

    candidate: PoolKind
    replicas: int
    classes: tuple[RequestClass, ...]
    shares: tuple[float, ...]

    @property
    def holding(self) -> Holding:
        """The pool as limits see it."""
        return self.candidate.holding(self.replicas)

    @property
    def cost_usd_per_hour(self) -> float:
        """Of its GPUs at the cheapest price, those to spare included; its fleet may pay more."""
        gpus = self.holding.replica_gpus * self.holding.replicas
        return self.candidate.price.usd_per_gpu_hour * gpus * self.candidate.held_share


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedPool(PlannedKind):
    """A pool whose replicas have step times."""

    candidate: Candidate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedMeasured(PlannedKind):
    """A pool of measured capacity, or an API, which has no replicas."""

    candidate: MeasuredCandidate

    @property
    def cost_usd_per_hour(self) -> float:
        """As of any pool; of an API, what its requests cost."""
        if not isinstance(self.candidate, ApiCandidate):
            return self.candidate.price.usd_per_gpu_hour * self.holding.replica_gpus * self.holding.replicas
        whole = self.candidate.usd_per_hour
        return sum(whole[item.name] * share for item, share in zip(self.classes, self.shares, strict=True))
