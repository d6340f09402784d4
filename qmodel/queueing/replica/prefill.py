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

from qmodel.queueing.replica.chain import Occupancy, full_budget_batch, node_mean
from qmodel.queueing.replica.shortest_queue import share_coming, share_passed
from qmodel.queueing.replica.stacks import ReplicaStack, WorkStack
from qmodel.queueing.replica.step_chain import CELLS, FILLED, left_over, marks, stationary, stationary_within_budget
from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, Law, Replica

__all__ = ["CELLS", "Backlog", "ComplexArray", "backlog", "budget_binds", "lumped", "on_lattice"]

ComplexArray = npt.NDArray[np.complex128]

_SMOOTH = 1e-12  # differences of times over the longest that are none
_FAR_CLUMP = 8.0  # means of a geometric clump beyond which next to none is larger


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
        passed: mean part of it that has passed when an arrival falls into it, shape (C, L).
        weight: probability that an arrival falls into it, shape (C, L).
        left: lattice law of the tokens a full step leaves over, shape (C, cells).
        taken: part of what waits beyond the usual that one step takes, 1 where no budget fills, shape (C,).
        mean_tokens: prompt tokens that wait at the start of a step, on average, shape (C,).
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
    passed: FloatArray
    weight: FloatArray
    left: FloatArray
    taken: FloatArray
    mean_tokens: FloatArray
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
    beside: FloatArray | None = None,
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
        beside: replicas behind a router that looks at queues, shape (C,); None: no such router.
    """
    prompt = work.lengths.prompt
    tau, budget, cell = _lattice(replica, work, seen, rate_rps, clump)
    lattice = on_lattice(prompt, cell)
    spectrum = np.fft.rfft(lattice, 2 * CELLS, axis=1)
    wave = 1.0 - spectrum
    if clump is not None:
        wave = wave / (1.0 + clump[:, None] * wave)
    span = np.minimum(budget, cell * (CELLS - 1))
    steps, windows = _steps(replica, prompt, rate_rps, tau, span, evenness)
    if beside is None:
        got = _at_random(rate_rps, windows, wave)
    else:
        decoding = _decoding(work, rate_rps, tau, replica.step.delta_s * prompt.mean)
        calls = _Calls(
            even=np.broadcast_to(evenness, tau.shape),
            mean_waiting=np.maximum(seen.mean_batch - decoding, 0.0),
            decoding=decoding,
            prompt_tokens=prompt.mean,
        )
        size = left_over(budget / cell)
        got = _called(calls, rate_rps, windows, wave, span, cell, size, share_passed(beside, rate_rps[:, None] * steps))
    if bool((budget >= cell * (CELLS - 1)).all()):
        nodes, left, taken = stationary_within_budget(got.gone), np.zeros((cell.size, 1)), np.ones(cell.size)
    else:
        collected = lumped(got.gone)
        behind = collected[:, -1:] if got.behind is None else lumped(got.behind)
        nodes, left, taken = stationary(collected, behind, budget / cell, span / cell)
    some = left.sum(axis=1, keepdims=True)
    mean_tokens = span * (nodes @ FILLED + some[:, 0]) + cell * (left @ np.arange(left.shape[1]))
    left = left * got.late  # arrivals fall into steps that collect much
    late = left.sum(axis=1, keepdims=True)
    weight = np.concatenate([nodes * got.windows, late], axis=1)
    last = np.where(some > 0.0, late / np.maximum(some, 1e-300), got.late[:, :1])
    last_gone = got.gone[:, -1:] if beside is None else _arrivals(rate_rps, last, wave)
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
        gone=np.concatenate([got.gone, last_gone], axis=1),
        step_s=np.concatenate([steps, steps[:, -1:]], axis=1),
        window_s=np.concatenate([got.windows, last], axis=1),
        passed=np.concatenate([got.passed, got.passed[:, -1:]], axis=1),
        weight=weight / weight.sum(axis=1, keepdims=True),
        left=spare / spare.sum(axis=1, keepdims=True),
        taken=taken,
        mean_tokens=mean_tokens,
        prompt=prompt,
        lattice=lattice,
        spectrum=spectrum,
        clump=clump,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Collected:
    """What steps collect, C cases.

    Attributes:
        windows, late: times over which steps of each length, and steps that leave tokens over, collect arrivals at the
            mean rate, shapes (C, nodes + 1) and (C, S) or (C, 1).
        gone, behind: transforms of the prompt tokens that these collect, the latter for numbers left at marks; None
            where a step that leaves tokens collects what any full one does.
        passed: mean part of a step that has passed when an arrival falls into it, shape (C, nodes + 1).
    """

    windows: FloatArray
    late: FloatArray
    gone: ComplexArray
    behind: ComplexArray | None
    passed: FloatArray


def _at_random(rate_rps: FloatArray, windows: FloatArray, wave: ComplexArray) -> _Collected:
    """Arrivals that do not care for the state of the replica."""
    gone = _arrivals_evenly(rate_rps, windows, wave)
    half = np.full(windows.shape, 0.5)
    return _Collected(windows=windows, late=windows[:, -1:], gone=gone, behind=None, passed=half)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Calls:
    """What a router that looks at queues goes by; see :func:`share_coming`."""

    even: FloatArray
    mean_waiting: FloatArray
    decoding: FloatArray
    prompt_tokens: float

    def share(self, waiting_tokens: FloatArray) -> FloatArray:
        """Arrivals at a replica where so many prompt tokens wait over those at a usual one, shape (C, n)."""
        return share_coming(self.even, waiting_tokens / self.prompt_tokens, self.mean_waiting, self.decoding)


def _called(
    calls: _Calls,
    rate_rps: FloatArray,
    windows: FloatArray,
    wave: ComplexArray,
    span: FloatArray,
    cell: FloatArray,
    size: int,
    passed: FloatArray,
) -> _Collected:
    """Arrivals that a router sends where few are present."""
    full = windows[:, -1:]
    windows = windows * calls.share(span[:, None] * FILLED)
    gone = _arrivals_along(rate_rps, windows, wave)
    at_marks = full * calls.share(span[:, None] + cell[:, None] * marks(size))
    return _Collected(
        windows=windows,
        late=full * calls.share(span[:, None] + cell[:, None] * np.arange(size)),
        gone=gone,
        behind=None if size == 1 else _arrivals_along(rate_rps, at_marks, wave),
        passed=passed,
    )


def budget_binds(
    replica: Replica | ReplicaStack,
    work: Work | WorkStack,
    seen: Occupancy,
    rate_rps: FloatArray,
    clump: FloatArray | None = None,
) -> npt.NDArray[np.bool_]:
    """Whether waiting prompts may exceed a step's budget, shape (C,); arguments as :func:`backlog` has them."""
    _, budget, cell = _lattice(replica, work, seen, rate_rps, clump)
    return np.asarray(cell * (CELLS - 1) > budget)


