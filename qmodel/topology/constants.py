"""Constants of the link model, each with unit and source.

NCCL figures: stand-alone NCCL runs inside one node, published with aiconfigurator 0.12.0
(systems/data, Apache-2.0, read 2026-11-29). docs/theory/topology.md has the errors that remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

__all__ = [
    "BRIDGE_GBPS",
    "GPUS_PER_PCIE_SWITCH",
    "GPUS_PER_SOCKET",
    "EXCHANGE_KERNELS",
    "ExchangeKernel",
    "ExchangeKernelName",
    "LARGE",
    "MEDIA",
    "NETWORK_LARGE_STEP_FACTOR",
    "NETWORK_SMALL_FRACTION",
    "NETWORK_STEP_FACTOR",
    "NODES_PER_RAIL_LEAF",
    "Operation",
    "PCIE_COPY_FRACTION",
    "Protocol",
    "SCALE_UP_HOP_US",
    "SEND_FRACTION",
    "SEND_LAUNCH_US",
    "SMALL",
    "SWITCH_PORTS",
    "TRANSPORTS",
    "TREE_FRACTION",
    "medium_rank",
    "pcie_gbps",
    "pcie_root_gbps",
    "pcie_socket_gbps",
    "scale_up_factor",
    "switch_hop_us",
]

Operation = Literal["all_reduce", "all_gather", "all_to_all"]
ExchangeKernelName = Literal["low_latency", "normal", "one_island"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a library carries messages of one size class.

    Attributes:
        launch_us: time to start the collective, us.
        hops: link latencies that one step of the chain costs.
        fraction: goodput over line rate inside an island, in a large group.
        small_group: groups of n reach fraction x (1 - small_group / n^2): pairs fill fewer channels.
    """

    launch_us: float
    hops: float
    fraction: float
    small_group: float = 0.0

    def fraction_of(self, members: int) -> float:
        """Goodput over line rate in a group of ``members`` GPUs."""
        return self.fraction * (1.0 - self.small_group / max(members, 2) ** 2)


# Least absolute error in the logarithm over the NCCL rows of nine GPUs, 512 B to 256 MiB (benchmarks/collectives.py
# --fit). Send: nccl-tests sendrecv, 188.6 GB/s of 300 on A100, the same for a pair as for eight; one line only.
SMALL: Mapping[Operation, Protocol] = MappingProxyType(
    {
        "all_reduce": Protocol(8.1, 1.0, 0.43, 1.5),
        "all_gather": Protocol(8.1, 1.0, 0.31, 1.5),
        "all_to_all": Protocol(9.2, 1.0, 0.021, 1.8),
    }
)
LARGE: Mapping[Operation, Protocol] = MappingProxyType(
    {
        "all_reduce": Protocol(13.2, 5.2, 0.84, 1.1),
        "all_gather": Protocol(14.5, 3.9, 0.74, 1.3),
        "all_to_all": Protocol(16.7, 0.1, 0.60, 1.4),
    }
)
SEND_FRACTION = 0.63
SEND_LAUNCH_US = 8.0
SCALE_UP_HOP_US = 1.2
# Starting and stepping on Hopper over the other generations, by line rate of the NVSwitch port, GB/s. Same fit.
_HOPPER_PORT_GBPS = (375.0, 675.0)  # halfway to the ports before and after it, 300 and 900
_HOPPER_FACTOR = 0.63

# A small step that crosses nodes costs two base latencies: a 2-node all-reduce over GPUDirect-TCPXO has a floor of
# 123 us (a3-mega nccl-tests log), i.e. two steps of 51 us at 25 us base latency. The same log gives the other two:
# below 16 MiB it carries 0.22 of what it reaches later, which costs 16 base latencies a step to fill.
NETWORK_STEP_FACTOR = 2.0
NETWORK_LARGE_STEP_FACTOR = 16.0
NETWORK_SMALL_FRACTION = 0.22


