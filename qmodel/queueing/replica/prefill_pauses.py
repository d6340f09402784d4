"""How far prefill makes the number in service vary: nobody advances in a long step while requests keep arriving.

On the clock of decode work, which stands still while prompts are computed, arrivals come in batches: all that arrive
while one prompt, and those that come meanwhile, are computed. Batches spread the number in service more than the
birth-death chain knows. Own construction, see docs/theory/replica.md.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import special

from qmodel.queueing.replica.chain import Occupancy
from qmodel.queueing.replica.kv_limited import LimitStack, MemoryLimit
from qmodel.queueing.replica.stacks import WorkStack
from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, Law

__all__ = ["more_waiting", "overlap", "slots_reached", "spread_ratio"]

_LONGER = 0.25  # power of the spread by which waits lengthen: 0 in light, 1 in heavy traffic; fitted to simulations
_MOST_BUSY = 0.8  # above it the token budget, not the arrivals, sets how long steps get


@lru_cache(maxsize=512)
def overlap(law: Law) -> float:
    """E[min(X, X')] / E[X] of two independent values: 1 for a constant, 1/2 for an exponential law.

    Args:
        law: of the lengths.

    Example:
        >>> overlap(Law.constant(7.0))
        1.0
        >>> overlap(Law.from_atoms(np.array([1.0, 3.0]), np.array([0.5, 0.5])))
        0.75

    Reference: the integral of the squared survival function, as in the peakedness of batch arrivals (Eckberg,
    Generalized peakedness of teletraffic processes, ITC 10, 1983).
    """
    survival = np.append(1.0, 1.0 - np.cumsum(law.weights)[:-1])
    steps = np.diff(law.values, prepend=0.0)
    return float((survival**2 @ steps) / (survival @ steps))


def spread_ratio(work: Work | WorkStack, busy: FloatArray) -> FloatArray:
    """Variance of the number in service over that of the chain, at least 1, shape (C,).

    A batch is the progeny of one request when each request is followed by those that arrive during its prefill. Its
    second moment over its mean is (1 + u^2 scv) / (1 - u)^2; the number in service then varies 1 + (that - 1) kappa
    times as much as a Poisson law, kappa the overlap of two outputs, where the chain has 1 / (1 - u).

    Args:
        work: requests of all classes.
        busy: u, share of time that arrivals spend on prefill and that keeps arrivals coming, shape (C,).

    Example:
        >>> from qmodel.queueing.replica.work import pooled_work
        >>> from qmodel.types import Lengths, Replica, StepLaw, Stream
        >>> lengths = Lengths.independent(Law.constant(500), Law.constant(100))
        >>> work = pooled_work(Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0)),
        ...                    [Stream(name="a", rate_rps=1.0, lengths=lengths)])
        >>> spread_ratio(work, np.array([0.0, 0.5])).tolist()
        [1.0, 2.0]

    Source: own construction, see docs/theory/replica.md; the batch is a Galton-Watson tree.
    """
    share = np.minimum(busy, _MOST_BUSY)
    prompt, output = work.lengths.prompt, work.lengths.output
    batch = (1.0 + share**2 * prompt.scv) / (1.0 - share) ** 2
    return np.asarray(np.maximum((1.0 + overlap(output) * (batch - 1.0)) * (1.0 - share), 1.0))


def slots_reached(limit: MemoryLimit | LimitStack, slots: FloatArray | int) -> FloatArray:
    """Probability that memory holds as many sequences as there are slots, so that slots and not memory bound the batch.

    Args:
        limit: the memory limit.
        slots: most sequences that run at once.
    """
    return np.asarray(special.ndtr((limit.fits - slots) / np.maximum(limit.spread, 1e-9)))


def more_waiting(seen: Occupancy, ratio: FloatArray, slots: FloatArray | float) -> tuple[FloatArray, FloatArray]:
    """The waits for a slot that a spread ``ratio`` times as large brings: their probability and their mean, s.

    The probability of waiting is that of a normal tail whose standard deviation grows by the root of the ratio.

    Args:
        seen: the chain's occupancy, C cases.
        ratio: variance of the number in service over the chain's, at least 1, shape (C,).
        slots: of all replicas that share one queue, shape (C,) or one number for all cases.
    """
    rare = np.minimum(np.maximum(seen.p_wait, 1e-15), 0.5)
    wider = special.ndtr(special.ndtri(rare) / np.sqrt(ratio))
    p_wait = np.asarray(np.where(seen.p_wait > 0.0, np.maximum(seen.p_wait, wider), 0.0))
    next_free_s = seen.residence_s / (slots * np.maximum(1.0 - seen.utilisation, 1e-6))
    wait = np.where(
        seen.wait_mean_s > 0.0, seen.wait_mean_s, next_free_s
    )  # the chain gives none where waits are too rare
    return p_wait, wait * ratio**_LONGER
