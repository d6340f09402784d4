"""Power that one GPU takes with its part of the node, and what that figure is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qmodel.types import Gpu, Node

if TYPE_CHECKING:
    from qmodel.scenario.fleet_section import GpuSpec

__all__ = ["GpuPower", "power_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPower:
    """Power of one GPU in W, and what it is the power of, in words."""

    power_w: float
    basis: str


def power_of(spec: GpuSpec, gpu: Gpu | None, node: Node | None) -> GpuPower | None:
    """As stated; else the most the node draws over its GPUs; else that of the board alone; None: not known.

    Args:
        spec: of the GPU type in the scenario.
        gpu, node: records of the catalog; None where only profiles describe it.
    """
    if spec.power_w is not None:
        return GpuPower(power_w=spec.power_w, basis="stated in the scenario")
    if node is not None and node.max_power_kw is not None:
        basis = f"the most that {node.name} draws over its {node.gpus_per_node} GPUs"
        return GpuPower(power_w=node.max_power_kw * 1000.0 / node.gpus_per_node, basis=basis)
    if gpu is None or gpu.tdp_w is None:
        return None
    return GpuPower(power_w=gpu.tdp_w, basis="its board alone: what the rest of the node draws is not known")
