"""Time per output token, answer start and completion of one class, given its lengths and the batch it runs in."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qmodel.queueing.chain import Occupancy
from qmodel.queueing.percentiles import KernelLaw, wait_nodes
from qmodel.queueing.work import Work
from qmodel.types import FloatArray, Replica

__all__ = ["Pace", "left_behind_s", "pace", "time_per_token", "time_to_token"]

_MOST_FEEDBACK = 0.8  # above it the token budget, not the arrivals, sets how long steps get
_BOUND = 2.3  # spreads of the pace between its mean and its slowest: a 99th percentile does not pass it
_NOTICEABLE = 1e-4  # probability of waiting from which completion percentiles carry it as nodes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pace:
    """How fast tokens come, C cases.

    Attributes:
        token_s: mean time per token while decoding, shape (C,).
        busy: share of it that is prefill of others, shape (C,).
        feedback: prefill that one second of prefill draws in, s, shape (C,).
        variance: of the pace without prefill, over states of the batch, shape (C,).
        memory_s: time over which the batch forgets, shape (C,).
        step_s: mean step, shape (C,).
        met_step_s: mean of the step that an arrival falls into, shape (C,).
        shortest_s: step of a request alone, shape (C,).
        longest_s: step with a full budget, shape (C,).
        second, third: arrival rate of one replica times E[(delta P)^k] for k = 2, 3, shapes (C,).
    """

    token_s: FloatArray
    busy: FloatArray
    feedback: FloatArray
    variance: FloatArray
    memory_s: FloatArray
    step_s: FloatArray
    met_step_s: FloatArray
    shortest_s: FloatArray
    longest_s: FloatArray
    second: FloatArray
    third: FloatArray


def pace(
    replica: Replica, work: Work, seen: Occupancy, rate_rps: FloatArray, evenness: FloatArray | float = 0.0
) -> Pace:
    """Token times from the chain.

    Args:
        replica: engine instance.
        work: requests of all classes.
        seen: occupancy, C cases.
        rate_rps: arrivals at one replica, shape (C,).
        evenness: how far the router keeps requests from a replica in a long step, 0 to 1, shape (C,).
    """
    p1, p2, p3 = work.lengths.prompt.moments
    n1 = work.lengths.output.mean
    delta = replica.step.delta_s
    busy = np.minimum(rate_rps * delta * p1, 0.95)
    if n1 > 1.0:
        token = (seen.residence_s - delta * p1 - work.chunks * seen.tau_mean_s) / (n1 - 1.0)
    else:
        token = seen.tau_mean_s / (1.0 - busy)
    step = seen.tau_mean_s / (1.0 - busy)
    spread = seen.tau_mean_s**2 + seen.tau_variance + (2.0 * seen.tau_mean_s * busy + rate_rps * delta**2 * p2) * step
    top = replica.step.tau_s(
        seen.batch[:, -1], work.context
    )  # no batch is slower: near saturation the pace stands still
    longest = seen.tau_mean_s + delta * replica.max_batched_tokens
    return Pace(
        token_s=token,
        busy=busy,
        feedback=np.minimum(busy * (1.0 - np.asarray(evenness)), _MOST_FEEDBACK),
        variance=np.minimum(seen.tau_variance, ((top - seen.tau_mean_s) / _BOUND) ** 2),
        memory_s=seen.memory_s,
        step_s=step,
        shortest_s=np.full_like(longest, float(replica.step.tau_s(1.0, 0.0))),
        longest_s=longest,
        met_step_s=np.minimum(spread / (1.0 - busy**2) / step, longest),
        second=rate_rps * delta**2 * p2,
        third=rate_rps * delta**3 * p3,
    )


def left_behind_s(run: Pace, prompt_s: float) -> FloatArray:
    """Prefill waiting when a first token comes beyond that of any step, s, shape (C,).

    A request's own prefill makes its step long, so that more prompts than usual arrive in it; they are prefilled
    while it decodes.

    Args:
        run: the pace.
        prompt_s: prefill time of the request's own prompt, s.
    """
    return np.asarray(run.feedback * (prompt_s + run.busy * np.maximum(run.met_step_s - run.step_s, 0.0)))


def time_per_token(run: Pace, bands: FloatArray, left_s: FloatArray) -> KernelLaw | None:
    """Law of (completion - ttft) / (N - 1) over requests with N >= 2; None where there are none.

    Args:
        run: the pace.
        bands: weights, means and variances of N, shape (3, k).
        left_s: seconds of prefill found waiting at the first token beyond the usual, shape (C,).
    """
    kept = bands[1] > 1.0
    if not kept.any():
        return None
    weight, steps = bands[0][kept] / bands[0][kept].sum(), np.maximum(bands[1][kept] - 1.0, 0.5)
    centre, variance, third = _given_steps(run, steps, left_s)
    law = _kernels(np.broadcast_to(weight, centre.shape), centre / steps, variance / steps**2, third / steps**3)
    return replace(law, bounds_s=(run.shortest_s, run.longest_s))


def time_to_token(
    run: Pace,
    bands: FloatArray,
    left_s: FloatArray,
    first: tuple[FloatArray, FloatArray, FloatArray],
    wait: Occupancy,
) -> KernelLaw:
    """Law of the time to the token that comes ``bands`` steps after the first.

    Args:
        run: the pace.
        bands: weights, means and variances of the number of steps after the first token, shape (3, k).
        left_s: as in :func:`time_per_token`.
        first: mean, variance and third central moment of the prefill delay without the wait, shapes (C,).
        wait: its p_wait, wait_mean_s and wait_scv.
    """
    weight, steps, within = bands
    centre, variance, third = _given_steps(run, np.maximum(steps, 0.0), left_s)
    none = steps <= 0.0
    centre, variance, third = (np.where(none, 0.0, item) for item in (centre, variance, third))
    first_mean, first_variance, first_third = first
    centre = centre + first_mean[:, None]
    variance = variance + first_variance[:, None] + run.token_s[:, None] ** 2 * within
    third = np.maximum(third + first_third[:, None], 0.0)
    mass = np.broadcast_to(weight, centre.shape)
    waits = np.where(wait.p_wait > _NOTICEABLE, wait.p_wait, 0.0)
    centre = centre + np.where(waits > 0.0, 0.0, wait.p_wait * wait.wait_mean_s)[:, None]
    if not waits.any():
        return _kernels(mass, centre, variance, third)
    share, delay, within_wait = wait_nodes(wait.wait_mean_s, wait.wait_scv)
    late = (centre.shape[0], -1)
    return _kernels(
        np.concatenate(
            [mass * (1.0 - waits)[:, None], (waits[:, None, None] * share[:, None] * mass[:, None, :]).reshape(late)],
            axis=1,
        ),
        np.concatenate([centre, (centre[:, None, :] + delay[:, :, None]).reshape(late)], axis=1),
        np.concatenate([variance, (variance[:, None, :] + within_wait[:, :, None]).reshape(late)], axis=1),
        np.tile(third, share.size + 1),
        plain=centre.shape[1],
    )


def _given_steps(run: Pace, steps: FloatArray, left_s: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, variance and third central moment of the time of so many decode steps, shapes (C, k).

    The pace without prefill drifts with the batch: over a time y memories long its average keeps a share
    2 (y - 1 + e^-y) / y^2 of its variance. Prompts of others prolong the steps, and more prompts come meanwhile: the
    time is a busy period that starts with the decode work, whose cumulants are standard.
    """
    free = 1.0 - run.feedback[:, None]
    elapsed = run.token_s[:, None] * steps
    y = np.maximum(elapsed / np.maximum(run.memory_s, 1e-300)[:, None], 1e-6)
    kept = np.where(y < 1e-3, 1.0 - y / 3.0, 2.0 * (y + np.expm1(-y)) / y**2)
    drift = run.variance[:, None] * kept * (steps / free) ** 2
    window = elapsed + run.step_s[:, None]
    second, third = run.second[:, None], run.third[:, None]
    ceiling = run.longest_s[:, None] * steps  # no step is longer than one with a full budget
    mean = np.minimum(elapsed + left_s[:, None] / free, ceiling)
    variance = drift + second * window / free**2
    skewed = 2.0 * drift**2 / np.maximum(elapsed, 1e-300) + window * (third / free**3 + 3.0 * second**2 / free**4)
    return mean, variance, skewed


def _kernels(
    weight: FloatArray, centre: FloatArray, variance: FloatArray, third: FloatArray, plain: int | None = None
) -> KernelLaw:
    spread = np.sqrt(np.maximum(variance, (1e-6 * centre) ** 2 + 1e-18))
    skew = np.clip(third / spread**3, 1e-3, 4.0)
    return KernelLaw(weight=weight, centre_s=centre, spread_s=spread, skew=skew, plain=plain)
