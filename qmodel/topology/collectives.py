"""Alpha-beta costs of the collectives of groups that all run at the same time.

Sources of the forms: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH
(2005) for ring and pairwise algorithms; docs/theory/topology.md for constants, hierarchy and accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain

from qmodel.topology.constants import (
    EXCHANGE_KERNELS,
    LARGE,
    NETWORK_LARGE_STEP_FACTOR,
    NETWORK_SMALL_FRACTION,
    NETWORK_STEP_FACTOR,
    SEND_FRACTION,
    SEND_LAUNCH_US,
    SMALL,
    ExchangeKernelName,
    Operation,
)
from qmodel.topology.routes import Flow, Leg, Routes
from qmodel.types.layouts import Collective

__all__ = ["all_gather", "all_reduce", "all_to_all", "exchange", "send"]

Groups = Sequence[Sequence[str]]
_COPIED = frozenset({"pcie", "upi"})  # one copy engine carries messages of all sizes
_CHAIN_GPUS = 8  # up to one chassis a collective walks a chain, beyond it a tree over chassis


def all_reduce(routes: Routes, groups: Groups, beside: Groups = ()) -> Collective:
    """Sum a buffer over every group; the payload is that buffer.

    Inside an island 2 (n - 1)/n of the payload passes each GPU's link. Across islands: reduce-scatter inside,
    all-reduce of the shards between islands over the NICs, all-gather inside; one after the other for a small buffer,
    in a pipeline for a large one.

    Args:
        routes: paths through the wiring.
        groups: GPUs of each group, groups of equal size.
        beside: groups of others that run the same at the same time; they share links and are not waited for.

    Returns:
        The cost of the slowest group.
    """
    return _gathering(routes, groups, beside, "all_reduce", passes=2)


def all_gather(routes: Routes, groups: Groups, beside: Groups = ()) -> Collective:
    """Collect (or reduce-scatter) a buffer; the payload is the whole buffer of the group, not one GPU's part.

    (n - 1)/n of the payload passes each GPU's link. Arguments as of `all_reduce`.
    """
    return _gathering(routes, groups, beside, "all_gather", passes=1)


def all_to_all(routes: Routes, groups: Groups, beside: Groups = ()) -> Collective:
    """Each GPU sends an equal part to every member; the payload is all it sends, its own part included.

    Across islands the parts travel to the GPU of the same place in the other island and are handed on there;
    the two phases overlap, so the slower one counts. Arguments as of `all_reduce`.
    """
    if len(groups[0]) == 1:
        return Collective()
    parts = [_by_island(routes, group) for group in groups]
    if max(len(part) for part in parts) > 1:
        return exchange(routes, groups, "low_latency", beside=beside)
    others = [_by_island(routes, group) for group in beside]
    members = max(len(island) for part in parts for island in part)
    inside = routes.leg(_direct_flows(_islands(parts)), _direct_flows(_islands(others)))
    # A switch takes all parts at once; over PCIe they queue, NCCL rows of PCIe nodes.
    steps = math.log2(members) if inside.media & _COPIED else 1.0
    return _two_lines(routes, "all_to_all", inside, Leg(), steps * inside.max_latency_us, members)


def exchange(
    routes: Routes, groups: Groups, kernel: ExchangeKernelName, handed_on: float = 1.0, beside: Groups = ()
) -> Collective:
    """One direction of an exchange of expert tokens by a kernel that is made for it; payload as of `all_to_all`.

    Args:
        routes: paths through the wiring.
        groups: GPUs of each group, groups of equal size.
        kernel: how tokens travel.
        handed_on: bytes that pass the links of an island over those that arrive there.
        beside: as of `all_reduce`.
    """
    if len(groups[0]) == 1:
        return Collective()
    made = EXCHANGE_KERNELS[kernel]
    parts = [_by_island(routes, group) for group in groups]
    others = [_by_island(routes, group) for group in beside]
    islands = max(len(part) for part in parts)
    inside = routes.leg(_direct_flows(_islands(parts)), _direct_flows(_islands(others)))
    across = routes.leg(_exchange_flows(parts), _exchange_flows(others))
    # One round for the counts, then the farthest peers come last.
    rounds = 1 + math.ceil(math.log2(islands)) if islands > 1 else 0
    latency_us = made.launch_us + inside.max_latency_us + rounds * made.round_factor * across.max_latency_us
    return _line(
        routes, latency_us, max(handed_on * inside.at(made.fraction), across.at(made.fraction)), inside, across
    )


def send(routes: Routes, pairs: Sequence[tuple[str, str]], beside: Sequence[tuple[str, str]] = ()) -> Collective:
    """Hand a buffer to a peer, all pairs at once; the payload is what one GPU sends."""
    if not pairs:
        return Collective()
    leg = routes.leg([_pair_flows(pairs)], [_pair_flows(beside)])
    crosses = any(_island(routes, one) != _island(routes, other) for one, other in pairs)
    latency_us = SEND_LAUNCH_US + leg.max_latency_us * (NETWORK_STEP_FACTOR if crosses else 1.0)
    return _line(routes, latency_us, leg.at(SEND_FRACTION), leg)


def _gathering(routes: Routes, groups: Groups, beside: Groups, operation: Operation, passes: int) -> Collective:
    if len(groups[0]) == 1:
        return Collective()
    parts = [_by_island(routes, group) for group in groups]
    others = [_by_island(routes, group) for group in beside]
    widest = [max(len(island) for island in part) for part in parts]
    islands = max(len(part) for part in parts)
    inside = _inside(routes, _islands(parts), _islands(others))
    across = routes.leg(_column_flows(parts), _column_flows(others))
    steps_us = _chain_steps(max(widest)) * inside.mean_latency_us
    return _two_lines(routes, operation, inside, across, steps_us, min(widest), islands, passes)


def _two_lines(
    routes: Routes,
    operation: Operation,
    inside: Leg,
    across: Leg,
    steps_us: float,
    members: int,
    islands: int = 1,
    passes: int = 1,
) -> Collective:
    """Small messages go phase after phase, large ones in a pipeline that is filled first."""
    small, large = SMALL[operation], LARGE[operation]
    launch = max(vertex.launch for vertex in routes.wiring.vertices.values() if vertex.kind == "gpu")
    rounds_us = math.ceil(math.log2(islands)) * across.max_latency_us
    latency_us = launch * small.launch_us + passes * (small.hops * steps_us + NETWORK_STEP_FACTOR * rounds_us)
    fill_us = launch * large.launch_us + passes * (large.hops * steps_us + NETWORK_LARGE_STEP_FACTOR * rounds_us)
    reached = large.fraction_of(members)
    large_s = passes * max(inside.at(reached), across.at(reached))
    if islands == 1 and inside.media & _COPIED:
        return _line(routes, latency_us, large_s, inside)
    if islands > 1:
        small_s = passes * (inside.at(reached) + across.at(reached)) / NETWORK_SMALL_FRACTION
    else:
        small_s = passes * inside.at(small.fraction_of(members))
    return _line(routes, latency_us, large_s, inside, across, small_seconds_per_byte=small_s, large_latency_us=fill_us)


def _inside(routes: Routes, islands: Groups, beside: Groups) -> Leg:
    """One pass inside islands by a ring or by direct exchange, whichever loads the links less."""
    by_ring = routes.leg(_ring_flows(islands), _ring_flows(beside))
    # On a switch both load every link alike; only a mesh gains from using all its links.
    if not by_ring.media & {"xgmi", "ethernet"}:
        return by_ring
    direct = routes.leg(_direct_flows(islands), _direct_flows(beside))
    return min(by_ring, direct, key=lambda leg: leg.at(1.0))


def _pair_flows(pairs: Iterable[tuple[str, str]]) -> list[Flow]:
    return [(one, other, 1.0) for one, other in pairs]


def _ring_flows(islands: Groups) -> list[list[Flow]]:
    """Each GPU passes all parts but one to its neighbour."""
    return [
        [
            (members[place], members[(place + 1) % len(members)], (len(members) - 1) / len(members))
            for place in range(len(members))
        ]
        for members in islands
        if len(members) > 1
    ]


def _direct_flows(islands: Groups) -> list[list[Flow]]:
    """Each GPU sends a part to every other of its island."""
    return [
        [(one, other, 1.0 / len(members)) for one in members for other in members if one != other]
        for members in islands
    ]


def _column_flows(parts: Sequence[Groups]) -> list[list[Flow]]:
    """One pass of the shards between islands, each GPU with the GPUs of the same place."""
    groups: list[list[Flow]] = []
    for part in parts:
        count = len(part)
        width = max(len(island) for island in part)
        share = (count - 1) / count / width
        columns = [[island[place % len(island)] for island in part] for place in range(width)] if count > 1 else []
        groups.append([(column[i], column[(i + 1) % count], share) for column in columns for i in range(count)])
    return groups


def _exchange_flows(parts: Sequence[Groups]) -> list[list[Flow]]:
    """What an all-to-all sends to other islands, each GPU to the GPU of the same place."""
    groups: list[list[Flow]] = []
    for part in parts:
        members = sum(len(island) for island in part)
        groups.append(
            [
                (name, target[place % len(target)], len(target) / members)
                for source in part
                for target in part
                if source is not target
                for place, name in enumerate(source)
            ]
        )
    return groups


def _chain_steps(members: int) -> int:
    return min(members, _CHAIN_GPUS) - 1 + math.ceil(math.log2(math.ceil(members / _CHAIN_GPUS)))


def _island(routes: Routes, name: str) -> int:
    return routes.wiring.vertices[name].island


def _by_island(routes: Routes, group: Sequence[str]) -> list[list[str]]:
    islands: dict[int, list[str]] = {}
    for name in group:
        islands.setdefault(_island(routes, name), []).append(name)
    return list(islands.values())


def _islands(parts: Sequence[Groups]) -> list[Sequence[str]]:
    return list(chain.from_iterable(parts))


def _line(
    routes: Routes,
    latency_us: float,
    seconds_per_byte: float,
    *legs: Leg,
    small_seconds_per_byte: float | None = None,
    large_latency_us: float | None = None,
) -> Collective:
    media = {medium for leg in legs for medium in leg.media}
    return Collective(
        latency_s=latency_us * 1e-6,
        bytes_per_s=_rate(seconds_per_byte),
        path=routes.wiring.slowest(media),
        small_bytes_per_s=None if small_seconds_per_byte is None else _rate(small_seconds_per_byte),
        large_latency_s=None if large_latency_us is None else large_latency_us * 1e-6,
    )


def _rate(seconds_per_byte: float) -> float:
    return 1.0 / seconds_per_byte if seconds_per_byte > 0.0 else math.inf
