"""From what the integer program chose to the pools of a plan, unified ones and those in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qmodel.candidates import Candidate, Chain, ColumnSet, StageCandidate
from qmodel.optimize import Choice, SolverOptions, solved_point
from qmodel.planning.assembly import assemble, cost_of, pools_of
from qmodel.planning.load_split import evened
from qmodel.planning.measured_pools import carried_by, measured_pools_of
from qmodel.planning.merging import merged
from qmodel.planning.planned_pools import PlannedKind
from qmodel.planning.planned_rows import NO_ROW, PlannedRow, row_of, settled_row
from qmodel.planning.pool_settings import roomiest
from qmodel.planning.split_batches import whole_batches
from qmodel.problem import Instance
from qmodel.types import Fleet, Holding, Limits

__all__ = ["BuiltFleet", "build"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BuiltFleet:
    """Pools that meet every target.

    Attributes:
        pools: that serve whole requests.
        row: that serve one stage.
    """

    pools: tuple[PlannedKind, ...]
    row: PlannedRow

    @property
    def fleet(self) -> Fleet:
        """Pools with names, and routing."""
        return assemble(self.pools, self.row)

    @property
    def holdings(self) -> list[Holding]:
        """Its pools as limits see them."""
        return [item.holding for item in (*self.pools, *self.row.pools)]

    def cost_usd_per_hour(self, limits: Limits) -> float:
        """With what stands idle in nodes that are paid whole."""
        return cost_of([*self.pools, *self.row.pools], limits)


def build(
    instance: Instance,
    choice: Choice,
    chains: Sequence[Chain],
    candidates: Sequence[Candidate],
    limits: Limits,
    sets: Mapping[str, ColumnSet],
    *,
    options: SolverOptions,
    trusting: bool = False,
) -> BuiltFleet | None:
    """The pools of a choice, each re-scored at its actual load; None where those in a row miss targets.

    Args:
        instance: the bound problem.
        choice: what the integer program chose.
        chains: of pools in a row that it chose from.
        candidates: unified pools that may take the place of a pair.
        limits: of the fleet.
        sets: columns by group of classes that may share pools.
        options: solver of the program that splits classes over their pools.
        trusting: as :func:`pools_of` has it.
    """
    staged = [item for item in choice.chosen if isinstance(item[0].candidate, StageCandidate)]
    unified = [item for item in choice.chosen if not isinstance(item[0].candidate, StageCandidate)]
    measured = measured_pools_of(instance, choice.open_pools)
    row: PlannedRow | None = NO_ROW
    if staged:
        elsewhere: dict[tuple[str, str], float] = {}
        carrying = [(item.candidate.model, carried_by([item])) for item in measured]
        carrying += [
            (column.candidate.model, {name: share * count for name, share in column.shares.items()})
            for column, count in unified
        ]
        for model, shares in carrying:
            for name, share in shares.items():
                elsewhere[name, model] = elsewhere.get((name, model), 0.0) + share
        held = [column.candidate.holding(column.replicas * count) for column, count in unified]
        held += [item.holding for item in measured]
        row = settled_row(instance, row_of(instance, staged, chains, elsewhere, choice.model_shares), held, limits)
    if row is None:
        return None
    predicted = pools_of(instance, unified, limits, measured, row, choice.model_shares, trusting)
    predicted = whole_batches(predicted, sets, limits)
    together = merged([*predicted, *measured, *row.pools], candidates, limits)
    pools = [item for item in together if not isinstance(item.candidate, StageCandidate)]
    if limits.change is None:  # else a replica with other settings may have to be started
        pools = roomiest(pools, candidates)
    return BuiltFleet(pools=tuple(evened(pools, lambda program: solved_point(program, options))), row=row)
