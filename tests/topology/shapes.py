"""Nodes and fabrics the topology tests build on; values as in the catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qmodel.types import Fabric, Node, ScaleUpDomain, Topology


def fabric(name: str, gbps: float, base_latency_us: float, achievable_fraction: float, transport: str) -> Fabric:
    return Fabric(
        name=name,
        gbps=gbps,
        base_latency_us=base_latency_us,
        achievable_fraction=achievable_fraction,
        transport=transport,
        confidence="medium",
        source="test",
        as_of="2026-11-29",
    )


def topology(name: str, oversubscription: float | None, max_hops: int) -> Topology:
    return Topology(
        name=name,
        oversubscription=oversubscription,
        max_hops=max_hops,
        confidence="medium",
        source="test",
        as_of="2026-11-29",
    )


def node(name: str, gpus: int, domain: ScaleUpDomain, **changes: Any) -> Node:
    shape = Node(
        name=name,
        gpu=name,
        gpus_per_node=gpus,
        domain=domain,
        intra_node_topology=domain.kind,
        numa_nodes=2,
        nic_fabric="ib-ndr",
        nics=gpus,
        nic_gbit_per_s=400.0,
        pcie_gen=5,
        confidence="medium",
        source="test",
        as_of="2026-11-29",
    )
    return replace(shape, **changes)


def nvswitch(gbps: float, gpus: int = 8) -> ScaleUpDomain:
    return ScaleUpDomain(name=f"nvswitch-{gpus}", gpus=gpus, kind="nvswitch", gbps_per_gpu=gbps)


IB = fabric("ib-ndr", 50.0, 2.8, 0.92, "infiniband")
ROCE = fabric("roce-400", 50.0, 3.6, 0.85, "rocev2")
TCPXO = fabric("tcpxo-200", 25.0, 25.0, 0.85, "gpudirect-tcpxo")
TCP = fabric("tcp-25", 3.12, 50.0, 0.9, "tcp")

RAIL = topology("rail-fat-tree", 1.0, 3)
FAT_1 = topology("fat-tree", 1.0, 3)
FAT_2 = topology("fat-tree-2to1", 2.0, 3)
THREE_TIER = topology("fat-tree-3tier", 1.0, 5)
PLANES = topology("multi-plane-fat-tree", 1.0, 3)
DRAGONFLY = topology("dragonfly-plus", None, 5)

A100 = node("hgx-a100-8", 8, nvswitch(300.0), numa_nodes=8, pcie_gen=4)
H100 = node("dgx-h100", 8, nvswitch(450.0))
B200 = node("dgx-b200", 8, nvswitch(900.0))
GB200 = node("gb200-nvl72", 4, nvswitch(900.0, gpus=72), intra_node_topology="nvlink-switch-rack")
MI300X = node(
    "mi300x-8",
    8,
    ScaleUpDomain(name="xgmi-8-cdna3", gpus=8, kind="xgmi-full-mesh", gbps_per_gpu=448.0, gbps_per_pair=64.0),
)
L40S = node(
    "pcie-8xl40s",
    8,
    ScaleUpDomain(name="pcie4-2numa-8", gpus=8, kind="pcie-tree", gbps_per_gpu=32.0),
    pcie_gen=4,
    nics=2,
)
RTX_PRO = node(
    "rtxpro6000-8", 8, ScaleUpDomain(name="pcie5-2numa-8", gpus=8, kind="pcie-tree", gbps_per_gpu=64.0), nics=2
)
H100_NVL = node(
    "h100-nvl-2",
    2,
    ScaleUpDomain(name="pcie5-2numa-8", gpus=8, kind="pcie-tree", gbps_per_gpu=64.0),
    intra_node_topology="nvlink-bridge-pair",
    nics=1,
)
