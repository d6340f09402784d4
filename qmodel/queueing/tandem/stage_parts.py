"""The part of a request that each pool of a row serves: how many decode steps, on how much context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from qmodel.queueing.replica.work import bands
from qmodel.types import FloatArray, Law, Lengths, RequestClass, Stream

__all__ = ["Leg", "Until", "answer_leg", "decode_leg", "thought_and_output"]

Until = Literal["thinking", "output"]
_CONTEXT_BANDS = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leg:
    """One class in one pool after the first.

    Attributes:
        name: of the class.
        rate_rps: requests that come.
        reached: share of the class's requests that have a part here.
        lengths: KV tokens that come along in the place of a prompt, decode steps in the place of an output.
        steps: weights, means and variances of the steps in bands, shape (3, k).
    """

    name: str
    rate_rps: float
    reached: float
    lengths: Lengths
    steps: FloatArray

    @property
    def stream(self) -> Stream:
        """The leg as a pool of its own sees it."""
        return Stream(name=self.name, rate_rps=self.rate_rps, lengths=self.lengths)


def decode_leg(item: Stream | RequestClass, until: Until = "output") -> Leg | None:
    """The tokens after the first, to the last thinking token or to the end; None where there are none.

    Args:
        item: class with the rate of the row.
        until: ``thinking`` where another pool makes the answer.

    Example:
        >>> lengths = Lengths.independent(Law.constant(100), Law.constant(11))
        >>> leg = decode_leg(Stream(name="a", rate_rps=2.0, lengths=lengths))
        >>> leg.rate_rps, leg.lengths.output.mean
        (2.0, 10.0)
    """
    lengths = item.lengths
    law = lengths.output if until == "output" else lengths.reasoning
    if law is None:
        return None
    output = lengths.output
    first, second = law.mean / output.mean, law.moments[1] / output.moments[1]
    after = _after_first(law)
    if after is None:
        return None
    reached, steps = after
    p1, p2, _ = lengths.prompt.moments
    joint = Lengths(
        prompt=lengths.prompt,
        output=steps,
        e_pn=max(lengths.e_pn * first - p1 * reached, 0.0) / reached,
        e_p2n=max(lengths.e_p2n * first - p2 * reached, 0.0) / reached,
        e_pn2=max(lengths.e_pn2 * second - 2.0 * lengths.e_pn * first + p1 * reached, 0.0) / reached,
    )
    return Leg(
        name=item.name,
        rate_rps=float(item.rate_rps) * reached,
        reached=reached,
        lengths=joint,
        steps=bands(steps.values, steps.weights),
    )


def answer_leg(item: Stream | RequestClass) -> Leg | None:
    """The tokens after the thinking, on the KV of prompt and thinking; None where there are none.

    Example:
        >>> lengths = Lengths.independent(Law.constant(100), Law.constant(50), Law.constant(40))
        >>> leg = answer_leg(Stream(name="a", rate_rps=2.0, lengths=lengths))
        >>> leg.lengths.prompt.mean, leg.lengths.output.mean
        (139.0, 10.0)
    """
    weight, thought, output = thought_and_output(item.lengths)
    made = np.maximum(thought, 1.0)
    here = np.clip(output - 1.0, 0.0, 1.0) * weight
    reached = float(here.sum())
    if reached <= 0.0:
        return None
    here, made, output = (item[here > 0.0] for item in (here, made, output))
    share, left = here / reached, np.maximum(output - made, 1.0)
    steps = Law.from_atoms(left, share, label="answer")
    brought = bands(made - 1.0, share, _CONTEXT_BANDS)
    prompt = bands(item.lengths.prompt.values, item.lengths.prompt.weights, _CONTEXT_BANDS)
    context = Law.from_atoms(
        np.add.outer(prompt[1], brought[1]).ravel(), np.multiply.outer(prompt[0], brought[0]).ravel(), label="context"
    )
    joined = item.lengths.e_pn / item.lengths.output.mean  # E[P] as decode steps weigh it
    p2 = item.lengths.prompt.moments[1]
    joint = Lengths(
        prompt=context,
        output=steps,
        e_pn=float(share @ (left * (joined + made - 1.0))),
        e_p2n=float(share @ (left * (p2 + 2.0 * joined * (made - 1.0) + (made - 1.0) ** 2))),
        e_pn2=float(share @ (left**2 * (joined + made - 1.0))),
    )
    return Leg(
        name=item.name,
        rate_rps=float(item.rate_rps) * reached,
        reached=reached,
        lengths=joint,
        steps=bands(steps.values, steps.weights),
    )


def thought_and_output(lengths: Lengths) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights, thinking tokens and all generated tokens; long thoughts go with long outputs, as in the simulator."""
    output, thinking = lengths.output, lengths.reasoning
    if thinking is None:
        return output.weights, np.zeros_like(output.values), output.values
    reach = np.unique(np.concatenate([np.cumsum(output.weights), np.cumsum(thinking.weights)]).round(12))
    reach = reach[reach <= 1.0]
    weight = np.diff(reach, prepend=0.0)
    middle = reach - weight / 2.0
    all_tokens, thought = _at(output, middle), _at(thinking, middle)
    kept = weight > 0.0
    return weight[kept] / weight.sum(), np.minimum(thought, all_tokens - 1.0)[kept], all_tokens[kept]


def _at(law: Law, level: FloatArray) -> FloatArray:
    index = np.searchsorted(np.cumsum(law.weights), level)
    return np.asarray(law.values[np.minimum(index, law.values.size - 1)])


def _after_first(law: Law) -> tuple[float, Law] | None:
    """Probability of a second token, and the law of the number of tokens after the first where there is one."""
    mass = law.weights * np.clip(law.values - 1.0, 0.0, 1.0)
    reached = float(mass.sum())
    if reached <= 0.0:
        return None
    found = Law.from_atoms(np.maximum(law.values - 1.0, 1.0), mass, label=law.label)
    m1, m2, m3 = law.moments
    if law.values[0] >= 1.0:  # the law's own moments: those of the atoms are less exact
        exact = ((m1 - 1.0) / reached, (m2 - 2.0 * m1 + 1.0) / reached, (m3 - 3.0 * m2 + 3.0 * m1 - 1.0) / reached)
        found = Law(values=found.values, weights=found.weights, moments=exact, label=law.label)
    return reached, found
