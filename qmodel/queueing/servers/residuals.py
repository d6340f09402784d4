"""The shortest of several residual service times: what a law must tell a queue with many servers.

An arrival that finds all servers busy waits for the first of them to finish. How
long that is depends on how many residual times compete, and a curve over that
number holds all that the formulas of M/G/c use of a service law.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import special

from qmodel.types.laws import FloatArray

__all__ = ["MomentResiduals", "ResidualCurve", "Residuals", "curve_of_atoms", "curve_of_moments"]

_MOST = 4096.0  # beyond so many competitors every law's ratio is within 1/4096 of its limit
_LOG_NODES = np.log(_MOST) * np.linspace(0.0, 1.0, 96) ** 2  # dense near one, where heavy tails bend
_NODES = np.exp(_LOG_NODES)
_PANELS, _NODES_PER_PANEL = 20, 8
_DECADES = 14.0  # from where every residual survives to where its power has vanished
_LEAST_SPREAD = 1e-6  # scv below which a law is taken as constant: its gamma quantiles lose their digits


class Residuals(Protocol):
    """What the formulas of M/G/c ask of a service law."""

    @property
    def survives(self) -> tuple[npt.ArrayLike, npt.ArrayLike]: ...
    def ratio_at(self, competitors: FloatArray) -> FloatArray: ...
    def shape_at(self, competitors: FloatArray) -> tuple[FloatArray, FloatArray]: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResidualCurve:
    """Moments of the shortest of k independent residual service times, k from 1 to 4,096, at fixed nodes.

    Attributes:
        ratio: k E[min] / E[S]: (1 + scv)/2 at k = 1, the light-traffic ratio of a queue with k servers.
        spread: E[min^2] / E[min]^2; 2 for exponential service.
        third: E[min^3] / E[min]^3; 6 for exponential service.
    """

    ratio: FloatArray
    spread: FloatArray
    third: FloatArray

    def ratio_at(self, competitors: FloatArray) -> FloatArray:
        """k E[min] / E[S] for real k >= 1, any shape."""
        return np.interp(np.log(competitors), _LOG_NODES, self.ratio)

    def shape_at(self, competitors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """E[min^2] / E[min]^2 and E[min^3] / E[min]^3 for real k >= 1, any shape."""
        at = np.log(competitors)
        return np.interp(at, _LOG_NODES, self.spread), np.interp(at, _LOG_NODES, self.third)

    @property
    def survives(self) -> tuple[float, float]:
        """Shares of the heavy-traffic ratio that are left where two and where four residuals compete."""
        two, four = self.ratio_at(np.array([2.0, 4.0]))
        return float(two / self.ratio[0]), float(four / self.ratio[0])


def curve_of_atoms(values: FloatArray, weights: FloatArray, moments: tuple[float, float, float]) -> ResidualCurve:
    """The curve of a law of atoms.

    The residual's survival is piecewise linear, so that the integrals of its powers are closed forms.

    Args:
        values: service times or token counts, ascending, shape (n,), in any unit.
        weights: their probabilities, shape (n,), sum 1.
        moments: E[S], E[S^2], E[S^3] of the law, where they are better known than by its atoms.

    Example:
        >>> one = curve_of_atoms(np.array([2.0]), np.array([1.0]), (2.0, 4.0, 8.0))
        >>> round(float(one.ratio_at(np.array(4.0))), 3)
        0.8
    """
    atoms = np.asarray(values, dtype=float) / float(np.asarray(values, dtype=float) @ weights)
    start = np.concatenate([[0.0], atoms[:-1]])
    slope = np.cumsum(weights[::-1])[::-1]  # P(S >= atom): how fast the residual's survival falls before the atom
    drop = (atoms - start) * slope
    left = np.cumsum(drop[::-1])[::-1]
    used = (drop > 0.0) & (left > 1e-280)
    start, slope, drop, left = start[used], slope[used], drop[used], left[used]
    with np.errstate(divide="ignore"):  # the last piece ends at zero
        right_log = np.log(np.maximum(left - drop, 0.0) * (drop < left))
    first, second, third = _powers_over_pieces(start + left / slope, slope, np.log(left), right_log)
    known = np.asarray(moments, dtype=float) / moments[0] ** np.arange(1.0, 4.0)
    # what the atoms lack of the law's far tail matters where one residual decides, and fades as more compete
    first += (known[1] / 2.0 - first[0]) / _NODES**2
    second += (known[2] / 3.0 - second[0]) / _NODES**2
    return _curve(first, np.maximum(second, first**2), third)


def _powers_over_pieces(
    reach: FloatArray, slope: FloatArray, left_log: FloatArray, right_log: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """k, 2 k^2 and 3 k^3 times the integrals of S^k, t S^k and t^2 S^k, where S = slope (reach - t) on each piece."""
    k = _NODES[:, None]
    left, right = np.exp(k * left_log), np.exp(k * right_log)
    moment = []
    for extra in (1.0, 2.0, 3.0):
        left, right = left * np.exp(left_log), right * np.exp(right_log)
        moment.append((left - right) / (k + extra))
    plain, linear, square = moment
    once = linear / slope
    first = (plain / slope).sum(axis=1)
    second = ((reach * plain - once) / slope).sum(axis=1)
    third = ((reach**2 * plain - 2.0 * reach * once + square / slope**2) / slope).sum(axis=1)
    return _NODES * first, 2.0 * _NODES**2 * second, 3.0 * _NODES**3 * third


@lru_cache(maxsize=1024)
def curve_of_moments(scv: float, nu: float) -> ResidualCurve:
    """The curve of the law that stands in for moments: constant, gamma, or a hyperexponential of two branches.

    Args:
        scv: Var[S] / E[S]^2.
        nu: E[R^2] / E[R]^2 of the residual R.

    Example:
        >>> round(float(curve_of_moments(0.0, 4.0 / 3.0).ratio_at(np.array(4.0))), 3)
        0.8
    """
    rows = MomentResiduals.of(np.full(1, scv), np.full(1, nu))
    return _curve(*rows.shortest(np.arange(_NODES.size), 3))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MomentResiduals:
    """Residuals of many service times known by moments, one a row; the numbers are those of :func:`curve_of_moments`.

    Attributes:
        heavy: (1 + scv)/2, shape (n,).
        exponential: whether the law is, shape (n,); its numbers are known without integration.
        log_survival: log P(R > t) of the stand-in law at quadrature times, shape (n, T).
        time: those times in mean services, shape (n, T).
        area: their quadrature weights, shape (n, T).
    """

    heavy: FloatArray
    exponential: npt.NDArray[np.bool_]
    log_survival: FloatArray
    time: FloatArray
    area: FloatArray

    @classmethod
    def of(cls, scv: FloatArray, nu: FloatArray) -> MomentResiduals:
        """Choose the stand-in laws; both arguments of shape (n,)."""
        nodes, weights = np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
        edges = np.linspace(-_DECADES, 0.0, _PANELS + 1)
        half = np.diff(edges)[:, None] / 2.0
        step = 10.0 ** (edges[:-1, None] + half * (nodes + 1.0)).ravel()
        constant = scv < _LEAST_SPREAD
        # a constant residual ends at 1; (1 + scv) nu bounds the slowest phase's mean: exp(-40) is left beyond
        horizon = np.where(constant, 1.0, 40.0 * (1.0 + scv) * np.maximum(nu, 2.0))
        time = horizon[:, None] * step
        mixed = (scv > 1.0) & (nu > 2.0 * (1.0 + 1e-12))  # has a hyperexponential; gamma stands in elsewhere
        left = np.maximum(1.0 - time, 0.0)
        for rows, survival in ((~constant & ~mixed, _gamma_residual), (mixed, _hyperexponential_residual)):
            if np.any(rows):
                left[rows] = survival(time[rows], scv[rows, None], nu[rows, None])
        with np.errstate(divide="ignore"):
            log_survival = np.log(np.clip(left, 0.0, 1.0))
        area = (half * weights).ravel() * np.log(10.0) * time
        exponential = (np.abs(scv - 1.0) < 1e-12) & (np.abs(nu - 2.0) < 1e-9)
        return cls(heavy=(1.0 + scv) / 2.0, exponential=exponential, log_survival=log_survival, time=time, area=area)

    def shortest(self, node: npt.NDArray[np.intp], highest: int) -> list[FloatArray]:
        """k^m E[min^m] = m k^m int t^(m-1) P(R > t)^k dt of the shortest of k residuals, m = 1 .. ``highest``.

        Args:
            node: which k; broadcasts against the rows.
            highest: 1 or 3.
        """
        k = _NODES[node]
        weight = np.exp(k[..., None] * self.log_survival) * self.area
        first = np.where(node == 0, self.heavy, k * (weight.sum(axis=-1) + self.time[:, 0]))
        moments = [np.where(self.exponential, 1.0, first)]
        for order in range(2, highest + 1):
            weight *= self.time
            area = order * k**order * weight.sum(axis=-1)
            moments.append(np.where(self.exponential, (2.0, 6.0)[order - 2], area))
        return moments

    def ratio_at(self, competitors: FloatArray) -> FloatArray:
        """k E[min] / E[S] for real k >= 1, shape (n,)."""
        node, share = self._place(competitors)
        low, high = (self.shortest(place, 1)[0] for place in (node, node + 1))
        return np.asarray(low + share * (high - low))

    def shape_at(self, competitors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """E[min^2] / E[min]^2 and E[min^3] / E[min]^3 for real k >= 1, shape (n,)."""
        node, share = self._place(competitors)
        low, high = (_curve(*self.shortest(place, 3)) for place in (node, node + 1))
        spread = low.spread + share * (high.spread - low.spread)
        return np.asarray(spread), np.asarray(low.third + share * (high.third - low.third))

    @property
    def survives(self) -> tuple[FloatArray, FloatArray]:
        """Shares of the heavy-traffic ratio that are left where two and where four residuals compete."""
        two, four = (self.ratio_at(np.full_like(self.heavy, k)) / self.heavy for k in (2.0, 4.0))
        return two, four

    def _place(self, competitors: FloatArray) -> tuple[npt.NDArray[np.intp], FloatArray]:
        """The node below each k, and how far k is on the way to the next."""
        at = np.minimum(np.log(competitors), _LOG_NODES[-1])
        node = np.clip(np.searchsorted(_LOG_NODES, at, side="right") - 1, 0, _NODES.size - 2)
        return node, np.asarray((at - _LOG_NODES[node]) / (_LOG_NODES[node + 1] - _LOG_NODES[node]))


def _curve(first: FloatArray, second: FloatArray, third: FloatArray) -> ResidualCurve:
    return ResidualCurve(ratio=first, spread=second / first**2, third=third / first**3)


def _gamma_residual(time: FloatArray, scv: FloatArray, nu: FloatArray) -> FloatArray:
    del nu  # two moments fix a gamma law
    shape, x = 1.0 / scv, time / scv
    return np.asarray(special.gammaincc(shape + 1.0, x) - time * special.gammaincc(shape, x))


def _hyperexponential_residual(time: FloatArray, scv: FloatArray, nu: FloatArray) -> FloatArray:
    """The phase means are the roots of x^2 - A x + B that match three moments at mean 1."""
    second = (1.0 + scv) / 2.0
    third = nu * second**2 / 2.0
    total = (third - second) / (second - 1.0)
    product = total - second
    gap = np.sqrt(np.maximum(total**2 - 4.0 * product, 0.0))
    long = (total + gap) / 2.0
    short = product / long
    share = (1.0 - short) / (long - short)  # probability of the long phase
    return np.asarray(share * long * np.exp(-time / long) + (1.0 - share) * short * np.exp(-time / short))
