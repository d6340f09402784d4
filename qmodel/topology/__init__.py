"""Where the GPUs of a layout sit and what their collectives cost on the links between them.

``link_costs`` answers for a node and a fabric, ``node_graph`` shows the same wiring as a networkx graph. See
docs/theory/topology.md.
"""

from __future__ import annotations

from qmodel.topology.experts import ExpertExchange, exchange_costs
from qmodel.topology.graphs import link_costs, node_graph
from qmodel.topology.spread import parts_reached

__all__ = ["ExpertExchange", "exchange_costs", "link_costs", "node_graph", "parts_reached"]
