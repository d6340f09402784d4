"""Prompt tokens that wait at the start of a step: step lengths, colliding prompts and the step's token budget.

Prompts that arrive during a step are prefilled in the next one, up to the token
budget; the rest waits. The tokens waiting at the start of a step form a Markov
chain, whose stationary law this module finds on a lattice. Own construction, see
docs/theory/replica.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from qmodel.queueing.replica.chain import Occupancy, full_budget_batch, node_mean
from qmodel.queueing.replica.stacks import ReplicaStack, WorkStack
from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, Law, Replica

__all__ = ["CELLS", "Backlog", "ComplexArray", "backlog", "lumped", "on_lattice"]

ComplexArray = npt.NDArray[np.complex128]

CELLS = 80  # token lattice
_FAR_CLUMP = 8.0  # means of a geometric clump beyond which next to none is larger
_NODES = 10  # step lengths between an empty and a full budget


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Backlog:
    """Prompt tokens waiting at the start of a step and the step that follows, C cases.

    Attributes:
        cell: tokens per lattice cell, shape (C,).
        rate_rps: arrivals of one replica, shape (C,).
        idle: share of arrivals that meet an idle replica, shape (C,).
        tau_s: mean step time without prefill that the others meet, shape (C,).
        budget: tokens a step has for prompts, shape (C,).
        wave: 1 - transform of one prompt on the lattice, shape (C, F).
        gone: transform of the prompt tokens that each of them collects, shape (C, L, F).
        step_s: step lengths, shape (C, L); the last has a full budget and leaves tokens over.
        window_s: time over which such a step collects arrivals, shape (C, L).
        weight: probability that an arrival falls into it, shape (C, L).
        left: lattice law of the tokens a full step leaves over, shape (C, cells).
        prompt: law of all prompts.
        lattice: it on the token lattice, shape (C, cells).
        spectrum: transform of that, shape (C, F).
        clump: requests that come with an arrival beyond what chance brings, shape (C,); None: Poisson.
    """

    cell: FloatArray
    rate_rps: FloatArray
    idle: FloatArray
    tau_s: FloatArray
    budget: FloatArray
    wave: ComplexArray
    gone: ComplexArray
    step_s: FloatArray
    window_s: FloatArray
    weight: FloatArray
    left: FloatArray
    prompt: Law
    lattice: FloatArray
    spectrum: ComplexArray
    clump: FloatArray | None = None


def backlog(
    replica: Replica | ReplicaStack,
    work: Work | WorkStack,
    seen: Occupancy,
    rate_rps: FloatArray,
    evenness: FloatArray | float = 0.0,
    clump: FloatArray | None = None,
) -> Backlog:
    """Solve the step-length recursion for its stationary law.

    Args:
        replica: engine instance.
        work: requests of all classes.
        seen: occupancy from the chain, C cases.
        rate_rps: arrivals at one replica, shape (C,).
        evenness: 0 where arrivals do not depend on the step under way, towards 1 where a router sends no more
            requests to a replica in a long step than to the others, shape (C,).
        clump: requests that come with an arrival beyond what chance brings, shape (C,); arrivals are then batches of
            geometric size. None: Poisson.
    """
    prompt = work.lengths.prompt
    batch, tau = _met_batch(replica, work, seen)
    budget = np.maximum(replica.max_batched_tokens - batch, 1.0)
    reach = _reach(replica, prompt, rate_rps, tau, budget)
    if clump is not None:
        reach = reach + _FAR_CLUMP * np.maximum(clump, 0.0) * prompt.mean
    cell = reach / (CELLS - 2)
    lattice = on_lattice(prompt, cell)
    spectrum = np.fft.rfft(lattice, 2 * CELLS, axis=1)
    wave = 1.0 - spectrum
    if clump is not None:
        wave = wave / (1.0 + clump[:, None] * wave)
    span = np.minimum(budget, cell * (CELLS - 1))
    steps, windows = _steps(replica, prompt, rate_rps, tau, span, evenness)
    gone = _arrivals(rate_rps, windows, wave)
    nodes, left = _by_room(lumped(gone), budget / cell, span / cell)
    steps, windows, gone = (np.concatenate([item, item[:, -1:]], axis=1) for item in (steps, windows, gone))
    weight = np.concatenate([nodes, left.sum(axis=1, keepdims=True)], axis=1) * windows  # arrivals fall into long ones
    spare = np.zeros((cell.size, CELLS))
    spare[:, : left.shape[1]] = left
    spare[:, 0] += 1e-300
    return Backlog(
        cell=cell,
        rate_rps=rate_rps,
        idle=seen.idle,
        tau_s=tau,
        budget=budget,
        wave=wave,
        gone=gone,
        step_s=steps,
        window_s=windows,
        weight=weight / weight.sum(axis=1, keepdims=True),
        left=spare / spare.sum(axis=1, keepdims=True),
        prompt=prompt,
        lattice=lattice,
        spectrum=spectrum,
        clump=clump,
    )


def _met_batch(
    replica: Replica | ReplicaStack, work: Work | WorkStack, seen: Occupancy
) -> tuple[FloatArray, FloatArray]:
    """Mean number decoding and mean step time without prefill that arrivals at a busy replica meet, shapes (C,).

    What the chain holds beyond the batch at which every budget is full waits for its prefill.

    The batch changes over many steps and the step time hardly: two bands of it instead of one move no percentile by
    more than 4 %, and the mean by 0.1 %.
    """
    busy = (seen.batch >= 1.0 - 1e-9).astype(float)
    decoding = np.minimum(seen.batch, np.asarray(full_budget_batch(replica, work))[..., None])
    tau = replica.step.tau_s(decoding, work.context)
    total, batch, pace = (node_mean(seen.seen, item) for item in (busy, busy * decoding, busy * tau))
    some = total > 0.0
    if some.all():
        return batch / total, pace / total
    share = np.where(some, total, 1.0)
    alone = replica.step.tau_s(1.0, work.context)
    return np.where(some, batch / share, 1.0), np.where(some, pace / share, alone)


def _reach(
    replica: Replica | ReplicaStack, prompt: Law, rate: FloatArray, tau: FloatArray, budget: FloatArray
) -> FloatArray:
    """Tokens the lattice must span: a long prompt, and what can wait before it."""
    first, second, _ = prompt.moments
    delta = replica.step.delta_s
    per_token = delta + tau / budget
    load = np.minimum(rate * first * per_token, 0.95)
    queue = rate * second * per_token / (2.0 * (1.0 - load))
    step = np.minimum(tau / np.maximum(1.0 - rate * first * delta, 0.05), tau + delta * budget)
    return _long_tokens(prompt) + rate * step * first + 4.0 * np.sqrt(rate * step * second) + 5.0 * queue


@lru_cache(maxsize=512)
def _long_tokens(prompt: Law) -> float:
    """A prompt that hardly one is longer than."""
    return prompt.quantile(0.9995)


def on_lattice(law: Law, cell: FloatArray) -> FloatArray:
    """The law on lattice points k * cell, each atom split between its neighbours so that the mean stays."""
    position = np.minimum(law.values / cell[:, None], CELLS - 1.0)
    below = np.minimum(position.astype(np.intp), CELLS - 2)
    above = (position - below) * law.weights
    below += np.arange(0, cell.size * CELLS, CELLS)[:, None]
    size = cell.size * CELLS
    lattice = np.bincount(below.ravel(), (law.weights - above).ravel(), size)
    lattice[1:] += np.bincount(below.ravel(), above.ravel(), size)[:-1]
    return np.asarray(lattice, dtype=float).reshape(cell.size, CELLS)


def _steps(
    replica: Replica | ReplicaStack,
    prompt: Law,
    rate: FloatArray,
    tau: FloatArray,
    span: FloatArray,
    evenness: FloatArray | float,
) -> tuple[FloatArray, FloatArray]:
    """Step lengths from an empty to a full budget, and the time over which each collects arrivals, (C, nodes + 1).

    With a router that looks at queues a replica in a long step, which lets nobody leave, is passed over: what a step
    collects is then nearer to that of a mean step.
    """
    delta = replica.step.delta_s
    steps = tau[:, None] + (delta * span)[:, None] * _FILLED
    typical = np.minimum(tau / np.maximum(1.0 - rate * prompt.mean * delta, 0.05), steps[:, -1])
    even = np.broadcast_to(evenness, tau.shape)[:, None]
    return steps, (1.0 - even) * steps + even * typical[:, None]


_FILLED = np.linspace(0.0, 1.0, _NODES + 1)


def _by_room(collected: FloatArray, budget_cells: FloatArray, span_cells: FloatArray) -> tuple[FloatArray, FloatArray]:
    """As :func:`_stationary`; cases whose budget nothing on the lattice exceeds have far fewer equations."""
    free = budget_cells >= CELLS - 1.0
    if free.all() or not free.any():
        return _stationary(collected, budget_cells, span_cells)
    parts = [(rows, *_stationary(collected[rows], budget_cells[rows], span_cells[rows])) for rows in (free, ~free)]
    law = np.empty((free.size, _NODES + 1))
    left = np.zeros((free.size, max(item.shape[1] for _, _, item in parts)))
    for rows, nodes, over in parts:
        law[rows], left[rows, : over.shape[1]] = nodes, over
    return law, left


def _stationary(
    collected: FloatArray, budget_cells: FloatArray, span_cells: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Probabilities of the step lengths (C, nodes + 1), and lattice law of what full steps leave over (C, S).

    A step with V tokens waiting takes min(V, budget) of them and leaves the rest; the next step finds what is left
    and what the step collected. So the step length and, behind a full step, the tokens left tell all: V is a mixture
    of as many laws as there are of these, and the balance equations are solved for their probabilities.
    """
    cases = collected.shape[0]
    whole = np.minimum(np.floor(budget_cells), CELLS - 1.0)  # the last cell that fits
    room = CELLS - 1 - int(whole.min())
    size = min(room + 2, CELLS) if room else 1
    tokens = np.arange(CELLS)
    place = np.minimum(tokens / span_cells[:, None], 1.0) * _NODES
    filled = _split(np.where(tokens <= whole[:, None], place, 2.0 * _NODES), _NODES + 1)
    sources = np.empty((cases, _NODES + 1 + size, CELLS))
    sources[:, : _NODES + 1] = collected
    # what a full step collects behind j cells left over is its law moved by j, with what passes the end put there
    padded = np.concatenate([np.zeros((cases, size - 1)), collected[:, -1]], axis=1)
    sources[:, _NODES + 1 :] = sliding_window_view(padded, CELLS, axis=1)[:, ::-1]
    sources[:, _NODES + 2 :, -1] += np.cumsum(collected[:, -1, :0:-1], axis=1)[:, : size - 1]
    balance = np.zeros((cases, _NODES + 1 + size, _NODES + 1 + size))
    balance[:, : _NODES + 1] = np.swapaxes(sources @ filled, 1, 2)
    if room:
        # cells beyond the budget by m + 1 - part leave that over: a shift, with parts to the points beside it
        part = np.where(budget_cells < CELLS - 1.0, budget_cells - whole, 0.0)[:, None, None]
        beyond = (whole[:, None] + 1.0 + np.arange(size)).astype(np.intp)
        left = sources[np.arange(cases)[:, None], :, np.minimum(beyond, CELLS - 1)]
        left[beyond >= CELLS] = 0.0
        balance[:, _NODES + 1 :] = part * left
        balance[:, _NODES + 2 :] += (1.0 - part) * left[:, :-1]
    diagonal = np.arange(balance.shape[1])
    balance[:, diagonal, diagonal] -= 1.0
    balance[:, 0] = 1.0
    total = np.zeros((*balance.shape[:2], 1))
    total[:, 0] = 1.0
    law = np.maximum(np.linalg.solve(balance, total)[..., 0], 0.0)
    law /= law.sum(axis=1, keepdims=True)
    return law[:, : _NODES + 1], law[:, _NODES + 1 :]


