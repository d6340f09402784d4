"""A burst as the replica models use it: a few phases of the rate, and clumps too short to follow.

A component that lasts long enough for the number in service to follow becomes two phases with a high and a low rate;
what is shorter, or smoother than Poisson, only changes how much arrivals scatter. See docs/theory/bursty-replica.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from qmodel.queueing.arrivals.peakedness import residence_weight
from qmodel.queueing.replica.dealing import Dealt
from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, Law, RequestClass, Stream
from qmodel.types.arrivals import Burst

__all__ = ["BurstComponent", "Phases", "burst_components", "rate_phases"]

_SHORT_LIVED = 40.0  # residences per memory from which a component is noise; both descriptions agree there
_MOST_FOLLOWED = 2  # components with phases of their own
_LEAST_NOISE = 0.1  # scatter of arrivals that are almost regular
_LEAST_CLUMP = -0.3  # the law of clumps, negative binomial, is extended to smooth arrivals no further
_LEAST_FACTOR = 1e-9
_CLUMP_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstComponent:
    """One component of the pooled arrivals of several classes.

    Attributes:
        excess: added asymptotic index of dispersion of the work that arrives.
        decay_per_s: how fast it is forgotten, 1/s; infinite: batches.
        skew: skewness of the rate, None where it is not known.
        felt_by: by class, how far its own rate departs from its mean where that of the work departs by 1.
        prompt_swing: how far the rate of all prompt tokens departs then.
    """

    excess: float
    decay_per_s: float
    skew: float | None
    felt_by: tuple[float, ...]
    prompt_swing: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Phases:
    """Arrivals at one chain, C cases x m phases; one phase where nothing lasts.

    Attributes:
        factor: work that arrives in each phase over its mean, shape (C, m).
        prompt_factor: prompt tokens that arrive in each phase over their mean, shape (C, m).
        share: of time, shape (C, m).
        switching: generator of the phases, 1/s, shape (C, m, m).
        levels: how many levels each followed component has; their product is m, the last runs fastest.
        decay_per_s: how fast each followed component is forgotten, 1/s, shape (k,).
        by_class: share of the requests of each class that come in each phase, shape (classes, C, m).
        noise: scatter of the number in service by what is too short to be a phase, 1 for Poisson, shape (C,).
        clump: requests within a step that come with another beyond what chance brings, shape (C,).
    """

    factor: FloatArray
    prompt_factor: FloatArray
    share: FloatArray
    switching: FloatArray
    levels: tuple[int, ...]
    decay_per_s: FloatArray
    by_class: FloatArray
    noise: FloatArray
    clump: FloatArray


def burst_components(classes: Sequence[Stream | RequestClass]) -> tuple[BurstComponent, ...]:
    """The bursts of independent classes as components of the work that they bring; empty where all are Poisson.

    A class counts by the output tokens of its requests, to which residences are proportional.

    Args:
        classes: streams with their rates.
    """
    work = np.array([item.rate_rps * item.lengths.output.mean for item in classes])
    prompts = np.array([item.rate_rps * item.lengths.prompt.mean for item in classes])
    total, rate = float(work.sum()), sum(item.rate_rps for item in classes)
    found = []
    for position, item in enumerate(classes):
        if item.burst is None or item.rate_rps <= 0.0:
            continue
        part = float(work[position]) / total
        felt = tuple(1.0 / part if other == position else 0.0 for other in range(len(classes)))
        of_prompts = float(prompts[position] / prompts.sum()) / part
        for excess, decay, skew, swing in item.burst.components():
            found.append(
                BurstComponent(
                    excess=excess * part**2 * rate / item.rate_rps,  # Var[rate] = rate x excess x decay / 2
                    decay_per_s=decay,
                    skew=skew,
                    felt_by=felt,
                    prompt_swing=swing * of_prompts,
                )
            )
    return tuple(found)


def rate_phases(
    components: Sequence[BurstComponent],
    work: Work,
    *,
    rate_rps: FloatArray,
    one_rps: FloatArray,
    residence_s: FloatArray,
    step_s: FloatArray,
    prefill_s: float,
    turn: Dealt | None = None,
) -> Phases:
    """Phases and scatter of the arrivals at a chain, which is a random part of the stream.

    Args:
        components: of the whole stream at its nominal rate.
        work: requests of all classes; gives the nominal rate and the law of the output.
        rate_rps: arrivals at the chain, shape (C,).
        one_rps: arrivals at one of its replicas, shape (C,).
        residence_s: mean time in service, shape (C,).
        step_s: mean step, shape (C,).
        prefill_s: mean time that a prompt adds to a step, s.
        turn: what dealing to the replicas in turn takes away, None where the router does not.
    """
    lasting, short = _sorted_out(components, float(np.median(residence_s)))
    noise = np.ones_like(rate_rps)
    for item in short:
        noise += item.excess * rate_rps / work.rate_rps * _felt(item, work.lengths.output, residence_s)
    if turn is not None:  # collisions within a step are followed apart: see round_robin
        weight = residence_weight(
            turn.decay_per_s, work.lengths.output, s_per_unit=residence_s / work.lengths.output.mean
        )
        noise += turn.excess * weight
    cases = rate_rps.size
    departure, of_prompts = np.zeros((cases, 1)), np.zeros((cases, 1))
    by_class = np.zeros((len(work.classes), cases, 1))
    share, switching = np.ones((cases, 1)), np.zeros((cases, 1, 1))
    levels: list[int] = []
    for item in lasting:
        exponential = 0.5 / (1.0 + 1.0 / (item.decay_per_s * residence_s))  # weight of the chain's own residences
        weight = _felt(item, work.lengths.output, residence_s) / exponential
        variance = item.excess * item.decay_per_s / (2.0 * work.rate_rps) * weight
        own = _levels(item, variance, halves=item.skew is None and not levels)
        departure = _outer_sum(departure, own.departure)
        of_prompts = _outer_sum(of_prompts, item.prompt_swing * own.departure)
        # requests come with both kinds of tokens
        felt = np.array(item.felt_by)[:, None, None, None] * (1.0 + item.prompt_swing) / 2.0
        by_class = (by_class[..., None] + felt * own.departure[None, :, None, :]).reshape(*by_class.shape[:2], -1)
        share = (share[:, :, None] * own.share[:, None, :]).reshape(cases, -1)
        switching = _joined(switching, own.switching)
        levels.append(own.share.shape[1])
    factor, prompt_factor = (np.maximum(1.0 + item, _LEAST_FACTOR) for item in (departure, of_prompts))
    by_class = share * np.maximum(1.0 + by_class, 0.0)
    return Phases(
        factor=factor / (factor * share).sum(axis=1, keepdims=True),
        prompt_factor=prompt_factor / (prompt_factor * share).sum(axis=1, keepdims=True),
        share=share,
        switching=switching,
        levels=tuple(levels),
        decay_per_s=np.array([item.decay_per_s for item in lasting]),
        by_class=by_class / by_class.sum(axis=2, keepdims=True),
        noise=np.maximum(noise, _LEAST_NOISE),
        clump=_clump(short, one_rps / work.rate_rps, step_s, prefill_s),
    )


def _clump(short: Sequence[BurstComponent], part: FloatArray, step_s: FloatArray, prefill_s: float) -> FloatArray:
    """Requests that come with another within a step, which the prompts of a clump make longer."""
    prompts = Burst(
        excess=tuple(item.excess * item.prompt_swing**2 for item in short),
        decay_per_s=tuple(item.decay_per_s for item in short),
    )
    clump = np.zeros_like(step_s)
    for _ in range(_CLUMP_ROUNDS):
        window_s = step_s + 2.0 * np.maximum(clump, 0.0) * prefill_s
        clump = np.maximum((prompts.dispersion(window_s) - 1.0) * part / 2.0, _LEAST_CLUMP)
    return clump


def _sorted_out(
    components: Sequence[BurstComponent], residence_s: float
) -> tuple[list[BurstComponent], list[BurstComponent]]:
    """Components that become phases, slowest first, and those that are noise."""
    lasting: list[BurstComponent] = []
    short: list[BurstComponent] = []
    for item in components:
        followed = item.excess > 0.0 and item.decay_per_s * residence_s <= _SHORT_LIVED
        (lasting if followed else short).append(item)
    lasting.sort(key=lambda item: item.decay_per_s)
    while len(lasting) > _MOST_FOLLOWED:
        steps = [after.decay_per_s / before.decay_per_s for before, after in pairwise(lasting)]
        at = int(np.argmin(steps))
        lasting[at : at + 2] = [_merged(lasting[at], lasting[at + 1], residence_s)]
    return lasting, short


def _merged(first: BurstComponent, second: BurstComponent, residence_s: float) -> BurstComponent:
    """One component with the excess of both and their common effect on residences of the given mean."""
    both = (first, second)
    excess = first.excess + second.excess
    weight = sum(item.excess / (1.0 + 1.0 / (item.decay_per_s * residence_s)) for item in both) / excess
    variance = [item.excess * item.decay_per_s for item in both]
    total = sum(variance)
    skew = None
    if first.skew is not None and second.skew is not None:  # third moments of independent rates add
        skew = (variance[0] ** 1.5 * first.skew + variance[1] ** 1.5 * second.skew) / total**1.5
    felt = tuple(
        (a * variance[0] + b * variance[1]) / total for a, b in zip(first.felt_by, second.felt_by, strict=True)
    )
    return BurstComponent(
        excess=excess,
        decay_per_s=weight / (1.0 - weight) / residence_s,
        skew=skew,
        felt_by=felt,
        prompt_swing=(first.prompt_swing * variance[0] + second.prompt_swing * variance[1]) / total,
    )


def _felt(item: BurstComponent, output: Law, residence_s: FloatArray) -> FloatArray:
    """Peakedness per unit of excess for residences in proportion to the output, shape (C,)."""
    return residence_weight(np.full_like(residence_s, item.decay_per_s), output, s_per_unit=residence_s / output.mean)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Levels:
    """Levels of one component: how far they lie from the mean, relative to it, their shares (C, L) and switching."""

    departure: FloatArray
    share: FloatArray
    switching: FloatArray


def _levels(item: BurstComponent, variance: FloatArray, *, halves: bool) -> _Levels:
    """Levels of the given variance of the relative rate, and of the skewness of a gamma law where none is known.

    Two levels are the process itself where it has two rates. Two independent halves, each high or low, make three, of
    which the largest is rare: the slowest component is the one that tails hang on.
    """
    spread = np.sqrt(np.maximum(variance, 1e-18))
    skew = 2.0 * spread if item.skew is None else np.full_like(spread, item.skew)
    if not halves:
        high, up, down = _two_levels(spread, skew, 1.0)
        low = 1.0 - high
        departure, share = np.stack([up, down], axis=1), np.stack([high, low], axis=1)
        rates = [[-low, low], [high, -high]]
    else:
        high, up, down = _two_levels(spread / np.sqrt(2.0), np.sqrt(2.0) * skew, 0.5)
        low, none = 1.0 - high, np.zeros_like(high)
        departure = np.stack([2.0 * up, up + down, 2.0 * down], axis=1)
        share = np.stack([high**2, 2.0 * high * low, low**2], axis=1)
        rates = [[-2.0 * low, 2.0 * low, none], [high, -high - low, low], [none, 2.0 * high, -2.0 * high]]
    switching = np.stack([np.stack(row, axis=1) for row in rates], axis=1) * item.decay_per_s
    return _Levels(departure=departure, share=share, switching=switching)


def _two_levels(spread: FloatArray, skew: FloatArray, room: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Probability of the high level, and both levels, of mean 0 and the given spread and skewness, each (C,).

    No level lies below -``room``, which sets a least skewness.
    """
    skew = np.maximum(skew, spread / room - room / spread)
    high = np.clip(0.5 * (1.0 - skew / np.sqrt(4.0 + skew**2)), 1e-9, 1.0 - 1e-9)
    odds = np.sqrt((1.0 - high) / high)
    return high, spread * odds, np.maximum(-spread / odds, -room)


def _outer_sum(first: FloatArray, second: FloatArray) -> FloatArray:
    return (first[:, :, None] + second[:, None, :]).reshape(first.shape[0], -1)


def _joined(first: FloatArray, second: FloatArray) -> FloatArray:
    """Generator of two independent chains as one (Kronecker sum), shape (C, m n, m n)."""
    cases, m, n = first.shape[0], first.shape[1], second.shape[1]
    one, two = np.eye(m)[:, None, :, None], np.eye(n)[None, :, None, :]
    both = first[:, :, None, :, None] * two + second[:, None, :, None, :] * one
    return both.reshape(cases, m * n, m * n)
