"""Every pool a fleet could have, without its count: legal layouts of each model on each GPU type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from qmodel.candidates.pool_kinds import ApiCandidate, Candidate, MeasuredCandidate, PoolKind
from qmodel.perf import layouts
from qmodel.problem import (
    GpuOption,
    Instance,
    Price,
    at_confidence,
    profile_for,
    replica_of,
    settings_of,
    with_engine,
)
from qmodel.types import (
    Api,
    Engine,
    Holding,
    Layout,
    Limits,
    MeasuredCapacity,
    Refusal,
    Replica,
    RequestClass,
)

__all__ = ["CandidateSet", "RefusedCandidate", "enumerate_candidates", "priced_for"]

_MOST_REPLICAS = 100_000  # a fleet beyond this is a mistake in the scenario's units


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

    def of(self, model: str, cls: str | None = None) -> tuple[Candidate, ...]:
        """Candidates that serve ``model``, with settings of a class if one is named."""
        named = [] if cls is None else [cls]
        return tuple(item for item in self.candidates if item.model == model and item.takes(named))

    def measured_of(self, model: str) -> tuple[MeasuredCandidate, ...]:
        """Pools of measured capacity that serve ``model``."""
        return tuple(item for item in self.measured if item.model == model)

    def refused_of(self, model: str) -> tuple[RefusedCandidate, ...]:
        """Refusals of layouts of ``model``."""
        return tuple(item for item in self.refused if item.model == model)


def enumerate_candidates(instance: Instance) -> CandidateSet:
    """All candidates of a bound problem by model, GPU, layout and settings, whatever the order of the scenario.

    Of settings with which a layout has the same replica only the first are a candidate.

    Args:
        instance: the bound problem.
    """
    candidates: list[Candidate] = []
    measured: list[MeasuredCandidate] = []
    refused: list[RefusedCandidate] = []
    for model in sorted(instance.models):
        for _, option in sorted(instance.gpus.items()):
            tried: dict[tuple[Layout, str | None, tuple[str, ...]], list[PoolKind | RefusedCandidate]] = {}
            for served, settings, layout, precision, refusal in _ways(instance, model, option):
                found = _candidate(instance, model, option, layout, precision, settings, served, refusal)
                others = tried.setdefault((layout, precision, served), [])
                if not any(_same(found, other) for other in others):
                    others.append(found)
            for _, kinds in sorted(tried.items(), key=lambda item: _layout_order(*item[0])):
                usable = [item for item in kinds if isinstance(item, PoolKind)]
                candidates += [item for item in usable if isinstance(item, Candidate)]
                measured += [item for item in usable if isinstance(item, MeasuredCandidate)]
                told = [item for item in kinds if isinstance(item, RefusedCandidate)]
                refused += [] if usable else told[:1]
    for api in sorted(instance.apis, key=lambda item: (item.model, item.name)):
        served_by_api = [item for item in instance.classes_of(api.model) if api.serves(item)]
        if served_by_api:
            measured.append(_api_candidate(api, served_by_api))
    return CandidateSet(candidates=tuple(candidates), refused=tuple(refused), measured=_each_once(measured))


def _ways(
    instance: Instance, model: str, option: GpuOption
) -> Iterator[tuple[tuple[str, ...], Mapping[str, object], Layout, str | None, Refusal | None]]:
    """Classes with the same settings to choose from, a choice, and a layout with its refusal, if any."""
    groups: dict[tuple[str, ...], tuple[Mapping[str, object], ...]] = {}
    names = [item.name for item in instance.classes_of(model)]
    for name in names:
        alike = tuple(sorted(other for other in names if instance.alike(name, other)))
        groups[alike] = settings_of(instance, name, option.name)
    for alike, choices in sorted(groups.items()):
        for settings in choices:
            engine = with_engine(option.engine, settings, instance.drafts)
            for layout, precision, refusal in _layouts(instance, model, option, engine):
                yield alike, settings, layout, precision, refusal


def _candidate(
    instance: Instance,
    model: str,
    option: GpuOption,
    layout: Layout,
    precision: str | None,
    settings: Mapping[str, object],
    served: tuple[str, ...],
    refusal: Refusal | None,
) -> PoolKind | RefusedCandidate:
    """The pool of a layout with some settings, or why there is none."""
    profile = profile_for(instance, model, option.name, layout)
    if profile is not None and profile.max_num_seqs is not None:  # as measured, whatever the engine is set to
        settings = {name: value for name, value in settings.items() if name != "max_num_seqs"}
    engine = with_engine(option.engine, settings, instance.drafts)
    found: Replica | MeasuredCapacity | Refusal = refusal or replica_of(
        instance, model=model, gpu=option.name, layout=layout, engine=engine, precision=precision
    )
    if isinstance(found, Refusal):
        return RefusedCandidate(model=model, gpu=option.name, refusal=found)
    barred = _barred(instance.limits, model, option.name, layout)
    if barred is not None:
        return barred
    limits, spare = instance.limits, instance.limits.spare(option.name, layout.gpus)
    own = limits.of(option.name)
    limit, key = _most_replicas(limits, option.name, layout.gpus, spare)
    if limit < 1:
        return _too_few(model, option.name, layout, limits, key)
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
        return MeasuredCandidate(**parts, capacity=found)
    level = instance.policy.confidence
    parts |= {"settings": settings, "served": frozenset(served)}
    return Candidate(**parts, replica=at_confidence(found, level), router=engine.router, confidence=level)


def _same(first: PoolKind | RefusedCandidate, second: PoolKind | RefusedCandidate) -> bool:
    """Whether two pools of one layout and weight type are the same but for settings that change nothing."""
    if isinstance(first, MeasuredCandidate) and isinstance(second, MeasuredCandidate):
        return True
    if not isinstance(first, Candidate) or not isinstance(second, Candidate):
        return False
    return first.router == second.router and first.replica.to_dict() == second.replica.to_dict()


def _each_once(measured: Sequence[MeasuredCandidate]) -> tuple[MeasuredCandidate, ...]:
    """Measured pools of one layout once: settings change nothing of what was measured."""
    found: dict[tuple[object, ...], MeasuredCandidate] = {}
    for item in measured:
        found.setdefault((item.key, item.pool_role), item)
    return tuple(found.values())


def priced_for(measured: Sequence[MeasuredCandidate], classes: Sequence[RequestClass]) -> list[MeasuredCandidate]:
    """The same pools, APIs at what they cost for requests of other lengths.

    Args:
        measured: pools of measured capacity, and APIs.
        classes: of their model, with the lengths that count.
    """
    return [
        replace(item, usd_per_hour={one.name: item.api.usd_per_hour(one) for one in classes if item.api.serves(one)})
        if isinstance(item, ApiCandidate)
        else item
        for item in measured
    ]


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


def _layouts(
    instance: Instance, model: str, option: GpuOption, engine: Engine
) -> Iterator[tuple[Layout, str | None, Refusal | None]]:
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
            engine=engine,
            precision=precision,
        )
        for layout in found.legal:
            yield layout, precision, None
        for refusal in found.refused:
            yield refusal.layout, precision, refusal


def _layout_order(layout: Layout, precision: str | None, served: tuple[str, ...]) -> tuple[object, ...]:
    return (layout.tp, layout.pp, layout.ep, layout.dp, layout.cp, precision or "", served)


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
