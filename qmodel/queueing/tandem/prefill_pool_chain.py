"""Waiting prompt tokens of a replica that only prefills: a Markov chain over steps, solved on a lattice.

Own construction, see docs/theory/stages.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.queueing.servers.erlang import erlang_c
from qmodel.types import FloatArray, Law

__all__ = ["CELLS", "ComplexArray", "Lattice", "Steps", "back", "between", "lattice_of", "on_cells", "settled"]

ComplexArray = npt.NDArray[np.complex128]

CELLS = 96  # token lattice
_ROUNDS = 10  # of the search for the rates of a shortest-queue router
_CLOSE = 0.01  # relative error of the share that finds its replica idle
_SURELY_BUSY = 0.9999
_EVENNESS = 0.65  # how far it evens out what steps collect; the constant of unified pools, docs/theory/replica.md
_LONGEST_QUEUES = 7.0  # mean backlogs that the lattice spans beyond a long prompt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lattice:
    """Prompt tokens on a lattice of ``cells`` points, the budget a whole number of cells.

    Attributes:
        cell: tokens between points.
        budget: tokens of one step, infinite where no backlog reaches it.
        tau_s: step time without tokens.
        wave: transform of one prompt, shape (F,).
    """

    cell: float
    budget: float
    tau_s: float
    delta_s: float
    prompt: Law
    wave: ComplexArray

    @property
    def tokens(self) -> FloatArray:
        """The points, shape (K,)."""
        return np.arange(CELLS, dtype=np.float64) * self.cell

    @property
    def budget_cells(self) -> int:
        """The budget in cells; beyond the lattice where it never binds."""
        return CELLS if np.isinf(self.budget) else round(self.budget / self.cell)

    def step_s(self) -> FloatArray:
        """Length of the step that begins with each point's tokens, shape (K,)."""
        return np.asarray(self.tau_s + self.delta_s * np.minimum(self.tokens, self.budget))


def lattice_of(prompt: Law, rate_rps: float, tau_s: float, delta_s: float, budget: float, machines: int) -> Lattice:
    """A lattice that spans a long prompt and what can wait before it."""
    first, second, _ = prompt.moments
    per_token = delta_s + tau_s / budget
    load = min(rate_rps * first * per_token, 0.97)
    queue = rate_rps * second * per_token / (2.0 * (1.0 - load)) / machines
    step_s = tau_s / max(1.0 - rate_rps * first * delta_s, 0.05)
    arriving = rate_rps * min(step_s, tau_s + delta_s * budget)
    span = prompt.quantile(0.9995) + arriving * first + 4.0 * np.sqrt(arriving * second) + _LONGEST_QUEUES * queue
    cell = span / (CELLS - 2)
    if budget >= span:
        budget = np.inf
    elif budget >= cell:
        cell = budget / np.floor(budget / cell)
    else:  # a cell is several steps long
        steps = np.ceil(cell / budget)
        budget, tau_s, cell = steps * budget, steps * tau_s, steps * budget
    wave = np.fft.rfft(on_cells(prompt, cell), 2 * CELLS)
    return Lattice(cell=float(cell), budget=float(budget), tau_s=tau_s, delta_s=delta_s, prompt=prompt, wave=wave)


