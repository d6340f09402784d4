"""Number in system where the arrival rate switches between phases: a birth-death chain in a random environment.

The states are those of ``chain.py``; between two nodes that are several states apart the flow is that of a chain
which jumps from one to the other, with the ratio and the mean velocity of the states between. Behind the last node,
where more requests do not raise the speed, the law is matrix-geometric. See docs/theory/bursty-replica.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.queueing.bursts.phases import Phases
from qmodel.types import FloatArray

__all__ = ["JointLaw", "joint_law"]

_AT_ONCE = 1e10  # times the fastest rate: between nodes that are the same state
_DOUBLINGS = 60  # of the logarithmic reduction; it converges quadratically


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointLaw:
    """Stationary law of number and phase, C cases.

    Attributes:
        seen: probability of each node within each phase, the states past the last node in it, shape (C, m, K).
        last: probability of the last node's own state within the phase, shape (C, m).
        tail: of the states past it, shape (C, m).
        tail_excess: mean number of requests past it, shape (C, m).
        tail_square: mean of (k + 1)(k + 2) over the k requests at or past it, 0 before, shape (C, m).
    """

    seen: FloatArray
    last: FloatArray
    tail: FloatArray
    tail_excess: FloatArray
    tail_square: FloatArray


def joint_law(
    rate_rps: FloatArray,
    phases: Phases,
    number: FloatArray,
    weight: FloatArray,
    speed: FloatArray,
    noise: FloatArray,
    top: FloatArray,
) -> JointLaw:
    """Solve the balance equations.

    Args:
        rate_rps: mean arrivals, below the last speed, shape (C,).
        phases: of the arrivals.
        number: requests at each node, ascending, shape (1 or C, K).
        weight: states that each node stands for, shape (1 or C, K).
        speed: departures/s at each node, shape (C, m, K).
        noise: scatter in each phase, 1 where arrivals and departures are single and independent, shape (C, m).
        top: departures/s behind the last node, shape (C,).

    Reference: Latouche and Ramaswami, Introduction to Matrix Analytic Methods, 1999, ch. 8 and 12, for the method.
    """
    cases, m = phases.factor.shape
    rates = rate_rps[:, None] * phases.factor
    up, down = _flows(rates, noise, number, np.swapaxes(speed, 1, 2))
    full = np.broadcast_to(top[:, None], rates.shape)
    ratio = (rates / full) ** (1.0 / phases.noise[:, None])
    tail_down = _velocity(rates, full, ratio, 1.0, phases.noise[:, None])
    tail_up = ratio * tail_down
    if m == 1:
        state, onward = _one_phase(up, down), (tail_up / tail_down)[:, :, None]
    else:
        onward, returning = _tail(tail_up, tail_down, phases.switching)
        state = _chained(up, down, weight, tail_up, returning, phases.switching)
    last = state[:, -1].copy()
    inverse: FloatArray = np.linalg.inv(np.eye(m) - onward).astype(np.float64)
    tail = _through(_through(last, onward), inverse)
    excess = _through(tail, inverse)
    square = 2.0 * _through(_through(_through(last, inverse), inverse), inverse)
    state *= np.broadcast_to(weight, (cases, weight.shape[1]))[:, :, None]
    state[:, -1] += tail
    total = state.sum(axis=1)
    scale = 1.0 / np.where(total > 0.0, total, 1.0)
    return JointLaw(
        seen=np.ascontiguousarray(np.swapaxes(state * scale[:, None, :], 1, 2)),
        last=last * scale,
        tail=tail * scale,
        tail_excess=excess * scale,
        tail_square=square * scale,
    )


def _through(vector: FloatArray, matrix: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(np.einsum("cj,cjk->ck", vector, matrix), 0.0))


def _flows(
    rates: FloatArray, noise: FloatArray, number: FloatArray, speed: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Rates out of each node to the next one and from that one back, per state, shapes (C, K - 1, m)."""
    slow = -np.log(np.maximum(speed, 1e-300))
    slow[:, 0] = slow[:, 1]  # the rate out of the empty state never enters
    gaps = np.diff(number, axis=1)[:, :, None]
    width = np.where(gaps > 0.0, gaps, 1.0)
    steps = 0.5 * gaps * (slow[:, 1:] + slow[:, :-1]) + 0.5 * np.diff(slow, axis=1) * (gaps > 0.0)
    served = np.exp(-steps / width)
    arriving, scatter = rates[:, None, :], noise[:, None, :]
    exponent = np.clip(gaps * np.log(arriving / served) / scatter, -300.0, 300.0)
    ratio = np.exp(exponent)
    down = _velocity(arriving, served, ratio, width, scatter)
    fastest = np.maximum(rates.max(axis=1), speed.max(axis=(1, 2)))[:, None, None]
    down = np.where(gaps > 0.0, down, _AT_ONCE * fastest)  # nodes that repeat the last state are one
    return ratio * down, down


def _velocity(
    rate: FloatArray, served: FloatArray, ratio: FloatArray, width: FloatArray | float, noise: FloatArray
) -> FloatArray:
    """Rate back from the upper of two nodes: its product with ``ratio - 1`` is the mean velocity rate - served."""
    near = np.abs(ratio - 1.0) < 1e-6
    return np.asarray(np.where(near, served * noise / width, (rate - served) / np.where(near, 1.0, ratio - 1.0)))


