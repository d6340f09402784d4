"""Paths through a wiring and the time its most loaded link needs.

The search is written out here because planning asks for link costs on every start and networkx
would add 0.15 s of import to it; the graph a user sees is a networkx graph all the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from qmodel.topology.wiring import Wiring

__all__ = ["Flow", "Leg", "Routes"]

Flow = tuple[str, str, float]
_NETWORK_KINDS = frozenset({"nic", "leaf", "spine", "core"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One phase of a collective.

    Attributes:
        seconds_per_byte: of payload, on the most loaded link whose goodput is known.
        line_seconds_per_byte: of payload at line rate, on the most loaded link of the others.
        mean_latency_us: mean over the paths of a group, of the slowest group.
        max_latency_us: of the paths used.
        media: every medium on the way.
    """

    seconds_per_byte: float = 0.0
    line_seconds_per_byte: float = 0.0
    mean_latency_us: float = 0.0
    max_latency_us: float = 0.0
    media: frozenset[str] = frozenset()

    def at(self, fraction: float) -> float:
        """Seconds per byte where links without a goodput of their own reach ``fraction`` of the line."""
        return max(self.seconds_per_byte, self.line_seconds_per_byte / fraction)


@dataclass(frozen=True, slots=True)
class Routes:
    """Paths between GPUs, remembered by sender."""

    wiring: Wiring
    _parents: dict[tuple[str, bool], dict[str, str]] = field(default_factory=dict)

    def leg(self, groups: Iterable[Iterable[Flow]], beside: Iterable[Iterable[Flow]] = ()) -> Leg:
        """Send all flows of all groups at once; links shared by several divide their bandwidth.

        Args:
            groups: sender, receiver and share of the payload sent, of each flow of each group.
            beside: groups of others at the same time; they load the links and are not waited for.

        Returns:
            The cost of the phase.
        """
        links = self.wiring.links
        load: dict[tuple[str, str], float] = {}
        stream: dict[tuple[str, str], float] = {}
        mean_us = max_us = 0.0
        for flows in groups:
            latencies_us: list[float] = []
            for sender, receiver, share in flows:
                hops = self.hops(sender, receiver)
                latencies_us.append(sum(links[a][b].latency_us for a, b in hops))
                for hop in hops:
                    load[hop] = load.get(hop, 0.0) + share
                    stream[hop] = max(stream.get(hop, 0.0), share)
            if latencies_us:
                mean_us = max(mean_us, sum(latencies_us) / len(latencies_us))
                max_us = max(max_us, *latencies_us)
        if not load:
            return Leg()
        for sender, receiver, share in chain.from_iterable(beside):
            for hop in self.hops(sender, receiver):
                if hop in load:
                    load[hop] += share
        known_s = line_s = 0.0
        for hop, share in load.items():
            link = links[hop[0]][hop[1]]
            seconds = share / (link.gbps * 1e9)
            if link.stream_gbps is not None:
                seconds = max(seconds, stream[hop] / (link.stream_gbps * 1e9))
            if link.achievable is None:
                line_s = max(line_s, seconds)
            else:
                known_s = max(known_s, seconds / link.achievable)
        return Leg(
            seconds_per_byte=known_s,
            line_seconds_per_byte=line_s,
            mean_latency_us=mean_us,
            max_latency_us=max_us,
            media=frozenset(links[a][b].medium for a, b in load),
        )

    def hops(self, sender: str, receiver: str) -> list[tuple[str, str]]:
        """Links walked from sender to receiver, last one first.

        Least latency among the paths that are forwarded by the fewest other GPUs; ties go to fewer links, then by name.

        Raises:
            ValueError: if no links join the two.
        """
        one, other = self.wiring.vertices[sender], self.wiring.vertices[receiver]
        # Traffic inside a node or an island never leaves it, not even through a NIC that two GPUs share.
        inside = one.node == other.node or one.island == other.island
        parents = self._parents.get((sender, inside))
        if parents is None:
            parents = self._parents[sender, inside] = self._search(sender, inside)
        if receiver not in parents:
            raise ValueError(f"no path from {sender} to {receiver}; join their nodes by a fabric")
        walked: list[tuple[str, str]] = []
        here = receiver
        while here != sender:
            walked.append((parents[here], here))
            here = parents[here]
        return walked

    def _search(self, sender: str, inside: bool) -> dict[str, str]:
        """Dijkstra's algorithm from one GPU: the device before each device that can be reached."""
        vertices, links = self.wiring.vertices, self.wiring.links
        heap = [(0, 0.0, 0, sender, sender)]
        parents: dict[str, str] = {}
        while heap:
            forwards, latency_us, count, here, before = heapq.heappop(heap)
            if here in parents:
                continue
            parents[here] = before
            forwards += here != sender and vertices[here].kind == "gpu"
            for there, link in links[here].items():
                if there not in parents and not (inside and vertices[there].kind in _NETWORK_KINDS):
                    heapq.heappush(heap, (forwards, latency_us + link.latency_us, count + 1, there, here))
        return parents