def on_cells(law: Law, cell: float) -> FloatArray:
    """The law on the lattice, each atom split between its neighbours so that the mean stays."""
    position = np.minimum(law.values / cell, CELLS - 1.0)
    below = np.minimum(np.floor(position + 1e-9).astype(int), CELLS - 2)
    above = np.clip(position - below, 0.0, 1.0) * law.weights
    return np.asarray(
        np.bincount(below, weights=law.weights - above, minlength=CELLS)
        + np.bincount(below + 1, weights=above, minlength=CELLS)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """Stationary law over steps; states are one prompt present with V tokens (first K), then several (last K).

    Attributes:
        alone_rps, shared_rps: arrivals at a replica with one request, and with more.
        law: probability that a step begins in each state, shape (2K,).
        step_s: its length, shape (2K,).
        window_s: time over which a step with several prompts collects arrivals, shape (K,).
        shared_step_s: mean step with several prompts.
        idle: probability that nothing is left when a step ends.
        arrivals: mean arrivals from one step's beginning to the next one's.
        pairs: E[A (A - 1)] of those that fall into one step.
        cycle_s: mean time from one step's beginning to the next one's.
    """

    alone_rps: float
    shared_rps: float
    law: FloatArray
    step_s: FloatArray
    window_s: FloatArray
    shared_step_s: float
    idle: float
    arrivals: float
    pairs: float
    cycle_s: float
    epoch_scv: float


def settled(lattice: Lattice, rate_rps: float, machines: int) -> Steps:
    """The chain with the arrival rates that a router of ``machines`` replicas makes of the stream.

    In M/M/c terms a shortest-queue router of c replicas with busy share rho sends to a replica with one request
    mu B (1 - rho^c) / (1 - B), and to one with more mu rho^c, where mu is requests per busy second and B Erlang's
    probability that all are busy. The ratio of the two is kept and their size is chosen so that the share B of the
    arrivals meets a busy replica here too. Arrivals at several prompts are spread over steps more evenly than by
    length, since a replica in a long step, which nobody leaves, is passed over.
    """
    solved = _chain(lattice, rate_rps, rate_rps, rate_rps, 0.0, 0.0)
    if machines == 1:
        return solved
    evenness = _EVENNESS * (1.0 - 1.0 / machines)
    busy = min(max(rate_rps * (lattice.tau_s + lattice.delta_s * lattice.prompt.mean), 1e-9), 0.98)
    typical_s = solved.shared_step_s
    all_busy = float(erlang_c(machines * busy, machines))
    size = np.log(max(all_busy * (1.0 - busy**machines) / (busy * (1.0 - all_busy)), 1e-12))  # as in M/M/c
    low, high = -np.inf, np.inf
    above = below = 1.0
    for _ in range(_ROUNDS):
        alone = rate_rps * float(np.exp(size))
        solved = _chain(lattice, rate_rps, alone, rate_rps / busy * busy**machines, evenness, typical_s)
        typical_s = solved.shared_step_s
        busy = min(float(solved.law @ solved.step_s) * rate_rps / solved.arrivals, _SURELY_BUSY)
        excess = float(np.log(solved.idle / solved.arrivals / (1.0 - erlang_c(machines * busy, machines))))
        if abs(excess) < _CLOSE:
            break
        if excess > 0.0:
            low, above = size, excess
        else:
            high, below = size, -excess
        if np.isinf(low) or np.isinf(high):
            size += np.sign(excess) * min(max(abs(excess), _CLOSE), 1.0)
        else:
            size = low + (high - low) * min(max(above / (above + below), 0.1), 0.9)
    return solved


def _chain(
    lattice: Lattice, rate_rps: float, alone_rps: float, shared_rps: float, evenness: float, typical_s: float
) -> Steps:
    """Solve the balance equations of one replica; it gets ``rate_rps`` on average."""
    step_s = lattice.step_s()
    one, more = alone_rps, shared_rps
    window_s = (1.0 - evenness) * step_s + evenness * typical_s  # over which a step with several prompts collects
    decay = more * (1.0 - lattice.wave)  # compound Poisson arrivals of tokens, per second
    time = step_s[:, None]
    single = _both(one, more, step_s)  # exactly one arrival
    several = lattice.wave * (one * between(decay, one, time) - one * between(more, one, time))
    first = back(several)
    if more > 0.0:
        wide = window_s[:, None]
        second = back(np.exp(-decay * wide) - np.exp(-more * wide) * (1.0 + more * wide * lattice.wave))
    else:
        second = np.zeros_like(first)
    own = on_cells(lattice.prompt, lattice.cell)
    none_alone, none_shared = np.exp(-one * step_s), np.exp(-more * window_s)
    once_shared = more * window_s * none_shared
    move = np.zeros((2 * CELLS, 2 * CELLS))
    kept = min(lattice.budget_cells, CELLS - 1) + 1  # states whose tokens one step takes
    move[:kept, :CELLS] = (none_alone + single)[:kept, None] * own
    move[:kept, CELLS:] = first[:kept]
    shared = slice(CELLS, CELLS + kept)
    move[shared, :CELLS] = (none_shared + once_shared)[:kept, None] * own
    move[shared, CELLS:] = second[:kept]
    for state in range(kept, CELLS):
        left = state - lattice.budget_cells
        move[state, left] = none_alone[state]
        move[state, CELLS:] = _up(first[state] + single[state] * own, left)
        come = second[state] + once_shared[state] * own
        come[0] += none_shared[state]
        move[CELLS + state, CELLS:] = _up(come, left)
    law = _balance(move)
    ends = np.arange(2 * CELLS) % CELLS < kept
    steps = np.tile(step_s, 2)
    gone = np.concatenate([none_alone, none_shared]) * ends
    idle = float(law @ gone)
    once = -np.expm1(-one * step_s)
    later = more * np.maximum(step_s - (once / one if one > 0.0 else step_s), 0.0)
    come = np.concatenate([once + later, more * window_s])
    pairs = np.concatenate(
        [2.0 * later + np.where(once > 0, later**2 / np.maximum(once, 1e-300), 0.0), (more * window_s) ** 2]
    )
    arrivals = float(law @ come) + idle
    cycle_s = max(arrivals / rate_rps, float(law @ steps))
    pause_s = (cycle_s - float(law @ steps)) / max(idle, 1e-300)
    square = float(law @ (steps**2 + gone * (2.0 * steps * pause_s + 2.0 * pause_s**2)))
    return Steps(
        alone_rps=one,
        shared_rps=more,
        law=law,
        step_s=steps,
        window_s=window_s,
        shared_step_s=float(law[CELLS:] @ step_s) / max(float(law[CELLS:].sum()), 1e-300),
        idle=idle,
        arrivals=arrivals,
        pairs=float(law @ pairs),
        cycle_s=cycle_s,
        epoch_scv=max(square / cycle_s**2 - 1.0, 0.0),
    )


def between(one: ComplexArray | float, other: float, time: FloatArray) -> ComplexArray:
    """(exp(-one t) - exp(-other t)) / (other - one), also where the two are the same; broadcasts."""
    gap = (other - np.asarray(one, dtype=complex)) * time
    small = np.abs(gap) < 1e-6
    ratio = np.where(small, 1.0 - gap / 2.0, -np.expm1(-gap) / np.where(small, 1.0, gap))
    return np.asarray(np.exp(-np.asarray(one) * time) * time * ratio)


def _both(one: float, more: float, time: FloatArray) -> FloatArray:
    """Probability of exactly one arrival in ``time``, the first at rate ``one``, the next at rate ``more``."""
    return np.asarray(one * between(more, one, time).real)


def back(transform: ComplexArray) -> FloatArray:
    """Back to the lattice; what lies beyond its end is put at the end."""
    full = np.fft.irfft(transform, 2 * CELLS, axis=-1)
    law = full[..., :CELLS].copy()
    law[..., -1] += full[..., CELLS:].sum(axis=-1)
    return np.asarray(np.maximum(law, 0.0))


def _up(law: FloatArray, cells: int) -> FloatArray:
    """The law moved up, nothing beyond the end."""
    moved = np.zeros_like(law)
    moved[cells:] = law[: CELLS - cells]
    moved[-1] += law[CELLS - cells :].sum()
    return moved


def _balance(move: FloatArray) -> FloatArray:
    """Stationary law of a transition matrix."""
    move = move / move.sum(axis=1, keepdims=True)
    equations = move.T - np.eye(move.shape[0])
    equations[-1] = 1.0
    right = np.zeros(move.shape[0])
    right[-1] = 1.0
    law = np.maximum(np.linalg.solve(equations, right), 0.0)
    return np.asarray(law / law.sum())
