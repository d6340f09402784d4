"""Many pools in one call: a cheap lower bound of the mean time per token, and times per token asked alone."""

from __future__ import annotations

import numpy as np
import pytest

from qmodel.queueing import least_tpot, pool_metrics, utilisation
from qmodel.queueing.replica.pool_cases import Wanted
from qmodel.types import Law, Lengths, Replica, Router, StepLaw, Stream
from qmodel.workload import lognormal_law


@pytest.mark.parametrize("router", ["random", "round_robin", "jsq"])
@pytest.mark.parametrize("outputs", [3, 20, 300])
@pytest.mark.parametrize("budget", [512, 8192])
def test_time_per_token_without_prefill_left_behind_is_a_lower_bound(router: Router, outputs: int, budget: int) -> None:
    replica = Replica(
        step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, gamma_s=3e-8, delta_s=4e-5),
        max_num_seqs=64,
        max_batched_tokens=budget,
    )
    lengths = Lengths.independent(
        lognormal_law(900.0, 1.2, maximum=8000), lognormal_law(float(outputs), 0.8, maximum=10 * outputs)
    )
    stream = Stream(name="a", rate_rps=1.0, lengths=lengths)
    counts = np.array([1, 4, 16] * 3)
    loads = np.repeat([0.2, 0.7, 0.97], 3) / utilisation(replica, [stream], counts, np.ones(9))
    least = least_tpot(replica, [stream], counts, loads, router, ["a"])
    mean = pool_metrics(replica, [stream], counts, loads, router, [("a", "tpot", None)])
    assert (least > 0.0).all() and (least <= mean * (1.0 + 1e-12)).all()
    assert np.isinf(least_tpot(replica, [stream], counts, 9.0 * loads, router, ["a"])).all()


def test_one_replica_has_every_arrival_whatever_the_router() -> None:
    replica = Replica(
        step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=4e-5), max_num_seqs=64, max_batched_tokens=512
    )
    stream = Stream(name="a", rate_rps=8.0, lengths=Lengths.independent(Law.constant(1500), Law.constant(20)))
    wanted: list[Wanted] = [("a", metric, p) for metric in ("ttft", "tpot", "completion") for p in (None, 0.95)]
    alone, queued = (pool_metrics(replica, [stream], 1, 1.0, router, wanted) for router in ("random", "jsq"))
    np.testing.assert_allclose(queued, alone, rtol=1e-9)


@pytest.mark.parametrize("router", ["random", "round_robin", "jsq"])
@pytest.mark.parametrize("budget", [512, 2048, 100_000])
@pytest.mark.parametrize("priority", [0, 1])
def test_means_asked_alone_are_those_asked_with_percentiles(router: Router, budget: int, priority: int) -> None:
    replica = Replica(
        step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=4e-5), max_num_seqs=64, max_batched_tokens=budget
    )
    chat = Lengths.independent(lognormal_law(700.0, 0.8, maximum=4000), Law.constant(200))
    code = Lengths.independent(Law.constant(1500), lognormal_law(60.0, 0.9, maximum=400))
    streams = [
        Stream(name="chat", rate_rps=2.0, lengths=chat),
        Stream(name="code", rate_rps=1.0, lengths=code, priority=priority),
    ]
    counts = np.array([1, 3, 8] * 3)
    loads = np.repeat([0.1, 0.7, 0.95], 3) / utilisation(replica, streams, counts, np.ones(9))
    means: list[Wanted] = [(name, metric, None) for name in ("chat", "code") for metric in ("ttft", "completion")]
    laws: list[Wanted] = [(name, "ttft", 0.9) for name in ("chat", "code")]
    alone = pool_metrics(replica, streams, counts, loads, router, means)
    together = pool_metrics(replica, streams, counts, loads, router, [*means, *laws])
    np.testing.assert_allclose(alone, together[:, :4], rtol=1e-12)


def test_times_per_token_asked_alone_are_those_asked_with_others() -> None:
    replica = Replica(
        step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=4e-5), max_num_seqs=64, max_batched_tokens=1024
    )
    stream = Stream(name="a", rate_rps=1.0, lengths=Lengths.independent(Law.constant(700), Law.constant(30)))
    loads = np.linspace(0.05, 0.99, 60) / float(utilisation(replica, [stream], 1, 1.0)[0])
    wanted: list[Wanted] = [("a", "tpot", None), ("a", "tpot", 0.9)]
    for router in ("random", "jsq"):
        alone = pool_metrics(replica, [stream], 1, loads, router, wanted)
        together = pool_metrics(replica, [stream], 1, loads, router, [*wanted, ("a", "ttft", None)])
        np.testing.assert_allclose(alone, together[:, :2], rtol=1e-9)
