"""What M/G/c needs to know of a service time: mean, spread, and how its residual looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import special

from qmodel.queueing.halfin_whitt import light_traffic_ratio, residual_spread
from qmodel.types.laws import FloatArray

__all__ = ["Moments", "Service", "ServiceLaw"]

_PANELS, _NODES_PER_PANEL = 28, 10
_DECADES = 18.0  # from where the residual survival is still 1 to where its power has vanished


class ServiceLaw(Protocol):
    """A law of atoms in seconds, such as :class:`qmodel.types.Law` with its values read as seconds."""

    @property
    def values(self) -> FloatArray: ...
    @property
    def weights(self) -> FloatArray: ...
    @property
    def moments(self) -> tuple[float, float, float]: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """A service time by its moments; fields broadcast against each other and against rates and servers.

    Where the third moment is not given it is that of a stand-in law: gamma for scv <= 1 (constant at 0,
    exponential at 1), a hyperexponential with balanced loads above.

    Attributes:
        mean_s: E[S], s, positive.
        scv: Var[S] / E[S]^2, at least 0.
        third: E[S^3], s^3; None: that of the stand-in law.

    Example:
        >>> float(Moments(mean_s=2.0, scv=0.0).nu) == 4.0 / 3.0
        True
    """

    mean_s: npt.ArrayLike
    scv: npt.ArrayLike
    third: npt.ArrayLike | None = None
    nu: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        mean, scv = np.asarray(self.mean_s, dtype=float), np.asarray(self.scv, dtype=float)
        if not np.all(np.isfinite(mean) & (mean > 0.0)):
            raise ValueError(f"service mean_s must be finite and above 0 s (got {self.mean_s!r})")
        if not np.all(np.isfinite(scv) & (scv >= 0.0)):
            raise ValueError(f"service scv must be finite and at least 0 (got {self.scv!r}); it is Var[S] / E[S]^2")
        nu = _stand_in_nu(scv)
        if self.third is not None:
            third = np.asarray(self.third, dtype=float)
            least = mean**3 * (1.0 + scv) ** 2
            if not np.all(np.isfinite(third) & (third >= least * (1.0 - 1e-9))):
                raise ValueError(
                    f"service third must be E[S^3] in s^3, at least E[S^2]^2 / E[S] = {np.max(least):g} "
                    f"(got {self.third!r}); leave it out if it is not known"
                )
            nu = residual_spread(mean, mean**2 * (1.0 + scv), third)
        object.__setattr__(self, "nu", nu)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Service:
    """Mean, scv and residual spread of a service time, with its light-traffic ratio for given servers.

    Attributes:
        mean_s: E[S], s.
        scv: Var[S] / E[S]^2.
        nu: E[R^2] / E[R]^2 of the residual R.
        law: the atoms, where the law is known beyond its moments.
    """

    mean_s: FloatArray
    scv: FloatArray
    nu: FloatArray
    law: ServiceLaw | None = None

    @classmethod
    def of(cls, service: Moments | ServiceLaw) -> Service:
        """Read a law or moments.

        Raises:
            ValueError: for a law without positive mean or with negative atoms.
        """
        if isinstance(service, Moments):
            return cls(
                mean_s=np.asarray(service.mean_s, dtype=float),
                scv=np.asarray(service.scv, dtype=float),
                nu=service.nu,
            )
        first, second, third = service.moments
        if not (np.isfinite(first) and first > 0.0 and float(service.values[0]) >= 0.0):
            raise ValueError(
                f"service must be a law of non-negative seconds with a positive mean "
                f"(got mean {first:g}, smallest value {float(service.values[0]):g})"
            )
        return cls(
            mean_s=np.asarray(first),
            scv=np.asarray(max(second / first**2 - 1.0, 0.0)),
            nu=residual_spread(first, second, third),
            law=service,
        )

    def light_traffic_ratio(self, servers: FloatArray) -> FloatArray:
        """r0 for ``servers``; from the atoms, or from the law that stands in for the moments."""
        if self.law is not None:
            return light_traffic_ratio(self.law.values, self.law.weights, servers)
        scv, nu, count = np.broadcast_arrays(self.scv, self.nu, servers)
        ratio = np.where(count <= 1.0, (1.0 + scv) / 2.0, count / (count + 1.0))
        regular, mixed = (scv > 0.0) & ~_is_mixture(scv, nu), _is_mixture(scv, nu)
        for chosen, survival in ((regular, _gamma_residual), (mixed, _hyperexponential_residual)):
            rows = chosen & (count > 1.0)
            if np.any(rows):
                ratio[rows] = _integrated(survival, scv[rows], nu[rows], count[rows])
        return np.asarray(ratio)


def _is_mixture(scv: FloatArray, nu: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether a hyperexponential has these moments; a gamma law stands in where none does."""
    return np.asarray((scv > 1.0) & (nu > 2.0 * (1.0 + 1e-12)))


def _stand_in_nu(scv: FloatArray) -> FloatArray:
    gamma = 4.0 / 3.0 * (1.0 + 2.0 * scv) / (1.0 + scv)
    root = np.sqrt((np.maximum(scv, 1.0) - 1.0) / (np.maximum(scv, 1.0) + 1.0))
    light, heavy = (1.0 + root) / 2.0, (1.0 - root) / 2.0
    balanced = (1.0 / light**2 + 1.0 / heavy**2) / (1.0 + scv) ** 2
    return np.asarray(np.where(scv <= 1.0, gamma, balanced))


def _integrated(survival: _Residual, scv: FloatArray, nu: FloatArray, count: FloatArray) -> FloatArray:
    """c times the integral of the residual survival to the power c, mean service 1, shape (k,)."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
    edges = np.linspace(-_DECADES, 0.0, _PANELS + 1)
    half = np.diff(edges)[:, None] / 2.0
    exponent = (edges[:-1, None] + half * (nodes + 1.0)).ravel()
    weight = (half * weights).ravel() * np.log(10.0)
    horizon = 40.0 * (1.0 + scv) * nu / count  # (1 + scv) nu bounds the slowest phase's mean: exp(-40) is left beyond
    time = horizon[:, None] * 10.0**exponent
    power = np.clip(survival(time, scv[:, None], nu[:, None]), 0.0, 1.0) ** count[:, None]
    return np.asarray(count * ((power * time) @ weight + time[:, 0]))


class _Residual(Protocol):
    def __call__(self, time: FloatArray, scv: FloatArray, nu: FloatArray) -> FloatArray: ...


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
