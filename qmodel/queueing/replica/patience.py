"""A pool whose requests leave when they have waited too long, and may come again: overload loses requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from qmodel.queueing.replica.chain import Occupancy, chain_states, memory_s, top_rate_rps
from qmodel.queueing.replica.kv_limited import MemoryLimit, length_overload, memory_limit
from qmodel.queueing.replica.pools import predictions_given
from qmodel.queueing.replica.predictions import ClassPrediction
from qmodel.queueing.replica.slot_waits import slot_wait_shape
from qmodel.queueing.replica.work import Work, pooled_work
from qmodel.types import FloatArray, Overload, Replica, RequestClass, Router, Stream

__all__ = ["ImpatientPool", "impatient_pool"]

_ROUNDS = 200
_SETTLED = 1e-9
_FULLEST = 0.9995  # utilisation at which the shape of waits is taken where more is offered
_MOST_EXPONENT = 600.0
_WAIT_POINTS = 801
_FAR = 40.0  # decay lengths
_LEAST_SCV = 2e-4  # of waits that nearly all last as long as the patience


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImpatientPool:
    """A pool whose requests leave after ``patience_s`` in the queue and may come again.

    Attributes:
        abandoned: share of the requests that leave for good.
        leaving: share of the attempts that end by leaving.
        attempts: mean attempts of one request.
        attempt_rps: attempts that the whole pool receives, requests/s.
        utilisation: attempts offered over the largest rate that the pool carries; may exceed 1.
        p_wait: share of the attempts that find no slot or no memory.
        wait_mean_s: mean wait of the attempts that are served, s.
        lost_mean_s: mean time that served requests lost in earlier attempts and pauses, s.
        mean_batch: mean sequences in service per replica.
        classes: predictions for requests that are served, from the arrival of the attempt that is; empty with an
            overload.
        overload: a request that outgrows the memory; None otherwise, for load alone is none.
    """

    abandoned: float
    leaving: float
    attempts: float
    attempt_rps: float
    utilisation: float
    p_wait: float
    wait_mean_s: float
    lost_mean_s: float
    mean_batch: float
    classes: Mapping[str, ClassPrediction]
    overload: Overload | None = None

    def __getitem__(self, name: str) -> ClassPrediction:
        if name not in self.classes:
            raise KeyError(f"no prediction for class {name!r}; classes are {', '.join(map(repr, self.classes))}")
        return self.classes[name]

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "abandoned": self.abandoned,
            "leaving": self.leaving,
            "attempts": self.attempts,
            "attempt_rps": self.attempt_rps,
            "utilisation": self.utilisation,
            "p_wait": self.p_wait,
            "wait_mean_s": self.wait_mean_s,
            "lost_mean_s": self.lost_mean_s,
            "mean_batch": self.mean_batch,
            "classes": {name: found.to_dict() for name, found in self.classes.items()},
            "overload": None if self.overload is None else asdict(self.overload),
        }


def impatient_pool(
    replica: Replica,
    classes: Sequence[Stream | RequestClass],
    replicas: int,
    *,
    patience_s: float,
    retries: int = 0,
    backoff_s: float = 1.0,
    router: Router = "random",
) -> ImpatientPool:
    """Predict a pool whose requests leave when they were not admitted in time.

    Below the limits of slots and memory it is the pool of :func:`pool`. At the limits the wait that an arrival would
    have has a density that falls (or, in overload, rises) exponentially up to the patience: who would wait longer
    leaves then. Requests that come again add to the arrivals, as if at random: a fixed point, the least one where
    there are several.

    Args:
        replica: engine instance that the pool is made of.
        classes: streams with the rates that the whole pool receives, requests/s, first attempts only.
        replicas: number of replicas, at least 1.
        patience_s: a request leaves when it was not admitted so long after it came, s.
        retries: times that it comes back.
        backoff_s: pause before it first comes back, s; doubles with every further time.
        router: ``random`` or ``jsq``.

    Returns:
        :class:`ImpatientPool`; load alone is no overload.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.types import Law, Lengths, StepLaw
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0), max_num_seqs=10)
        >>> chat = Stream(name="chat", rate_rps=15.0, lengths=Lengths.independent(Law.constant(10), Law.constant(100)))
        >>> found = impatient_pool(engine, [chat], 1, patience_s=2.0)  # 10 a second can be served
        >>> round(found.abandoned, 2), found.wait_mean_s < 2.0
        (0.33, True)

    Reference: Baccelli and Hebuterne, On queues with impatient customers (1981), for M/M/c+D; the state-dependent
        speed and the ratio for general lengths are own construction, see docs/theory/patience.md.
    """
    _check(replicas, patience_s, retries, backoff_s, router)
    work = pooled_work(replica, classes)
    too_long = length_overload(replica, work)
    if too_long is not None:
        return _too_long(work, too_long)
    pool = _Pool.of(replica, work, float(replicas), router)
    rate_rps = work.rate_rps
    for _ in range(_ROUNDS):
        leaving = pool.attempt(rate_rps, patience_s).leaving
        wanted = work.rate_rps * sum(leaving**k for k in range(retries + 1))
        if abs(wanted - rate_rps) <= _SETTLED * rate_rps:
            break
        rate_rps = 0.5 * (rate_rps + wanted)
    found = pool.attempt(rate_rps, patience_s)
    again = [found.leaving**k for k in range(retries + 1)]
    served = sum(again) * (1.0 - found.leaving)
    lost_s = [k * patience_s + backoff_s * (2.0**k - 1.0) for k in range(retries + 1)]
    throughput = np.array([rate_rps * (1.0 - found.leaving) / replicas])
    return ImpatientPool(
        abandoned=found.leaving ** (retries + 1),
        leaving=found.leaving,
        attempts=sum(again),
        attempt_rps=rate_rps,
        utilisation=rate_rps / (replicas * pool.top_rps),
        p_wait=found.p_wait,
        wait_mean_s=found.wait_mean_s,
        lost_mean_s=sum(p * (1.0 - found.leaving) * s for p, s in zip(again, lost_s, strict=True))
        / max(served, 1e-300),
        mean_batch=float(found.seen.mean_batch[0]),
        classes=predictions_given(replica, work, found.seen, throughput),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Attempt:
    """What attempts at one rate meet; ``seen`` and ``wait_mean_s`` are of those that are served."""

    leaving: float
    p_wait: float
    wait_mean_s: float
    seen: Occupancy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pool:
    """A chain of one replica, or of all with a shortest-queue router.

    Attributes:
        machines: replicas that share the chain.
        others: chains that share the stream.
        top_rps: largest rate of one replica, requests/s.
        number, weight, batch, tau, speed: nodes of the chain up to its last state, shape (K,).
    """

    replica: Replica
    work: Work
    limit: MemoryLimit | None
    machines: float
    others: float
    top_rps: float
    by_memory: bool
    number: FloatArray
    weight: FloatArray
    batch: FloatArray
    tau: FloatArray
    speed: FloatArray

    @classmethod
    def of(cls, replica: Replica, work: Work, replicas: float, router: Router) -> _Pool:
        limit = memory_limit(replica, work)
        top_rps, by_memory = top_rate_rps(replica, work, limit)
        machines = replicas if router == "jsq" else 1.0
        number, weight, batch, tau, speed = (
            item[0] for item in chain_states(replica, work, limit, np.array([machines]))
        )
        last = number.size
        if by_memory and limit is not None:  # arrivals wait from where memory is full on average
            last = max(int(np.searchsorted(number, limit.fits * machines)), 2)
        return cls(
            replica=replica,
            work=work,
            limit=limit,
            machines=machines,
            others=replicas / machines,
            top_rps=top_rps,
            by_memory=by_memory,
            number=number[:last],
            weight=weight[:last],
            batch=batch[:last],
            tau=tau[:last],
            speed=np.minimum(speed[:last], top_rps * machines),
        )

    def attempt(self, rate_rps: float, patience_s: float) -> _Attempt:
        """Attempts at ``rate_rps`` of the whole pool."""
        rate = rate_rps / self.others
        free, full = self._masses(rate)
        top = self.top_rps * self.machines
        rho = np.array([min(rate / top, _FULLEST)])
        ratio, _ = slot_wait_shape(self.replica, self.work, self.limit, np.array([self.machines]), rho, self.by_memory)
        spread = float(np.asarray(ratio).ravel()[0])
        fall, end = (top - rate) / spread, top / spread
        far = _FAR / max(abs(fall), 1e-300)  # beyond it nothing of the density is left
        x = np.linspace(max(patience_s - far, 0.0) if fall < 0.0 else 0.0, patience_s, _WAIT_POINTS)
        if fall > 0.0:
            x = np.linspace(0.0, min(far, patience_s), _WAIT_POINTS)
        exponent = -fall * x
        shift = max(float(exponent.max()), 0.0)  # keeps an overloaded queue's rising density finite
        density = full * top / spread * np.exp(exponent - shift)
        below = free * math.exp(-min(shift, _MOST_EXPONENT))
        waited, squared = (float(np.trapezoid(density * x**k, x)) for k in (1, 2))
        within = float(np.trapezoid(density, x))
        beyond = full * top / spread * math.exp(max(-fall * patience_s - shift, -_MOST_EXPONENT)) / end
        total = float(below.sum()) + within + beyond
        leaving = beyond / total
        seen = np.append(below, within) / max(float(below.sum()) + within, 1e-300)
        time = np.append(below, within + beyond) / total
        wait_s, p_wait = waited / max(within, 1e-300), float(seen[-1])
        return _Attempt(
            leaving=leaving,
            p_wait=(within + beyond) / total,
            wait_mean_s=p_wait * wait_s,
            seen=self._occupancy(rate * (1.0 - leaving), seen, time, wait_s, squared / max(within, 1e-300)),
        )

    def _masses(self, rate: float) -> tuple[FloatArray, float]:
        """Unnormalised masses of the states in which nobody waits, and of the single state that fills the pool."""
        slow = -np.log(np.append(self.speed[1], self.speed[1:]))
        gaps = np.diff(self.number)
        steps = 0.5 * gaps * (slow[1:] + slow[:-1]) + 0.5 * np.diff(slow)
        log_mass = self.number * math.log(rate) + np.append(0.0, np.cumsum(steps))
        mass = np.exp(np.maximum(log_mass - log_mass.max(), -_MOST_EXPONENT))
        free = mass * self.weight
        free[-1] = max(free[-1] - mass[-1], 0.0)
        return free, float(mass[-1])

    def _occupancy(
        self, served_rps: float, seen: FloatArray, time: FloatArray, wait_s: float, square: float
    ) -> Occupancy:
        batch, tau = (np.append(item, item[-1]) for item in (self.batch, self.tau))
        mean = float(time @ batch)
        tau_mean = float(time @ (batch * tau)) / mean
        second = float(time @ batch**2) / mean
        one = np.ones(1)
        run_in = tau_mean / 2.0
        return Occupancy(
            utilisation=one * served_rps / (self.top_rps * self.machines),
            batch=batch[None, :],
            seen=seen[None, :],
            mean_batch=one * mean,
            idle=one * float(seen @ (np.append(self.number, np.inf) < self.machines)),
            residence_s=one * mean * self.machines / served_rps,
            p_wait=one * float(seen[-1]),
            wait_mean_s=one * max(wait_s - run_in, wait_s / 4.0),
            wait_scv=one * max(square / max(wait_s, 1e-300) ** 2 - 1.0, _LEAST_SCV),
            tau_mean_s=one * tau_mean,
            tau_variance=one * max(float(time @ (batch * tau**2)) / mean - tau_mean**2, 0.0),
            memory_s=memory_s(self.replica, self.work, np.maximum(one * second, 1.0)),
        )


def _too_long(work: Work, overload: Overload) -> ImpatientPool:
    return ImpatientPool(
        abandoned=0.0,
        leaving=0.0,
        attempts=1.0,
        attempt_rps=work.rate_rps,
        utilisation=math.inf,
        p_wait=0.0,
        wait_mean_s=math.inf,
        lost_mean_s=0.0,
        mean_batch=0.0,
        classes={},
        overload=overload,
    )


def _check(replicas: int, patience_s: float, retries: int, backoff_s: float, router: str) -> None:
    if not (float(replicas).is_integer() and 1 <= replicas <= 1_000_000):
        raise ValueError(f"replicas must be a whole number from 1 to 1,000,000 (got {replicas!r})")
    if not 0.0 < patience_s < math.inf:
        raise ValueError(f"patience_s must be greater than 0 s and finite (got {patience_s!r}); without it use pool")
    if not (float(retries).is_integer() and 0 <= retries <= 100):
        raise ValueError(f"retries must be a whole number from 0 to 100 (got {retries!r})")
    if not 0.0 <= backoff_s < math.inf:
        raise ValueError(f"backoff_s must be at least 0 s and finite (got {backoff_s!r})")
    if router not in ("random", "jsq"):
        raise ValueError(f"router must be 'random' or 'jsq' (got {router!r})")
