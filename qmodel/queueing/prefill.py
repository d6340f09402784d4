"""Prompt tokens that wait at the start of a step: step lengths, colliding prompts and the step's token budget.

Prompts that arrive during a step are prefilled in the next one, up to the token
budget; the rest waits. The tokens waiting at the start of a step form a Markov
chain, whose stationary law this module finds on a lattice. Own construction, see
docs/theory/replica.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.queueing.chain import Occupancy, full_budget_batch
from qmodel.queueing.work import Work
from qmodel.types import FloatArray, Law, Replica

__all__ = ["CELLS", "Backlog", "ComplexArray", "backlog", "lumped", "on_lattice"]

ComplexArray = npt.NDArray[np.complex128]

CELLS = 80  # token lattice
_NODES = 12  # step lengths between an empty and a full budget
_BATCH_LEVELS = np.array([0.0, 0.65, 1.0])  # arrivals sorted by the batch they meet; more levels change nothing
_STEP_LEVELS = np.array(
    [0.0, 0.2, 0.35, 0.5, 0.65, 0.77, 0.87, 0.94, 0.98, 0.995, 1.0]
)  # and by the step they fall into


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Backlog:
    """Prompt tokens waiting at the start of a step and the step that follows, C cases x Q batch levels.

    Attributes:
        cell: tokens per lattice cell, shape (C,).
        rate_rps: arrivals of one replica, shape (C,).
        level: share of arrivals that meet each batch level, shape (C, Q); the rest meets an idle replica.
        tau_s: step time of that level without prefill, shape (C, Q).
        budget: tokens a step has for prompts, shape (C, Q).
        wave: 1 - transform of one prompt on the lattice, shape (C, F).
        step_s: step lengths met by an arrival, in groups, shape (C, Q, G + 1); the last has a full budget.
        window_s: time over which such a step collects arrivals, shape (C, Q, G + 1).
        weight: their probabilities, shape (C, Q, G + 1).
        left: lattice law of the tokens a full step leaves over, shape (C, Q, cells).
    """

    cell: FloatArray
    rate_rps: FloatArray
    level: FloatArray
    tau_s: FloatArray
    budget: FloatArray
    wave: ComplexArray
    step_s: FloatArray
    window_s: FloatArray
    weight: FloatArray
    left: FloatArray


def backlog(
    replica: Replica, work: Work, seen: Occupancy, rate_rps: FloatArray, evenness: FloatArray | float = 0.0
) -> Backlog:
    """Solve the step-length recursion for its stationary law.

    Args:
        replica: engine instance.
        work: requests of all classes.
        seen: occupancy from the chain, C cases.
        rate_rps: arrivals at one replica, shape (C,).
        evenness: 0 where arrivals do not depend on the step under way, towards 1 where a router sends no more
            requests to a replica in a long step than to the others, shape (C,).
    """
    prompt = work.lengths.prompt
    level, batch, tau = _batch_levels(replica, work, seen)
    budget = np.maximum(replica.max_batched_tokens - np.minimum(batch, full_budget_batch(replica, work)), 1.0)
    cell = _reach(replica, prompt, rate_rps, tau, budget) / (CELLS - 2)
    wave = 1.0 - np.fft.rfft(on_lattice(prompt, cell), 2 * CELLS, axis=1)
    steps, windows = _steps(replica, prompt, rate_rps, cell, tau, budget, np.broadcast_to(evenness, rate_rps.shape))
    law, mass = _stationary(rate_rps, cell, wave, budget, windows)
    return _seen_by_arrival(rate_rps, cell, wave, level, tau, budget, law, steps, windows, mass)


def _batch_levels(replica: Replica, work: Work, seen: Occupancy) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Probability, mean batch and mean step time of arrivals in bands of the batch they meet, busy replicas only."""
    tau = replica.step.tau_s(seen.batch, work.context)
    busy = np.where(seen.batch >= 1.0 - 1e-9, seen.seen, 0.0)
    total = np.maximum(busy.sum(axis=1, keepdims=True), 1e-300)
    upper = np.cumsum(busy / total, axis=1)
    lower = upper - busy / total
    edge = _BATCH_LEVELS[:, None]
    part = np.minimum(upper[:, None, :], edge[1:]) - np.maximum(lower[:, None, :], edge[:-1])
    part = np.maximum(part, 0.0)
    weight = np.maximum(part.sum(axis=2), 1e-300)
    batch = (part @ seen.batch[:, :, None])[:, :, 0] / weight
    pace = (part @ tau[:, :, None])[:, :, 0] / weight
    nothing = busy.sum(axis=1, keepdims=True) <= 0.0
    batch = np.where(nothing, 1.0, batch)
    pace = np.where(nothing, float(replica.step.tau_s(1.0, work.context)), pace)
    return weight * (1.0 - seen.idle)[:, None], batch, pace


