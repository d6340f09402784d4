"""Time per output token, answer start and completion of one class, given its lengths and the batch it runs in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from qmodel.queueing.replica.chain import Occupancy, full_budget_batch
from qmodel.queueing.replica.percentiles import KernelLaw, wait_nodes
from qmodel.queueing.replica.stacks import ReplicaStack, WorkStack
from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, Law, Replica

__all__ = [
    "LeftBehind",
    "Pace",
    "StepTimes",
    "left_behind",
    "mean_time_per_token",
    "mean_time_to_token",
    "pace",
    "step_times",
    "time_per_token",
    "time_to_token",
]

_MOST_FEEDBACK = 0.8  # above it the token budget, not the arrivals, sets how long steps get
_BOUND = 2.3  # spreads of the pace between its mean and its slowest: a 99th percentile does not pass it
_MANY = 400  # steps after which nothing is left of what the first drew in
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
        met_step_s, met_step_variance: of the step that an arrival falls into, were there no budget, shapes (C,).
        shortest_s: step of a request alone, shape (C,).
        longest_s: step with a full budget, shape (C,).
        second, third: rate of other requests at one replica times E[(delta P)^k] for k = 2, 3, shapes (C,).
        regular: part of ``second`` that goes where a router lets a request come for each that leaves, shape (C,).
        turnover_s: residence time over which such departures become regular, shape (C,).
        swelling_s: growth of the step time per sequence times the prefill share of those that come, shape (C,).
        paused_s: time that a sequence loses by evictions soon after it began, shape (C,).
    """

    token_s: FloatArray
    busy: FloatArray
    feedback: FloatArray
    variance: FloatArray
    memory_s: FloatArray
    met_step_s: FloatArray
    met_step_variance: FloatArray
    shortest_s: FloatArray
    longest_s: FloatArray
    second: FloatArray
    third: FloatArray
    regular: FloatArray
    turnover_s: FloatArray
    swelling_s: FloatArray
    paused_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeftBehind:
    """Prefill waiting when a first token comes, beyond that at the start of a usual step, C cases.

    Attributes:
        mean_s, variance: of its length, shapes (C,).
        kept: part of it that is there a step later, with what it draws in, shape (C,).
    """

    mean_s: FloatArray
    variance: FloatArray
    kept: FloatArray


def pace(
    replica: Replica | ReplicaStack,
    work: Work | WorkStack,
    seen: Occupancy,
    rate_rps: FloatArray,
    evenness: FloatArray | float = 0.0,
    spread: FloatArray | float = 1.0,
) -> Pace:
    """Token times from the chain.

    Args:
        replica: engine instance.
        work: requests of all classes.
        seen: occupancy, C cases.
        rate_rps: arrivals at one replica, shape (C,).
        evenness: how far the router keeps requests from a replica in a long step, 0 to 1, shape (C,).
        spread: variance of the number in service over the chain's, shape (C,).
    """
    p1, p2, p3 = work.lengths.prompt.moments
    delta = replica.step.delta_s
    even = np.asarray(evenness)
    busy = np.minimum(rate_rps * delta * p1, 0.95)
    feedback = busy * (1.0 - even)
    shortest_s, full_s = _extremes(replica, work)
    shortest = np.full_like(busy, shortest_s)
    # a residence is so many steps of usual length, one's own prompt, and the prefill that this prompt draws in
    token = (seen.residence_s - delta * p1 / (1.0 - feedback)) / work.steps
    # with every budget full no more sequences decode: what the chain holds beyond waits for its prefill
    token = np.maximum(np.minimum(token, np.minimum(seen.tau_mean_s, full_s) / (1.0 - busy)), shortest)
    # a router that looks at queues replaces who leaves, and a request does not see itself leave
    others = rate_rps * (1.0 - even / np.maximum(seen.mean_batch, 1.0))
    second, third = others * delta**2 * p2, others * delta**3 * p3
    met, met_variance = _met_step(token, seen.tau_variance, busy, feedback, second, third)
    longest = seen.tau_mean_s + delta * replica.max_batched_tokens
    longer = feedback * (np.minimum(met, longest) - token) / (1.0 - feedback)
    slope = _slope_s(replica, work, seen)
    token = token + _crowding_s(replica, work, seen, rate_rps, longer, slope)
    paused = seen.evictions * seen.pause_s / 2.0  # half of the pauses come at the start, whatever the output
    token = token + (seen.recompute_s + paused) / work.steps
    top = replica.step.tau_s(
        seen.batch[:, -1], work.context
    )  # no batch is slower: near saturation the pace stands still
    return Pace(
        token_s=token,
        busy=busy,
        feedback=np.minimum(feedback, _MOST_FEEDBACK),
        variance=np.minimum(seen.tau_variance * spread, ((top - seen.tau_mean_s) / _BOUND) ** 2),
        memory_s=seen.memory_s,
        shortest_s=shortest,
        longest_s=longest,
        met_step_s=met,
        met_step_variance=met_variance,
        second=second,
        third=third,
        regular=even * max(1.0 - work.lengths.output.scv, 0.0) * others * (delta * p1) ** 2,
        turnover_s=seen.residence_s * max(1.0 - work.lengths.output.scv, 1e-3) / 2.0,
        swelling_s=feedback * (1.0 - even) * slope,
        paused_s=paused + np.zeros(busy.shape),
    )


