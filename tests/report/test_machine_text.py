"""JSON and CSV for programs."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from qmodel.evaluation.results import CurveRow, LatencyRow
from qmodel.planning.plans import PriceRow
from qmodel.report import TABLE_COLUMNS, csv_text, json_text, plain
from qmodel.types import PoolRow, PurchaseRow, RouteRow, SloRow
from tests.report.sample_results import a_capacity, a_plan, an_evaluation


def test_json_never_holds_nan_or_infinity() -> None:
    data = {"a": math.nan, "b": [math.inf, -math.inf, 1.5], "c": {"d": np.float64("inf")}}
    assert json.loads(json_text(data)) == {"a": None, "b": [None, None, 1.5], "c": {"d": None}}


def test_numpy_sets_and_paths_become_plain() -> None:
    data = {"a": np.arange(3), "b": np.int64(4), "c": {"y", "x"}, "d": PurePosixPath("a/b"), "e": np.bool_(True)}
    assert plain(data) == {"a": [0, 1, 2], "b": 4, "c": ["x", "y"], "d": "a/b", "e": True}
    with pytest.raises(TypeError, match="no plain form of object"):
        plain(object())


def test_a_plan_survives_json() -> None:
    plan = a_plan()
    assert type(plan).from_dict(json.loads(json_text(plan.to_dict()))).to_dict() == plan.to_dict()


def test_a_saved_plan_and_a_printed_plan_are_the_same_bytes(tmp_path: Path) -> None:
    a_plan().save(tmp_path / "plan.json")
    assert (tmp_path / "plan.json").read_text(encoding="utf-8") == json_text(a_plan().to_dict())


@pytest.mark.parametrize(
    ("table", "record"),
    [
        ("pools", PoolRow),
        ("routing", RouteRow),
        ("slo", SloRow),
        ("latency", LatencyRow),
        ("purchases", PurchaseRow),
        ("prices", PriceRow),
        ("curve", CurveRow),
    ],
)
def test_csv_columns_are_the_fields_of_the_rows_in_their_order(table: str, record: type) -> None:
    assert list(TABLE_COLUMNS[table]) == ["class" if item.name == "cls" else item.name for item in fields(record)]


def test_a_target_as_csv() -> None:
    rows = [row.to_dict() for row in an_evaluation().slo[:1]]
    assert csv_text(rows, TABLE_COLUMNS["slo"]) == (
        "class,path,metric,stat,target_s,predicted_s,low_s,high_s,met,met_at_p90,basis\n"
        "chat,p1,ttft,p95,0.5,0.412,0.36,0.53,true,false,predicted\n"
    )


def test_numbers_that_are_missing_or_not_finite_are_empty_in_csv() -> None:
    assert csv_text([{"a": None, "b": math.inf, "c": 0.1, "d": [1, 2]}], ["a", "b", "c", "d", "e"]) == (
        'a,b,c,d,e\n,,0.1,"[1, 2]",\n'
    )


def test_a_curve_as_csv() -> None:
    rows = a_capacity().to_dict()["curve"]
    assert isinstance(rows, list)
    assert csv_text(rows, TABLE_COLUMNS["curve"]).splitlines()[-1] == "1.45,17.4,,,chat ttft_p95_s,,false"
