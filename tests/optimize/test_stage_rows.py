"""Pools in a row in the master: rows by name and coefficient, and optima against enumeration by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from qmodel.candidates import Chain, Column, ColumnSet, StageColumns
from qmodel.optimize import SolverOptions, choose
from qmodel.optimize.formulation import master_program
from qmodel.optimize.stage_rows import carried_in_rows
from qmodel.types import Limits
from tests.optimize.pieces import candidate, column, request_class, stock_of
from tests.optimize.test_limit_rows import terms

CHAIN = Chain(cls="chat", model="m", parts=("chat > prefill", "chat > decode"))
OPTIONS = SolverOptions(mip_gap=0.0)


def columns_of(*columns: Column, name: str) -> ColumnSet:
    used = {id(item.candidate): item.candidate for item in columns}
    nothing = {name: np.array([max(c.upper.values()) for c in columns])}
    return ColumnSet(
        columns=columns, complete=True, least={name: (0,) * len(used)}, candidates=tuple(used.values()), ratios=nothing
    )


def staged(prefill: list[Column], decode: list[Column]) -> StageColumns:
    sets = {
        "p": columns_of(*prefill, name="chat > prefill"),
        "d": columns_of(*decode, name="chat > decode"),
    }
    classes = {name: (request_class(f"chat > {role}"),) for name, role in (("p", "prefill"), ("d", "decode"))}
    return StageColumns(sets=sets, classes=classes, chains=(CHAIN,), bounding=(CHAIN,))


def part(cost: float, share: float, stage: str, gpu: str = "g") -> Column:
    return column(candidate(cost=cost, gpu=gpu), 1, **{f"chat > {stage}": share})


def test_what_passes_a_chain_covers_its_class_and_is_taken_of_every_part() -> None:
    columns = [column(candidate(cost=4.0), 1, chat=0.5), part(1.0, 0.4, "prefill"), part(2.0, 0.3, "decode")]
    program = master_program(columns, [request_class("chat")], stock_of({"g": 9}), chains=[CHAIN])
    assert program.row_names == ("cover_chat", "stock_g", "part_chat_prefill", "part_chat_decode")
    passing = "passing_chat_prefill_chat_decode"
    assert terms(program, "cover_chat") == {"pool_g_tp1_x1_m_chat": 0.5, passing: 1.0}
    assert terms(program, "part_chat_prefill") == {"pool_g_tp1_x1_m_chat_prefill": 0.4, passing: -1.0}
    assert terms(program, "part_chat_decode") == {"pool_g_tp1_x1_m_chat_decode": 0.3, passing: -1.0}
    assert program.rhs.tolist() == [1.0, 9.0, 0.0, 0.0]
    assert program.upper[list(program.names).index(passing)] == 1.0


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_that_of_all_counts(seed: int) -> None:
    """Unified, prefill and decode columns: the cheapest counts whose shares cover the class, found one by one."""
    rng = np.random.default_rng([seed, 3])
    costs, shares = rng.uniform(1.0, 4.0, 3).round(2), rng.uniform(0.2, 0.6, 3).round(2)
    unified = columns_of(column(candidate(cost=2.0 * costs[0]), 1, chat=shares[0]), name="chat")
    stages = staged([part(costs[1], shares[1], "prefill")], [part(costs[2], shares[2], "decode")])
    choice = choose({"m": unified}, {"m": [request_class("chat")]}, Limits(), options=OPTIONS, stages=stages)
    best = min(
        2.0 * costs[0] * whole + costs[1] * before + costs[2] * after
        for whole, before, after in itertools.product(range(6), repeat=3)
        if whole * shares[0] + min(before * shares[1], after * shares[2], 1.0) >= 1.0 - 1e-9
    )
    assert choice.cost_usd_per_hour == pytest.approx(best)
    assert choice.bound_usd_per_hour <= best * (1 + 1e-6)


def test_stock_that_one_stage_lacks_is_no_fleet() -> None:
    unified = columns_of(column(candidate(cost=2.0, gpu="h"), 1, chat=0.5), name="chat")
    stages = staged([part(1.0, 0.5, "prefill")], [part(1.0, 0.5, "decode", gpu="h")])
    classes = {"m": [request_class("chat")]}
    limits = stock_of({"g": 1, "h": 1})
    found = choose({"m": unified}, classes, limits, options=OPTIONS, stages=stages)
    assert found.outcome == "infeasible" and found.empty
    found = choose({"m": unified}, classes, stock_of({"g": 2, "h": 2}), options=OPTIONS, stages=stages)
    assert found.cost_usd_per_hour == pytest.approx(4.0)


def test_what_is_carried_in_rows_is_what_the_weakest_stage_carries_and_no_part_counts_twice() -> None:
    longer = Chain(cls="chat", model="m", parts=("chat > prefill", "chat > other"))
    carried = {"chat > prefill": 0.9, "chat > decode": 0.6, "chat > other": 0.7}
    assert carried_in_rows([CHAIN], carried) == {"chat": pytest.approx(0.6)}
    assert carried_in_rows([CHAIN, longer], carried) == {"chat": pytest.approx(0.9)}
    assert carried_in_rows([CHAIN], {"chat > prefill": 1.0}) == {}
