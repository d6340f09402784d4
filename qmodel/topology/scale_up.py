"""Links inside nodes and racks: NVSwitch, full meshes, PCIe trees, sockets."""

from __future__ import annotations

from itertools import combinations

from qmodel.topology.constants import (
    BRIDGE_GBPS,
    GPUS_PER_PCIE_SWITCH,
    GPUS_PER_SOCKET,
    PCIE_COPY_FRACTION,
    SCALE_UP_HOP_US,
    TREE_FRACTION,
    pcie_gbps,
    pcie_root_gbps,
    pcie_socket_gbps,
    scale_up_factor,
)
from qmodel.topology.wiring import Link, Vertex, Wiring, gpu_name
from qmodel.types.hardware import Node

__all__ = ["is_tree", "island_gpus", "socket_names", "wire_scale_up"]

_HALF_HOP_US = SCALE_UP_HOP_US / 2
_BRIDGE_US = 0.8  # below a hop over the PCIe switch, so that a bridged pair uses its bridge
_HOST_LINK_US = 1.0  # one PCIe leg to host memory; a host-staged copy takes about 2 us
_ROOT_LINK_US = 0.3  # NCCL rows of PCIe nodes: steps of four and eight GPUs take 1.5-1.6 us
_TREE_LAUNCH = 0.55  # same rows: 4.4 us to start


def island_gpus(node: Node) -> int:
    """GPUs of one scale-up domain as this node shape sees it.

    A domain of more than one chassis spans nodes (an NVL72 rack of 4-GPU trays). A machine that has
    only some GPUs of a chassis, such as a virtual machine with one of eight, keeps what it has.

    Args:
        node: node shape with its domain record.

    Returns:
        Number of GPUs in one island.
    """
    domain = node.domain
    is_rack = domain.kind.startswith("nvswitch") and (domain.gpus > 8 or "rack" in node.intra_node_topology)
    if is_rack and domain.gpus > node.gpus_per_node:
        return domain.gpus - domain.gpus % node.gpus_per_node
    return max(1, min(domain.gpus, node.gpus_per_node))


def socket_names(node: Node, index: int) -> list[str]:
    """CPU sockets of the node with number ``index``."""
    return [f"cpu:{index}:{socket}" for socket in range(_sockets(node))]


def wire_scale_up(wiring: Wiring, node: Node, nodes: int) -> None:
    """Add GPUs, scale-up switches and sockets of ``nodes`` equal nodes, and the links between them.

    Args:
        wiring: receives the devices.
        node: node shape.
        nodes: how many, at least 1.
    """
    size = island_gpus(node)
    launch = _factor(node)
    for index in range(nodes):
        for local in range(node.gpus_per_node):
            rank = index * node.gpus_per_node + local
            vertex = Vertex(kind="gpu", node=index, local=local, island=rank // size, launch=launch)
            wiring.add(gpu_name(index, local), vertex)
        _wire_sockets(wiring, node, index)
    islands: dict[int, list[str]] = {}
    for name in wiring.gpus():
        islands.setdefault(wiring.vertices[name].island, []).append(name)
    for island, members in islands.items():
        if node.domain.kind.startswith("nvswitch"):
            _wire_switch(wiring, node, island, members)
        elif "mesh" in node.domain.kind:
            _wire_mesh(wiring, node, members)
        if "bridge" in node.intra_node_topology.lower():
            for one, other in zip(members[::2], members[1::2], strict=False):
                wiring.join(one, other, Link(gbps=BRIDGE_GBPS, latency_us=_BRIDGE_US, medium="nvlink"))


def _wire_switch(wiring: Wiring, node: Node, island: int, members: list[str]) -> None:
    switch = wiring.add(f"nvswitch:{island}", Vertex(kind="nvswitch", local=island, island=island))
    hop_us = _HALF_HOP_US * _factor(node)
    link = Link(gbps=node.domain.gbps_per_gpu, latency_us=hop_us, medium="nvlink")
    for name in members:
        wiring.join(name, switch, link)


def _factor(node: Node) -> float:
    """Time to start a collective, over that of the reference."""
    if node.domain.kind.startswith("nvswitch"):
        return scale_up_factor(node.domain.gbps_per_gpu)
    return _TREE_LAUNCH if is_tree(node) else 1.0


def is_tree(node: Node) -> bool:
    """Anything that is neither switched nor meshed talks over its PCIe tree."""
    return not node.domain.kind.startswith("nvswitch") and "mesh" not in node.domain.kind


def _wire_mesh(wiring: Wiring, node: Node, members: list[str]) -> None:
    domain = node.domain
    pair_gbps = domain.gbps_per_pair or domain.gbps_per_gpu / max(domain.gpus - 1, 1)
    medium = "xgmi" if domain.kind.startswith("xgmi") else "ethernet"
    link = Link(gbps=pair_gbps, latency_us=SCALE_UP_HOP_US, medium=medium)
    for one, other in combinations(members, 2):
        wiring.join(one, other, link)


def _sockets(node: Node) -> int:
    """CPU sockets; a small node has all GPUs under one even where it has two."""
    return max(1, min(node.numa_nodes, -(-node.gpus_per_node // GPUS_PER_SOCKET)))


def _wire_sockets(wiring: Wiring, node: Node, index: int) -> None:
    sockets = socket_names(node, index)
    for local, name in enumerate(sockets):
        wiring.add(name, Vertex(kind="cpu", node=index, local=local))
    socket_link = _shared(pcie_socket_gbps(node.pcie_gen), "upi")
    for one, other in combinations(sockets, 2):
        wiring.join(one, other, socket_link)
    _, peer_gbps = pcie_root_gbps(node.pcie_gen)
    host_link = Link(
        gbps=pcie_gbps(node.pcie_gen),
        latency_us=_HOST_LINK_US,
        medium="pcie",
        achievable=PCIE_COPY_FRACTION,
        stream_gbps=peer_gbps * TREE_FRACTION / PCIE_COPY_FRACTION,
    )
    for local in range(node.gpus_per_node):
        socket = sockets[local * len(sockets) // node.gpus_per_node]
        if is_tree(node):
            _hang_on_tree(wiring, node, index, local, socket)
        else:
            wiring.join(gpu_name(index, local), socket, host_link)


def _hang_on_tree(wiring: Wiring, node: Node, index: int, local: int, socket: str) -> None:
    """Two GPUs share a PCIe switch, the switches of a socket meet in its root complex."""
    number = local // GPUS_PER_PCIE_SWITCH
    switch = f"pcie:{index}:{number}"
    if switch not in wiring.vertices:
        wiring.add(switch, Vertex(kind="pcie_switch", node=index, local=number))
        wiring.join(switch, socket, _shared(pcie_root_gbps(node.pcie_gen), "pcie"))
    slot = Link(gbps=node.domain.gbps_per_gpu, latency_us=_HALF_HOP_US, medium="pcie", achievable=TREE_FRACTION)
    wiring.join(gpu_name(index, local), switch, slot)


def _shared(rates_gbps: tuple[float, float], medium: str) -> Link:
    all_gbps, pair_gbps = rates_gbps
    return Link(gbps=all_gbps, latency_us=_ROOT_LINK_US, medium=medium, achievable=TREE_FRACTION, stream_gbps=pair_gbps)
