"""How KV memory limits a replica: sequences that fit, growth that is recomputed, and the load that survives it.

See docs/theory/replica.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from qmodel.queueing.replica.memory_growth import memory_swing
from qmodel.queueing.replica.work import Work, memory_use
from qmodel.queueing.servers.halfin_whitt import residual_spread
from qmodel.types import FloatArray, Overload, Replica

__all__ = [
    "LimitStack",
    "MemoryLimit",
    "length_overload",
    "memory_limit",
    "memory_wait",
    "recomputed_share",
    "sequences_running",
    "share_blocked",
]

# Fitted to 210 simulated loads, see docs/theory/replica.md: mean wait of those that wait, and its SCV.
_WAIT, _WAIT_OWN = 0.75, 0.65
_SCV, _SCV_SPREAD, _SCV_OWN, _SCV_SIZE, _SCV_RANGE = 1.1, 0.35, 0.6, 0.06, (0.5, 3.0)
_PAUSE = 0.6  # of an evicted sequence over sqrt(heavy ratio x fits) departures; fitted to 90 of those loads
_GROWN_WHEN_EVICTED = 0.25  # of its mean output has a sequence generated that is evicted; fitted to the same
_LEAST_SKEW, _MOST_SKEW = 1e-3, 4.0  # where the cube-root form loses digits, and where it stops resembling a sum
_NO_WATERMARK_SHARE = 0.8  # of the saturated throughput: thrashing sets in below it when nothing is kept free


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """KV memory of one replica in sequences, each of the mean size of those in service.

    Attributes:
        tokens: pool tokens an admission may fill, (1 - watermark) of the pool.
        fits: mean sequences in service while others wait for memory.
        spread: standard deviation of that number.
        room: sequences that leave just enough room for an average admission.
        one_variance: variance of what one sequence in service holds.
        one_skew: its skewness.
        own_variance: variance of what an admission asks for.
        own_gap: memory that stays empty because the next admission does not fit it, on average.
        recompute: tokens recomputed per output token at saturation, after evictions.
        evictions: of one request while memory is saturated.
        pause: mean time from an eviction to the next admission, over the time between two departures.
        derating: share of the saturated throughput that may be planned.
        servers: memory in units of its peakedness (Hayward), which plays the role of the number of servers.
        heavy: mean wait over that of the exponential queue in heavy traffic, (1 + scv)/2 of the work of a request.
        residual_spread: E[R^2]/E[R]^2 of the residual R of memory-time.
    """

    tokens: float
    fits: float
    spread: float
    room: float
    one_variance: float
    one_skew: float
    own_variance: float
    own_gap: float
    recompute: float
    evictions: float
    pause: float
    derating: float
    servers: float
    heavy: float
    residual_spread: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LimitStack:
    """Memory limits of C cases; attributes as in a limit, shapes (C,)."""

    tokens: FloatArray
    fits: FloatArray
    spread: FloatArray
    room: FloatArray
    one_variance: FloatArray
    one_skew: FloatArray
    own_variance: FloatArray
    own_gap: FloatArray
    recompute: FloatArray
    evictions: FloatArray
    pause: FloatArray
    derating: FloatArray
    servers: FloatArray
    heavy: FloatArray
    residual_spread: FloatArray


@lru_cache(maxsize=512)
def memory_limit(replica: Replica, work: Work) -> MemoryLimit | None:
    """The memory limit of ``replica`` for this work, None where its memory is not limited.

    The sequences resident at a time are at random points of their lives, so what n of them hold is a sum of n
    independent amounts. While others wait, memory is full but for the gap that the next one does not fit and the
    swing of growth above the level of admission. Own construction, see docs/theory/replica.md.
    """
    if replica.kv_tokens is None or replica.max_num_seqs == 1:  # a sequence alone has the whole memory
        return None
    tokens = (1.0 - replica.watermark) * replica.kv_tokens
    own, own_square = _admission_tokens(replica, work)
    swing, use = memory_swing(replica, work), memory_use(replica, work)
    output = work.lengths.output.mean
    gap = min(own_square / (2.0 * own), tokens / 2.0)
    fits = max(min(tokens - gap + swing.above_tokens, replica.kv_tokens) / work.held, 1.0)  # one always runs
    heavy = _heavy_ratio(replica, work, fits)
    one_variance = work.held_variance / work.held**2
    return MemoryLimit(
        tokens=tokens,
        fits=fits,
        spread=float(np.sqrt(fits * one_variance)) + 1e-3,
        room=(tokens - own) / work.held,
        one_variance=one_variance,
        one_skew=use.skew,
        own_variance=max(own_square - own**2, 0.0) / work.held**2,
        own_gap=gap / work.held,
        recompute=swing.recompute,
        evictions=swing.recompute * output / (work.lengths.prompt.mean + _GROWN_WHEN_EVICTED * output),
        pause=_PAUSE * float(np.sqrt(heavy * fits)),
        derating=_NO_WATERMARK_SHARE if replica.admission == "full_prompt" and replica.watermark <= 0.0 else 1.0,
        servers=fits / (1.0 + one_variance),
        heavy=heavy,
        residual_spread=float(residual_spread(*use.time)),
    )


def recomputed_share(replica: Replica, work: Work) -> float:
    """Tokens recomputed per output token when memory is saturated; see :func:`memory_swing`."""
    return memory_swing(replica, work).recompute


def sequences_running(limit: MemoryLimit, present: FloatArray) -> FloatArray:
    """E[min(n, number that fits)] for n sequences present; broadcasts."""
    z = (present - limit.fits) / limit.spread
    excess = limit.spread * (z * special.ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))
    return np.asarray(np.maximum(present - excess, np.minimum(present, 1e-9)))


def share_blocked(limit: MemoryLimit, present: FloatArray) -> FloatArray:
    """Probability that an arrival that meets n sequences finds no room for its prompt; broadcasts.

    What n sequences hold and the arrival asks for is nearly gamma, in the cube-root normal form.

    Reference: Wilson and Hilferty, PNAS 17 (1931).
    """
    spread = np.sqrt(present * limit.one_variance + limit.own_variance + 1e-6)
    skew = present * (limit.one_skew * limit.one_variance**1.5) / spread**3
    skew = np.minimum(np.maximum(skew, _LEAST_SKEW), _MOST_SKEW)
    root = np.cbrt(np.maximum(1.0 + (limit.room - present) / spread * skew / 2.0, 0.0))
    return np.asarray(special.ndtr((6.0 / skew) * (1.0 - root) - skew / 6.0) * (present > 0.0))


def memory_wait(
    limit: MemoryLimit | LimitStack, machines: FloatArray, rho: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean wait for memory of those that wait over that of the exponential queue, and its SCV; shapes (C,).

    The heavy-traffic ratio, corrected for the size of an admission. Replicas behind a router share their load but not
    their memory: at low load a request waits for its own replica alone.

    Args:
        limit: the memory.
        machines: replicas behind one router that looks at them, shape (C,).
        rho: utilisation, shape (C,).

    Source: own construction, see docs/theory/replica.md.
    """
    ratio = limit.heavy * (_WAIT + _WAIT_OWN * limit.own_gap) * (1.0 + (machines - 1.0) * (1.0 - rho))
    scv = _SCV + _SCV_SPREAD * np.log(limit.residual_spread) - _SCV_OWN * limit.own_gap
    scv = scv - _SCV_SIZE * np.log(limit.servers * machines)
    return ratio, np.minimum(np.maximum(scv, _SCV_RANGE[0]), _SCV_RANGE[1])


