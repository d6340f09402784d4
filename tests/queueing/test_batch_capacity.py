"""How many requests of a batch replicas finish by a deadline: against the batch solved for each count alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from qmodel.queueing import Replica, StepLaw, closed_batch
from qmodel.queueing.populations.batch_capacity import BatchCapacity, batch_statistic, least_work_s
from qmodel.types import Law, Lengths, Slo
from qmodel.workload import length_law

STEP = StepLaw.linear(alpha_s=0.012, beta_s=2e-4, gamma_s=3e-8, delta_s=6e-5)
REPLICA = Replica(step=STEP, max_num_seqs=16, kv_tokens=20_000)
LENGTHS = Lengths.independent(length_law({"mean": 300, "cv": 0.6}), length_law({"mean": 250, "cv": 0.8}))


def capacity(deadline_s: float, p: float = 0.95, others: tuple[Slo, ...] = ()) -> BatchCapacity:
    return BatchCapacity(replica=REPLICA, lengths=LENGTHS, deadline_s=deadline_s, p=p, others=others)


@pytest.mark.parametrize("replicas", [1, 2, 5])
@pytest.mark.parametrize("waves", [1, 3, 7])
def test_equal_requests_are_done_in_waves(replicas: int, waves: int) -> None:
    one = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0), max_num_seqs=8)
    lengths = Lengths.independent(Law.constant(10), Law.constant(200))
    known = BatchCapacity(replica=one, lengths=lengths, deadline_s=2.0 * waves + 0.1, p=0.95)
    assert known.most_requests(replicas, 10_000) == (8 * waves * replicas, 8 * waves * replicas + 1)
    assert known.least_replicas(8 * waves * replicas, 100) == replicas
    assert known.least_replicas(8 * waves * replicas + 1, 100) == replicas + 1


@pytest.mark.parametrize(("requests", "replicas"), [(37, 5), (40, 4), (3, 2), (1, 1)])
def test_replicas_finish_together_as_surely_as_each_does(requests: int, replicas: int) -> None:
    whole = closed_batch(REPLICA, requests, LENGTHS, replicas)
    for level in (0.6, 0.9, 0.97):
        deadline_s = whole.makespan_quantile_s(level)
        least, more = divmod(requests, replicas)
        alone = [closed_batch(REPLICA, size, LENGTHS).p_done_by(deadline_s) for size in (least + 1, least or 1)]
        assert alone[0] ** more * alone[1] ** (replicas - more) == pytest.approx(level, abs=0.01)


@pytest.mark.parametrize("deadline_s", [20.0, 45.0])
@pytest.mark.parametrize("p", [0.8, 0.95])
def test_the_least_count_is_that_of_a_search_through_all_of_them(deadline_s: float, p: float) -> None:
    found = capacity(deadline_s, p).least_replicas(90, 24)
    whole = [closed_batch(REPLICA, 90, LENGTHS, count).makespan_quantile_s(p) <= deadline_s for count in range(1, 25)]
    assert found == (whole.index(True) + 1 if True in whole else 0)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_the_largest_batch_is_done_in_time_and_one_request_more_is_not(replicas: int) -> None:
    known = capacity(25.0)
    low, high = known.most_requests(replicas, 100_000)
    assert high == low + 1 and low > 0
    assert closed_batch(REPLICA, low, LENGTHS, replicas).p_done_by(25.0) >= 0.95 - 2e-3
    assert closed_batch(REPLICA, high, LENGTHS, replicas).p_done_by(25.0) < 0.95 + 2e-3
    assert known.most_requests(replicas, low - 5) == (low - 5, low - 4)


def test_more_replicas_finish_more_but_less_than_in_proportion() -> None:
    known = capacity(25.0)
    most = [known.most_requests(count, 100_000)[0] for count in (1, 2, 4, 8)]
    assert all(less < more <= 2 * less for less, more in pairwise(most))


def test_a_long_deadline_takes_one_replica_and_an_impossible_one_none() -> None:
    assert capacity(1e7).least_replicas(500, 1000) == 1
    assert capacity(0.05).least_replicas(500, 1000) == 0
    assert not capacity(0.05).possible(500)


def test_a_request_longer_than_the_memory_is_never_done() -> None:
    small = Replica(step=STEP, max_num_seqs=16, kv_tokens=900)
    known = BatchCapacity(replica=small, lengths=LENGTHS, deadline_s=1e6, p=0.95)
    assert not known.possible(500) and known.least_replicas(500, 1000) == 0


def test_targets_of_the_requests_take_replicas_too() -> None:
    first = Slo(metric="ttft", p=0.9, target_s=4.0)
    alone, both = capacity(60.0).least_replicas(120, 200), capacity(60.0, others=(first,)).least_replicas(120, 200)
    assert both > alone
    assert batch_statistic(closed_batch(REPLICA, 120, LENGTHS, both), first) <= 4.0


def test_the_least_work_is_no_more_than_what_a_batch_takes() -> None:
    for p in (0.5, 0.9, 0.999):
        for requests in (1, 20, 400):
            work_s = least_work_s(REPLICA, LENGTHS, requests, p)
            assert work_s <= closed_batch(REPLICA, requests, LENGTHS).makespan_quantile_s(p) * (1.0 + 1e-6)
    full = least_work_s(REPLICA, LENGTHS, 10_000, 0.9)
    assert full == pytest.approx(10_000 * (249 * (0.012 / 16 + 2e-4) + 0.018), rel=0.1)


def test_metrics_that_a_batch_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match=r"metric must be makespan, completion or ttft for a batch \(got 'tpot'\)"):
        batch_statistic(closed_batch(REPLICA, 2, LENGTHS), Slo(metric="tpot", p=None, target_s=1.0))


def test_statistics_are_those_of_the_batch() -> None:
    found = closed_batch(REPLICA, 50, LENGTHS, 2)
    assert batch_statistic(found, Slo(metric="makespan", p=None, target_s=1.0)) == found.makespan_s
    assert batch_statistic(found, Slo(metric="completion", p=0.9, target_s=1.0)) == found.completion_quantile_s(0.9)
    assert batch_statistic(found, Slo(metric="ttft", p=None, target_s=1.0)) == pytest.approx(
        float(np.mean(found.first_token_s))
    )
