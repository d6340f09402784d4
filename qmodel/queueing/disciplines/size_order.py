"""Shortest job first with known sizes: waits by size and by class, and what it costs the long ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.queueing.disciplines.priority_waits import ClassLoads, ClassWaits, non_preemptive_waits
from qmodel.queueing.disciplines.residual_mixture import first_free_ratio
from qmodel.queueing.servers.conditional_wait import conditional_wait_sf
from qmodel.queueing.servers.erlang import MAX_SERVERS
from qmodel.queueing.servers.service_time import Moments, Service, ServiceLaw
from qmodel.types.fleets import Overload
from qmodel.types.laws import FloatArray

__all__ = ["ShortestFirst", "shortest_first"]

_SLICES = 160  # sizes that are told apart; twice as many move no mean by 0.3 per cent
_HALVINGS = 60
_BAND = 0.20  # nine in ten simulated queues stay within, see docs/theory/priority.md


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShortestFirst:
    """Waiting of jobs by size, and of K classes; sizes whose load with all shorter ones is too much never start.

    Attributes:
        utilisation: offered load per server.
        p_wait: probability of waiting, the same for every size.
        size_s: sizes in slices, ascending, s, shape (M,).
        size_share: share of each slice in the arrivals, shape (M,).
        size_wait_s: mean wait of each slice, s; +inf for those that never start, shape (M,).
        size_slowdown: (wait + size) / size, shape (M,).
        mean_wait_s: of each class, s, shape (K,).
        slowdown: mean of (wait + size) / size over the jobs of each class, shape (K,).
        largest_stable_s: the longest size that still starts, s; the longest of all where every job does.
        band: relative error of mean waits that nine in ten simulated queues stay within; the longest hundredth of
            jobs errs up to three times as much.
        overload: why long jobs never start; None if all do.
    """

    utilisation: float
    p_wait: float
    size_s: FloatArray
    size_share: FloatArray
    size_wait_s: FloatArray
    size_slowdown: FloatArray
    mean_wait_s: FloatArray
    slowdown: FloatArray
    largest_stable_s: float
    band: float
    overload: Overload | None
    _delayed_scv: FloatArray
    _class_share: FloatArray

    def wait_s_at(self, size_s: npt.ArrayLike) -> FloatArray:
        """Mean wait of jobs of the given sizes, s.

        Args:
            size_s: sizes, s; any shape.
        """
        return np.asarray(np.interp(np.asarray(size_s, dtype=float), self.size_s, self.size_wait_s))

    def wait_quantile_s(self, p: float) -> FloatArray:
        """The wait that a share ``p`` of each class does not exceed, s, shape (K,).

        Args:
            p: level in (0, 1).

        Raises:
            ValueError: if the level is outside (0, 1).
        """
        if not 0.0 < p < 1.0:
            raise ValueError(f"p must be between 0 and 1, e.g. 0.95 (got {p!r})")
        return np.array([self._quantile(p, share) for share in self._class_share])

    def _quantile(self, p: float, share: FloatArray) -> float:
        starts = np.isfinite(self.size_wait_s)
        never = float(share[~starts].sum())
        if 1.0 - p <= never:
            return float("inf")
        mean = np.maximum(self.size_wait_s[starts] / max(self.p_wait, 1e-300), 1e-300)
        scv, part = self._delayed_scv[starts], share[starts] * self.p_wait
        if float(part.sum()) + never <= 1.0 - p:
            return 0.0
        low, high = 0.0, float(mean.max()) * 1e3
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0 if low > 0.0 else high / 1024.0
            late = float(part @ conditional_wait_sf(middle, mean, scv)) + never
            low, high = (middle, high) if late > 1.0 - p else (low, middle)
        return (low + high) / 2.0


def shortest_first(rates_rps: Sequence[float], services: Sequence[ServiceLaw], servers: float) -> ShortestFirst:
    """Waiting where a server that comes free takes the shortest job that waits; sizes are known, nothing is stopped.

    With predicted classes instead of known sizes use ``priority``, the class of short jobs first.

    Args:
        rates_rps: arrivals per second of each class, at least 0, positive in sum; arrivals are Poisson.
        services: a law of atoms in seconds for each class.
        servers: number of servers, 1 to a million.

    Returns:
        :class:`ShortestFirst`; a long job waits for all shorter ones, so overload hits the longest first.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> from qmodel.types import Law
        >>> jobs = Law.from_atoms(np.array([0.5, 4.0]), np.array([0.9, 0.1]))
        >>> queue = shortest_first([0.8], [jobs], 1)
        >>> queue.size_wait_s.round(2).tolist()
        [1.14, 3.56]

    Reference: Phipps, Operations Research 4 (1956), for one server; else own construction, see docs/theory/priority.md.
    """
    rate, laws = _checked(rates_rps, services, servers)
    values = np.concatenate([np.asarray(law.values, dtype=float) for law in laws])
    owner = np.repeat(np.arange(len(laws)), [law.values.size for law in laws])
    chance = np.concatenate([law.weights for law in laws])
    order = np.argsort(values, kind="stable")
    values, owner, chance = values[order], owner[order], chance[order]
    weight = chance * rate[owner]
    slices = _slice_of(values, np.asarray(weight, dtype=float))
    count = int(slices[-1]) + 1
    share = np.zeros((len(laws), count))
    np.add.at(share, (owner, slices), chance)
    share /= share.sum(axis=1, keepdims=True)
    total = np.bincount(slices, weights=weight, minlength=count)
    first, second, third = (np.bincount(slices, weights=weight * values**k, minlength=count) / total for k in (1, 2, 3))
    waits, starts = _waits(
        np.asarray(total, dtype=float), (first, second, third), [Service.of(law) for law in laws], rate, float(servers)
    )
    wait = np.where(starts, waits.mean_wait_s[:, 0], np.inf)
    inverse = np.bincount(slices, weights=weight / values, minlength=count) / total  # E[1/S] of a slice
    with np.errstate(invalid="ignore"):
        mean = np.nansum(np.where(share > 0.0, share * wait, 0.0), axis=1)
        slowed = np.nansum(np.where(share > 0.0, share * (1.0 + wait * inverse), 0.0), axis=1)
    return ShortestFirst(
        utilisation=float(total @ first) / float(servers),
        p_wait=float(waits.p_wait[0]),
        size_s=first,
        size_share=total / total.sum(),
        size_wait_s=wait,
        size_slowdown=1.0 + wait * inverse,
        mean_wait_s=mean,
        slowdown=slowed,
        largest_stable_s=float(first[starts][-1]) if starts.any() else 0.0,
        band=_BAND,
        overload=_overload(float(total @ first), float(servers), first, starts),
        _delayed_scv=waits.delayed_scv[:, 0],
        _class_share=share,
    )


def _slice_of(values: FloatArray, weight: FloatArray) -> npt.NDArray[np.intp]:
    """The slice of each atom: slices share number, load and squared size evenly; equal sizes stay together."""
    powers = values ** np.arange(3.0)[:, None]
    reached = (np.cumsum(weight * powers, axis=1) / (powers @ weight)[:, None]).mean(axis=0)
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    band = np.minimum((reached[first] * _SLICES).astype(int), _SLICES - 1)
    return np.asarray(np.cumsum(np.diff(band, prepend=band[0]) > 0)[inverse])


def _waits(
    rate: FloatArray,
    moments: tuple[FloatArray, FloatArray, FloatArray],
    items: Sequence[Service],
    class_rate: FloatArray,
    servers: float,
) -> tuple[ClassWaits, npt.NDArray[np.bool_]]:
    """Waits of the slices as classes, and which of them start at all."""
    load = np.cumsum(rate * moments[0]) / servers
    starts = load < 1.0
    served = np.where(starts, rate, 0.0)
    if not starts.all():
        edge = int(np.argmin(starts))
        below = load[edge - 1] if edge else 0.0
        served[edge] = (1.0 - below) * servers / moments[0][edge]
    count = np.array([servers])
    free = first_free_ratio(class_rate[:, None], items, count) if servers > 1.0 else np.ones(1)
    first, second, third = (item[:, None] for item in moments)
    loads = ClassLoads(
        rate_rps=served[:, None], first=first, second=second, third=third, servers=count, first_free=free
    )
    return non_preemptive_waits(loads, by_size=True), starts


def _overload(load: float, servers: float, first: FloatArray, starts: npt.NDArray[np.bool_]) -> Overload | None:
    if starts.all():
        return None
    longest = float(first[starts][-1]) if starts.any() else 0.0
    return Overload(
        kind="rate",
        value=load,
        limit=servers,
        reason=f"jobs of {load:.4g} servers' work arrive at {servers:g}; those longer than about {longest:.4g} s "
        f"never start; at least {np.floor(load) + 1:.0f} servers are needed",
    )


def _checked(
    rates_rps: Sequence[float], services: Sequence[ServiceLaw], servers: float
) -> tuple[FloatArray, list[ServiceLaw]]:
    if len(rates_rps) == 0 or len(rates_rps) != len(services):
        raise ValueError(
            f"rates_rps and services must have one entry per class, at least one "
            f"(got {len(rates_rps)} and {len(services)})"
        )
    if any(isinstance(item, Moments) for item in services):
        raise ValueError("services must be laws of atoms (e.g. qmodel.types.Law): moments do not tell sizes apart")
    rate = np.asarray(rates_rps, dtype=float)
    if not np.all(np.isfinite(rate) & (rate >= 0.0)) or rate.sum() <= 0.0:
        raise ValueError(f"rates_rps must be finite, at least 0 and positive in sum, requests/s (got {rates_rps!r})")
    if not 1.0 <= servers <= MAX_SERVERS:
        raise ValueError(f"servers must be from 1 to {MAX_SERVERS:,.0f} (got {servers!r})")
    kept = [item for item, value in zip(services, rate, strict=True) if value > 0.0]
    if any(float(item.values[0]) <= 0.0 for item in kept):
        raise ValueError("services must have sizes above 0 s only")
    return rate, list(services)
