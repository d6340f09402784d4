"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from qmodel.simulation.replica_engine import SimReplica

__all__ = ["ROUTERS", "Dispatcher", "SimRouter"]

SimRouter = Literal["random", "round_robin", "jsq", "least_kv"]
ROUTERS: tuple[SimRouter, ...] = ("random", "round_robin", "jsq", "least_kv")
_EQUAL = 1e-9  # relative difference below which two loads are the same number with different rounding


class Dispatcher:
    """Chooses a replica for each request.

    ``random`` takes any, ``round_robin`` the next in turn, ``jsq`` one with the fewest requests present, ``least_kv``
    one with the least KV memory taken and asked for by its queue; ties are broken at random.
    """

    def __init__(self, router: SimRouter, rng: np.random.Generator) -> None:
        if router not in ROUTERS:
            raise ValueError(f"router must be one of {', '.join(ROUTERS)} (got {router!r})")
        self._router, self._rng, self._turn = router, rng, 0

    @property
    def looks_at_state(self) -> bool:
        """Whether all replicas must be at the present before a choice."""
        return self._router in ("jsq", "least_kv")

    def choose(self, replicas: Sequence[SimReplica], time_s: float) -> SimReplica:
        """One of ``replicas``, which are not empty."""
        if self._router == "random":
            return self._any(replicas)
        if self._router == "round_robin":
            self._turn += 1
            return replicas[(self._turn - 1) % len(replicas)]
        if self._router == "jsq":
            loads: list[float] = [replica.in_system for replica in replicas]
            limit = min(loads)
        else:
            loads = [replica.load(time_s) for replica in replicas]
            least = min(loads)
            limit = least + _EQUAL * max(abs(least), 1.0)
        return self._any([replicas[place] for place, load in enumerate(loads) if load <= limit])

    def _any(self, replicas: Sequence[SimReplica]) -> SimReplica:
        return replicas[int(self._rng.integers(len(replicas)))] if len(replicas) > 1 else replicas[0]
