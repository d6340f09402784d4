"""The bound problem: typed classes, GPU options and rules, with every name resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from qmodel.types import (
    Api,
    Engine,
    Fabric,
    Gpu,
    Layout,
    Limits,
    MeasuredCapacity,
    Model,
    Node,
    Offer,
    Periods,
    Replica,
    RequestClass,
    Slo,
    SloScope,
    Topology,
)
from qmodel.types.constants import EngineConstants

__all__ = ["Confidence", "GpuOption", "Instance", "LayoutRules", "Objective", "Policy", "Price", "Profile"]

Confidence = Literal["nominal", "p90"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one GPU costs, and by which rule that was decided.

    Attributes:
        usd_per_gpu_hour: US dollars per GPU and hour.
        tier: ``on_demand``, ``reserved_1y``, ``reserved_3y`` or ``spot``.
        basis: where the figure comes from, in words.
    """

    usd_per_gpu_hour: float
    tier: str
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOption:
    """One GPU type that the fleet may use.

    Attributes:
        name: the name the scenario uses.
        gpu: catalog record; None where only profiles describe it.
        node, fabric, topology: how its GPUs are joined; None where only profiles describe it.
        price: of the cheapest offer.
        offers: at which GPUs can be had, in merit order.
        engine: engine settings on this GPU; of those with several values, ones that leave prompts the most room.
    """

    name: str
    gpu: Gpu | None
    node: Node | None
    fabric: Fabric | None
    topology: Topology | None
    price: Price
    engine: Engine
    offers: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """A user's own measurement of one model on one GPU type and layout: step times, or rates it carries.

    Attributes:
        max_num_seqs: as measured; None: from the engine settings.
    """

    model: str
    gpu: str
    layout: Layout
    replica: Replica | MeasuredCapacity
    max_num_seqs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRules:
    """Which layouts may be enumerated; ``auto``: what the model and the hardware make worth trying.

    Attributes:
        precisions: weight types to consider; ``auto`` is the checkpoint's own.
        disaggregate: whether prefill and decode pools are tried beside unified ones; ``auto``: where no fleet of
            unified pools is feasible.
    """

    tp: tuple[int, ...] = (1, 2, 4, 8)
    pp: tuple[int, ...] = (1, 2)
    ep: tuple[int, ...] | Literal["auto"] = "auto"
    dp: tuple[int, ...] | Literal["auto"] = "auto"
    cp: tuple[int, ...] = (1,)
    precisions: tuple[str, ...] = ("auto",)
    disaggregate: Literal["auto"] | bool = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules of the decision.

    Attributes:
        slo_scope: whether targets hold in every pool that serves a class, or for all of its requests together.
    """

    confidence: Confidence = "nominal"
    slo_scope: SloScope = "pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a plan makes small or large.

    Attributes:
        kind: ``cost``; ``latency``: one target within the limits of the fleet; ``served``: requests within them.
        cls: class of that target, empty for the others.
        target: the target, its level being what is looked for; None for the others.
    """

    kind: Literal["cost", "latency", "served"] = "cost"
    cls: str = ""
    target: Slo | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instance:
    """One planning problem, ready for the mathematics.

    Attributes:
        title: for people.
        classes: by name, in the order of the scenario.
        models: catalog records by the name the classes use; None where only profiles describe the model.
        gpus: options by name.
        limits: what bounds a fleet beside its targets.
        profiles: by (model, gpu); such a pair has only these candidates.
        settings: by class and GPU type, the engine settings that its pools there may have, over those of the GPU; a
            class that is not here has those of the GPU.
        drafts: records of models that draft, by name.
        apis: models that somebody else serves.
        objective: what a plan makes small or large.
        periods: the hours of the day where demand differs; ``classes`` then have their largest rates. None: they do
            not differ.
        assumptions: sentences a reader must know.
        scenario: the resolved scenario as plain data.
        catalog_digest: identifies the catalog.
    """

    title: str
    classes: Mapping[str, RequestClass]
    models: Mapping[str, Model | None]
    gpus: Mapping[str, GpuOption]
    profiles: Mapping[tuple[str, str], tuple[Profile, ...]]
    layouts: LayoutRules
    policy: Policy
    constants: EngineConstants
    limits: Limits = field(default_factory=Limits)
    settings: Mapping[tuple[str, str], tuple[Mapping[str, object], ...]] = field(default_factory=dict)
    drafts: Mapping[str, Model] = field(default_factory=dict)
    apis: tuple[Api, ...] = ()
    objective: Objective = field(default_factory=Objective)
    periods: Periods | None = None
    assumptions: tuple[str, ...] = ()
    scenario: Mapping[str, object] = field(default_factory=dict)
    catalog_digest: str = ""

    def classes_of(self, model: str) -> tuple[RequestClass, ...]:
        """Classes that ``model`` may serve, in the order of the scenario."""
        return tuple(item.under(model) for item in self.classes.values() if item.served_by(model))

    def sharing(self) -> dict[str, tuple[RequestClass, ...]]:
        """Classes that may share pools, by a name for the group: its model, with what keeps its classes apart.

        Those are an isolated class, engine settings to choose from that other classes do not have, and the patience of
        classes whose requests leave.

        A class that several models may serve is in the group of each of them, as that model sees it.
        """
        groups: dict[str, tuple[RequestClass, ...]] = {}
        for item in self.classes.values():
            alone = item.name if item.isolate else self._first_alike(item.name)
            for model in item.models:
                name = f"{model} for {alone}" if alone else model
                if item.patience is not None and not item.isolate:
                    name = f"{name} for those with patience {item.patience.text}"
                groups[name] = (*groups.get(name, ()), item.under(model))
        return groups

    def alike(self, first: str, second: str) -> bool:
        """Whether two classes have the same engine settings to choose from on every GPU type."""
        return all(self.settings.get((first, gpu)) == self.settings.get((second, gpu)) for gpu in self.gpus)

    def _first_alike(self, cls: str) -> str:
        """The first class with the same settings to choose from; empty where no class is unlike it."""
        names = list(self.classes)
        if not self.settings or all(self.alike(cls, other) for other in names):
            return ""
        return min(other for other in names if self.alike(cls, other))
