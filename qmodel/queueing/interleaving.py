"""A finite set of requests that represents a length law without drawing at random."""

from __future__ import annotations

import numpy as np
from scipy import special

from qmodel.types.laws import FloatArray, Law, Lengths

__all__ = ["interleaved_lengths"]

_PLASTIC = 1.32471795724474602596  # root of x^3 = x + 1; its powers give the evenest two-dimensional sequence
_COPULA_STEPS = 25
_SAME_PRODUCT = 1e-3  # relative difference of E[PN] below which prompt and output count as independent


def interleaved_lengths(lengths: Lengths, requests: int) -> tuple[FloatArray, FloatArray]:
    """Prompt and output tokens of ``requests`` requests in order of service, shape (requests,) each.

    Every marginal is the law's own means over n equally likely slices. Their order and pairing follow the R2
    low-discrepancy sequence, so that any stretch of the queue looks like the whole; a Gaussian copula
    brings E[PN] to the law's.

    Reference: Roberts, The unreasonable effectiveness of quasirandom sequences (2018).
    """
    index = np.arange(1, requests + 1)
    first, second = (0.5 + index / _PLASTIC) % 1.0, (0.5 + index / _PLASTIC**2) % 1.0
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
