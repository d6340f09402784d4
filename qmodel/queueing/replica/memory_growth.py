"""How far the KV memory in use swings above the level up to which requests are admitted, and what that costs.

Between two departures the residents grow by E[N] tokens on average; a departure gives its P + N back. Above the level
of admission nobody is let in, so memory in use goes up by growth and down by departures: a random walk that drifts down
by E[P] a departure. It reaches an excess y before it returns with probability s / (s + y), s being its typical move,
were there no drift (the gambler's ruin); the drift adds exp(-theta y). See docs/theory/replica.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, Replica

__all__ = ["Swing", "memory_swing", "walk_decay"]

_AT_ZERO, _DRIFT = 0.92, 0.8  # fitted to 285 saturated simulations, see docs/theory/replica.md
_NEWTON_STEPS = 40
_POINTS = np.linspace(0.0, 1.0, 65) ** 2  # closer where the excess is most likely
_FAR = 30.0  # decay lengths beyond which nothing is left


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """Memory in use above the level of admission while requests wait for memory.

    Attributes:
        above_tokens: mean excess over that level, pool tokens.
        recompute: tokens recomputed per output token because growth met the end of the pool.
    """

    above_tokens: float
    recompute: float


def memory_swing(replica: Replica, work: Work) -> Swing:
    """The swing of a replica whose memory is always asked for.

    Args:
        replica: engine instance; without a limit, and where outputs are reserved, there is no swing.
        work: its requests.

    Example:
        >>> from qmodel.queueing.replica.work import pooled_work
        >>> from qmodel.types import Law, Lengths, StepLaw, Stream
        >>> step = StepLaw.linear(alpha_s=0.01, beta_s=1e-4)
        >>> chat = Stream(name="chat", rate_rps=1.0, lengths=Lengths.independent(Law.constant(500), Law.constant(200)))
        >>> replica = Replica(step=step, kv_tokens=40_000, watermark=0.05)
        >>> swing = memory_swing(replica, pooled_work(replica, [chat]))
        >>> 0.0 < swing.recompute < 0.01, 100 < swing.above_tokens < 200
        (True, True)

    Source: own construction, see docs/theory/replica.md.
    """
    if replica.admission == "no_evict" or replica.kv_tokens is None:
        return Swing(above_tokens=0.0, recompute=0.0)
    kept_free = replica.watermark * replica.kv_tokens
    decay = _DRIFT * walk_decay(replica, work)
    move = _walk_spread(replica, work)
    excess = min(kept_free, _FAR / max(decay, 1e-300)) * _POINTS
    reached = np.exp(-decay * excess) / (1.0 + excess / move)
    estimated = _AT_ZERO * math.exp(-decay * kept_free) / (1.0 + kept_free / move)
    return Swing(
        above_tokens=float(np.trapezoid(reached, excess)),
        recompute=estimated if replica.recompute_factor is None else replica.recompute_factor,
    )


def walk_decay(replica: Replica, work: Work) -> float:
    """theta > 0 with E[exp(theta (G - X))] = 1 for growth G, exponential with mean E[N], and a departure X = P + N.

    The excess of a random walk that drifts down has a tail exp(-theta x) (Lundberg). E[exp(-theta X)] - 1 + theta E[N]
    is convex, so Newton's iteration from its upper bound 1/E[N] falls to the root.
    """
    slope, fixed = replica.kv_slope, replica.kv_fixed_tokens
    growth = slope * work.lengths.output.mean
    parts = [
        (item.share, law.weights, law.weights * law.values, slope * law.values)
        for item in work.classes
        if item.share > 0.0
        for law in (item.lengths.prompt, item.lengths.output)
    ]
    theta = 1.0 / growth
    for _ in range(_NEWTON_STEPS):
        value, change = theta * growth - 1.0, growth
        for (share, *prompt), (_, *output) in zip(parts[::2], parts[1::2], strict=True):
            (p, p_rise), (n, n_rise) = _transform(theta, *prompt), _transform(theta, *output)
            mass = share * math.exp(-theta * fixed)
            value += mass * p * n
            change -= mass * (slope * (p_rise * n + p * n_rise) + fixed * p * n)
        step = value / change if change > 0.0 else 0.0
        theta -= step
        if step <= 1e-6 * theta:
            break
    return max(theta, 0.0)


def _transform(theta: float, weights: FloatArray, first: FloatArray, tokens: FloatArray) -> tuple[float, float]:
    """E[exp(-theta X)] and E[X' exp(-theta X)] of a length X' that takes X pool tokens."""
    fallen = np.exp(-theta * tokens)
    return float(weights @ fallen), float(first @ fallen)


def _walk_spread(replica: Replica, work: Work) -> float:
    """Standard deviation of one move of that walk, pool tokens."""
    lengths = work.lengths
    p1, p2, _ = lengths.prompt.moments
    n1, n2, _ = lengths.output.moments
    departure = p2 + 2.0 * lengths.e_pn + n2 - (p1 + n1) ** 2
    return replica.kv_slope * math.sqrt(max(departure, 0.0) + n1**2)
