"""The graph of a few nodes, and the costs of a layout that takes their GPUs in order."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING

from qmodel.topology.branching import search, usual_traffic
from qmodel.topology.costing import placed_costs
from qmodel.topology.placement import gpu_slots
from qmodel.topology.routes import Routes
from qmodel.topology.scale_out import wire_scale_out
from qmodel.topology.scale_up import is_tree, island_gpus, wire_scale_up
from qmodel.topology.wiring import Wiring
from qmodel.types.hardware import Fabric, Node, Topology
from qmodel.types.layouts import Layout, LinkCosts

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["link_costs", "node_graph", "wire_layout"]

_TREE_LIMIT = 200  # partial placements; a node of eight GPUs takes a tenth of that


def node_graph(
    node: Node, *, fabric: Fabric | None = None, topology: Topology | None = None, nodes: int = 1
) -> nx.Graph:
    """Devices and links of some equal nodes.

    Vertices are named ``gpu:0:3`` (node, place), ``nvswitch:0``, ``pcie:0:1``, ``cpu:0:0``, ``nic:0:3``,
    ``leaf:...``, ``spine:...`` and have the attributes of `Vertex`; edges have ``gbps`` (one direction,
    1e9 bytes/s), ``latency_us``, ``medium`` and ``achievable``. Change an edge and `place` sees it.

    Args:
        node: node shape.
        fabric: port type of the GPU NICs; None: the node's own.
        topology: how the ports are joined; None: a rail-optimised fat tree without oversubscription.
        nodes: how many nodes, at least 1.

    Returns:
        An undirected graph; every link is full duplex.

    Raises:
        ValueError: if ``nodes`` is below 1, or the nodes have nothing that joins them.

    Example:
        >>> from qmodel.types import Node, ScaleUpDomain
        >>> domain = ScaleUpDomain(name="nvswitch-8-gen3", gpus=8, kind="nvswitch", gbps_per_gpu=450.0)
        >>> node = Node(name="dgx-h100", gpu="h100-sxm", gpus_per_node=8, domain=domain,
        ...             intra_node_topology="nvswitch-full-mesh", numa_nodes=2, nic_fabric="ib-ndr", nics=8,
        ...             nic_gbit_per_s=400.0, pcie_gen=5, confidence="medium", source="data sheet", as_of="2026-11-29")
        >>> node_graph(node, nodes=2).edges["gpu:1:3", "nvswitch:1"]["gbps"]
        450.0

    Reference: docs/theory/topology.md.
    """
    import networkx as nx

    wiring = _wire(node, fabric, topology, nodes, network=True)
    graph = nx.Graph(node=node.name)
    graph.add_nodes_from((name, asdict(vertex)) for name, vertex in wiring.vertices.items())
    for one, links in wiring.links.items():
        graph.add_edges_from((one, other, asdict(link)) for other, link in links.items() if one < other)
    return graph


def link_costs(layout: Layout, node: Node, fabric: Fabric | None = None, topology: Topology | None = None) -> LinkCosts:
    """Costs of the collectives of a layout on as many equal nodes as it needs; remembered.

    GPUs are handed out in order, tensor-parallel ranks innermost; a stage stays inside one island where it fits. On a
    PCIe tree the best GPUs of a node are looked for, as `place` does.

    Args:
        layout: degrees of the replica.
        node: node shape.
        fabric: port type of the GPU NICs; None: the node's own.
        topology: how the ports are joined; None: a rail-optimised fat tree without oversubscription.

    Returns:
        Costs with all groups of a kind communicating at once. Payloads: ``tp_all_reduce`` the reduced buffer,
        ``stage_all_gather`` the whole gathered buffer, ``stage_all_to_all`` all bytes one GPU sends (its own part
        included), ``stage_send`` the bytes one GPU sends.

    Raises:
        ValueError: if the layout needs several nodes and the node has no NIC and no fabric was given.

    Example:
        >>> from qmodel.types import Node, ScaleUpDomain
        >>> domain = ScaleUpDomain(name="nvswitch-8-gen3", gpus=8, kind="nvswitch", gbps_per_gpu=450.0)
        >>> node = Node(name="dgx-h100", gpu="h100-sxm", gpus_per_node=8, domain=domain,
        ...             intra_node_topology="nvswitch-full-mesh", numa_nodes=2, nic_fabric="ib-ndr", nics=8,
        ...             nic_gbit_per_s=400.0, pcie_gen=5, confidence="medium", source="data sheet", as_of="2026-11-29")
        >>> costs = link_costs(Layout(tp=8, pp=2), node)
        >>> costs.stage_in_island, costs.tp_all_reduce.path, costs.stage_send.path, costs.nodes
        (True, 'nvlink', 'infiniband', 2)

    Reference: docs/theory/topology.md.
    """
    return _link_costs(layout, node, fabric, topology)


@lru_cache(maxsize=4096)
def _link_costs(layout: Layout, node: Node, fabric: Fabric | None, topology: Topology | None) -> LinkCosts:
    wiring, ranks = wire_layout(layout, node, fabric, topology)
    if 1 < layout.gpus <= node.gpus_per_node and is_tree(node):
        # On a switch and in a mesh the GPUs of a node are alike, so that any order is as good.
        found = search(layout, wiring, usual_traffic(layout), free=wiring.gpus(), limit=_TREE_LIMIT)
        if found is not None:
            return found.costs
    return placed_costs(layout, Routes(wiring), ranks)


def wire_layout(
    layout: Layout, node: Node, fabric: Fabric | None, topology: Topology | None
) -> tuple[Wiring, list[str]]:
    """As many equal nodes as a layout needs, and the GPU of each of its ranks, handed out in order."""
    island = island_gpus(node)
    slots = gpu_slots(layout, island_gpus=island)
    nodes = slots[-1] // node.gpus_per_node + 1
    wiring = _wire(node, fabric, topology, nodes, network=slots[-1] >= island)
    gpus = wiring.gpus()
    return wiring, [gpus[slot] for slot in slots]


def _wire(node: Node, fabric: Fabric | None, topology: Topology | None, nodes: int, *, network: bool) -> Wiring:
    if nodes < 1:
        raise ValueError(f"nodes must be at least 1 (got {nodes})")
    wiring = Wiring()
    wire_scale_up(wiring, node, nodes)
    if network:
        wire_scale_out(wiring, node, fabric, topology, nodes)
    return wiring
