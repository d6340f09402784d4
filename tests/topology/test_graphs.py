from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.topology import find_placement, link_costs, node_graph, place, usual_traffic
from qmodel.topology.placement import gpu_slots
from qmodel.topology.scale_up import island_gpus
from qmodel.types import Layout, Node, Topology
from tests.topology.shapes import (
    A100,
    DRAGONFLY,
    FAT_1,
    FAT_2,
    GB200,
    H100,
    H100_NVL,
    IB,
    L40S,
    MI300X,
    PLANES,
    RAIL,
    RTX_PRO,
    TCP,
    THREE_TIER,
    node,
    nvswitch,
)

SHAPES = [A100, H100, GB200, MI300X, L40S, RTX_PRO, H100_NVL]
TOPOLOGIES = [None, RAIL, FAT_1, FAT_2, THREE_TIER, PLANES, DRAGONFLY]


def media(graph: nx.Graph) -> set[str]:
    return {medium for _, _, medium in graph.edges(data="medium")}


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from([A100, H100, MI300X, H100_NVL]),
    topology=st.sampled_from(TOPOLOGIES),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2]),
    dp=st.sampled_from([1, 2]),
)
def test_the_quick_answer_is_that_of_the_graph(
    shape: Node, topology: Topology | None, tp: int, pp: int, dp: int
) -> None:
    layout = Layout(tp=tp, pp=pp, dp=dp)
    last = gpu_slots(layout, island_gpus=island_gpus(shape))[-1]
    graph = node_graph(shape, fabric=IB, topology=topology, nodes=last // shape.gpus_per_node + 1)
    quick = usual_traffic(layout).seconds(link_costs(layout, shape, IB, topology))
    assert find_placement(layout, graph, limit=40).seconds == pytest.approx(quick, rel=1e-9)


@pytest.mark.parametrize("layout", [Layout(tp=2), Layout(tp=4, pp=2), Layout(tp=3, pp=2), Layout(tp=2, dp=2, pp=2)])
@pytest.mark.parametrize("shape", [L40S, RTX_PRO])
def test_on_a_tree_the_quick_answer_is_the_best_there_is(shape: Node, layout: Layout) -> None:
    best = find_placement(layout, node_graph(shape, fabric=IB))
    assert best.proven
    assert link_costs(layout, shape, IB) == best.costs


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_gpu_reaches_every_other(topology: Topology | None) -> None:
    for shape in SHAPES:
        graph = node_graph(shape, fabric=IB, topology=topology, nodes=2)
        assert nx.is_connected(graph)
        assert sum(kind == "gpu" for _, kind in graph.nodes(data="kind")) == 2 * shape.gpus_per_node


def test_each_rail_has_its_leaf_and_meets_the_others_at_the_spine() -> None:
    graph = node_graph(H100, fabric=IB, topology=RAIL, nodes=4)
    assert nx.shortest_path_length(graph, "nic:0:3", "nic:3:3") == 2
    assert nx.shortest_path_length(graph, "nic:0:3", "nic:3:4") == 4


def test_planes_never_meet_outside_a_node() -> None:
    graph = node_graph(H100, fabric=IB, topology=PLANES, nodes=2)
    network = graph.subgraph([name for name, kind in graph.nodes(data="kind") if kind in {"nic", "leaf", "spine"}])
    assert nx.number_connected_components(network) == 8


def test_uplinks_carry_what_oversubscription_leaves() -> None:
    full = node_graph(H100, fabric=IB, topology=FAT_1, nodes=2).edges["leaf:0", "spine:0"]["gbps"]
    half = node_graph(H100, fabric=IB, topology=FAT_2, nodes=2).edges["leaf:0", "spine:0"]["gbps"]
    assert full == pytest.approx(2 * 8 * 50.0)
    assert half == pytest.approx(full / 2)


def test_a_third_tier_joins_the_spines() -> None:
    assert "core" in node_graph(H100, fabric=IB, topology=THREE_TIER, nodes=2)
    assert "core" not in node_graph(H100, fabric=IB, topology=FAT_1, nodes=2)


def test_a_full_mesh_has_a_link_per_pair() -> None:
    graph = node_graph(MI300X)
    xgmi = [(one, other) for one, other, medium in graph.edges(data="medium") if medium == "xgmi"]
    assert len(xgmi) == 8 * 7 // 2


def test_a_pcie_node_has_four_gpus_per_socket() -> None:
    graph = node_graph(L40S)
    near = [nx.shortest_path_length(graph, "cpu:0:0", f"gpu:0:{local}") for local in range(8)]
    assert near == [2, 2, 2, 2, 3, 3, 3, 3]
    assert {"pcie", "upi"} <= media(graph)


def test_tcp_in_place_of_infiniband_leaves_one_host_nic_per_node() -> None:
    graph = node_graph(H100, fabric=TCP, nodes=2)
    nics = [name for name, kind in graph.nodes(data="kind") if kind == "nic"]
    assert nics == ["nic:0:0", "nic:1:0"]
    assert not any(graph.nodes[other]["kind"] == "gpu" for nic in nics for other in graph[nic])


def test_the_rate_of_the_nodes_own_fabric_is_that_of_its_nics() -> None:
    slower = replace(H100, nic_gbit_per_s=200.0)
    assert node_graph(slower, fabric=IB, nodes=2).edges["nic:0:0", "leaf:0:0"]["gbps"] == pytest.approx(25.0)
    assert node_graph(slower, nodes=2).edges["nic:0:0", "leaf:0:0"]["gbps"] == pytest.approx(25.0)


def test_a_rack_keeps_seventy_two_gpus_in_one_island() -> None:
    costs = link_costs(Layout(dp=72, ep=72), GB200, IB, RAIL)
    assert (costs.stage_in_island, costs.nodes, costs.bottleneck) == (True, 18, "nvlink")


def test_beyond_the_rack_the_network_is_used() -> None:
    costs = link_costs(Layout(dp=144, ep=144), GB200, IB, RAIL)
    assert (costs.stage_in_island, costs.nodes, costs.bottleneck) == (False, 36, "infiniband")


def test_part_of_a_chassis_is_an_island_of_its_own() -> None:
    half = node("half-chassis", 4, nvswitch(450.0, gpus=8))
    assert link_costs(Layout(tp=8), half, IB, RAIL).stage_in_island is False
    assert link_costs(Layout(tp=4), half, IB, RAIL).stage_in_island is True


def test_a_stage_is_not_split_over_islands_if_it_fits_one() -> None:
    assert gpu_slots(Layout(tp=6, pp=2), island_gpus=8) == [*range(6), *range(8, 14)]
    assert link_costs(Layout(tp=6, pp=2), H100, IB, RAIL).stage_in_island is True


def test_tensor_groups_stay_whole_where_a_stage_spans_nodes() -> None:
    costs = link_costs(Layout(tp=8, dp=2, ep=16), H100, IB, RAIL)
    assert (costs.tp_all_reduce.path, costs.stage_all_to_all.path) == ("nvlink", "infiniband")
    assert gpu_slots(Layout(tp=3, dp=4), island_gpus=8)[6:9] == [8, 9, 10]


def test_a_cut_link_slows_the_group_that_uses_it() -> None:
    graph = node_graph(H100)
    before = place(Layout(tp=8), graph).tp_all_reduce
    graph.edges["gpu:0:5", "nvswitch:0"]["gbps"] /= 2
    after = place(Layout(tp=8), graph).tp_all_reduce
    assert after.bytes_per_s == pytest.approx(before.bytes_per_s / 2)


def test_a_layout_larger_than_the_graph_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"^layout tp8-pp2 needs 16 GPUs, 8 GPUs are free; use tp8, or add nodes$"):
        place(Layout(tp=8, pp=2), node_graph(H100))


def test_nodes_without_a_nic_cannot_be_joined() -> None:
    alone = replace(H100, name="alone", nic_fabric=None, nics=0)
    assert link_costs(Layout(tp=8), alone).bottleneck == "nvlink"
    reason = "^node 'alone' has no GPU NIC to join 2 nodes; give a fabric, or use at most 8 GPUs$"
    with pytest.raises(ValueError, match=reason):
        link_costs(Layout(tp=16), alone)


def test_a_graph_has_at_least_one_node() -> None:
    with pytest.raises(ValueError, match=r"nodes must be at least 1 \(got 0\)"):
        node_graph(H100, nodes=0)


def test_link_costs_never_imports_networkx() -> None:
    program = (
        "import sys\n"
        "from qmodel.topology import link_costs\n"
        "from qmodel.types import Layout\n"
        "from tests.topology.shapes import H100, IB\n"
        "link_costs(Layout(tp=8, pp=2), H100, IB)\n"
        "assert 'networkx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
