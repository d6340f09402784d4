"""The step-time model and the memory of the replicas that were measured."""

from __future__ import annotations

from dataclasses import dataclass

from qmodel.calibration.forward import Forward
from qmodel.calibration.measurements import LeftOut, Measurements, ServingPoint, StepTime
from qmodel.catalog import Catalog
from qmodel.perf import layouts, memory, quant_family
from qmodel.perf.components import PassModel, pass_model
from qmodel.queueing import resident_cap
from qmodel.topology import link_costs
from qmodel.types import Engine, Gpu, Layout, Model

__all__ = ["Target", "measured_replicas"]

TOPOLOGY = "rail-fat-tree"  # the default of scenarios


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is calibrated.

    Attributes:
        model: architecture.
        gpu: accelerator.
        engine: settings of the measured engine.
        layout: of measurements that state none.
        precision: weight type, None: the checkpoint's own.
    """

    model: Model
    gpu: Gpu
    engine: Engine
    layout: Layout
    precision: str | None = None

    @property
    def family(self) -> str:
        """Kind of weights, as calibrations are told apart by it."""
        return quant_family(self.model, self.gpu, self.precision)

    def __str__(self) -> str:
        return f"{self.model.name} on {self.gpu.name} under {self.engine.name}"


def measured_replicas(
    measurements: Measurements, target: Target, catalog: Catalog
) -> tuple[Forward, Measurements, tuple[LeftOut, ...]]:
    """What predicts the measurements, those it can predict, and the others with the reason.

    A benchmark with more users than memory or slots hold at once measures the engine's memory as much as its steps:
    it is left out.
    """
    passes: dict[Layout, PassModel] = {}
    caps: dict[tuple[Layout, float, float], float] = {}
    refused: dict[Layout, str] = {}
    left_out: list[LeftOut] = []
    steps: list[StepTime] = []
    points: list[ServingPoint] = []
    for source in measurements.all:
        layout = source.layout or target.layout
        if layout not in passes and layout not in refused:
            reason = _refusal(target, layout, catalog)
            if reason:
                refused[layout] = reason
            else:
                passes[layout] = _passes(target, layout, catalog)
        if layout in refused:
            left_out.append(LeftOut(place=source.place, reason=f"{layout}: {refused[layout]}"))
        elif isinstance(source, StepTime):
            steps.append(source)
        else:
            key = (layout, source.prompt_tokens, source.output_tokens)
            if key not in caps:
                caps[key] = _cap(target, *key)
            if source.users > caps[key]:
                what = f"{source.users:g} users, but memory and slots hold {caps[key]:.0f} of such requests at once"
                left_out.append(LeftOut(place=source.place, reason=what))
            else:
                points.append(source)
    budget = target.engine.max_batched_tokens
    forward = Forward(passes=passes, caps=caps, layout=target.layout, max_batched_tokens=budget)
    used = Measurements(steps=tuple(steps), points=tuple(points), files=measurements.files)
    return forward, used, tuple(left_out)


def _refusal(target: Target, layout: Layout, catalog: Catalog) -> str:
    """Why the model has no step time in the layout, empty where it has one; that it was measured says that it fits."""
    node = catalog.default_node(target.gpu.name)
    fabric = catalog.fabric(node.nic_fabric) if node.nic_fabric else None
    found = layouts(
        target.model,
        target.gpu,
        node,
        fabric,
        tp=(layout.tp,),
        pp=(layout.pp,),
        ep=(layout.ep,),
        dp=(layout.dp,),
        cp=(layout.cp,),
        engine=target.engine,
        precision=target.precision,
    )
    return next((item.reason for item in found.refused if item.kind != "memory"), "")


def _passes(target: Target, layout: Layout, catalog: Catalog) -> PassModel:
    node = catalog.default_node(target.gpu.name)
    fabric = catalog.fabric(node.nic_fabric) if node.nic_fabric else None
    return pass_model(
        target.model,
        target.gpu,
        layout,
        target.engine,
        constants=catalog.constants,
        links=link_costs(layout, node, fabric, catalog.topology(TOPOLOGY)),
        precision=target.precision,
    )


def _cap(target: Target, layout: Layout, prompt_tokens: float, output_tokens: float) -> float:
    engine = target.engine
    plan = memory(
        target.model,
        target.gpu,
        layout,
        engine,
        precision=target.precision,
        context_tokens=prompt_tokens + output_tokens,
    )
    return float(
        resident_cap(
            max(plan.kv_tokens, 1.0),
            prompt_tokens,
            output_tokens,
            "no_evict" if engine.admission == "no_evict" else "full_prompt",
            engine.max_num_seqs * layout.dp,
            plan.kv_slope,
            plan.kv_fixed_tokens,
        )
    )
