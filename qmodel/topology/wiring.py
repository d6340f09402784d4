"""Vertices and links of a few nodes: the plain record behind ``node_graph``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from qmodel.topology.constants import MEDIA, medium_rank

__all__ = ["Link", "Vertex", "VertexKind", "Wiring", "gpu_name"]

VertexKind = Literal["gpu", "nvswitch", "pcie_switch", "cpu", "nic", "leaf", "spine", "core"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """One device.

    Attributes:
        node: node it sits in, -1 for switches that belong to no node.
        local: index among the devices of its kind in that node, or among all switches.
        island: scale-up domain a GPU or its switch belongs to, -1 elsewhere.
        launch: time a GPU takes to start a collective, over that of the reference.
    """

    kind: VertexKind
    node: int = -1
    local: int = 0
    island: int = -1
    launch: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One full-duplex link.

    Attributes:
        gbps: line rate of one direction, 1e9 bytes/s.
        latency_us: time of a small message over this link alone, us.
        medium: ``nvlink``, ``xgmi``, ``pcie``, ``upi`` or the transport of the fabric.
        achievable: large-message goodput over line rate; None: that of the collective that uses it.
        stream_gbps: line rate that one pair of GPUs reaches alone, 1e9 bytes/s; None: all of it.
    """

    gbps: float
    latency_us: float
    medium: str
    achievable: float | None = None
    stream_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class Wiring:
    """Devices by name, and for each the links to its neighbours."""

    vertices: dict[str, Vertex] = field(default_factory=dict)
    links: dict[str, dict[str, Link]] = field(default_factory=dict)

    def add(self, name: str, vertex: Vertex) -> str:
        """Put a device in place and return its name."""
        self.vertices[name] = vertex
        self.links.setdefault(name, {})
        return name

    def join(self, one: str, other: str, link: Link) -> None:
        """Lay a link between two devices that are in place."""
        self.links[one][other] = link
        self.links[other][one] = link

    def gpus(self) -> list[str]:
        """Names of the GPUs, by node and then by their place in it."""
        found = [(vertex.node, vertex.local, name) for name, vertex in self.vertices.items() if vertex.kind == "gpu"]
        return [name for _, _, name in sorted(found)]

    def slowest(self, media: set[str]) -> str:
        """The slowest of some media, ``none`` where there are none."""
        return max(media, key=lambda medium: (medium_rank(medium), medium), default=MEDIA[0])


def gpu_name(node: int, local: int) -> str:
    """Name of a GPU vertex.

    Example:
        >>> gpu_name(0, 3)
        'gpu:0:3'
    """
    return f"gpu:{node}:{local}"
