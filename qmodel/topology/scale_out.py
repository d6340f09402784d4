"""Links between nodes: NICs, leaf and spine switches of the common topologies."""

from __future__ import annotations

from dataclasses import dataclass

from qmodel.topology.constants import NODES_PER_RAIL_LEAF, SWITCH_PORTS, TRANSPORTS, pcie_gbps, switch_hop_us
from qmodel.topology.scale_up import socket_names
from qmodel.topology.wiring import Link, Vertex, Wiring, gpu_name
from qmodel.types.hardware import Fabric, Node, Topology

__all__ = ["wire_scale_out"]

_NIC_LINK_US = 0.0  # the base latency of a fabric is end to end; it is carried by the two NIC-to-leaf links
_LEAVES_PER_POD = SWITCH_PORTS // 2
_DRAGONFLY_GLOBAL_SHARE = 0.5  # adversarial traffic gets half the bisection; Shpiner et al., HiPINEB 2017


@dataclass(frozen=True, slots=True, kw_only=True)
class _Port:
    """NICs of one node as rails: GPUs are dealt over them in order."""

    rails: int
    ports_per_node: int
    rail_gbps: float
    host_staged: bool
    fabric: Fabric


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Switch tiers."""

    by_rail: bool
    joined_rails: bool
    has_core: bool
    leaf_oversubscription: float
    core_share: float
    nodes_per_leaf: int


def wire_scale_out(wiring: Wiring, node: Node, fabric: Fabric | None, topology: Topology | None, nodes: int) -> None:
    """Add NICs and switches of ``nodes`` nodes whose GPUs are in place.

    A TCP fabric that is not the node's own means one host NIC per node, shared by all its GPUs: plain TCP has no
    GPUDirect RDMA, every byte is copied through host memory (Hu et al., Demystifying NCCL, arXiv:2507.04786).

    Args:
        wiring: receives the devices.
        node: node shape.
        fabric: port type of the GPU NICs; None: the node's own, nothing is added where it has none.
        topology: how the ports are joined; None: a rail-optimised fat tree without oversubscription.
        nodes: how many.

    Raises:
        ValueError: if several nodes that share no island are asked for and there is no NIC to join them.
    """
    port = _port(node, fabric)
    if port is None:
        if len({vertex.island for vertex in wiring.vertices.values() if vertex.kind == "gpu"}) > 1 and nodes > 1:
            raise ValueError(
                f"node {node.name!r} has no GPU NIC to join {nodes} nodes; give a fabric, or use at most"
                f" {node.gpus_per_node} GPUs"
            )
        return
    shape = _shape(topology, port)
    uplinks: dict[str, dict[str, float]] = {}
    for index in range(nodes):
        for rail in range(port.rails):
            nic = wiring.add(f"nic:{index}:{rail}", Vertex(kind="nic", node=index, local=rail))
            _join_host(wiring, node, port, nic, index, rail)
            leaf, spine = _leaf_and_spine(shape, index, rail)
            if leaf not in wiring.vertices:
                wiring.add(leaf, Vertex(kind="leaf", local=len(uplinks)))
            if spine not in wiring.vertices:
                wiring.add(spine, Vertex(kind="spine"))
            wiring.join(nic, leaf, _network_link(port, port.rail_gbps, port.fabric.base_latency_us / 2))
            loads = uplinks.setdefault(leaf, {})
            loads[spine] = loads.get(spine, 0.0) + port.rail_gbps
    _join_tiers(wiring, port, shape, uplinks)


def _join_tiers(wiring: Wiring, port: _Port, shape: _Shape, uplinks: dict[str, dict[str, float]]) -> None:
    """Uplinks carry the fair share of the ports below them, as when every port of the cluster sends.

    The spines of a tier are one vertex: adaptive routing spreads the traffic over them.
    """
    hop_us = switch_hop_us(port.fabric.transport)
    pods: dict[str, float] = {}
    for leaf, loads in uplinks.items():
        for spine, below_gbps in loads.items():
            wiring.join(leaf, spine, _network_link(port, below_gbps / shape.leaf_oversubscription, hop_us))
            pods[spine] = pods.get(spine, 0.0) + below_gbps / shape.leaf_oversubscription
    if shape.has_core:
        wiring.add("core", Vertex(kind="core"))
        for spine, below_gbps in pods.items():
            wiring.join(spine, "core", _network_link(port, below_gbps * shape.core_share, hop_us))


def _join_host(wiring: Wiring, node: Node, port: _Port, nic: str, index: int, rail: int) -> None:
    """PCIe side of a NIC; never narrower than its port, whose fraction was measured end to end."""
    link = Link(
        gbps=max(pcie_gbps(node.pcie_gen), port.rail_gbps), latency_us=_NIC_LINK_US, medium="pcie", achievable=1.0
    )
    if port.host_staged:
        for socket in socket_names(node, index):
            wiring.join(socket, nic, link)
        return
    for local in range(node.gpus_per_node):
        if local * port.rails // node.gpus_per_node == rail:
            wiring.join(gpu_name(index, local), nic, link)


def _network_link(port: _Port, gbps: float, latency_us: float) -> Link:
    fabric = port.fabric
    return Link(gbps=gbps, latency_us=latency_us, medium=fabric.transport, achievable=fabric.achievable_fraction)


def _port(node: Node, fabric: Fabric | None) -> _Port | None:
    own = node.nic_fabric is not None and node.nics > 0
    if fabric is None:
        if not own:
            return None
        fabric = _own_fabric(node)
    is_own = own and fabric.name == node.nic_fabric
    staged = fabric.transport == "tcp"
    ports = node.nics if is_own else 1 if staged else max(node.nics, 1)
    port_gbps = node.nic_gbit_per_s / 8 if is_own else fabric.gbps
    rails = 1 if staged else min(ports, node.gpus_per_node)
    return _Port(
        rails=rails, ports_per_node=ports, rail_gbps=ports / rails * port_gbps, host_staged=staged, fabric=fabric
    )


def _own_fabric(node: Node) -> Fabric:
    name = node.nic_fabric or ""
    transport, latency_us, fraction = TRANSPORTS.get(name.split("-")[0], (name, 50.0, 0.8))
    return Fabric(
        name=name,
        gbps=node.nic_gbit_per_s / 8,
        base_latency_us=latency_us,
        achievable_fraction=fraction,
        transport=transport,
        confidence="low",
        source=node.source,
        as_of=node.as_of,
    )


def _shape(topology: Topology | None, port: _Port) -> _Shape:
    name = "rail-fat-tree" if topology is None else topology.name.lower()
    oversubscription = 1.0 if topology is None else topology.oversubscription or 1.0
    by_rail = "rail" in name or "plane" in name
    down_ports = SWITCH_PORTS * oversubscription / (1.0 + oversubscription)
    return _Shape(
        by_rail=by_rail,
        joined_rails="plane" not in name,
        has_core=topology is not None and topology.max_hops >= 5,
        leaf_oversubscription=oversubscription,
        core_share=_DRAGONFLY_GLOBAL_SHARE if "dragonfly" in name else 1.0,
        nodes_per_leaf=NODES_PER_RAIL_LEAF if by_rail else max(1, int(down_ports / port.ports_per_node)),
    )


def _leaf_and_spine(shape: _Shape, index: int, rail: int) -> tuple[str, str]:
    unit = index // shape.nodes_per_leaf
    if shape.by_rail:
        leaf = f"leaf:{rail}:{unit}"
        return leaf, "spine:0" if shape.joined_rails else f"spine:{rail}"
    pod = unit // _LEAVES_PER_POD if shape.has_core else 0
    return f"leaf:{unit}", f"spine:{pod}"
