"""Classes with servers of their own and others that all share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.queueing.servers.conditional_wait import class_wait_quantile
from qmodel.queueing.servers.erlang import delay_probability
from qmodel.queueing.servers.multiserver import QueueResult, mgc
from qmodel.queueing.servers.service_time import Moments, Service, ServiceLaw
from qmodel.types.fleets import Overload
from qmodel.types.laws import FloatArray

__all__ = ["ReservedResult", "reserved"]

_MOST_SERVERS = 2_000
_MOST_STATES = 1_500  # of one class's chain beyond the servers
_DECAYS = 40.0  # mean decays of the queue that the chain spans
_ROUNDS = 80
_SETTLED = 1e-7
# Nine in ten simulated classes stay within, see docs/theory/priority.md: nothing shared, sizes equal, sizes differ.
_APART_BAND, _ALIKE_BAND, _SIZES_BAND = 0.10, 0.25, 0.45


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReservedResult:
    """Waiting of K classes; every array has shape (K,).

    Attributes:
        utilisation: offered load of all classes per server.
        stable: whether the class has a steady state.
        p_wait: probability of waiting.
        mean_wait_s: mean wait before service, s; +inf where not stable.
        mean_completion_s: wait and service, s.
        delayed_scv: squared coefficient of variation of the wait of those that wait.
        delayed_third: E[W^3] / E[W]^3 of the wait of those that wait.
        shared_load: shared servers that the class keeps busy on average.
        band: relative error of the mean wait that nine in ten simulated classes stay within.
        overload: the first class without a steady state and why; None if all have one.
    """

    utilisation: float
    stable: npt.NDArray[np.bool_]
    p_wait: FloatArray
    mean_wait_s: FloatArray
    mean_completion_s: FloatArray
    delayed_scv: FloatArray
    delayed_third: FloatArray
    shared_load: FloatArray
    band: float
    overload: Overload | None = None

    def wait_quantile_s(self, p: float) -> FloatArray:
        """The wait that a share ``p`` of each class does not exceed, s, shape (K,).

        Args:
            p: level in (0, 1).

        Raises:
            ValueError: if the level is outside (0, 1).
        """
        return class_wait_quantile(p, self.stable, self.p_wait, self.mean_wait_s, self.delayed_scv, self.delayed_third)


def reserved(
    rates_rps: Sequence[float], services: Sequence[Moments | ServiceLaw], own: Sequence[int], shared: int
) -> ReservedResult:
    """Waiting of classes that each have servers of their own, and share others first come, first served.

    A job takes a free server of its class, else a shared one, else waits. A server of a class that comes free takes the
    longest waiting job of the class; a shared one the longest waiting job of all. Poisson arrivals.

    Without shared servers each class is an M/G/c queue, and so is a single class. Else this is an approximation whose
    measured error is in ``band``.

    Args:
        rates_rps: arrivals per second of each class, positive.
        services: a law of atoms in seconds, or :class:`Moments` of scalars, for each class.
        own: servers of each class, at least 0.
        shared: servers of all classes, at least 0; no class may be without any server.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> same = Moments(mean_s=1.0, scv=1.0)
        >>> split = reserved([3.0, 2.0], [same, same], own=[4, 4], shared=0)
        >>> split.mean_wait_s.round(3).tolist()
        [0.509, 0.087]
        >>> bool(np.all(reserved([3.0, 2.0], [same, same], own=[2, 2], shared=4).mean_wait_s < split.mean_wait_s))
        True

    Source: own construction, see docs/theory/priority.md.
    """
    rate, items = _checked(rates_rps, services, own, shared)
    servers = np.asarray(own, dtype=int)
    moments = np.array([_moments(item) for item in items])
    load = rate * moments[:, 0]
    beyond = np.maximum(load - servers, 0.0)  # what must go to the shared servers
    shared_stable = beyond.sum() < shared or not beyond.any()
    stable = np.array(shared_stable | (load < servers))
    busy = np.where(stable, load, servers)
    taken = np.zeros_like(load)
    overflow = [np.zeros(0)] * load.size
    if shared_stable and shared > 0:
        overflow, taken = _overflows(load, servers, shared)
        busy = load - taken
    results = [
        _class_wait(index, load, servers, shared if shared_stable else 0, taken, busy, moments)
        if stable[index]
        else None
        for index in range(load.size)
    ]
    p_wait = np.ones_like(load)
    mean, scv, third = np.full_like(load, np.inf), np.ones_like(load), np.full_like(load, 6.0)
    for index, queue in enumerate(results):
        if queue is None:
            continue
        count = servers[index] + (shared if shared_stable else 0)
        erlang = float(delay_probability(np.asarray(queue.utilisation * count), np.asarray(float(count))))
        factor = float(queue.p_wait) / erlang if erlang > 0.0 else 1.0
        blocked = _blocked(index, overflow, load, servers, shared) if shared_stable and shared > 0 else erlang
        p_wait[index] = min(blocked * factor, 1.0)
        mean[index] = p_wait[index] * float(queue.mean_delayed_s)
        scv[index] = float(queue.delayed_scv)
        third[index] = 6.0 if queue.delayed_third is None else float(queue.delayed_third)
    return ReservedResult(
        utilisation=float(load.sum() / (servers.sum() + shared)),
        stable=stable,
        p_wait=p_wait,
        mean_wait_s=mean,
        mean_completion_s=mean + moments[:, 0],
        delayed_scv=scv,
        delayed_third=third,
        shared_load=np.where(stable, taken, np.nan if not shared_stable else taken),
        band=_APART_BAND if shared == 0 else _ALIKE_BAND if np.ptp(moments[:, 0]) <= 1e-9 else _SIZES_BAND,
        overload=_overload(load, servers, shared, stable),
    )


def _class_wait(
    index: int,
    load: FloatArray,
    servers: npt.NDArray[np.int_],
    shared: int,
    taken: FloatArray,
    busy: FloatArray,
    moments: FloatArray,
) -> QueueResult:
    """The queue with the servers that a class can use, so full that the idle ones are those left to it.

    Idle are its own and the shared servers on average; or, when all are pressed, what is left after every class has
    filled its own. The first is too few in heavy traffic, the second too many in light; their mean is taken.
    """
    count = float(servers[index] + shared)
    others = np.delete(np.arange(load.size), index)
    pressed = count - load[index]
    if shared:
        pressed -= np.maximum(load - servers, 0.0)[others].sum()
    usual = max(servers[index] - busy[index] + shared - taken.sum(), 0.0) if shared else pressed
    idle = max((pressed + usual) / 2.0, 1e-9 * count)
    rate = taken / moments[:, 0]
    rate[index] += busy[index] / moments[index, 0]
    weight = rate / rate.sum()
    first, second, third = weight @ moments
    scv = max(second / first**2 - 1.0, 0.0)
    return mgc(
        max(count - idle, 0.0) / first,
        Moments(mean_s=first, scv=scv, third=max(third, first**3 * (1.0 + scv) ** 2)),
        max(count, 1.0),
    )


def _overflows(load: FloatArray, servers: npt.NDArray[np.int_], shared: int) -> tuple[list[FloatArray], FloatArray]:
    """Law of the jobs of each class beyond its own servers, and the shared servers they keep busy.

    Each class is a birth-death chain; its jobs beyond its own servers get shared ones in proportion to all such jobs,
    those of the other classes being independent. Iterated until the laws agree.
    """
    rho = load.sum() / (servers.sum() + shared)
    states = int(servers.max() + shared + min(_DECAYS / max(1.0 - rho, 1e-3), _MOST_STATES)) + 1
    number = np.arange(states)
    laws = [np.eye(1, states)[0] for _ in load]
    taken = np.zeros_like(load)
    for _ in range(_ROUNDS):
        change = 0.0
        for index, offered in enumerate(load):
            rest = _sum_law(laws, index, states)
            likely = rest > 1e-10
            met = np.maximum(number[:, None] + number[likely], 1)
            got = np.minimum(number[:, None], shared * number[:, None] / met) @ (rest[likely] / rest[likely].sum())
            own = servers[index]
            speed = np.minimum(number, own) + np.where(number > own, got[np.maximum(number - own, 0)], 0.0)
            log_mass = np.concatenate([[0.0], np.cumsum(np.log(offered / speed[1:]))])
            mass = np.exp(log_mass - log_mass.max())
            mass /= mass.sum()
            new = np.bincount(np.maximum(number - own, 0), weights=mass, minlength=states)
            taken[index] = max(offered - float(mass @ np.minimum(number, own)), 0.0)
            change = max(change, float(np.abs(new - laws[index]).sum()))
            laws[index] = (laws[index] + new) / 2.0
        if change < _SETTLED:
            break
    return laws, np.minimum(taken, load)


def _blocked(index: int, laws: list[FloatArray], load: FloatArray, servers: npt.NDArray[np.int_], shared: int) -> float:
    """Probability that the own servers of a class and the shared ones are all busy."""
    states = laws[index].size
    rest = _sum_law(laws, index, states)
    at_least = np.concatenate([np.cumsum(rest[::-1])[::-1], [0.0]])
    full = at_least[np.clip(shared - np.arange(states), 0, states)]
    beyond = laws[index].copy()
    if servers[index] > 0:  # none beyond: the own servers may be full all the same
        beyond[0] = beyond[1] / max(float(load[index]), 1e-300) * _speed_of_first(servers[index], rest, shared)
    return float(np.minimum(beyond, 1.0) @ full)


def _speed_of_first(own: int, rest: FloatArray, shared: int) -> float:
    """Departures of a class with one job beyond its own servers, per mean service."""
    met = np.maximum(1 + np.arange(rest.size), 1)
    return float(own + np.minimum(1.0, shared / met) @ rest)


def _sum_law(laws: list[FloatArray], index: int, states: int) -> FloatArray:
    """Law of the jobs beyond their own servers of all classes but one."""
    total = np.eye(1, states)[0]
    for other, law in enumerate(laws):
        if other != index:
            total = np.convolve(total, law)[:states]
    return np.asarray(total / total.sum())


def _moments(item: Service) -> tuple[float, float, float]:
    mean, scv, nu = (float(np.asarray(value)) for value in (item.mean_s, item.scv, item.nu))
    second = mean**2 * (1.0 + scv)
    return mean, second, nu * 3.0 * second**2 / (4.0 * mean)


def _overload(
    load: FloatArray, servers: npt.NDArray[np.int_], shared: int, stable: npt.NDArray[np.bool_]
) -> Overload | None:
    if stable.all():
        return None
    index = int(np.argmin(stable))
    need = float(np.maximum(load - servers, 0.0).sum())
    return Overload(
        kind="rate",
        value=need,
        limit=float(shared),
        reason=f"class {index + 1} of {load.size} sends {load[index]:.4g} servers' work to "
        f"{servers[index]} of its own; what exceeds the classes' own servers is {need:.4g} servers' work for {shared} "
        f"shared ones; at least {np.floor(need) + 1:.0f} are needed",
    )


def _checked(
    rates_rps: Sequence[float], services: Sequence[Moments | ServiceLaw], own: Sequence[int], shared: int
) -> tuple[FloatArray, list[Service]]:
    if not len(rates_rps) == len(services) == len(own) or len(own) == 0:
        raise ValueError(
            f"rates_rps, services and own must have one entry per class, at least one "
            f"(got {len(rates_rps)}, {len(services)} and {len(own)})"
        )
    rate = np.asarray(rates_rps, dtype=float)
    if rate.ndim != 1 or not np.all(np.isfinite(rate) & (rate > 0.0)):
        raise ValueError(f"rates_rps must be finite and above 0 requests/s (got {rates_rps!r})")
    counts = np.asarray([*own, shared], dtype=float)
    if not np.all(np.isfinite(counts) & (counts >= 0.0) & (counts == np.floor(counts))):
        raise ValueError(f"own and shared must be whole numbers of at least 0 (got {own!r} and {shared!r})")
    if counts.sum() > _MOST_SERVERS:
        raise ValueError(f"own and shared must be at most {_MOST_SERVERS:,} servers in all (got {counts.sum():g})")
    if shared == 0 and np.any(counts[:-1] == 0.0):
        raise ValueError(f"own must be at least 1 for each class where nothing is shared (got {own!r})")
    items = [Service.of(item) for item in services]
    if any(np.ndim(item.mean_s) or np.ndim(item.scv) or np.ndim(item.nu) for item in items):
        raise ValueError("services must be laws or moments of one case each; call once per case")
    return rate, items
