from __future__ import annotations

import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.topology import link_costs, place
from qmodel.topology.constants import LARGE, NETWORK_SMALL_FRACTION, SMALL
from qmodel.types import Collective, Fabric, Layout, LinkCosts, Node
from tests.topology.shapes import B200, FAT_1, FAT_2, H100, H100_NVL, IB, MI300X, RAIL, ROCE, RTX_PRO, TCP, TCPXO, node
from tests.topology.shapes import nvswitch as switch

COLLECTIVES = ("tp_all_reduce", "stage_all_gather", "stage_all_to_all", "stage_send")


def star(gpus: int, gbps: float, latency_us: float) -> nx.Graph:
    graph = nx.Graph()
    graph.add_node("switch", kind="nvswitch", island=0)
    for local in range(gpus):
        graph.add_node(f"g{local}", kind="gpu", node=0, local=local, island=0)
        graph.add_edge(f"g{local}", "switch", gbps=gbps, latency_us=latency_us / 2, medium="nvlink", achievable=1.0)
    return graph


def every(costs: LinkCosts) -> list[Collective]:
    return [getattr(costs, name) for name in COLLECTIVES]


@pytest.mark.parametrize("gpus", [2, 3, 4, 8])
def test_ring_all_reduce_over_links_of_known_goodput_is_the_textbook_alpha_beta_cost(gpus: int) -> None:
    cost = place(Layout(tp=gpus), star(gpus, gbps=100.0, latency_us=1.5)).tp_all_reduce
    for payload in (0.0, 1e4, 1e9):
        steps_us = SMALL["all_reduce"].launch_us + 2 * (gpus - 1) * 1.5
        expected = 2 * (gpus - 1) / gpus * payload / 100e9 + steps_us * 1e-6
        assert cost.seconds(payload) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_a_large_message_reaches_the_fraction_of_its_protocol(gpus: int) -> None:
    line = LARGE["all_reduce"]
    cost = link_costs(Layout(tp=gpus), B200).tp_all_reduce
    rate = 900e9 * line.fraction * (1 - line.small_group / gpus**2)
    assert cost.bytes_per_s == pytest.approx(rate / (2 * (gpus - 1) / gpus))
    assert cost.large_latency_s == pytest.approx((line.launch_us + 2 * (gpus - 1) * 1.2 * line.hops) * 1e-6)


def test_the_faster_of_the_two_lines_counts() -> None:
    cost = link_costs(Layout(tp=8), B200).tp_all_reduce
    payloads = np.geomspace(1e3, 1e9, 50)
    small = cost.latency_s + payloads / cost.small_bytes_per_s
    large = cost.large_latency_s + payloads / cost.bytes_per_s
    assert np.array_equal(cost.seconds(payloads), np.minimum(small, large))
    assert small[0] < large[0]
    assert large[-1] < small[-1]


@pytest.mark.parametrize("shape", [H100, B200, MI300X, RTX_PRO])
@pytest.mark.parametrize("factor", [1.01, 1.1])
def test_slightly_faster_links_start_no_later_and_never_cost_more(shape: Node, factor: float) -> None:
    domain = shape.domain
    pair = domain.gbps_per_pair and domain.gbps_per_pair * factor
    faster = replace(shape, domain=replace(domain, gbps_per_gpu=domain.gbps_per_gpu * factor, gbps_per_pair=pair))
    for before, after in zip(
        every(link_costs(Layout(tp=8), shape)), every(link_costs(Layout(tp=8), faster)), strict=True
    ):
        assert after.latency_s == before.latency_s
        for payload in (0.0, 1e5, 1e9):
            assert after.seconds(payload) <= before.seconds(payload)


def test_all_gather_moves_all_but_the_own_part_of_the_gathered_buffer() -> None:
    cost = place(Layout(tp=8), star(8, gbps=100.0, latency_us=1.5)).stage_all_gather
    assert cost.seconds(8e9) - cost.latency_s == pytest.approx(7 / 8 * 8e9 / 100e9)


def test_all_to_all_inside_an_island_moves_all_but_the_own_part() -> None:
    cost = place(Layout(dp=8, ep=8), star(8, gbps=100.0, latency_us=1.5)).stage_all_to_all
    assert cost.seconds(8e9) - cost.latency_s == pytest.approx(7 / 8 * 8e9 / 100e9)


def test_all_to_all_across_nodes_is_limited_by_the_share_that_leaves_the_node() -> None:
    cost = link_costs(Layout(dp=32, ep=32), H100, IB, RAIL).stage_all_to_all
    assert cost.bytes_per_s == pytest.approx(50e9 * 0.92 / (24 / 32))
    assert cost.path == "infiniband"


def test_a_large_all_reduce_across_nodes_takes_the_slower_of_its_phases() -> None:
    across = link_costs(Layout(tp=16), H100, IB, RAIL).tp_all_reduce
    inside = link_costs(Layout(tp=8), H100, IB, RAIL).tp_all_reduce
    assert across.bytes_per_s == pytest.approx(inside.bytes_per_s)  # eight NICs carry more than the island
    half = link_costs(Layout(tp=16), H100, replace(IB, name="ib-half", gbps=25.0), RAIL).tp_all_reduce
    assert 1 / half.bytes_per_s == pytest.approx(2 * (1 / 2) * (1 / 8) / (25e9 * 0.92))


