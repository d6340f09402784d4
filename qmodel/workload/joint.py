"""Joint laws of a request's tokens: thinking plus answer, and laws taken from recorded requests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qmodel.types import FloatArray, Law, Lengths
from qmodel.workload.discrete import capped, compress, cut_given_atom

__all__ = ["combine_reasoning", "lengths_from_arrays"]


def combine_reasoning(reasoning: Law, answer: Law, max_tokens: int | None = None) -> tuple[Law, Law]:
    """Output law of thinking followed by an independent answer, with a cap on the sum.

    Where the cap falls on thinking alone, the last of the ``max_tokens`` tokens counts as the answer: thinking is
    cut to ``max_tokens - 1``, so that the first answer token never comes after the last token.

    Args:
        reasoning: thinking tokens.
        answer: answer tokens.
        max_tokens: cap on the sum, at least 2; an atom. None for no cap.

    Returns:
        (output, reasoning): the sum after the cap, and thinking after the cap. Without a cap the moments are those of
        the sum exactly; with one, the effect of the cap on them is taken from the atoms.

    Raises:
        ValueError: if ``max_tokens`` is below 2.

    Example:
        >>> from qmodel.workload import lognormal_law
        >>> output, thinking = combine_reasoning(lognormal_law(5400, 0.97), lognormal_law(750, 1.1), 32768)
        >>> round(output.mean / 6150, 2), output.maximum
        (0.99, 32768.0)
    """
    if max_tokens is not None and max_tokens < 2:
        raise ValueError(f"max_tokens: must be at least 2, one thinking and one answer token (got {max_tokens})")
    total = np.add.outer(reasoning.values, answer.values)
    mass = np.multiply.outer(reasoning.weights, answer.weights)
    r1, r2, r3 = reasoning.moments
    a1, a2, a3 = answer.moments
    moments = (r1 + a1, r2 + 2 * r1 * a1 + a2, r3 + 3 * r2 * a1 + 3 * r1 * a2 + a3)
    whole = 1.0 - np.multiply.outer(1.0 - cut_given_atom(reasoning), 1.0 - cut_given_atom(answer))
    cap = float("inf") if max_tokens is None else float(max_tokens)
    output = capped(
        total.ravel(), mass.ravel(), moments, cap, label=f"{reasoning.label} + {answer.label}", cut=whole.ravel()
    )
    thinking = capped(
        reasoning.values,
        reasoning.weights,
        reasoning.moments,
        cap - 1.0,
        label=reasoning.label,
        cut=cut_given_atom(reasoning),
    )
    return output, thinking


def lengths_from_arrays(
    prompt: npt.ArrayLike, output: npt.ArrayLike, reasoning: npt.ArrayLike | None = None, *, label: str = "trace"
) -> Lengths:
    """The joint law of recorded requests: marginal laws and joint moments are those of the rows.

    Args:
        prompt: prompt tokens of each request, at least 1, shape (n,).
        output: generated tokens, thinking included, at least 1, shape (n,).
        reasoning: thinking tokens, from 0 to ``output``; those that leave no answer count one less.
        label: name for people.

    Raises:
        ValueError: if arrays differ in length, are empty, or hold counts out of range.

    Example:
        >>> lengths = lengths_from_arrays([10, 20], [5, 1])
        >>> lengths.e_pn, lengths.prompt.mean
        (35.0, 15.0)
    """
    p, n = _counts(prompt, "prompt", least=1), _counts(output, "output", least=1)
    if p.size != n.size:
        raise ValueError(f"output: has {n.size} requests, prompt has {p.size}")
    thinking = None
    if reasoning is not None:
        r = _counts(reasoning, "reasoning", least=0)
        if r.size != n.size or np.any(r > n):
            raise ValueError("reasoning: needs one value per request, none above its output")
        thinking = _empirical(np.minimum(r, n - 1.0), f"{label}: reasoning of {n.size} requests")
    return Lengths(
        prompt=_empirical(p, f"{label}: prompts of {p.size} requests"),
        output=_empirical(n, f"{label}: outputs of {n.size} requests"),
        reasoning=thinking,
        e_pn=float(np.mean(p * n)),
        e_p2n=float(np.mean(p**2 * n)),
        e_pn2=float(np.mean(p * n**2)),
    )


def _empirical(values: FloatArray, label: str) -> Law:
    atoms, count = np.unique(values, return_counts=True)
    return compress(atoms, count / values.size, label=label)


def _counts(values: npt.ArrayLike, name: str, *, least: int) -> FloatArray:
    counts = np.asarray(values, dtype=np.float64)
    if counts.ndim != 1 or counts.size == 0:
        raise ValueError(f"{name}: needs a list of token counts, at least one (got shape {counts.shape})")
    if not np.all(np.isfinite(counts)) or counts.min() < least:
        raise ValueError(f"{name}: token counts must be at least {least} (got {counts.min():g})")
    return counts
