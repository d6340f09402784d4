"""Pools in a row in the integer program: a class flows through every stage of a chain, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qmodel.candidates import NO_STAGES, Chain, ColumnSet, StageColumns
from qmodel.optimize.alternatives import each_once
from qmodel.optimize.limit_rows import Ledger
from qmodel.types import RequestClass

__all__ = ["PASSING", "Columns", "add_chains", "carried_in_rows"]

PASSING = "passing"  # begins the names of variables that say what passes a chain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Unified pools and those of stages, as the two programs see them.

    Attributes:
        classes: those of the scenario and their parts, by group of columns.
        stages: what separate pools could carry.
    """

    classes: Mapping[str, Sequence[RequestClass]]
    stages: StageColumns = NO_STAGES

    @property
    def whole(self) -> list[RequestClass]:
        """Classes of the scenario, each once, in the order of their groups."""
        return each_once(
            item for group, members in self.classes.items() if group not in self.stages.sets for item in members
        )

    @property
    def same(self) -> bool:
        """Whether both programs know the same columns."""
        return not self.stages.chosen_only and not self.stages.bounding_only

    def chosen(self, sets: Mapping[str, ColumnSet]) -> dict[str, ColumnSet]:
        """Columns of the master."""
        return {name: item for name, item in sets.items() if name not in self.stages.bounding_only}

    def bounding(self, sets: Mapping[str, ColumnSet]) -> dict[str, ColumnSet]:
        """Columns of the relaxation."""
        return {name: item for name, item in sets.items() if name not in self.stages.chosen_only}


def add_chains(ledger: Ledger, chains: Sequence[Chain]) -> list[str]:
    """A share of each chain's class that passes its stages: what it covers of the class it takes of every part.

    Returns:
        Names of the parts, each of which needs a row: what its pools carry is no less than what passes.
    """
    for chain in chains:
        passing = ledger.builder.variable(f"{PASSING} {' '.join(chain.parts)}", cost=0.0, upper=1.0, integer=False)
        ledger.carries(passing, passing, {chain.cls: 1.0, **dict.fromkeys(chain.parts, -1.0)}, model=chain.model)
    return list(dict.fromkeys(part for chain in chains for part in chain.parts))


def carried_in_rows(chains: Sequence[Chain], carried: Mapping[str, float]) -> dict[str, float]:
    """Share of each class that can pass all stages of its chains.

    Args:
        chains: of all classes.
        carried: share of each part that its pools carry.
    """
    found: dict[str, float] = {}
    left = dict(carried)
    for chain in chains:
        through = min(left.get(part, 0.0) for part in chain.parts)
        if through > 0.0:
            found[chain.cls] = found.get(chain.cls, 0.0) + through
            left |= {part: left[part] - through for part in chain.parts}
    return found
