"""Every pool a fleet could have, without its count: legal layouts of each model on each GPU type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qmodel.perf import layouts
from qmodel.problem import GpuOption, Instance, Price, at_confidence, replica_of
from qmodel.types import Layout, Refusal, Replica, Router

__all__ = ["Candidate", "CandidateSet", "RefusedCandidate", "enumerate_candidates"]

_MOST_REPLICAS = 100_000  # a fleet beyond this is a mistake in the scenario's units


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A pool without its count.

    Attributes:
        replica: at the confidence in force.
        precision: weight type, None: the checkpoint's own.
        max_replicas: what the stock allows.
    """

    model: str
    gpu: str
    layout: Layout
    precision: str | None
    replica: Replica
    router: Router
    price: Price
    max_replicas: int

    @property
    def cost_usd_per_hour(self) -> float:
        """Of one replica."""
        return self.price.usd_per_gpu_hour * self.layout.gpus

    @property
    def label(self) -> str:
        """Name for people, e.g. ``h100-sxm tp4``."""
        return f"{self.gpu} {self.layout}" + (f" {self.precision}" if self.precision else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCandidate:
    """A layout of a model on a GPU type that cannot be used."""

    model: str
    gpu: str
    refusal: Refusal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateSet:
    """What may be chosen and what was refused."""

    candidates: tuple[Candidate, ...]
    refused: tuple[RefusedCandidate, ...]

    def of(self, model: str) -> tuple[Candidate, ...]:
        """Candidates that serve ``model``."""
        return tuple(item for item in self.candidates if item.model == model)

    def refused_of(self, model: str) -> tuple[RefusedCandidate, ...]:
        """Refusals of layouts of ``model``."""
        return tuple(item for item in self.refused if item.model == model)


def enumerate_candidates(instance: Instance) -> CandidateSet:
    """All candidates of a bound problem, in a fixed order: by model, GPU and layout as the scenario lists them.

    Args:
        instance: the bound problem.
    """
    candidates: list[Candidate] = []
    refused: list[RefusedCandidate] = []
    for model in instance.models:
        for option in instance.gpus.values():
            for layout, precision, refusal in _layouts(instance, model, option):
                found: Replica | Refusal = refusal or replica_of(
                    instance, model=model, gpu=option.name, layout=layout, precision=precision
                )
                if isinstance(found, Refusal):
                    refused.append(RefusedCandidate(model=model, gpu=option.name, refusal=found))
                    continue
                limit = _MOST_REPLICAS if option.max_count is None else option.max_count // layout.gpus
                if limit < 1:
                    refused.append(_too_few(model, option, layout))
                    continue
                candidates.append(
                    Candidate(
                        model=model,
                        gpu=option.name,
                        layout=layout,
                        precision=precision,
                        replica=at_confidence(found, instance.policy.confidence),
                        router=option.engine.router,
                        price=option.price,
                        max_replicas=limit,
                    )
                )
    return CandidateSet(candidates=tuple(candidates), refused=tuple(refused))


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


def _too_few(model: str, option: GpuOption, layout: Layout) -> RefusedCandidate:
    refusal = Refusal(
        layout=layout,
        kind="gpus",
        reason=f"one replica takes {layout.gpus} GPUs, stock of {option.name} is {option.max_count}",
        change=f"raise fleet.gpus.{option.name}.max_count to {layout.gpus}",
    )
    return RefusedCandidate(model=model, gpu=option.name, refusal=refusal)