@dataclass(frozen=True, slots=True)
class ExchangeKernel:
    """How a kernel moves tokens to the experts of other GPUs and back.

    Attributes:
        launch_us: time to start one direction, us.
        round_factor: base latencies of a round between islands.
        fraction: goodput over line rate inside an island.
        per_expert: whether a token is sent once for each expert, else once to each island or, in one island, GPU.
    """

    launch_us: float
    round_factor: float
    fraction: float
    per_expert: bool


# DeepEP rows on H100 and TensorRT-LLM rows on GB200 NVL72 (docs/theory/topology.md).
EXCHANGE_KERNELS: Mapping[ExchangeKernelName, ExchangeKernel] = MappingProxyType(
    {
        "low_latency": ExchangeKernel(8.0, 2.0, 0.50, per_expert=True),
        "normal": ExchangeKernel(43.0, 8.0, 0.62, per_expert=False),
        "one_island": ExchangeKernel(12.0, 2.0, 0.50, per_expert=False),
    }
)

# Extra latency per switch hop, us: cross-leaf less same-leaf over two more hops, arXiv:2505.09343
# (InfiniBand 3.7 - 2.8, RoCE 5.6 - 3.6).
_SWITCH_HOP_US = MappingProxyType({"infiniband": 0.45})
_SWITCH_HOP_OTHER_US = 1.0

_PCIE_X16_GBPS = MappingProxyType({3: 16.0, 4: 32.0, 5: 64.0, 6: 128.0})  # one direction, PCI-SIG
PCIE_COPY_FRACTION = 0.8  # pinned host copies reach 24-26 GB/s on gen 4, 50-55 on gen 5

GPUS_PER_SOCKET = 4
GPUS_PER_PCIE_SWITCH = 2
# NCCL rows of PCIe nodes: one goodput for every operation, over the slot's rate. Peer traffic through a CPU's root
# complex and between two sockets as rates before that fraction, GB/s, for all GPUs together and for one pair: a ring
# has one pair at a time on such a link, an all-to-all has them all. L40S (gen 4) stages through host memory, RTX PRO
# 6000 (gen 5) does not.
TREE_FRACTION = 0.62
_ROOT_GBPS = MappingProxyType({4: 9.8, 5: 52.0})
_ROOT_STREAM_GBPS = MappingProxyType({4: 8.2, 5: 40.0})
_SOCKET_GBPS = MappingProxyType({4: 7.6, 5: 68.0})
_SOCKET_STREAM_GBPS = MappingProxyType({4: 3.0, 5: 37.0})
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


def scale_up_factor(gbps: float) -> float:
    """Time to start and to step on GPUs with an NVSwitch port of that line rate, over the others."""
    low, high = _HOPPER_PORT_GBPS
    return _HOPPER_FACTOR if low <= gbps < high else 1.0


def medium_rank(medium: str) -> int:
    """Order of media from fast to slow; an unknown transport counts as fast as SRD."""
    return MEDIA.index(medium if medium in MEDIA else "srd")


def switch_hop_us(transport: str) -> float:
    """Latency of one more switch hop, us."""
    return _SWITCH_HOP_US.get(transport, _SWITCH_HOP_OTHER_US)


def pcie_gbps(generation: int) -> float:
    """Line rate of a PCIe x16 slot, one direction, 1e9 bytes/s."""
    return _PCIE_X16_GBPS[min(max(generation, 3), 6)]


def pcie_root_gbps(generation: int) -> tuple[float, float]:
    """Peer-to-peer rate between two PCIe switches of one socket, of all GPUs and of one pair, 1e9 bytes/s."""
    row = 4 if generation <= 4 else 5
    return _ROOT_GBPS[row], _ROOT_STREAM_GBPS[row]


def pcie_socket_gbps(generation: int) -> tuple[float, float]:
    """Peer-to-peer rate between two sockets, of all GPUs and of one pair, 1e9 bytes/s."""
    row = 4 if generation <= 4 else 5
    return _SOCKET_GBPS[row], _SOCKET_STREAM_GBPS[row]
