"""A pool whose requests leave when they have waited too long, and may come again: overload loses requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from qmodel.queueing.replica.attempts import impatient_cases
from qmodel.queueing.replica.kv_limited import length_overload
from qmodel.queueing.replica.pools import predictions_given
from qmodel.queueing.replica.predictions import ClassPrediction
from qmodel.queueing.replica.work import Work, pooled_work
from qmodel.types import Overload, Patience, Replica, RequestClass, Router, Stream

__all__ = ["ImpatientPool", "impatient_pool"]


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
        kv_fill: mean pool tokens held over the pool's tokens; None where memory is not limited.
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
    kv_fill: float | None
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
            "kv_fill": self.kv_fill,
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
    leaves then. Requests that come again add to the arrivals, as if at random: a fixed point.

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
    patience = Patience(patience_s=patience_s, retries=retries, backoff_s=backoff_s)
    work = pooled_work(replica, classes)
    too_long = length_overload(replica, work)
    if too_long is not None:
        return _too_long(work, too_long)
    found = impatient_cases(replica, work, patience, np.array([work.rate_rps]), np.array([float(replicas)]), router)
    leaving, rate_rps = float(found.leaving[0]), float(found.attempt_rps[0])
    again = [leaving**k for k in range(retries + 1)]
    served = sum(again) * (1.0 - leaving)
    lost_s = patience.lost_s(np.arange(retries + 1)).tolist()
    return ImpatientPool(
        abandoned=float(found.abandoned[0]),
        leaving=leaving,
        attempts=sum(again),
        attempt_rps=rate_rps,
        utilisation=float(found.utilisation[0]),
        p_wait=float(found.p_wait[0]),
        wait_mean_s=float(found.wait_mean_s[0]),
        lost_mean_s=sum(p * (1.0 - leaving) * s for p, s in zip(again, lost_s, strict=True)) / max(served, 1e-300),
        mean_batch=float(found.seen.mean_batch[0]),
        kv_fill=None if replica.kv_tokens is None else float(found.seen.mean_batch[0]) * work.held / replica.kv_tokens,
        classes=predictions_given(replica, work, found.seen, found.served_rps),
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
        kv_fill=None,
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
