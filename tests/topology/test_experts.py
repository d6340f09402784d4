from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmodel.topology import exchange_costs, link_costs, parts_reached
from qmodel.types import Layout
from tests.topology.shapes import GB200, H100, IB, RAIL


def drawn(experts: int, per_token: int, parts: int, groups: int, chosen: int, tokens: int = 4000) -> float:
    """Mean number of parts of tokens whose experts are drawn one by one."""
    generator = np.random.default_rng(11)
    reached = 0
    for _ in range(tokens):
        open_groups = generator.choice(groups, size=chosen, replace=False)
        pool = np.concatenate([np.arange(g * experts // groups, (g + 1) * experts // groups) for g in open_groups])
        picked = generator.choice(pool, size=per_token, replace=False)
        reached += len(set((picked * parts // experts).tolist()))
    return reached / tokens


@pytest.mark.parametrize(
    "experts, per_token, parts, groups, chosen",
    [(256, 8, 2, 8, 4), (256, 8, 8, 8, 4), (256, 8, 32, 8, 4), (256, 8, 4, 1, 1), (64, 6, 16, 1, 1), (160, 6, 4, 8, 3)],
)
def test_the_mean_number_of_parts_is_that_of_draws(
    experts: int, per_token: int, parts: int, groups: int, chosen: int
) -> None:
    expected = parts_reached(experts, per_token, parts, groups, chosen)
    assert drawn(experts, per_token, parts, groups, chosen) == pytest.approx(expected, rel=0.02)


def test_with_many_experts_it_is_the_draw_with_replacement() -> None:
    assert parts_reached(10**6, 8, 8) == pytest.approx(8 * (1 - (7 / 8) ** 8), rel=1e-4)


@given(
    parts=st.sampled_from([1, 2, 4, 8, 16, 32]),
    groups=st.sampled_from([1, 2, 4, 8]),
    per_token=st.integers(1, 8),
    data=st.data(),
)
def test_a_limit_on_groups_never_spreads_a_token_further(
    parts: int, groups: int, per_token: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.integers(1, groups))
    limited = parts_reached(256, per_token, parts, groups, chosen)
    free = parts_reached(256, per_token, parts)
    assert 1.0 - 1e-9 <= limited <= free + 1e-9 <= min(parts, per_token) + 2e-9
    if parts <= groups:
        assert limited <= chosen + 1e-9


def test_one_part_or_one_expert_is_reached_once() -> None:
    assert parts_reached(256, 8, 1) == 1.0
    assert parts_reached(256, 1, 32) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ((0, 1, 1), r"experts must be at least 1 \(got 0\)"),
        ((8, 9, 1), r"experts_per_token must be between 1 and 8, the experts \(got 9\)"),
        ((8, 2, 16), r"parts must be at most 8, the experts \(got 16\)"),
        ((8, 2, 4, 4, 5), r"groups_per_token must be between 1 and 4, the groups \(got 5\)"),
        (
            (8, 3, 4, 4, 1),
            "1 of 4 groups hold 2 experts, fewer than the 3 a token visits; raise groups_per_token",
        ),
    ],
)
def test_counts_that_do_not_fit_are_refused(arguments: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parts_reached(*arguments)


def test_a_limit_of_four_nodes_pays_on_eight_nodes_and_not_on_two() -> None:
    free, limited = (
        [
            exchange_costs(Layout(dp=8 * n, ep=8 * n), H100, IB, RAIL, experts=256, experts_per_token=8, **limit)
            for n in (2, 8)
        ]
        for limit in ({}, {"groups": 8, "groups_per_token": 4})
    )
    assert limited[0].seconds(4096, 7168) == pytest.approx(free[0].seconds(4096, 7168), rel=0.05)
    assert limited[1].seconds(4096, 7168) < 0.75 * free[1].seconds(4096, 7168)


def test_low_latency_kernels_win_with_few_tokens_and_normal_ones_with_many() -> None:
    low, normal = (
        exchange_costs(Layout(dp=32, ep=32), H100, IB, RAIL, experts=256, experts_per_token=8, kernel=kernel)
        for kernel in ("low_latency", "normal")
    )
    assert low.seconds(8, 14336) < normal.seconds(8, 14336)
    assert normal.seconds(8192, 14336) < low.seconds(8192, 14336)


def test_the_low_latency_kernel_costs_what_the_replica_is_charged_for_its_exchange() -> None:
    made = exchange_costs(Layout(dp=16, ep=16), H100, IB, RAIL, experts=256, experts_per_token=8, kernel="low_latency")
    assert made.copies == 8.0
    assert made.cost == link_costs(Layout(dp=16, ep=16), H100, IB, RAIL).stage_all_to_all


def test_a_kernel_for_one_island_is_refused_on_two() -> None:
    reason = (
        r"kernel 'one_island' serves a stage inside one island, tp1-ep16-dp16 spans 2; use 'normal' or 'low_latency'"
    )
    with pytest.raises(ValueError, match=f"^{reason}$"):
        exchange_costs(Layout(dp=16, ep=16), H100, IB, RAIL, experts=256, experts_per_token=8, kernel="one_island")
    with pytest.raises(ValueError, match=r"^kernel must be one of low_latency, normal, one_island \(got 'fast'\)$"):
        exchange_costs(Layout(dp=4, ep=4), GB200, experts=256, experts_per_token=8, kernel="fast")


def test_one_gpu_exchanges_nothing() -> None:
    assert exchange_costs(Layout(), H100, experts=8, experts_per_token=2).seconds(100, 100) == 0.0
