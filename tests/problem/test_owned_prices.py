"""What a GPU of one's own costs: textbook factors, limits and sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmodel as qm
from qmodel.problem import bind
from qmodel.problem.owned_prices import HOURS_PER_YEAR, OwnedGpu, capital_recovery_factor
from tests.problem.test_gpu_prices import fleet_of, told

GPU = OwnedGpu(
    capex_usd=30_000.0,
    years=5.0,
    salvage_share=0.0,
    interest=0.08,
    power_w=1000.0,
    pue=1.25,
    usd_per_kwh=0.1,
    opex_usd_per_hour=0.05,
)
OWNED: dict[str, Any] = {"capex_usd_per_gpu": 30000, "years": 5, "interest": 0.08, "pue": 1.25, "usd_per_kwh": 0.1}


@pytest.mark.parametrize(
    ("interest", "years", "factor"),
    [(0.10, 10.0, 0.16275), (0.08, 5.0, 0.25046), (0.05, 20.0, 0.08024), (0.12, 1.0, 1.12)],
)
def test_the_factor_is_that_of_the_tables(interest: float, years: float, factor: float) -> None:
    assert capital_recovery_factor(interest, years) == pytest.approx(factor, abs=5e-6)


def test_without_interest_the_price_is_spread_evenly() -> None:
    even = replace(GPU, interest=0.0, salvage_share=0.2)
    assert even.capital_usd_per_hour == pytest.approx(30_000 * 0.8 / 5 / HOURS_PER_YEAR)
    assert capital_recovery_factor(1e-12, 5.0) == pytest.approx(0.2, rel=1e-9)


@given(
    interest=st.floats(0.0, 1.0), years=st.integers(1, 30), salvage=st.floats(0.0, 0.99), capex=st.floats(100.0, 1e6)
)
def test_yearly_payments_and_what_is_got_back_are_worth_the_price(
    interest: float, years: int, salvage: float, capex: float
) -> None:
    gpu = replace(GPU, interest=interest, years=float(years), salvage_share=salvage, capex_usd=capex)
    yearly = gpu.capital_usd_per_hour * HOURS_PER_YEAR
    discount = (1.0 + interest) ** -np.arange(1.0, years + 1.0)
    assert (yearly * discount).sum() + salvage * capex * discount[-1] == pytest.approx(capex, rel=1e-9)


@given(more=st.floats(0.0, 0.5))
def test_interest_makes_it_dearer_and_salvage_cheaper(more: float) -> None:
    assert replace(GPU, interest=GPU.interest + more).usd_per_hour >= GPU.usd_per_hour
    assert replace(GPU, salvage_share=more).usd_per_hour <= GPU.usd_per_hour


def test_the_price_is_the_sum_of_its_printed_parts() -> None:
    data = fleet_of(h100_sxm={"power_w": 1000, "price": {"owned": OWNED | {"opex_usd_per_gpu_hour": 0.05}}})
    instance = bind(qm.load_scenario(data))
    price = instance.gpus["h100-sxm"].price
    capital = 30_000 * 0.2504564545 / 8760
    assert price.tier == "owned"
    assert price.usd_per_gpu_hour == pytest.approx(capital + 1.0 * 1.25 * 0.1 + 0.05, rel=1e-9)
    assert (
        "h100-sxm: 1.03273 USD per GPU-hour, owned: 30,000 USD over 5 years at 0.08 interest = 0.8577 USD/h, "
        "1,000 W x PUE 1.25 x 0.1 USD/kWh = 0.1250, operation 0.05; power: stated in the scenario"
    ) in instance.assumptions


def test_the_power_is_that_of_the_node_unless_it_is_stated() -> None:
    usual = bind(qm.load_scenario(fleet_of(h100_sxm={"price": {"owned": OWNED}})))
    node = usual.gpus["h100-sxm"].node
    assert node is not None and node.max_power_kw is not None
    kw = node.max_power_kw / node.gpus_per_node
    assert usual.gpus["h100-sxm"].price.usd_per_gpu_hour == pytest.approx(
        30_000 * 0.2504564545 / 8760 + kw * 1.25 * 0.1, rel=1e-9
    )
    stated = bind(qm.load_scenario(fleet_of(h100_sxm={"power_w": 900, "price": {"owned": OWNED | {"power_w": 500}}})))
    assert "500 W" in stated.gpus["h100-sxm"].price.basis


def test_a_gpu_whose_power_is_not_known_is_told() -> None:
    data = fleet_of(mine={"price": {"owned": OWNED}})
    data["profiles"] = [
        {"model": "llama-3.1-8b", "gpu": "mine", "alpha_s": 0.01, "beta_s": 1e-4, "gamma_s": 0.0, "delta_s": 1e-4}
    ]
    (problem,) = qm.validate(data)
    said = "fleet.gpus.mine.price.owned: needs the power of 'mine', which is not known; add power_w: <W>"
    assert str(problem).removeprefix("<dict>: ") == said
    assert told(h100_sxm={"price": {"owned": OWNED}}) == []


def test_owned_gpus_are_bought_first_where_they_are_cheapest_and_rented_ones_beside_them() -> None:
    data = fleet_of(
        h100_sxm={"tiers": [{"term": "on_demand", "usd_per_gpu_hour": 3.0}, {"owned": OWNED, "max_count": 2}]}
    )
    data["classes"]["chat"]["rate_rps"] = 120
    data["layouts"] = {"tp": [1], "pp": [1]}
    plan = qm.plan(data)
    assert [row.term for row in plan.purchases] == ["owned", "on_demand"]
    assert plan.purchases[0].gpus == 2
    assert qm.verify(plan).ok
