"""What an integer program chose: pools with their counts, a bound on every fleet, prices of its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from qmodel.candidates import Column
from qmodel.optimize.open_pools import OpenChoice
from qmodel.optimize.period_pools import PeriodPools
from qmodel.types import Holding, LimitKind

__all__ = ["Choice", "Outcome", "ShadowPrice"]

Outcome = Literal["solved", "infeasible", "unsettled", "time", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowPrice:
    """Change of the least cost per unit of one limit, from the relaxed master.

    Attributes:
        kind: ``cover`` (one request/s more of a class, or one request of a batch), or the kind of a limit (``stock``:
            one GPU more of a type).
        name: class or GPU type; empty where the limit has none.
        usd_per_hour: per unit.
    """

    kind: Literal["cover"] | LimitKind
    name: str
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What the integer program chose.

    Attributes:
        chosen: columns with their counts, at least 1; empty where there is no fleet, and where there are several
            periods.
        open_pools: pools of measured capacity with their counts; empty as ``chosen`` is.
        pools: the same over all periods, where there are several.
        measured: pools of measured capacity in each period, where there are several.
        served: whether each period is served, where some may be left out; else empty.
        outcome: ``solved``; ``infeasible``: no fleet exists; ``unsettled``: no fleet of these columns, others
            are not ruled out; ``time`` or ``error``, with the best fleet until then, if any.
        cost_usd_per_hour: of the fleet; infinite where there is none.
        bound_usd_per_hour: on every fleet; minus infinity where none was found.
        columns_bound_usd_per_hour: on fleets made of these columns.
        words: the solver's own, kept for diagnosis.
        model_shares: share of a class that a model serves, by class and model; those of classes with several models.
        doubtful: cheaper choices some of whose pools carry a little less than they were taken for: with a replica more,
            or with one less elsewhere, they may still be the cheapest.
    """

    chosen: tuple[tuple[Column, int], ...]
    open_pools: tuple[OpenChoice, ...] = ()
    pools: tuple[PeriodPools, ...] = ()
    measured: tuple[tuple[OpenChoice, ...], ...] = ()
    served: tuple[bool, ...] = ()
    outcome: Outcome
    cost_usd_per_hour: float
    bound_usd_per_hour: float
    columns_bound_usd_per_hour: float
    prices: tuple[ShadowPrice, ...]
    words: str
    model_shares: Mapping[tuple[str, str], float] = field(default_factory=dict)
    doubtful: tuple[Choice, ...] = ()

    @property
    def holdings(self) -> list[Holding]:
        """Its pools as limits see them; columns whose replicas add up are one pool each."""
        found = []
        for column, count in self.chosen:
            pools, serving = (1, column.replicas * count) if column.candidate.adds_up else (count, column.replicas)
            found += [column.candidate.holding(serving)] * pools
        return found + [item.pool.candidate.holding(item.replicas) for item in self.open_pools]

    @property
    def empty(self) -> bool:
        """Whether there is no fleet."""
        return not self.chosen and not self.open_pools and not self.pools and not any(self.measured)
