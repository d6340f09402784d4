"""What a day buys: against brute force over the base, and at its limits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, lists, none, one_of

from qmodel.evaluation import day_purchases, limits_in_period, period_costs_usd
from qmodel.types import GpuLimits, Holding, Layer, Limits, Offer, Periods, bought_for_day

RESERVED = Offer(term="reserved_1y", usd_per_gpu_hour=2.0)
HOURLY = Offer(term="on_demand", usd_per_gpu_hour=3.0)


def hours_of(levels: list[int]) -> Periods:
    """A day whose hours ask for so much each, with time to start."""
    most = max(levels)
    return Periods.of_day({"a": [level / most for level in levels]}, fleet_changes=True, start_lag_h=0.25)


@given(
    levels=lists(integers(1, 6), min_size=24, max_size=24),
    lag=floats(0.0, 1.0),
)
def test_layers_are_a_day(levels, lag):
    periods = Periods.of_day({"a": [n / 6 for n in levels]}, fleet_changes=True, start_lag_h=lag)
    assert sum(layer.weight for layer in periods.layers) == pytest.approx(1.0)
    assert sorted(hour for item in periods.items for hour in item.hours) == list(range(24))
    assert Periods.from_dict(periods.to_dict()) == periods


@given(
    paid=lists(integers(0, 12), min_size=3, max_size=3),
    room=one_of(none(), integers(0, 8)),
    hourly_room=one_of(none(), integers(6, 12)),
    price=floats(0.5, 4.0),
    lot=integers(1, 3),
)
def test_no_other_base_is_cheaper(paid, room, hourly_room, price, lot):
    offers = [
        Offer(term="reserved_1y", usd_per_gpu_hour=price, max_gpus=room),
        Offer(term="on_demand", usd_per_gpu_hour=3.0, max_gpus=hourly_room),
    ]
    layers = [Layer(weight=0.5, members=(0,)), Layer(weight=0.2, members=(1,)), Layer(weight=0.3, members=(1, 2))]
    paid = [n * lot for n in paid]
    found = bought_for_day(offers, paid, layers, lot=lot)
    most, hourly = (10**6 if one is None else one // lot * lot for one in (room, hourly_room))
    costs = [np.inf]
    for base in range(0, max(paid) + 1, lot):
        above = [max(max(paid[member] for member in layer.members) - base, 0) for layer in layers]
        if base <= most and max(above) <= hourly:
            costs.append(base * price + sum(layer.weight * 3.0 * n for layer, n in zip(layers, above, strict=True)))
    assert found.usd_per_hour == pytest.approx(min(costs))
    assert found.base_gpus % lot == 0 and found.base_gpus <= most


@given(levels=lists(integers(1, 6), min_size=24, max_size=24))
def test_hours_cost_what_the_day_does(levels):
    periods = hours_of(levels)
    limits = Limits(gpus={"g": GpuLimits(offers=(RESERVED, HOURLY), by_hour=True)})
    most = max(levels)
    holdings = [[Holding(gpu="g", replica_gpus=1, replicas=round(item.factors["a"] * most))] for item in periods.items]
    bought = day_purchases(limits, holdings, periods)
    each = period_costs_usd(limits, holdings, periods, bought)
    mean = sum(item.weight * usd for item, usd in zip(periods.items, each, strict=True))
    assert mean == pytest.approx(bought["g"].usd_per_hour)
    by_hand = []
    for base in range(most + 1):  # each hour: its own GPUs, and for a quarter of it those of the next
        pairs = itertools.pairwise([*levels, levels[0]])
        by_hand.append(
            base * 2.0 + sum(3.0 * (0.75 * max(n - base, 0) + 0.25 * max(n - base, m - base, 0)) for n, m in pairs) / 24
        )
    assert mean == pytest.approx(min(by_hand))


def test_the_base_is_used_first():
    limits = Limits(gpus={"g": GpuLimits(offers=(RESERVED, HOURLY), by_hour=True)}, budget_usd_per_hour=1.0)
    periods = hours_of([2] * 12 + [5] * 12)
    holdings = [[Holding(gpu="g", replica_gpus=1, replicas=n)] for n in (2, 5)]
    within = limits_in_period(limits, day_purchases(limits, holdings, periods))
    assert [(one.offer.term, one.gpus) for one in within.purchases("g", holdings[1])] == [
        ("reserved_1y", 2),
        ("on_demand", 3),
    ]
    assert within.budget_usd_per_hour is None
