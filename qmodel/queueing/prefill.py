"""Time from joining the batch to the first token: step lengths, colliding prompts and the step's token budget.

Prompts that arrive during a step are prefilled in the next one, up to the token
budget; the rest waits. The prompt tokens waiting at the start of a step form a
Markov chain, whose stationary law this module finds on a lattice and turns into
the law of an arrival's delay. Own construction, see docs/theory/replica.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.queueing.chain import Occupancy
from qmodel.queueing.work import Work
from qmodel.types import FloatArray, Law, Replica

__all__ = ["Backlog", "PrefillDelay", "backlog", "prefill_delay"]

_CELLS = 96  # token lattice
_NODES = 16  # step lengths between an empty and a full budget
_TIMES = 512  # time lattice of the delay
_BATCH_LEVELS = np.array([0.0, 0.5, 0.9, 1.0])  # arrivals sorted by the batch they meet; finer at the top
_STEP_LEVELS = np.array([0.0, 0.45, 0.75, 0.93, 0.985, 1.0])  # and by the step they fall into, which makes the tail
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
        weight: their probabilities (length-biased), shape (C, Q, G + 1).
        left: lattice law of the tokens a full step leaves over, shape (C, Q, cells).
        mean_tokens: mean tokens waiting at the start of a step, shape (C, Q).
    """

    cell: FloatArray
    rate_rps: FloatArray
    level: FloatArray
    tau_s: FloatArray
    budget: FloatArray
    wave: FloatArray
    step_s: FloatArray
    weight: FloatArray
    left: FloatArray
    mean_tokens: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefillDelay:
    """Law of the time from admission to the first token, C cases.

    Attributes:
        mean_s: shape (C,).
        top_s: end of the time lattice, shape (C,).
        cdf: probabilities at equally spaced times from 0 to ``top_s``, shape (C, T).
        left_tokens: mean prompt tokens waiting behind a request when its first token comes, less
            those that wait at any step, shape (C,).
    """

    mean_s: FloatArray
    top_s: FloatArray
    cdf: FloatArray
    left_tokens: FloatArray


def backlog(replica: Replica, work: Work, seen: Occupancy, rate_rps: FloatArray) -> Backlog:
    """Iterate the step-length recursion to its stationary law.

    Args:
        replica: engine instance.
        work: requests of all classes.
        seen: occupancy from the chain, C cases.
        rate_rps: arrivals at one replica, shape (C,).
    """
    prompt = work.lengths.prompt
    level, batch, tau = _batch_levels(replica, work, seen)
    budget = np.maximum(replica.max_batched_tokens - batch, 1.0)
    cell = _reach(replica, prompt, rate_rps, tau, budget) / _CELLS
    wave = 1.0 - np.fft.rfft(_on_lattice(prompt, cell), 2 * _CELLS, axis=1)
    law, steps, mass = _stationary(replica, rate_rps, cell, wave, tau, budget)
    return _seen_by_arrival(replica, rate_rps, cell, wave, level, tau, budget, law, steps, mass)


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
    step = np.minimum(slow / np.maximum(1.0 - rate * first * replica.step.delta_s, 0.05), slow + replica.step.delta_s * room)
    return prompt.quantile(0.9995) + rate * step * first + 4.0 * np.sqrt(rate * step * second) + 5.0 * queue


def _on_lattice(law: Law, cell: FloatArray) -> FloatArray:
    """The law on lattice points k * cell, each atom split between its neighbours so that the mean stays."""
    position = np.minimum(law.values[None, :] / cell[:, None], _CELLS - 1.0)
    below = np.minimum(position.astype(int), _CELLS - 2)
    above = (position - below) * law.weights
    base = np.arange(cell.size)[:, None] * _CELLS
    index = np.concatenate([(base + below).ravel(), (base + below + 1).ravel()])
    mass = np.concatenate([(law.weights - above).ravel(), above.ravel()])
    return np.bincount(index, weights=mass, minlength=cell.size * _CELLS).reshape(cell.size, _CELLS)


