"""The link model against public measurements (tests/data/topology/README.md)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qmodel.topology import link_costs
from qmodel.types import Collective, Layout
from tests.topology.shapes import A100, B200, GB200, H100, IB, L40S, RAIL, RTX_PRO, TCPXO

DATA = Path(__file__).parents[1] / "data" / "topology"
SWITCHED = {"A100-80-SXM": A100, "H100-SXM": H100, "H200-SXM": H100, "B200-SXM": B200, "GB200": GB200}
TREES = {"L40S": L40S, "RTXPRO6000": RTX_PRO}
HIDDEN = 7168
FP8_BYTES = 1 + 4 / 128  # one FP32 scale per 128 elements


def rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open() as file:
        yield from csv.DictReader(file)


def nccl_ratios(operation: str, gpus: dict[str, object]) -> Iterator[tuple[str, float, float]]:
    """Label, predicted over measured time at 8 KiB and at 256 MiB."""
    field = {"all_reduce": "tp_all_reduce", "all_to_all": "stage_all_to_all"}.get(operation, "stage_all_gather")
    for row in rows("nccl_intra_node.csv"):
        if row["operation"] == operation and row["gpu"] in gpus:
            costs = link_costs(Layout(tp=int(row["gpus"])), gpus[row["gpu"]], IB, RAIL)
            cost: Collective = getattr(costs, field)
            small = cost.seconds(8192) / float(row["us_at_8kib"]) * 1e6
            large = cost.seconds(2**28) / float(row["us_at_256mib"]) * 1e6
            yield f"{row['gpu']} x{row['gpus']}", small, large


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_small_messages_on_nvswitch_are_within_a_factor_of_two(operation: str) -> None:
    for label, small, _ in nccl_ratios(operation, SWITCHED):
        assert 0.5 < small < 2.0, label


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_large_messages_on_nvswitch_are_within_30_percent(operation: str) -> None:
    for label, _, large in nccl_ratios(operation, SWITCHED):
        # One constant cannot serve a pair on Hopper (0.6 of the line) and on Blackwell (0.35) for all-to-all.
        worst = 1.45 if operation == "all_to_all" and label.endswith("x2") else 1.3
        assert 1 / worst < large < worst, label


def test_the_median_error_on_nvswitch_is_below_ten_percent_for_large_messages() -> None:
    operations = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    large = [ratio for operation in operations for _, _, ratio in nccl_ratios(operation, SWITCHED)]
    assert np.median(np.abs(np.log(large))) < 0.10


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
def test_rings_on_pcie_trees_are_within_a_factor_of_one_and_a_half(operation: str) -> None:
    for label, small, large in nccl_ratios(operation, TREES):
        assert 0.6 < small < 1.6, label
        assert 1 / 1.5 < large < 1.5, label


@pytest.mark.parametrize("ep", [16, 32])
def test_normal_expert_kernels_of_large_batches_are_within_a_factor_of_one_and_a_half(ep: int) -> None:
    cost = link_costs(Layout(dp=ep, ep=ep), H100, IB, RAIL).stage_all_to_all
    for row in rows("deepep_normal.csv"):
        if int(row["ep"]) == ep and int(row["tokens_per_rank"]) >= 2048:
            # A token goes once to each node that has one of its 8 experts.
            groups = int(row["nodes"])
            nodes_reached = groups * (1 - (1 - 1 / groups) ** 8)
            copies = int(row["tokens_per_rank"]) * HIDDEN * nodes_reached
            predicted_us = (cost.seconds(copies * FP8_BYTES) + cost.seconds(copies * 2)) * 1e6
            measured_us = float(row["dispatch_us"]) + float(row["notify_us"]) + float(row["combine_us"])
            assert 1 / 1.5 < predicted_us / measured_us < 1.5, row


@pytest.mark.parametrize("ep", [16, 32, 64])
def test_low_latency_expert_kernels_across_nodes_are_within_20_percent(ep: int) -> None:
    cost = link_costs(Layout(dp=ep, ep=ep), H100, IB, RAIL).stage_all_to_all
    for row in rows("deepep_low_latency.csv"):
        if int(row["ep"]) == ep:
            copies = int(row["tokens_per_rank"]) * HIDDEN * 8
            assert cost.seconds(copies * FP8_BYTES) * 1e6 == pytest.approx(float(row["dispatch_us"]), rel=0.2)
            assert cost.seconds(copies * 2) * 1e6 == pytest.approx(float(row["combine_us"]), rel=0.2)


def test_the_floor_of_an_all_reduce_over_two_tcpxo_nodes_is_met() -> None:
    node = replace(H100, name="a3-megagpu-8g", nic_fabric="tcpxo-200", nic_gbit_per_s=200.0)
    cost = link_costs(Layout(tp=16), node, TCPXO, RAIL).tp_all_reduce
    assert cost.latency_s * 1e6 == pytest.approx(123.0, rel=0.05)
    for row in rows("nccl_two_nodes_tcpxo.csv"):
        ratio = cost.seconds(float(row["bytes"])) * 1e6 / float(row["us"])
        assert 0.3 < ratio < 2.0, row
