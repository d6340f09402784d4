"""Time from joining the batch to the first token: step lengths, colliding prompts and the step's token budget.

Prompts that arrive during a step are prefilled in the next one, up to the token
budget; the rest waits. The prompt tokens waiting at the start of a step form a
Markov chain, whose stationary law this module finds on a lattice and turns into
the law of an arrival's delay. Own construction, see docs/theory/replica.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.queueing.chain import Occupancy, full_budget_batch
from qmodel.queueing.percentiles import GridLaw
from qmodel.queueing.work import Work
from qmodel.types import FloatArray, Law, Replica

__all__ = ["Backlog", "PrefillDelay", "backlog", "prefill_delay"]

ComplexArray = npt.NDArray[np.complex128]

_CELLS = 80  # token lattice
_NODES = 12  # step lengths between an empty and a full budget
_TIMES = 384  # time lattice of the delay
_BATCH_LEVELS = np.array([0.0, 0.65, 1.0])  # arrivals sorted by the batch they meet; more levels change nothing
_STEP_LEVELS = np.array(
    [0.0, 0.2, 0.35, 0.5, 0.65, 0.77, 0.87, 0.94, 0.98, 0.995, 1.0]
)  # and by the step they fall into
_MOST_ITERATIONS = 80
_SETTLED = 1e-4  # change of the step-length law, in probability, at which the iteration stops


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefillDelay:
    """Law of the time from admission to the first token, C cases: mixtures of A uniforms.

    Attributes:
        start_s: where the uniforms begin, shape (C, A).
        width_s: their widths, shape (C, A).
        weight: their probabilities, shape (C, A).
    """

    start_s: FloatArray
    width_s: FloatArray
    weight: FloatArray

    def moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, variance and third central moment, each of shape (C,)."""
        middle = self.start_s + self.width_s / 2.0
        mean = np.einsum("ca,ca->c", self.weight, middle)
        centred = middle - mean[:, None]
        square = centred**2
        within = self.width_s**2 / 12.0
        variance = np.einsum("ca,ca->c", self.weight, square + within)
        return mean, variance, np.einsum("ca,ca->c", self.weight, centred * (square + 3.0 * within))

    def law(self, mean_s: FloatArray) -> GridLaw:
        """The law on equally spaced times."""
        top = np.where(self.weight > 1e-7, self.start_s + self.width_s, 0.0).max(axis=1) * 1.001
        cdf = _uniform_mixture(self.start_s, np.maximum(self.width_s, 2.0 * top[:, None] / _TIMES), self.weight, top)
        return GridLaw(mean_s=mean_s, times_s=top[:, None] * np.linspace(0.0, 1.0, _TIMES), cdf=cdf)


