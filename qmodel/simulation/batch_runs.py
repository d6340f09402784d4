"""A pool that works off a batch, simulated again and again with other requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qmodel.evaluation import PoolCase
from qmodel.simulation.fleet_engine import simulate_pool
from qmodel.simulation.policies import EnginePolicy
from qmodel.simulation.pool_runs import COURSE_POINTS, MeasuredRun
from qmodel.simulation.request_tables import draw_requests
from qmodel.simulation.statistics import Estimate, Sample, joined, mean_estimate, quantile_estimate
from qmodel.types import RequestClass

__all__ = ["draws_of", "estimate_of_batches", "run_batches"]

_DRAWS, _FEWEST_DRAWS = 120, 8
_MOST_REQUESTS = 240_000  # of all draws in one pool


def draws_of(item: RequestClass, requests: int | None, times: float = 1.0) -> int:
    """How often a batch is drawn: 120 times unless that is more than 240,000 requests, at least 8 times.

    Args:
        item: the class with the requests of one pool.
        requests: asked for in all draws; None: as many as decide a 95th percentile.
        times: how many times as many.
    """
    assert item.batch is not None
    size = item.batch.requests
    wanted = requests / size if requests is not None else min(_DRAWS, _MOST_REQUESTS / size)
    return max(round(wanted * times), _FEWEST_DRAWS)


def run_batches(
    item: RequestClass, case: PoolCase, *, draws: int, seed: Sequence[int], policy: EnginePolicy
) -> tuple[MeasuredRun, ...]:
    """Draw a batch and work it off, several times; requests are dealt to the replicas in turn.

    Args:
        item: the class with the requests of the pool.
        case: the pool, at the confidence in force.
        draws: how often.
        seed: of all draws.
        policy: scheduling rules of the engines.
    """
    assert item.batch is not None
    runs = []
    for number in range(draws):
        rng = np.random.default_rng([*seed, number])
        table = draw_requests([item], rng=rng, count=item.batch.requests)
        table = replace(table, arrival_s=np.zeros(len(table)))
        course = None if number else np.linspace(0.0, item.batch.deadline_s, COURSE_POINTS)
        run = simulate_pool(
            table, case.replica, replicas=case.serving, router="round_robin", policy=policy, rng=rng, grid_s=course
        )
        end_s = float(np.nanmax(run.log.completion_s))
        measured = np.ones(len(table), dtype=bool)
        runs.append(MeasuredRun(run=run, measured=measured, stable=bool(run.log.done.all()), warm_s=0.0, end_s=end_s))
    return tuple(runs)


def estimate_of_batches(parts: Sequence[tuple[float, Sequence[MeasuredRun]]], metric: str, p: float | None) -> Estimate:
    """A statistic of batches, or of their requests, in one pool or in several that share them.

    Draws are independent of each other, the requests of one are not: each draw is one part of the sample.

    Args:
        parts: share of the batch and draws of every pool.
        metric: ``makespan``, or what a request has.
        p: in (0, 1); None: the mean.
    """
    if metric == "makespan":
        last_s = np.max([[run.end_s for run in runs] for _, runs in parts], axis=0)
        whole = [(1.0, Sample(values=last_s, batch=np.arange(last_s.size)))]
        return mean_estimate(whole) if p is None else quantile_estimate(whole, p)
    samples = []
    for share, runs in parts:
        drawn = []
        for run in runs:
            values = run.run.log.metric(metric)
            drawn.append(Sample(values=values, batch=np.zeros(values.size, dtype=np.int64)))
        samples.append((share, joined(drawn)))
    return mean_estimate(samples) if p is None else quantile_estimate(samples, p)
