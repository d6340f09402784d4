"""How KV memory limits a replica: sequences that fit, growth that is recomputed, and the load that survives it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from qmodel.queueing.work import Work
from qmodel.types import FloatArray, Overload, Replica

__all__ = ["MemoryLimit", "length_overload", "memory_limit", "recomputed_share", "sequences_running", "share_blocked"]

_NO_WATERMARK_SHARE = 0.8  # of the saturated throughput: thrashing sets in below it when nothing is kept free
_RECOMPUTE_AT_ZERO = 0.9  # recomputed tokens per output token at saturation without a watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """KV memory of one replica in sequences.

    Attributes:
        tokens: pool tokens an admission may fill, (1 - watermark) of the pool.
        fits: mean number of sequences that fill them.
        spread: standard deviation of that number.
        prompt: sequences' worth of room that an arrival needs for its own prompt (or reservation).
        recompute: tokens recomputed per output token at saturation, after evictions.
        derating: share of the saturated throughput that may be planned.
        servers: memory in units of its peakedness (Hayward), which plays the role of the number of servers.
    """

    tokens: float
    fits: float
    spread: float
    prompt: float
    recompute: float
    derating: float
    servers: float


def memory_limit(replica: Replica, work: Work) -> MemoryLimit | None:
    """The memory limit of ``replica`` for this work, None where its memory is not limited.

    The sequences resident at a time are at random points of their lives, so what n of them hold is a sum of n
    independent amounts; the number that fits is then nearly normal with mean M/k and variance M var(k)/k^3 (renewal
    theory). Own construction, see docs/theory/replica.md.
    """
    if replica.kv_tokens is None:
        return None
    tokens = (1.0 - replica.watermark) * replica.kv_tokens
    fits = tokens / work.held
    own = work.lengths.prompt.mean + (work.lengths.output.mean if replica.admission == "no_evict" else 0.0)
    recompute = recomputed_share(replica, work)
    return MemoryLimit(
        tokens=tokens,
        fits=fits,
        spread=float(np.sqrt(tokens * work.held_variance / work.held**3)) + 1e-3,
        prompt=(replica.kv_slope * own + replica.kv_fixed_tokens) / work.held,
        recompute=recompute,
        derating=_NO_WATERMARK_SHARE if replica.admission == "full_prompt" and replica.watermark <= 0.0 else 1.0,
        servers=tokens / (work.held_variance / work.held + work.held),
    )


def recomputed_share(replica: Replica, work: Work) -> float:
    """Tokens recomputed per output token when memory is saturated.

    Sequences grow after they were admitted; without room kept free their growth is paid by evicting the newest. A
    watermark as large as the swing of the memory in use avoids it. Own construction, see docs/theory/replica.md.
    """
    if replica.admission == "no_evict" or replica.kv_tokens is None:
        return 0.0
    residents = replica.kv_tokens / work.held
    growth = replica.kv_slope * work.lengths.output.mean
    swing = growth * np.sqrt(max(residents, 1.0)) / 4.0
    return float(_RECOMPUTE_AT_ZERO * np.exp(-replica.watermark * replica.kv_tokens / swing))


def sequences_running(limit: MemoryLimit, present: FloatArray) -> FloatArray:
    """E[min(n, number that fits)] for n sequences present; broadcasts."""
    z = (present - limit.fits) / limit.spread
    excess = limit.spread * (z * special.ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))
    return np.asarray(np.maximum(present - excess, np.minimum(present, 1e-9)))


def share_blocked(limit: MemoryLimit, present: FloatArray) -> FloatArray:
    """Probability that an arrival that meets n sequences finds no room for its prompt; broadcasts."""
    return np.asarray(special.ndtr((present + limit.prompt - limit.fits) / limit.spread))


def length_overload(replica: Replica, work: Work) -> Overload | None:
    """The overload of a pool where a class outgrows its memory, None where 99 in 100 requests of each class fit."""
    if replica.kv_tokens is None:
        return None
    tokens = (1.0 - replica.watermark) * replica.kv_tokens
    if work.longest <= tokens:
        return None
    return Overload(
        kind="length",
        value=work.longest,
        limit=tokens,
        reason=f"more than 1 request in 100 of a class needs over {tokens:,.0f} pool tokens, all a replica admits "
        f"(99th percentile {work.longest:,.0f}); use a layout with more KV memory or cap the tokens of a request",
    )