def backlog(
    replica: Replica, work: Work, seen: Occupancy, rate_rps: FloatArray, evenness: FloatArray | float = 0.0
) -> Backlog:
    """Iterate the step-length recursion to its stationary law.

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
    cell = _reach(replica, prompt, rate_rps, tau, budget) / (_CELLS - 2)
    wave = 1.0 - np.fft.rfft(_on_lattice(prompt, cell), 2 * _CELLS, axis=1)
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


def _on_lattice(law: Law, cell: FloatArray) -> FloatArray:
    """The law on lattice points k * cell, each atom split between its neighbours so that the mean stays."""
    position = np.minimum(law.values[None, :] / cell[:, None], _CELLS - 1.0)
    below = np.minimum(position.astype(int), _CELLS - 2)
    above = (position - below) * law.weights
    base = np.arange(cell.size)[:, None] * _CELLS
    index = np.concatenate([(base + below).ravel(), (base + below + 1).ravel()])
    mass = np.concatenate([(law.weights - above).ravel(), above.ravel()])
    lattice = np.bincount(index, weights=mass, minlength=cell.size * _CELLS)
    return np.asarray(lattice, dtype=float).reshape(cell.size, _CELLS)


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
    span = np.minimum(budget, cell[:, None] * (_CELLS - 1))
    steps = tau[:, :, None] + delta * span[:, :, None] * np.linspace(0.0, 1.0, _NODES + 1)
    free = np.maximum(1.0 - rate * prompt.mean * delta, 0.05)
    typical = np.minimum(tau / free[:, None], steps[:, :, -1])
    even = evenness[:, None, None]
    return steps, (1.0 - even) * steps + even * typical[:, :, None]


def _stationary(
    rate: FloatArray, cell: FloatArray, wave: ComplexArray, budget: FloatArray, windows: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Law of waiting tokens (C, Q, cells) and probabilities of the step lengths (C, Q, nodes + 1).

    x -> [tokens beyond the budget] + [prompts that arrive in the window of a step with min(V, budget) tokens].
    """
    span = np.minimum(budget, cell[:, None] * (_CELLS - 1))
    arrivals = _arrivals(rate, windows, wave)
    position = np.arange(_CELLS) * cell[:, None, None] / span[:, :, None] * _NODES
    to_node = np.maximum(1.0 - np.abs(np.minimum(position, _NODES)[..., None] - np.arange(_NODES + 1)), 0.0)
    over = position > _NODES * (1.0 + 1e-12)
    overflows = bool(over.any())
    law = _lumped(arrivals[:, :, _NODES // 4])
    node = (law[:, :, None, :] @ to_node)[:, :, 0]
    moving = np.ones(law.shape[:2], dtype=bool)  # each case stops for itself: its result does not depend on the others
    for _ in range(_MOST_ITERATIONS):
        wide = (node[:, :, None, :] @ arrivals)[:, :, 0]
        if overflows:
            spilled = np.where(over, law, 0.0)
            moved = _shifted(spilled, budget / cell[:, None])
            moved[:, :, 0] -= spilled.sum(axis=2)
            wide += np.fft.rfft(moved, 2 * _CELLS, axis=2) * arrivals[:, :, -1]
        law = np.where(moving[:, :, None], _lumped(wide), law)
        previous, node = node, (law[:, :, None, :] @ to_node)[:, :, 0]
        moving &= np.abs(node - previous).sum(axis=2) > _SETTLED
        if not moving.any():
            break
    return law, node


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


def _lumped(transform: ComplexArray) -> FloatArray:
    """Back to the lattice; what lies beyond its end is put at the end."""
    full = np.fft.irfft(transform, 2 * _CELLS, axis=-1)
    law = np.maximum(full[..., :_CELLS], 0.0)
    law[..., -1] += np.maximum(full[..., _CELLS:].sum(axis=-1), 0.0)
    return np.asarray(law / law.sum(axis=-1, keepdims=True))


def _shifted(law: FloatArray, cells: FloatArray) -> FloatArray:
    """The law less ``cells`` lattice cells (fractional), nothing below zero; shape (C, Q, cells)."""
    whole = np.minimum(np.floor(cells), _CELLS).astype(int)
    part = (cells - np.floor(cells))[:, :, None]
    padded = np.concatenate([law, np.zeros((*law.shape[:2], _CELLS + 1))], axis=2)
    index = np.arange(_CELLS) + whole[:, :, None]
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
    span = np.arange(_CELLS) * cell[:, None, None]
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


def prefill_delay(
    state: Backlog, replica: Replica, prompt: Law, idle: FloatArray, pooled_prompt: float
) -> PrefillDelay:
    """Law of the delay of a request with prompt law ``prompt``.

    Residual of the step under way, then as many steps as the tokens ahead and its own prompt need; the last step
    also carries the prompts that came later, as far as the budget goes.

    Args:
        state: backlog of the replica.
        replica: engine instance.
        prompt: prompts of the class.
        idle: probability that the arrival finds its replica empty, shape (C,).
        pooled_prompt: mean prompt over all classes, tokens.
    """
    delta = replica.step.delta_s
    own = _on_lattice(prompt, state.cell)
    own_wave = np.fft.rfft(own, 2 * _CELLS, axis=1)
    exponent = (state.rate_rps[:, None, None] * state.window_s)[..., None] * state.wave[:, None, None, :]
    start = np.broadcast_to(own_wave[:, None, None, :], exponent.shape).copy()
    start[:, :, -1] *= np.fft.rfft(state.left, 2 * _CELLS, axis=2)
    gone = np.exp(-exponent)
    own_step = _lumped(start * gone)
    tokens = np.arange(_CELLS) * state.cell[:, None, None, None]
    budget, tau = state.budget[:, :, None, None], state.tau_s[:, :, None, None]
    weight = state.level[:, :, None] * state.weight
    seconds = np.broadcast_to(tau + delta * tokens, own_step.shape)
    if bool((tokens + state.cell[:, None, None, None] / 2.0 > budget).any()):
        seconds, own_step = _many_steps(state, delta, pooled_prompt, start, exponent, own_step)
    return _delay(state, replica, own, seconds, own_step * weight[..., None], idle)


def _many_steps(
    state: Backlog,
    delta: float,
    pooled_prompt: float,
    start: ComplexArray,
    exponent: ComplexArray,
    own_step: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Delays and their masses where tokens ahead and own may exceed one step's budget, (C, Q, G + 1, cells + 1)."""
    uniform = -np.expm1(-exponent) / np.where(np.abs(exponent) < 1e-12, 1.0, exponent)
    uniform = np.where(np.abs(exponent) < 1e-12, 1.0, uniform)
    ahead = _lumped(start * uniform)
    tokens = np.arange(_CELLS) * state.cell[:, None, None, None]
    budget, tau = state.budget[:, :, None, None], state.tau_s[:, :, None, None]
    one = np.clip((budget - tokens) / state.cell[:, None, None, None] + 0.5, 0.0, 1.0)
    first = one * own_step
    full = np.maximum((one * (ahead - own_step)).sum(axis=-1), 0.0)
    more = (1.0 - one) * ahead
    count = _mean_steps(tokens / budget, state.cell[:, None, None, None] / budget)
    rest = np.maximum(count * budget - tokens, 0.0)
    rate = state.rate_rps[:, None, None, None] * pooled_prompt
    come = rate * (state.window_s[..., None] / 2.0 + (count - 1.0) * (tau + delta * budget))
    fill = -(1.0 - one) * rest * np.expm1(-come / np.maximum(rest, pooled_prompt))
    seconds = count * tau + delta * (tokens + fill)
    at_budget = np.broadcast_to(tau + delta * budget, (*full.shape, 1))
    mass = np.concatenate([first + more, full[..., None]], axis=-1)
    seconds = np.concatenate([np.broadcast_to(seconds, first.shape), at_budget], axis=-1)
    return seconds, mass / mass.sum(axis=-1, keepdims=True)


def _mean_steps(full: FloatArray, cell: FloatArray) -> FloatArray:
    """Steps that ``full`` budgets of tokens take, averaged over a lattice cell, so that no edge falls between cells."""

    def area(x: FloatArray) -> FloatArray:
        whole = np.floor(x)
        return np.asarray(whole * (whole + 1.0) / 2.0 + (x - whole) * (whole + 1.0))

    low = np.maximum(full - cell / 2.0, 0.0)
    high = full + cell / 2.0
    return np.maximum((area(high) - area(low)) / (high - low), 1.0)


def _delay(
    state: Backlog, replica: Replica, own: FloatArray, seconds: FloatArray, mass: FloatArray, idle: FloatArray
) -> PrefillDelay:
    """Spread every mass over the residual of its step and add those that find the replica idle."""
    tokens = np.arange(_CELLS) * state.cell[:, None]
    budget = float(replica.max_batched_tokens)
    count = _mean_steps(tokens / budget, state.cell[:, None] / budget)
    alone = count * float(replica.step.tau_s(0.0, 0.0)) + replica.step.delta_s * tokens
    flat = (idle.size, -1)
    width = np.broadcast_to(state.step_s[..., None], seconds.shape).reshape(flat)
    weight = np.concatenate([mass.reshape(flat), own * idle[:, None]], axis=1)
    blur = np.minimum(replica.step.delta_s * state.cell[:, None], alone)  # one cell: the lattice must not show
    return PrefillDelay(
        start_s=np.concatenate([seconds.reshape(flat), alone - blur / 2.0], axis=1),
        width_s=np.concatenate([width, blur], axis=1),
        weight=weight / weight.sum(axis=1, keepdims=True),
    )


def _uniform_mixture(start: FloatArray, width: FloatArray, weight: FloatArray, top: FloatArray) -> FloatArray:
    """CDF of a mixture of uniforms on a time lattice: kinks of its slope, summed twice."""
    cases = start.shape[0]
    spacing = top / (_TIMES - 1)
    slope = weight / (width / spacing[:, None])
    index, kink = [], []
    for edge, sign in ((start, 1.0), (start + width, -1.0)):
        position = np.minimum(edge / spacing[:, None], _TIMES - 1.0)
        below = np.minimum(position.astype(int), _TIMES - 2)
        part = (position - below) * slope * sign
        base = below + np.arange(cases)[:, None] * _TIMES
        index += [base.ravel(), base.ravel() + 1]
        kink += [(slope * sign - part).ravel(), part.ravel()]
    change = np.bincount(np.concatenate(index), weights=np.concatenate(kink), minlength=cases * _TIMES)
    slopes = np.cumsum(change.reshape(cases, _TIMES), axis=1)
    cdf = np.concatenate([np.zeros((cases, 1)), np.cumsum(slopes[:, :-1], axis=1)], axis=1)
    cdf = np.maximum.accumulate(np.clip(cdf, 0.0, 1.0), axis=1)
    return np.asarray(cdf / cdf[:, -1:])
