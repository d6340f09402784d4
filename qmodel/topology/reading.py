"""A networkx graph of devices read into a wiring, with every fault named."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

from qmodel.topology.wiring import Link, Vertex, VertexKind, Wiring

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["read_graph"]

_VERTEX_KEYS = tuple(item.name for item in fields(Vertex))
_LINK_KEYS = tuple(item.name for item in fields(Link))
_NEEDED = ("gbps", "latency_us", "medium")


def read_graph(graph: nx.Graph) -> Wiring:
    """Devices and links of a graph as `node_graph` makes it.

    Args:
        graph: names are strings; attributes as of `Vertex` and `Link`.

    Raises:
        ValueError: if there is no GPU, a device has no known kind, a GPU has no link, or a link has no rate, no latency
            or no medium.
    """
    wiring = Wiring()
    for name, attributes in graph.nodes(data=True):
        wiring.add(name, _vertex(name, attributes))
    for one, other, attributes in graph.edges(data=True):
        if one == other:
            raise ValueError(f"link {one} to itself: leave it out")
        wiring.join(one, other, _link(one, other, attributes))
    gpus = wiring.gpus()
    if not gpus:
        raise ValueError("the graph has no GPU: give at least one vertex kind='gpu'")
    alone = [name for name in gpus if not wiring.links[name]]
    if alone and len(gpus) > 1:
        raise ValueError(f"GPU {alone[0]} has no link: join it to a switch or to another GPU, or leave it out")
    return wiring


def _vertex(name: Hashable, attributes: Mapping[str, Any]) -> Vertex:
    if not isinstance(name, str):
        raise ValueError(f"device names must be text (got {name!r})")
    kinds = get_args(VertexKind)
    if attributes.get("kind") not in kinds:
        raise ValueError(f"device {name}: kind must be one of {', '.join(kinds)} (got {attributes.get('kind')!r})")
    return Vertex(**{key: attributes[key] for key in _VERTEX_KEYS if key in attributes})


def _link(one: str, other: str, attributes: Mapping[str, Any]) -> Link:
    missing = [key for key in _NEEDED if key not in attributes]
    if missing:
        raise ValueError(f"link {one} to {other}: {missing[0]} is missing; a link has {', '.join(_NEEDED)}")
    link = Link(**{key: attributes[key] for key in _LINK_KEYS if key in attributes})
    for key, value in (("gbps", link.gbps), ("achievable", link.achievable), ("stream_gbps", link.stream_gbps)):
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"link {one} to {other}: {key} must be greater than 0 (got {value}); remove a cut link")
    if not (math.isfinite(link.latency_us) and link.latency_us >= 0.0):
        raise ValueError(f"link {one} to {other}: latency_us must be at least 0 (got {link.latency_us})")
    return link