def _reach(replica: Replica, prompt: Law, rate: FloatArray, tau: FloatArray, budget: FloatArray) -> FloatArray:
    """Tokens the lattice must span: a long prompt, and what can wait before it."""
    first, second, _ = prompt.moments
    slow, room = tau[:, -1], budget[:, -1]
    per_token = replica.step.delta_s + slow / room
    load = np.minimum(rate * first * per_token, 0.95)
    queue = rate * second * per_token / (2.0 * (1.0 - load))
    step = np.minimum(
        slow / np.maximum(1.0 - rate * first * replica.step.delta_s, 0.05), slow + replica.step.delta_s * room
    )
    return prompt.quantile(0.9995) + rate * step * first + 4.0 * np.sqrt(rate * step * second) + 5.0 * queue


def on_lattice(law: Law, cell: FloatArray) -> FloatArray:
    """The law on lattice points k * cell, each atom split between its neighbours so that the mean stays."""
    position = np.minimum(law.values[None, :] / cell[:, None], CELLS - 1.0)
    below = np.minimum(position.astype(int), CELLS - 2)
    above = (position - below) * law.weights
    base = np.arange(cell.size)[:, None] * CELLS
    index = np.concatenate([(base + below).ravel(), (base + below + 1).ravel()])
    mass = np.concatenate([(law.weights - above).ravel(), above.ravel()])
    lattice = np.bincount(index, weights=mass, minlength=cell.size * CELLS)
    return np.asarray(lattice, dtype=float).reshape(cell.size, CELLS)


