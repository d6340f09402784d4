"""Phase-type service times: laws of the time to absorption of a small Markov chain, and fits to moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from qmodel.types.laws import FloatArray

__all__ = ["PhaseType"]

_MAX_PHASES = 50  # keeps the keys of phase configurations within 64-bit integers
_ROUNDING = 1e-9  # relative slack on sums that a user's own rounding may cost


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseType:
    """A service time that passes through phases: it starts in phase i with probability ``initial[i]``, moves by the
    rates of ``generator`` and ends by what the rows of ``generator`` lack to zero.

    Attributes:
        initial: probabilities of the first phase, sum 1.
        generator: rates among the phases, 1/s; diagonal negative, the rest at least 0, row sums at most 0.

    Raises:
        ValueError: if they are no such law, naming what is wrong.

    Example:
        >>> PhaseType(initial=(1.0,), generator=((-2.0,),)).mean_s
        0.5

    Reference: Neuts, Matrix-Geometric Solutions in Stochastic Models (1981), ch. 2.
    """

    initial: tuple[float, ...]
    generator: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        start = np.asarray(self.initial, dtype=float)
        phases = start.size
        if start.ndim != 1 or not 1 <= phases <= _MAX_PHASES:
            raise ValueError(f"service initial must hold 1 to {_MAX_PHASES} probabilities (got shape {start.shape})")
        if not np.all(start >= 0.0) or abs(start.sum() - 1.0) > _ROUNDING:
            raise ValueError(f"service initial must be probabilities that sum to 1 (got {self.initial!r})")
        if len(self.generator) != phases or any(len(row) != phases for row in self.generator):
            raise ValueError(f"service generator must have {phases} rows of {phases} rates, as many as initial")
        rates = np.asarray(self.generator, dtype=float)
        scale = np.abs(rates).max()
        moves = rates - np.diag(np.diag(rates))
        if not np.all(np.isfinite(rates)) or np.any(moves < 0.0) or np.any(rates.sum(axis=1) > _ROUNDING * scale):
            raise ValueError(
                "service generator must be finite, at least 0 off its diagonal, with row sums of at most 0 "
                f"(got {self.generator!r})"
            )
        speed = -np.diag(rates)
        if np.any(speed <= 0.0) or np.linalg.cond(rates / speed[:, None]) > 1e12:
            raise ValueError(f"service generator must leave every phase in the end (got {self.generator!r})")
        object.__setattr__(self, "initial", tuple(start.tolist()))
        object.__setattr__(self, "generator", _nested(rates))

    @classmethod
    def hyperexponential(cls, probabilities: Sequence[float], means_s: Sequence[float]) -> Self:
        """A choice between exponential times.

        Args:
            probabilities: of each branch, sum 1.
            means_s: mean of each branch, s, positive.

        Example:
            >>> PhaseType.hyperexponential((0.5, 0.5), (1.0, 3.0)).mean_s
            2.0
        """
        means = np.asarray(means_s, dtype=float)
        if not np.all(np.isfinite(means) & (means > 0.0)):
            raise ValueError(f"service means_s must be finite and above 0 s (got {means_s!r})")
        return cls(initial=tuple(float(share) for share in probabilities), generator=_nested(np.diag(-1.0 / means)))

    @classmethod
    def erlang(cls, phases: int, mean_s: float) -> Self:
        """A sum of ``phases`` equal exponential times with mean ``mean_s`` in total; its scv is 1 / phases.

        Example:
            >>> round(PhaseType.erlang(4, 2.0).scv, 12)
            0.25
        """
        return cls.erlang_mixture(phases, 0.0, mean_s)

    @classmethod
    def erlang_mixture(cls, phases: int, skip: float, mean_s: float) -> Self:
        """Erlang time of ``phases`` equal phases, the first of which is skipped with probability ``skip``.

        Example:
            >>> round(PhaseType.erlang_mixture(2, 0.5, 3.0).mean_s, 12)
            3.0
        """
        if not (isinstance(phases, int | np.integer) and 1 <= phases <= _MAX_PHASES):
            raise ValueError(f"service phases must be an integer from 1 to {_MAX_PHASES} (got {phases!r})")
        if not (np.isfinite(mean_s) and mean_s > 0.0):
            raise ValueError(f"service mean_s must be finite and above 0 s (got {mean_s!r})")
        rate = (phases - skip) / mean_s
        chain = rate * (np.eye(phases, k=1) - np.eye(phases))
        start = np.zeros(phases)
        start[0], start[min(1, phases - 1)] = start[0] + 1.0 - skip, start[min(1, phases - 1)] + skip
        if phases == 1:
            start[0] = 1.0
        return cls(initial=tuple(start.tolist()), generator=_nested(chain))

    @classmethod
    def of_moments(cls, mean_s: float, scv: float, third: float | None = None) -> Self:
        """The smallest usual law with these moments.

        Exponential for scv 1; above, the hyperexponential of two branches with all three moments (branches of equal
        load where the third is not given); below, the mixture of Erlang-(k-1) and Erlang-k of one rate, which is
        Erlang-k where scv = 1/k and takes no third moment.

        Args:
            mean_s: E[S], s.
            scv: Var[S] / E[S]^2, at least 1/50.
            third: E[S^3], s^3.

        Raises:
            ValueError: where no such law has the moments, saying what would do.

        Example:
            >>> len(PhaseType.of_moments(1.0, 4.0).initial)
            2

        Reference: Tijms, A First Course in Stochastic Models (2003), app. B; Whitt, BSTJ 61 (1982).
        """
        if third is None and scv >= 1.0:
            root = np.sqrt((scv - 1.0) / (scv + 1.0))
            short = 0.5 * (1.0 + root)
            if scv - 1.0 < _ROUNDING:
                return cls.erlang(1, mean_s)
            means = (mean_s / (2.0 * short), mean_s / (2.0 * (1.0 - short)))
            return cls.hyperexponential((short, 1.0 - short), means)
        if scv < 1.0 - _ROUNDING:
            return cls._of_low_scv(mean_s, scv, third)
        second = (1.0 + scv) / 2.0
        reduced = float(third or 0.0) / mean_s**3 / 6.0
        if abs(second - 1.0) < _ROUNDING and abs(reduced - 1.0) < 1e-6:
            return cls.erlang(1, mean_s)
        if second - 1.0 < _ROUNDING or reduced <= second**2:
            least = 6.0 * second**2 * mean_s**3
            raise ValueError(
                f"no two-phase law has scv {scv:g} with third moment {third:g} s^3: it needs scv above 1 and more than "
                f"{least:g} s^3; leave the third moment out, state the phases with PhaseType, or use method='approx'"
            )
        total = (reduced - second) / (second - 1.0)  # phase means are the roots of x^2 - total x + product
        product = total - second
        gap = np.sqrt(max(total**2 - 4.0 * product, 0.0))
        long = (total + gap) / 2.0
        brief = product / long
        share = (1.0 - brief) / (long - brief)
        return cls.hyperexponential((1.0 - share, share), (brief * mean_s, long * mean_s))

    @classmethod
    def _of_low_scv(cls, mean_s: float, scv: float, third: float | None) -> Self:
        if scv < 1.0 / _MAX_PHASES:
            raise ValueError(
                f"scv {scv:g} would need more than {_MAX_PHASES} phases; scv 0 (constant) is solved exactly without "
                "phases, else use method='approx'"
            )
        phases = int(np.ceil(1.0 / scv - _ROUNDING))
        inside = phases * (1.0 + scv) - phases**2 * scv
        skip = max((phases * scv - np.sqrt(max(inside, 0.0))) / (1.0 + scv), 0.0)
        found = cls.erlang_mixture(phases, float(skip), mean_s)
        if third is not None and abs(found.moments[2] / third - 1.0) > 1e-3:
            raise ValueError(
                f"a mixture of Erlang laws of scv {scv:g} has third moment {found.moments[2]:g} s^3 (got {third:g}); "
                "leave the third moment out, state the phases with PhaseType, or use method='approx'"
            )
        return found

    @property
    def moments(self) -> tuple[float, float, float]:
        """E[S], E[S^2], E[S^3] in s, s^2, s^3."""
        stay = np.linalg.inv(-np.asarray(self.generator, dtype=float))
        start, one = np.asarray(self.initial, dtype=float), np.ones(len(self.initial))
        first, second, third = stay @ one, stay @ (stay @ one), stay @ (stay @ (stay @ one))
        return float(start @ first), float(2.0 * start @ second), float(6.0 * start @ third)

    @property
    def mean_s(self) -> float:
        """E[S], s."""
        return self.moments[0]

    @property
    def scv(self) -> float:
        """Var[S] / E[S]^2."""
        first, second, _ = self.moments
        return max(second / first**2 - 1.0, 0.0)


def _nested(rates: FloatArray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in rates.tolist())