def _extremes(replica: Replica | ReplicaStack, work: Work | WorkStack) -> tuple[FloatArray | float, FloatArray | float]:
    if isinstance(work, WorkStack):
        shortest = work.each(lambda one, its, _: _extreme_steps_s(one, its)[0])
        return shortest, work.each(lambda one, its, _: _extreme_steps_s(one, its)[1])
    assert isinstance(replica, Replica)
    return _extreme_steps_s(replica, work)


@lru_cache(maxsize=512)
def _extreme_steps_s(replica: Replica, work: Work) -> tuple[float, float]:
    """Step time of a request alone, and of as many as decode while every budget is full, s."""
    full = replica.step.tau_s(full_budget_batch(replica, work), work.context)
    return float(replica.step.tau_s(1.0, 0.0)), float(full)


def _crowding_s(
    replica: Replica | ReplicaStack,
    work: Work | WorkStack,
    seen: Occupancy,
    rate_rps: FloatArray,
    longer_s: FloatArray,
    slope: FloatArray,
) -> FloatArray:
    """How much longer a token takes because requests stay ``longer_s`` longer than the chain knows, s, shape (C,).

    They share their prefill steps with prompts that came with them, more than in a usual step. The batch b = rate T(b)
    that results is larger, as far as there are slots. ``slope``: what one sequence more adds to a step, s.
    """
    batch = np.maximum(seen.mean_batch, 1.0)
    prefill = replica.step.delta_s * work.lengths.prompt.mean
    growth = np.minimum(rate_rps * (work.steps * slope + prefill), 0.9)
    more = rate_rps * np.maximum(longer_s, 0.0) / (1.0 - growth)
    room = np.maximum(replica.max_num_seqs - batch, 1e-9)
    return np.asarray(slope * -np.expm1(-more / room) * room / (1.0 - np.minimum(rate_rps * prefill, 0.95)))


def _slope_s(replica: Replica | ReplicaStack, work: Work | WorkStack, seen: Occupancy) -> FloatArray:
    """What one more sequence adds to a step at the mean batch, s, shape (C,)."""
    batch = np.maximum(seen.mean_batch, 1.0)
    more = replica.step.tau_s(1.05 * batch, work.context) - replica.step.tau_s(batch, work.context)
    return np.asarray(more / (0.05 * batch))


