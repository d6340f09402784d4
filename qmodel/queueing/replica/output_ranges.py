"""Requests of one class whose outputs lie in a range, and how much longer they take than alone."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from qmodel.queueing.replica.work import ClassWork, bands, law_bands
from qmodel.types import FloatArray, IntArray, Law, Replica

__all__ = ["alone_s", "mean_slowdown", "restricted"]

_PROMPT_BANDS = 24


def restricted(member: ClassWork, above_tokens: float, up_to_tokens: float) -> tuple[ClassWork, float]:
    """The class given that its output is longer than ``above_tokens`` and at most ``up_to_tokens``, and its share.

    Thinking tokens grow with the output: those of a range of outputs are those between the same levels of their own
    law. Prompts stay as they are.

    Raises:
        ValueError: if no output lies in the range.
    """
    output = member.lengths.output
    inside = (output.values > above_tokens) & (output.values <= up_to_tokens)
    share = float(output.weights[inside].sum())
    if not share > 0.0:
        raise ValueError(
            f"no output of class {member.name!r} lies above {above_tokens:g} and up to {up_to_tokens:g} tokens; "
            f"they go from {output.values[0]:g} to {output.values[-1]:g}"
        )
    kept = Law.from_atoms(output.values[inside], output.weights[inside], label=output.label)
    thinking = member.lengths.reasoning
    if thinking is not None:
        below = float(output.weights[output.values <= above_tokens].sum())
        thinking = _between(thinking, below, below + share)
    part = replace(
        member,
        lengths=replace(member.lengths, output=kept, reasoning=thinking),
        output_bands=bands(kept.values, kept.weights),
        reasoning_bands=None if thinking is None else bands(thinking.values, thinking.weights),
    )
    return part, share


def mean_slowdown(replica: Replica, member: ClassWork, first_s: float, completion_s: float, token_s: float) -> float:
    """E[completion / completion of the same request alone in an empty replica].

    Args:
        replica: engine instance.
        member: the class or a part of it.
        first_s: its mean time to the first token, s.
        completion_s: its mean completion time, s.
        token_s: mean time per further token, s.

    Source: own construction: the completion is linear in both lengths, the ratio is averaged over their bands.
    """
    prompt = law_bands(member.lengths.prompt, _PROMPT_BANDS)
    output = member.output_bands
    decodes = np.maximum(output[1] - 1.0, 0.0)
    beyond = completion_s - first_s - token_s * float(output[0] @ decodes)  # what decoding takes besides its pace
    decoding = decodes > 0.0
    after = token_s * decodes + decoding * beyond / max(float(output[0] @ decoding), 1e-300)
    first = first_s + replica.step.delta_s * (prompt[1] - member.lengths.prompt.mean)
    mine = np.maximum(first[:, None] + after, 0.0)
    ratio = mine / _alone_by_band_s(replica, member)
    return float(prompt[0] @ np.maximum(ratio, 1.0) @ output[0])


@lru_cache(maxsize=512)
def _alone_by_band_s(replica: Replica, member: ClassWork) -> FloatArray:
    prompt = law_bands(member.lengths.prompt, _PROMPT_BANDS)
    return alone_s(replica, prompt[1][:, None], np.maximum(member.output_bands[1], 1.0))


def alone_s(replica: Replica, prompt: FloatArray | IntArray, output: FloatArray | IntArray) -> FloatArray:
    """Completion time of requests that have a replica for themselves, s; broadcasts.

    Args:
        replica: engine instance.
        prompt: tokens.
        output: tokens, at least 1.

    Example:
        >>> from qmodel.types import StepLaw
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0, delta_s=1e-4))
        >>> alone_s(engine, np.array([100]), np.array([21])).round(6).tolist()
        [0.22]
    """
    step = replica.step
    chunks = np.ceil(prompt / replica.max_batched_tokens)
    decodes = output - 1.0
    read = decodes * prompt + decodes * (decodes + 1.0) / 2.0
    first_s = chunks * float(step.tau_s(0.0, 0.0)) + step.delta_s * prompt
    return np.asarray(first_s + decodes * float(step.tau_s(1.0, 0.0)) + step.gamma_s * read)


def _between(law: Law, low: float, high: float) -> Law:
    """The law between two levels of its own, atoms at the edges in part."""
    upper = np.cumsum(law.weights) / law.weights.sum()
    lower = np.concatenate([[0.0], upper[:-1]])
    mass = np.minimum(upper, high) - np.maximum(lower, low)
    inside = mass > 1e-12
    return Law.from_atoms(law.values[inside], mass[inside], label=law.label)