def _steps(
    replica: Replica,
    prompt: Law,
    rate: FloatArray,
    cell: FloatArray,
    tau: FloatArray,
    budget: FloatArray,
    evenness: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Step lengths from an empty to a full budget, and the time over which each collects arrivals, (C, Q, nodes + 1).

    With a router that looks at queues a replica in a long step, which lets nobody leave, is passed over: what a step
    collects is then nearer to that of a mean step.
    """
    delta = replica.step.delta_s
    span = np.minimum(budget, cell[:, None] * (CELLS - 1))
    steps = tau[:, :, None] + delta * span[:, :, None] * np.linspace(0.0, 1.0, _NODES + 1)
    free = np.maximum(1.0 - rate * prompt.mean * delta, 0.05)
    typical = np.minimum(tau / free[:, None], steps[:, :, -1])
    even = evenness[:, None, None]
    return steps, (1.0 - even) * steps + even * typical[:, :, None]


def _stationary(
    rate: FloatArray, cell: FloatArray, wave: ComplexArray, budget: FloatArray, windows: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Law of waiting tokens (C, Q, cells) and probabilities of the step lengths (C, Q, nodes + 1).

    From V tokens the chain goes to [tokens beyond the budget] + [prompts that arrive in the window of a step with
    min(V, budget) tokens]; its balance equations are solved as they stand.
    """
    tokens = np.arange(CELLS) * cell[:, None, None]
    span = np.minimum(budget, cell[:, None] * (CELLS - 1))
    position = np.minimum(tokens / span[:, :, None] * _NODES, _NODES)
    to_node = np.maximum(1.0 - np.abs(position[..., None] - np.arange(_NODES + 1)), 0.0)
    collected = lumped(_arrivals(rate, windows, wave))
    move = to_node @ collected
    over = tokens > budget[:, :, None]
    if bool(over.any()):
        move = np.where(over[..., None], _carried(collected[:, :, -1], budget / cell[:, None]), move)
    balance = np.swapaxes(move, -1, -2) - np.eye(CELLS)
    balance[..., -1, :] = 1.0
    total = np.zeros((*balance.shape[:-1], 1))
    total[..., -1, 0] = 1.0
    law = np.maximum(np.linalg.solve(balance, total)[..., 0], 0.0)
    law /= law.sum(axis=2, keepdims=True)
    return law, (law[:, :, None, :] @ to_node)[:, :, 0]


def _carried(collected: FloatArray, budget_cells: FloatArray) -> FloatArray:
    """Rows n of (C, Q, cells, cells): ``collected`` moved up by n - budget cells, which may be a fraction."""
    first = np.ceil(budget_cells)
    part = (first - budget_cells)[..., None]
    edge = np.zeros((*collected.shape[:-1], 1))
    between = (1.0 - part) * np.concatenate([collected, edge], axis=-1)
    between += part * np.concatenate([edge, collected], axis=-1)
    blank = np.zeros((*collected.shape[:-1], CELLS))
    padded = np.concatenate([blank, between, blank], axis=-1)
    shifted = np.lib.stride_tricks.sliding_window_view(padded, CELLS, axis=-1)
    start = np.clip(CELLS - np.arange(CELLS) + first[..., None], 0, shifted.shape[-2] - 1).astype(int)
    case = np.arange(first.shape[0])[:, None, None]
    level = np.arange(first.shape[1])[:, None]
    rows = shifted[case, level, start]
    rows[..., -1] += np.maximum(1.0 - rows.sum(axis=-1), 0.0)
    return np.asarray(rows)


def _arrivals(rate: FloatArray, seconds: FloatArray, wave: ComplexArray) -> ComplexArray:
    """Transform of the prompt tokens that arrive in given times, shape (C, Q, n, F)."""
    first = np.exp(-(rate[:, None] * seconds[:, :, 0])[..., None] * wave[:, None, :])
    count = seconds.shape[2]
    if count == 1:
        return first[:, :, None, :]
    ratio = np.exp(-(rate[:, None] * (seconds[:, :, 1] - seconds[:, :, 0]))[..., None] * wave[:, None, :])
    powers = np.empty((*seconds.shape, wave.shape[1]), dtype=complex)
    powers[:, :, 0] = first
    for node in range(1, count):
        np.multiply(powers[:, :, node - 1], ratio, out=powers[:, :, node])
    return powers


def lumped(transform: ComplexArray) -> FloatArray:
    """Back to the lattice; what lies beyond its end is put at the end."""
    full = np.fft.irfft(transform, 2 * CELLS, axis=-1)
    law = np.maximum(full[..., :CELLS], 0.0)
    law[..., -1] += np.maximum(full[..., CELLS:].sum(axis=-1), 0.0)
    return np.asarray(law / law.sum(axis=-1, keepdims=True))


def _shifted(law: FloatArray, cells: FloatArray) -> FloatArray:
    """The law less ``cells`` lattice cells (fractional), nothing below zero; shape (C, Q, cells)."""
    whole = np.minimum(np.floor(cells), CELLS).astype(int)
    part = (cells - np.floor(cells))[:, :, None]
    padded = np.concatenate([law, np.zeros((*law.shape[:2], CELLS + 1))], axis=2)
    index = np.arange(CELLS) + whole[:, :, None]
    moved = (1.0 - part) * np.take_along_axis(padded, index, axis=2) + part * np.take_along_axis(
        padded, index + 1, axis=2
    )
    moved[:, :, 0] += law.sum(axis=2) - moved.sum(axis=2)
    return np.asarray(moved)


def _seen_by_arrival(
    rate: FloatArray,
    cell: FloatArray,
    wave: ComplexArray,
    level: FloatArray,
    tau: FloatArray,
    budget: FloatArray,
    law: FloatArray,
    steps: FloatArray,
    windows: FloatArray,
    node: FloatArray,
) -> Backlog:
    """Weigh the steps by what they collect, since an arrival falls into long ones, and gather them into groups."""
    span = np.arange(CELLS) * cell[:, None, None]
    spilled = np.where(span > budget[:, :, None] * (1.0 + 1e-12), law, 0.0)
    over = spilled.sum(axis=2)
    short = node.copy()
    short[:, :, -1] = np.maximum(short[:, :, -1] - over, 0.0)
    biased = short * windows
    long = over * windows[:, :, -1]
    total = biased.sum(axis=2) + long
    upper = np.cumsum(biased, axis=2) / np.maximum(biased.sum(axis=2, keepdims=True), 1e-300)
    lower = np.concatenate([np.zeros_like(upper[:, :, :1]), upper[:, :, :-1]], axis=2)
    edge = _STEP_LEVELS[:, None]
    part = np.minimum(upper[:, :, None, :], edge[1:]) - np.maximum(lower[:, :, None, :], edge[:-1])
    part = np.maximum(part, 0.0)
    mass = np.maximum(part.sum(axis=3), 1e-300)
    length, window = ((part @ item[..., None])[..., 0] / mass for item in (steps, windows))
    spilled[:, :, -1] += np.where(over > 0.0, 0.0, 1e-300)
    left = _shifted(spilled, budget / cell[:, None]) / np.maximum(over, 1e-300)[:, :, None]
    return Backlog(
        cell=cell,
        rate_rps=rate,
        level=level,
        tau_s=tau,
        budget=budget,
        wave=wave,
        step_s=np.concatenate([length, steps[:, :, -1:]], axis=2),
        window_s=np.concatenate([window, windows[:, :, -1:]], axis=2),
        weight=np.concatenate([mass * (1.0 - long / total)[:, :, None], (long / total)[:, :, None]], axis=2),
        left=left,
    )
