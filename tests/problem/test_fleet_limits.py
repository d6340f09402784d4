"""Limits from a scenario: how replicas fill nodes, what is lost with one, power, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmodel as qm
from qmodel.problem import bind
from qmodel.types import GpuLimits, Holding, Limits
from tests.scenario.examples import small

NODES = st.sampled_from([1, 2, 4, 6, 8, 72])


def bins_of_first_fit(sizes: list[int], node_gpus: int) -> int:
    """Nodes that sizes take when each, largest first, goes to the first node with room."""
    room: list[int] = []
    for size in sorted(sizes, reverse=True):
        if size > node_gpus:  # whole nodes
            room += [0] * (size // node_gpus)
            continue
        place = next((index for index, left in enumerate(room) if left >= size), None)
        if place is None:
            room.append(node_gpus - size)
        else:
            room[place] -= size
    return len(room)


@given(node_gpus=NODES, gpus=st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_what_is_set_aside_packs_into_as_few_nodes_as_its_sum(node_gpus: int, gpus: list[int]) -> None:
    item = GpuLimits(node_gpus=node_gpus, whole_nodes=True)
    held = [item.held_gpus(size) for size in gpus]
    assert all(mine >= size for mine, size in zip(held, gpus, strict=True))
    limits = Limits(gpus={"g": item})
    holdings = [Holding(gpu="g", replica_gpus=size, replicas=1) for size in gpus]
    assert bins_of_first_fit(held, node_gpus) == limits.nodes("g", holdings)


@given(node_gpus=NODES, gpus=st.integers(1, 40))
def test_nothing_is_set_aside_beyond_a_replica_where_nodes_are_not_counted(node_gpus: int, gpus: int) -> None:
    assert GpuLimits(node_gpus=node_gpus).held_gpus(gpus) == gpus


def test_limits_come_back_from_plain_data() -> None:
    limits = Limits(gpus={"g": GpuLimits(max_count=8, kw_per_gpu=0.7)}, power_kw=9.0, spare_replicas=2)
    assert Limits.from_dict(limits.to_dict()) == limits


def bound(gpu: dict[str, Any] | None = None, **more: Any) -> Limits:
    return bind(qm.load_scenario(small(fleet__gpus={"h100-sxm": gpu or {}}, **more))).limits


def test_power_of_a_gpu_is_its_part_of_the_node() -> None:
    limits = bound(fleet__power_kw=50)
    assert limits.of("h100-sxm").kw_per_gpu == pytest.approx(10.2 / 8)
    assert bound({"power_w": 900}).of("h100-sxm").kw_per_gpu == pytest.approx(0.9)


def test_more_is_lost_with_a_node_than_is_to_spare() -> None:
    limits = bound(policy={"survive_nodes": 1, "spare_replicas": 3})
    assert [limits.spare("h100-sxm", gpus) for gpus in (1, 2, 4, 8, 16)] == [8, 4, 3, 3, 3]


PROFILE = {"model": "m", "gpu": "mine", "alpha_s": 0.01, "beta_s": 1e-4, "gamma_s": 3e-8, "delta_s": 4e-5}


def mine(gpu: dict[str, Any], **more: Any) -> dict[str, Any]:
    gpus = {"mine": {"price": {"usd_per_gpu_hour": 2.0}, **gpu}}
    return small(fleet__gpus=gpus, classes__chat__model="m", profiles=[PROFILE], **more)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            mine({"billing": "per_node"}),
            "fleet.gpus.mine: billing: per_node needs the size of a node, and 'mine' is known by profiles only;"
            " add gpus_per_node: 8",
        ),
        (
            mine({"max_nodes": 2}, policy={"survive_nodes": 1}),
            "fleet.gpus.mine: max_nodes and policy.survive_nodes need the size of a node, and 'mine' is known by"
            " profiles only; add gpus_per_node: 8",
        ),
        (
            mine({}, fleet__power_kw=5.0),
            "fleet.gpus.mine: fleet.power_kw needs the power of 'mine', which is not known; add power_w: <W per GPU>",
        ),
        (
            small(fleet__gpus={"h100-sxm": {}}, layouts={"forbid": [{"gpu": "h200-sxm", "tp": 1}]}),
            "layouts.forbid[0].gpu: 'h200-sxm' is not in fleet.gpus; one of h100-sxm, or take it out",
        ),
        (
            small(fleet__gpus={"h100-sxm": {"gpus_per_node": 4}}),
            "fleet.gpus.h100-sxm.gpus_per_node: node 'dgx-h100' has 8 GPUs; leave it out, or choose another node",
        ),
    ],
)
def test_what_is_not_known_of_a_node_is_refused_with_a_way_out(data: dict[str, Any], text: str) -> None:
    with pytest.raises(qm.ScenarioError) as error:
        bind(qm.load_scenario(data))
    assert [str(problem).removeprefix("<dict>: ") for problem in error.value.problems] == [text]