def _stationary(
    replica: Replica, rate: FloatArray, cell: FloatArray, wave: FloatArray, tau: FloatArray, budget: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Law of waiting tokens (C, Q, cells), step lengths (C, Q, nodes + 1) and their probabilities.

    x -> [tokens beyond the budget] + [prompts arriving in a step of length tau + delta min(V, budget)].
    """
    delta = replica.step.delta_s
    span = np.minimum(budget, cell[:, None] * (_CELLS - 1))
    steps = tau[:, :, None] + delta * span[:, :, None] * np.linspace(0.0, 1.0, _NODES + 1)
    arrivals = _arrivals(rate, steps, wave)
    position = np.arange(_CELLS) * cell[:, None, None] / span[:, :, None] * _NODES
    to_node = np.maximum(1.0 - np.abs(np.minimum(position, _NODES)[..., None] - np.arange(_NODES + 1)), 0.0)
    over = position > _NODES * (1.0 + 1e-12)
    overflows = bool(over.any())
    typical = np.minimum(tau / np.maximum(1.0 - rate * _mean(wave, cell) * delta, 0.05)[:, None], steps[:, :, -1])
    law = _lumped(_arrivals(rate, typical[:, :, None], wave)[:, :, 0])
    node = (law[:, :, None, :] @ to_node)[:, :, 0]
    for _ in range(_MOST_ITERATIONS):
        if overflows:
            spilled = np.where(over, law, 0.0)
            short = node.copy()
            short[:, :, -1] -= spilled.sum(axis=2)
            wide = (short[:, :, None, :] @ arrivals)[:, :, 0]
            wide += np.fft.rfft(_shifted(spilled, budget / cell[:, None]), 2 * _CELLS, axis=2) * arrivals[:, :, -1]
        else:
            wide = (node[:, :, None, :] @ arrivals)[:, :, 0]
        law = _lumped(wide)
        previous, node = node, (law[:, :, None, :] @ to_node)[:, :, 0]
        if float(np.abs(node - previous).sum(axis=2).max()) < _SETTLED:
            break
    return law, steps, node


def _arrivals(rate: FloatArray, seconds: FloatArray, wave: FloatArray) -> FloatArray:
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


def _lumped(transform: FloatArray) -> FloatArray:
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
    moved = (1.0 - part) * np.take_along_axis(padded, index, axis=2) + part * np.take_along_axis(padded, index + 1, axis=2)
    moved[:, :, 0] += law.sum(axis=2) - moved.sum(axis=2)
    return np.asarray(moved)


def _mean(wave: FloatArray, cell: FloatArray) -> FloatArray:
    """Mean prompt from its transform on the lattice."""
    law = np.fft.irfft(1.0 - wave, 2 * _CELLS, axis=1)[:, :_CELLS]
    return np.asarray(law @ np.arange(_CELLS) * cell)


def _seen_by_arrival(
    replica: Replica,
    rate: FloatArray,
    cell: FloatArray,
    wave: FloatArray,
    level: FloatArray,
    tau: FloatArray,
    budget: FloatArray,
    law: FloatArray,
    steps: FloatArray,
    node: FloatArray,
) -> Backlog:
    """Length-bias the steps, since an arrival falls into long ones, and gather them into groups."""
    span = np.arange(_CELLS) * cell[:, None, None]
    spilled = np.where(span > budget[:, :, None] * (1.0 + 1e-12), law, 0.0)
    over = spilled.sum(axis=2)
    short = node.copy()
    short[:, :, -1] = np.maximum(short[:, :, -1] - over, 0.0)
    biased = short * steps
    long = over * steps[:, :, -1]
    total = biased.sum(axis=2) + long
    upper = np.cumsum(biased, axis=2) / np.maximum(biased.sum(axis=2, keepdims=True), 1e-300)
    lower = np.concatenate([np.zeros_like(upper[:, :, :1]), upper[:, :, :-1]], axis=2)
    edge = _STEP_LEVELS[:, None]
    part = np.minimum(upper[:, :, None, :], edge[1:]) - np.maximum(lower[:, :, None, :], edge[:-1])
    part = np.maximum(part, 0.0)
    mass = np.maximum(part.sum(axis=3), 1e-300)
    length = (part @ steps[..., None])[..., 0] / mass
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
        weight=np.concatenate([mass * (1.0 - long / total)[:, :, None], (long / total)[:, :, None]], axis=2),
        left=left,
        mean_tokens=(law * span).sum(axis=2),
    )


def prefill_delay(state: Backlog, replica: Replica, prompt: Law, idle: FloatArray, pooled_prompt: float) -> PrefillDelay:
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
    exponent = (state.rate_rps[:, None, None] * state.step_s)[..., None] * state.wave[:, None, None, :]
    start = np.broadcast_to(own_wave[:, None, None, :], exponent.shape).copy()
    start[:, :, -1] *= np.fft.rfft(state.left, 2 * _CELLS, axis=2)
    gone = np.exp(-exponent)
    own_step = _lumped(start * gone)
    tokens = np.arange(_CELLS) * state.cell[:, None, None, None]
    budget, tau = state.budget[:, :, None, None], state.tau_s[:, :, None, None]
    weight = state.level[:, :, None] * state.weight
    seconds = np.broadcast_to(tau + delta * tokens, own_step.shape)
    later = (state.rate_rps[:, None, None] * state.step_s / 2.0) * pooled_prompt
    if not bool((tokens <= budget).all()):
        seconds, own_step, later = _many_steps(state, delta, pooled_prompt, start, exponent, own_step)
    return _delay(state, replica, own, seconds, own_step * weight[..., None], (weight * later).sum(axis=(1, 2)), idle, pooled_prompt)


def _many_steps(
    state: Backlog, delta: float, pooled_prompt: float, start: FloatArray, exponent: FloatArray, own_step: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Delays and their masses where tokens ahead and own may exceed one step's budget, (C, Q, G + 1, 4 cells).

    Returns them with the mean tokens of later prompts that were prefilled meanwhile, (C, Q, G + 1).
    """
    uniform = -np.expm1(-exponent) / np.where(np.abs(exponent) < 1e-12, 1.0, exponent)
    uniform = np.where(np.abs(exponent) < 1e-12, 1.0, uniform)
    ahead = _lumped(start * uniform)
    tokens = np.arange(_CELLS) * state.cell[:, None, None, None]
    budget, tau = state.budget[:, :, None, None], state.tau_s[:, :, None, None]
    one = tokens <= budget * (1.0 + 1e-12)
    first = np.where(one, own_step, 0.0)
    full = np.maximum((np.where(one, ahead, 0.0) - first).sum(axis=-1), 0.0)
    more = np.where(one, 0.0, ahead)
    count = np.maximum(np.ceil(tokens / budget - 1e-9), 1.0)
    rest = count * budget - tokens
    rate = state.rate_rps[:, None, None, None] * pooled_prompt
    come = rate * (state.step_s[..., None] / 2.0 + (count - 1.0) * (tau + delta * budget))
    fill = -rest * np.expm1(-come / np.maximum(rest, pooled_prompt))
    slow = count * tau + delta * (tokens + fill)
    seconds = np.concatenate(
        [
            np.broadcast_to(tau + delta * tokens, first.shape),
            np.broadcast_to(slow, more.shape),
            np.broadcast_to(tau + delta * budget, (*full.shape, 1)),
        ],
        axis=-1,
    )
    mass = np.concatenate([first, more, full[..., None]], axis=-1)
    total = mass.sum(axis=-1, keepdims=True)
    mass = mass / total
    ahead_one = np.where(one, ahead, 0.0)
    later = ((first * tokens).sum(axis=-1) + full * budget[..., 0] - (ahead_one * tokens).sum(axis=-1) + (more * fill).sum(axis=-1))
    return seconds, mass, np.asarray(later / total[..., 0])


def _delay(
    state: Backlog,
    replica: Replica,
    own: FloatArray,
    seconds: FloatArray,
    mass: FloatArray,
    later: FloatArray,
    idle: FloatArray,
    pooled_prompt: float,
) -> PrefillDelay:
    """Spread every mass over the residual of its step and add those that find the replica idle."""
    alone_tokens = np.arange(_CELLS) * state.cell[:, None]
    alone = np.maximum(np.ceil(alone_tokens / replica.max_batched_tokens - 1e-9), 1.0) * float(replica.step.tau_s(0.0, 0.0))
    alone = alone + replica.step.delta_s * alone_tokens
    cases = idle.size
    width = np.broadcast_to(state.step_s[..., None], seconds.shape).reshape(cases, -1)
    start = np.concatenate([seconds.reshape(cases, -1), alone], axis=1)
    weight = np.concatenate([np.maximum(mass, 0.0).reshape(cases, -1), own * idle[:, None]], axis=1)
    weight = weight / weight.sum(axis=1, keepdims=True)
    width = np.concatenate([width, np.zeros_like(alone)], axis=1)
    top = np.where(weight > 1e-7, start + width, 0.0).max(axis=1) * 1.001
    mean = (weight * (start + width / 2.0)).sum(axis=1)
    cdf = _uniform_mixture(start, np.maximum(width, 2.0 * top[:, None] / _TIMES), weight, top)
    waiting = (state.level * state.mean_tokens).sum(axis=1)
    return PrefillDelay(mean_s=mean, top_s=top, cdf=cdf, left_tokens=state.rate_rps * pooled_prompt * mean - later - waiting)


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
