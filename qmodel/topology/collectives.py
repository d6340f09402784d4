"""Alpha-beta costs of the collectives of groups that all run at the same time.

Sources of the forms: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH
(2005) for ring and pairwise algorithms; docs/theory/topology.md for constants, hierarchy and accuracy.
"""

from __future__ import annotations

import math

from qmodel.topology.constants import LAUNCH_US, NETWORK_STEP_FACTOR, Operation
from qmodel.topology.routes import Flow, Leg, Routes
from qmodel.types.layouts import Collective

__all__ = ["all_gather", "all_reduce", "all_to_all", "send"]

_CHAIN_GPUS = 8  # up to one chassis a collective walks a chain, beyond it a tree over chassis


def all_reduce(routes: Routes, groups: list[list[str]]) -> Collective:
    """Sum a buffer over every group; the payload is that buffer.

    Inside an island 2 (n - 1)/n of the payload passes each GPU's link. Across islands: reduce-scatter
    inside, all-reduce of the shards between islands over the NICs, all-gather inside, one after the other.
    """
    return _gathering(routes, groups, "all_reduce", passes=2)


def all_gather(routes: Routes, groups: list[list[str]]) -> Collective:
    """Collect (or reduce-scatter) a buffer; the payload is the whole buffer of the group, not one GPU's part.

    (n - 1)/n of the payload passes each GPU's link.
    """
    return _gathering(routes, groups, "all_gather", passes=1)


def all_to_all(routes: Routes, groups: list[list[str]]) -> Collective:
    """Each GPU sends an equal part to every member; the payload is all it sends, its own part included.

    Across islands the parts travel to the GPU of the same place in the other island and are handed on there;
    the two phases overlap, so the slower one counts.
    """
    if len(groups[0]) == 1:
        return Collective()
    parts = [_by_island(routes, group) for group in groups]
    inner: list[Flow] = []
    outer: list[Flow] = []
    for part in parts:
        members = sum(len(island) for island in part)
        for island in part:
            share = 1.0 / len(island)
            inner += [(one, other, share) for one in island for other in island if one != other]
        for source in part:
            for target in part:
                if source is not target:
                    share = len(target) / members
                    outer += [(name, target[place % len(target)], share) for place, name in enumerate(source)]
    islands = max(len(part) for part in parts)
    inside = routes.leg(inner, "all_to_all", max(len(island) for part in parts for island in part))
    across = routes.leg(outer, "all_to_all", islands)
    latency_us = LAUNCH_US + inside.max_latency_us
    if islands > 1:
        # One round for the counts, then the farthest peers come last.
        rounds = 1 + math.ceil(math.log2(islands))
        latency_us += rounds * NETWORK_STEP_FACTOR * across.max_latency_us
    return _collective(routes, latency_us, max(inside.seconds_per_byte, across.seconds_per_byte), inside, across)


def send(routes: Routes, pairs: list[tuple[str, str]]) -> Collective:
    """Hand a buffer to a peer, all pairs at once; the payload is what one GPU sends."""
    if not pairs:
        return Collective()
    leg = routes.leg([(one, other, 1.0) for one, other in pairs], "send", 2)
    crosses = any(_island(routes, one) != _island(routes, other) for one, other in pairs)
    latency_us = LAUNCH_US + leg.max_latency_us * (NETWORK_STEP_FACTOR if crosses else 1.0)
    return _collective(routes, latency_us, leg.seconds_per_byte, leg)


def _gathering(routes: Routes, groups: list[list[str]], operation: Operation, passes: int) -> Collective:
    if len(groups[0]) == 1:
        return Collective()
    parts = [_by_island(routes, group) for group in groups]
    local = max(len(island) for part in parts for island in part)
    islands = max(len(part) for part in parts)
    inside = _inside(routes, [island for part in parts for island in part], operation, local)
    across = _across(routes, parts, operation, islands)
    latency_us = LAUNCH_US + passes * (
        _chain_steps(local) * inside.mean_latency_us
        + math.ceil(math.log2(islands)) * NETWORK_STEP_FACTOR * across.max_latency_us
    )
    seconds_per_byte = passes * (inside.seconds_per_byte + across.seconds_per_byte)
    return _collective(routes, latency_us, seconds_per_byte, inside, across)


def _inside(routes: Routes, islands: list[list[str]], operation: Operation, local: int) -> Leg:
    """One pass inside islands by a ring or by direct exchange, whichever loads the links less."""
    ring: list[Flow] = []
    direct: list[Flow] = []
    for members in islands:
        count = len(members)
        if count > 1:
            ring += [(members[i], members[(i + 1) % count], (count - 1) / count) for i in range(count)]
            direct += [(one, other, 1.0 / count) for one in members for other in members if one != other]
    by_ring = routes.leg(ring, operation, local)
    # On a switch both load every link alike; only a mesh gains from using all its links.
    if not by_ring.media & {"xgmi", "ethernet"}:
        return by_ring
    return min(by_ring, routes.leg(direct, operation, local), key=lambda leg: leg.seconds_per_byte)


def _across(routes: Routes, parts: list[list[list[str]]], operation: Operation, islands: int) -> Leg:
    """One pass of the shards between islands, each GPU with the GPUs of the same place."""
    flows: list[Flow] = []
    for part in parts:
        count = len(part)
        if count > 1:
            width = max(len(island) for island in part)
            share = (count - 1) / count / width
            for place in range(width):
                column = [island[place % len(island)] for island in part]
                flows += [(column[i], column[(i + 1) % count], share) for i in range(count)]
    return routes.leg(flows, operation, islands)


def _chain_steps(members: int) -> int:
    return min(members, _CHAIN_GPUS) - 1 + math.ceil(math.log2(math.ceil(members / _CHAIN_GPUS)))


def _island(routes: Routes, name: str) -> int:
    return routes.wiring.vertices[name].island


def _by_island(routes: Routes, group: list[str]) -> list[list[str]]:
    islands: dict[int, list[str]] = {}
    for name in group:
        islands.setdefault(_island(routes, name), []).append(name)
    return list(islands.values())


def _collective(routes: Routes, latency_us: float, seconds_per_byte: float, *legs: Leg) -> Collective:
    media = {medium for leg in legs for medium in leg.media}
    bytes_per_s = 1.0 / seconds_per_byte if seconds_per_byte > 0.0 else math.inf
    return Collective(latency_s=latency_us * 1e-6, bytes_per_s=bytes_per_s, path=routes.wiring.slowest(media))
