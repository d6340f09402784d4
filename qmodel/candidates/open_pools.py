"""Open pools: measured capacities, linear in the mix, so that any flow of classes through them is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.candidates.pool_kinds import ApiCandidate, MeasuredCandidate
from qmodel.types import RequestClass

__all__ = ["OpenPool", "cheapest_alone_usd", "least_rate_usd", "open_pools_of"]

_ROUNDING = 1e-9  # of a count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenPool:
    """A pool of measured capacity, or an API, and what the demand takes of it.

    Attributes:
        candidate: the pool without its count.
        takes: replicas that the whole demand of a class takes, by class name; other classes are not served. Of an API:
            share of the limit on its rate.
    """

    candidate: MeasuredCandidate
    takes: Mapping[str, float]

    @property
    def flow_usd_per_hour(self) -> Mapping[str, float]:
        """What the whole demand of a class costs beside the replicas, by class name: that of an API, else nothing."""
        return self.candidate.usd_per_hour if isinstance(self.candidate, ApiCandidate) else {}

    @property
    def is_api(self) -> bool:
        """Whether it has no replicas."""
        return isinstance(self.candidate, ApiCandidate)

    @property
    def most(self) -> int:
        """Replicas that the whole demand of all its classes takes; more are never of use."""
        return int(np.ceil(sum(self.takes.values()) - _ROUNDING))

    def least(self, name: str) -> int:
        """Replicas that carry the whole demand of a class alone; 0 where it is not served or stock is too small."""
        if name not in self.takes or self.is_api:
            return 0
        count = max(int(np.ceil(self.takes[name] - _ROUNDING)), 1)
        return count if count <= self.candidate.max_replicas else 0


def open_pools_of(measured: Sequence[MeasuredCandidate], classes: Sequence[RequestClass]) -> tuple[OpenPool, ...]:
    """Open pools of one model, without those that serve none of its classes.

    Args:
        measured: pools of measured capacity.
        classes: of that model.
    """
    found = []
    for candidate in measured:
        rates = candidate.capacity.max_rate_rps
        takes = {item.name: item.rate_rps / rates[item.name] for item in classes if item.name in rates}
        if takes:
            found.append(OpenPool(candidate=candidate, takes=takes))
    return tuple(found)


def least_rate_usd(pools: Sequence[OpenPool], name: str) -> float:
    """Least cost of the whole demand of a class in fractions of replicas, USD/h; infinite where none serves it."""
    return min(
        (
            item.flow_usd_per_hour.get(name, item.candidate.cost_usd_per_hour * item.takes[name])
            for item in pools
            if name in item.takes
        ),
        default=np.inf,
    )


def cheapest_alone_usd(pools: Sequence[OpenPool], name: str) -> float:
    """Cost of the cheapest pool that carries a class alone, whatever else is bought; infinite where none does."""
    able = [(item.candidate, item.least(name)) for item in pools if item.least(name)]
    unlimited = [item for item in pools if item.is_api and not any(item.takes.values())]
    costs = [item.flow_usd_per_hour[name] for item in unlimited if name in item.takes]
    costs += [candidate.most_usd_per_hour * candidate.pool_replicas(count) for candidate, count in able]
    return min(costs, default=np.inf)
