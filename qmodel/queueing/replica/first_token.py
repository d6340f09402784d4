"""Time from admission to the first token, from the prompt backlog that an arrival meets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.queueing.replica.percentiles import GridLaw
from qmodel.queueing.replica.prefill import CELLS, Backlog, ComplexArray, lumped, on_lattice
from qmodel.types import FloatArray, Law, Replica

__all__ = ["PrefillDelay", "prefill_delay"]

_TIMES = 384  # time lattice of the delay
_TINY = 1e-8
_PARTS = np.linspace(0.0, 1.0, _TIMES)


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

    def mean(self) -> FloatArray:
        """Mean, shape (C,)."""
        return np.asarray(np.einsum("ca,ca->c", self.weight, self.start_s + 0.5 * self.width_s))

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
        return GridLaw(mean_s=mean_s, times_s=top[:, None] * _PARTS, cdf=cdf)


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
    own = on_lattice(prompt, state.cell)
    start = np.fft.rfft(own, 2 * CELLS, axis=1)
    gone = behind = state.gone
    if state.clump is not None:  # geometric batches: as many come with a request ahead of it as behind
        beside = 1.0 - state.clump[:, None] * state.wave
        start, behind = start * beside, gone * beside[:, None, :]
    over = np.fft.rfft(state.left, 2 * CELLS, axis=1)
    own_step = lumped(_started(start, behind, over))
    tokens = np.arange(CELLS) * state.cell[:, None]
    weight = (1.0 - state.idle)[:, None] * state.weight
    if bool((tokens[:, -1] + state.cell / 2.0 > state.budget).any()):
        exponent = (state.rate_rps[:, None] * state.window_s)[..., None] * state.wave[:, None, :]
        uniform = (1.0 + _TINY - gone) / (exponent + _TINY)  # (1 - e^-x)/x, which is 1 at 0
        ahead = lumped(_started(start, uniform, over))
        seconds, own_step = _many_steps(state, delta, pooled_prompt, ahead, own_step)
    else:
        seconds = np.broadcast_to((state.tau_s[:, None] + delta * tokens)[:, None, :], own_step.shape)
    return _delay(state, replica, own, seconds, own_step * weight[..., None], idle)


def _started(start: ComplexArray, gone: ComplexArray, over: ComplexArray) -> ComplexArray:
    """Transform of a prompt and what comes with it in each step; the last step also has what was left over."""
    found = start[:, None, :] * gone
    found[:, -1] *= over
    return found


def _many_steps(
    state: Backlog, delta: float, pooled_prompt: float, ahead: FloatArray, own_step: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Delays and their masses where tokens ahead and own may exceed one step's budget, (C, G + 1, cells + 1)."""
    cell, budget, tau = state.cell[:, None], state.budget[:, None], state.tau_s[:, None]
    tokens = np.arange(CELLS) * cell
    one = np.minimum(np.maximum((budget - tokens) / cell + 0.5, 0.0), 1.0)
    full = np.maximum(((ahead - own_step) @ one[..., None])[..., 0], 0.0)
    more = one[:, None, :] * own_step + (1.0 - one)[:, None, :] * ahead
    count = _mean_steps(tokens / budget, cell / budget)
    rest = np.maximum(count * budget - tokens, 0.0)
    later = (count - 1.0) * (tau + delta * budget)
    come = (state.rate_rps * pooled_prompt)[:, None, None] * (state.window_s[..., None] / 2.0 + later[:, None, :])
    fill = ((one - 1.0) * rest)[:, None, :] * np.expm1(-come / np.maximum(rest, pooled_prompt)[:, None, :])
    seconds = np.empty((*ahead.shape[:2], CELLS + 1))
    seconds[..., :-1] = (count * tau + delta * tokens)[:, None, :] + delta * fill
    seconds[..., -1] = tau + delta * budget
    mass = np.concatenate([more, full[..., None]], axis=-1)
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
    tokens = np.arange(CELLS) * state.cell[:, None]
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
    spacing = (top / (_TIMES - 1))[:, None]
    slope = weight / (width / spacing)
    position = np.concatenate([start, start + width], axis=1) / spacing
    np.minimum(position, _TIMES - 1.0, out=position)
    kink = np.concatenate([slope, -slope], axis=1)
    below = np.minimum(position.astype(np.intp), _TIMES - 2)
    part = (position - below) * kink
    below += np.arange(0, cases * _TIMES, _TIMES)[:, None]
    change = np.bincount(below.ravel(), (kink - part).ravel(), cases * _TIMES)
    change[1:] += np.bincount(below.ravel(), part.ravel(), cases * _TIMES)[:-1]
    slopes = np.cumsum(change.reshape(cases, _TIMES), axis=1)
    cdf = np.zeros((cases, _TIMES))
    np.cumsum(slopes[:, :-1], axis=1, out=cdf[:, 1:])
    cdf = np.maximum.accumulate(np.minimum(np.maximum(cdf, 0.0), 1.0), axis=1)
    return np.asarray(cdf / cdf[:, -1:])
