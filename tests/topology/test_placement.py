from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.topology import Placement, StepTraffic, find_placement, link_costs, node_graph, share_links, usual_traffic
from qmodel.topology.branching import _Task
from qmodel.topology.costing import placed_costs
from qmodel.topology.placement import gpu_slots
from qmodel.topology.reading import read_graph
from qmodel.topology.routes import Routes
from qmodel.types import Fabric, Layout, Topology
from tests.topology.shapes import FAT_2, H100, IB, L40S, MI300X, RAIL, RTX_PRO, TCP, node, nvswitch


def pairs_of(names: list[str], stages: int) -> list[tuple[str, ...]]:
    """Every way to put ordered stages of two GPUs on some of the names."""
    if stages == 0:
        return [()]
    found = []
    for pair in combinations(names, 2):
        left = [name for name in names if name not in pair]
        found += [(*pair, *rest) for rest in pairs_of(left, stages - 1)]
    return found


def best_by_hand(layout: Layout, graph: nx.Graph, orders: list[tuple[str, ...]]) -> float:
    routes = Routes(read_graph(graph))
    return min(usual_traffic(layout).seconds(placed_costs(layout, routes, ranks)) for ranks in orders)


def random_graph(rates: list[float]) -> nx.Graph:
    """Six GPUs on a slow switch, some pairs with a link of their own."""
    graph = nx.Graph()
    graph.add_node("switch", kind="pcie_switch")
    for local in range(6):
        graph.add_node(f"g{local}", kind="gpu", local=local)
        graph.add_edge(f"g{local}", "switch", gbps=20.0 + local, latency_us=1.0, medium="pcie", achievable=1.0)
    for (one, other), gbps in zip(combinations(range(6), 2), rates, strict=True):
        if gbps > 100.0:
            graph.add_edge(f"g{one}", f"g{other}", gbps=gbps, latency_us=0.5, medium="nvlink", achievable=1.0)
    return graph


@settings(max_examples=25, deadline=None)
@given(
    rates=st.lists(st.integers(0, 300).map(float), min_size=15, max_size=15),
    layout=st.sampled_from([Layout(tp=2), Layout(tp=2, pp=2), Layout(tp=2, pp=3)]),
)
def test_what_is_found_is_the_best_of_all_groupings(rates: list[float], layout: Layout) -> None:
    graph = random_graph(rates)
    best = find_placement(layout, graph, limit=100_000)
    names = [f"g{local}" for local in range(6)]
    # the second GPU of a pair hands over to the second of the next, so the order within a pair counts
    orders = [
        tuple(name for pair in turned for name in pair)
        for ranks in pairs_of(names, layout.pp)
        for turned in [[ranks[at : at + 2] for at in range(0, len(ranks), 2)]]
    ]
    assert best.proven
    assert best.seconds == pytest.approx(best_by_hand(layout, graph, orders), rel=1e-9)


@pytest.mark.parametrize("shape", [L40S, RTX_PRO, MI300X])
@pytest.mark.parametrize("layout", [Layout(tp=4), Layout(tp=4, pp=2), Layout(tp=4, dp=2)])
def test_no_choice_of_fours_on_a_node_is_better_than_the_one_found(shape: object, layout: Layout) -> None:
    graph = node_graph(shape)
    names = [f"gpu:0:{local}" for local in range(8)]
    orders = []
    for first in combinations(names, 4):
        rest = tuple(name for name in names if name not in first)
        orders.append((*first, *rest)[: layout.gpus])
    best = find_placement(layout, graph)
    assert best.proven
    assert best.seconds <= best_by_hand(layout, graph, orders) * (1 + 1e-12)


def test_no_order_of_a_ring_is_better_than_the_walk_to_the_nearest() -> None:
    graph = node_graph(RTX_PRO)
    names = [f"gpu:0:{local}" for local in range(4)]
    best = find_placement(Layout(tp=4), graph)
    orders = [(names[0], *rest) for rest in permutations(names[1:])]
    assert best.seconds == pytest.approx(best_by_hand(Layout(tp=4), graph, orders))


