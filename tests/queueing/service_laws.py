"""The service laws of tests/data/queueing/simulated_wait.csv, mean 1, by their names there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy import optimize, special, stats

from qmodel.types import FloatArray, Law

__all__ = ["service_law"]

# The simulator drew from the quantile function, linear between these points: 2,048 cells for each 64th of the tail.
_LEVELS, _CELLS = 6, 2048
_TAIL = (1.0 - np.arange(_CELLS + 1) / _CELLS)[None, :] * 64.0 ** -np.arange(_LEVELS)[:, None]
_PER_ATOM = 8  # cells

# Names: the squared coefficient of variation, or for Pareto scv-ratio or a<exponent>-ratio of largest to smallest.
_MIXTURES = {
    "mix-a": ([(0.58, 7.57, 0.83), (0.42, 9.20, 0.48)], 32768.0),
    "mix-b": ([(0.8, 5.0, 1.0), (0.2, 9.0, 0.8)], 16384.0),
    "mix-c": ([(0.9, 4.5, 0.6), (0.1, 8.5, 1.0)], 30000.0),
}
_TWO_VALUES = {"two-1-10": (0.1, 10.0), "two-1-50": (0.03, 50.0), "two-1-4": (0.3, 4.0)}


@cache
def service_law(name: str) -> Law:
    """The law as atoms with the moments of what the simulator drew."""
    values = np.asarray(_tail_quantile(name)(np.maximum(_TAIL, 64.0**-_LEVELS * 1e-3)), dtype=float)
    if name.startswith(("lognormal", "gamma", "weibull")):
        values[0, 0] = 0.0
    used = [_CELLS * 63 // 64] * (_LEVELS - 1) + [_CELLS]
    low = np.concatenate([values[level, :n] for level, n in enumerate(used)])
    high = np.concatenate([values[level, 1 : n + 1] for level, n in enumerate(used)])
    mass = np.concatenate([np.full(n, 64.0**-level / _CELLS) for level, n in enumerate(used)])
    mass /= mass.sum()
    first = float(mass @ (low + high)) / 2.0
    low, high = low / first, high / first
    second = float(mass @ (low**2 + low * high + high**2)) / 3.0
    third = float(mass @ (low**3 + low**2 * high + low * high**2 + high**3)) / 4.0
    order = np.argsort(low + high, kind="stable")
    group = np.arange(order.size) // _PER_ATOM
    weight = np.bincount(group, weights=mass[order])
    atoms = np.bincount(group, weights=(mass * (low + high) / 2.0)[order]) / weight
    merged, inverse = np.unique(atoms, return_inverse=True)
    return Law(values=merged, weights=np.bincount(inverse, weights=weight), moments=(1.0, second, third), label=name)


def _tail_quantile(name: str) -> Callable[[FloatArray], FloatArray]:
    """The value that is exceeded with a given probability."""
    kind, _, rest = name.partition("-")
    if name in _MIXTURES:
        return _capped_mixture(*_MIXTURES[name])
    if name in _TWO_VALUES:
        share, large = _TWO_VALUES[name]
        return lambda tail: np.where(tail < share, large, 1.0)
    if name == "uniform":
        return lambda tail: 1.0 - tail
    if name == "uniform-mix":
        return lambda tail: np.where(tail < 0.25, 1.0 + (0.25 - tail) * 12.0, (1.0 - tail) / 0.75)
    if kind == "pareto":
        return _bounded_pareto(*rest.split("-"))
    scv = float(rest)
    if kind == "lognormal":
        return lambda tail: stats.lognorm.isf(tail, np.sqrt(np.log1p(scv)))
    if kind == "gamma":
        return lambda tail: stats.gamma.isf(tail, 1.0 / scv)

    def excess(shape: float) -> float:
        return float(special.gamma(1.0 + 2.0 / shape) / special.gamma(1.0 + 1.0 / shape) ** 2 - 1.0 - scv)

    power = 1.0 / optimize.brentq(excess, 0.15, 8.0)  # Weibull
    return lambda tail: (-np.log(tail)) ** power


def _bounded_pareto(shape: str, ratio: str) -> Callable[[FloatArray], FloatArray]:
    largest = float(ratio)

    def moment(alpha: float, k: int) -> float:
        norm = alpha / (1.0 - largest**-alpha)
        return float(norm * (largest ** (k - alpha) - 1.0) / (k - alpha))

    def excess(alpha: float) -> float:
        return moment(alpha, 2) / moment(alpha, 1) ** 2 - 1.0 - float(shape)

    alpha = float(shape[1:]) if shape.startswith("a") else optimize.brentq(excess, 1.02, 6.0)
    return lambda tail: (1.0 - (1.0 - tail) * (1.0 - largest**-alpha)) ** (-1.0 / alpha)


def _capped_mixture(parts: list[tuple[float, float, float]], cap: float) -> Callable[[FloatArray], FloatArray]:
    """Lognormal parts (weight, mu, sigma), with an atom at the cap."""
    grid = np.exp(np.linspace(np.log(cap) - 14.0, np.log(cap), 20_001))
    above = sum(w * stats.norm.sf((np.log(grid) - mu) / sigma) for w, mu, sigma in parts)
    return lambda tail: np.where(tail <= above[-1], cap, np.interp(-tail, -above, grid))
