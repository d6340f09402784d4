"""Stationary law of step lengths: each step takes what prompts wait, up to its budget, and collects new ones.

On a lattice of tokens; see docs/theory/replica.md.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from qmodel.types import FloatArray

__all__ = ["CELLS", "FILLED", "left_over", "marks", "stationary", "stationary_within_budget"]

CELLS = 80  # token lattice
_NODES = 10  # step lengths between an empty and a full budget
_APART = 10  # lattice points between the numbers of tokens left over for which arrivals that depend on it are computed

FILLED = np.linspace(0.0, 1.0, _NODES + 1)  # parts of the span that steps of each length take


def left_over(budget_cells: FloatArray) -> int:
    """How many lattice points of tokens left over there are."""
    room = CELLS - 1 - int(min(np.floor(budget_cells.min()), CELLS - 1.0))
    return min(room + 2, CELLS) if room else 1


def marks(size: int) -> FloatArray:
    """Some of the numbers of tokens left over, up to the last and beyond; where they lie does not depend on it."""
    return np.arange(0.0, size - 1.0 + _APART, _APART)


def stationary(
    collected: FloatArray, behind: FloatArray, budget_cells: FloatArray, span_cells: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Probabilities of the step lengths (C, nodes + 1), lattice law of what full steps leave (C, S), and ``taken``.

    A step with V tokens waiting takes min(V, budget) of them and leaves the rest; the next step finds what is left
    and what the step collected. So the step length and, behind a full step, the tokens left tell all: V is a mixture
    of as many laws as there are of these, and the balance equations are solved for their probabilities. A step that
    takes more than usual leaves more than usual behind; ``taken`` is the part of this that the next one takes.

    Args:
        collected: lattice law of what a step of each length collects, shape (C, nodes + 1, cells).
        behind: what a full step does behind some numbers of tokens left, at :func:`marks`, or one law for all of them,
            shape (C, n, cells).
        budget_cells: tokens that a step has for prompts, in lattice cells, shape (C,).
        span_cells: the most of them that the lattice shows, shape (C,).
    """
    free = budget_cells >= CELLS - 1.0
    if free.all() or not free.any():
        return _solved(collected, behind, budget_cells, span_cells)
    # cases whose budget nothing on the lattice exceeds have far fewer equations
    law, taken = np.empty((free.size, _NODES + 1)), np.ones(free.size)
    left = np.zeros((free.size, left_over(budget_cells)))
    for rows in (free, ~free):
        nodes, over, part = _solved(collected[rows], behind[rows], budget_cells[rows], span_cells[rows])
        law[rows], left[rows, : over.shape[1]], taken[rows] = nodes, over, part
    return law, left, taken


