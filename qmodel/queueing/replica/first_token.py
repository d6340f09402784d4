"""Time from admission to the first token, from the prompt backlog that an arrival meets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.queueing.replica.percentiles import GridLaw
from qmodel.queueing.replica.prefill import CELLS, Backlog, ComplexArray, lumped, on_lattice
from qmodel.queueing.replica.stacks import ReplicaStack
from qmodel.types import FloatArray, Law, Replica

__all__ = ["PrefillDelay", "prefill_delay"]

_TIMES = 384  # time lattice of the delay
_TINY = 1e-8
_UNSEEN = 1e-7  # probability of a uniform that the time lattice need not reach
_PARTS = np.linspace(0.0, 1.0, _TIMES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefillDelay:
    """Law of the time from admission to the first token, C cases: mixtures of uniforms.

    Who meets a step starts evenly over it or its later part; who finds the replica idle starts at once, blurred by a
    cell.

    Attributes:
        start_s: where the uniforms of those that meet a step begin, shape (C, L, K), or (C, 1, K): for all steps alike.
        width_s: their widths, shape (C, L).
        mass: their probabilities, shape (C, L, K).
        alone_s: middles of the uniforms of the others, shape (C, I).
        blur_s: their widths, shape (C, I).
        alone_mass: their probabilities, shape (C, I).
        behind_tokens: prompt tokens that wait when the first token comes, on average, shape (C,); None where no budget
            fills.
    """

    start_s: FloatArray
    width_s: FloatArray
    mass: FloatArray
    alone_s: FloatArray
    blur_s: FloatArray
    alone_mass: FloatArray
    behind_tokens: FloatArray | None = None

    def mean(self) -> FloatArray:
        """Mean, shape (C,)."""
        if self.start_s.shape[1] == 1:
            start = np.einsum("ck,ck->c", self.mass.sum(axis=1), self.start_s[:, 0])
        else:
            start = np.einsum("clk,clk->c", self.mass, self.start_s)
        residual = np.einsum("cl,cl->c", self.mass.sum(axis=2), 0.5 * self.width_s)
        return np.asarray(start + residual + np.einsum("ci,ci->c", self.alone_mass, self.alone_s))

    def moments(self, mean: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, variance and third central moment, each of shape (C,), where the mean is known."""
        parts = (
            ("clk,clk->c", self.mass, self.start_s + (self.width_s / 2.0 - mean[:, None])[..., None], self.width_s),
            ("ci,ci->c", self.alone_mass, self.alone_s - mean[:, None], self.blur_s),
        )
        variance, third = np.zeros(mean.shape), np.zeros(mean.shape)
        for sums, mass, centred, width in parts:
            within = width**2 / 12.0
            within = within[..., None] if mass.ndim == 3 else within
            square = centred * centred
            variance += np.einsum(sums, mass, square + within)
            third += np.einsum(sums, mass, centred * (square + 3.0 * within))
        return mean, variance, third

    def law(self, mean_s: FloatArray) -> GridLaw:
        """The law on equally spaced times."""
        latest = np.where(self.mass > _UNSEEN, self.start_s, -np.inf).max(axis=2)
        alone = np.where(self.alone_mass > _UNSEEN, self.alone_s + 0.5 * self.blur_s, 0.0).max(axis=1)
        top = np.maximum((latest + self.width_s).max(axis=1), alone) * 1.001
        return GridLaw(mean_s=mean_s, times_s=top[:, None] * _PARTS, cdf=self._cdf(top))

    def _cdf(self, top: FloatArray) -> FloatArray:
        """On a time lattice: kinks of its slope, summed twice."""
        spacing, least = (top / (_TIMES - 1))[:, None], (2.0 * top / _TIMES)[:, None]
        step, blur = np.maximum(self.width_s, least) / spacing, np.maximum(self.blur_s, least) / spacing
        rising = self.mass / step[..., None]
        start, alone = self.start_s / spacing[..., None], (self.alone_s - 0.5 * self.blur_s) / spacing
        begun = rising.sum(axis=1) if start.shape[1] == 1 else rising
        still = self.alone_mass / blur
        cases = top.size
        where = [start, start + step[..., None], alone, alone + blur]
        kinks = [begun, -rising, still, -still]
        slopes = np.cumsum(_on_lattice(_flat(where, cases), _flat(kinks, cases)), axis=1)
        cdf = np.zeros((cases, _TIMES))
        np.cumsum(slopes[:, :-1], axis=1, out=cdf[:, 1:])
        cdf = np.maximum.accumulate(np.minimum(np.maximum(cdf, 0.0), 1.0), axis=1)
        return np.asarray(cdf / cdf[:, -1:])


def _flat(parts: list[FloatArray], cases: int) -> FloatArray:
    return np.concatenate([item.reshape(cases, -1) for item in parts], axis=1)


def _on_lattice(position: FloatArray, kinks: FloatArray) -> FloatArray:
    """Each kink split between the two times beside it."""
    cases = position.shape[0]
    np.minimum(position, _TIMES - 1.0, out=position)
    below = np.minimum(position.astype(np.intp), _TIMES - 2)
    position -= below
    position *= kinks  # what goes to the later time
    kinks -= position
    below += np.arange(0, cases * _TIMES, _TIMES)[:, None]
    change = np.bincount(below.ravel(), kinks.ravel(), cases * _TIMES)
    change[1:] += np.bincount(below.ravel(), position.ravel(), cases * _TIMES)[:-1]
    return np.asarray(change.reshape(cases, _TIMES))


