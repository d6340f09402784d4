"""Finite sets of requests that represent a length law without drawing at random."""

from __future__ import annotations

import numpy as np
from scipy import special

from qmodel.types.laws import FloatArray, Law, Lengths

__all__ = ["dealt_lengths", "interleaved_lengths"]

_PLASTIC = 1.32471795724474602596  # root of x^3 = x + 1; its powers give the evenest two-dimensional sequence
_COPULA_STEPS = 25
_WEYL, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # constants of SplitMix64
_SAME_PRODUCT = 1e-3  # relative difference of E[PN] below which prompt and output count as independent


def interleaved_lengths(lengths: Lengths, requests: int) -> tuple[FloatArray, FloatArray]:
    """Prompt and output tokens of ``requests`` requests in order of service, shape (requests,) each.

    Every marginal is the law's own means over n equally likely slices. Their order and pairing follow the R2
    low-discrepancy sequence, so that any stretch of the queue looks like the whole; a Gaussian copula
    brings E[PN] to the law's.

    Reference: Roberts, The unreasonable effectiveness of quasirandom sequences (2018).
    """
    index = np.arange(1, requests + 1)
    return _paired(lengths, (0.5 + index / _PLASTIC) % 1.0, (0.5 + index / _PLASTIC**2) % 1.0)


def dealt_lengths(lengths: Lengths, requests: int, hands: int) -> tuple[FloatArray, FloatArray]:
    """Prompt and output tokens of ``hands`` sets of ``requests`` requests that are like independent draws.

    The law is cut into hands x requests equally likely slices; the deck of their means is shuffled once, by a fixed
    hash of their number, and dealt. All hands together are the law; one hand has the spread of a set of requests drawn
    at random: of its work, of its longest request, and of where that stands in the queue.

    Args:
        lengths: joint law.
        requests: of one hand.
        hands: how many.

    Returns:
        Prompts and outputs, shape (hands, requests) each.

    Reference: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators (2014), for the hash.
    """
    count = hands * requests
    prompts, outputs = _paired(lengths, _hashed(count, 1), _hashed(count, 2))
    return prompts.reshape(hands, requests), outputs.reshape(hands, requests)


def _paired(lengths: Lengths, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slice means in the order of two sets of keys, coupled so that E[PN] is the law's."""
    requests = first.size
    outputs = np.maximum(np.round(_stratum_means(lengths.output, requests)), 1.0)[_rank(first)]
    prompts = np.maximum(np.round(_stratum_means(lengths.prompt, requests)), 1.0)
    mean_product = lengths.prompt.mean * lengths.output.mean
    if requests < 3 or abs(lengths.e_pn / mean_product - 1.0) < _SAME_PRODUCT:
        return prompts[_rank(second)], outputs

    own, other = special.ndtri(_centred(first)), special.ndtri(_centred(second))
    target = lengths.e_pn / mean_product * prompts.mean() * outputs.mean()
    low, high = -1.0, 1.0
    for _ in range(_COPULA_STEPS):
        correlation = (low + high) / 2.0
        paired = prompts[_rank(correlation * own + np.sqrt(1.0 - correlation**2) * other)]
        if float(paired @ outputs) / requests < target:
            low = correlation
        else:
            high = correlation
    return paired, outputs


def _hashed(count: int, stream: int) -> FloatArray:
    """Keys in (0, 1) without pattern, the same every time."""
    mixed = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(stream << 40)) * np.uint64(_WEYL)
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return np.asarray((mixed >> np.uint64(11)).astype(float) / 2.0**53)


def _stratum_means(law: Law, count: int) -> FloatArray:
    """Mean of the law within each of ``count`` equally likely slices, ascending; their mean is the law's."""
    level = np.concatenate([[0.0], np.cumsum(law.weights)])
    partial = np.concatenate([[0.0], np.cumsum(law.weights * law.values)])
    edges = np.linspace(0.0, level[-1], count + 1)
    return np.asarray(np.diff(np.interp(edges, level, partial)) / np.diff(edges))


def _rank(keys: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    ranks = np.empty(keys.size, dtype=np.intp)
    ranks[np.argsort(keys, kind="stable")] = np.arange(keys.size)
    return ranks


def _centred(keys: FloatArray) -> FloatArray:
    return np.asarray((_rank(keys) + 0.5) / keys.size)
