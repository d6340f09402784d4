"""Replicas that come, go and fail."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Availability", "Outage", "draw_outages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One replica is gone from ``down_s`` until a replacement serves at ``up_s``."""

    replica: int
    down_s: float
    up_s: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.down_s < self.up_s):
            raise ValueError(f"down_s must be at least 0 and before up_s (got {self.down_s} and {self.up_s})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """How many replicas serve when, and when which of them fail.

    Attributes:
        counts: (time in s, replicas) from which so many are wanted, in order of time; before the first one the count
            that the pool was given. Replicas with the highest numbers go first; they take no new requests and finish
            those they have.
        startup_s: from being wanted to serving, for replicas that were not there; those at time 0 serve at once.
        outages: a replica loses all its sequences at ``down_s``; they go back to the router. Outages of one replica
            must not overlap.
        notice_s: so long before ``down_s`` the router learns of it: the replica gets nothing new, and its queue
            goes elsewhere.
        checkpoint_s: generated tokens are saved every so often, counted from the time the replica began to serve; a
            sequence that is lost goes on from the last checkpoint by prefilling its prompt and what was saved; None:
            it starts anew.

    Example:
        >>> Availability(counts=((3600.0, 4),), startup_s=120.0).startup_s
        120.0
    """

    counts: tuple[tuple[float, int], ...] = ()
    startup_s: float = 0.0
    outages: tuple[Outage, ...] = ()
    notice_s: float = 0.0
    checkpoint_s: float | None = None

    def __post_init__(self) -> None:
        times = [time_s for time_s, _ in self.counts]
        if any(not 0.0 <= time_s < math.inf for time_s in times) or times != sorted(times):
            raise ValueError(f"counts must be in order of time, from 0 on (got times {times})")
        if any(count < 0 for _, count in self.counts):
            raise ValueError(f"counts must not be negative (got {[count for _, count in self.counts]})")
        for name in ("startup_s", "notice_s"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite (got {getattr(self, name)})")
        if self.checkpoint_s is not None and not self.checkpoint_s > 0.0:
            raise ValueError(f"checkpoint_s must be greater than 0, or None (got {self.checkpoint_s})")
        last: dict[int, float] = {}
        for outage in sorted(self.outages, key=lambda item: item.down_s):
            if outage.down_s < last.get(outage.replica, 0.0):
                raise ValueError(f"outages of replica {outage.replica} overlap at {outage.down_s} s")
            last[outage.replica] = outage.up_s

    def most(self, replicas: int) -> int:
        """The largest count at any time."""
        return max([replicas, *(count for _, count in self.counts)])


def draw_outages(
    replicas: int, *, mean_up_s: float, repair_s: float, horizon_s: float, rng: np.random.Generator
) -> tuple[Outage, ...]:
    """Outages of replicas that each serve for an exponential time and are then away for ``repair_s``.

    Args:
        replicas: how many.
        mean_up_s: mean time between coming back and the next failure, s.
        repair_s: until a replacement serves, s.
        horizon_s: no outage begins after this time.
        rng: source of the draws.

    Raises:
        ValueError: naming the argument that is not positive.

    Example:
        >>> outages = draw_outages(2, mean_up_s=50.0, repair_s=10.0, horizon_s=200.0, rng=np.random.default_rng(3))
        >>> all(outage.up_s - outage.down_s == 10.0 for outage in outages)
        True
    """
    for name, value in (("mean_up_s", mean_up_s), ("repair_s", repair_s), ("horizon_s", horizon_s)):
        if not 0.0 < value < math.inf:
            raise ValueError(f"{name} must be greater than 0 and finite (got {value})")
    outages = []
    for replica in range(replicas):
        down_s = float(rng.exponential(mean_up_s))
        while down_s <= horizon_s:
            outages.append(Outage(replica=replica, down_s=down_s, up_s=down_s + repair_s))
            down_s += repair_s + float(rng.exponential(mean_up_s))
    return tuple(sorted(outages, key=lambda item: item.down_s))