def prefill_delay(
    state: Backlog,
    replica: Replica | ReplicaStack,
    prompt: Law,
    idle: FloatArray,
    pooled_prompt: float,
    *,
    mean_only: bool = False,
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
        mean_only: nothing but the mean is asked for: where no budget fills, one step then stands for all of them.
    """
    delta = np.asarray(replica.step.delta_s)[..., None]
    if prompt is state.prompt:
        own, start = state.lattice, state.spectrum
    else:
        own = on_lattice(prompt, state.cell)
        start = np.fft.rfft(own, 2 * CELLS, axis=1)
    gone = behind = state.gone
    if state.clump is not None:  # geometric batches: as many come with a request ahead of it as behind
        beside = 1.0 - state.clump[:, None] * state.wave
        start, behind = start * beside, gone * beside[:, None, :]
    over = np.fft.rfft(state.left, 2 * CELLS, axis=1)
    tokens = np.arange(CELLS) * state.cell[:, None]
    weight = (1.0 - state.idle)[:, None] * state.weight
    width, late = 2.0 * state.passed * state.step_s, (1.0 - 2.0 * state.passed) * state.step_s
    fills = bool((tokens[:, -1] + state.cell / 2.0 > state.budget).any())
    if mean_only and not fills:
        together = np.einsum("cl,clf->cf", state.weight[:, :-1], behind[:, :-1])
        together += state.weight[:, -1:] * behind[:, -1] * over
        own_step, weight = lumped((start * together)[:, None]), (1.0 - state.idle)[:, None]
        width, late = ((state.weight * item).sum(axis=1, keepdims=True) for item in (width, late))
    else:
        own_step = lumped(_started(start, behind, over))
    if fills:
        exponent = (state.rate_rps[:, None] * state.window_s)[..., None] * state.wave[:, None, :]
        uniform = (1.0 + _TINY - gone) / (exponent + _TINY)  # (1 - e^-x)/x, which is 1 at 0
        ahead = lumped(_started(start, uniform, over))
        seconds, own_step, behind_tokens = _many_steps(state, delta, pooled_prompt, ahead, own_step)
    else:
        behind_tokens = None
        seconds = (state.tau_s[:, None] + delta * tokens)[:, None, :]
    if bool((state.passed < 0.5).any()):  # what is left of the step lasts step (1 - passed) on average
        seconds = seconds + late[..., None]
    return _delay(state, replica, own, seconds, width, own_step * weight[..., None], idle, behind_tokens)


def _started(start: ComplexArray, gone: ComplexArray, over: ComplexArray) -> ComplexArray:
    """Transform of a prompt and what comes with it in each step; the last step also has what was left over."""
    found = start[:, None, :] * gone
    found[:, -1] *= over
    return found


def _many_steps(
    state: Backlog, delta: FloatArray, pooled_prompt: float, ahead: FloatArray, own_step: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Delays and their masses where tokens ahead and own may exceed one step's budget, (C, G + 1, cells + 1).

    And the mean number of tokens that wait when the first token comes, shape (C,): what came later and found no room in
    the last step, and what arrives in that step.
    """
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
    seconds[..., :-1] = (count * tau + delta * tokens)[:, None, :] + delta[..., None] * fill
    seconds[..., -1] = tau + delta * budget
    mass = np.concatenate([more, full[..., None]], axis=-1)
    mass /= mass.sum(axis=-1, keepdims=True)
    come_per_s = (state.rate_rps * pooled_prompt)[:, None]
    beyond = (1.0 - one) * (tokens - budget)
    over = ((own_step - ahead) @ beyond[..., None])[..., 0]  # of steps that the first token shares with too many others
    over -= (ahead @ (1.0 - one)[..., None])[..., 0] * come_per_s * state.window_s / 2.0
    # what comes until the first token does, beyond what the last step takes of it
    found = come_per_s * (
        (mass[..., :-1] @ (1.0 - one)[..., None])[..., 0] * state.window_s / 2.0
        + np.einsum("clk,clk->cl", mass, seconds)
    ) - np.einsum("clk,clk->cl", mass[..., :-1], fill)
    return seconds, mass, (state.weight * (found + np.maximum(over, 0.0))).sum(axis=1)


def _mean_steps(full: FloatArray, cell: FloatArray) -> FloatArray:
    """Steps that ``full`` budgets of tokens take, averaged over a lattice cell, so that no edge falls between cells."""

    def area(x: FloatArray) -> FloatArray:
        whole = np.floor(x)
        return np.asarray(whole * (whole + 1.0) / 2.0 + (x - whole) * (whole + 1.0))

    low = np.maximum(full - cell / 2.0, 0.0)
    high = full + cell / 2.0
    return np.maximum((area(high) - area(low)) / (high - low), 1.0)


def _delay(
    state: Backlog,
    replica: Replica | ReplicaStack,
    own: FloatArray,
    seconds: FloatArray,
    width: FloatArray,
    mass: FloatArray,
    idle: FloatArray,
    behind_tokens: FloatArray | None,
) -> PrefillDelay:
    """The delay of those that meet a step, and of those that find the replica idle."""
    tokens = np.arange(CELLS) * state.cell[:, None]
    budget = np.asarray(replica.max_batched_tokens)[..., None]
    count = _mean_steps(tokens / budget, state.cell[:, None] / budget)
    delta = np.asarray(replica.step.delta_s)[..., None]
    alone = count * replica.step.tau_s(0.0, 0.0)[..., None] + delta * tokens
    alone_mass = own * idle[:, None]
    total = mass.sum(axis=(1, 2)) + alone_mass.sum(axis=1)
    mass /= total[:, None, None]
    return PrefillDelay(
        start_s=seconds,
        width_s=width,
        mass=mass,
        alone_s=alone,
        blur_s=np.minimum(delta * state.cell[:, None], alone),  # one cell: the lattice must not show
        alone_mass=alone_mass / total[:, None],
        behind_tokens=behind_tokens,
    )
