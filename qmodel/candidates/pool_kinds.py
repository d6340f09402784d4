"""A pool without its count, whatever is known of its replicas: step times, measured rates, or an API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from qmodel.problem import Confidence, Price
from qmodel.types import (
    Api,
    Holding,
    Layout,
    MeasuredCapacity,
    Offer,
    PoolKey,
    Replica,
    Role,
    Router,
    SpotTerms,
    bought,
    settings_text,
)

__all__ = ["ApiCandidate", "Candidate", "CountedPool", "MeasuredCandidate", "PoolKind"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolKind:
    """A pool without its count, whatever is known of its replicas.

    Attributes:
        precision: weight type, None: the checkpoint's own.
        max_replicas: that serve; what the limits of the fleet allow.
        spare: replicas of every pool that are there to be lost.
        spot: its replicas are taken away now and then, and every pool has more for that; None: they stay.
        held_gpus: set aside for one replica; None: those of its layout.
        whole_nodes: what is set aside is what is paid.
        offers: where its GPUs may be bought at several prices, these; ``price`` is then the cheapest.
        limited_by: key of the limit that sets ``max_replicas``; empty: none does.
        held_share: share of the time in which its GPUs are held and paid.
        settings: engine settings that differ from those of its GPU type or are chosen, by key.
        served: names of the classes whose settings these are; None: any.
    """

    model: str
    gpu: str
    layout: Layout
    precision: str | None
    price: Price
    max_replicas: int
    spare: int = 0
    spot: SpotTerms | None = None
    held_gpus: int | None = None
    whole_nodes: bool = False
    offers: tuple[Offer, ...] = ()
    limited_by: str = ""
    held_share: float = 1.0
    settings: Mapping[str, object] = field(default_factory=dict)
    served: frozenset[str] | None = None

    @property
    def cost_usd_per_hour(self) -> float:
        """Of one replica at the cheapest price; where nodes are paid whole, of what it fills of one."""
        return self.price.usd_per_gpu_hour * self.paid_gpus * self.held_share

    @property
    def most_usd_per_hour(self) -> float:
        """Of one replica at the dearest price at which its GPUs may have to be bought."""
        if not self.offers:
            return self.cost_usd_per_hour
        unlimited = [offer for offer in self.offers if offer.max_gpus is None]
        return (unlimited[0] if unlimited else self.offers[-1]).usd_per_gpu_hour * self.paid_gpus

    @property
    def paid_gpus(self) -> int:
        """GPUs that one replica pays for."""
        return self.taken_gpus if self.whole_nodes else self.layout.gpus

    @property
    def taken_gpus(self) -> int:
        """GPUs that one replica keeps from others."""
        return self.layout.gpus if self.held_gpus is None else self.held_gpus

    def pool_replicas(self, serving: int) -> int:
        """Replicas of a pool of which so many serve when those that may be lost are."""
        left = serving + self.spare
        return left if self.spot is None or not serving else self.spot.replicas_for(left, self.layout.gpus)

    def least_cost(self, serving: int) -> float:
        """Of a pool with so many replicas beside its spare ones at the cheapest price, USD/h."""
        return self.cost_usd_per_hour * self.pool_replicas(serving)

    def pool_cost(self, serving: int) -> float:
        """Of such a pool; where GPUs are bought at several prices, if it were alone."""
        if not self.offers:
            return self.least_cost(serving)
        return sum(item.cost_usd_per_hour for item in bought(self.offers, self.paid_gpus * self.pool_replicas(serving)))

    def pool_gpus(self, serving: int) -> int:
        """GPUs that such a pool keeps from others."""
        return self.taken_gpus * self.pool_replicas(serving)

    def holding(self, serving: int) -> Holding:
        """Such a pool as limits see it."""
        return Holding(gpu=self.gpu, replica_gpus=self.layout.gpus, replicas=self.pool_replicas(serving))

    @property
    def key(self) -> PoolKey:
        """What its replicas are, to be found among those that run already."""
        return PoolKey.of(self.model, self.gpu, self.layout, self.precision, self.pool_role, self.settings)

    @property
    def pool_role(self) -> Role:
        """Role of its pools in a fleet."""
        return "unified"

    @property
    def label(self) -> str:
        """Name for people, e.g. ``h100-sxm tp4``."""
        return f"{self.gpu} {self.layout} {self.variant}".rstrip()

    @property
    def variant(self) -> str:
        """Weight type and settings where they are not the usual ones, e.g. ``fp8 (max_num_seqs 64)``; else empty."""
        weights = self.precision or ""
        return f"{weights} ({settings_text(self.settings)})".strip() if self.settings else weights

    def takes(self, names: Collection[str]) -> bool:
        """Whether its settings are among those of every class."""
        return self.served is None or self.served.issuperset(names)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate(PoolKind):
    """A pool without its count whose latency is predicted.

    Attributes:
        replica: at the confidence in force.
        confidence: that level; at ``p90`` predictions also take the upper end of their queueing band.
    """

    replica: Replica
    router: Router
    confidence: Confidence = "nominal"

    @property
    def adds_up(self) -> bool:
        """Whether n replicas carry n times what one does: a random split gives each its own independent share.

        A pool on spot GPUs is a whole, because how many are lost depends on how many there are.
        """
        return self.router == "random" and self.spot is None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredCandidate(PoolKind):
    """A pool without its count that carries measured rates, linear in the mix and in the count."""

    capacity: MeasuredCapacity

    @property
    def adds_up(self) -> bool:
        """Whether n replicas carry n times what one does; measured capacities are taken so."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ApiCandidate(MeasuredCandidate):
    """A model that an API serves, for the classes that may be sent there.

    It is a pool of measured capacity without replicas: what a class takes is its rate over the limit on the rate.

    Attributes:
        usd_per_hour: of the whole demand of each class that is served, by name.
    """

    api: Api
    usd_per_hour: Mapping[str, float]

    @property
    def label(self) -> str:
        """Name for people."""
        return f"API {self.gpu}"

    @property
    def pool_role(self) -> Role:
        """Role of its pools in a fleet."""
        return "api"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountedPool:
    """A pool with its count.

    Attributes:
        candidate: the pool without its count.
        replicas: its count, without those that are there to be lost.
    """

    candidate: Candidate
    replicas: int

    @property
    def cost_usd_per_hour(self) -> float:
        """Of the whole pool."""
        return self.candidate.pool_cost(self.replicas)

    @property
    def gpus(self) -> int:
        """GPUs that the whole pool keeps from others."""
        return self.candidate.pool_gpus(self.replicas)
