"""M/PH/c as a quasi-birth-death process: the states of each level and the rates between levels."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from qmodel.queueing.servers.phase_type import PhaseType
from qmodel.types.laws import FloatArray

__all__ = ["MAX_STATES", "Levels", "phase_levels", "state_count"]

MAX_STATES = 300  # phase configurations of c busy servers; time grows with their cube, memory with cube or less


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """Rates of the number present with the phases of those in service; level n < c has n in service.

    Attributes:
        arrive: arrival rate, 1/s.
        leave_s: mean service time of the unit in which rates are given, always 1.
        up: rates from level n to n + 1 over the arrival rate, n = 0 .. c - 1; above, the phases stay as they are.
        local: rates within level n without arrivals, diagonal included, n = 0 .. c.
        down: rates from level n to n - 1, n = 1 .. c (first entry unused).
        replace: rates of completions whose server takes the next one waiting, level c + 1 to c and above.
    """

    arrive: float
    up: tuple[FloatArray, ...]
    local: tuple[FloatArray, ...]
    down: tuple[FloatArray, ...]
    replace: FloatArray


def state_count(servers: int, phases: int) -> int:
    """Ways to spread ``servers`` busy servers over ``phases`` phases.

    Example:
        >>> state_count(32, 2), state_count(8, 3)
        (33, 45)
    """
    return comb(servers + phases - 1, phases - 1)


def phase_levels(rate: float, service: PhaseType, servers: int) -> Levels:
    """Rates of all levels for arrivals at ``rate`` per mean service time.

    Args:
        rate: arrivals per mean service time.
        service: law of the service time; its unit of time is scaled to its mean.
        servers: c.
    """
    start = np.asarray(service.initial, dtype=float)
    rates = np.asarray(service.generator, dtype=float) * service.mean_s
    finish = np.maximum(-rates.sum(axis=1), 0.0)
    states = [_compositions(n, start.size) for n in range(servers + 1)]
    phases = range(start.size)
    up: list[FloatArray] = []
    local: list[FloatArray] = []
    down: list[FloatArray] = [np.zeros((1, 1))]
    for n, now in enumerate(states):
        stay: FloatArray = np.diag(now @ np.diag(rates).astype(float))
        for i in phases:
            for j in phases:
                if i != j and rates[i, j] > 0.0:
                    _add(stay, now, now, i, j, now[:, i] * rates[i, j])
        local.append(stay)
        if n < servers:
            more = np.zeros((len(now), len(states[n + 1])))
            for j in phases:
                _add(more, now, states[n + 1], None, j, np.full(len(now), start[j]))
            up.append(more)
        if n > 0:
            fewer = np.zeros((len(now), len(states[n - 1])))
            for i in phases:
                _add(fewer, now, states[n - 1], i, None, now[:, i] * finish[i])
            down.append(fewer)
    return Levels(
        arrive=rate, up=tuple(up), local=tuple(local), down=tuple(down), replace=down[servers] @ up[servers - 1]
    )


def _compositions(total: int, parts: int) -> npt.NDArray[np.int64]:
    """All ways to write ``total`` as an ordered sum of ``parts``, in the order of their keys; shape (k, parts)."""
    if parts == 1:
        return np.array([[total]])
    if parts == 2:
        return np.stack([np.arange(total + 1), total - np.arange(total + 1)], axis=1)
    rows = [
        np.column_stack(
            [np.full(comb(total - head + parts - 2, parts - 2), head), _compositions(total - head, parts - 1)]
        )
        for head in range(total + 1)
    ]
    return np.concatenate(rows)


def _add(
    matrix: FloatArray,
    origin: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    leaves: int | None,
    joins: int | None,
    rate: FloatArray,
) -> None:
    """Add ``rate`` from each state to the state with one server less in phase ``leaves``, one more in ``joins``."""
    moved = origin.copy()
    if leaves is not None:
        moved[:, leaves] -= 1
    if joins is not None:
        moved[:, joins] += 1
    possible = rate > 0.0
    base = np.power(int(target.sum(axis=1).max()) + 1, np.arange(target.shape[1])[::-1], dtype=np.int64)
    found = np.searchsorted(target @ base, moved[possible] @ base)
    matrix[np.flatnonzero(possible), found] += rate[possible]
