"""A plain first-come, first-served multi-server queue, one request at a time."""

from __future__ import annotations

import heapq

import numpy as np


def slot_waits(arrival_s: np.ndarray, hold_s: np.ndarray, servers: int) -> np.ndarray:
    """Wait of each request, s, shape (n,), from an empty start."""
    free = [-np.inf] * servers
    waits = np.empty(arrival_s.size)
    for index, (arrival, hold) in enumerate(zip(arrival_s.tolist(), hold_s.tolist(), strict=True)):
        start = max(arrival, free[0])
        waits[index] = start - arrival
        heapq.heapreplace(free, start + hold)
    return waits
