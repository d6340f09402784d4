"""Curves of excess over load: monotone, refined where asked, and never below what is true between looks."""

from __future__ import annotations

import numpy as np
import pytest

import qmodel as qm
from qmodel.candidates import curves_of, enumerate_candidates
from qmodel.candidates.load_curves import looked_at
from qmodel.evaluation import slo_excesses
from qmodel.problem import bind
from tests.planning.fleet_wide import two_types


@pytest.mark.parametrize("router", ["random", "jsq"])
def test_between_two_looks_the_lower_one_exceeds_no_more_and_the_upper_end_carries_no_less(router: str) -> None:
    instance = bind(qm.load_scenario(two_types(4, router)))
    candidates, item = enumerate_candidates(instance).candidates, instance.classes["chat"]
    curves = curves_of([(one, count) for one in candidates for count in (1, 2, 5)], item)
    rng = np.random.default_rng(3)
    for curve in curves:
        assert np.all(np.diff(curve.excess, axis=0) >= 0.0) and np.all(np.diff(curve.loads) > 0.0)
        loads = np.sort(rng.uniform(0.001, 0.999, 12)) * curve.most
        one = curve.candidate
        true = slo_excesses([one.replica] * 12, [item], [1.0], [curve.replicas] * 12, loads, one.router)
        part = np.searchsorted(curve.loads, loads, side="right") - 1
        assert np.all(curve.excess[part] <= true + 1e-6)
        assert np.all(loads <= curve.ends[part])


def test_looks_narrow_the_parts_and_known_ones_are_left_out() -> None:
    instance = bind(qm.load_scenario(two_types(4, "random")))
    candidates, item = enumerate_candidates(instance).candidates, instance.classes["chat"]
    (curve,) = curves_of([(candidates[0], 1)], item)
    part = 6
    (closer,) = looked_at([curve], [curve.middles(part, float(curve.ends[part]))])
    assert closer.loads.size == curve.loads.size + 3
    assert closer.width(part) < curve.width(part)
    (same,) = looked_at([closer], [closer.loads])
    assert same is closer


def test_a_curve_ends_where_the_pool_is_not_stable_and_at_the_whole_demand() -> None:
    instance = bind(qm.load_scenario(two_types(4, "random")))
    candidates, item = enumerate_candidates(instance).candidates, instance.classes["chat"]
    one, many = curves_of([(candidates[0], 1), (candidates[0], 9)], item)
    assert one.most < 1.0 == many.most
    (beyond,) = curves_of([(candidates[0], 9)], item, beyond_demand=True)
    assert beyond.most == pytest.approx(9 * one.most)
    (stopped,) = looked_at([one], [[1.5 * one.most]])
    assert stopped.most == 1.5 * one.most and stopped.loads.max() <= one.most
