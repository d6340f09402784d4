from __future__ import annotations

import numpy as np
import pytest

from qmodel.queueing import Moments, mgc, shortest_first
from qmodel.types import Law
from tests.queueing.priority_cells import atoms, size_cells

JOBS = Law.from_atoms(np.array([0.5, 1.0, 4.0]), np.array([0.6, 0.3, 0.1]))


def test_one_server_gives_phipps_waits() -> None:
    queue = shortest_first([0.8], [JOBS], 1)
    residual = 0.8 * JOBS.moments[1] / 2.0
    load = 0.8 * np.cumsum(JOBS.weights * JOBS.values)
    above = np.concatenate([[0.0], load[:-1]])
    assert queue.size_s.tolist() == JOBS.values.tolist()
    assert queue.size_wait_s.tolist() == pytest.approx((residual / ((1 - above) * (1 - load))).tolist(), rel=1e-9)


def test_one_size_is_the_queue_in_order_of_arrival() -> None:
    queue = shortest_first([6.5], [Law.constant(1.0)], 8)
    assert queue.mean_wait_s[0] == pytest.approx(float(mgc(6.5, Moments(mean_s=1.0, scv=0.0), 8).mean_wait_s), rel=1e-2)


@pytest.mark.parametrize("servers", [1, 4, 32])
def test_longer_jobs_wait_longer_and_the_mean_wait_falls(servers: int) -> None:
    law = atoms("lognormal", 1.5)
    queue = shortest_first([0.85 * servers], [law], servers)
    assert np.all(np.diff(queue.size_wait_s) > 0.0)
    first, second, third = law.moments
    plain = mgc(0.85 * servers, Moments(mean_s=first, scv=second / first**2 - 1.0, third=third), servers)
    assert queue.mean_wait_s[0] < 0.7 * float(plain.mean_wait_s)
    assert queue.wait_s_at(20.0) > float(plain.mean_wait_s)


def test_slowdown_is_worst_for_the_shortest_jobs_of_a_light_load_and_the_classes_average_their_sizes() -> None:
    short, long = Law.constant(0.5), Law.constant(4.0)
    queue = shortest_first([4.0, 0.3], [short, long], 4)
    assert queue.mean_wait_s.tolist() == pytest.approx(queue.size_wait_s.tolist(), rel=1e-12)
    assert queue.slowdown.tolist() == pytest.approx(queue.size_slowdown.tolist(), rel=1e-12)
    assert queue.slowdown[0] == pytest.approx(1.0 + queue.mean_wait_s[0] / 0.5, rel=1e-12)


def test_more_slices_change_no_mean() -> None:
    law = atoms("exponential", 1.0)
    fine = shortest_first([13.0], [law], 16)
    waits = fine.size_wait_s @ fine.size_share
    assert float(fine.mean_wait_s[0]) == pytest.approx(waits, rel=1e-9)
    assert fine.size_s.size > 100


def test_under_overload_the_long_jobs_never_start() -> None:
    queue = shortest_first([4.4, 1.0], [JOBS, Law.constant(3.0)], 4)
    starts = np.isfinite(queue.size_wait_s)
    assert starts.tolist() == (np.cumsum(queue.size_share * queue.size_s) * 5.4 < 4.0).tolist()
    assert queue.largest_stable_s == queue.size_s[starts][-1]
    assert np.isinf(queue.mean_wait_s).all()
    assert queue.overload is not None and "never start" in queue.overload.reason
    # nine in ten jobs of the first class are at most 1 s long and start
    assert np.isfinite(queue.wait_quantile_s(0.8)[0]) and np.isinf(queue.wait_quantile_s(0.95)[0])


def test_percentiles_average_to_the_mean() -> None:
    queue = shortest_first([3.4], [JOBS], 4)
    levels = (np.arange(400) + 0.5) / 400
    assert np.mean([queue.wait_quantile_s(p)[0] for p in levels]) == pytest.approx(queue.mean_wait_s[0], rel=0.02)


@pytest.mark.parametrize(
    ("rates", "services", "servers", "message"),
    [
        ([], [], 2, "one entry per class"),
        ([1.0], [JOBS, JOBS], 2, "one entry per class"),
        ([0.0], [JOBS], 2, "positive in sum"),
        ([float("inf")], [JOBS], 2, "rates_rps must be finite"),
        ([1.0], [JOBS], 0.5, "servers must be from 1 to 1,000,000"),
        ([1.0], [Moments(mean_s=1.0, scv=1.0)], 2, "moments do not tell sizes apart"),
        ([1.0], [Law.from_atoms(np.array([0.0, 1.0]), np.ones(2))], 2, "sizes above 0 s only"),
    ],
)
def test_bad_arguments_are_named(rates, services, servers, message) -> None:
    with pytest.raises(ValueError, match=message):
        shortest_first(rates, services, servers)


@pytest.mark.parametrize("which", ["development", "set_aside"])
def test_simulated_queues_lie_within_the_band(which: str) -> None:
    cells = size_cells()
    cells = cells[(cells["set"] == which) & (cells["servers"] > 1)]
    whole = cells.groupby("cell")["overall_error"].first().abs()
    assert len(whole) >= 8
    assert (whole <= 0.20).mean() >= 0.9
    assert whole.mean() <= 0.12
    assert cells[cells["to_share"] <= 0.99]["error"].abs().mean() <= 0.15