def _met_step(
    step: FloatArray,
    tau_variance: FloatArray,
    busy: FloatArray,
    feedback: FloatArray,
    second: FloatArray,
    third: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the step that an arrival falls into: moments of D -> tau + [prefill arriving in D]."""
    tau = step * (1.0 - busy)
    square = (tau**2 + tau_variance + (2.0 * tau * busy + second) * step) / (1.0 - busy * feedback)
    cube = tau**3 + 3.0 * tau * (tau_variance + tau * busy * step + busy * feedback * square)
    cube = (cube + 3.0 * second * (tau * step + feedback * square) + third * step) / (1.0 - busy * feedback**2)
    met = square / step
    return met, np.maximum(cube / step - met**2, 0.0)


def left_behind(run: Pace, prompt: Law, delta_s: FloatArray | float, taken: FloatArray | float = 1.0) -> LeftBehind:
    """Prefill waiting when the first token of a request with prompt law ``prompt`` comes.

    A request's own prefill makes its step long, and it shares that step with the prompts that came with it; more
    prompts than usual arrive meanwhile and are prefilled while it decodes.

    Args:
        run: the pace.
        prompt: prompts of the class.
        delta_s: prefill time of one token, s.
        taken: part of what waits beyond the usual that one step takes, 1 where no budget fills, shape (C,).
    """
    p1, p2, _ = prompt.moments
    longer = delta_s * p1 + run.feedback * np.maximum(run.met_step_s - run.token_s, 0.0)
    spread = delta_s**2 * (p2 - p1**2) + run.second * run.met_step_s + run.feedback**2 * run.met_step_variance
    collecting_s = run.token_s + longer * run.feedback / np.maximum(run.busy, 1e-300)
    return LeftBehind(
        mean_s=run.feedback * longer,
        variance=run.feedback**2 * spread + run.second * collecting_s,
        kept=1.0 - (1.0 - run.feedback) * taken,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTimes:
    """Times of given numbers of decode steps after the first token, C cases.

    Attributes:
        steps: the numbers, shape (k,).
        mean_s, variance, third: mean, variance and third central moment, shapes (C, k).
        echo: how much longer they take for a second by which the first token came later, shape (C, k).
    """

    steps: FloatArray
    mean_s: FloatArray
    variance: FloatArray
    third: FloatArray
    echo: FloatArray


def time_per_token(run: Pace, bands: FloatArray, timed: Callable[[FloatArray], StepTimes]) -> KernelLaw | None:
    """Law of (completion - ttft) / (N - 1) over requests with N >= 2; None where there are none.

    Args:
        run: the pace.
        bands: weights, means and variances of N, shape (3, k).
        timed: gives the times of numbers of steps, as :func:`step_times` does.
    """
    kept = bands[1] > 1.0
    if not kept.any():
        return None
    if not kept.all():
        bands = bands[:, kept]
    weight, steps = bands[0] / bands[0].sum(), np.maximum(bands[1] - 1.0, 0.5)
    found, square = timed(steps), steps**2
    mean_s = found.mean_s / steps
    law = _kernels(
        np.broadcast_to(weight, mean_s.shape), mean_s, found.variance / square, found.third / (square * steps)
    )
    return replace(law, bounds_s=(run.shortest_s, run.longest_s))


def time_to_token(
    run: Pace,
    bands: FloatArray,
    timed: Callable[[FloatArray], StepTimes],
    first: tuple[FloatArray, FloatArray, FloatArray],
    wait: Occupancy,
) -> KernelLaw:
    """Law of the time to the token that comes ``bands`` steps after the first.

    Args:
        run: the pace.
        bands: weights, means and variances of the number of steps after the first token, shape (3, k).
        timed: as in :func:`time_per_token`.
        first: mean, variance and third central moment of the prefill delay without the wait, shapes (C,).
        wait: its p_wait, wait_mean_s and wait_scv.
    """
    weight, steps, within = bands
    found = timed(np.maximum(steps, 0.0))
    less = _less_spread(run, found)
    centre, variance, third, echo = found.mean_s, less * found.variance, less * np.sqrt(less) * found.third, found.echo
    none = steps <= 0.0
    if none.any():
        centre, variance, third, echo = (np.where(none, 0.0, item) for item in (centre, variance, third, echo))
    first_mean, first_variance, first_third = first
    centre = centre + first_mean[:, None]
    apart = variance + first_variance[:, None]
    # whoever waits long for the first token leaves more prompts behind: what arrived meanwhile
    both = np.minimum(echo * first_variance[:, None], np.sqrt(variance * first_variance[:, None]))
    third = np.maximum(third + first_third[:, None], 0.0) * (1.0 + 2.0 * both / np.maximum(apart, 1e-300)) ** 1.5
    variance = apart + 2.0 * both + run.token_s[:, None] ** 2 * within
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


def mean_time_per_token(run: Pace, bands: FloatArray, left: LeftBehind) -> FloatArray:
    """The mean of the law that :func:`time_per_token` gives, s, shape (C,); 0 where there is none."""
    kept = bands[1] > 1.0
    weight, steps = bands[0][kept], np.maximum(bands[1][kept] - 1.0, 0.5)
    mean = _mean_given_steps(run, steps, left)[0]
    return np.asarray(mean @ (weight / steps) / max(float(weight.sum()), 1e-300))


def mean_time_to_token(
    run: Pace, bands: FloatArray, left: LeftBehind, first_mean_s: FloatArray, wait: Occupancy
) -> FloatArray:
    """The mean of the law that :func:`time_to_token` gives, s, shape (C,).

    Args:
        run, bands, left, wait: as there.
        first_mean_s: mean of the prefill delay without the wait, shape (C,).
    """
    weight, steps, _ = bands
    mean = _mean_given_steps(run, np.maximum(steps, 0.0), left)[0]
    return np.asarray(np.where(steps <= 0.0, 0.0, mean) @ weight + first_mean_s + wait.p_wait * wait.wait_mean_s)


def step_times(run: Pace, steps: FloatArray, left: LeftBehind) -> StepTimes:
    """Times of numbers of decode steps.

    The pace without prefill drifts with the batch: over a time y memories long its average keeps a share
    2 (y - 1 + e^-y) / y^2 of its variance. Prompts of others prolong the steps, and more prompts come meanwhile: the
    time is a busy period that starts with the decode work, whose cumulants are standard. So does what was left behind
    at the first token, as far as the steps last: each takes a part of it and draws in a share ``feedback`` of that.

    Args:
        run: the pace.
        steps: the numbers, shape (k,).
        left: prefill found waiting at the first token beyond the usual.
    """
    feedback = run.feedback[:, None]
    free = 1.0 - feedback
    elapsed = run.token_s[:, None] * steps
    remembered = _kept(elapsed, run.memory_s[:, None])
    drift = run.variance[:, None] * remembered * (steps / free) ** 2
    swelling = run.swelling_s[:, None] * remembered * steps * elapsed / free**2
    second = run.second[:, None] - run.regular[:, None] * (1.0 - _kept(elapsed, run.turnover_s[:, None]))
    mean, drawn, extra, held, fits = _mean_given_steps(run, steps, left)
    early = left.variance[:, None] * (drawn * held / np.maximum(extra, 1e-300)) ** 2
    variance = drift + swelling + second * elapsed / free**2 + early
    skewed = 2.0 * drift**2 / np.maximum(elapsed, 1e-300) + 2.0 * early**2 / np.maximum(held + np.sqrt(early), 1e-300)
    skewed += elapsed * (run.third[:, None] / free**3 + 3.0 * second**2 / free**4)
    return StepTimes(steps=steps, mean_s=mean, variance=variance, third=skewed, echo=feedback * drawn * fits)


def _less_spread(run: Pace, found: StepTimes) -> FloatArray:
    """Part of the variance that is left where steps between the shortest and the longest cannot vary so much.

    A sum of values in [a, b] with mean m varies by (b - m)(m - a) at most; half of that where the other says as much.

    Reference: Bhatia and Davis, American Mathematical Monthly 107 (2000); the combination is own construction.
    """
    decode = found.mean_s - run.paused_s[:, None]
    most = (run.longest_s[:, None] * found.steps - decode) * (decode - run.shortest_s[:, None] * found.steps)
    most = np.maximum(most, (0.01 * decode) ** 2 + 1e-300)
    return np.asarray(most / (most + found.variance))


def _mean_given_steps(
    run: Pace, steps: FloatArray, left: LeftBehind
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Mean of :func:`step_times`; prefill that one second left behind draws in, all, what fits, what of more."""
    feedback = run.feedback[:, None]
    ceiling = np.maximum((run.longest_s - run.token_s)[:, None] * steps, 1e-12)  # no step is longer than a full budget
    kept = np.maximum(left.kept[:, None], 1e-12)
    drawn = -np.expm1(np.log(kept) * np.minimum(steps, _MANY)) / (1.0 - feedback)
    extra = left.mean_s[:, None] * drawn
    full = np.exp(-extra / ceiling)
    held = ceiling * (1.0 - full)
    return run.token_s[:, None] * steps + held + run.paused_s[:, None], drawn, extra, held, full


def _kept(elapsed: FloatArray, memory_s: FloatArray) -> FloatArray:
    """Share of its variance that the average over ``elapsed`` of something with an exponential memory keeps."""
    y = np.maximum(elapsed / np.maximum(memory_s, 1e-300), 1e-6)
    return np.where(y < 1e-3, 1.0 - y / 3.0, 2.0 * (y + np.expm1(-y)) / y**2)


def _kernels(
    weight: FloatArray, centre: FloatArray, variance: FloatArray, third: FloatArray, plain: int | None = None
) -> KernelLaw:
    spread = np.sqrt(np.maximum(variance, (1e-6 * centre) ** 2 + 1e-18))
    skew = np.minimum(np.maximum(third / (spread * spread * spread), 1e-3), 4.0)
    return KernelLaw(weight=weight, centre_s=centre, spread_s=spread, skew=skew, plain=plain)