def test_tensor_groups_stay_on_their_socket_and_stages_are_split_over_the_slow_link() -> None:
    best = find_placement(Layout(tp=4, pp=2), node_graph(RTX_PRO))
    sockets = [{int(name.rsplit(":", 1)[1]) // 4 for name in group} for group in best.groups]
    assert sorted(map(sorted, sockets)) == [[0], [1]]
    assert best.costs.tp_all_reduce.path == "pcie"
    assert best.costs.stage_send.path == "upi"


def test_a_group_of_three_does_not_straddle_the_sockets_as_the_order_would() -> None:
    layout = Layout(tp=3, pp=2)
    graph = node_graph(L40S)
    names = [f"gpu:0:{slot}" for slot in gpu_slots(layout, island_gpus=8)]
    in_order = best_by_hand(layout, graph, [tuple(names)])
    best = find_placement(layout, graph)
    assert best.seconds < 0.8 * in_order
    assert link_costs(layout, L40S) == best.costs


def test_gpus_named_across_the_sockets_are_still_grouped_by_socket() -> None:
    graph = node_graph(RTX_PRO)
    shuffled = dict(
        zip((f"gpu:0:{i}" for i in range(8)), (f"gpu:0:{i}" for i in (0, 4, 1, 5, 2, 6, 3, 7)), strict=True)
    )
    attributes = {shuffled[name]: dict(graph.nodes[name]) for name in shuffled}
    renamed = nx.relabel_nodes(graph, shuffled)
    for name, values in attributes.items():
        renamed.nodes[name].update(values, local=int(name.rsplit(":", 1)[1]))
    plain, found = (find_placement(Layout(tp=4, pp=2), each) for each in (graph, renamed))
    assert found.seconds == pytest.approx(plain.seconds)


def test_a_broken_link_is_left_to_no_group_that_can_do_without() -> None:
    graph = node_graph(MI300X)
    graph.remove_edge("gpu:0:0", "gpu:0:1")
    best = find_placement(Layout(tp=2, pp=4), graph)
    assert best.proven
    assert {"gpu:0:0", "gpu:0:1"} not in [set(group) for group in best.groups]


@pytest.mark.parametrize("layout", [Layout(tp=8, pp=2), Layout(tp=4, dp=2, ep=8, pp=2)])
def test_on_two_nodes_stages_take_a_node_each(layout: Layout) -> None:
    best = find_placement(layout, node_graph(H100, fabric=IB, nodes=2))
    assert best.proven
    assert best.costs.stage_in_island
    assert (best.costs.stage_islands, best.costs.nodes) == (1, 2)


@pytest.mark.parametrize("fabric, topology", [(IB, RAIL), (IB, FAT_2), (TCP, RAIL)])
@pytest.mark.parametrize("layout", [Layout(tp=4, pp=2), Layout(tp=2, pp=2, dp=2, ep=4), Layout(dp=4, ep=4, pp=2)])
def test_part_of_a_placement_never_costs_more_than_the_whole(
    layout: Layout, fabric: Fabric, topology: Topology
) -> None:
    """What the bound rests on; and no placement drawn at random beats the one found by more than rank order can."""
    generator = np.random.default_rng(7)
    half_tree = replace(RTX_PRO, gpus_per_node=4)
    for shape in (node("half-chassis", 4, nvswitch(450.0, gpus=4)), half_tree):
        graph = node_graph(shape, fabric=fabric, topology=topology, nodes=2)
        names = [name for name, kind in graph.nodes(data="kind") if kind == "gpu"]
        task = _Task(layout, read_graph(graph), usual_traffic(layout), names, ())
        best = find_placement(layout, graph, limit=3000)
        assert best.proven
        for _ in range(15):
            ranks = tuple(generator.permutation(names)[: layout.gpus].tolist())
            whole = task.bound_s(ranks, 0.0)
            starts = [task.bound_s(ranks[:size], 0.0) for size in range(layout.tp, layout.gpus, layout.tp)]
            assert whole is not None
            assert all(start is not None and start <= whole * (1 + 1e-9) for start in starts)
            assert best.seconds <= whole * 1.002


def test_a_search_that_is_cut_short_still_has_a_valid_bound() -> None:
    graph = node_graph(H100, fabric=IB, nodes=2)
    whole, short = (find_placement(Layout(tp=8, pp=2), graph, limit=limit) for limit in (1000, 5))
    assert not short.proven
    assert short.bound_s <= whole.seconds <= short.seconds


def test_traffic_decides_which_groups_get_the_fast_links() -> None:
    graph = nx.Graph()
    for name in "abcd":
        graph.add_node(name, kind="gpu")
    for one, other, gbps in (("a", "b", 300.0), ("c", "d", 300.0), ("a", "c", 30.0), ("b", "d", 30.0)):
        graph.add_edge(one, other, gbps=gbps, latency_us=1.0, medium="nvlink", achievable=1.0)
    layout = Layout(tp=2, pp=2)
    reduce = StepTraffic(all_reduces=1, all_reduce_bytes=1e9)
    handed = StepTraffic(sends=1, send_bytes=1e9)
    assert {"a", "b"} in [set(group) for group in find_placement(layout, graph, traffic=reduce).groups]
    assert {"a", "b"} not in [set(group) for group in find_placement(layout, graph, traffic=handed).groups]


def test_two_groups_across_one_socket_link_take_turns_and_two_on_their_own_sockets_do_not() -> None:
    graph = node_graph(RTX_PRO)
    apart = [find_placement(Layout(tp=4), graph, free=[f"gpu:0:{i}" for i in half]) for half in (range(4), range(4, 8))]
    mixed = [find_placement(Layout(tp=4), graph, free=[f"gpu:0:{i}" for i in range(at, 8, 2)]) for at in (0, 1)]
    for alone, together in zip(apart, share_links(apart, graph), strict=True):
        assert together == alone.costs
    for alone, together in zip(mixed, share_links(mixed, graph), strict=True):
        assert together.tp_all_reduce.bytes_per_s < 0.8 * alone.costs.tp_all_reduce.bytes_per_s
        assert together.tp_all_reduce.latency_s == alone.costs.tp_all_reduce.latency_s


def test_expert_exchanges_of_two_replicas_over_the_same_ports_take_twice_as_long() -> None:
    graph = node_graph(node("four-nics", 8, nvswitch(450.0), nics=4), fabric=IB, nodes=2)
    even = [f"gpu:{at}:{i}" for at in (0, 1) for i in (0, 2, 4, 6)]
    first = find_placement(Layout(dp=8, ep=8), graph, free=even)
    second = find_placement(Layout(dp=8, ep=8), graph, beside=[first])
    for together in share_links([first, second], graph):
        assert together.stage_all_to_all.bytes_per_s == pytest.approx(first.costs.stage_all_to_all.bytes_per_s / 2)


def test_a_replica_beside_another_keeps_away_from_its_links() -> None:
    graph = node_graph(RTX_PRO)
    first = find_placement(Layout(tp=2), graph)
    second = find_placement(Layout(tp=2), graph, beside=[first])
    assert not set(first.gpus) & set(second.gpus)
    assert share_links([first, second], graph)[1] == second.costs == first.costs


def test_sharing_never_helps() -> None:
    graph = node_graph(L40S, fabric=IB, nodes=2)
    generator = np.random.default_rng(3)
    names = [f"gpu:{at}:{i}" for at in (0, 1) for i in range(8)]
    for _ in range(5):
        order = generator.permutation(names).tolist()
        halves = [find_placement(Layout(tp=2, pp=2), graph, free=part) for part in (order[:8], order[8:])]
        for alone, together in zip(halves, share_links(halves, graph), strict=True):
            for payload in (1e3, 1e6, 1e9):
                assert together.tp_all_reduce.seconds(payload) >= alone.costs.tp_all_reduce.seconds(payload)
                assert together.stage_send.seconds(payload) >= alone.costs.stage_send.seconds(payload)


def graph_of(**changes: object) -> nx.Graph:
    graph = nx.Graph()
    for name in "ab":
        graph.add_node(name, kind="gpu")
    graph.add_edge("a", "b", **({"gbps": 100.0, "latency_us": 1.0, "medium": "nvlink"} | changes))
    return graph


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"gbps": 0.0}, r"link a to b: gbps must be greater than 0 \(got 0.0\); remove a cut link"),
        ({"gbps": float("nan")}, r"link a to b: gbps must be greater than 0 \(got nan\); remove a cut link"),
        ({"achievable": -1.0}, r"link a to b: achievable must be greater than 0 \(got -1.0\); remove a cut link"),
        ({"latency_us": -1.0}, r"link a to b: latency_us must be at least 0 \(got -1.0\)"),
    ],
)
def test_a_link_without_a_sense_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        find_placement(Layout(tp=2), graph_of(**changes))


