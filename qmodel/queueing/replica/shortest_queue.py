"""What a join-shortest-queue router does to the arrivals at one replica: it makes up for departures.

The router keeps the number present at a replica near that of the others. What a step collects then depends less on
how long the step lasts, comes early in it, and is less the more prompts wait, since those do not decode and leave.
Own construction with two constants fitted to step-level simulations, see docs/theory/replica.md.
"""

from __future__ import annotations

import numpy as np

from qmodel.types import FloatArray

__all__ = ["evenness", "share_coming", "share_passed"]

_EVEN_POWER = 0.35  # of the number of replicas in what is not evened out; fitted
_EARLY = 4.0  # how fast the call for more fades while a step lasts, in arrivals at one replica; fitted
_LEAST = 0.02  # share of the arrivals that comes however many prompts wait


def evenness(replicas: FloatArray) -> FloatArray:
    """How far the router evens out what steps of different length collect: 0 for one replica, towards 1 for many.

    Args:
        replicas: behind the router, shape (C,).

    Example:
        >>> evenness(np.array([1.0, 32.0])).round(2).tolist()
        [0.0, 0.7]
    """
    return np.asarray(1.0 - replicas**-_EVEN_POWER)


def share_coming(even: FloatArray, waiting: FloatArray, mean_waiting: FloatArray, decoding: FloatArray) -> FloatArray:
    """Arrivals at a replica where so many prompts wait, over those at a usual one.

    The number present is nearly kept, so as many come as leave. Of ``mean_waiting`` + ``decoding`` present those leave
    that decode: the longer the queue of prompts, the fewer.

    Args:
        even: as :func:`evenness` gives it, shape (C,).
        waiting: prompts that wait or are computed, shape (C, n).
        mean_waiting: the usual number of them, shape (C,).
        decoding: mean number of sequences that decode, shape (C,).

    Returns:
        Shape (C, n), positive, 1 where ``waiting`` is the usual number.

    Example:
        >>> share_coming(np.array([1.0]), np.array([[0.0, 2.0, 4.0]]), np.array([2.0]), np.array([10.0])).tolist()
        [[1.2, 1.0, 0.8]]

    Source: own construction; the prefill queue of a closed network of ``mean_waiting + decoding`` customers.
    """
    relative = even[:, None] * (mean_waiting[:, None] - waiting) / decoding[:, None]
    return np.asarray(np.maximum(1.0 + relative, _LEAST))


def share_passed(replicas: FloatArray, expected: FloatArray) -> FloatArray:
    """Mean part of a step that has passed when an arrival falls into it, at most 1/2, the value for one replica.

    At the start of a step a replica has just lost the requests that ended. The call for others fades as they come, at
    a rate of 4 (1 - 1/R)^2 per expected arrival, down to the share 1/R that a replica gets whatever it holds.

    Args:
        replicas: R, behind the router, shape (C,).
        expected: arrivals that a step of this length brings at random, shape (C, n).

    Example:
        >>> share_passed(np.array([1.0, 32.0]), np.array([[0.5], [0.5]])).round(2).tolist()
        [[0.5], [0.36]]
    """
    always = (1.0 / replicas)[:, None]
    x = np.maximum(_EARLY * (1.0 - always) ** 2 * expected, 1e-3)
    gone = -np.expm1(-x)
    mass = always + (1.0 - always) * gone / x
    first = always / 2.0 + (1.0 - always) * (gone - x * np.exp(-x)) / x**2
    return np.asarray(np.minimum(first / mass, 0.5))
