"""Every pool a fleet could have, without its count: legal layouts of each model on each GPU type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from qmodel.perf import layouts
from qmodel.problem import Confidence, GpuOption, Instance, Price, at_confidence, replica_of
from qmodel.types import (
    Api,
    Holding,
    Layout,
    Limits,
    MeasuredCapacity,
    Offer,
    PoolKey,
    Refusal,
    Replica,
    RequestClass,
    Role,
    Router,
    SpotTerms,
    bought,
)

__all__ = [
    "ApiCandidate",
    "CountedPool",
    "Candidate",
    "CandidateSet",
    "MeasuredCandidate",
    "PoolKind",
    "RefusedCandidate",
    "enumerate_candidates",
]

_MOST_REPLICAS = 100_000  # a fleet beyond this is a mistake in the scenario's units


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
        return PoolKey.of(self.model, self.gpu, self.layout, self.precision, self.pool_role)

    @property
    def pool_role(self) -> Role:
        """Role of its pools in a fleet."""
        return "unified"

    @property
    def label(self) -> str:
        """Name for people, e.g. ``h100-sxm tp4``."""
        return f"{self.gpu} {self.layout}" + (f" {self.precision}" if self.precision else "")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCandidate:
    """A layout of a model on a GPU type that cannot be used.

    Attributes:
        limited_by: key of the limit of the fleet that one replica breaks; empty: it breaks none.
    """

    model: str
    gpu: str
    refusal: Refusal
    limited_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateSet:
    """What may be chosen and what was refused."""

    candidates: tuple[Candidate, ...]
    refused: tuple[RefusedCandidate, ...]
    measured: tuple[MeasuredCandidate, ...] = ()

    def of(self, model: str) -> tuple[Candidate, ...]:
        """Candidates that serve ``model``."""
        return tuple(item for item in self.candidates if item.model == model)

    def measured_of(self, model: str) -> tuple[MeasuredCandidate, ...]:
        """Pools of measured capacity that serve ``model``."""
        return tuple(item for item in self.measured if item.model == model)

    def refused_of(self, model: str) -> tuple[RefusedCandidate, ...]:
        """Refusals of layouts of ``model``."""
        return tuple(item for item in self.refused if item.model == model)


def enumerate_candidates(instance: Instance) -> CandidateSet:
    """All candidates of a bound problem by model, GPU and layout, whatever the order of the scenario.

    Args:
        instance: the bound problem.
    """
    candidates: list[Candidate] = []
    measured: list[MeasuredCandidate] = []
    refused: list[RefusedCandidate] = []
    for model in sorted(instance.models):
        for _, option in sorted(instance.gpus.items()):
            for layout, precision, refusal in sorted(_layouts(instance, model, option), key=_layout_order):
                found: Replica | MeasuredCapacity | Refusal = refusal or replica_of(
                    instance, model=model, gpu=option.name, layout=layout, precision=precision
                )
                if isinstance(found, Refusal):
                    refused.append(RefusedCandidate(model=model, gpu=option.name, refusal=found))
                    continue
                barred = _barred(instance.limits, model, option.name, layout)
                if barred is not None:
                    refused.append(barred)
                    continue
                limits, spare = instance.limits, instance.limits.spare(option.name, layout.gpus)
                own = limits.of(option.name)
                limit, key = _most_replicas(limits, option.name, layout.gpus, spare)
                if limit < 1:
                    refused.append(_too_few(model, option.name, layout, limits, key))
                    continue
                kind = PoolKind(
                    model=model,
                    gpu=option.name,
                    layout=layout,
                    precision=precision,
                    price=option.price,
                    max_replicas=limit,
                    spare=spare,
                    spot=own.spot,
                    held_gpus=own.held_gpus(layout.gpus),
                    whole_nodes=own.whole_nodes,
                    offers=own.offers if own.mixes_offers else (),
                    limited_by=key,
                )
                parts = {item.name: getattr(kind, item.name) for item in fields(kind)}
                if isinstance(found, MeasuredCapacity):
                    measured.append(MeasuredCandidate(**parts, capacity=found))
                    continue
                level = instance.policy.confidence
                replica, router = at_confidence(found, level), option.engine.router
                candidates.append(Candidate(**parts, replica=replica, router=router, confidence=level))
    for api in sorted(instance.apis, key=lambda item: (item.model, item.name)):
        served = [item for item in instance.classes_of(api.model) if api.serves(item)]
        if served:
            measured.append(_api_candidate(api, served))
    return CandidateSet(candidates=tuple(candidates), refused=tuple(refused), measured=tuple(measured))


def _api_candidate(api: Api, served: Sequence[RequestClass]) -> ApiCandidate:
    most_rps = float("inf") if api.max_rate_rps is None else api.max_rate_rps
    return ApiCandidate(
        model=api.model,
        gpu=api.name,
        layout=Layout(),
        precision=None,
        price=Price(usd_per_gpu_hour=0.0, tier="api", basis="by the token"),
        max_replicas=1,
        capacity=MeasuredCapacity(max_rate_rps={item.name: most_rps for item in served}),
        api=api,
        usd_per_hour={item.name: api.usd_per_hour(item) for item in served},
    )


def _layouts(instance: Instance, model: str, option: GpuOption) -> Iterator[tuple[Layout, str | None, Refusal | None]]:
    profiles = instance.profiles.get((model, option.name))
    if profiles is not None:
        for profile in profiles:
            yield profile.layout, None, None
        return
    record = instance.models[model]
    if record is None or option.gpu is None or option.node is None:
        return
    rules = instance.layouts
    for name in rules.precisions:
        precision = None if name == "auto" else name
        found = layouts(
            record,
            option.gpu,
            option.node,
            option.fabric,
            tp=rules.tp,
            pp=rules.pp,
            ep=rules.ep,
            dp=rules.dp,
            cp=rules.cp,
            engine=option.engine,
            precision=precision,
        )
        for layout in found.legal:
            yield layout, precision, None
        for refusal in found.refused:
            yield refusal.layout, precision, refusal


def _layout_order(item: tuple[Layout, str | None, Refusal | None]) -> tuple[object, ...]:
    layout, precision, refusal = item
    return (layout.tp, layout.pp, layout.ep, layout.dp, layout.cp, precision or "", refusal is not None)


def _barred(limits: Limits, model: str, gpu: str, layout: Layout) -> RefusedCandidate | None:
    """The refusal of a pool that the scenario forbids."""
    for index, item in enumerate(limits.forbidden):
        if item.bars(model, gpu, layout):
            key = f"layouts.forbid[{index}]"
            refusal = Refusal(
                layout=layout, kind="forbidden", reason=f"forbidden by {key}", change=f"what {key} forbids"
            )
            return RefusedCandidate(model=model, gpu=gpu, refusal=refusal)
    return None


def _most_replicas(limits: Limits, gpu: str, replica_gpus: int, spare: int) -> tuple[int, str]:
    """Replicas that serve in the largest pool that every limit allows, and the key of the limit that says so."""
    most, key = _MOST_REPLICAS, ""
    terms = limits.of(gpu).spot
    for cap in limits.caps:
        one = Holding(gpu=gpu, replica_gpus=replica_gpus, replicas=1)
        if cap.kind == "pools" or not cap.concerns(gpu):
            continue
        low, high = 0, most + spare + 1
        while high - low > 1:
            middle = (low + high) // 2
            fits = limits.used(cap, [replace(one, replicas=middle)]) <= cap.most
            low, high = (middle, high) if fits else (low, middle)
        left = low - spare - (0 if terms is None else terms.lost(low, replica_gpus))
        if left < most:
            most, key = left, cap.key
    return most, key


def _too_few(model: str, gpu: str, layout: Layout, limits: Limits, key: str) -> RefusedCandidate:
    cap = next(item for item in limits.caps if item.key == key)
    spare = limits.spare(gpu, layout.gpus)
    terms = limits.of(gpu).spot
    replicas = 1 + spare if terms is None else terms.replicas_for(1 + spare, layout.gpus)
    need = limits.used(cap, [Holding(gpu=gpu, replica_gpus=layout.gpus, replicas=replicas)])
    told = "one replica" if replicas == 1 else f"one replica with {replicas - 1} to spare"
    told = f"{told} takes {layout.gpus * replicas} GPUs"
    if cap.kind != "stock":
        told = f"{told}, {need:.4g} {cap.unit}"
    refusal = Refusal(
        layout=layout,
        kind="gpus",
        reason=f"{told}, stock of {gpu} is {cap.most:g}" if cap.kind == "stock" else f"{told}, of {cap.most:g} at most",
        change=f"raise {key} to {need:.6g}",
    )
    return RefusedCandidate(model=model, gpu=gpu, refusal=refusal, limited_by=key)
