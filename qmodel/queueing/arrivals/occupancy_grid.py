"""Law of the number in system over time, on a grid: a diffusion towards the offered load, with a queue above c.

Below c the number is drawn to the load at the rate of service; above it grows or shrinks by what arrives beyond the
capacity. Steps are of unit z (the peakedness) where that reproduces M/M/c/z exactly; see docs/theory/bursty.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from qmodel.types.laws import FloatArray

__all__ = ["OccupancyGrid", "evolved_tails", "queue_grid", "stationary_tail"]

_LEAST_STEPS_BELOW = 16.0  # grid steps from an empty system to all servers busy
_EVEN_STEPS_ABOVE, _GROWTH = 60, 1.006  # the queue's grid: even at first, then steps grow with the backlog
_DEVIATIONS = 12.0  # standard deviations below the number of servers that the grid follows
_MOST_BELOW = 4000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OccupancyGrid:
    """Nodes of the number in system.

    Attributes:
        above: position of each node over the number of servers, ascending, shape (n,).
        cell: width of the cell around each node, shape (n,).
        full: index of the node where all servers are busy.
        servers: c.
        peakedness: z of what varies about the load.
    """

    above: FloatArray
    cell: FloatArray
    full: int
    servers: float
    peakedness: float


def queue_grid(servers: float, peakedness: float, largest_backlog: float) -> OccupancyGrid:
    """A grid that reaches from well below ``servers`` to ``largest_backlog`` above."""
    step = min(peakedness, servers / _LEAST_STEPS_BELOW)
    deviation = np.sqrt(servers * peakedness)
    below = int(min(servers / step, _DEVIATIONS * deviation / step + 50.0, _MOST_BELOW))
    even = step * np.arange(1, _EVEN_STEPS_ABOVE + 1)
    beyond = max(largest_backlog - float(even[-1]), 0.0)
    growing = 1 + int(np.log1p(beyond * (_GROWTH - 1.0) / step) / np.log(_GROWTH))
    widths = step * _GROWTH ** np.arange(1, growing + 1)
    above = np.concatenate([step * np.arange(-below, 1), even, even[-1] + np.cumsum(widths)])
    gap = np.diff(above)
    cell = np.concatenate([[gap[0]], 0.5 * (gap[1:] + gap[:-1]), [gap[-1]]])
    return OccupancyGrid(above=above, cell=cell, full=below, servers=servers, peakedness=peakedness)


def evolved_tails(
    grid: OccupancyGrid, load: FloatArray, spread: FloatArray, step: float, start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The law after each of T equal time steps.

    Args:
        grid: nodes.
        load: offered load that the number is drawn to, servers, shape (T,).
        spread: variability of the queue when servers are busy, 1 for Poisson and exponential service, shape (T,).
        step: length of a step, in mean service times.
        start: law at the start, shape (n,).

    Returns:
        P(number >= node) for the nodes from all servers busy on, in the middle of each step, shape (T, n - full), and
        the last law, shape (n,).
    """
    law, tails = start, np.empty((load.size + 1, grid.above.size - grid.full))
    tails[0] = np.cumsum(law[: grid.full - 1 : -1])[::-1]
    up, down = (rate * step for rate in _rates(grid, load, spread))
    for index in range(load.size):
        law = _stepped(law, up[index], down[index])
        tails[index + 1] = np.cumsum(law[: grid.full - 1 : -1])[::-1]
    return 0.5 * (tails[1:] + tails[:-1]), law


def _stepped(law: FloatArray, up: FloatArray, down: FloatArray) -> FloatArray:
    """One step of implicit Euler, extrapolated to second order from one whole and two half steps; stable at any length.

    Reference: Hairer and Wanner, Solving Ordinary Differential Equations II, 1996, sec. IV.9.
    """
    half = _implicit(_implicit(law, 0.5 * up, 0.5 * down), 0.5 * up, 0.5 * down)
    law = np.maximum(2.0 * half - _implicit(law, up, down), 0.0)
    return np.asarray(law / law.sum())


def _implicit(law: FloatArray, up: FloatArray, down: FloatArray) -> FloatArray:
    leaving = np.ones(law.size)
    leaving[:-1] += up
    leaving[1:] += down
    return np.asarray(lapack.dgtsv(-up, leaving, -down, law)[3])


def stationary_tail(grid: OccupancyGrid, load: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P(all servers busy), shape (T,), and the law, shape (T, n), if a load below c lasted forever."""
    up, down = _rates(grid, load, spread)
    with np.errstate(divide="ignore"):
        log_law = np.cumsum(np.log(up) - np.log(down), axis=1)
    log_law = np.concatenate([np.zeros((load.size, 1)), log_law], axis=1)
    law = np.exp(log_law - log_law.max(axis=1, keepdims=True))
    law = law / law.sum(axis=1, keepdims=True)
    return law[:, grid.full :].sum(axis=1), law


def _rates(grid: OccupancyGrid, load: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rates from each node to the next and back, per mean service time, shape (T, n - 1).

    Below c by central differences, which for steps of z are arrivals at a/z and services at n/z; above by exponential
    fitting, which keeps the stationary law exponential on uneven steps.
    """
    a, gap, cell = load[:, None], np.diff(grid.above), grid.cell
    below, above = gap[: grid.full], gap[grid.full :]
    number = grid.servers + grid.above[: grid.full + 1]
    scatter = grid.peakedness / (2.0 * below**2)
    up_below = scatter * (a + number[:-1]) + (a - number[:-1]) / (2.0 * below)
    down_below = scatter * (a + number[1:]) - (a - number[1:]) / (2.0 * below)
    down_below[:, -1] *= below[-1] / cell[grid.full]
    diffusion, drift = spread[:, None] * np.maximum(grid.servers, 0.5 * (a + grid.servers)), a - grid.servers
    pull = drift * above / diffusion
    up_above = diffusion / (above * cell[grid.full : -1]) * _bernoulli(-pull)
    down_above = diffusion / (above * cell[grid.full + 1 :]) * _bernoulli(pull)
    up = np.concatenate([np.maximum(up_below, 1e-300), up_above], axis=1)
    down = np.concatenate([np.maximum(down_below, 1e-300), down_above], axis=1)
    return up, down


def _bernoulli(x: FloatArray) -> FloatArray:
    """x / (exp(x) - 1)."""
    near = np.abs(x) < 1e-5
    safe = np.where(near, 1.0, x)
    return np.asarray(np.where(near, 1.0 - x / 2.0, safe / np.expm1(np.minimum(safe, 700.0))))
