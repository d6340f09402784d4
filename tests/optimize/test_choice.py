"""What the choice says when the columns carry nothing: ruled out by the relaxation, or only not found."""

from __future__ import annotations

import numpy as np
import pytest

from qmodel.candidates import Column, ColumnSet
from qmodel.optimize import Choice, SolverOptions, choose
from tests.optimize.pieces import candidate, column, request_class, stock_of

ITEM = candidate(cost=4.0)


def chosen(columns: list[Column], names: str, stock: int, carried: float) -> Choice:
    """The choice for classes of one model on one candidate, of which a replica carries a share of each class alone."""
    found = ColumnSet(
        columns=tuple(columns),
        complete=True,
        least=dict.fromkeys(names, (1,)),
        candidates=(ITEM,),
        ratios={name: np.array([carried]) for name in names},
    )
    classes = [request_class(name) for name in names]
    return choose({"m": found}, {"m": classes}, stock_of({"g": stock}), options=SolverOptions(mip_gap=0.0))


def test_columns_that_do_not_fit_the_stock_rule_nothing_out_where_the_relaxation_does() -> None:
    choice = chosen([column(ITEM, 1, a=1.0), column(ITEM, 1, b=1.0)], "ab", stock=1, carried=1.5)
    assert (choice.outcome, choice.chosen) == ("unsettled", ())
    assert choice.bound_usd_per_hour == pytest.approx(4.0)


def test_a_relaxation_that_does_not_fit_the_stock_rules_every_fleet_out() -> None:
    choice = chosen([column(ITEM, 1, a=0.4)], "a", stock=2, carried=0.4)
    assert (choice.outcome, choice.chosen) == ("infeasible", ())
    assert choice.bound_usd_per_hour == -np.inf


def test_a_choice_fits_where_its_gpus_are_in_stock() -> None:
    choice = chosen([column(ITEM, 1, a=0.4)], "a", stock=8, carried=0.4)
    assert [(item.replicas, count) for item, count in choice.chosen] == [(1, 3)]
    assert stock_of({"g": 3, "other": 0}).broken(choice.holdings) is None
    (cap,) = stock_of({"g": 2}).caps
    assert stock_of({"g": 2}).broken(choice.holdings) == cap
    assert choice.bound_usd_per_hour == pytest.approx(12.0)
