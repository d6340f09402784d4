"""The link model against public measurements (tests/data/topology/README.md)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qmodel.topology import exchange_costs, link_costs
from qmodel.types import Collective, Layout, Node
from tests.topology.shapes import A100, B200, GB200, H100, IB, L40S, MI300X, RAIL, RTX_PRO, TCPXO

DATA = Path(__file__).parents[1] / "data" / "topology"
SWITCHED = {
    "A100-80-SXM": A100,
    "H100-SXM": H100,
    "H200-SXM": H100,
    "B200-SXM": B200,
    "B300-SXM": B200,
    "GB200": GB200,
    "GB300": GB200,
}
TREES = {"L40S": L40S, "RTXPRO6000": RTX_PRO}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
HIDDEN = 7168
FP8_BYTES = 1 + 4 / 128  # one FP32 scale per 128 elements


def rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open() as file:
        yield from csv.DictReader(file)


def nccl_ratios(gpus: dict[str, Node], operation: str | None = None) -> np.ndarray:
    """Predicted over measured time."""
    ratios = []
    for row in rows("nccl_intra_node.csv"):
        if row["gpu"] in gpus and operation in (None, row["operation"]):
            field = {"all_reduce": "tp_all_reduce", "all_to_all": "stage_all_to_all"}
            costs = link_costs(Layout(tp=int(row["gpus"])), gpus[row["gpu"]], IB, RAIL)
            cost: Collective = getattr(costs, field.get(row["operation"], "stage_all_gather"))
            ratios.append(cost.seconds(float(row["bytes"])) / float(row["us"]) * 1e6)
    return np.array(ratios)


def exchange(node: Node, ep: int, kernel: str, groups: int = 1) -> object:
    return exchange_costs(
        Layout(dp=ep, ep=ep),
        node,
        IB,
        RAIL,
        experts=256,
        experts_per_token=8,
        groups=groups,
        groups_per_token=min(groups, 4),
        kernel=kernel,
    )


def median_error(ratios: np.ndarray) -> float:
    return float(np.median(np.abs(ratios - 1.0)))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_collectives_on_nvswitch_have_a_median_error_below_ten_percent(operation: str) -> None:
    ratios = nccl_ratios(SWITCHED, operation)
    assert len(ratios) == 152
    assert median_error(ratios) < 0.10
    assert np.all((ratios > 0.5) & (ratios < 1.7))


@pytest.mark.parametrize("gpu", [*SWITCHED, *TREES])
def test_no_gpu_has_a_median_error_above_fifteen_percent(gpu: str) -> None:
    assert median_error(nccl_ratios({gpu: (SWITCHED | TREES)[gpu]})) < 0.15


@pytest.mark.parametrize("operation", OPERATIONS)
def test_collectives_on_pcie_trees_have_a_median_error_below_twenty_percent(operation: str) -> None:
    ratios = nccl_ratios(TREES, operation)
    assert len(ratios) == 48
    assert median_error(ratios) < 0.20
    assert np.all((ratios > 0.35) & (ratios < 1.7))


def test_normal_expert_kernels_are_met_where_a_token_visits_at_most_four_nodes() -> None:
    errors = []
    for row in rows("deepep_normal.csv"):
        ep = int(row["ep"])
        cost = exchange(H100, ep, "normal", groups=max(ep // 8, 1))
        tokens = float(row["tokens_per_rank"])
        combine = cost.seconds(tokens, 2 * HIDDEN) * 1e6 / float(row["combine_us"])
        dispatch = (
            cost.seconds(tokens, FP8_BYTES * HIDDEN) * 1e6 / (float(row["dispatch_us"]) + float(row["notify_us"]))
        )
        errors.append(combine)
        if ep < 64:  # there dispatch was slower than combine, which carries twice the bytes
            errors.append(dispatch)
    assert median_error(np.array(errors)) < 0.10
    assert np.all((np.array(errors) > 0.65) & (np.array(errors) < 1.35))


def test_without_the_limit_of_four_nodes_the_largest_exchange_is_missed() -> None:
    row = next(row for row in rows("deepep_normal.csv") if row["ep"] == "64" and row["tokens_per_rank"] == "8192")
    limited, free = (exchange(H100, 64, "normal", groups).seconds(8192, 2 * HIDDEN) * 1e6 for groups in (8, 1))
    assert limited == pytest.approx(float(row["combine_us"]), rel=0.1)
    assert free > 1.3 * float(row["combine_us"])


@pytest.mark.parametrize("ep", [16, 32, 64])
def test_low_latency_expert_kernels_across_nodes_are_within_20_percent(ep: int) -> None:
    cost = exchange(H100, ep, "low_latency")
    for row in rows("deepep_low_latency.csv"):
        if int(row["ep"]) == ep:
            tokens = float(row["tokens_per_rank"])
            assert cost.seconds(tokens, HIDDEN * FP8_BYTES) * 1e6 == pytest.approx(float(row["dispatch_us"]), rel=0.2)
            assert cost.seconds(tokens, HIDDEN * 2) * 1e6 == pytest.approx(float(row["combine_us"]), rel=0.2)


def test_published_exchanges_on_other_gpus_are_within_a_quarter() -> None:
    h800 = replace(H100, domain=replace(H100.domain, gbps_per_gpu=200.0))
    for row in rows("deepep_published.csv"):
        cost = exchange(h800, int(row["ep"]), "low_latency")
        assert cost.seconds(128, HIDDEN * FP8_BYTES) * 1e6 == pytest.approx(float(row["dispatch_us"]), rel=0.25)
        assert cost.seconds(128, HIDDEN * 2) * 1e6 == pytest.approx(float(row["combine_us"]), rel=0.25)


def test_exchanges_inside_a_rack_have_a_median_error_below_fifteen_percent() -> None:
    element = {"bfloat16": 2.0, "nvfp4": 0.5625}
    ratios = []
    for row in rows("exchange_nvl72.csv"):
        cost = exchange(GB200, int(row["ep"]), "one_island")
        tokens = float(row["tokens_per_rank"])
        ratios.append(cost.seconds(tokens, HIDDEN * element[row["dtype"]]) * 1e6 / float(row["dispatch_us"]))
        ratios.append(cost.seconds(tokens, HIDDEN * 2.0) * 1e6 / float(row["combine_us"]))
    assert len(ratios) == 204
    assert median_error(np.array(ratios)) < 0.15


def test_an_all_reduce_over_two_tcpxo_nodes_is_met_from_the_floor_to_gibibytes() -> None:
    node = replace(H100, name="a3-megagpu-8g", nic_fabric="tcpxo-200", nic_gbit_per_s=200.0)
    cost = link_costs(Layout(tp=16), node, TCPXO, RAIL).tp_all_reduce
    for row in rows("nccl_across.csv"):
        if row["system"] == "H100 tcpxo":
            assert cost.seconds(float(row["bytes"])) * 1e6 == pytest.approx(float(row["us"]), rel=0.3)


@pytest.mark.parametrize(
    "system, node, gpus",
    [("H100 ib-ndr", H100, 16), ("B200 ib-ndr", B200, 16), ("GB200 nvl72", GB200, 72), ("MI300X xgmi", MI300X, 8)],
)
def test_large_all_reduces_that_nothing_was_fitted_to_are_within_15_percent(system: str, node: Node, gpus: int) -> None:
    cost = link_costs(Layout(tp=gpus), node, IB, RAIL).tp_all_reduce
    measured = [row for row in rows("nccl_across.csv") if row["system"] == system]
    assert measured
    for row in measured:
        assert cost.seconds(float(row["bytes"])) * 1e6 == pytest.approx(float(row["us"]), rel=0.15)
