"""What a request meets in a replica that gets every R-th one: little company, and a steady flow of prompts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qmodel.queueing.arrivals.peakedness import residence_weight
from qmodel.queueing.replica.chain import Occupancy
from qmodel.queueing.replica.dealing import Dealt
from qmodel.queueing.replica.token_times import Pace
from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, Replica

__all__ = ["company", "dealt_occupancy", "dealt_pace"]

_LEAST_COMPANY = 0.02
_ITERATIONS = 12
_WINDOWS = 2.0  # steps whose arrivals a request meets: those of its own, and of the one before, now being prefilled


def company(replica: Replica, work: Work, seen: Occupancy, rate_rps: FloatArray, turn: Dealt) -> FloatArray:
    """Requests that a request finds around its own arrival, over those that it would find at random, shape (C,).

    They share its steps and the one before. How long these steps are depends in turn on how many prompts share them:
    solved by iteration.

    Args:
        replica: engine instance.
        work: requests of all classes.
        seen: occupancy, C cases.
        rate_rps: mean arrivals at one replica, shape (C,).
        turn: what dealing takes away.
    """
    p1, p2, _ = work.lengths.prompt.moments
    delta, tau = replica.step.delta_s, seen.tau_mean_s
    share = np.ones_like(rate_rps)
    for _ in range(_ITERATIONS):
        rate = share * rate_rps
        busy = np.minimum(rate * delta * p1, 0.95)
        step = tau / (1.0 - busy)
        met = (tau**2 + (2.0 * tau * busy + rate * delta**2 * p2) * step) / ((1.0 - busy**2) * step)
        window = np.minimum(met, tau + delta * replica.max_batched_tokens)
        x = np.maximum(turn.decay_per_s * _WINDOWS * window, 1e-9)
        share = 0.5 * share + 0.5 * np.clip(1.0 + np.expm1(-x) / x, _LEAST_COMPANY, 1.0)
    return share


def dealt_occupancy(seen: Occupancy, smooth: Occupancy, work: Work, turn: Dealt) -> Occupancy:
    """The occupancy when arrivals are dealt.

    Waits and swings are those of the chain whose arrivals scatter less. Its mean is lower where more in service means
    longer stays, but also because a chain of whole requests with scatter z loses (1 - z)/2 of one: that is given back.

    Args:
        seen: at random arrivals.
        smooth: from the chain whose arrivals scatter less.
        work: requests of all classes.
        turn: what dealing takes away.
    """
    unit_s = seen.residence_s / work.lengths.output.mean
    lost = -turn.excess * residence_weight(turn.decay_per_s, work.lengths.output, s_per_unit=unit_s) / 2.0
    gap = np.maximum(seen.mean_batch - smooth.mean_batch, 1e-12)
    part = np.minimum(lost / gap, 1.0)

    def between(low: FloatArray, high: FloatArray) -> FloatArray:
        return np.asarray(low + part * (high - low))

    return replace(
        seen,
        mean_batch=between(smooth.mean_batch, seen.mean_batch),
        residence_s=between(smooth.residence_s, seen.residence_s),
        tau_mean_s=between(smooth.tau_mean_s, seen.tau_mean_s),
        p_wait=smooth.p_wait,
        wait_mean_s=smooth.wait_mean_s,
        wait_scv=smooth.wait_scv,
        tau_variance=np.minimum(seen.tau_variance, smooth.tau_variance),
    )


def dealt_pace(run: Pace, replica: Replica, work: Work, rate_rps: FloatArray, turn: Dealt) -> Pace:
    """The pace when prompts come as regularly as dealing makes them: their number over a stay scatters less.

    Args:
        run: the pace at random arrivals.
        replica: engine instance.
        work: requests of all classes.
        rate_rps: arrivals at one replica, shape (C,).
        turn: what dealing takes away.
    """
    mean_s = replica.step.delta_s * work.lengths.prompt.mean
    second = np.maximum(run.second + turn.excess * rate_rps * mean_s**2, 0.0)
    return replace(
        run,
        second=second,
        third=run.third * second / np.maximum(run.second, 1e-300),
        regular=np.zeros_like(second),
    )
