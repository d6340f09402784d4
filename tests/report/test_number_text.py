"""Numbers as text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmodel.report.number_text import decimal_text, money_text, month_text, percent_text, seconds_text, slack_text
from qmodel.report.row_tables import target_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.00001234, "0.0123 ms"),
        (0.0317, "31.7 ms"),
        (0.5, "500 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (1.0, "1.00 s"),
        (12.345, "12.3 s"),
        (99.96, "100 s"),
        (482.4, "482 s"),
        (36_012.3, "36,012 s"),
        (None, "-"),
        (math.inf, "-"),
        (math.nan, "-"),
    ],
)
def test_seconds_have_three_digits_and_milliseconds_below_one(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text


@given(st.floats(1e-6, 1e7))
def test_a_duration_reads_back_within_half_a_percent(seconds: float) -> None:
    number, unit = seconds_text(seconds).split(" ")
    read = float(number.replace(",", "")) * (1e-3 if unit == "ms" else 1.0)
    assert read == pytest.approx(seconds, rel=5.1e-3)


@given(st.floats(-1e3, 1e3))
def test_a_percentage_reads_back_within_its_last_digit(fraction: float) -> None:
    assert float(percent_text(fraction)) == pytest.approx(100 * fraction, abs=0.0501)


def test_small_percentages_keep_two_digits() -> None:
    assert [percent_text(value) for value in (0.0033, 0.0004, 0.00094, -0.0004, 1e-9, -1e-9, 0.00951)] == [
        "0.33",
        "0.040",
        "0.094",
        "-0.040",
        "0.0",
        "0.0",
        "1.0",
    ]


def test_money_is_exact_to_the_cent() -> None:
    assert [money_text(value) for value in (0.0, 0.05, 0.004, 8.04, 112.56, 1234567.891, None)] == [
        "0.00",
        "0.0500",
        "0.00400",
        "8.04",
        "112.56",
        "1,234,567.89",
        "-",
    ]
    assert month_text(1.0) == "730 USD/month"


def test_no_number_is_a_dash() -> None:
    assert {decimal_text(None), percent_text(math.nan), money_text(math.inf), slack_text(None, 0.5)} == {"-"}


def test_small_targets_on_shares_keep_their_value():
    assert target_text("abandoned", 1e-9) == "1e-07 %"
    assert target_text("abandoned", 0.01) == "1 %"
    assert target_text("ttft", 0.5) == "500 ms"