def length_overload(replica: Replica, work: Work) -> Overload | None:
    """The overload of a pool where a class outgrows its memory, None where 99 in 100 requests of each class fit."""
    if replica.kv_tokens is None:
        return None
    tokens = (1.0 - replica.watermark) * replica.kv_tokens
    longest = memory_use(replica, work).longest
    if longest <= tokens:
        return None
    return Overload(
        kind="length",
        value=longest,
        limit=tokens,
        reason=f"more than 1 request in 100 of a class needs over {tokens:,.0f} pool tokens, all a replica admits "
        f"(99th percentile {longest:,.0f}); use a layout with more KV memory or cap the tokens of a request",
    )


def _admission_tokens(replica: Replica, work: Work) -> tuple[float, float]:
    """First two moments of the pool tokens that an admission takes: the prompt, with the output where reserved."""
    lengths = work.lengths
    first, second, _ = lengths.prompt.moments
    if replica.admission == "no_evict":
        second += 2.0 * lengths.e_pn + lengths.output.moments[1]
        first += lengths.output.mean
    slope, fixed = replica.kv_slope, replica.kv_fixed_tokens
    return slope * first + fixed, slope**2 * second + 2.0 * slope * fixed * first + fixed**2


def _heavy_ratio(replica: Replica, work: Work, fits: float) -> float:
    """(1 + scv)/2 of the time that a request keeps a full replica busy: memory-time, and the prefill of its prompt.

    A replica whose memory is full serves memory-time at a constant rate, and prompts one after the other.
    """
    lengths = work.lengths
    p1, p2, _ = lengths.prompt.moments
    n2 = lengths.output.moments[1]
    first, second, _ = memory_use(replica, work).time
    grown = 1.0 if replica.admission == "no_evict" else 0.5
    decode_s = work.steps * float(replica.step.tau_s(fits, work.context)) / fits
    prefill = replica.step.delta_s * p1 / (decode_s + replica.step.delta_s * p1)
    together = (lengths.e_p2n + grown * lengths.e_pn2) / ((lengths.e_pn + grown * n2) * p1) if p1 > 0.0 else 1.0
    spread = p2 / p1**2 if p1 > 0.0 else 1.0
    decode = 1.0 - prefill
    return (decode**2 * second / first**2 + 2.0 * decode * prefill * together + prefill**2 * spread) / 2.0
