"""What the collectives of replicas cost once each rank has its GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

from qmodel.topology.collectives import all_gather, all_reduce, all_to_all, send
from qmodel.topology.constants import medium_rank
from qmodel.topology.placement import neighbour_stages, stage_groups, tensor_groups
from qmodel.topology.routes import Routes
from qmodel.types.layouts import Layout, LinkCosts

__all__ = ["Placed", "placed_costs"]

Placed = tuple[Layout, Sequence[str]]
"""A layout and the GPU of each of its ranks."""

_Group = TypeVar("_Group")


def placed_costs(layout: Layout, routes: Routes, ranks: Sequence[str], beside: Sequence[Placed] = ()) -> LinkCosts:
    """Costs of one replica, all its groups of a kind at once.

    Args:
        layout: degrees of the replica.
        routes: paths through the wiring.
        ranks: GPU of each rank, tensor-parallel ranks innermost, stages outermost.
        beside: other replicas that run the same collective with the same payload at the same time.
    """
    names = list(ranks)
    stages = stage_groups(layout, names)
    other_stages = _of(stage_groups, beside)
    tp_all_reduce = all_reduce(routes, tensor_groups(layout, names), _of(tensor_groups, beside))
    stage_all_gather = all_gather(routes, stages, other_stages)
    stage_all_to_all = all_to_all(routes, stages, other_stages)
    stage_send = send(routes, neighbour_stages(layout, names), _of(neighbour_stages, beside))
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
        nodes=len({vertices[name].node for name in names}),
        bottleneck=max(paths, key=medium_rank),
    )


def _of(groups: Callable[[Layout, list[str]], list[_Group]], placed: Sequence[Placed]) -> list[_Group]:
    return list(chain.from_iterable(groups(layout, list(ranks)) for layout, ranks in placed))
