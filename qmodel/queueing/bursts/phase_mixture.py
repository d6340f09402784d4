"""Laws over all requests from those of the phases they arrive in."""

from __future__ import annotations

from typing import overload

import numpy as np

from qmodel.queueing.replica.percentiles import GridLaw, KernelLaw
from qmodel.types import FloatArray

__all__ = ["over_phases"]


@overload
def over_phases(law: GridLaw, weight: FloatArray) -> GridLaw: ...
@overload
def over_phases(law: KernelLaw, weight: FloatArray) -> KernelLaw: ...
def over_phases(law: GridLaw | KernelLaw, weight: FloatArray) -> GridLaw | KernelLaw:
    """Mix laws of C m rows, m for each case, into C laws.

    Args:
        law: of requests that arrive in one phase, row by row.
        weight: share of requests that arrive in each phase, shape (C, m).

    Example:
        >>> rows = GridLaw(mean_s=np.array([0.5, 1.0]), times_s=np.array([[0.0, 1.0], [0.0, 2.0]]),
        ...                cdf=np.array([[0.0, 1.0], [0.0, 1.0]]))
        >>> float(over_phases(rows, np.array([[0.5, 0.5]])).quantile(0.75)[0])
        1.0
    """
    if isinstance(law, GridLaw):
        return _mixed_grids(law, weight)
    return _mixed_kernels(law, weight)


def _mixed_grids(law: GridLaw, weight: FloatArray) -> GridLaw:
    cases, m = weight.shape
    width = law.times_s.shape[1]
    times = np.sort(law.times_s.reshape(cases, m * width), axis=1)
    cdf = np.zeros_like(times)
    for case in range(cases):
        for phase in range(m):
            row = case * m + phase
            cdf[case] += weight[case, phase] * np.interp(times[case], law.times_s[row], law.cdf[row], right=1.0)
    return GridLaw(mean_s=(law.mean_s.reshape(cases, m) * weight).sum(axis=1), times_s=times, cdf=cdf)


def _mixed_kernels(law: KernelLaw, weight: FloatArray) -> KernelLaw:
    cases, m = weight.shape

    def together(values: FloatArray) -> FloatArray:
        return np.ascontiguousarray(values).reshape(cases, -1)

    bounds = law.bounds_s
    if bounds is not None:
        bounds = bounds[0].reshape(cases, m).min(axis=1), bounds[1].reshape(cases, m).max(axis=1)
    return KernelLaw(
        weight=together(law.weight * weight.reshape(-1, 1)),
        centre_s=together(law.centre_s),
        spread_s=together(law.spread_s),
        skew=together(law.skew),
        bounds_s=bounds,
    )
