"""Erlang B and C: textbook numbers, the recursion as an oracle, limits, properties and messages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from qmodel.queueing import erlang_b, erlang_c


def blocking_by_recursion(offered: float, servers: int) -> float:
    inverse = 1.0
    for k in range(1, servers + 1):
        inverse = 1.0 + inverse * k / offered
    return 1.0 / inverse


@pytest.mark.parametrize(
    ("offered", "servers", "expected"),
    [(1.0, 1, 0.5), (1.0, 2, 0.2), (5.0, 5, 0.284868), (8.0, 10, 0.121661), (20.0, 30, 0.008457)],
)
def test_blocking_matches_published_tables(offered: float, servers: int, expected: float) -> None:
    assert float(erlang_b(offered, servers)) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(
    ("offered", "servers", "expected"), [(8.0, 10, 0.4092), (1.0, 2, 1.0 / 3.0), (2.0, 3, 4.0 / 9.0)]
)
def test_delay_matches_textbook_numbers(offered: float, servers: int, expected: float) -> None:
    assert float(erlang_c(offered, servers)) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("servers", [1, 2, 7, 15, 16, 17, 100, 1000, 10_000, 100_000])
def test_blocking_equals_the_recursion_to_eleven_digits(servers: int) -> None:
    for load in (0.3, 0.7, 0.9, 0.99, 1.0, 1.01, 1.3, 2.0, 50.0):
        expected = blocking_by_recursion(load * servers, servers)
        if expected > 1e-250:
            assert float(erlang_b(load * servers, servers)) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("offered", "servers"), [(0.3, 0.5), (8.0, 8.5), (3.0, 2.2), (20.0, 0.7), (40.0, 44.25)])
def test_real_servers_match_the_defining_integral(offered: float, servers: float) -> None:
    inverse, _ = integrate.quad(
        lambda u: math.exp(-u + servers * math.log1p(u / offered)), 0.0, np.inf, epsabs=0.0, epsrel=1e-12, limit=500
    )
    assert float(erlang_b(offered, servers)) == pytest.approx(1.0 / inverse, rel=1e-9)


def test_one_server_waits_with_its_utilisation() -> None:
    load = np.linspace(0.0, 0.99, 12)
    np.testing.assert_allclose(erlang_c(load, 1), load, rtol=1e-12)


def test_no_load_never_waits() -> None:
    assert float(erlang_c(0.0, 5)) == 0.0
    assert float(erlang_b(1e-300, 3)) == 0.0


def test_arguments_broadcast() -> None:
    assert erlang_c(np.array([1.0, 2.0])[:, None], np.array([4, 8, 16])).shape == (2, 3)


@given(offered=st.floats(0.1, 50.0), extra=st.integers(1, 20))
def test_more_servers_never_wait_longer(offered: float, extra: int) -> None:
    servers = math.ceil(offered) + 1
    assert float(erlang_c(offered, servers + extra)) <= float(erlang_c(offered, servers))


@given(servers=st.floats(0.5, 3000.0), load=st.floats(0.01, 0.98), more=st.floats(1e-3, 0.019))
def test_delay_rises_with_load_and_exceeds_blocking(servers: float, load: float, more: float) -> None:
    low, high = float(erlang_c(load * servers, servers)), float(erlang_c((load + more) * servers, servers))
    assert low <= high <= 1.0
    assert float(erlang_b(load * servers, servers)) <= low


@pytest.mark.parametrize(
    ("offered", "servers", "message"),
    [
        (10.0, 10, r"offered must be below servers.*got offered 10 on 10 servers.*add servers"),
        (-1.0, 10, r"offered must be a finite number of at least 0, in servers \(got -1\)"),
        (math.nan, 10, r"offered must be a finite number"),
        (math.inf, 10, r"offered must be a finite number"),
        (1.0, 0, r"servers must be above 0 and at most 1,000,000 \(got 0\)"),
        (1.0, -3, r"servers must be above 0"),
        (1.0, 1e7, r"at most 1,000,000 \(got 1e\+07\)"),
        (1.0, math.nan, r"servers must be above 0"),
    ],
)
def test_bad_input_is_named_with_its_range(offered: float, servers: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        erlang_c(offered, servers)
