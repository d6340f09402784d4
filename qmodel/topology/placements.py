"""The public face of placement on a graph: the best GPUs for a layout, and replicas that share links."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qmodel.topology.branching import StepTraffic, search, usual_traffic
from qmodel.topology.costing import placed_costs
from qmodel.topology.reading import read_graph
from qmodel.topology.routes import Routes
from qmodel.topology.wiring import Wiring
from qmodel.types.layouts import Layout, LinkCosts

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Placement", "find_placement", "nearest_layout", "place", "share_links"]

_LIMIT, _DEVICES = 1000, 200  # partial placements, fewer on graphs of more devices: some seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One replica on a graph.

    Attributes:
        layout: degrees of the replica.
        gpus: GPU of each rank, tensor-parallel ranks innermost, then context and data ranks, stages outermost.
        costs: of its collectives, all groups of a kind at once.
        seconds: time of the traffic that was made small.
        bound_s: no grouping takes less.
        tried: partial placements looked at.
    """

    layout: Layout
    gpus: tuple[str, ...]
    costs: LinkCosts
    seconds: float
    bound_s: float
    tried: int

    @property
    def proven(self) -> bool:
        """Whether no other grouping is better, up to the order of ranks inside a group."""
        return self.bound_s >= self.seconds

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Tensor-parallel groups, stage by stage."""
        step = self.layout.tp
        return tuple(self.gpus[start : start + step] for start in range(0, len(self.gpus), step))


def find_placement(
    layout: Layout,
    graph: nx.Graph,
    *,
    traffic: StepTraffic | None = None,
    free: Collection[str] | None = None,
    beside: Sequence[Placement] = (),
    limit: int | None = None,
) -> Placement:
    """Choose the GPUs of one replica so that the traffic of a step takes the least time.

    All groupings that differ are compared, up to GPUs that are interchangeable, until the best is proven or the limit
    is reached.

    Args:
        layout: degrees of the replica.
        graph: as `node_graph` makes it; change, add and remove what differs on your machine.
        traffic: what one step sends; None: `usual_traffic` of the layout.
        free: GPUs that may be used; None: all.
        beside: replicas that are in place; their GPUs are taken and their traffic loads the links.
        limit: partial placements to look at; None: what takes some seconds at most.

    Returns:
        The best placement found, with a bound; `proven` says whether it is the best there is.

    Raises:
        ValueError: if the graph is at fault (see `read_graph`), a name of ``free`` is no GPU, or the replica needs more
            GPUs than are free and joined by paths; the message has the largest layout that fits.

    Example:
        >>> import networkx as nx
        >>> two = nx.Graph()
        >>> for name in "abcd":
        ...     two.add_node(name, kind="gpu")
        >>> for one, other, gbps in (("a", "c", 300.0), ("b", "d", 300.0), ("a", "b", 20.0), ("c", "d", 20.0)):
        ...     two.add_edge(one, other, gbps=gbps, latency_us=1.0, medium="nvlink" if gbps > 100 else "pcie")
        >>> best = find_placement(Layout(tp=2, pp=2), two)
        >>> best.groups, best.proven
        ((('a', 'c'), ('b', 'd')), True)

    Reference: docs/theory/topology.md.
    """
    wiring = read_graph(graph)
    usable = _usable(wiring, free, beside)
    parts = _parts(wiring, usable)
    if layout.gpus > max(map(len, parts)):
        raise ValueError(_too_large(layout, parts))
    best = search(
        layout,
        wiring,
        usual_traffic(layout) if traffic is None else traffic,
        free=usable,
        beside=[(other.layout, other.gpus) for other in beside],
        limit=int(_LIMIT * min(1.0, _DEVICES / len(wiring.vertices))) if limit is None else limit,
    )
    if best is None:
        raise ValueError(
            f"layout {layout}: no choice of {layout.gpus} GPUs with a path between all members of each group was"
            " found; add links, or raise limit"
        )
    return Placement(
        layout=layout,
        gpus=best.ranks,
        costs=best.costs,
        seconds=best.seconds,
        bound_s=best.bound_s,
        tried=best.tried,
    )


def place(layout: Layout, graph: nx.Graph) -> LinkCosts:
    """Costs of the collectives of one replica on the best GPUs of a graph.

    Args:
        layout: degrees of the replica.
        graph: as `node_graph` makes it.

    Returns:
        Costs with all groups of a kind communicating at once. Payloads: ``tp_all_reduce`` the reduced buffer,
        ``stage_all_gather`` the whole gathered buffer, ``stage_all_to_all`` all bytes one GPU sends (its own part
        included), ``stage_send`` the bytes one GPU sends.

    Raises:
        ValueError: as `find_placement` does.

    Example:
        >>> import networkx as nx
        >>> pair = nx.Graph()
        >>> pair.add_node("a", kind="gpu", node=0, local=0, island=0)
        >>> pair.add_node("b", kind="gpu", node=0, local=1, island=0)
        >>> pair.add_edge("a", "b", gbps=300.0, latency_us=0.8, medium="nvlink", achievable=None)
        >>> place(Layout(tp=2), pair).tp_all_reduce.path
        'nvlink'

    Reference: docs/theory/topology.md.
    """
    return find_placement(layout, graph).costs


def share_links(placements: Sequence[Placement], graph: nx.Graph) -> tuple[LinkCosts, ...]:
    """Costs of replicas that communicate at the same time over shared links.

    Every replica is taken to run the same collective with the same payload as the others at the same moment: the worst
    case of replicas of one pool. A link that several use is divided among them.

    Args:
        placements: replicas on disjoint GPUs of the graph.
        graph: the graph they were placed on.

    Returns:
        Costs of each replica, in order.

    Raises:
        ValueError: if two replicas share a GPU, or one uses a GPU that the graph has not.

    Example:
        >>> import networkx as nx
        >>> host = nx.Graph()
        >>> host.add_node("root", kind="cpu")
        >>> for name in "abcd":
        ...     host.add_node(name, kind="gpu")
        ...     host.add_edge(name, "root", gbps=32.0, latency_us=1.0, medium="pcie", achievable=1.0)
        >>> first = find_placement(Layout(tp=2), host, free="ab")
        >>> second = find_placement(Layout(tp=2), host, free="cd")
        >>> [round(costs.tp_all_reduce.bytes_per_s / 1e9, 3) for costs in share_links([first, second], host)]
        [32.0, 32.0]

    Reference: docs/theory/topology.md.
    """
    wiring = read_graph(graph)
    _usable(wiring, None, placements)
    placed = [(item.layout, item.gpus) for item in placements]
    routes = Routes(wiring)
    return tuple(
        placed_costs(layout, routes, gpus, [*placed[:index], *placed[index + 1 :]])
        for index, (layout, gpus) in enumerate(placed)
    )


def _usable(wiring: Wiring, free: Collection[str] | None, beside: Sequence[Placement]) -> list[str]:
    gpus = wiring.gpus()
    for name in free or ():
        if name not in gpus:
            raise ValueError(f"free: the graph has no GPU {name!r}; it has {gpus[0]} to {gpus[-1]}")
    taken: set[str] = set()
    for item in beside:
        for name in item.gpus:
            if name not in gpus:
                raise ValueError(f"replica {item.layout}: the graph has no GPU {name!r}")
            if name in taken:
                raise ValueError(f"GPU {name} has two replicas; place each with the others in 'beside'")
            taken.add(name)
    return [name for name in gpus if (free is None or name in free) and name not in taken]


def _parts(wiring: Wiring, usable: Sequence[str]) -> list[list[str]]:
    """Free GPUs by the part of the graph they lie in, largest first; one empty part where none is free."""
    left = set(wiring.vertices)
    parts: list[list[str]] = []
    for name in usable:
        if name in left:
            reached = {name}
            front = [name]
            while front:
                here = front.pop()
                near = [other for other in wiring.links[here] if other not in reached]
                reached.update(near)
                front += near
            left -= reached
            parts.append([gpu for gpu in usable if gpu in reached])
    return sorted(parts, key=len, reverse=True) or [[]]


def _too_large(layout: Layout, parts: Sequence[Sequence[str]]) -> str:
    most = len(parts[0])
    sizes = " and ".join(str(len(part)) for part in parts[:4])
    room = (
        f"{most} GPUs are free" if len(parts) == 1 else f"free GPUs lie in {len(parts)} parts without a path, {sizes}"
    )
    nearest = nearest_layout(layout, most)
    what = f"use {nearest}" if nearest is not None else "free some GPUs"
    joined = "add nodes" if len(parts) == 1 else "join the parts by links"
    return f"layout {layout} needs {layout.gpus} GPUs, {room}; {what}, or {joined}"


def nearest_layout(layout: Layout, gpus: int) -> Layout | None:
    """The layout of the same kind with the most GPUs that does not exceed a number: fewer stages, then less width."""
    degrees = [
        Layout(tp=tp, pp=pp, dp=dp, cp=layout.cp, ep=1 if layout.ep == 1 else tp * dp)
        for tp in _divisors(layout.tp)
        for pp in _divisors(layout.pp)
        for dp in _divisors(layout.dp)
    ]
    fitting = [item for item in degrees if item.gpus <= gpus]
    return max(fitting, key=lambda item: (item.gpus, item.tp, item.dp), default=None)


def _divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0]
