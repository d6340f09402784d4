"""Classes that several models may serve in the integer program: rows by name and coefficient, and their shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qmodel.candidates import Column
from qmodel.optimize.alternatives import each_once, model_shares
from qmodel.optimize.formulation import master_program
from qmodel.types import Limits, ModelTier, RequestClass
from tests.optimize.pieces import candidate, column, request_class, stock_of
from tests.optimize.test_limit_rows import terms


def asking(min_quality: float | None) -> RequestClass:
    one = request_class("chat", model="good")
    return replace(
        one,
        alternatives=(ModelTier(model="good", quality=0.8), ModelTier(model="fair", quality=0.6)),
        min_quality=min_quality,
    )


def columns_of() -> list[Column]:
    return [
        column(candidate(cost=4.0, model="good"), 1, chat=0.5),
        column(candidate(cost=1.0, model="fair"), 1, chat=0.4),
    ]


def test_shares_cover_the_class_and_pools_of_each_model_carry_its_share() -> None:
    classes = [request_class("code", model="fair"), asking(0.7)]
    columns = [*columns_of(), column(candidate(cost=1.0, model="fair"), 2, code=0.7, chat=0.1)]
    program = master_program(columns, classes, stock_of({"g": 9}))
    shared = "pool_g_tp1_x2_fair_chat_code"
    assert program.row_names == (
        "cover_code",
        "cover_chat",
        "stock_g",
        "quality_chat",
        "served_chat_by_good",
        "served_chat_by_fair",
    )
    assert program.senses == (">=", ">=", "<=", "<=", ">=", ">=")
    assert program.rhs.tolist() == [1.0, 1.0, 9.0, 0.0, 0.0, 0.0]
    good, fair = "share_chat_by_good", "share_chat_by_fair"
    assert terms(program, "cover_code") == {shared: 0.7}
    assert terms(program, "cover_chat") == {good: 1.0, fair: 1.0}
    assert terms(program, "quality_chat") == pytest.approx({good: -0.125, fair: 0.125})
    assert terms(program, "served_chat_by_good") == {"pool_g_tp1_x1_good_chat": 0.5, good: -1.0}
    assert terms(program, "served_chat_by_fair") == {"pool_g_tp1_x1_fair_chat": 0.4, shared: 0.1, fair: -1.0}
    assert [program.names[place] for place in program.model_shares.values()] == [good, fair]


def test_an_average_that_is_not_asked_for_has_no_row_and_one_model_has_no_shares() -> None:
    program = master_program(columns_of(), [asking(None)], Limits())
    assert program.row_names == ("cover_chat", "served_chat_by_good", "served_chat_by_fair")
    alone = replace(asking(0.8), alternatives=(ModelTier(model="good", quality=0.8),))
    program = master_program(columns_of()[:1], [alone], Limits())
    assert program.row_names == ("cover_chat",)
    assert program.model_shares == {}


def test_shares_between_bounds_are_rows_that_hold_when_scaled() -> None:
    tiers = (
        ModelTier(model="good", least=0.2, most=0.2),
        ModelTier(model="fair", least=0.5),
        ModelTier(model="poor", most=0.3),
    )
    program = master_program(columns_of(), [replace(asking(None), alternatives=tiers)], Limits())
    good, fair, poor = "share_chat_by_good", "share_chat_by_fair", "share_chat_by_poor"
    assert program.row_names[:5] == (
        "cover_chat",
        "least_chat_by_good",
        "most_chat_by_good",
        "least_chat_by_fair",
        "most_chat_by_poor",
    )
    assert terms(program, "least_chat_by_good") == pytest.approx({good: -0.8, fair: 0.2, poor: 0.2})
    assert terms(program, "most_chat_by_good") == pytest.approx({good: 0.8, fair: -0.2, poor: -0.2})
    assert terms(program, "least_chat_by_fair") == pytest.approx({good: 0.5, fair: -0.5, poor: 0.5})
    assert terms(program, "most_chat_by_poor") == pytest.approx({good: -0.3, fair: -0.3, poor: 0.7})
    assert program.rhs.tolist()[1:5] == [0.0] * 4


def test_what_opens_a_pool_carries_the_share_of_its_model() -> None:
    program = master_program(columns_of(), [asking(0.7)], Limits(max_pools=2))
    carried = "carried_chat_pool_g_tp1_x1_good_chat"
    assert terms(program, "served_chat_by_good") == {carried: 1.0, "share_chat_by_good": -1.0}


def test_shares_that_cover_more_than_the_class_are_scaled_down_and_rounding_is_dropped() -> None:
    program = master_program(columns_of(), [asking(0.7)], Limits())
    values = np.zeros(program.cost.size)
    places = program.model_shares
    values[places["chat", "good"]], values[places["chat", "fair"]] = 0.9, 0.6
    assert model_shares(program, values) == pytest.approx({("chat", "good"): 0.6, ("chat", "fair"): 0.4})
    values[places["chat", "good"]], values[places["chat", "fair"]] = 1.0, 1e-9
    assert model_shares(program, values) == {("chat", "good"): 1.0, ("chat", "fair"): 0.0}


def test_classes_keep_their_first_place() -> None:
    one, two = request_class("a"), request_class("b")
    assert each_once([one, two, replace(one, model="other")]) == [one, two]
