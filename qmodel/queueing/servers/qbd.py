"""Exact M/PH/c by matrix-analytic methods: moments of the wait and its whole distribution."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy import linalg

from qmodel.queueing.servers.phase_type import PhaseType
from qmodel.queueing.servers.qbd_levels import MAX_STATES, Levels, phase_levels, state_count
from qmodel.types.laws import FloatArray

__all__ = ["MatrixWait", "solve_phase_queue"]

_REDUCTIONS = 60  # the reduction squares its error at each step; thirty do for utilisations up to 1 - 1e-8
_TERMS = 24  # of the exponential series over a step in which at most half an event is expected
_HALVINGS = 50


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatrixWait:
    """Wait in M/PH/c: P(W > t) = left exp(F t) right, F with non-negative entries off its diagonal.

    Attributes:
        p_wait: probability of waiting.
        mean_s: mean wait over all arrivals, s.
        square_s2: mean squared wait, s^2.
    """

    p_wait: float
    mean_s: float
    square_s2: float
    left: FloatArray = field(repr=False)
    decay: FloatArray = field(repr=False)
    right: FloatArray = field(repr=False)
    step_s: float
    _ladder: list[FloatArray] = field(default_factory=list, repr=False)

    def survival(self, wait_s: float) -> float:
        """P(W > ``wait_s``)."""
        whole, rest = divmod(max(wait_s, 0.0) / self.step_s, 1.0)
        state, steps, rung = self.left, int(whole), 0
        while steps and state.any():
            if steps & 1:
                state = state @ self._rung(rung)
            steps >>= 1
            rung += 1
        return float(np.polynomial.polynomial.polyval(rest, self._series(state)))

    def quantile(self, tail: float) -> float:
        """The wait that a share ``tail`` of all arrivals exceeds, s; 0 where no more wait."""
        if tail >= self.p_wait:
            return 0.0
        rung = 0
        while float(self.left @ self._rung(rung) @ self.right) > tail:
            rung += 1
        state, steps = self.left, 0
        for lower in range(rung - 1, -1, -1):
            onward = state @ self._rung(lower)
            if float(onward @ self.right) > tail:
                state, steps = onward, steps + (1 << lower)
        series = self._series(state)
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            above = float(np.polynomial.polynomial.polyval(middle, series)) > tail
            low, high = (middle, high) if above else (low, middle)
        return (steps + low) * self.step_s

    def _rung(self, power: int) -> FloatArray:
        """exp(F step 2^power); non-negative, so that repeated squaring keeps its digits."""
        if not self._ladder:
            term = np.eye(len(self.left))
            total = term.copy()
            shift = float(np.max(-np.diag(self.decay))) * self.step_s
            positive = self.decay * self.step_s + shift * np.eye(len(self.left))
            for order in range(1, _TERMS):
                term = term @ positive / order
                total += term
            self._ladder.append(total * np.exp(-shift))
        while len(self._ladder) <= power:
            self._ladder.append(self._ladder[-1] @ self._ladder[-1])
        return self._ladder[power]

    def _series(self, state: FloatArray) -> FloatArray:
        """Taylor coefficients of P(W > t) within one step, in units of the step."""
        terms = np.empty(_TERMS)
        row = state
        for order in range(_TERMS):
            terms[order] = row @ self.right
            row = row @ self.decay * (self.step_s / (order + 1))
        return terms


@lru_cache(maxsize=64)
def solve_phase_queue(rate_rps: float, service: PhaseType, servers: int) -> MatrixWait:
    """Stationary wait of a stable M/PH/c queue.

    Args:
        rate_rps: arrivals per second, above 0, below servers / mean service.
        service: law of the service time.
        servers: c, an integer.

    Raises:
        ValueError: where c servers can be in more than 300 phase configurations.

    Reference: Latouche and Ramaswami, A logarithmic reduction algorithm for quasi-birth-death processes, J. Appl.
        Prob. 30 (1993); the wait by the distributional Little's law, see docs/theory/queueing.md.
    """
    states = state_count(servers, len(service.initial))
    if states > MAX_STATES:
        raise ValueError(
            f"{servers} servers with {len(service.initial)} phases have {states:,} configurations, above {MAX_STATES}; "
            "use fewer phases or servers, or method='approx'"
        )
    mean_s = service.mean_s
    levels = phase_levels(rate_rps * mean_s, service, servers)
    ascent = _ascent(levels)
    full = _full_level(levels, ascent)
    return _wait(levels, ascent, full, mean_s)


def _ascent(levels: Levels) -> FloatArray:
    """R above level c: expected time in the states one level up per time in this level."""
    count = len(levels.replace)
    inner = levels.local[-1] - levels.arrive * np.eye(count)
    if count == 1:  # exponential service: a plain birth-death chain
        return np.array([[levels.arrive / levels.replace[0, 0]]])
    factors = linalg.lu_factor(-inner, check_finite=False)
    rise = linalg.lu_solve(factors, levels.arrive * np.eye(count), check_finite=False)
    fall = linalg.lu_solve(factors, levels.replace, check_finite=False)
    descent, reach = fall.copy(), rise.copy()
    for _ in range(_REDUCTIONS):
        back = np.eye(count) - rise @ fall - fall @ rise
        both = linalg.solve(back, np.hstack([rise @ rise, fall @ fall]), check_finite=False)
        rise, fall = both[:, :count], both[:, count:]
        descent += reach @ fall
        reach = reach @ rise
        if np.abs(reach).max() < 1e-17 or np.abs(1.0 - descent.sum(axis=1)).max() < 1e-15:
            break
    return np.asarray(levels.arrive * np.linalg.inv(-(inner + levels.arrive * descent)))


def _full_level(levels: Levels, ascent: FloatArray) -> FloatArray:
    """Probabilities of the states with exactly c present, by backward elimination below c and normalisation."""
    servers = len(levels.up)
    steps: list[FloatArray] = []
    above = ascent @ levels.replace
    for n in range(servers, 0, -1):
        kept = -(levels.local[n] - levels.arrive * np.eye(len(levels.local[n])) + above)
        ratio = linalg.solve(kept.T, levels.arrive * levels.up[n - 1].T, check_finite=False).T
        steps.append(ratio)
        above = ratio @ levels.down[n]
    row, total = np.ones(1), 1.0
    for ratio in reversed(steps):
        row = row @ ratio
        total += float(row.sum())
    total += float(row @ ascent @ np.linalg.solve(np.eye(len(row)) - ascent, np.ones(len(row))))
    return row / total


def _wait(levels: Levels, ascent: FloatArray, full: FloatArray, mean_s: float) -> MatrixWait:
    """Moments from the queue length, whose factorial moments are those of the wait times powers of the rate."""
    one = np.ones(len(full))
    inverse = np.linalg.inv(np.eye(len(full)) - ascent)
    right = inverse @ one
    queued = full @ ascent @ inverse
    stay = levels.local[-1]
    decay = stay + ascent @ levels.replace
    arrive = levels.arrive
    return MatrixWait(
        p_wait=min(float(full @ right), 1.0),
        mean_s=float(queued @ right) / arrive * mean_s,
        square_s2=2.0 * float(queued @ ascent @ inverse @ right) / arrive**2 * mean_s**2,
        left=full,
        decay=decay / mean_s,
        right=right,
        step_s=0.5 * mean_s / float(np.max(-np.diag(decay))),
    )
