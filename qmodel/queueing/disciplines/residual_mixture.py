"""How soon the first of c busy servers comes free when they serve a mixture of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from qmodel.queueing.servers.service_time import Service, ServiceLaw
from qmodel.types.laws import FloatArray

__all__ = ["first_free_ratio", "residual_survival"]

_PANELS, _NODES = 24, 10
_LEAST_SPREAD = 1e-6  # scv below which a service is taken as constant
_DECADES = 14.0  # from where every residual still lasts to where the first of them has surely ended


def first_free_ratio(shares: FloatArray, services: Sequence[Service], servers: FloatArray) -> FloatArray:
    """Mean time until the first of c independent residual services ends, over E[S] / c; broadcasts.

    It is r0 of docs/theory/queueing.md for a mixture: residuals are those of the classes, weighted by load. The pooled
    moments alone do not give it: two classes of very different size have a residual like neither of them.

    Args:
        shares: share of each class in the arrivals, shape (K, ...).
        services: service time of each class; fields broadcast against the shares.
        servers: c, a positive real.

    Returns:
        (1 + scv)/2 at c = 1, towards 1 for many servers.

    Example:
        >>> from qmodel.queueing.servers.service_time import Moments
        >>> alike = Service.of(Moments(mean_s=1.0, scv=1.0))
        >>> round(float(first_free_ratio(np.array([0.5, 0.5]), [alike, alike], np.array(4.0))), 6)
        1.0

    Reference: Burman and Smith, Math. Oper. Res. 8 (1983), with the residual of a mixture.
    """
    means = np.stack(np.broadcast_arrays(*(item.mean_s for item in services)))
    shape = np.broadcast_shapes(shares.shape[1:], means.shape[1:], servers.shape)
    count = np.broadcast_to(servers, shape)
    weight = np.broadcast_to(shares, (len(services), *shape))
    load = weight * means.reshape((len(services), *(1,) * (len(shape) - means.ndim + 1), *means.shape[1:]))
    mean = load.sum(axis=0) / weight.sum(axis=0)
    load = load / load.sum(axis=0)
    slowest = np.max(
        [np.broadcast_to((1.0 + item.scv) * item.nu * item.mean_s, shape) for item in services], axis=0
    )  # bounds the mean of the slowest phase: beyond 40 of them over c, exp(-40) is left
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    edges = np.linspace(-_DECADES, 0.0, _PANELS + 1)
    half = np.diff(edges)[:, None] / 2.0
    exponent = (edges[:-1, None] + half * (nodes + 1.0)).ravel()
    step = (half * weights).ravel() * np.log(10.0)
    time = (40.0 * slowest / count)[..., None] * 10.0**exponent
    lasting = sum(part[..., None] * residual_survival(item, time) for part, item in zip(load, services, strict=True))
    power = np.clip(lasting, 0.0, 1.0) ** count[..., None]
    return np.asarray(count / mean * ((power * time) @ step + time[..., 0]))


def residual_survival(service: Service, time: FloatArray) -> FloatArray:
    """P(R > t) of the residual R of a service time, that of the stand-in law where only moments are known.

    Args:
        service: the service time; fields of shape (...).
        time: s, shape (..., T).
    """
    if service.law is not None:
        return _of_atoms(service.law, time)
    scv, nu = (np.asarray(item)[..., None] for item in (service.scv, service.nu))
    x = time / np.asarray(service.mean_s)[..., None]
    mixed = (scv > 1.0) & (nu > 2.0 * (1.0 + 1e-12))
    constant = scv < _LEAST_SPREAD
    regular = _gamma(x, np.where(mixed | constant, 1.0, scv))
    regular = np.where(constant, np.maximum(1.0 - x, 0.0), regular)
    if not np.any(mixed):
        return regular
    two = _hyperexponential(x, np.where(mixed, scv, 2.0), np.where(mixed, nu, 3.0))
    return np.asarray(np.where(mixed, two, regular))


def _of_atoms(law: ServiceLaw, time: FloatArray) -> FloatArray:
    """E[(S - t)+] / E[S] from the atoms."""
    values, weights = np.asarray(law.values, dtype=float), np.asarray(law.weights, dtype=float)
    above = np.concatenate([np.cumsum(weights[::-1])[::-1], [0.0]])
    longer = np.concatenate([np.cumsum((weights * values)[::-1])[::-1], [0.0]])
    index = np.searchsorted(values, time, side="right")
    return np.asarray(np.maximum(longer[index] - time * above[index], 0.0) / longer[0])


def _gamma(x: FloatArray, scv: FloatArray) -> FloatArray:
    shape, scaled = 1.0 / scv, x / scv
    return np.asarray(special.gammaincc(shape + 1.0, scaled) - x * special.gammaincc(shape, scaled))


def _hyperexponential(x: FloatArray, scv: FloatArray, nu: FloatArray) -> FloatArray:
    """Residual of the two phases whose mixture, with mean 1, has the three moments."""
    second = (1.0 + scv) / 2.0
    total = (nu * second**2 / 2.0 - second) / (second - 1.0)  # sum of the phase means
    gap = np.sqrt(np.maximum(total**2 - 4.0 * (total - second), 0.0))
    long = (total + gap) / 2.0
    short = (total - second) / long
    share = (1.0 - short) / (long - short)
    return np.asarray(share * long * np.exp(-x / long) + (1.0 - share) * short * np.exp(-x / np.maximum(short, 1e-300)))
