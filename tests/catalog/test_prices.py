"""Prices by rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmodel.catalog import PriceRule, load_catalog
from qmodel.catalog.prices import choose_price
from qmodel.errors import CatalogError

CATALOG = load_catalog()


def _row(usd: float | None, **changes: Any) -> dict[str, Any]:
    row = {"provider": "a", "gpu": "G", "region": "r", "instance": "i", "gpus_per_instance": 8, "source": "s"}
    row |= {"as_of": "2026-10-01", "confidence": "high", "on_demand_usd_per_gpu_hour": usd}
    return row | changes


def _price(rows: list[dict[str, Any]], **rule: Any) -> float:
    return choose_price(rows, "G", name="g", rule=PriceRule(**rule)).usd_per_gpu_hour


def test_the_default_is_the_median_of_high_confidence_on_demand_rows() -> None:
    choice = CATALOG.price("h100-sxm")
    assert choice.usd_per_gpu_hour == 4.41
    assert len(choice.rows) == 15
    assert choice.rule == (
        "median of 15 high-confidence on-demand rows, newest per provider, region and product, as of 2026 to 2026-11-09"
    )
    assert all(row.confidence == "high" and row.tier in (None, "secure", "community") for row in choice.rows)
    assert [row.usd_per_gpu_hour for row in choice.rows] == sorted(row.usd_per_gpu_hour for row in choice.rows)


def test_the_newest_row_of_a_product_counts() -> None:
    assert _price([_row(3.0, as_of="2026-09-25"), _row(4.0, as_of="2026-11-09")]) == 4.0
    assert _price([_row(4.0, as_of="2026-11-09"), _row(3.0, as_of="2026-09-25")]) == 4.0
    assert _price([_row(3.0, as_of="2026"), _row(4.0, as_of="2026-11-09")]) == 4.0


def test_products_regions_sizes_and_tiers_are_kept_apart() -> None:
    rows = [_row(1.0), _row(2.0, region="s"), _row(3.0, instance="j"), _row(4.0, gpus_per_instance=1)]
    rows.append(_row(10.0, tier="community"))
    assert _price(rows) == 3.0


def test_a_newer_row_without_a_price_for_the_term_hides_nothing() -> None:
    rows = [_row(3.0, spot_usd_per_gpu_hour=1.0, as_of="2026-09-01"), _row(4.0, as_of="2026-11-01")]
    assert _price(rows, term="spot") == 1.0


def test_marketplace_serverless_and_second_hand_rows_need_market_any() -> None:
    rows = [
        _row(5.0),
        _row(1.0, tier="marketplace", instance="m"),
        _row(2.0, tier="serverless-per-second", instance="s"),
    ]
    rows.append(_row(3.0, confidence="medium", instance="x"))
    assert _price(rows) == 5.0
    assert _price(rows, market="any") == 2.5


def test_median_min_and_max() -> None:
    rows = [_row(usd, instance=str(usd)) for usd in (1.0, 2.0, 9.0)]
    assert [_price(rows, choose=how) for how in ("median", "min", "max")] == [2.0, 1.0, 9.0]


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=9))
def test_the_median_lies_between_the_cheapest_and_the_dearest(prices: list[float]) -> None:
    rows = [_row(usd, instance=str(index)) for index, usd in enumerate(prices)]
    low, middle, high = (_price(rows, choose=how) for how in ("min", "median", "max"))
    assert low <= middle <= high


def test_providers_can_be_chosen_and_case_does_not_matter() -> None:
    choice = CATALOG.price("h100-sxm", PriceRule(providers=("Lambda",)))
    assert {row.provider for row in choice.rows} == {"lambda"}
    assert "providers Lambda" in choice.rule


def test_an_unknown_provider_lists_the_known_ones() -> None:
    with pytest.raises(CatalogError, match="no provider 'acme' in the price book; providers: aws, azure"):
        CATALOG.price("h100-sxm", PriceRule(providers=("acme",)))


def test_no_row_is_an_error_with_the_ways_out() -> None:
    with pytest.raises(CatalogError) as caught:
        CATALOG.price("h20")
    assert str(caught.value) == (
        "no on_demand price for 'h20' in the price book; state fleet.gpus.h20.price.usd_per_gpu_hour in the scenario"
    )


def test_no_row_says_which_other_rule_would_find_one() -> None:
    with pytest.raises(CatalogError) as caught:
        CATALOG.price("tpu-v5e")
    assert "or set price_book.market: any (1 row then)" in str(caught.value)
    assert "or choose another term: spot" in str(caught.value)


def test_rows_name_their_source() -> None:
    row = CATALOG.price("gb300").rows[0].to_dict()
    assert row["provider"] and row["as_of"] and row["source"]
