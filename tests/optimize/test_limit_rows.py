"""Rows of limits in the master program: by name and coefficient, and one infeasible case each by its least use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qmodel.candidates import Candidate
from qmodel.optimize.formulation import master_program
from qmodel.optimize.programs import Program
from qmodel.optimize.solvers import solve_integer
from qmodel.types import GpuLimits, Limits, Offer
from tests.optimize.pieces import candidate, column, request_class


def terms(program: Program, row: str) -> dict[str, float]:
    """Coefficients of a row by variable."""
    values = program.matrix[program.row_names.index(row)]
    return {program.names[place]: float(values[place]) for place in np.flatnonzero(values)}


def costs(program: Program) -> dict[str, float]:
    return {name: float(cost) for name, cost in zip(program.names, program.cost, strict=True) if cost}


def offer(usd_per_gpu_hour: float, max_gpus: int | None = None, term: str = "on_demand") -> Offer:
    return Offer(term=term, usd_per_gpu_hour=usd_per_gpu_hour, max_gpus=max_gpus)


def jsq(item: Candidate) -> Candidate:
    return replace(item, router="jsq")


def test_whole_nodes_are_a_variable_that_packs_pools_and_is_paid() -> None:
    item = replace(jsq(candidate(cost=8.0, tp=2)), whole_nodes=True, held_gpus=2)
    gpus = {"g": GpuLimits(node_gpus=8, whole_nodes=True, max_nodes=3, max_count=20, offers=(offer(4.0),))}
    limits = Limits(gpus={"g": replace(gpus["g"], kw_per_gpu=1.5)}, power_kw=30.0)
    program = master_program([column(item, 3, chat=0.5)], [request_class("chat")], limits)
    assert program.row_names == ("cover_chat", "stock_g", "nodes_g", "power", "packed_g")
    assert costs(program) == {"nodes_g": 32.0}
    assert terms(program, "packed_g") == {"pool_g_tp2_x3_m_chat": 6.0, "nodes_g": -8.0}
    assert terms(program, "stock_g") == {"nodes_g": 8.0}
    assert terms(program, "nodes_g") == {"nodes_g": 1.0}
    assert terms(program, "power") == {"nodes_g": 12.0}
    assert program.rhs.tolist() == [1.0, 20.0, 3.0, 30.0, 0.0]


def test_spare_replicas_are_paid_once_for_a_pool_of_replicas_that_add_up() -> None:
    item = replace(candidate(cost=4.0), spare=2)
    program = master_program([column(item, 1, chat=0.3)], [request_class("chat")], Limits(max_pools=3))
    pool = "pool_g_tp1_x1_m_chat"
    assert costs(program) == {pool: 4.0, f"open_{pool}": 8.0}
    assert terms(program, "cover_chat") == {f"carried_chat_{pool}": 1.0}
    assert terms(program, "pools") == {f"open_{pool}": 1.0}
    assert terms(program, f"carried_chat_{pool}") == {f"carried_chat_{pool}": 1.0, pool: -0.3}
    assert terms(program, f"open_chat_{pool}") == {f"carried_chat_{pool}": 1.0, f"open_{pool}": -1.0}
    solved = solve_integer(program, solver="highs", mip_gap=0.0, time_limit_s=5.0)
    assert solved.objective == pytest.approx(4 * 4.0 + 2 * 4.0)


def test_spare_replicas_are_part_of_each_pool_behind_one_queue() -> None:
    item = replace(jsq(candidate(cost=4.0, tp=2)), spare=1)
    limits = Limits(gpus={"g": GpuLimits(max_count=9)}, max_pools=2)
    program = master_program([column(item, 3, chat=0.5)], [request_class("chat")], limits)
    pool = "pool_g_tp2_x3_m_chat"
    assert costs(program) == {pool: 16.0}
    assert terms(program, "stock_g") == {pool: 8.0}
    assert terms(program, "pools") == {pool: 1.0}


@pytest.mark.parametrize(
    ("limits", "least"),
    [
        (Limits(gpus={"g": GpuLimits(max_count=5)}), 6.0),
        (Limits(gpus={"g": GpuLimits(max_nodes=1, node_gpus=4)}), 2.0),
        (Limits(gpus={"g": GpuLimits(kw_per_gpu=0.7)}, power_kw=4.0), 4.2),
        (Limits(max_pools=2), 3.0),
    ],
)
def test_least_use_of_a_limit_is_what_the_smallest_fleet_takes(limits: Limits, least: float) -> None:
    item = jsq(candidate(cost=4.0, tp=2))
    program = master_program([column(item, 1, chat=0.4)], [request_class("chat")], limits)
    assert solve_integer(program, solver="highs", mip_gap=0.0, time_limit_s=5.0).outcome == "infeasible"
    found = solve_integer(program.least_use(1), solver="highs", mip_gap=0.0, time_limit_s=5.0)
    assert found.objective == pytest.approx(least)


def test_offers_are_variables_that_are_paid_and_pools_of_their_type_cost_nothing() -> None:
    item = jsq(candidate(cost=8.0, tp=2))
    offers = (offer(1.0, 5, "reserved_3y"), offer(4.0))
    program = master_program(
        [column(item, 3, chat=0.5)], [request_class("chat")], Limits(gpus={"g": GpuLimits(offers=offers)})
    )
    assert program.row_names == ("cover_chat", "offer_g_reserved_3y", "bought_g")
    assert costs(program) == {"buy_g_reserved_3y": 1.0, "buy_g_on_demand": 4.0}
    assert terms(program, "offer_g_reserved_3y") == {"buy_g_reserved_3y": 1.0}
    assert terms(program, "bought_g") == {
        "pool_g_tp2_x3_m_chat": 6.0,
        "buy_g_reserved_3y": -1.0,
        "buy_g_on_demand": -1.0,
    }
    assert program.rhs.tolist() == [1.0, 5.0, 0.0]
    solved = solve_integer(program, solver="highs", mip_gap=0.0, time_limit_s=5.0)
    assert solved.objective == pytest.approx(5 * 1.0 + 7 * 4.0)


def test_whole_nodes_are_bought_at_each_offer() -> None:
    item = replace(jsq(candidate(cost=8.0, tp=2)), whole_nodes=True, held_gpus=2)
    limits = Limits(gpus={"g": GpuLimits(node_gpus=8, whole_nodes=True, offers=(offer(1.0, 15, "spot"), offer(4.0)))})
    program = master_program([column(item, 3, chat=0.5)], [request_class("chat")], limits)
    assert terms(program, "bought_g") == {"nodes_g": 8.0, "buy_g_spot": -1.0, "buy_g_on_demand": -1.0}
    assert program.rhs.tolist() == [1.0, 8.0, 0.0, 0.0]  # 15 GPUs are one node of 8
    solved = solve_integer(program, solver="highs", mip_gap=0.0, time_limit_s=5.0)
    assert solved.objective == pytest.approx(8 * 1.0 + 8 * 4.0)


def test_one_offer_with_an_end_is_a_limit_without_variables() -> None:
    item = jsq(candidate(cost=8.0, tp=2))
    limits = Limits(gpus={"g": GpuLimits(offers=(offer(4.0, 5),))})
    program = master_program([column(item, 1, chat=0.5)], [request_class("chat")], limits)
    assert costs(program) == {"pool_g_tp2_x1_m_chat": 8.0}
    assert terms(program, "offer_g_on_demand") == {"pool_g_tp2_x1_m_chat": 2.0}
