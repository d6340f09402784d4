"""One fleet under several regimes of lengths: the joined program against brute force over pools."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from qmodel.optimize.formulation import master_program
from qmodel.optimize.period_pools import PeriodPools, pools_of_regimes
from qmodel.optimize.period_programs import OneFleet
from qmodel.types import Limits
from tests.optimize.pieces import candidate, column, request_class
from tests.optimize.test_period_programs import optimum

SIZES = (1, 2, 3)
MOST = 5  # pools of one size and type


def carried(seed: int, number: int) -> dict[str, list[float]]:
    """What a pool of each size carries of the class in a regime, by GPU type: more than in proportion to its size."""
    rng = np.random.default_rng([seed, number])
    return {
        gpu: np.cumsum(rng.uniform(0.1, 0.3) * np.linspace(1.0, rng.uniform(1.0, 1.6), len(SIZES))).tolist()
        for gpu in ("g", "h")
    }


@pytest.mark.parametrize("seed", range(8))
def test_one_fleet_for_two_regimes_costs_what_brute_force_finds(seed):
    usd = {"g": 3.0, "h": 2.2}
    kinds = {gpu: replace(candidate(cost=price, gpu=gpu), router="jsq") for gpu, price in usd.items()}
    regimes = [carried(seed, number) for number in range(2)]
    classes = [request_class("a")]
    programs = []
    for number, regime in enumerate(regimes):
        columns = [
            column(kinds[gpu], size, a=share)
            for gpu, shares in regime.items()
            for size, share in zip(SIZES, shares, strict=True)
            if not (number == 0 and size == 3)  # the first regime knows no pool so large: it uses it as a smaller one
        ]
        programs.append(master_program(columns, classes, Limits()))
    frame = OneFleet(factors=np.array([[1.0], [1.0], [0.6]]), regimes=(0, 1, 1))
    joined = frame.joined(*programs)
    known = [
        {gpu: [*shares[:2], shares[1]] if number == 0 else shares for gpu, shares in regime.items()}
        for number, regime in enumerate(regimes)
    ]
    things = [(gpu, place) for gpu in usd for place in range(len(SIZES))]
    best = np.inf
    for counts in itertools.product(range(MOST), repeat=len(things)):
        chosen = list(zip(things, counts, strict=True))
        if all(sum(n * regime[gpu][place] for (gpu, place), n in chosen) >= 1.0 for regime in known):
            best = min(best, sum(n * usd[gpu] * SIZES[place] for (gpu, place), n in chosen))
    assert optimum(joined.program) == pytest.approx(best)


def test_pools_of_regimes_are_lined_up_by_size():
    kind = replace(candidate(cost=1.0, gpu="g"), router="jsq")

    def pools(replicas: int, counts: tuple[int, ...], share: float) -> PeriodPools:
        shares = tuple({"a": share * count} if count else {} for count in counts)
        return PeriodPools(candidate=kind, replicas=replicas, counts=counts, shares=shares)

    found = pools_of_regimes([[pools(4, (1, 0), 0.7), pools(1, (1, 0), 0.3)], [pools(2, (0, 3), 0.4)]])
    assert [item.replicas for item in found] == [4, 2, 2]
    assert [[own.get("a", 0.0) for own in item.shares] for item in found] == [
        pytest.approx(each) for each in ([0.7, 0.4], [0.3, 0.4], [0.0, 0.4])
    ]