def test_a_small_all_reduce_across_nodes_goes_phase_after_phase() -> None:
    across = link_costs(Layout(tp=16), H100, IB, RAIL).tp_all_reduce
    inside = link_costs(Layout(tp=8), H100, IB, RAIL).tp_all_reduce
    on_nics = 2 * (1 / 2) * (1 / 8) / (50e9 * 0.92)
    phases = 1 / inside.bytes_per_s + on_nics
    assert 1 / across.small_bytes_per_s == pytest.approx(phases / NETWORK_SMALL_FRACTION)
    assert across.latency_s > inside.latency_s


def test_a_mesh_uses_all_its_links_where_a_ring_would_use_one() -> None:
    mesh = link_costs(Layout(tp=8), MI300X, ROCE, RAIL).tp_all_reduce
    ring_gbps = 64.0 * 8 / 14
    assert mesh.path == "xgmi"
    assert mesh.bytes_per_s > 4 * ring_gbps * 1e9


def test_a_ring_that_crosses_sockets_is_slower_than_one_under_a_pcie_switch() -> None:
    pair, socket, both = (link_costs(Layout(tp=n), RTX_PRO, IB, RAIL).stage_all_gather for n in (2, 4, 8))
    assert (pair.path, socket.path, both.path) == ("pcie", "pcie", "upi")
    bus_gbps = [cost.bytes_per_s * (n - 1) / n / 1e9 for n, cost in ((2, pair), (4, socket), (8, both))]
    assert bus_gbps[0] > bus_gbps[1] > bus_gbps[2]


def test_a_bridged_pair_uses_its_nvlink_bridge() -> None:
    assert link_costs(Layout(tp=2), H100_NVL).tp_all_reduce.path == "nvlink"


def test_one_gpu_costs_nothing() -> None:
    assert link_costs(Layout(), RTX_PRO) == LinkCosts()


@given(
    layout=st.sampled_from([Layout(tp=2), Layout(tp=8, pp=2), Layout(tp=16), Layout(dp=16, ep=16), Layout(tp=2, dp=8)]),
    fabric=st.sampled_from([IB, ROCE, TCPXO, TCP]),
    few=st.floats(0, 1e9),
    more=st.floats(0, 1e9),
)
def test_more_bytes_are_never_faster(layout: Layout, fabric: Fabric, few: float, more: float) -> None:
    for cost in every(link_costs(layout, H100, fabric, RAIL)):
        assert cost.seconds(few + more) >= cost.seconds(few) >= 0.0


@settings(max_examples=60, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    dp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 3]),
    shape=st.sampled_from([H100, B200, MI300X, RTX_PRO, H100_NVL]),
    payload_bytes=st.floats(1, 1e9),
)
def test_tcp_is_never_faster_than_infiniband(tp: int, dp: int, pp: int, shape: Node, payload_bytes: float) -> None:
    layout = Layout(tp=tp, dp=dp, pp=pp)
    fast = every(link_costs(layout, shape, IB, RAIL))
    slow = every(link_costs(layout, shape, TCP, RAIL))
    for over_ib, over_tcp in zip(fast, slow, strict=True):
        assert over_tcp.seconds(payload_bytes) >= over_ib.seconds(payload_bytes)


@pytest.mark.parametrize("layout", [Layout(tp=8), Layout(dp=8, ep=8), Layout(tp=2, pp=4), Layout(tp=2, dp=2)])
def test_infiniband_is_never_faster_than_nvlink_for_the_same_group(layout: Layout) -> None:
    apart = every(link_costs(layout, node("one-gpu", 1, switch(450.0, gpus=1)), IB, RAIL))
    together = every(link_costs(layout, H100, IB, RAIL))
    for payload_bytes in (1.0, 1e5, 1e9):
        for over_ib, over_nvlink in zip(apart, together, strict=True):
            assert over_ib.seconds(payload_bytes) >= over_nvlink.seconds(payload_bytes)


def test_two_to_one_oversubscription_halves_the_bandwidth_between_leaves() -> None:
    layout = Layout(tp=8, dp=5, pp=2)  # all ports of one leaf send to the next
    full = link_costs(layout, H100, IB, FAT_1).stage_send
    half = link_costs(layout, H100, IB, FAT_2).stage_send
    assert half.bytes_per_s == pytest.approx(full.bytes_per_s / 2)


def test_all_gpus_of_a_node_share_one_host_nic_over_tcp() -> None:
    send = link_costs(Layout(tp=8, pp=2), H100, TCP, RAIL).stage_send
    assert send.path == "tcp"
    assert send.bytes_per_s == pytest.approx(3.12e9 * 0.9 / 8)


def test_wide_expert_parallelism_collapses_over_tcp() -> None:
    layout = Layout(tp=1, dp=16, ep=16)
    over_ib = link_costs(layout, H100, IB, RAIL).stage_all_to_all
    over_tcp = link_costs(layout, H100, TCP, RAIL).stage_all_to_all
    assert over_tcp.bytes_per_s < over_ib.bytes_per_s / 100
    assert over_tcp.latency_s > 10 * over_ib.latency_s


def test_a_nic_shared_by_two_gpus_is_divided() -> None:
    four_nics = node("four-nics", 8, switch(450.0), nics=4)
    shared = link_costs(Layout(tp=8, pp=2), four_nics, IB, RAIL).stage_send
    own = link_costs(Layout(tp=8, pp=2), H100, IB, RAIL).stage_send
    assert shared.bytes_per_s == pytest.approx(own.bytes_per_s / 2)


def test_an_unused_collective_has_no_path() -> None:
    send = link_costs(Layout(tp=8), H100, IB, RAIL).stage_send
    assert send == Collective(latency_s=0.0, bytes_per_s=math.inf, path="none")