def _one_phase(up: FloatArray, down: FloatArray) -> FloatArray:
    """Detailed balance, shape (C, K, 1), up to a factor per case."""
    log_mass = np.cumsum(np.log(up[:, :, 0]) - np.log(down[:, :, 0]), axis=1)
    log_mass = np.concatenate([np.zeros((up.shape[0], 1)), log_mass], axis=1)
    return np.asarray(np.exp(np.maximum(log_mass - log_mass.max(axis=1, keepdims=True), -300.0))[:, :, None])


def _tail(up: FloatArray, down: FloatArray, switching: FloatArray) -> tuple[FloatArray, FloatArray]:
    """R of the homogeneous part, and the phase in which a level is first left downwards (G), by logarithmic reduction.

    Reference: Latouche and Ramaswami, Journal of Applied Probability 30, 1993.
    """
    one = np.eye(up.shape[1])
    local = _stay(switching, up + down)
    rise, fall = local * up[:, None, :], local * down[:, None, :]
    reached, path = fall.copy(), rise.copy()
    for _ in range(_DOUBLINGS):
        mixed = np.linalg.inv(one - rise @ fall - fall @ rise)
        rise, fall = mixed @ rise @ rise, mixed @ fall @ fall
        step = path @ fall
        reached += step
        path = path @ rise
        if float(np.abs(step).max(initial=0.0)) < 1e-15:
            break
    reached /= reached.sum(axis=2, keepdims=True)
    return up[:, :, None] * _stay(switching + up[:, :, None] * reached, down), reached


def _chained(
    up: FloatArray,
    down: FloatArray,
    weight: FloatArray,
    tail_up: FloatArray,
    returning: FloatArray,
    switching: FloatArray,
) -> FloatArray:
    """Law per state, shape (C, K, m), up to a factor per case: eliminated from the last node, then followed up.

    ``returning`` is the phase in which the tail is left when it was entered in another. No difference is taken: the
    time spent at a node before it is left downwards follows from rates that are all positive.
    """
    cases, between, m = up.shape
    weight = np.broadcast_to(weight, (cases, between + 1))
    stays = np.empty((between, cases, m, m))
    rising, back = tail_up, returning
    for node in range(between, 0, -1):
        leave = down[:, node - 1]
        moves = weight[:, node, None, None] * switching + rising[:, :, None] * back
        stays[node - 1] = _stay(moves, leave)
        rising, back = up[:, node - 1], stays[node - 1] * leave[:, None, :]
    law = np.empty((between + 1, cases, m))
    size = np.zeros((between + 1, cases))
    law[0] = _balanced(weight[:, 0, None, None] * switching + rising[:, :, None] * back)
    for node in range(between):
        step = ((law[node] * up[:, node])[:, None, :] @ stays[node])[:, 0]
        total = step.sum(axis=1)
        law[node + 1] = step / total[:, None]
        size[node + 1] = size[node] + np.log(total)
    size -= size.max(axis=0)
    law *= np.exp(np.maximum(size, -300.0))[:, :, None]
    return np.ascontiguousarray(np.swapaxes(law, 0, 1))


def _stay(moves: FloatArray, leave: FloatArray) -> FloatArray:
    """Mean time in each phase until left, from rates between phases (diagonals are ignored) and of leaving, (C, m, m).

    The inverse of the negative generator, whose diagonal is a sum: nothing cancels.

    Reference: Grassmann, Taksar and Heyman, Operations Research 33, 1985.
    """
    m = leave.shape[1]
    if m == 2:
        a, b = moves[:, 0, 1], moves[:, 1, 0]
        x, y = leave[:, 0], leave[:, 1]
        scale = 1.0 / (a * y + b * x + x * y)
        found = np.empty_like(moves)
        found[:, 0, 0], found[:, 0, 1] = (b + y) * scale, a * scale
        found[:, 1, 0], found[:, 1, 1] = b * scale, (a + x) * scale
        return found
    return np.asarray(np.maximum(np.linalg.inv(_closed(-moves, leave)), 0.0))


def _closed(moves: FloatArray, leave: FloatArray | float = 0.0) -> FloatArray:
    """Negative rates off the diagonal, completed by a diagonal with which rows sum to ``leave``."""
    m = moves.shape[-1]
    rates = moves * (1.0 - np.eye(m))
    return np.asarray(rates + np.eye(m) * (leave - rates.sum(axis=-1))[..., None])


def _balanced(moves: FloatArray) -> FloatArray:
    """The stationary law of rates between phases, shape (C, m)."""
    system = np.swapaxes(_closed(-moves), 1, 2).copy()
    size = np.maximum(np.abs(system).max(axis=(1, 2)), 1e-300)
    system[:, -1, :] = size[:, None]
    right = np.zeros((moves.shape[0], moves.shape[1], 1))
    right[:, -1, 0] = size
    found = np.maximum(np.linalg.solve(system, right)[:, :, 0], 1e-300)
    return np.asarray(found / found.sum(axis=1, keepdims=True))
