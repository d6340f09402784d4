"""Where the GPUs of a layout sit and what their collectives cost on the links between them.

``link_costs`` answers for a node and a fabric, ``node_graph`` shows the same wiring as a
networkx graph, ``place`` puts a layout on such a graph. See docs/theory/topology.md.
"""

from __future__ import annotations

from qmodel.topology.graphs import link_costs, node_graph, place

__all__ = ["link_costs", "node_graph", "place"]
