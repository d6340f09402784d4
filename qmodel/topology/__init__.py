"""Where the GPUs of a layout sit and what their collectives cost on the links between them.

``link_costs`` answers for a node and a fabric. ``node_graph`` shows the same wiring as a networkx graph, to be changed
where a machine differs; ``place`` and ``find_placement`` choose the GPUs of a layout on such a graph, ``share_links``
costs replicas that use it together. See docs/theory/topology.md.
"""

from __future__ import annotations

from qmodel.topology.branching import StepTraffic, usual_traffic
from qmodel.topology.experts import ExpertExchange, exchange_costs
from qmodel.topology.graphs import link_costs, node_graph
from qmodel.topology.placements import Placement, find_placement, nearest_layout, place, share_links
from qmodel.topology.spread import parts_reached

__all__ = [
    "ExpertExchange",
    "Placement",
    "StepTraffic",
    "exchange_costs",
    "find_placement",
    "link_costs",
    "nearest_layout",
    "node_graph",
    "parts_reached",
    "place",
    "share_links",
    "usual_traffic",
]