def _lattice(
    replica: Replica | ReplicaStack,
    work: Work | WorkStack,
    seen: Occupancy,
    rate_rps: FloatArray,
    clump: FloatArray | None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Step time without prefill, tokens that a step has for prompts, and tokens per lattice cell, shapes (C,)."""
    prompt = work.lengths.prompt
    batch, tau = _met_batch(replica, work, seen)
    budget = np.maximum(replica.max_batched_tokens - batch, 1.0)
    reach = _reach(replica, prompt, rate_rps, tau, budget)
    if clump is not None:
        reach = reach + _FAR_CLUMP * np.maximum(clump, 0.0) * prompt.mean
    return tau, budget, reach / (CELLS - 2)


def _decoding(
    work: Work | WorkStack, rate_rps: FloatArray, tau: FloatArray, prefill_s: FloatArray | float
) -> FloatArray:
    """Mean number of sequences of a replica that decode, at least 1: rate times output steps times mean step."""
    step_s = tau / np.maximum(1.0 - rate_rps * prefill_s, 0.05)
    return np.asarray(np.maximum(rate_rps * (work.lengths.output.mean - 1.0) * step_s, 1.0))


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
    steps = tau[:, None] + (delta * span)[:, None] * FILLED
    typical = np.minimum(tau / np.maximum(1.0 - rate * prompt.mean * delta, 0.05), steps[:, -1])
    even = np.asarray(evenness)[..., None]
    return steps, (1.0 - even) * steps + even * typical[:, None]


def _arrivals(rate: FloatArray, seconds: FloatArray, wave: ComplexArray) -> ComplexArray:
    """Transform of the prompt tokens that arrive in these times, shape (C, n, F)."""
    return np.asarray(np.exp(-(rate[:, None] * seconds)[..., None] * wave[:, None, :]))


def _arrivals_evenly(rate: FloatArray, seconds: FloatArray, wave: ComplexArray) -> ComplexArray:
    """The same by products where the times are evenly spaced: two exponentials are taken."""
    gone = np.empty((*seconds.shape, wave.shape[1]), dtype=complex)
    gone[:, 0] = np.exp(-(rate * seconds[:, 0])[:, None] * wave)
    ratio = np.exp(-(rate * (seconds[:, 1] - seconds[:, 0]))[:, None] * wave)
    for node in range(1, seconds.shape[1]):
        np.multiply(gone[:, node - 1], ratio, out=gone[:, node])
    return gone


def _arrivals_along(rate: FloatArray, seconds: FloatArray, wave: ComplexArray) -> ComplexArray:
    """The same by products where the times go by a polynomial of second degree: few exponentials are taken."""
    bends = np.diff(seconds, n=2, axis=1)
    scale = np.abs(seconds).max(axis=1, keepdims=True)
    if seconds.shape[1] < 4 or bool((np.abs(np.diff(bends, axis=1)) > _SMOOTH * scale).any()):
        return _arrivals(rate, seconds, wave)
    powers = np.empty((*seconds.shape, wave.shape[1]), dtype=complex)
    powers[:, 0] = np.exp(-(rate * seconds[:, 0])[:, None] * wave)
    ratio = np.exp(-(rate * (seconds[:, 1] - seconds[:, 0]))[:, None] * wave)
    curved = bool((np.abs(bends) > _SMOOTH * scale).any())
    bend = np.exp(-(rate * bends[:, 0])[:, None] * wave) if curved else None
    for node in range(1, seconds.shape[1]):
        np.multiply(powers[:, node - 1], ratio, out=powers[:, node])
        if bend is not None:
            ratio *= bend
    return powers


def lumped(transform: ComplexArray) -> FloatArray:
    """Back to the lattice; what lies beyond its end is put at the end."""
    full = np.fft.irfft(transform, 2 * CELLS, axis=-1)
    law = np.maximum(full[..., :CELLS], 0.0)
    law[..., -1] += np.maximum(np.add.reduce(full[..., CELLS:], axis=-1), 0.0)
    law /= np.add.reduce(law, axis=-1, keepdims=True)
    return law