def _solved(
    collected: FloatArray, behind: FloatArray, budget_cells: FloatArray, span_cells: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    cases, size = collected.shape[0], left_over(budget_cells)
    whole = np.minimum(np.floor(budget_cells), CELLS - 1.0)  # the last cell that fits
    tokens = np.arange(CELLS)
    place = np.minimum(tokens / span_cells[:, None], 1.0) * _NODES
    filled = _split(np.where(tokens <= whole[:, None], place, 2.0 * _NODES), _NODES + 1)
    sources = np.empty((cases, _NODES + 1 + size, CELLS))
    sources[:, : _NODES + 1] = collected
    _move_on(behind, sources[:, _NODES + 1 :])
    balance = np.zeros((cases, _NODES + 1 + size, _NODES + 1 + size))
    balance[:, : _NODES + 1] = np.swapaxes(sources @ filled, 1, 2)
    if size > 1:
        # cells beyond the budget by m + 1 - part leave that over: a shift, with parts to the points beside it
        part = np.where(budget_cells < CELLS - 1.0, budget_cells - whole, 0.0)[:, None, None]
        beyond = (whole[:, None] + 1.0 + np.arange(size)).astype(np.intp)
        left = sources[np.arange(cases)[:, None], :, np.minimum(beyond, CELLS - 1)]
        left[beyond >= CELLS] = 0.0
        balance[:, _NODES + 1 :] = part * left
        balance[:, _NODES + 2 :] += (1.0 - part) * left[:, :-1]
    law = _balanced(balance)
    taken = np.ones(cases) if size == 1 else _taken(law, sources, budget_cells, span_cells)
    return law[:, : _NODES + 1], law[:, _NODES + 1 :], taken


def stationary_within_budget(gone: npt.NDArray[np.complex128]) -> FloatArray:
    """Probabilities of the step lengths where no step leaves tokens over, shape (C, nodes + 1).

    As :func:`stationary` finds them. How far the next step is filled is linear in the law of what a step collects, and
    so in its transform: the law itself is not needed.

    Args:
        gone: transform on twice the lattice of what a step of each length collects, shape (C, nodes + 1, cells + 1).
    """
    cases, nodes, _ = gone.shape
    filled = gone.view(float).reshape(cases * nodes, -1) @ _filled_by_transform()
    return _balanced(np.swapaxes(filled.reshape(cases, nodes, nodes), 1, 2).copy())


@lru_cache(maxsize=1)
def _filled_by_transform() -> FloatArray:
    """Step lengths that follow, per real and imaginary part of a transform, shape (2 cells + 2, nodes + 1)."""
    each = np.eye(CELLS + 1)
    spread = np.fft.irfft(np.stack([each, 1j * each], axis=1), 2 * CELLS, axis=-1)
    law = spread[..., :CELLS].copy()
    law[..., -1] += spread[..., CELLS:].sum(axis=-1)
    place = np.arange(CELLS) / (CELLS - 1.0) * _NODES
    return np.asarray((law @ _split(place, _NODES + 1)).reshape(2 * CELLS + 2, _NODES + 1))


def _balanced(balance: FloatArray) -> FloatArray:
    """Stationary law of chains whose moves to each state are in the rows, which are written over; shape (C, states)."""
    diagonal = np.arange(balance.shape[1])
    balance[:, diagonal, diagonal] -= 1.0
    balance[:, 0] = 1.0
    total = np.zeros((*balance.shape[:2], 1))
    total[:, 0] = 1.0
    law = np.maximum(np.linalg.solve(balance, total)[..., 0], 0.0)
    law /= law.sum(axis=1, keepdims=True)
    return np.asarray(law)


def _move_on(behind: FloatArray, moved: FloatArray) -> None:
    """What waits behind j cells left over: the law of what the full step collects moved by j, its tail at the end."""
    cases, size, _ = moved.shape
    if size == 1:
        moved[:] = behind[:, :1]
        return
    if behind.shape[1] == 1:
        padded = np.zeros((cases, size - 1 + CELLS))
        padded[:, size - 1 :] = behind[:, 0]
        outer, cell = padded.strides
        moved[:] = as_strided(padded[:, size - 1 :], moved.shape, (outer, -cell, cell))
        moved[:, 1:, -1] += np.cumsum(behind[:, 0, :0:-1], axis=1)[:, : size - 1]
        return
    # mixtures of the laws at the two marks beside each number
    padded = np.zeros((cases, size, size - 1 + CELLS))
    padded[..., size - 1 :] = _split(np.arange(size) / _APART, behind.shape[1]) @ behind
    outer, row, cell = padded.strides
    moved[:] = as_strided(padded[..., size - 1 :], moved.shape, (outer, row - cell, cell))
    moved[..., -1] += 1.0 - moved.sum(axis=2)


def _taken(law: FloatArray, sources: FloatArray, budget_cells: FloatArray, span_cells: FloatArray) -> FloatArray:
    """Part of what waits beyond the usual after a step that took more than usual, that the next step takes, (C,)."""
    used = np.concatenate([FILLED, np.ones(law.shape[1] - _NODES - 1)]) * span_cells[:, None]
    beyond = law * (used - (law * used).sum(axis=1, keepdims=True))
    later = (beyond[:, None, :] @ sources)[:, 0]  # covariance of the tokens taken with the law of those that wait next
    tokens = np.arange(CELLS)
    room = (later * np.minimum(tokens, budget_cells[:, None])).sum(axis=1)
    waits = later @ tokens
    taken = np.where(waits > 0.0, room / np.where(waits > 0.0, waits, 1.0), 1.0)
    return np.minimum(np.maximum(taken, 0.0), 1.0)


def _split(position: FloatArray, count: int) -> FloatArray:
    """Shares of each position that belong to the points 0 to ``count`` - 1 beside it; none far from them."""
    return np.maximum(1.0 - np.abs(position[..., None] - np.arange(count)), 0.0)
