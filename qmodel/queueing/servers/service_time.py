"""What M/G/c needs to know of a service time: mean, spread, and how its residual looks."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from qmodel.queueing.servers.halfin_whitt import residual_spread
from qmodel.queueing.servers.phase_type import PhaseType
from qmodel.queueing.servers.residuals import (
    MomentResiduals,
    ResidualCurve,
    Residuals,
    curve_of_atoms,
    curve_of_moments,
)
from qmodel.types.laws import FloatArray

__all__ = ["Moments", "Service", "ServiceLaw"]


class ServiceLaw(Hashable, Protocol):
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
    """Mean, scv and residual spread of a service time, with its residuals.

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
    def of(cls, service: Moments | PhaseType | ServiceLaw) -> Service:
        """Read a law, phases or moments.

        Raises:
            ValueError: for a law without finite moments, without positive mean or with negative atoms.
        """
        if isinstance(service, Moments):
            return cls(
                mean_s=np.asarray(service.mean_s, dtype=float),
                scv=np.asarray(service.scv, dtype=float),
                nu=service.nu,
            )
        first, second, third = service.moments
        if isinstance(service, PhaseType):
            scv, nu = max(second / first**2 - 1.0, 0.0), residual_spread(first, second, third)
            return cls(mean_s=np.asarray(first), scv=np.asarray(scv), nu=nu)
        smallest = float(service.values[0])
        if not (np.isfinite(first) and first > 0.0 and smallest >= 0.0):
            raise ValueError(
                f"service must be a law of non-negative seconds with a positive mean "
                f"(got mean {first:g}, smallest value {smallest:g})"
            )
        if not (np.isfinite(second) and np.isfinite(third)):
            raise ValueError(
                f"service must have finite second and third moments (got {second:g} s^2, {third:g} s^3); cap its values"
            )
        return cls(
            mean_s=np.asarray(first),
            scv=np.asarray(max(second / first**2 - 1.0, 0.0)),
            nu=residual_spread(first, second, third),
            law=service,
        )

    def residuals(self, rows: slice, shape: tuple[int, ...]) -> Residuals:
        """Residuals of the queues ``rows`` of an array of ``shape``, read in order; one curve where all are alike."""
        if self.law is not None:
            return _curve_of_law(self.law)
        scv, nu = np.broadcast_arrays(self.scv, self.nu)
        if scv.size == 1 or (np.all(scv == scv.flat[0]) and np.all(nu == nu.flat[0])):
            return curve_of_moments(float(scv.flat[0]), float(nu.flat[0]))
        return MomentResiduals.of(np.broadcast_to(scv, shape).ravel()[rows], np.broadcast_to(nu, shape).ravel()[rows])


@lru_cache(maxsize=256)
def _curve_of_law(law: ServiceLaw) -> ResidualCurve:
    return curve_of_atoms(law.values, law.weights, law.moments)


def _stand_in_nu(scv: FloatArray) -> FloatArray:
    gamma = 4.0 / 3.0 * (1.0 + 2.0 * scv) / (1.0 + scv)
    root = np.sqrt((np.maximum(scv, 1.0) - 1.0) / (np.maximum(scv, 1.0) + 1.0))
    light, heavy = (1.0 + root) / 2.0, (1.0 - root) / 2.0
    balanced = (1.0 / light**2 + 1.0 / heavy**2) / (1.0 + scv) ** 2
    return np.asarray(np.where(scv <= 1.0, gamma, balanced))