def _split(position: FloatArray, count: int) -> FloatArray:
    """Shares of each position that belong to the points 0 to ``count`` - 1 beside it; none far from them."""
    return np.maximum(1.0 - np.abs(position[..., None] - np.arange(count)), 0.0)


def _arrivals(rate: FloatArray, seconds: FloatArray, wave: ComplexArray) -> ComplexArray:
    """Transform of the prompt tokens that arrive in evenly spaced times, shape (C, n, F)."""
    ratio = np.exp(-(rate * (seconds[:, 1] - seconds[:, 0]))[:, None] * wave)
    powers = np.empty((*seconds.shape, wave.shape[1]), dtype=complex)
    powers[:, 0] = np.exp(-(rate * seconds[:, 0])[:, None] * wave)
    for node in range(1, seconds.shape[1]):
        np.multiply(powers[:, node - 1], ratio, out=powers[:, node])
    return powers


def lumped(transform: ComplexArray) -> FloatArray:
    """Back to the lattice; what lies beyond its end is put at the end."""
    full = np.fft.irfft(transform, 2 * CELLS, axis=-1)
    law = np.maximum(full[..., :CELLS], 0.0)
    law[..., -1] += np.maximum(full[..., CELLS:].sum(axis=-1), 0.0)
    law /= law.sum(axis=-1, keepdims=True)
    return law
