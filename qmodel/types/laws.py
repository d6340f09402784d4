"""Length laws as weighted atoms with exact moments, and joint laws of a request's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["FloatArray", "IntArray", "Law", "Lengths", "mix_laws", "mix_lengths"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Law:
    """A law on token counts: weighted atoms, and three moments that are exact.

    The atoms are a compression of the law (a few hundred points that keep the
    mean); the moments come from the law itself.

    Attributes:
        values: atoms in ascending order, tokens, shape (n,).
        weights: their probabilities, shape (n,), positive, sum 1.
        moments: E[X], E[X^2], E[X^3] in tokens, tokens^2, tokens^3.
        label: how a person would name the law, e.g. ``lognormal(mean 300, cv 0.9)``.
        capped_share: probability that a cap (``max_tokens``, a budget) cut the value.
    """

    values: FloatArray
    weights: FloatArray
    moments: tuple[float, float, float]
    label: str = "law"
    capped_share: float = 0.0

    @classmethod
    def constant(cls, tokens: float) -> Law:
        """The law of a count that is always the same.

        Example:
            >>> Law.constant(100).scv
            0.0
        """
        return cls(
            values=np.array([float(tokens)]),
            weights=np.array([1.0]),
            moments=(float(tokens), float(tokens) ** 2, float(tokens) ** 3),
            label=f"constant({tokens:g})",
        )

    @classmethod
    def from_atoms(
        cls, values: FloatArray, weights: FloatArray, label: str = "atoms", capped_share: float = 0.0
    ) -> Law:
        """A law from atoms in any order; weights are normalised, moments are those of the atoms.

        Args:
            values: atoms in tokens, shape (n,).
            weights: non-negative weights, shape (n,).
            label: name for people.
            capped_share: probability that a cap cut the value.

        Example:
            >>> Law.from_atoms(np.array([4.0, 2.0]), np.array([1.0, 1.0])).mean
            3.0
        """
        atoms, inverse = np.unique(np.asarray(values, dtype=float), return_inverse=True)
        mass = np.bincount(inverse, weights=np.asarray(weights, dtype=float), minlength=atoms.size)
        keep = mass > 0
        atoms, mass = atoms[keep], mass[keep] / mass.sum()
        first, second, third = (float(mass @ atoms**k) for k in (1, 2, 3))
        return cls(values=atoms, weights=mass, moments=(first, second, third), label=label, capped_share=capped_share)

    @property
    def mean(self) -> float:
        """E[X], tokens."""
        return self.moments[0]

    @property
    def scv(self) -> float:
        """Squared coefficient of variation, Var[X] / E[X]^2; never below zero."""
        first, second, _ = self.moments
        return max(second / first**2 - 1.0, 0.0) if first > 0 else 0.0

    @property
    def maximum(self) -> float:
        """Largest value of the law, tokens."""
        return float(self.values[-1])

    def quantile(self, p: float) -> float:
        """Smallest atom whose cumulative probability reaches ``p`` in (0, 1]."""
        cumulative = np.cumsum(self.weights)
        index = int(np.searchsorted(cumulative, p * (1 - 1e-12)))
        return float(self.values[min(index, self.values.size - 1)])

    def survival(self, tokens: float) -> float:
        """P(X > tokens)."""
        return float(self.weights[self.values > tokens].sum())

    def to_dict(self) -> dict[str, object]:
        """Moments and quantiles as plain numbers, enough to verify a plan by."""
        return {
            "label": self.label,
            "moments": list(self.moments),
            "capped_share": self.capped_share,
            "values": self.values.tolist(),
            "weights": self.weights.tolist(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> Law:
        """The inverse of :meth:`to_dict`."""
        first, second, third = np.asarray(data["moments"], dtype=float).tolist()
        return cls(
            values=np.asarray(data["values"], dtype=float),
            weights=np.asarray(data["weights"], dtype=float),
            moments=(first, second, third),
            label=str(data["label"]),
            capped_share=float(str(data["capped_share"])),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lengths:
    """Joint law of one request's prompt and generated tokens.

    Attributes:
        prompt: P, prompt tokens.
        output: N, all generated tokens (thinking included), at least 1.
        reasoning: thinking tokens that come before the answer; None: the first token is the answer's.
        e_pn: E[P N].
        e_p2n: E[P^2 N].
        e_pn2: E[P N^2].
    """

    prompt: Law
    output: Law
    reasoning: Law | None = None
    e_pn: float
    e_p2n: float
    e_pn2: float

    @classmethod
    def independent(cls, prompt: Law, output: Law, reasoning: Law | None = None) -> Lengths:
        """Prompt and output drawn independently.

        Example:
            >>> Lengths.independent(Law.constant(10), Law.constant(5)).e_pn2
            250.0
        """
        p1, p2, _ = prompt.moments
        n1, n2, _ = output.moments
        return cls(prompt=prompt, output=output, reasoning=reasoning, e_pn=p1 * n1, e_p2n=p2 * n1, e_pn2=p1 * n2)

    @property
    def mean_context(self) -> float:
        """E[P N + N^2/2] / E[N]: tokens held per resident sequence, averaged over token steps."""
        return (self.e_pn + self.output.moments[1] / 2.0) / self.output.mean

    def to_dict(self) -> dict[str, object]:
        """Plain numbers; the inverse of :meth:`from_dict`."""
        return {
            "prompt": self.prompt.to_dict(),
            "output": self.output.to_dict(),
            "reasoning": None if self.reasoning is None else self.reasoning.to_dict(),
            "e_pn": self.e_pn,
            "e_p2n": self.e_p2n,
            "e_pn2": self.e_pn2,
        }

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> Lengths:
        """The inverse of :meth:`to_dict`."""
        prompt, output, reasoning = data["prompt"], data["output"], data["reasoning"]
        assert isinstance(prompt, dict) and isinstance(output, dict)
        return cls(
            prompt=Law.from_dict(prompt),
            output=Law.from_dict(output),
            reasoning=Law.from_dict(reasoning) if isinstance(reasoning, dict) else None,
            e_pn=float(str(data["e_pn"])),
            e_p2n=float(str(data["e_p2n"])),
            e_pn2=float(str(data["e_pn2"])),
        )


def mix_laws(laws: Sequence[Law], shares: Sequence[float], max_atoms: int = 512) -> Law:
    """The law of a value drawn from one of several laws.

    Args:
        laws: the components.
        shares: their non-negative weights, not all zero.
        max_atoms: atoms kept; neighbours are merged so that the mean stays exact.
    """
    if len(laws) == 1:
        return laws[0]
    weight = np.asarray(shares, dtype=float) / float(np.sum(shares))
    values, parts, owner = _together(tuple(laws))
    mass = weight[owner] * parts
    keep = mass > 0
    values, mass = values[keep], mass[keep]
    if values.size > max_atoms:
        edges = np.searchsorted(np.cumsum(mass), np.linspace(0.0, 1.0, max_atoms + 1)[1:-1])  # ascending
        starts = np.concatenate([[0], edges[np.diff(edges, prepend=0) > 0]])
        merged = np.add.reduceat(mass, starts)
        values = np.add.reduceat(mass * values, starts) / merged
        mass = merged
    moments = [float(sum(w * law.moments[k] for w, law in zip(weight, laws, strict=True))) for k in range(3)]
    return Law(
        values=values,
        weights=mass / mass.sum(),
        moments=(moments[0], moments[1], moments[2]),
        label="mix",
        capped_share=float(sum(w * law.capped_share for w, law in zip(weight, laws, strict=True))),
    )


@lru_cache(maxsize=64)
def _together(laws: tuple[Law, ...]) -> tuple[FloatArray, FloatArray, IntArray]:
    """Atoms of several laws in ascending order, their weights, and which law each is of; a search mixes the same laws
    in many proportions."""
    values = np.concatenate([law.values for law in laws])
    order = np.argsort(values, kind="stable")
    owner = np.repeat(np.arange(len(laws)), [law.values.size for law in laws])
    return values[order], np.concatenate([law.weights for law in laws])[order], owner[order]


def mix_lengths(lengths: Sequence[Lengths], shares: Sequence[float]) -> Lengths:
    """The joint law of a request drawn from one of several classes; joint moments are mixed exactly."""
    if len(lengths) == 1:
        return lengths[0]
    weight = np.asarray(shares, dtype=float) / float(np.sum(shares))
    return Lengths(
        prompt=mix_laws([item.prompt for item in lengths], weight.tolist()),
        output=mix_laws([item.output for item in lengths], weight.tolist()),
        reasoning=None,
        e_pn=float(sum(w * item.e_pn for w, item in zip(weight, lengths, strict=True))),
        e_p2n=float(sum(w * item.e_p2n for w, item in zip(weight, lengths, strict=True))),
        e_pn2=float(sum(w * item.e_pn2 for w, item in zip(weight, lengths, strict=True))),
    )
