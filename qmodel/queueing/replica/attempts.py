"""Pools whose requests leave when they have waited too long: many sizes and loads of one replica at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.queueing.replica.chain import Occupancy, chain_states, memory_s, top_rate_rps
from qmodel.queueing.replica.kv_limited import MemoryLimit, memory_limit
from qmodel.queueing.replica.slot_waits import slot_wait_shape
from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, IntArray, Patience, Replica, Router

__all__ = ["ImpatientCases", "impatient_cases"]

_ROUNDS = 12
_BISECTIONS = 34  # of at most a hundred times the rate: to 1e-8
_SETTLED = 1e-9
_FULLEST = 0.9995  # utilisation at which the shape of waits is taken where more is offered
_MOST_EXPONENT = 600.0
_WAIT_POINTS = 801
_FAR = 40.0  # decay lengths
_LEAST_SCV = 2e-4  # of waits that nearly all last as long as the patience
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImpatientCases:
    """C pools of one replica with their attempts at the least fixed point; arrays of shape (C,).

    Attributes:
        chains: what the pools are made of.
        patience: of every request.
        attempt_rps: all attempts.
        leaving: share of the attempts that end by leaving.
        p_wait: share of the attempts that find no slot or no memory.
        wait_mean_s: mean wait of the attempts that are served, s.
        seen: what those that are served meet.
    """

    chains: _Chains
    patience: Patience
    attempt_rps: FloatArray
    leaving: FloatArray
    p_wait: FloatArray
    wait_mean_s: FloatArray
    seen: Occupancy

    @property
    def abandoned(self) -> FloatArray:
        """Share of the requests that leave for good."""
        return np.asarray(self.leaving ** (self.patience.retries + 1))

    @property
    def served_rps(self) -> FloatArray:
        """Requests that one replica serves, requests/s."""
        return np.asarray(self.attempt_rps * (1.0 - self.leaving) / self.chains.replicas)

    @property
    def utilisation(self) -> FloatArray:
        """Attempts offered over the largest rate that the pool carries; may exceed 1."""
        return np.asarray(self.attempt_rps / (self.chains.replicas * self.chains.top_rps))


def impatient_cases(
    replica: Replica, work: Work, patience: Patience, rate_rps: FloatArray, replicas: FloatArray, router: Router
) -> ImpatientCases:
    """Solve C pools of one replica.

    Args:
        replica: engine instance; no request outgrows its memory.
        work: requests of all classes.
        patience: of every request.
        rate_rps: first attempts of the whole pool, requests/s, shape (C,).
        replicas: of the pool, shape (C,).
        router: ``random`` or ``jsq``.
    """
    chains = _Chains.of(replica, work, np.asarray(replicas, dtype=float), router)
    attempt_rps = _settled(chains, patience, rate_rps)
    found = chains.attempts(attempt_rps, patience.patience_s)
    return ImpatientCases(
        chains=chains,
        patience=patience,
        attempt_rps=attempt_rps,
        leaving=found.leaving,
        p_wait=found.p_wait,
        wait_mean_s=found.seen_waits * found.wait_s,
        seen=found.occupancy(),
    )


def _settled(chains: _Chains, patience: Patience, first_rps: FloatArray) -> FloatArray:
    """Attempts that the share that leaves at them brings: from below until they hardly rise, then by bisection."""

    def brought(rate_rps: FloatArray) -> FloatArray:
        leaving = chains.attempts(rate_rps, patience.patience_s).leaving
        return np.asarray(first_rps * sum(leaving**k for k in range(patience.retries + 1)))

    low = np.asarray(first_rps, dtype=float)
    for _ in range(_ROUNDS if patience.retries else 0):
        wanted = brought(low)
        if np.all(wanted - low <= _SETTLED * low):
            return wanted
        low = np.maximum(wanted, low)
    high = first_rps * (patience.retries + 1.0)
    for _ in range(_BISECTIONS if patience.retries else 0):
        middle = 0.5 * (low + high)
        rises = brought(middle) > middle
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return low


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Chains:
    """Chains of C pools, of one replica each or of all with a shortest-queue router.

    Attributes:
        replicas, machines, others: of the pool, of one chain, and chains that share the stream, shapes (C,).
        top_rps: largest rate of one replica, requests/s.
        last: place of the state that fills the pool, shape (C,).
        number, weight, batch, tau: nodes of the chains, shapes (C, K); those after ``last`` count for nothing.
        log_speeds: minus the sum of the logs of the speeds up to each node, shape (C, K).
    """

    replica: Replica
    work: Work
    limit: MemoryLimit | None
    replicas: FloatArray
    machines: FloatArray
    others: FloatArray
    top_rps: float
    by_memory: bool
    last: IntArray
    number: FloatArray
    weight: FloatArray
    batch: FloatArray
    tau: FloatArray
    log_speeds: FloatArray

    @classmethod
    def of(cls, replica: Replica, work: Work, replicas: FloatArray, router: Router) -> _Chains:
        limit = memory_limit(replica, work)
        top_rps, by_memory = top_rate_rps(replica, work, limit)
        machines = replicas if router == "jsq" else np.ones_like(replicas)
        sizes, which = np.unique(machines, return_inverse=True)
        number, weight, batch, tau, speed = (item[which] for item in chain_states(replica, work, limit, sizes))
        last = np.full(machines.size, number.shape[1] - 1)
        if by_memory and limit is not None:  # arrivals wait from where memory is full on average
            last = np.minimum(np.maximum((number < limit.fits * machines[:, None]).sum(axis=1) - 1, 1), last)
        slow = np.minimum(speed, top_rps * machines[:, None])
        slow[:, 0] = slow[:, 1]
        slow = -np.log(slow)
        gaps = np.diff(number, axis=1)
        steps = 0.5 * gaps * (slow[:, 1:] + slow[:, :-1]) + 0.5 * np.diff(slow, axis=1)
        return cls(
            replica=replica,
            work=work,
            limit=limit,
            replicas=replicas,
            machines=machines,
            others=replicas / machines,
            top_rps=top_rps,
            by_memory=by_memory,
            last=last,
            number=number,
            weight=weight,
            batch=batch,
            tau=tau,
            log_speeds=np.concatenate([np.zeros((machines.size, 1)), np.cumsum(steps, axis=1)], axis=1),
        )

    def attempts(self, rate_rps: FloatArray, patience_s: float) -> _Attempts:
        """What attempts at ``rate_rps`` of the whole pools meet."""
        rate = rate_rps / self.others
        free, full = self._masses(rate)
        top = self.top_rps * self.machines
        rho = np.minimum(rate / top, _FULLEST)
        ratio, _ = slot_wait_shape(self.replica, self.work, self.limit, self.machines, rho, self.by_memory)
        spread = np.broadcast_to(np.asarray(ratio, dtype=float), rate.shape)
        fall, end = (top - rate) / spread, top / spread
        far = _FAR / np.maximum(np.abs(fall), _TINY)  # beyond it nothing of the density is left
        starts = np.where(fall < 0.0, np.maximum(patience_s - far, 0.0), 0.0)
        ends = np.where(fall > 0.0, np.minimum(far, patience_s), patience_s)
        x = starts[:, None] + (ends - starts)[:, None] * np.linspace(0.0, 1.0, _WAIT_POINTS)
        exponent = -fall[:, None] * x
        shift = np.maximum(exponent.max(axis=1), 0.0)  # keeps an overloaded queue's rising density finite
        density = (full * end)[:, None] * np.exp(exponent - shift[:, None])
        below = free * np.exp(-np.minimum(shift, _MOST_EXPONENT))[:, None]
        within, waited, squared = (np.trapezoid(density * x**k, x, axis=1) for k in (0, 1, 2))
        beyond = full * np.exp(np.maximum(-fall * patience_s - shift, -_MOST_EXPONENT))
        served = below.sum(axis=1) + within
        total = served + beyond
        return _Attempts(
            chains=self,
            rate=rate,
            leaving=beyond / total,
            p_wait=(within + beyond) / total,
            seen=np.concatenate([below, within[:, None]], axis=1) / np.maximum(served, _TINY)[:, None],
            time=np.concatenate([below, (within + beyond)[:, None]], axis=1) / total[:, None],
            wait_s=waited / np.maximum(within, _TINY),
            square=squared / np.maximum(within, _TINY),
        )

    def _masses(self, rate: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Unnormalised masses of the states in which nobody waits, and of the single state that fills the pool."""
        inside = np.arange(self.number.shape[1]) <= self.last[:, None]
        log_mass = self.number * np.log(rate)[:, None] + self.log_speeds
        log_mass -= np.where(inside, log_mass, -np.inf).max(axis=1, keepdims=True)
        mass = np.exp(np.clip(log_mass, -_MOST_EXPONENT, 0.0))
        free = np.where(inside, mass * self.weight, 0.0)
        full = self.at_last(mass)
        rows = np.arange(rate.size)
        free[rows, self.last] = np.maximum(free[rows, self.last] - full, 0.0)
        return free, full

    def at_last(self, values: FloatArray) -> FloatArray:
        """Values at the state that fills each pool."""
        return np.asarray(np.take_along_axis(values, self.last[:, None], axis=1)[:, 0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Attempts:
    """What attempts at one rate meet, C cases; ``seen``, ``wait_s`` and ``square`` are of those that are served.

    Attributes:
        rate: of one chain, attempts/s.
        seen, time: probability of the nodes and of a full pool, at arrivals that are served and at any time,
            shapes (C, K + 1).
        wait_s, square: mean wait of those that wait, and of its square.
    """

    chains: _Chains
    rate: FloatArray
    leaving: FloatArray
    p_wait: FloatArray
    seen: FloatArray
    time: FloatArray
    wait_s: FloatArray
    square: FloatArray

    @property
    def seen_waits(self) -> FloatArray:
        """Share of those that are served who wait."""
        return np.asarray(self.seen[:, -1])

    def occupancy(self) -> Occupancy:
        """The law that those who are served meet."""
        chains = self.chains
        batch, tau = (
            np.concatenate([item, chains.at_last(item)[:, None]], axis=1) for item in (chains.batch, chains.tau)
        )

        def over_time(values: FloatArray) -> FloatArray:
            return np.asarray(np.einsum("ck,ck->c", self.time, values))

        mean = over_time(batch)
        tau_mean = over_time(batch * tau) / mean
        served_rps = self.rate * (1.0 - self.leaving)
        empty: npt.NDArray[np.bool_] = chains.number < chains.machines[:, None]
        run_in = tau_mean / 2.0
        return Occupancy(
            utilisation=served_rps / (chains.top_rps * chains.machines),
            batch=batch,
            seen=self.seen,
            mean_batch=mean,
            idle=np.asarray((self.seen[:, :-1] * empty).sum(axis=1)),
            residence_s=mean * chains.machines / served_rps,
            p_wait=self.seen_waits,
            wait_mean_s=np.maximum(self.wait_s - run_in, self.wait_s / 4.0),
            wait_scv=np.maximum(self.square / np.maximum(self.wait_s, _TINY) ** 2 - 1.0, _LEAST_SCV),
            tau_mean_s=tau_mean,
            tau_variance=np.maximum(over_time(batch * tau**2) / mean - tau_mean**2, 0.0),
            memory_s=memory_s(chains.replica, chains.work, np.maximum(over_time(batch**2) / mean, 1.0)),
        )
