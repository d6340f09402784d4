"""Constants of the link model, each with unit and source.

NCCL figures: stand-alone NCCL runs inside one node, published with aiconfigurator 0.12.0
(systems/data, Apache-2.0, read 2026-11-29). docs/theory/topology.md has the errors that remain.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

__all__ = [
    "BRIDGE_GBPS",
    "GPUS_PER_PCIE_SWITCH",
    "GPUS_PER_SOCKET",
    "LAUNCH_US",
    "MEDIA",
    "NETWORK_STEP_FACTOR",
    "NODES_PER_RAIL_LEAF",
    "Operation",
    "PCIE_COPY_FRACTION",
    "SCALE_UP_HOP_US",
    "SWITCH_PORTS",
    "TRANSPORTS",
    "medium_rank",
    "pcie_gbps",
    "pcie_root_gbps",
    "pcie_socket_gbps",
    "scale_up_fraction",
    "switch_hop_us",
]

Operation = Literal["all_reduce", "all_gather", "all_to_all", "send"]

# Large-message goodput over line rate inside an island; least squares over the NCCL rows of seven NVSwitch GPUs at
# 256 MiB. Send: nccl-tests sendrecv, 188.6 GB/s of 300 on A100, the same for a pair as for eight.
_FRACTION = MappingProxyType({"all_reduce": 0.82, "all_gather": 0.70, "all_to_all": 0.65, "send": 0.63})
# Pairs and fours fill fewer channels: fraction x (1 - 1.2/n^2). Same fit.
_SMALL_GROUP = 1.2

# Starting a collective, us, and one step of the chain through an island, us; least squares over the same rows at 8 KiB.
LAUNCH_US = 8.0
SCALE_UP_HOP_US = 0.87

# A step that crosses nodes costs two base latencies: a 2-node all-reduce over GPUDirect-TCPXO has a floor of 123 us
# (a3-mega nccl-tests log), i.e. two steps of 51 us at 25 us base latency.
NETWORK_STEP_FACTOR = 2.0

# Extra latency per switch hop, us: cross-leaf less same-leaf over two more hops, arXiv:2505.09343
# (InfiniBand 3.7 - 2.8, RoCE 5.6 - 3.6).
_SWITCH_HOP_US = MappingProxyType({"infiniband": 0.45})
_SWITCH_HOP_OTHER_US = 1.0

_PCIE_X16_GBPS = MappingProxyType({3: 16.0, 4: 32.0, 5: 64.0, 6: 128.0})  # one direction, PCI-SIG
PCIE_COPY_FRACTION = 0.8  # pinned host copies reach 24-26 GB/s on gen 4, 50-55 on gen 5

GPUS_PER_SOCKET = 4
GPUS_PER_PCIE_SWITCH = 2
# Peer traffic through a CPU's root complex, and between two sockets, line rate in GB/s as the fractions above see it.
# NCCL rows at 4 and 8 GPUs: L40S (gen 4, staged through host memory) 5 and 2 GB/s, RTX PRO 6000 (gen 5) 25 and 21.
_ROOT_GBPS = MappingProxyType({4: 7.0, 5: 34.0})
_SOCKET_GBPS = MappingProxyType({4: 2.6, 5: 28.0})
BRIDGE_GBPS = 300.0  # NVLink bridge of a pair, one direction; A100 PCIe and H100 NVL data sheets

SWITCH_PORTS = 64  # one leaf; NVIDIA Quantum-2 QM9700 and 64 x 400G Ethernet switches
NODES_PER_RAIL_LEAF = 32  # scalable unit of the DGX SuperPOD reference architecture

# Catalog name prefix of a NIC's fabric -> transport, base latency us, achievable fraction. Used only where a node names
# its fabric but no Fabric record was given; values are those of the catalog.
TRANSPORTS = MappingProxyType(
    {
        "ib": ("infiniband", 2.8, 0.90),
        "roce": ("rocev2", 3.6, 0.85),
        "efa": ("srd", 15.0, 0.80),
        "tcpxo": ("gpudirect-tcpxo", 25.0, 0.85),
        "tcpx": ("gpudirect-tcpx", 30.0, 0.75),
        "tcp": ("tcp", 50.0, 0.80),
    }
)

MEDIA = (
    "none",
    "nvlink",
    "xgmi",
    "ethernet",
    "pcie",
    "upi",
    "infiniband",
    "rocev2",
    "srd",
    "gpudirect-tcpxo",
    "gpudirect-tcpx",
    "tcp",
)


def scale_up_fraction(operation: Operation, members: int) -> float:
    """Goodput over line rate of a large collective of ``members`` GPUs inside an island."""
    if operation == "send":
        return _FRACTION["send"]
    return _FRACTION[operation] * (1.0 - _SMALL_GROUP / members**2)


def medium_rank(medium: str) -> int:
    """Order of media from fast to slow; an unknown transport counts as fast as SRD."""
    return MEDIA.index(medium if medium in MEDIA else "srd")


def switch_hop_us(transport: str) -> float:
    """Latency of one more switch hop, us."""
    return _SWITCH_HOP_US.get(transport, _SWITCH_HOP_OTHER_US)


def pcie_gbps(generation: int) -> float:
    """Line rate of a PCIe x16 slot, one direction, 1e9 bytes/s."""
    return _PCIE_X16_GBPS[min(max(generation, 3), 6)]


def pcie_root_gbps(generation: int) -> float:
    """Peer-to-peer rate between two PCIe switches of one socket, 1e9 bytes/s."""
    return _ROOT_GBPS[4 if generation <= 4 else 5]


def pcie_socket_gbps(generation: int) -> float:
    """Peer-to-peer rate between the GPUs of two sockets, 1e9 bytes/s."""
    return _SOCKET_GBPS[4 if generation <= 4 else 5]
