"""What the collectives of replicas cost once each rank has its GPU."""

from __future__ import annotations

from collections.abc import Sequence

from qmodel.topology.collectives import all_gather, all_reduce, all_to_all, send
from qmodel.topology.constants import medium_rank
from qmodel.topology.placement import neighbour_stages, stage_groups, tensor_groups
from qmodel.topology.routes import Routes
from qmodel.types.layouts import Layout, LinkCosts

__all__ = ["Placed", "placed_costs"]

Placed = tuple[Layout, Sequence[str]]
"""A layout and the GPU of each of its ranks."""


def placed_costs(layout: Layout, routes: Routes, ranks: Sequence[str], beside: Sequence[Placed] = ()) -> LinkCosts:
    """Costs of one replica, all its groups of a kind at once.

    Args:
        layout: degrees of the replica.
        routes: paths through the wiring.
        ranks: GPU of each rank, tensor-parallel ranks innermost, stages outermost.
        beside: other replicas that run the same collective with the same payload at the same time.
    """
    stages = stage_groups(layout, ranks)
    other_stages = [group for other, gpus in beside for group in stage_groups(other, gpus)]
    other_groups = [group for other, gpus in beside for group in tensor_groups(other, gpus)]
    other_pairs = [pair for other, gpus in beside for pair in neighbour_stages(other, gpus)]
    tp_all_reduce = all_reduce(routes, tensor_groups(layout, ranks), other_groups)
    stage_all_gather = all_gather(routes, stages, other_stages)
    stage_all_to_all = all_to_all(routes, stages, other_stages)
    stage_send = send(routes, neighbour_stages(layout, ranks), other_pairs)
    paths = [cost.path for cost in (tp_all_reduce, stage_all_gather, stage_all_to_all, stage_send)]
    vertices = routes.wiring.vertices
    islands = max(len({vertices[name].island for name in stage}) for stage in stages)
    return LinkCosts(
        stage_in_island=islands == 1,
        tp_all_reduce=tp_all_reduce,
        stage_all_gather=stage_all_gather,
        stage_all_to_all=stage_all_to_all,
        stage_send=stage_send,
        stage_islands=islands,
        nodes=len({vertices[name].node for name in ranks}),
        bottleneck=max(paths, key=medium_rank),
    )
