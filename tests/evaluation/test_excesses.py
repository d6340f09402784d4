"""Excesses of targets: what adds up over pools, against percentiles of single pools and of mixtures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmodel.evaluation import allowances, slo_excesses, slo_ratios
from qmodel.evaluation.mixtures import mixture_holds, mixture_of
from qmodel.queueing import Replica, pool, pool_exceedances, pool_metrics
from qmodel.types import METRICS, Lengths, RequestClass, Slo, StepLaw
from qmodel.workload import lognormal_law

LENGTHS = Lengths.independent(lognormal_law(600, 0.8), lognormal_law(150, 0.9))
FAST = Replica(step=StepLaw.linear(alpha_s=0.008, beta_s=1e-4, gamma_s=2e-8, delta_s=3e-5), max_num_seqs=64)
SLOW = Replica(step=StepLaw.linear(alpha_s=0.018, beta_s=2e-4, gamma_s=4e-8, delta_s=7e-5), max_num_seqs=64)
SLOS = (
    Slo(metric="ttft", p=0.95, target_s=0.3),
    Slo(metric="tpot", p=0.9, target_s=0.025),
    Slo(metric="completion", p=0.99, target_s=12.0),
    Slo(metric="tpot", p=None, target_s=0.02),
)
CHAT = RequestClass(name="chat", model="m", rate_rps=8.0, lengths=LENGTHS, slos=SLOS)


@pytest.mark.parametrize("router", ["random", "round_robin", "jsq"])
def test_the_share_beyond_a_percentile_is_what_the_percentile_leaves(router: str) -> None:
    levels = (0.5, 0.9, 0.99)
    for metric in METRICS:
        wanted = [("chat", metric, p) for p in levels]
        limits = pool_metrics(FAST, [CHAT], [1, 3], [0.5, 1.0], router, wanted)  # type: ignore[arg-type]
        pairs = [("chat", metric)] * len(levels)
        found = pool_exceedances(FAST, [CHAT], [1, 3], [0.5, 1.0], router, pairs, limits)  # type: ignore[arg-type]
        assert found == pytest.approx(np.array([[0.5, 0.1, 0.01]] * 2), abs=2e-4)


def test_shares_beyond_a_limit_are_those_of_a_single_prediction() -> None:
    prediction = pool(SLOW, [CHAT.stream(0.4)], 2, router="jsq")["chat"]
    for metric, limit_s in (("ttft", 0.2), ("tpot", 0.022), ("completion", 5.0)):
        found = pool_exceedances([SLOW, FAST], [CHAT], [2, 1], [0.4, 0.3], "jsq", [("chat", metric)], [limit_s])  # type: ignore[list-item]
        within = float(prediction.metric(metric).share_within(np.array([limit_s]))[0])  # type: ignore[arg-type]
        assert found[0, 0] == pytest.approx(1.0 - within, abs=1e-9)
        assert found[1, 0] < found[0, 0]


def test_an_unstable_pool_has_no_share() -> None:
    assert np.isinf(pool_exceedances(SLOW, [CHAT], 1, 9.0, "random", [("chat", "ttft")], [1.0])).all()
    assert np.isinf(slo_excesses([SLOW], [CHAT], [1.0], [1], [9.0], "random")).all()


@pytest.mark.parametrize("limits", [[0.0], [-1.0], [1.0, 2.0], [[np.nan]]])
def test_limits_that_are_none_are_refused(limits: object) -> None:
    with pytest.raises(ValueError, match="limits_s must be positive"):
        pool_exceedances(FAST, [CHAT], 1, 0.1, "random", [("chat", "ttft")], limits)  # type: ignore[arg-type]


@given(load=st.floats(0.02, 1.2), count=st.integers(1, 4), slow=st.booleans(), p90=st.booleans())
def test_an_excess_is_positive_where_the_prediction_is_beyond_the_target(
    load: float, count: int, slow: bool, p90: bool
) -> None:
    replica, confidence = SLOW if slow else FAST, "p90" if p90 else "nominal"
    ratios = slo_ratios([replica], [CHAT], [1.0], [count], [load], "random", confidence=confidence)[0]
    found = slo_excesses([replica], [CHAT], [1.0], [count], [load], "random", confidence=confidence)[0]
    clear = np.abs(ratios - 1.0) > 1e-3
    assert ((found > 0.0) == (ratios > 1.0))[clear].all()
    assert (found >= -allowances(CHAT) - 1e-12).all()


@given(share=st.floats(0.02, 0.98), load=st.floats(0.1, 0.9))
def test_a_mixture_holds_a_target_where_excesses_add_up_to_nothing(share: float, load: float) -> None:
    fast = pool(FAST, [CHAT.stream(load)], 1)["chat"] if load < 0.95 else None
    slow = pool(SLOW, [CHAT.stream(load / 3.0)], 1)["chat"]
    assert fast is not None
    parts = [(share, fast), (1.0 - share, slow)]
    each = [
        slo_excesses([replica], [CHAT], [1.0], [1], [part], "random")[0]
        for replica, part in ((FAST, load), (SLOW, load / 3.0))
    ]
    together = share * each[0] + (1.0 - share) * each[1]
    for slo, excess in zip(SLOS, together.tolist(), strict=True):
        value = mixture_of(parts, slo, "nominal")
        assert value is not None
        holds = mixture_holds(parts, slo, "nominal")
        assert holds == (value <= slo.target_s)
        if abs(excess) > 1e-6:
            assert holds == (excess < 0.0)


def test_the_statistic_of_one_path_is_that_of_the_path_and_of_two_lies_between() -> None:
    fast, slow = pool(FAST, [CHAT.stream(0.5)], 1)["chat"], pool(SLOW, [CHAT.stream(0.2)], 1)["chat"]
    for slo in SLOS:
        alone = [item.metric(slo.metric) for item in (fast, slow)]
        low, high = sorted(item.mean if slo.p is None else item.quantile(slo.p) for item in alone)
        value = mixture_of([(0.6, fast), (0.4, slow)], slo, "nominal")
        assert value is not None
        assert low < value < high
        one = mixture_of([(1.0, fast)], slo, "nominal")
        assert one == pytest.approx(alone[0].mean if slo.p is None else alone[0].quantile(slo.p), rel=1e-4)
        assert mixture_of([(0.5, fast), (0.5, None)], slo, "nominal") is None
        assert not mixture_holds([(0.5, fast), (0.5, None)], slo, "nominal")
