"""Exact waits with arrivals other than Poisson, as oracles: GI/M/c in closed form, MMPP2/M/c as a quasi-birth-death."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def renewal_wait(gap_transform: Callable[[float], float], servers: int) -> tuple[float, float]:
    """P(wait) and mean wait of GI/M/c with mean service time 1 (Takacs 1962, chapter 2)."""
    low, high = 0.0, 1.0 - 1e-13
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gap_transform(servers * (1.0 - middle)) > middle else (low, middle)
    root = 0.5 * (low + high)
    total, product = 1.0 / (1.0 - root), 1.0
    for j in range(1, servers + 1):
        value = gap_transform(float(j))
        product *= value / (1.0 - value)
        total += (
            math.comb(servers, j) / (product * (1.0 - value))
            * (servers * (1.0 - value) - j) / (servers * (1.0 - root) - j)
        )  # fmt: skip
    p_wait = 1.0 / total / (1.0 - root)
    return p_wait, p_wait / (servers * (1.0 - root))


def modulated_wait(rates: tuple[float, float], switch: tuple[float, float], servers: int) -> tuple[float, float]:
    """P(wait) and mean wait of MMPP2/M/c with mean service time 1, over arrivals.

    Args:
        rates: arrival rate in each phase.
        switch: rate of leaving each phase.
    """
    up = np.diag(rates)
    change = np.array([[-switch[0], switch[0]], [switch[1], -switch[1]]])
    ratio = np.zeros((2, 2))  # R of the levels above c: up + R (change - up - c) + R^2 c = 0
    local = change - up - servers * np.eye(2)
    for _ in range(200_000):
        new = -(up + servers * ratio @ ratio) @ np.linalg.inv(local)
        if np.abs(new - ratio).max() < 1e-15:
            break
        ratio = new
    # pi_n = pi_(n+1) M_n for the levels below c, from the empty system up
    below = []
    back = np.zeros((2, 2))
    for n in range(servers):
        inner = change - up - n * np.eye(2) + back @ up
        back = -(n + 1) * np.linalg.inv(inner)
        below.append(back)
    at_full = change - up - servers * np.eye(2) + servers * ratio + below[-1] @ up
    _, _, rows = np.linalg.svd(at_full.T)
    full = np.abs(rows[-1])
    levels = [full]
    for matrix in reversed(below):
        levels.append(levels[-1] @ matrix)
    inverse = np.linalg.inv(np.eye(2) - ratio)
    beyond = full @ inverse
    total = sum(level.sum() for level in levels[1:]) + beyond.sum()
    arriving = sum(level @ rates for level in levels[1:]) + beyond @ rates
    queued = full @ ratio @ inverse @ inverse @ np.ones(2)
    return float(beyond @ rates / arriving), float(queued / total / (arriving / total))
