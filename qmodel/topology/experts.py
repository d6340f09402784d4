"""Expert tokens on their way: how many parts of a group one token reaches, and what the exchange costs."""

from __future__ import annotations

from dataclasses import dataclass

from qmodel.topology.collectives import exchange
from qmodel.topology.constants import EXCHANGE_KERNELS, ExchangeKernelName
from qmodel.topology.graphs import wire_layout
from qmodel.topology.placement import stage_groups
from qmodel.topology.routes import Routes
from qmodel.topology.spread import parts_reached
from qmodel.types.hardware import Fabric, Node, Topology
from qmodel.types.layouts import Collective, Layout

__all__ = ["ExpertExchange", "exchange_costs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertExchange:
    """What it costs to send tokens to their experts, or their results back.

    Attributes:
        copies: messages one token sends, its own part included.
        cost: of one direction; the payload is what one GPU sends.
    """

    copies: float
    cost: Collective

    def seconds(self, tokens: float, token_bytes: float) -> float:
        """Time of one direction, s.

        Args:
            tokens: tokens of one GPU.
            token_bytes: bytes of one of them.
        """
        return self.cost.seconds(tokens * token_bytes * self.copies)


def exchange_costs(
    layout: Layout,
    node: Node,
    fabric: Fabric | None = None,
    topology: Topology | None = None,
    *,
    experts: int,
    experts_per_token: int,
    groups: int = 1,
    groups_per_token: int = 1,
    kernel: ExchangeKernelName = "normal",
) -> ExpertExchange:
    """Cost of one direction of the expert exchange of one replica whose experts lie on all GPUs of a stage.

    Args:
        layout: degrees of the replica.
        node: node shape.
        fabric: port type of the GPU NICs; None: the node's own.
        topology: how the ports are joined; None: a rail-optimised fat tree without oversubscription.
        experts: routed experts of a layer.
        experts_per_token: of them, those one token visits.
        groups: groups of experts for node-limited routing, 1 without.
        groups_per_token: groups one token may visit.
        kernel: ``low_latency`` sends a copy for each expert, ``normal`` one to each island (to each GPU where there is
            one island), ``one_island`` one to each GPU with little delay.

    Returns:
        Copies of a token and the cost of one direction.

    Raises:
        ValueError: as `parts_reached` and `link_costs` do, for an unknown kernel, and for ``one_island`` on more.

    Example:
        >>> from qmodel.types import Node, ScaleUpDomain
        >>> domain = ScaleUpDomain(name="nvswitch-8-gen3", gpus=8, kind="nvswitch", gbps_per_gpu=450.0)
        >>> node = Node(name="dgx-h100", gpu="h100-sxm", gpus_per_node=8, domain=domain,
        ...             intra_node_topology="nvswitch-full-mesh", numa_nodes=2, nic_fabric="ib-ndr", nics=8,
        ...             nic_gbit_per_s=400.0, pcie_gen=5, confidence="medium", source="data sheet", as_of="2026-11-29")
        >>> free = exchange_costs(Layout(dp=64, ep=64), node, experts=256, experts_per_token=8)
        >>> limited = exchange_costs(Layout(dp=64, ep=64), node, experts=256, experts_per_token=8,
        ...                          groups=8, groups_per_token=4)
        >>> round(free.copies, 2), round(limited.copies, 2)
        (5.29, 3.63)

    Reference: docs/theory/topology.md.
    """
    if kernel not in EXCHANGE_KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(EXCHANGE_KERNELS)} (got {kernel!r})")
    wiring, ranks = wire_layout(layout, node, fabric, topology)
    stages = stage_groups(layout, ranks)
    islands = max(len({wiring.vertices[name].island for name in stage}) for stage in stages)
    if kernel == "one_island" and islands > 1:
        raise ValueError(
            f"kernel 'one_island' serves a stage inside one island, {layout} spans {islands}; use 'normal' or"
            " 'low_latency'"
        )
    counts = (experts, experts_per_token)
    limit = (groups, groups_per_token)
    reached = parts_reached(*counts, layout.stage_gpus, *limit)
    copies = reached if islands == 1 else parts_reached(*counts, islands, *limit)
    handed_on = reached / copies
    if EXCHANGE_KERNELS[kernel].per_expert:
        copies, handed_on = float(experts_per_token), 1.0
    return ExpertExchange(copies=copies, cost=exchange(Routes(wiring), stages, kernel, handed_on))
