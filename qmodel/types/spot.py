"""Spot GPUs: instances that are taken away at random and come back; how many replicas of a pool are up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

__all__ = ["SpotTerms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTerms:
    """How often spot GPUs are taken away, and what a pool on them must bear.

    An instance serves for an exponential time of mean 1 / rate and is then away for ``restart_s``. Instances are lost
    independently of each other. A replica is up while all instances it lies on are.

    Attributes:
        preemptions_per_hour: rate at which one instance is taken away while it serves.
        restart_s: from then until what it held serves again elsewhere: a new instance, its boot, the weights.
        instance_gpus: GPUs of one instance, which are lost together.
        share_of_time: a pool keeps its targets with the replicas that are up in this share of the time.
    """

    preemptions_per_hour: float
    restart_s: float
    instance_gpus: int = 1
    share_of_time: float = 0.99

    def losses_per_s(self, replica_gpus: int) -> float:
        """Rate at which one replica is lost while it serves: that of all instances it lies on."""
        return self.preemptions_per_hour / 3600.0 * ceil(replica_gpus / self.instance_gpus)

    def availability(self, replica_gpus: int) -> float:
        """Share of the time that what is lost together is up: ``1 / (1 + rate * restart_s)``.

        Example:
            >>> terms = SpotTerms(preemptions_per_hour=0.1, restart_s=400.0, instance_gpus=8)
            >>> round(terms.availability(8), 5), round(terms.availability(16), 5)
            (0.98901, 0.97826)
        """
        return 1.0 / (1.0 + self.losses_per_s(replica_gpus) * self.restart_s)

    def together(self, replica_gpus: int) -> int:
        """Replicas that are lost together: those that fill one instance."""
        return max(self.instance_gpus // replica_gpus, 1)

    def lost(self, replicas: int, replica_gpus: int) -> int:
        """Replicas of a pool that a plan takes as lost.

        With I the instances (or replicas, if these are larger) and l the least number of which no more than l are away
        in ``share_of_time`` of the time, binomial, the l fullest of them; and one of them at least, so that no pool
        hangs on a single instance. Own construction.

        Example:
            >>> terms = SpotTerms(preemptions_per_hour=0.5, restart_s=360.0)
            >>> [terms.lost(replicas, 1) for replicas in (1, 4, 20)]
            [1, 2, 4]
        """
        return _lost(self, replicas, replica_gpus)

    def replicas_for(self, serving: int, replica_gpus: int) -> int:
        """The least number of replicas of which ``serving`` are left.

        Example:
            >>> SpotTerms(preemptions_per_hour=0.5, restart_s=360.0).replicas_for(16, 1)
            20
        """
        return _replicas_for(self, serving, replica_gpus)


@lru_cache(maxsize=16384)
def _lost(terms: SpotTerms, replicas: int, replica_gpus: int) -> int:
    from scipy.special import bdtr

    together = terms.together(replica_gpus)
    units, away = ceil(replicas / together), 1.0 - terms.availability(replica_gpus)
    low, high = -1, units  # of units away: too few, enough
    while high - low > 1:
        middle = (low + high) // 2
        enough = float(bdtr(middle, units, away)) >= terms.share_of_time
        low, high = (low, middle) if enough else (middle, high)
    return min(max(high, 1) * together, replicas) if away > 0.0 else 0


@lru_cache(maxsize=16384)
def _replicas_for(terms: SpotTerms, serving: int, replica_gpus: int) -> int:
    replicas = serving
    while (left := replicas - _lost(terms, replicas, replica_gpus)) < serving:
        replicas += serving - left  # what is left grows by no more than what is added
    return replicas