def test_a_link_that_lacks_its_rate_is_refused() -> None:
    graph = graph_of()
    del graph.edges["a", "b"]["gbps"]
    with pytest.raises(ValueError, match=r"^link a to b: gbps is missing; a link has gbps, latency_us, medium$"):
        find_placement(Layout(tp=2), graph)


def test_a_gpu_without_a_link_is_named() -> None:
    graph = graph_of()
    graph.add_node("c", kind="gpu")
    with pytest.raises(
        ValueError, match=r"^GPU c has no link: join it to a switch or to another GPU, or leave it out$"
    ):
        find_placement(Layout(tp=2), graph)


def test_an_unknown_device_and_an_empty_graph_are_refused() -> None:
    graph = graph_of()
    graph.add_node("c", kind="toaster")
    with pytest.raises(ValueError, match=r"^device c: kind must be one of gpu, .* \(got 'toaster'\)$"):
        find_placement(Layout(tp=2), graph)
    with pytest.raises(ValueError, match=r"^the graph has no GPU: give at least one vertex kind='gpu'$"):
        find_placement(Layout(), nx.Graph())


@pytest.mark.parametrize(
    "layout, nearest",
    [(Layout(tp=16), "tp8"), (Layout(tp=8, pp=2), "tp8"), (Layout(dp=16, ep=16), "tp1-ep8-dp8")],
)
def test_a_graph_in_two_parts_names_the_largest_layout_that_fits_one(layout: Layout, nearest: str) -> None:
    graph = node_graph(H100, fabric=IB, nodes=2)
    graph.remove_nodes_from([name for name, kind in graph.nodes(data="kind") if kind in {"leaf", "spine"}])
    reason = f"layout {layout} needs 16 GPUs, free GPUs lie in 2 parts without a path, 8 and 8; use {nearest}, or join"
    with pytest.raises(ValueError, match=f"^{reason} the parts by links$"):
        find_placement(layout, graph)
    assert set(find_placement(Layout(tp=8), graph).costs.tp_all_reduce.path.split()) == {"nvlink"}


def test_a_gpu_is_used_once_and_must_exist() -> None:
    graph = node_graph(RTX_PRO)
    first = find_placement(Layout(tp=2), graph)
    with pytest.raises(ValueError, match=r"^GPU gpu:0:0 has two replicas; place each with the others in 'beside'$"):
        share_links([first, first], graph)
    with pytest.raises(ValueError, match=r"^free: the graph has no GPU 'gpu:9:9'; it has gpu:0:0 to gpu:0:7$"):
        find_placement(Layout(tp=2), graph, free=["gpu:9:9"])
    with pytest.raises(ValueError, match=r"^layout tp8 needs 8 GPUs, 6 GPUs are free; use tp4, or add nodes$"):
        find_placement(Layout(tp=8), graph, beside=[first])


def test_the_groups_of_a_placement_are_its_gpus_by_tensor_degree() -> None:
    best = find_placement(Layout(tp=2, pp=2), node_graph(RTX_PRO))
    assert isinstance(best, Placement)
    assert [name for group in best.groups for name in group] == list(best.gpus)
